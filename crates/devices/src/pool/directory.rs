//! The directory of a pool: `pool.toml`, which records where its drive is, and the lock that
//! prevents two programs from using it.
//!
//! Everything else stands on the drive: namespaces, their names and sizes, and where their blocks
//! are. So a lost directory loses no data.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zonda_elastic::PoolId;
use zonda_initiator::Holder;
use zonda_nvme::{HostId, Nqn};
use zonda_ring::File;

use crate::creation::remove_directories;
use crate::open_directory::{DirectoryLock, LOCK_FILE};
use crate::volume::directory::{text_of, uuid_of};
use crate::volume::foreign;
use crate::volume::new_directory;
use crate::volume::owner::{LastOwner, Owner, describe_holder, place_of};
use crate::volume::place::{Place, place_in, plain};
use crate::{Access, Credentials, DriveError, Location, is_volume, random};

/// The file that records where the drive of a pool is.
pub const POOL_FILE: &str = "pool.toml";
/// The name of the new file until it is durable.
const NEW_FILE: &str = "pool.toml.new";
/// The version of the format.
const FORMAT: u32 = 1;
const HEADER: &str = "# A pool of zonda: where its drive is. Its namespaces are recorded on the drive.
# While no program uses the pool, the path can be changed here; it is relative to this directory.
";

/// Keys of the file, of which a job file of the same name has none.
const OWN_KEYS: [&str; 2] = ["format", "pool"];

/// Whether this is the directory of a pool.
#[must_use]
pub fn is_pool(path: &Path) -> bool {
    foreign::has_own(path, POOL_FILE, &OWN_KEYS)
}

/// `pool.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolFile {
    format: u32,
    /// The UUID of the pool, as in every block of metadata on the drive.
    pool: String,
    /// Absent once the pool is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<FileState>,
    /// The last known epoch of the pool, which counts mounts: a drive with an older one is an old
    /// copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    /// UUIDs of the namespaces of which a file beside this one has the saved reservations of hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keeps_reservations: Vec<String>,
    /// The owner that last reserved the drive at its server; absent for an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<LastOwner>,
    /// The drive stays reserved for this directory after each use of the pool: since a takeover, so
    /// that the server from which it was taken is refused when it resumes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stays_reserved: bool,
    drive: Place,
}

/// The state of the creation of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileState {
    /// The creation is in progress, or was interrupted.
    Creating,
    /// The file was written by a takeover that is in progress, or was interrupted: the drive is not reserved for
    /// this directory yet.
    Restoring,
}

/// The directory of a pool, locked until this is dropped.
#[derive(Debug)]
pub(super) struct PoolDirectory {
    path: PathBuf,
    file: PoolFile,
    id: PoolId,
    lock: DirectoryLock,
    /// Directories that were created for a new pool, the deepest one first.
    made: Vec<PathBuf>,
    /// `None` if the directory is open read-only.
    owner: Option<Owner>,
    was_interrupted: bool,
}

impl PoolDirectory {
    /// Creates the directory of a new pool on this drive, or opens that of an interrupted creation,
    /// which is then continued with the same identity. Only the lock is written until
    /// [`begin`](PoolDirectory::begin).
    pub(super) fn make(
        path: &Path,
        drive: &Location,
        credentials: &Credentials,
        uuid: [u8; 16],
    ) -> Result<PoolDirectory, DriveError> {
        refuse_occupied(path)?;
        let made = new_directory::make(path)?;
        let lock = locked(path, DirectoryLock::acquire(path)).inspect_err(|_| remove_directories(&made))?;
        refuse_occupied(path)?;
        let was_interrupted = is_pool(path);
        let pool = if was_interrupted { read(path)?.pool } else { random::uuid_text(&uuid) };
        let drive = place_in(path, drive).with_credentials(path, credentials);
        let mut directory = PoolDirectory::with_drive(path, pool, drive, lock)?;
        (directory.made, directory.was_interrupted) = (made, was_interrupted);
        directory.become_owner()?;
        Ok(directory)
    }

    /// Refuses a directory for a lost pool that is not empty, unless it has the files of an interrupted takeover.
    pub(super) fn must_be_free(path: &Path) -> Result<(), DriveError> {
        let is_complete = is_pool(path) && read(path)?.state != Some(FileState::Restoring);
        if is_complete {
            let shown = path.display();
            return Err(DriveError::new(
                format!("the directory {shown} holds a pool already"),
                format!(
                    "if an earlier takeover wrote it, that one is complete: zonda serve {shown}; otherwise choose another directory"
                ),
            ));
        }
        new_directory::must_be_vacant(path, "pool", [LOCK_FILE, NEW_FILE, POOL_FILE], is_pool(path), is_complete)
    }

    /// Whether an interrupted takeover has left the directory.
    pub(super) fn is_restoring(path: &Path) -> bool {
        read(path).is_ok_and(|file| file.state == Some(FileState::Restoring))
    }

    /// The last owner in the directory of an interrupted takeover.
    pub(super) fn interrupted_owner(path: &Path) -> Option<HostId> {
        let file = read(path).ok().filter(|file| file.state == Some(FileState::Restoring))?;
        file.owner.and_then(|owner| uuid_of(&owner.host)).map(HostId)
    }

    /// The directory of a pool whose directory was lost, or that an interrupted takeover has left: only the lock
    /// is written until [`save_epoch`](PoolDirectory::save_epoch) or
    /// [`save_restoring`](PoolDirectory::save_restoring).
    pub(super) fn restore(
        path: &Path,
        drive: &Location,
        credentials: &Credentials,
        pool: PoolId,
    ) -> Result<PoolDirectory, DriveError> {
        PoolDirectory::must_be_free(path)?;
        let made = new_directory::make(path)?;
        let lock = locked(path, DirectoryLock::acquire(path)).inspect_err(|_| remove_directories(&made))?;
        PoolDirectory::must_be_free(path)?;
        // The epochs of the owners go on, if it was the same pool.
        let before = if is_pool(path) { Some(read(path)?) } else { None };
        let before = before.filter(|file| uuid_of(&file.pool) == Some(pool.0));
        let drive = place_in(path, drive).with_credentials(path, credentials);
        let mut directory = PoolDirectory::with_drive(path, random::uuid_text(&pool.0), drive, lock)?;
        (directory.made, directory.file.owner) = (made, before.and_then(|file| file.owner));
        directory.become_owner()?;
        Ok(directory)
    }

    /// A directory whose file is not written yet.
    fn with_drive(path: &Path, pool: String, drive: Place, lock: DirectoryLock) -> Result<PoolDirectory, DriveError> {
        let file = PoolFile {
            format: FORMAT,
            pool,
            state: Some(FileState::Creating),
            epoch: None,
            keeps_reservations: Vec::new(),
            owner: None,
            stays_reserved: false,
            drive,
        };
        let id = id_of(path, &file)?;
        Ok(PoolDirectory {
            path: path.to_owned(),
            file,
            id,
            lock,
            made: Vec::new(),
            owner: None,
            was_interrupted: false,
        })
    }

    /// Opens the directory of a pool with an exclusive lock, which is held until this is dropped.
    pub(super) fn open(path: &Path) -> Result<PoolDirectory, DriveError> {
        // Creates no lock file where there is no pool.
        must_be_pool(path)?;
        let mut directory = PoolDirectory::complete(path, locked(path, DirectoryLock::acquire(path))?)?;
        directory.become_owner()?;
        Ok(directory)
    }

    /// Opens the directory that a takeover has written, to reserve its drive.
    pub(super) fn open_restored(path: &Path) -> Result<PoolDirectory, DriveError> {
        let lock = locked(path, DirectoryLock::acquire(path))?;
        let mut directory = PoolDirectory::of_file(path, read(path)?, lock)?;
        directory.become_owner()?;
        Ok(directory)
    }

    /// Opens the directory read-only: nothing is written, not even a missing lock file.
    pub(super) fn open_read_only(path: &Path) -> Result<PoolDirectory, DriveError> {
        must_be_pool(path)?;
        PoolDirectory::complete(path, locked(path, DirectoryLock::acquire_read_only(path))?)
    }

    /// Reads the file after the lock was acquired: it is what the last program wrote.
    fn complete(path: &Path, lock: DirectoryLock) -> Result<PoolDirectory, DriveError> {
        let file = read(path)?;
        if file.state == Some(FileState::Creating) {
            return Err(DriveError::new(
                format!("the creation of the pool in {} was interrupted", path.display()),
                "repeat zonda pool create, which continues it; or remove the directory",
            ));
        }
        if file.state == Some(FileState::Restoring) {
            return Err(DriveError::new(
                format!("the takeover of the pool into {} was interrupted", path.display()),
                format!(
                    "repeat it, which continues it: zonda pool takeover {} --drive {}",
                    path.display(),
                    file.drive.shown()
                ),
            ));
        }
        PoolDirectory::of_file(path, file, lock)
    }

    fn of_file(path: &Path, file: PoolFile, lock: DirectoryLock) -> Result<PoolDirectory, DriveError> {
        let id = id_of(path, &file)?;
        let path = path.to_owned();
        Ok(PoolDirectory { path, file, id, lock, made: Vec::new(), owner: None, was_interrupted: false })
    }

    fn become_owner(&mut self) -> Result<(), DriveError> {
        let lock = self.path.join(LOCK_FILE);
        self.owner = Some(Owner::new(self.id.0, self.file.owner.as_ref(), &lock)?);
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the pool.
    pub(super) fn id(&self) -> PoolId {
        self.id
    }

    /// The last known epoch; 0 where none is known.
    pub(super) fn epoch(&self) -> u64 {
        self.file.epoch.unwrap_or(0)
    }

    /// The location of the drive for messages: as a user can type it.
    pub(super) fn shown_drive(&self) -> String {
        self.file.drive.shown()
    }

    /// The location of the drive as in the file.
    pub(super) fn drive(&self) -> &str {
        &self.file.drive.at
    }

    /// Whether the pool is being created.
    pub(super) fn is_new(&self) -> bool {
        self.file.state == Some(FileState::Creating)
    }

    /// Whether this continues a creation that was interrupted.
    pub(super) fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// How to open the drive: as its owner, or read-only with the host identifier of the last owner in
    /// this directory.
    pub(super) fn access(&self) -> Result<Access, DriveError> {
        let location = self.file.drive.at.parse().map_err(|error: zonda_config::ConfigError| {
            DriveError::new(error.message, error.help.unwrap_or_default())
        })?;
        let location = match location {
            Location::Image(path) => Location::Image(plain(&self.path.join(path))),
            url => url,
        };
        if let Location::Image(path) = &location
            && (is_volume(path) || is_pool(path))
        {
            let what = if is_volume(path) { "a volume" } else { "a pool" };
            return Err(DriveError::new(
                format!("{} is {what}, not a zoned drive", path.display()),
                "name a zoned drive: the directory of an image, or an nvme-tcp:// URL",
            ));
        }
        let mut options = self.file.drive.credentials(&self.path).options()?;
        options.host_nqn.get_or_insert_with(|| {
            let name = format!("nqn.2014-08.org.nvmexpress:uuid:{}", random::uuid_text(&self.id.0));
            Nqn::new(&name).expect("a UUID makes a name")
        });
        match &self.owner {
            Some(owner) => (options.host_id, options.claim) = (Some(owner.host()), Some(owner.claim())),
            None => {
                // Of a copy of the directory, the last owner may be a server that uses the pool.
                let place = place_of(&self.id.0, &self.path.join(LOCK_FILE));
                let last = self.file.owner.as_ref().and_then(|last| uuid_of(&last.host));
                options.host_id = last.filter(|host| host.starts_with(&place)).map(HostId);
            }
        }
        Ok(Access { location, options })
    }

    /// The drive was reserved at its server.
    pub(super) fn note_claimed(&mut self, claimed: &zonda_initiator::Claimed) {
        let owner = self.owner.as_mut().expect("a drive is reserved by an owner");
        owner.granted(claimed);
        self.file.owner = Some(owner.record());
    }

    /// Describes a host that holds the reservation of the drive.
    pub(super) fn shown(&self, holder: &Holder) -> String {
        describe_holder("pool", &self.id.0, holder)
    }

    /// The program that uses the pool; `None` if the directory is open read-only.
    pub(super) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// From now on [`access`](PoolDirectory::access) preempts this holder, or only earlier programs of
    /// this directory.
    pub(super) fn take_from(&mut self, holder: Option<&Holder>) {
        self.owner.iter_mut().for_each(|owner| owner.take_from(holder));
    }

    /// The owner epoch of the last program that has reserved the drive.
    pub(super) fn owner_epoch(&self) -> u32 {
        self.file.owner.as_ref().map_or(0, |owner| owner.epoch)
    }

    /// Whether a file has the saved reservations of the namespace with this UUID.
    pub(super) fn keeps_reservations(&self, uuid: &str) -> bool {
        self.file.keeps_reservations.iter().any(|kept| kept == uuid)
    }

    /// Saves whether a file has the saved reservations of this namespace.
    pub(super) fn keep_reservations(&mut self, uuid: &str, keeps: bool) -> Result<(), DriveError> {
        if self.keeps_reservations(uuid) == keeps {
            return Ok(());
        }
        let before = self.file.keeps_reservations.clone();
        self.file.keeps_reservations.retain(|kept| kept != uuid);
        if keeps {
            self.file.keeps_reservations.push(uuid.to_owned());
        }
        self.save().inspect_err(|_| self.file.keeps_reservations = before)
    }

    /// Replaces a file of the directory atomically; `new` is its name until it is durable.
    pub(super) fn replace(&self, name: &str, new: &str, content: &[u8]) -> io::Result<()> {
        self.lock.directory.replace(name, new, content)
    }

    /// Removes a file of the directory that is not needed. If this fails, it remains.
    pub(super) fn remove_file(&self, name: &str) {
        self.lock.directory.remove(name);
    }

    /// Whether the drive stays reserved for this directory when it is closed.
    pub(super) fn stays_reserved(&self) -> bool {
        self.file.stays_reserved
    }

    /// Saves the owner, and whether the drive stays reserved.
    pub(super) fn save_reserved(&mut self, stays_reserved: bool) -> Result<(), DriveError> {
        self.file.stays_reserved = stays_reserved;
        self.save()
    }

    /// Saves that the creation has begun: from here on the drive is written, and the same command
    /// continues.
    pub(super) fn begin(&mut self) -> Result<(), DriveError> {
        self.save()?;
        let whole = std::path::absolute(&self.path).map_err(|error| self.cannot_save(&error))?;
        whole.parent().map_or(Ok(()), File::sync_directory).map_err(|error| self.cannot_save(&error))
    }

    /// Saves that the pool is complete, and has reached this epoch.
    pub(super) fn save_epoch(&mut self, epoch: u64) -> Result<(), DriveError> {
        (self.file.state, self.file.epoch) = (None, Some(epoch));
        self.save()
    }

    /// Saves the epoch, and that the drive is to be reserved for this directory.
    pub(super) fn save_restoring(&mut self, epoch: u64) -> Result<(), DriveError> {
        (self.file.state, self.file.epoch) = (Some(FileState::Restoring), Some(epoch));
        self.save()
    }

    /// Saves that the drive is reserved for this directory.
    pub(super) fn end_restoring(&mut self) -> Result<(), DriveError> {
        match self.file.state.take_if(|state| *state == FileState::Restoring) {
            Some(_) => self.save(),
            None => Ok(()),
        }
    }

    fn save(&self) -> Result<(), DriveError> {
        let text = toml::to_string(&self.file).expect("strings and numbers can be serialized");
        let written = self.lock.directory.replace(POOL_FILE, NEW_FILE, format!("{HEADER}{text}").as_bytes());
        written.map_err(|error| self.cannot_save(&error))
    }

    fn cannot_save(&self, error: &io::Error) -> DriveError {
        DriveError::new(
            format!("cannot write {}: {error}", self.path.join(POOL_FILE).display()),
            "free space, or make the directory writable: without the file, an old copy of the drive would not be detected",
        )
    }

    /// Unlocks the directory. Returns the directories that were created for it, the deepest one first.
    pub(super) fn into_made(self) -> Vec<PathBuf> {
        self.made
    }

    /// Removes the directory of a pool whose creation has not written to the drive.
    pub(super) fn remove(self) {
        // If this fails, a directory without a pool remains.
        for name in [POOL_FILE, NEW_FILE, LOCK_FILE] {
            let _ = fs::remove_file(self.path.join(name));
        }
        remove_directories(&self.made);
    }
}

/// The lock of a pool's directory, or why there is none.
fn locked(path: &Path, acquired: io::Result<Option<DirectoryLock>>) -> Result<DirectoryLock, DriveError> {
    match acquired {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(in_use(path)),
        Err(error) => Err(DriveError::new(
            format!("cannot lock the pool in {}: {error}", path.display()),
            "check the permissions of the directory",
        )),
    }
}

/// The pool is used by another program.
pub(super) fn in_use(path: &Path) -> DriveError {
    DriveError::in_use(
        format!("the pool in {} is in use by another program", path.display()),
        "stop that program; if it is zonda serve, zonda status shows the state of its namespaces",
    )
}

/// Refuses a directory for a new pool that is not empty, unless it has the files of an interrupted
/// creation.
fn refuse_occupied(path: &Path) -> Result<(), DriveError> {
    let is_complete = is_pool(path) && read(path)?.state != Some(FileState::Creating);
    new_directory::must_be_vacant(path, "pool", [LOCK_FILE, NEW_FILE, POOL_FILE], is_pool(path), is_complete)
}

fn must_be_pool(path: &Path) -> Result<(), DriveError> {
    match fs::metadata(path.join(POOL_FILE)) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(DriveError::missing(
                format!("there is no pool in {}", path.display()),
                if path.join(LOCK_FILE).is_file() {
                    format!(
                        "if this was the directory of a pool whose pool.toml is lost: zonda pool takeover {} --drive, with \
                         the drive of the pool",
                        path.display()
                    )
                } else {
                    "check the path; zonda pool create creates a pool".to_owned()
                },
            ))
        }
        _ if foreign::has_foreign(path, POOL_FILE, &OWN_KEYS) => Err(DriveError::missing(
            format!("there is no pool in {}", path.display()),
            format!("its {POOL_FILE} is another file; give the directory of a pool, which zonda pool create creates"),
        )),
        // Reading it reports other errors.
        _ => Ok(()),
    }
}

fn id_of(path: &Path, file: &PoolFile) -> Result<PoolId, DriveError> {
    uuid_of(&file.pool).map(PoolId).ok_or_else(|| {
        let what = format!("\"{}\" in {} is not a UUID", file.pool, path.join(POOL_FILE).display());
        DriveError::new(what, "restore the UUID that zonda pool create wrote")
    })
}

fn read(path: &Path) -> Result<PoolFile, DriveError> {
    let place = path.join(POOL_FILE);
    let shown = place.display();
    let text = text_of(&place).map_err(|error| {
        DriveError::new(format!("cannot read {shown}: {error}"), "check that it is a text file that you can read")
    })?;
    let mut file: PoolFile = zonda_config::parse(&text).map_err(|error| {
        let before = error.span.as_ref().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let help = error.help.map_or_else(String::new, |help| format!("{help}; "));
        DriveError::new(
            format!("{shown} is invalid: line {line}: {}", error.message),
            format!("{help}correct the line; docs/guide/pools.md describes the file"),
        )
    })?;
    file.drive = file.drive.in_directory(path);
    if file.format != FORMAT {
        return Err(DriveError::new(
            format!("{shown} has format {}, this program supports {FORMAT}", file.format),
            "use the program that wrote it",
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(path: &Path) -> PoolDirectory {
        let drive = Location::Image(path.parent().expect("it has a parent").join("drive"));
        PoolDirectory::make(path, &drive, &Credentials::default(), [7; 16]).expect("it is new")
    }

    #[test]
    fn a_saved_file_is_read_by_the_next_program_and_locked_for_others() {
        let above = tempfile::TempDir::new().expect("there is space");
        let path = above.path().join("pool");
        let mut directory = make(&path);
        directory.begin().expect("there is space");
        let error = PoolDirectory::open(&path).expect_err("it is locked");
        assert!(error.is_in_use, "{error}");
        drop(directory);
        let error = PoolDirectory::open(&path).expect_err("it is incomplete");
        assert!(error.message.contains("was interrupted"), "{error}");
        let mut directory = PoolDirectory::make(&path, &Location::Image("x".into()), &Credentials::default(), [8; 16])
            .expect("it continues");
        assert!(directory.was_interrupted() && directory.id() == PoolId([7; 16]), "the identity stays");
        directory.save_epoch(9).expect("there is space");
        drop(directory);
        let again = PoolDirectory::open(&path).expect("it is unlocked");
        assert_eq!((again.epoch(), again.id()), (9, PoolId([7; 16])));
        drop(again);
        let error = PoolDirectory::must_be_free(&path).expect_err("a takeover has written it, or there is another");
        assert!(error.help.contains("that one is complete: zonda serve"), "{error}");
        let error = PoolDirectory::make(&path, &Location::Image("x".into()), &Credentials::default(), [8; 16]);
        assert!(error.expect_err("there is one").message.contains("holds a pool already"));
    }

    #[test]
    fn the_path_of_a_drive_beside_the_pool_is_relative_to_it() {
        let above = tempfile::TempDir::new().expect("there is space");
        let directory = make(&above.path().join("pool"));
        assert_eq!(directory.drive(), "../drive");
        let Location::Image(path) = directory.access().expect("it is a path").location else { panic!("it is a path") };
        assert_eq!(path, above.path().join("drive"));
    }

    #[test]
    fn a_file_that_is_not_that_of_a_pool_is_refused_with_its_line() {
        let above = tempfile::TempDir::new().expect("there is space");
        let path = above.path().join("pool");
        make(&path).begin().expect("there is space");
        fs::write(path.join(POOL_FILE), "format = 1\nwrong = 2\n").expect("there is space");
        let error = PoolDirectory::open(&path).expect_err("it has another key");
        assert!(error.message.contains("pool.toml is invalid: line 2: unknown key \"wrong\""), "{error}");
        fs::remove_dir_all(&path).expect("it exists");
        assert!(PoolDirectory::open(&path).expect_err("it is missing").is_missing);
        assert!(!path.exists(), "no lock file is created where there is no pool");
    }
}
