//! The directory of a volume: where its members are, and the lock that keeps two programs from using it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zonda_config::Rate;
use zonda_ring::{File, FileOptions};

use super::held::HeldDirectory;
use super::owner::{LastOwner, Owner, place_of};
pub(super) use super::place::{LastState, MISSING, Place, WhyFailed, place_in, plain};
use super::seat::is_behind_server;
use crate::{Access, DriveError, Location};

/// What says where the members are.
pub const VOLUME_FILE: &str = "volume.toml";
/// Where the program that has the volume can be spoken to: a Unix socket.
pub const CONTROL_SOCKET: &str = "control";
/// What is locked.
const LOCK_FILE: &str = "lock";
/// A volume has at most some hundreds of members and spares, each with a place.
const VOLUME_FILE_BYTES_MAX: u64 = 1 << 20;
/// The next version of the file, until it is on the disk.
const NEW_FILE: &str = "volume.toml.new";
/// The version of the file.
const FORMAT: u32 = 1;
const HEADER: &str = "# A volume of zonda: where its members are, and what was last known of them.
# While no program uses the volume, paths can be changed here; they are seen from this directory.
";

/// Whether there is a volume in this directory.
#[must_use]
pub fn is_volume(path: &Path) -> bool {
    path.join(VOLUME_FILE).is_file()
}

/// `volume.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeFile {
    pub(super) format: u32,
    pub(super) name: String,
    /// What tells the volume from all others: a UUID, as on the members.
    pub(super) array: String,
    /// Absent once the volume is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<FileState>,
    /// The newest epoch of the volume that was seen: it counts mounts and changes of the members. A set of members that only has older ones is
    /// not the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
    /// Who last reserved members that servers have; absent where none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<LastOwner>,
    /// Which lock the program had that last mounted the volume from this directory, members of which servers have. A copy of the directory has
    /// another lock, and so has one that was moved to another file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    /// So many active members are enough to use the volume with; known where servers have members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enough: Option<usize>,
    /// The volume was taken over: members stay reserved for this directory, also where no program uses them. The server that had them before would
    /// not be refused otherwise if it goes on later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stays_reserved: bool,
    /// An operator has said that no other server uses the volume with the members that are missing; till the next mount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) accepts_missing: bool,
    /// A file beside this one has what hosts have reserved of the volume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) keeps_reservations: bool,
    /// Blocks that were lost when the volume was last used; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost_blocks: Option<u64>,
    /// Space kept back for garbage collection, in percent.
    pub(super) reserve_percent: u8,
    #[serde(default)]
    pub(super) rates: VolumeRates,
    pub(super) member: Vec<Place>,
    #[serde(default)]
    pub(super) spare: Vec<Place>,
}

impl VolumeFile {
    pub(super) fn new(name: String, array: String) -> VolumeFile {
        VolumeFile {
            format: FORMAT,
            name,
            array,
            state: None,
            epoch: None,
            owner: None,
            place: None,
            enough: None,
            stays_reserved: false,
            accepts_missing: false,
            keeps_reservations: false,
            lost_blocks: None,
            reserve_percent: zonda_raid::Tuning::default().reserve_percent,
            rates: VolumeRates::default(),
            member: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl VolumeFile {
    /// A device has become something else: it is in the place of no member that has failed any more.
    pub(super) fn vacate(&mut self, at: &str) {
        for place in self.member.iter_mut().filter(|place| place.at == at && place.state == Some(LastState::Failed)) {
            place.at = MISSING.to_owned();
        }
    }

    /// Whether another member has the device that is in the place of this one, which has failed or comes later.
    pub(super) fn is_taken(&self, member: usize) -> bool {
        let own = &self.member[member];
        let has_failed = |place: &Place| place.state == Some(LastState::Failed);
        self.member.iter().enumerate().any(|(other, place)| {
            let comes_first = if has_failed(place) == has_failed(own) { other < member } else { has_failed(own) };
            other != member && place.at == own.at && comes_first
        })
    }
}

/// How fast a volume may work for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRates {
    /// What a rebuild writes, `"200 MiB/s"`; absent: as fast as members are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<Rate>,
    /// What a scrub reads; absent: 64 MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Rate>,
}

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileState {
    /// Its creation has begun, and has not ended.
    Creating,
}

/// A volume's directory, locked until this is dropped.
#[derive(Debug)]
pub(super) struct VolumeDirectory {
    path: PathBuf,
    pub(super) file: VolumeFile,
    saved_epoch: Option<u64>,
    lock: Lock,
    /// `None` where the volume is only looked at.
    owner: Option<Owner>,
}

/// What keeps other programs from a volume: the lock of a file, and that of the directory itself, which stays where a user has removed
/// the file.
#[derive(Debug)]
struct Lock {
    /// What is saved goes there, also when the path names another directory by then.
    directory: HeldDirectory,
    /// Absent where a volume is only looked at and has no lock file.
    _file: Option<File>,
}

impl VolumeDirectory {
    /// A directory for a new volume, or that of one whose creation was interrupted: this one continues it, with the same array.
    /// Nothing is written but the lock until [`save`](VolumeDirectory::save).
    pub(super) fn make(path: &Path, array: &[u8; 16]) -> Result<VolumeDirectory, DriveError> {
        let shown = path.display();
        refuse_occupied(path)?;
        fs::create_dir_all(path).map_err(|error| {
            DriveError::new(
                format!("the directory {shown} cannot be made: {error}"),
                "choose a directory in which you may write",
            )
        })?;
        let lock = Lock::acquire(path)?;
        refuse_occupied(path)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let interrupted = if is_volume(path) { Some(read(path)?) } else { None };
        let array = interrupted.map_or_else(|| crate::random::uuid_text(array), |file| file.array);
        let file = VolumeFile { state: Some(FileState::Creating), ..VolumeFile::new(name, array) };
        let mut directory = VolumeDirectory { path: path.to_owned(), file, saved_epoch: None, lock, owner: None };
        directory.become_owner()?;
        Ok(directory)
    }

    /// The volume in this directory, which no other program uses until this is dropped.
    pub(super) fn open(path: &Path) -> Result<VolumeDirectory, DriveError> {
        // No lock is made where there is no volume.
        must_be_volume(path)?;
        let mut directory = VolumeDirectory::complete(path, Lock::acquire(path)?)?;
        directory.become_owner()?;
        Ok(directory)
    }

    /// The same, to be looked at: nothing is written, not even a lock file that is missing.
    pub(super) fn look(path: &Path) -> Result<VolumeDirectory, DriveError> {
        must_be_volume(path)?;
        let file = match File::open(&path.join(LOCK_FILE), FileOptions::read_only()) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(cannot_lock(path, &error)),
        };
        VolumeDirectory::complete(path, Lock::of(path, file)?)
    }

    /// What is read after the lock is taken is what the last program wrote.
    fn complete(path: &Path, lock: Lock) -> Result<VolumeDirectory, DriveError> {
        let file = read(path)?;
        if file.state == Some(FileState::Creating) {
            return Err(DriveError::new(
                format!("the creation of the volume in {} was interrupted", path.display()),
                "repeat the command zonda volume create, which continues it; or remove the directory",
            ));
        }
        Ok(VolumeDirectory { path: path.to_owned(), saved_epoch: file.epoch, file, lock, owner: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The array's UUID.
    pub(super) fn array(&self) -> Result<[u8; 16], DriveError> {
        uuid_of(&self.file.array).ok_or_else(|| {
            let what = format!("\"{}\" in {} is no UUID", self.file.array, self.path.join(VOLUME_FILE).display());
            DriveError::new(what, "write the one that zonda volume create gave it")
        })
    }

    /// Where a place of the file is, seen from this process.
    pub(super) fn location(&self, place: &Place) -> Result<Location, DriveError> {
        if place.at == MISSING {
            return Err(DriveError::new(
                format!("{VOLUME_FILE} does not say where it is"),
                format!("write it into {}, or put another drive in its place", self.path.join(VOLUME_FILE).display()),
            ));
        }
        let location = place.at.parse().map_err(|error: zonda_config::ConfigError| {
            DriveError::new(error.message, error.help.unwrap_or_default())
        })?;
        Ok(match location {
            Location::Image(path) => Location::Image(plain(&self.path.join(path))),
            url => url,
        })
    }

    /// Who uses the volume, unless it is only looked at.
    pub(super) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    pub(super) fn owner_mut(&mut self) -> Option<&mut Owner> {
        self.owner.as_mut()
    }

    /// Whether the host that last reserved members, as far as the file says, was a program of this very directory, and not of one that it is a
    /// copy of.
    pub(super) fn is_last_host(&self) -> bool {
        let last = self.file.owner.as_ref().and_then(|last| uuid_of(&last.host));
        let own = self.array().map(|array| place_of(&array, &self.path.join(LOCK_FILE)));
        last.is_some_and(|last| own.is_ok_and(|own| last.starts_with(&own)))
    }

    fn become_owner(&mut self) -> Result<(), DriveError> {
        let lock = self.path.join(LOCK_FILE);
        self.owner = Some(Owner::new(self.array()?, self.file.owner.as_ref(), &lock)?);
        Ok(())
    }

    /// How to open what is in a place of the file: as its owner, or to look at it, as whoever owns it would.
    pub(super) fn access(&self, place: &Place) -> Result<Access, DriveError> {
        let location = self.location(place)?;
        let mut options = place.credentials(&self.path).options()?;
        if options.host_nqn.is_none() {
            options.host_nqn = Some(host_nqn(&self.array()?));
        }
        match &self.owner {
            Some(owner) => (options.host_id, options.claim) = (Some(owner.host()), Some(owner.claim())),
            None => {
                let last = self.file.owner.as_ref().and_then(|last| uuid_of(&last.host));
                options.host_id = last.map(zonda_nvme::HostId);
            }
        }
        Ok(Access { location, options })
    }

    /// Members that servers have are reserved: whoever looks at the volume is to know by whom. Where that cannot be written down, they are
    /// reserved all the same. Says whether there are any.
    pub(super) fn note_owner(&mut self) -> bool {
        let has_remote = |place: &Place| self.location(place).is_ok_and(|location| is_behind_server(&location));
        let record = self.owner.as_ref().map(Owner::record);
        let has_any = self.file.member.iter().chain(&self.file.spare).any(has_remote);
        if has_any {
            self.file.owner = record;
        }
        has_any
    }

    /// How a location is written in the file: paths beside the volume are seen from it, so that all can move together.
    pub(super) fn place(&self, location: &Location) -> Place {
        place_in(&self.path, location)
    }

    /// Writes the file so that after a crash either the old or the new one is there.
    pub(super) fn save(&mut self) -> io::Result<()> {
        #[cfg(test)]
        let written = crate::shelf::on_save(&self.path).unwrap_or_else(|| self.write());
        #[cfg(not(test))]
        let written = self.write();
        if written.is_ok() {
            self.saved_epoch = self.file.epoch;
        }
        written
    }

    fn write(&self) -> io::Result<()> {
        let text = toml::to_string(&self.file).expect("texts and numbers can be written");
        self.lock.directory.replace(VOLUME_FILE, NEW_FILE, format!("{HEADER}{text}").as_bytes())
    }

    /// Writes another file of the directory in the same way; `new` is its name until it is durable.
    pub(super) fn replace(&self, name: &str, new: &str, content: &[u8]) -> io::Result<()> {
        self.lock.directory.replace(name, new, content)
    }

    /// The epoch that is in the file on the disk.
    pub(super) fn saved_epoch(&self) -> Option<u64> {
        self.saved_epoch
    }

    /// Whether this continues a creation that was interrupted.
    pub(super) fn was_interrupted(&self) -> bool {
        is_volume(&self.path)
    }

    /// Makes the name of a new directory durable.
    pub(super) fn sync_name(&self) -> io::Result<()> {
        let whole = std::path::absolute(&self.path)?;
        whole.parent().map_or(Ok(()), File::sync_directory)
    }

    /// Removes the directory of a volume whose creation has changed no member.
    pub(super) fn remove(self) {
        // What stays is an empty directory.
        for name in [VOLUME_FILE, NEW_FILE, LOCK_FILE] {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// The name under which a volume connects to servers, if nobody gives it another.
fn host_nqn(array: &[u8; 16]) -> zonda_nvme::Nqn {
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:{}", crate::random::uuid_text(array));
    zonda_nvme::Nqn::new(&name).expect("a UUID makes a name")
}

/// A directory for a new volume holds nothing, or what an interrupted creation has left.
pub(super) fn refuse_occupied(path: &Path) -> Result<(), DriveError> {
    let is_left_over = |name: &std::ffi::OsStr| [LOCK_FILE, NEW_FILE, VOLUME_FILE].iter().any(|known| name == *known);
    let is_other = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| !is_left_over(&entry.file_name()));
    let is_occupied = fs::read_dir(path).is_ok_and(|mut entries| entries.any(is_other));
    let is_complete = is_volume(path) && read(path)?.state != Some(FileState::Creating);
    if !is_occupied && !is_complete {
        return Ok(());
    }
    let what = if is_volume(path) { "holds a volume already" } else { "is not empty" };
    Err(DriveError::new(
        format!("the directory {} {what}", path.display()),
        "choose another directory, or remove this one if nobody needs what is in it",
    ))
}

fn must_be_volume(path: &Path) -> Result<(), DriveError> {
    match fs::metadata(path.join(VOLUME_FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotADirectory => {
            Err(DriveError::new(
                format!("there is no volume in {}", path.display()),
                "zonda volume create makes one; if its directory is lost, zonda volume import writes it again from its drives",
            ))
        }
        // Reading it says what else is wrong.
        _ => Ok(()),
    }
}

fn text_of(place: &Path) -> io::Result<String> {
    let file = File::open(place, FileOptions::read_only())?;
    let length = file.length()?;
    if length > VOLUME_FILE_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("it has {length} bytes, more than any volume's")));
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// What stands in the file of a volume.
fn read(path: &Path) -> Result<VolumeFile, DriveError> {
    let place = path.join(VOLUME_FILE);
    let shown = place.display();
    let text = text_of(&place).map_err(|error| {
        DriveError::new(
            format!("{shown} cannot be read: {error}"),
            "check that it is a text file that you may read; zonda volume import writes a lost one again from its drives",
        )
    })?;
    let file: VolumeFile = toml::from_str(&text).map_err(|error| {
        let what = error.message();
        DriveError::new(
            format!("{shown} is not as it should be: {what}"),
            "docs/guide/volumes.md says what belongs there",
        )
    })?;
    if file.format != FORMAT {
        return Err(DriveError::new(
            format!("{shown} has format {}, this program reads {FORMAT}", file.format),
            "use the program that wrote it",
        ));
    }
    Ok(file)
}

impl Lock {
    fn acquire(path: &Path) -> Result<Lock, DriveError> {
        let file = File::open(&path.join(LOCK_FILE), FileOptions { create: true, ..FileOptions::read_write() });
        Lock::of(path, Some(file.map_err(|error| cannot_lock(path, &error))?))
    }

    fn of(path: &Path, file: Option<File>) -> Result<Lock, DriveError> {
        let directory = HeldDirectory::open(path).map_err(|error| cannot_lock(path, &error))?;
        let is_file_locked = file.as_ref().map_or(Ok(true), File::lock).map_err(|error| cannot_lock(path, &error))?;
        if !is_file_locked || !directory.lock() {
            return Err(DriveError::in_use(
                format!("the volume in {} is in use by another program", path.display()),
                "stop that program; if it is zonda serve, zonda volume status asks it how the volume is",
            ));
        }
        Ok(Lock { directory, _file: file })
    }
}

fn cannot_lock(path: &Path, error: &io::Error) -> DriveError {
    DriveError::new(format!("the volume in {} cannot be locked: {error}", path.display()), "see who may write there")
}

/// A UUID as people write it.
pub(super) fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_beside_the_volume_are_seen_from_it() {
        let above = tempfile::TempDir::new().expect("there is room");
        let path = above.path().join("vol");
        let directory = VolumeDirectory::make(&path, &[7; 16]).expect("it is new");
        let beside = Location::Image(above.path().join("drives/./a"));
        assert_eq!(directory.place(&beside).at, "../drives/a");
        assert_eq!(directory.location(&directory.place(&beside)), Ok(Location::Image(above.path().join("drives/a"))));
        let far = Location::Image("/drives/b".into());
        assert_eq!(directory.place(&far).at, "/drives/b");
        assert_eq!(directory.location(&directory.place(&far)), Ok(far));
    }

    #[test]
    fn what_was_saved_is_found_by_the_next_and_locked_for_others() {
        let above = tempfile::TempDir::new().expect("there is room");
        let path = above.path().join("vol");
        let mut directory = VolumeDirectory::make(&path, &[0xab; 16]).expect("it is new");
        directory.file.rates.rebuild = Some("200 MiB/s".parse().expect("a rate"));
        directory.file.state = None;
        directory.file.member.push(Place { state: Some(LastState::Active), ..Place::new("../a".to_owned()) });
        directory.file.epoch = Some(7);
        directory.save().expect("there is room");
        let error = VolumeDirectory::open(&path).expect_err("it is locked");
        assert!(error.is_in_use, "{error}");
        let file = directory.file.clone();
        drop(directory);
        let again = VolumeDirectory::open(&path).expect("it is free");
        assert_eq!((&again.file, again.array()), (&file, Ok([0xab; 16])));
        let error = VolumeDirectory::make(&path, &[7; 16]).expect_err("there is one");
        assert!(error.message.contains("holds a volume already"), "{error}");
    }

    /// A volume that is complete.
    fn volume(path: &Path, array: u8) -> VolumeDirectory {
        let mut directory = VolumeDirectory::make(path, &[array; 16]).expect("it is new");
        directory.file.state = None;
        directory.save().expect("there is room");
        directory
    }

    #[test]
    fn a_volume_whose_lock_file_a_user_has_removed_is_locked_still() {
        let above = tempfile::TempDir::new().expect("there is room");
        let path = above.path().join("vol");
        let owner = volume(&path, 7);
        fs::remove_file(path.join(LOCK_FILE)).expect("a user may");
        for _ in 0..2 {
            let error = VolumeDirectory::look(&path).expect_err("its owner lives");
            assert!(error.is_in_use, "{error}");
            let error = VolumeDirectory::open(&path).expect_err("its owner lives");
            assert!(error.is_in_use, "{error}");
        }
        drop(owner);
        VolumeDirectory::open(&path).expect("it is free");
    }

    #[test]
    fn a_volume_that_is_renamed_while_it_is_used_is_saved_where_it_is() {
        let above = tempfile::TempDir::new().expect("there is room");
        let (path, renamed) = (above.path().join("vol"), above.path().join("renamed"));
        let mut first = volume(&path, 1);
        fs::rename(&path, &renamed).expect("a user may");
        let second = volume(&path, 2);
        first.file.epoch = Some(9);
        first.save().expect("there is room");
        drop((first, second));
        let arrays = [&renamed, &path].map(|path| VolumeDirectory::open(path).expect("it is free").array());
        assert_eq!(arrays, [Ok([1; 16]), Ok([2; 16])]);
        assert_eq!(read(&renamed).expect("it is whole").epoch, Some(9));
    }

    #[test]
    fn what_cannot_be_the_file_of_a_volume_is_refused_at_once() {
        let above = tempfile::TempDir::new().expect("there is room");
        let path = above.path().join("vol");
        drop(volume(&path, 1));
        let place = path.join(VOLUME_FILE);
        let refusal = || VolumeDirectory::open(&path).expect_err("it is no text of a volume").message;
        fs::remove_file(&place).expect("it is there");
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &place, pipe, rustix::fs::Mode::from_raw_mode(0o600), 0)
            .expect("a user may");
        assert!(refusal().ends_with("cannot be read: it is a pipe, and not a file"), "{}", refusal());
        fs::remove_file(&place).expect("it is there");
        fs::write(&place, vec![b' '; VOLUME_FILE_BYTES_MAX as usize + 1]).expect("there is room");
        assert!(refusal().ends_with("it has 1048577 bytes, more than any volume's"), "{}", refusal());
        fs::write(&place, [0xff; 9]).expect("there is room");
        assert!(refusal().contains("volume.toml cannot be read: invalid utf-8"), "{}", refusal());
        fs::remove_file(&place).expect("it is there");
        fs::create_dir(&place).expect("there is none");
        assert!(refusal().contains("volume.toml cannot be read: "), "{}", refusal());
    }
}
