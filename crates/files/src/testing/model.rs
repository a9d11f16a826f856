//! The guarantees of files while a store is running, in the simplest form: bytes by name.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Event, FileData, FileError, FileId, FileStore, Outcome, RequestId};

use super::Request;

/// The expected files, and the outstanding requests of a store.
///
/// Requests are submitted with [`submit`](Model::submit); each event of the store must be passed to
/// [`on_event`](Model::on_event) before the next request. After a crash and a mount
/// [`recover`](Model::recover) checks whether the files found are allowed, and continues with them.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(super) files: Vec<ModelFile>,
    pub(super) names: BTreeMap<String, usize>,
    /// Names when the store was last mounted.
    pub(super) base: BTreeMap<String, usize>,
    pub(super) changes: Vec<Change>,
    /// Changes up to this one must survive a crash.
    pub(super) durable_changes: usize,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    next_request: u64,
    refusals: u64,
    reads: u64,
    /// Whether commands to the drive may fail, so that requests may end with errors of the medium.
    pub may_fail: bool,
}

/// A file of the model, identified by its index in the list.
#[derive(Clone, Debug)]
pub(super) struct ModelFile {
    pub(super) id: FileId,
    /// All appended data, acknowledged or not.
    pub(super) content: Vec<u8>,
    pub(super) acknowledged: usize,
    /// Bytes that must survive a crash.
    pub(super) durable: usize,
    /// The file must survive a crash.
    pub(super) is_durable: bool,
    /// A close was requested: appends may be refused.
    pub(super) may_be_closed: bool,
    /// A close was acknowledged: appends must be refused.
    pub(super) is_closed: bool,
    pub(super) is_deleted: bool,
}

/// An outstanding request.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Append {
        file: usize,
        start: usize,
        end: usize,
    },
    Sync {
        file: usize,
        target: usize,
        closes: bool,
    },
    Read {
        name: String,
        expected: Vec<u8>,
    },
    Name {
        change: usize,
    },
    /// A request for a name that does not exist.
    Refused,
}

/// A requested change of names, in the order of requests.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Delete { name: String },
    Rename { file: usize, from: String, to: String },
    Create { file: usize, name: String },
}

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The guarantee.
    pub promise: Promise,
    /// The file concerned, if it is one.
    pub file: Option<String>,
    /// A description.
    pub message: String,
}

/// A guarantee of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Requests return the correct results, and files have the correct names and lengths.
    Answers,
    /// Every request ends exactly once.
    Ends,
    /// Data acknowledged as durable survive a crash.
    Durability,
    /// Files contain the appended data, and nothing else.
    Contents,
}

impl Violation {
    pub(super) fn new(promise: Promise, file: &str, message: String) -> Violation {
        Violation { promise, file: Some(file.to_owned()), message }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl ModelFile {
    pub(super) fn new(id: FileId, content: Vec<u8>) -> ModelFile {
        let length = content.len();
        ModelFile {
            id,
            content,
            acknowledged: length,
            durable: length,
            is_durable: false,
            may_be_closed: false,
            is_closed: false,
            is_deleted: false,
        }
    }
}

impl Model {
    /// The model of a store without files.
    #[must_use]
    pub fn new() -> Model {
        Model::default()
    }

    /// Names of existing files; with `open_only`, only of files without a requested close.
    pub fn names(&self, open_only: bool) -> impl Iterator<Item = &str> {
        let wanted = move |file: &usize| !open_only || !self.files[*file].may_be_closed;
        self.names.iter().filter(move |(_, file)| wanted(file)).map(|(name, _)| name.as_str())
    }

    /// Bytes of acknowledged appends of a file; 0 if it does not exist.
    #[must_use]
    pub fn len_bytes(&self, name: &str) -> u64 {
        self.names.get(name).map_or(0, |file| self.files[*file].acknowledged as u64)
    }

    /// Requests that ended with an error of space or medium.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Requested reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Outstanding requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Submits a request to a store. `None` if no event will follow: for a create, or a file that
    /// does not exist.
    ///
    /// # Errors
    /// The store has returned an immediate, wrong result.
    pub fn submit(&mut self, store: &mut FileStore, request: &Request) -> Result<Option<RequestId>, Violation> {
        if let Request::Create { name, lifetime } = request {
            let result = store.create(name, *lifetime);
            return self.on_created(name, result).map(|()| None);
        }
        let known = self.names.get(request.name()).copied();
        let id = match (request, known) {
            (Request::Append { data, .. }, Some(file)) => {
                let known = &mut self.files[file];
                let start = known.content.len();
                known.content.extend_from_slice(data);
                let end = known.content.len();
                let id = self.wait_for(Pending::Append { file, start, end });
                store.append(id, self.files[file].id, FileData::Bytes(data.clone()));
                id
            }
            (Request::Sync { .. } | Request::Close { .. }, Some(file)) => {
                let closes = matches!(request, Request::Close { .. });
                let target = self.files[file].content.len();
                let id = self.wait_for(Pending::Sync { file, target, closes });
                if closes {
                    store.close(id, self.files[file].id);
                    self.files[file].may_be_closed = true;
                } else {
                    store.sync(id, self.files[file].id);
                }
                id
            }
            (Request::Read { name, offset_bytes, bytes }, Some(file)) => {
                let known = &self.files[file];
                if store.len_bytes(known.id) != Some(known.acknowledged as u64) {
                    let (found, known) = (store.len_bytes(known.id), known.acknowledged);
                    let message = format!("{name} has {found:?} bytes, but {known} were acknowledged");
                    return Err(Violation::new(Promise::Answers, name, message));
                }
                let end = (offset_bytes + u64::from(*bytes)).min(known.acknowledged as u64) as usize;
                let expected = known.content.get(*offset_bytes as usize..end).unwrap_or_default().to_vec();
                let file = known.id;
                let id = self.wait_for(Pending::Read { name: name.clone(), expected });
                store.read(id, file, *offset_bytes, *bytes);
                self.reads += 1;
                id
            }
            (Request::Delete { name }, Some(file)) => self.delete(store, name, file),
            (Request::Delete { name }, None) => {
                let id = self.wait_for(Pending::Refused);
                store.delete(id, name);
                id
            }
            (Request::Rename { from, to }, Some(file)) if from != to => self.rename(store, from, to, file),
            _ => return Ok(None),
        };
        Ok(Some(id))
    }

    fn wait_for(&mut self, pending: Pending) -> RequestId {
        self.next_request += 1;
        self.pending.insert(RequestId(self.next_request), pending);
        RequestId(self.next_request)
    }

    fn on_created(&mut self, name: &str, result: Result<FileId, FileError>) -> Result<(), Violation> {
        let exists = self.names.contains_key(name);
        match result {
            Ok(id) if !exists => {
                let file = self.files.len();
                self.files.push(ModelFile::new(id, Vec::new()));
                self.names.insert(name.to_owned(), file);
                self.changes.push(Change::Create { file, name: name.to_owned() });
            }
            Err(FileError::Exists) if exists => {}
            Err(FileError::TooManyFiles) => self.refusals += 1,
            Err(FileError::Media { .. }) if self.may_fail => self.refusals += 1,
            result => {
                let was = if exists { "existed" } else { "did not exist" };
                let message = format!("{name} {was}, and its creation ended with {result:?}");
                return Err(Violation::new(Promise::Answers, name, message));
            }
        }
        Ok(())
    }

    fn delete(&mut self, store: &mut FileStore, name: &str, file: usize) -> RequestId {
        self.names.remove(name);
        self.files[file].is_deleted = true;
        let id = self.wait_for(Pending::Name { change: self.changes.len() });
        self.changes.push(Change::Delete { name: name.to_owned() });
        store.delete(id, name);
        if self.may_fail && store.lookup(name).is_some() {
            // Refused: the metadata cannot be written.
            self.files[file].is_deleted = false;
            self.names.insert(name.to_owned(), file);
            self.changes.pop();
        }
        id
    }

    fn rename(&mut self, store: &mut FileStore, from: &str, to: &str, file: usize) -> RequestId {
        let before = self.names.clone();
        self.names.remove(from);
        if let Some(replaced) = self.names.insert(to.to_owned(), file) {
            self.files[replaced].is_deleted = true;
        }
        let id = self.wait_for(Pending::Name { change: self.changes.len() });
        self.changes.push(Change::Rename { file, from: from.to_owned(), to: to.to_owned() });
        store.rename(id, from, to);
        if store.lookup(from).is_some() {
            // Refused: no space for a longer name, or the metadata cannot be written.
            if let Some(replaced) = before.get(to) {
                self.files[*replaced].is_deleted = false;
            }
            self.names = before;
            self.changes.pop();
        }
        id
    }

    /// Processes an event of the store.
    ///
    /// # Errors
    /// A request has ended that is not outstanding, or with a wrong result.
    pub fn on_event(&mut self, store: &FileStore, event: Event) -> Result<(), Violation> {
        match event {
            Event::Done { request, result } => self.on_done(store, request, result),
            Event::Failed(_) if self.may_fail => Ok(()),
            event => {
                let message = format!("a ready store on a healthy drive reports {event:?}");
                Err(Violation { promise: Promise::Answers, file: None, message })
            }
        }
    }

    /// Compares the names of a store with the expected ones. All events must have been processed.
    ///
    /// # Errors
    /// They are not the same.
    pub fn check_names(&self, store: &FileStore) -> Result<(), Violation> {
        let known = self.names.iter().map(|(name, file)| (name.as_str(), self.files[*file].id));
        if store.names().eq(known) {
            return Ok(());
        }
        let found: Vec<&str> = store.names().map(|(name, _)| name).collect();
        let known: Vec<&str> = self.names.keys().map(String::as_str).collect();
        let message = format!("the store has files {found:?}, expected {known:?}");
        Err(Violation { promise: Promise::Answers, file: None, message })
    }

    fn on_done(
        &mut self,
        store: &FileStore,
        request: RequestId,
        result: Result<Outcome, FileError>,
    ) -> Result<(), Violation> {
        let Some(pending) = self.pending.remove(&request) else {
            let message = format!("request {} ended, but is not outstanding", request.0);
            return Err(Violation { promise: Promise::Ends, file: None, message });
        };
        let may_fail = self.may_fail;
        match (pending, result) {
            (Pending::Read { name, expected }, Ok(Outcome::Data(found))) if found != expected => {
                let (wanted, count, same) = (expected.len(), found.len(), same_bytes(&found, &expected));
                let message =
                    format!("a read of {wanted} bytes of {name} returned {count}, the first {same} of them correct");
                Err(Violation::new(Promise::Contents, &name, message))
            }
            (Pending::Append { file, end, .. }, Ok(_)) if !self.files[file].is_closed => {
                let file = &mut self.files[file];
                file.acknowledged = file.acknowledged.max(end);
                Ok(())
            }
            (Pending::Sync { file, target, closes }, Ok(_)) => {
                let file = &mut self.files[file];
                file.durable = file.durable.max(target);
                file.is_durable = true;
                file.is_closed |= closes;
                Ok(())
            }
            (Pending::Name { change }, Ok(_)) => {
                self.durable_changes = self.durable_changes.max(change + 1);
                if let Change::Rename { file, .. } = self.changes[change] {
                    self.files[file].is_durable = true;
                }
                Ok(())
            }
            (Pending::Append { file, .. } | Pending::Sync { file, .. }, Err(FileError::NoSuchFile))
                if self.files[file].is_deleted =>
            {
                Ok(())
            }
            (Pending::Append { file, start, .. }, Err(error)) if self.may_refuse(file, &error) => {
                self.refusals += 1;
                self.forget_append(store, file, start);
                Ok(())
            }
            (Pending::Sync { file, .. }, Err(error)) if self.may_refuse(file, &error) => {
                self.refusals += 1;
                Ok(())
            }
            (Pending::Name { .. }, Err(FileError::TooManyFiles))
            | (Pending::Read { .. }, Ok(Outcome::Data(_)))
            | (Pending::Refused, Err(FileError::NoSuchFile)) => Ok(()),
            (Pending::Name { .. } | Pending::Read { .. } | Pending::Refused, Err(FileError::Media { .. }))
                if may_fail =>
            {
                Ok(())
            }
            (pending, result) => {
                let file = self.name_of(&pending);
                let (what, ended) = (pending.describe(), describe(&result));
                let of = file.as_ref().map_or_else(String::new, |file| format!(" of {file}"));
                let message = format!("{what}{of} ended with {ended}");
                Err(Violation { promise: Promise::Answers, file, message })
            }
        }
    }

    /// Whether an append or sync may end with this error.
    fn may_refuse(&self, file: usize, error: &FileError) -> bool {
        match error {
            FileError::NotOpen => self.files[file].may_be_closed,
            FileError::NoSpace => true,
            FileError::Media { .. } => self.may_fail,
            _ => false,
        }
    }

    /// Removes a failed append from the model, and everything behind it.
    fn forget_append(&mut self, store: &FileStore, file: usize, start: usize) {
        let is_before = |pending: &Pending| matches!(pending, Pending::Append { file: other, end, .. } if *other == file && *end <= start);
        let is_refused_at_once = self.pending.values().any(is_before);
        let known = &mut self.files[file];
        if is_refused_at_once {
            known.content.truncate(start);
        } else if let Some(length) = store.len_bytes(known.id) {
            known.content.truncate(length as usize);
            known.acknowledged = length as usize;
        }
    }

    fn name_of(&self, pending: &Pending) -> Option<String> {
        let known = |wanted: usize| self.names.iter().find(|(_, file)| **file == wanted).map(|(name, _)| name.clone());
        match pending {
            Pending::Append { file, .. } | Pending::Sync { file, .. } => known(*file),
            Pending::Read { name, .. } => Some(name.clone()),
            Pending::Name { change } => match self.changes.get(*change)? {
                Change::Delete { name } | Change::Create { name, .. } => Some(name.clone()),
                Change::Rename { from, .. } => Some(from.clone()),
            },
            Pending::Refused => None,
        }
    }

    /// Asserts that every request has ended, because no command is in flight at the drive.
    ///
    /// # Errors
    /// A request waits forever.
    pub fn expect_idle(&self) -> Result<(), Violation> {
        let Some((id, pending)) = self.pending.first_key_value() else { return Ok(()) };
        let file = self.name_of(pending);
        let of = file.as_ref().map_or_else(String::new, |file| format!(" of {file}"));
        let (what, number, waiting) = (pending.describe(), id.0, self.pending.len());
        let message = format!(
            "{what}{of} (request {number}) never ends, although no command is in flight at the drive ({waiting} waiting)"
        );
        Err(Violation { promise: Promise::Ends, file, message })
    }
}

impl Pending {
    fn describe(&self) -> &'static str {
        match self {
            Pending::Append { .. } => "an append",
            Pending::Sync { closes: true, .. } => "a close",
            Pending::Sync { .. } => "a sync",
            Pending::Read { .. } => "a read",
            Pending::Name { .. } => "a change of the name",
            Pending::Refused => "a change of the name of a file that does not exist",
        }
    }
}

fn describe(result: &Result<Outcome, FileError>) -> String {
    match result {
        Ok(Outcome::None) => "success".to_owned(),
        Ok(Outcome::Data(data)) => format!("{} bytes", data.len()),
        Ok(Outcome::Length(bytes)) => format!("a length of {bytes} bytes"),
        Err(error) => format!("\"{error}\""),
    }
}

/// The length of the common prefix.
pub(super) fn same_bytes(found: &[u8], expected: &[u8]) -> usize {
    found.iter().zip(expected).take_while(|(found, expected)| found == expected).count()
}
