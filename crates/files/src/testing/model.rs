//! What files promise, in the plainest form: bytes by name.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_zoned::Prng;

use crate::{Event, FileData, FileError, FileId, FileStore, Lifetime, Outcome, RequestId};

/// Where a store is while it is tested.
pub(crate) trait Host {
    fn store(&mut self) -> &mut FileStore;
    fn prng(&mut self) -> &mut Prng;
    /// The oldest event that nobody has heard of.
    fn next_event(&mut self) -> Option<Event>;
    /// Lets everything end that is under way.
    fn rest(&mut self);
}

/// A file of the model; its place in the list is its identity.
#[derive(Clone, Debug)]
struct ModelFile {
    id: FileId,
    /// All that was appended, acknowledged or not.
    content: Vec<u8>,
    acknowledged: usize,
    /// Bytes that a crash must leave.
    durable: usize,
    /// A crash must leave the file.
    is_durable: bool,
    /// A close was asked for: appends may be refused.
    may_be_closed: bool,
    /// A close was acknowledged: appends must be refused.
    is_closed: bool,
    is_gone: bool,
}

/// A request that has not ended.
#[derive(Clone, Debug)]
enum Pending {
    Append { file: usize, start: usize, end: usize },
    Sync { file: usize, target: usize, closes: bool },
    Read { expected: Vec<u8> },
    Name { change: usize },
}

/// A change of names: what was asked for, in the order of asking.
#[derive(Clone, Debug)]
enum Change {
    Delete { name: String },
    Rename { file: usize, from: String, to: String },
    Create { file: usize, name: String },
}

/// The model, and the requests under way.
pub(crate) struct Model {
    files: Vec<ModelFile>,
    names: BTreeMap<String, usize>,
    /// Names when the store was last mounted.
    base: BTreeMap<String, usize>,
    changes: Vec<Change>,
    /// Changes up to here must survive a crash.
    durable_changes: usize,
    pending: BTreeMap<RequestId, Pending>,
    next_request: u64,
    /// Requests that ended with an error of space or medium.
    pub(crate) refusals: u64,
    pub(crate) reads: u64,
    /// The drive fails writes.
    pub(crate) may_fail: bool,
    append_bytes_max: u64,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model::with_appends_of(20_000)
    }

    /// A tenth of the appends are of up to so many bytes.
    pub(crate) fn with_appends_of(append_bytes_max: u64) -> Model {
        Model {
            append_bytes_max,
            files: Vec::new(),
            names: BTreeMap::new(),
            base: BTreeMap::new(),
            changes: Vec::new(),
            durable_changes: 0,
            pending: BTreeMap::new(),
            next_request: 0,
            refusals: 0,
            reads: 0,
            may_fail: false,
        }
    }

    /// Asks for something, drawn by the world's generator.
    pub(crate) fn request(&mut self, world: &mut impl Host) {
        let name = ["a", "b", "c", "dir/d", "e.sst", "g", "h", "i", "j"][world.prng().below(9) as usize].to_owned();
        match world.prng().below(24) {
            0..5 => self.create(world, &name),
            5..14 => self.append(world, &name),
            14..16 => self.sync(world, &name, false),
            16..18 => self.sync(world, &name, true),
            18..20 => self.read(world, &name),
            20..23 => self.delete(world, &name),
            _ => {
                let to = ["a", "b", "f"][world.prng().below(3) as usize].to_owned();
                self.rename(world, &name, &to);
            }
        }
        self.hear(world);
    }

    fn create(&mut self, world: &mut impl Host, name: &str) {
        let lifetime = Lifetime::ALL[world.prng().below(6) as usize];
        match world.store().create(name, lifetime) {
            Ok(id) => {
                assert!(!self.names.contains_key(name), "{name} was there");
                let file = self.files.len();
                self.files.push(ModelFile {
                    id,
                    content: Vec::new(),
                    acknowledged: 0,
                    durable: 0,
                    is_durable: false,
                    may_be_closed: false,
                    is_closed: false,
                    is_gone: false,
                });
                self.names.insert(name.to_owned(), file);
                self.changes.push(Change::Create { file, name: name.to_owned() });
            }
            Err(FileError::Exists) => assert!(self.names.contains_key(name), "{name} was not there"),
            Err(FileError::TooManyFiles) => self.refusals += 1,
            Err(FileError::Media { .. }) if self.may_fail => self.refusals += 1,
            Err(error) => panic!("create: {error}"),
        }
    }

    fn append(&mut self, world: &mut impl Host, name: &str) {
        let Some(&file) = self.names.get(name) else { return };
        let length = match world.prng().below(10) {
            0 => 0,
            1..5 => world.prng().below(300),
            5..9 => world.prng().below(3000),
            _ => world.prng().below(self.append_bytes_max),
        };
        let data: Vec<u8> = (0..length).map(|_| world.prng().next_u64() as u8).collect();
        let request = self.next();
        let start = self.files[file].content.len();
        self.files[file].content.extend_from_slice(&data);
        let end = start + data.len();
        self.pending.insert(request, Pending::Append { file, start, end });
        world.store().append(request, self.files[file].id, FileData::Bytes(Bytes::from(data)));
    }

    fn sync(&mut self, world: &mut impl Host, name: &str, closes: bool) {
        let Some(&file) = self.names.get(name) else { return };
        let request = self.next();
        let target = self.files[file].content.len();
        self.pending.insert(request, Pending::Sync { file, target, closes });
        if closes {
            world.store().close(request, self.files[file].id);
            self.files[file].may_be_closed = true;
        } else {
            world.store().sync(request, self.files[file].id);
        }
    }

    fn read(&mut self, world: &mut impl Host, name: &str) {
        let Some(&file) = self.names.get(name) else { return };
        let known = &self.files[file];
        let acknowledged = known.acknowledged as u64;
        assert_eq!(world.store().len_bytes(known.id), Some(acknowledged), "bytes of {name}");
        let offset = world.prng().below(acknowledged + 10);
        let bytes = world.prng().below(acknowledged + 100) as u32;
        let end = (offset + u64::from(bytes)).min(acknowledged) as usize;
        let expected = known.content.get(offset as usize..end).unwrap_or_default().to_vec();
        let id = known.id;
        let request = self.next();
        self.pending.insert(request, Pending::Read { expected });
        world.store().read(request, id, offset, bytes);
        self.reads += 1;
    }

    fn delete(&mut self, world: &mut impl Host, name: &str) {
        let request = self.next();
        let Some(file) = self.names.remove(name) else {
            world.store().delete(request, name);
            let ended = Event::Done { request, result: Err(FileError::NoSuchFile) };
            let broken = self.may_fail;
            let event = world.next_event();
            assert!(event == Some(ended) || broken, "{event:?}");
            return;
        };
        self.files[file].is_gone = true;
        let change = self.changes.len();
        self.changes.push(Change::Delete { name: name.to_owned() });
        self.pending.insert(request, Pending::Name { change });
        world.store().delete(request, name);
        if self.may_fail && world.store().lookup(name).is_some() {
            // Refused: the metadata cannot be written.
            self.files[file].is_gone = false;
            self.names.insert(name.to_owned(), file);
            self.changes.pop();
        }
    }

    fn rename(&mut self, world: &mut impl Host, from: &str, to: &str) {
        if !self.names.contains_key(from) || from == to {
            return;
        }
        let before = self.names.clone();
        let file = self.names.remove(from).expect("it is there");
        if let Some(replaced) = self.names.insert(to.to_owned(), file) {
            self.files[replaced].is_gone = true;
        }
        let request = self.next();
        let change = self.changes.len();
        self.changes.push(Change::Rename { file, from: from.to_owned(), to: to.to_owned() });
        self.pending.insert(request, Pending::Name { change });
        world.store().rename(request, from, to);
        if self.may_fail && world.store().lookup(from).is_some() {
            if let Some(replaced) = before.get(to) {
                self.files[*replaced].is_gone = false;
            }
            self.names = before;
            self.changes.pop();
        }
    }

    fn next(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// Hears of the requests that have ended.
    pub(crate) fn hear(&mut self, world: &mut impl Host) {
        while let Some(event) = world.next_event() {
            match event {
                Event::Done { request, result } => self.on_done(world, request, result),
                Event::Failed(error) => assert!(self.may_fail, "{error}"),
                Event::Ready => panic!("it was ready"),
            }
        }
        let names: Vec<(&str, FileId)> = world.store().names().collect();
        let expected: Vec<(&str, FileId)> =
            self.names.iter().map(|(name, file)| (name.as_str(), self.files[*file].id)).collect();
        assert_eq!(names, expected);
    }

    fn on_done(&mut self, world: &mut impl Host, request: RequestId, result: Result<Outcome, FileError>) {
        let pending = self.pending.remove(&request).expect("a request ends once");
        match (pending, result) {
            (Pending::Read { expected }, Ok(Outcome::Data(found))) => {
                assert!(found == expected, "a read of {} bytes found {}", expected.len(), found.len());
            }
            (Pending::Append { file, end, .. }, Ok(_)) => {
                let file = &mut self.files[file];
                assert!(!file.is_closed, "a closed file takes no data");
                file.acknowledged = file.acknowledged.max(end);
            }
            (Pending::Sync { file, target, closes }, Ok(_)) => {
                let file = &mut self.files[file];
                file.durable = file.durable.max(target);
                file.is_durable = true;
                file.is_closed |= closes;
            }
            (Pending::Name { change }, Ok(_)) => {
                self.durable_changes = self.durable_changes.max(change + 1);
                if let Change::Rename { file, .. } = self.changes[change] {
                    self.files[file].is_durable = true;
                }
            }
            (Pending::Append { file, .. } | Pending::Sync { file, .. }, Err(FileError::NoSuchFile)) => {
                assert!(self.files[file].is_gone, "the file is there");
            }
            (Pending::Append { file, start, .. }, Err(error)) => {
                let is_before = |pending: &Pending| matches!(pending, Pending::Append { file: other, end, .. } if *other == file && *end <= start);
                let is_refused_at_once = self.pending.values().any(is_before);
                let known = &mut self.files[file];
                self.refusals += 1;
                match error {
                    FileError::NotOpen => assert!(known.may_be_closed, "the file is open"),
                    FileError::NoSpace => {}
                    FileError::Media { .. } => assert!(self.may_fail, "{error}"),
                    error => panic!("append: {error}"),
                }
                // What found no room is not there, nor is what was to come behind it.
                if is_refused_at_once {
                    known.content.truncate(start);
                } else if let Some(length) = world.store().len_bytes(known.id) {
                    known.content.truncate(length as usize);
                    known.acknowledged = length as usize;
                }
            }
            (Pending::Sync { file, .. }, Err(error)) => {
                self.refusals += 1;
                match error {
                    FileError::NotOpen => assert!(self.files[file].may_be_closed),
                    FileError::NoSpace => {}
                    FileError::Media { .. } => assert!(self.may_fail, "{error}"),
                    error => panic!("sync: {error}"),
                }
            }
            (Pending::Name { .. } | Pending::Read { .. }, Err(FileError::Media { .. })) if self.may_fail => {}
            (pending, result) => panic!("{pending:?} ended with {result:?}"),
        }
    }

    /// Every request must have ended: nothing waits for ever.
    pub(crate) fn expect_rest(&self) {
        assert!(self.pending.is_empty(), "still waiting: {:?}", self.pending);
    }

    /// After a crash and a mount: what is there must be what may be there. The model goes on with it.
    pub(crate) fn compare(&mut self, world: &mut impl Host) {
        self.pending.clear();
        let found: BTreeMap<String, FileId> = world.store().names().map(|(name, id)| (name.to_owned(), id)).collect();
        let contents: BTreeMap<String, Vec<u8>> =
            found.iter().map(|(name, id)| (name.clone(), read_all(world, *id))).collect();
        let mut reasons = Vec::new();
        let explained = (self.durable_changes..=self.changes.len()).find_map(|count| {
            let names = self.names_after(count);
            match self.explains(&names, &contents) {
                Ok(()) => Some(()),
                Err(reason) => {
                    reasons.push(reason);
                    None
                }
            }
        });
        assert!(explained.is_some(), "no state of the names explains what is there: {reasons:#?}");
        let mut files = Vec::new();
        self.names.clear();
        for (name, content) in contents {
            let length = content.len();
            self.names.insert(name.clone(), files.len());
            files.push(ModelFile {
                id: found[&name],
                content,
                acknowledged: length,
                durable: length,
                is_durable: true,
                // Of two files of one name, each empty, nobody knows which it is.
                may_be_closed: true,
                is_closed: false,
                is_gone: false,
            });
        }
        self.files = files;
        self.base = self.names.clone();
        self.changes.clear();
        self.durable_changes = 0;
    }

    /// Names after the first `count` changes since the mount.
    fn names_after(&self, count: usize) -> BTreeMap<String, usize> {
        let mut names = self.base.clone();
        for change in &self.changes[..count] {
            match change {
                Change::Create { file, name } => names.insert(name.clone(), *file),
                Change::Delete { name } => names.remove(name),
                Change::Rename { file, from, to } => {
                    names.remove(from);
                    names.insert(to.clone(), *file)
                }
            };
        }
        names
    }

    fn explains(&self, names: &BTreeMap<String, usize>, contents: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        for (name, content) in contents {
            let file = &self.files[*names.get(name).ok_or(format!("{name} should not be there"))?];
            if content.len() < file.durable || !file.content.starts_with(content) {
                let same = content.iter().zip(&file.content).take_while(|(a, b)| a == b).count();
                return Err(format!(
                    "{name} has {} bytes, {same} of them right; {} were durable and {} appended",
                    content.len(),
                    file.durable,
                    file.content.len()
                ));
            }
        }
        for (name, file) in names {
            if self.files[*file].is_durable && !contents.contains_key(name) {
                return Err(format!("{name} is lost"));
            }
        }
        Ok(())
    }
}

/// All of a file, through the store.
fn read_all(world: &mut impl Host, file: FileId) -> Vec<u8> {
    let length = world.store().len_bytes(file).expect("the file is there");
    world.store().read(RequestId(0), file, 0, length as u32);
    world.rest();
    match world.next_event() {
        Some(Event::Done { result: Ok(Outcome::Data(found)), .. }) => {
            assert_eq!(found.len() as u64, length);
            found.to_vec()
        }
        other => panic!("reading a file after a mount: {other:?}"),
    }
}
