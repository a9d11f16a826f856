//! The directory of an image: the five files of the format, and the lock that prevents two programs
//! from writing to them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::{Errno, retry_on_intr};
use zonda_image::{FileError, Files, ImageFile};
use zonda_ring::{File, FileOptions};

use crate::DriveError;
use crate::access::OF_OTHERS;
use crate::creation::{image_files, is_vacant, refuse_unfinished};
use crate::volume::is_left_of_volume;

/// The open files of one image. A missing file is reported when it is accessed.
#[derive(Debug)]
pub struct ImageDirectory {
    path: PathBuf,
    files: [Option<Rc<File>>; ImageFile::ALL.len()],
    access: FileOptions,
    /// Opened for the lock alone. A lock belongs to an open file description, and the kernel closes
    /// those that the io_uring of a killed process used only after the process has exited; this one
    /// is closed with the process. The operations of the ring have completed by then, so nothing is
    /// written once the lock is free.
    _lock: Option<ImageLock>,
}

/// An [`ImageDirectory`] that is moved from one thread to another.
#[derive(Debug)]
pub(crate) struct DirectoryParts {
    path: PathBuf,
    /// In the order of [`ImageFile::ALL`].
    files: Vec<File>,
    access: FileOptions,
    lock: Option<ImageLock>,
}

impl ImageDirectory {
    /// A directory in which an image is being created: see [`Creation`](crate::creation::Creation).
    pub(crate) fn new_in(path: &Path) -> ImageDirectory {
        let access = FileOptions::read_write();
        ImageDirectory { path: path.to_owned(), files: Default::default(), access, _lock: None }
    }

    /// Opens an image for writing with an exclusive lock, which is held until this is dropped.
    ///
    /// # Errors
    /// When the image does not exist, is in use, or is not writable.
    pub fn lock(path: &Path) -> Result<ImageDirectory, DriveError> {
        let lock = acquire_lock(path, FileOptions::read_write(), FlockOperation::NonBlockingLockExclusive)?;
        let directory = ImageDirectory::open(path, FileOptions::read_write())?;
        // A creation may have been interrupted after its last step and before that was durable. If
        // a loss of power undid it now, the image would be taken for an incomplete one. Where
        // directories cannot be synced, the creation has failed with that error.
        let _ = File::sync_directory(path);
        Ok(ImageDirectory { _lock: Some(lock), ..directory })
    }

    /// Opens an image read-only without a lock. Another program may be writing to it.
    ///
    /// # Errors
    /// When the image does not exist, or is not readable.
    pub fn open_read_only(path: &Path) -> Result<ImageDirectory, DriveError> {
        ImageDirectory::open(path, FileOptions::read_only())
    }

    /// Opens an image read-only with a shared lock, which prevents writers until this is dropped
    /// and allows other readers. Nothing is written, so the file system may be mounted read-only.
    ///
    /// # Errors
    /// When the image does not exist, is in use, or is not readable.
    pub fn open_shared(path: &Path) -> Result<ImageDirectory, DriveError> {
        let lock = acquire_lock(path, FileOptions::read_only(), FlockOperation::NonBlockingLockShared)?;
        let directory = ImageDirectory::open_read_only(path)?;
        Ok(ImageDirectory { _lock: Some(lock), ..directory })
    }

    /// Opens files read-only that may be an incomplete image.
    pub(crate) fn open_unchecked(path: &Path) -> Result<ImageDirectory, DriveError> {
        ImageDirectory::open_any(path, FileOptions::read_only())
    }

    fn open(path: &Path, access: FileOptions) -> Result<ImageDirectory, DriveError> {
        refuse_unfinished(path)?;
        let directory = ImageDirectory::open_any(path, access)?;
        // If there is no marker after the files were opened, they are those of a complete image.
        refuse_unfinished(path)?;
        Ok(directory)
    }

    fn open_any(path: &Path, access: FileOptions) -> Result<ImageDirectory, DriveError> {
        let mut directory = ImageDirectory { path: path.to_owned(), files: Default::default(), access, _lock: None };
        for file in ImageFile::ALL {
            let place = path.join(file.name());
            match File::open(&place, access) {
                Ok(opened) => directory.files[file as usize] = Some(Rc::new(opened)),
                Err(error) if error.kind() == ErrorKind::NotFound && file != ImageFile::Superblock => {}
                Err(error) => return Err(cannot_open(path, &place, &error)),
            }
        }
        Ok(directory)
    }

    /// Opens the files that are not open yet, for another thread.
    pub(crate) fn into_parts(mut self) -> Result<DirectoryParts, FileError> {
        let mut files = Vec::with_capacity(ImageFile::ALL.len());
        for file in ImageFile::ALL {
            self.file(file)?;
            let opened = self.files[file as usize].take().and_then(|file| Rc::try_unwrap(file).ok());
            files.push(opened.expect("no other user of a file of a directory that was just opened"));
        }
        Ok(DirectoryParts { path: self.path, files, access: self.access, lock: self._lock })
    }

    pub(crate) fn from_parts(parts: DirectoryParts) -> ImageDirectory {
        let DirectoryParts { path, files, access, lock } = parts;
        let mut directory = ImageDirectory { path, files: Default::default(), access, _lock: lock };
        directory.files.iter_mut().zip(files).for_each(|(place, file)| *place = Some(Rc::new(file)));
        directory
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file of the image; a missing one is created if the directory is open for writing.
    pub(crate) fn file(&mut self, file: ImageFile) -> Result<Rc<File>, FileError> {
        if let Some(opened) = &self.files[file as usize] {
            return Ok(Rc::clone(opened));
        }
        if !self.access.write {
            return Err(FileError::Missing);
        }
        let options = FileOptions { create: true, ..self.access };
        let opened = Rc::new(File::open(&self.path.join(file.name()), options).map_err(|error| file_error(&error))?);
        self.files[file as usize] = Some(Rc::clone(&opened));
        Ok(opened)
    }

    fn existing(&self, file: ImageFile) -> Result<&File, FileError> {
        self.files[file as usize].as_deref().ok_or(FileError::Missing)
    }
}

impl Files for ImageDirectory {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.existing(file)?.read_at(buffer, offset).map_err(|error| file_error(&error))
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.file(file)?.write_at(bytes, offset).map_err(|error| file_error(&error))
    }

    fn sync(&mut self, file: ImageFile) -> Result<(), FileError> {
        self.file(file)?.sync().map_err(|error| file_error(&error))
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        self.file(file)?.set_length(length).map_err(|error| file_error(&error))
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        self.existing(file)?.length().map_err(|error| file_error(&error))
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.file(file)?.punch_hole(offset, length).map_err(|error| file_error(&error))
    }

    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        self.existing(file)?.next_data(offset).map_err(|error| file_error(&error))
    }
}

/// A warning about files of an image that are accessible to group or others, with the command to
/// fix that; `None` where there are none. New images are accessible to their owner alone, but one
/// that was created by an early zonda, or copied, may not be.
#[must_use]
pub fn exposed_files(path: &Path) -> Option<String> {
    let mode_of = |name: &str| {
        let found = fs::metadata(path.join(name)).ok().filter(fs::Metadata::is_file);
        found.map(|found| found.mode() & 0o7777)
    };
    let exposed = image_files().filter_map(|name| Some((name, mode_of(name)?)));
    let exposed: Vec<_> = exposed.filter(|(_, mode)| mode & OF_OTHERS != 0).collect();
    let (first, mode) = exposed.first()?;
    let more = if exposed.len() > 1 { " and more" } else { "" };
    let shown = path.display();
    Some(format!("{first} (mode {mode:04o}){more} is accessible to group or others: chmod 600 {shown}/*.zonda"))
}

/// The lock of an image: of its superblock, and of the directory, which stays the same when a backup
/// is restored over the files.
#[derive(Debug)]
struct ImageLock {
    _superblock: File,
    /// Absent on file systems that have no locks on directories.
    _directory: Option<OwnedFd>,
}

/// Acquires the lock of an image; it is released when the process exits, however it exits.
fn acquire_lock(path: &Path, access: FileOptions, operation: FlockOperation) -> Result<ImageLock, DriveError> {
    let place = path.join(ImageFile::Superblock.name());
    refuse_unfinished(path)?;
    let file = File::open(&place, access).map_err(|error| cannot_open(path, &place, &error))?;
    match retry_on_intr(|| flock(&file, operation)) {
        // The lock of a file that was replaced meanwhile is of no effect.
        Ok(()) if is_in_place(&file, &place) => {
            let _directory = lock_directory(path, operation)?;
            Ok(ImageLock { _superblock: file, _directory })
        }
        Ok(()) | Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        Err(error) => Err(DriveError::new(
            format!("cannot lock the image in {}: {error}", path.display()),
            "put the image on a file system that supports flock",
        )),
    }
}

fn lock_directory(path: &Path, operation: FlockOperation) -> Result<Option<OwnedFd>, DriveError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = retry_on_intr(|| open(path, flags, Mode::empty())) else { return Ok(None) };
    match retry_on_intr(|| flock(&directory, operation)) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        // On NFS, for example.
        Err(_) => Ok(None),
    }
}

/// Whether this open file is the one at this path.
pub(crate) fn is_in_place(file: &File, place: &Path) -> bool {
    let Ok(opened) = fstat(file) else { return false };
    fs::metadata(place).is_ok_and(|found| (found.dev(), found.ino()) == (opened.st_dev, opened.st_ino))
}

pub(crate) fn in_use(path: &Path) -> DriveError {
    DriveError::in_use(
        format!("the image in {} is in use by another program", path.display()),
        "stop the program that uses it; zonda zone and zonda bench --target, and zonda volume create --members, can also \
         use the drive through its server, by its nvme-tcp:// URL",
    )
}

pub(crate) fn occupied(path: &Path, what: &str) -> DriveError {
    DriveError::new(
        format!("the directory {} {what}", path.display()),
        "choose another directory, or remove this one if its contents are not needed",
    )
}

pub(crate) fn cannot_make(path: &Path, error: &io::Error) -> DriveError {
    let help = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space, or choose a directory on another file system",
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "the path, or a part of it, is a file: choose another path for the directory"
        }
        _ => "choose a directory that you can write to",
    };
    DriveError::new(format!("cannot create an image in {}: {error}", path.display()), help)
}

/// Why a file of an image cannot be created: free space does not help.
pub(crate) const FILE_TOO_LARGE: &str = "a file of this size exceeds a limit of the file system or of this process";

/// Maps an error of the system to one of the image.
pub(crate) fn file_error(error: &io::Error) -> FileError {
    match error.kind() {
        ErrorKind::NotFound => FileError::Missing,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::StorageFull,
        ErrorKind::FileTooLarge => FileError::Other(FILE_TOO_LARGE.to_owned()),
        _ => FileError::Other(error.to_string()),
    }
}

fn cannot_open(directory: &Path, file: &Path, error: &io::Error) -> DriveError {
    let shown = directory.display();
    match error.kind() {
        ErrorKind::NotFound if directory.is_dir() => DriveError::missing(
            format!("there is no image in {shown}"),
            if is_vacant(directory) {
                format!("create one: zonda drive create {shown}")
            } else if crate::is_pool(directory) {
                format!("it is the directory of a pool: zonda pool show {shown} names its drive")
            } else if crate::volume::directory::has_other_file(directory) {
                "its volume.toml is no file of a volume: give the directory of an image, which zonda drive create creates, \
                 or of a volume, which zonda volume create creates"
                    .to_owned()
            } else if is_left_of_volume(directory) {
                format!(
                    "this was the directory of a volume whose volume.toml is missing: zonda volume import {shown} --members, \
                     with the drives of the volume, recreates it; or of a pool: zonda pool takeover {shown} --drive, with its \
                     drive"
                )
            } else {
                "check the path; zonda drive create needs an empty or new directory".to_owned()
            },
        ),
        ErrorKind::NotFound => DriveError::missing(
            format!("there is no directory {shown}"),
            match directory.extension() {
                Some(extension) if extension == "toml" => {
                    "check the path: give the directory of an image, and not a .toml file".to_owned()
                }
                _ => format!("check the path, or create an image there: zonda drive create {shown}"),
            },
        ),
        ErrorKind::NotADirectory => DriveError::new(
            format!("{shown} is not a directory"),
            if directory.extension().is_some_and(|extension| extension == "toml") {
                "give the path of the directory of an image; for a configuration of zonda serve: --config"
            } else {
                "give the path of the directory of an image"
            },
        ),
        ErrorKind::PermissionDenied => DriveError::new(
            format!("cannot open {}: permission denied", file.display()),
            "run as the user who owns the image, or grant this user access",
        ),
        _ => DriveError::new(format!("cannot open {}: {error}", file.display()), "check the disk and its file system"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for file in ImageFile::ALL {
            fs::write(directory.path().join(file.name()), "").expect("it can be written");
        }
        directory
    }

    #[test]
    fn an_image_has_one_owner_at_a_time() {
        let image = image();
        let first = ImageDirectory::lock(image.path()).expect("it is unlocked");
        let error = ImageDirectory::lock(image.path()).expect_err("the first owner holds the lock");
        assert!(error.is_in_use && error.message.contains("in use by another program"), "{error}");
        ImageDirectory::open_read_only(image.path()).expect("opening it read-only needs no lock");
        drop(first);
        ImageDirectory::lock(image.path()).expect("it is unlocked again");
    }

    #[test]
    fn files_that_are_restored_over_an_image_in_use_get_no_second_owner() {
        let image = image();
        let owner = ImageDirectory::lock(image.path()).expect("it is unlocked");
        let superblock = image.path().join(ImageFile::Superblock.name());
        let restored = image.path().join("restored");
        fs::copy(&superblock, &restored).and_then(|_| fs::rename(&restored, &superblock)).expect("it can be replaced");
        assert!(ImageDirectory::lock(image.path()).expect_err("the directory has an owner").is_in_use);
        assert!(ImageDirectory::open_shared(image.path()).expect_err("the directory has an owner").is_in_use);
        drop(owner);
        ImageDirectory::lock(image.path()).expect("it is unlocked again");
    }

    #[test]
    fn an_image_has_several_readers_or_one_writer() {
        let image = image();
        let first = ImageDirectory::open_shared(image.path()).expect("it is unlocked");
        let second = ImageDirectory::open_shared(image.path()).expect("there is no writer");
        drop(first);
        assert!(ImageDirectory::lock(image.path()).expect_err("there is a reader").is_in_use);
        drop(second);
        let owner = ImageDirectory::lock(image.path()).expect("it is unlocked again");
        assert!(ImageDirectory::open_shared(image.path()).expect_err("there is a writer").is_in_use);
        drop(owner);
    }

    #[test]
    fn files_that_the_ring_of_a_killed_process_has_yet_to_close_do_not_hold_the_lock() {
        let image = image();
        let mut owner = ImageDirectory::lock(image.path()).expect("it is unlocked");
        let files: Vec<Rc<File>> = ImageFile::ALL.iter().map(|&file| owner.file(file).expect("it exists")).collect();
        // As the kernel does for the ring of a killed process: the owner has exited, its files are
        // open.
        drop(owner);
        ImageDirectory::lock(image.path()).expect("the lock was released with its owner");
        drop(files);
    }
}
