//! The directory of a volume: `volume.toml`, which lists its members, and the lock that prevents
//! two programs from using it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zonda_config::Rate;
use zonda_ring::File;

use super::foreign;
use super::member_device::is_behind_server;
use super::new_directory::{self, refuse_occupied};
use super::owner::{LastOwner, Owner, place_of};
pub(super) use super::place::{LastState, MISSING, Place, WhyFailed, place_in, plain};
use crate::creation::remove_directories;
use crate::open_directory::{DirectoryLock, LOCK_FILE};
use crate::{Access, DriveError, Location, TextError, TextSource, mock, read_text};

/// The file that lists the members.
pub const VOLUME_FILE: &str = "volume.toml";
/// The control socket of the program that uses the volume: a Unix socket.
pub const CONTROL_SOCKET: &str = "control";
/// The most that is read of the file: a volume has at most some hundreds of members and spares.
const VOLUME_FILE_BYTES_MAX: u64 = 1 << 20;
/// The name of the new file until it is durable.
pub(super) const NEW_FILE: &str = "volume.toml.new";
/// The version of the format.
const FORMAT: u32 = 1;
const HEADER: &str = "# A volume of zonda: where its members are, and their last known state.
# While no program uses the volume, paths can be changed here; they are relative to this directory.
";

/// Keys of the file, of which a job file of the same name has none.
const OWN_KEYS: [&str; 4] = ["format", "array", "member", "reserve_percent"];

/// Whether this is the directory of a volume.
#[must_use]
pub fn is_volume(path: &Path) -> bool {
    foreign::has_own(path, VOLUME_FILE, &OWN_KEYS)
}

/// Whether the directory has a `volume.toml` that is not that of a volume, but a job file, for example.
pub(crate) fn has_other_file(path: &Path) -> bool {
    foreign::has_foreign(path, VOLUME_FILE, &OWN_KEYS)
}

/// `volume.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeFile {
    pub(super) format: u32,
    pub(super) name: String,
    /// The UUID of the volume, as in the superblocks of the members.
    pub(super) array: String,
    /// Absent once the volume is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<FileState>,
    /// The newest known epoch of the volume: it counts mounts and changes of the members. Members
    /// that are all older are not the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
    /// The owner that last reserved members of servers; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<LastOwner>,
    /// Identifies the lock of the program that last mounted the volume from this directory, if it
    /// has members of servers. A copy of the directory has another lock, and so has one that was
    /// moved to another file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    /// The number of active members that the volume needs; known if it has members of servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enough: Option<usize>,
    /// The volume was taken over: members stay reserved for this directory, also while no program
    /// uses them. Otherwise the previous server could write to them if it continued later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stays_reserved: bool,
    /// An operator has confirmed that no other server uses the volume with the missing members;
    /// valid until the next mount.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) accepts_missing: bool,
    /// A file beside this one has the saved reservations of hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) keeps_reservations: bool,
    /// Lost blocks when the volume was last used; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost_blocks: Option<u64>,
    /// Space reserved for garbage collection, in percent.
    pub(super) reserve_percent: u8,
    #[serde(default)]
    pub(super) rates: VolumeRates,
    pub(super) member: Vec<Place>,
    #[serde(default)]
    pub(super) spare: Vec<Place>,
}

impl Place {
    /// This entry as that of member `at`: its number, and its location if that is known.
    pub(super) fn as_member(&self, at: impl std::fmt::Display) -> String {
        if self.at == MISSING { format!("member {at}") } else { format!("member {at} ({})", self.shown()) }
    }
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
    /// The file as that of this directory, from which its paths are relative.
    fn in_directory(mut self, path: &Path) -> VolumeFile {
        for place in self.member.iter_mut().chain(&mut self.spare) {
            *place = place.clone().in_directory(path);
        }
        self
    }

    /// Removes a device that is used otherwise now from the entries of failed members.
    pub(super) fn vacate(&mut self, at: &str) {
        for place in self.member.iter_mut().filter(|place| place.at == at && place.state == Some(LastState::Failed)) {
            place.at = MISSING.to_owned();
        }
    }

    /// Whether the device of this entry belongs to another member, since this one has failed or is
    /// listed later.
    pub(super) fn is_taken(&self, member: usize) -> bool {
        let own = &self.member[member];
        let has_failed = |place: &Place| place.state == Some(LastState::Failed);
        self.member.iter().enumerate().any(|(other, place)| {
            let comes_first = if has_failed(place) == has_failed(own) { other < member } else { has_failed(own) };
            other != member && place.at == own.at && comes_first
        })
    }
}

/// Rate limits of background operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRates {
    /// Rate at which a rebuild writes, `"200 MiB/s"`; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<Rate>,
    /// Rate at which a scrub reads; absent: 64 MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Rate>,
}

/// The state of the creation of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileState {
    /// The creation is in progress, or was interrupted.
    Creating,
    /// An import has written the file, and does not have all reservations yet: only the same import
    /// continues. The volume can be used as soon as the members are reserved for this directory.
    Importing,
}

/// The directory of a volume, locked until this is dropped.
#[derive(Debug)]
pub(super) struct VolumeDirectory {
    path: PathBuf,
    pub(super) file: VolumeFile,
    saved_epoch: Option<u64>,
    lock: DirectoryLock,
    /// Directories that were created for a new volume, the deepest one first.
    made: Vec<PathBuf>,
    /// `None` if the directory is open read-only.
    owner: Option<Owner>,
}

impl VolumeDirectory {
    /// Creates the directory of a new volume, or opens that of an interrupted creation, which is
    /// then continued with the same array. Only the lock is written until
    /// [`save`](VolumeDirectory::save).
    pub(super) fn make(path: &Path, array: &[u8; 16]) -> Result<VolumeDirectory, DriveError> {
        refuse_occupied(path)?;
        let made = new_directory::make(path)?;
        let lock = locked(path, DirectoryLock::acquire(path)).inspect_err(|_| remove_directories(&made))?;
        refuse_occupied(path)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let interrupted = if is_volume(path) { Some(read(path)?) } else { None };
        let array = interrupted.map_or_else(|| crate::random::uuid_text(array), |file| file.array);
        let file = VolumeFile { state: Some(FileState::Creating), ..VolumeFile::new(name, array) };
        let mut directory = VolumeDirectory { path: path.to_owned(), file, saved_epoch: None, lock, made, owner: None };
        directory.become_owner()?;
        Ok(directory)
    }

    /// Opens the directory of a volume with an exclusive lock, which is held until this is dropped.
    pub(super) fn open(path: &Path) -> Result<VolumeDirectory, DriveError> {
        // Creates no lock file where there is no volume.
        must_be_volume(path)?;
        let mut directory = VolumeDirectory::complete(path, locked(path, DirectoryLock::acquire(path))?)?;
        directory.become_owner()?;
        Ok(directory)
    }

    /// Opens the directory read-only: nothing is written, not even a missing lock file.
    pub(super) fn open_read_only(path: &Path) -> Result<VolumeDirectory, DriveError> {
        must_be_volume(path)?;
        VolumeDirectory::complete(path, locked(path, DirectoryLock::acquire_read_only(path))?)
    }

    /// Reads the file after the lock was acquired: it is what the last program wrote.
    fn complete(path: &Path, lock: DirectoryLock) -> Result<VolumeDirectory, DriveError> {
        let file = read(path)?;
        if file.state == Some(FileState::Creating) {
            return Err(DriveError::new(
                format!("the creation of the volume in {} was interrupted", path.display()),
                "repeat zonda volume create, which continues it; or remove the directory",
            ));
        }
        Ok(VolumeDirectory {
            path: path.to_owned(),
            saved_epoch: file.epoch,
            file,
            lock,
            made: Vec::new(),
            owner: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The UUID of the array.
    pub(super) fn array(&self) -> Result<[u8; 16], DriveError> {
        uuid_of(&self.file.array).ok_or_else(|| {
            let what = format!("\"{}\" in {} is not a UUID", self.file.array, self.path.join(VOLUME_FILE).display());
            DriveError::new(what, "restore the UUID that zonda volume create wrote")
        })
    }

    /// The location of an entry of the file, relative to this process.
    pub(super) fn location(&self, place: &Place) -> Result<Location, DriveError> {
        if place.at == MISSING {
            return Err(DriveError::new(
                format!("its location is not known ({VOLUME_FILE} has \"{MISSING}\")"),
                format!(
                    "enter the location in {}, or replace the member: zonda member replace",
                    self.path.join(VOLUME_FILE).display()
                ),
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

    /// The owner of the volume; `None` if the directory is open read-only.
    pub(super) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    pub(super) fn owner_mut(&mut self) -> Option<&mut Owner> {
        self.owner.as_mut()
    }

    /// Whether the host that last reserved members according to the file was a program of this
    /// directory, and not of one that this is a copy of.
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

    /// How to open the device of an entry of the file: as its owner, or read-only with the host
    /// identifier of the last owner.
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

    /// Records the owner that reserves members of servers, for commands that read the directory;
    /// saving it is not required for the reservation. Returns whether there are such members.
    pub(super) fn note_owner(&mut self) -> bool {
        let has_remote = |place: &Place| self.location(place).is_ok_and(|location| is_behind_server(&location));
        let record = self.owner.as_ref().map(Owner::record);
        let has_any = self.file.member.iter().chain(&self.file.spare).any(has_remote);
        if has_any {
            self.file.owner = record;
        }
        has_any
    }

    /// The entry for a location: paths beside the volume are relative, so that all can be moved
    /// together.
    pub(super) fn place(&self, location: &Location) -> Place {
        place_in(&self.path, location)
    }

    /// Replaces the file atomically: after a crash either the old or the new one exists.
    pub(super) fn save(&mut self) -> io::Result<()> {
        let written = mock::on_save(&self.path).unwrap_or_else(|| self.write());
        if written.is_ok() {
            self.saved_epoch = self.file.epoch;
        }
        written
    }

    fn write(&self) -> io::Result<()> {
        let text = toml::to_string(&self.file).expect("strings and numbers can be serialized");
        self.lock.directory.replace(VOLUME_FILE, NEW_FILE, format!("{HEADER}{text}").as_bytes())
    }

    /// Replaces another file of the directory atomically; `new` is its name until it is durable.
    pub(super) fn replace(&self, name: &str, new: &str, content: &[u8]) -> io::Result<()> {
        self.lock.directory.replace(name, new, content)
    }

    /// The epoch in the file on the disk.
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
        new_directory::remove(&self.path, &self.made);
    }
}

/// The default host NQN with which a volume connects to servers.
fn host_nqn(array: &[u8; 16]) -> zonda_nvme::Nqn {
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:{}", crate::random::uuid_text(array));
    zonda_nvme::Nqn::new(&name).expect("a UUID makes a name")
}

fn must_be_volume(path: &Path) -> Result<(), DriveError> {
    match fs::metadata(path.join(VOLUME_FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotADirectory => {
            Err(DriveError::new(
                format!("there is no volume in {}", path.display()),
                "check the path; zonda volume create creates a volume; if the directory of a volume is lost, zonda volume \
                 import recreates it from its drives",
            ))
        }
        _ if has_other_file(path) => Err(DriveError::new(
            format!("there is no volume in {}", path.display()),
            format!(
                "its {VOLUME_FILE} is another file; give the directory of a volume, which zonda volume create creates"
            ),
        )),
        // Reading it reports other errors.
        _ => Ok(()),
    }
}

/// Reads the file of a volume or pool.
pub(crate) fn text_of(place: &Path) -> Result<String, TextError> {
    read_text(place, VOLUME_FILE_BYTES_MAX, TextSource::File)
}

/// Reads the file of a volume.
pub(super) fn read(path: &Path) -> Result<VolumeFile, DriveError> {
    let place = path.join(VOLUME_FILE);
    let shown = place.display();
    let text = text_of(&place).map_err(|error| {
        DriveError::new(
            format!("cannot read {shown}: {error}"),
            "check that it is a text file that you can read; zonda volume import recreates a lost one from its drives",
        )
    })?;
    let file: VolumeFile = zonda_config::parse(&text).map_err(|error| {
        let before = error.span.as_ref().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        DriveError::new(
            format!("{shown} is invalid: line {line}: {}", error.message),
            format!(
                "{}correct the line, or recreate the file from the drives: remove {shown}, and run zonda volume import {} \
                 --members with the drives; docs/guide/volumes.md describes the file",
                error.help.map_or_else(String::new, |help| {
                    format!("{}; ", help.replace("format = ...", &format!("format = {FORMAT}")))
                }),
                path.display()
            ),
        )
    })?;
    let file = file.in_directory(path);
    if file.format != FORMAT {
        return Err(DriveError::new(
            format!("{shown} has format {}, this program supports {FORMAT}", file.format),
            "use the program that wrote it",
        ));
    }
    Ok(file)
}

/// The lock of a volume's directory, or why there is none.
fn locked(path: &Path, acquired: io::Result<Option<DirectoryLock>>) -> Result<DirectoryLock, DriveError> {
    match acquired {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(DriveError::in_use(
            format!("the volume in {} is in use by another program", path.display()),
            "stop that program; if it is zonda serve, zonda volume status shows the state of the volume",
        )),
        Err(error) => Err(DriveError::new(
            format!("cannot lock the volume in {}: {error}", path.display()),
            "check the permissions of the directory",
        )),
    }
}

/// Parses a UUID, with or without hyphens.
pub(crate) fn uuid_of(text: &str) -> Option<[u8; 16]> {
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
    fn paths_of_members_beside_the_volume_are_relative_to_it() {
        let above = tempfile::TempDir::new().expect("there is space");
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
    fn a_saved_file_is_read_by_the_next_program_and_locked_for_others() {
        let above = tempfile::TempDir::new().expect("there is space");
        let path = above.path().join("vol");
        let mut directory = VolumeDirectory::make(&path, &[0xab; 16]).expect("it is new");
        directory.file.rates.rebuild = Some("200 MiB/s".parse().expect("a rate"));
        directory.file.state = None;
        directory.file.member.push(Place { state: Some(LastState::Active), ..Place::new("../a".to_owned()) });
        directory.file.epoch = Some(7);
        directory.save().expect("there is space");
        let error = VolumeDirectory::open(&path).expect_err("it is locked");
        assert!(error.is_in_use, "{error}");
        let file = directory.file.clone();
        drop(directory);
        let again = VolumeDirectory::open(&path).expect("it is unlocked");
        assert_eq!((&again.file, again.array()), (&file, Ok([0xab; 16])));
        let error = VolumeDirectory::make(&path, &[7; 16]).expect_err("there is one");
        assert!(error.message.contains("holds a volume already"), "{error}");
    }

    /// A complete volume.
    fn volume(path: &Path, array: u8) -> VolumeDirectory {
        let mut directory = VolumeDirectory::make(path, &[array; 16]).expect("it is new");
        directory.file.state = None;
        directory.save().expect("there is space");
        directory
    }

    #[test]
    fn a_volume_stays_locked_when_a_user_removes_its_lock_file() {
        let above = tempfile::TempDir::new().expect("there is space");
        let path = above.path().join("vol");
        let owner = volume(&path, 7);
        fs::remove_file(path.join(LOCK_FILE)).expect("a user can");
        for _ in 0..2 {
            let error = VolumeDirectory::open_read_only(&path).expect_err("its owner holds the lock");
            assert!(error.is_in_use, "{error}");
            let error = VolumeDirectory::open(&path).expect_err("its owner holds the lock");
            assert!(error.is_in_use, "{error}");
        }
        drop(owner);
        VolumeDirectory::open(&path).expect("it is unlocked");
    }

    #[test]
    fn a_volume_that_is_renamed_while_in_use_is_saved_in_the_renamed_directory() {
        let above = tempfile::TempDir::new().expect("there is space");
        let (path, renamed) = (above.path().join("vol"), above.path().join("renamed"));
        let mut first = volume(&path, 1);
        fs::rename(&path, &renamed).expect("a user can");
        let second = volume(&path, 2);
        first.file.epoch = Some(9);
        first.save().expect("there is space");
        drop((first, second));
        let arrays = [&renamed, &path].map(|path| VolumeDirectory::open(path).expect("it is unlocked").array());
        assert_eq!(arrays, [Ok([1; 16]), Ok([2; 16])]);
        assert_eq!(read(&renamed).expect("it is intact").epoch, Some(9));
    }

    #[test]
    fn a_file_that_cannot_be_that_of_a_volume_is_refused_at_once() {
        let above = tempfile::TempDir::new().expect("there is space");
        let path = above.path().join("vol");
        drop(volume(&path, 1));
        let place = path.join(VOLUME_FILE);
        let refusal = || VolumeDirectory::open(&path).expect_err("it is not the file of a volume").message;
        fs::remove_file(&place).expect("it exists");
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &place, pipe, rustix::fs::Mode::from_raw_mode(0o600), 0)
            .expect("a user can");
        assert!(refusal().ends_with("volume.toml: is a pipe, not a regular file"), "{}", refusal());
        fs::remove_file(&place).expect("it exists");
        fs::write(&place, vec![b' '; VOLUME_FILE_BYTES_MAX as usize + 1]).expect("there is space");
        assert!(refusal().ends_with("volume.toml: file is larger than 1 MiB"), "{}", refusal());
        fs::write(&place, [0xff; 9]).expect("there is space");
        assert!(refusal().contains("volume.toml: not valid UTF-8 at byte 0 (line 1)"), "{}", refusal());
        fs::remove_file(&place).expect("it exists");
        fs::create_dir(&place).expect("it does not exist");
        assert!(refusal().contains("cannot read "), "{}", refusal());
    }
}
