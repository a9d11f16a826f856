//! The directory of an image: the five files of the format, and the lock that keeps two programs from writing to them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::{Errno, retry_on_intr};
use zonda_image::{FileError, Files, ImageFile};
use zonda_ring::{File, FileOptions};

use crate::DriveError;
use crate::access::OF_OTHERS;
use crate::making::{image_files, refuse_unfinished};

/// The files of one image, opened. Those that are missing are told of when they are asked for.
#[derive(Debug)]
pub struct ImageDirectory {
    path: PathBuf,
    files: [Option<Rc<File>>; ImageFile::ALL.len()],
    access: FileOptions,
    /// Opened for the lock alone. A lock belongs to an opening of a file, and the kernel closes those that a killed
    /// process's io_uring used only after the process has ended; this one is closed with the process. The ring's operations
    /// have all ended by then, so nothing is written any more once the lock is free.
    _lock: Option<File>,
}

/// An [`ImageDirectory`] on its way from one thread to another.
#[derive(Debug)]
pub(crate) struct DirectoryParts {
    path: PathBuf,
    /// In the order of [`ImageFile::ALL`].
    files: Vec<File>,
    access: FileOptions,
    lock: Option<File>,
}

impl ImageDirectory {
    /// A directory in which an image is being made: see [`Making`](crate::making::Making).
    pub(crate) fn new_in(path: &Path) -> ImageDirectory {
        let access = FileOptions::read_write();
        ImageDirectory { path: path.to_owned(), files: Default::default(), access, _lock: None }
    }

    /// An image that nobody else may open for writing until this is dropped, nor could before.
    ///
    /// # Errors
    /// When there is none, it is in use, or may not be written.
    pub fn lock(path: &Path) -> Result<ImageDirectory, DriveError> {
        let lock = acquire_lock(path, FileOptions::read_write(), FlockOperation::NonBlockingLockExclusive)?;
        let directory = ImageDirectory::open(path, FileOptions::read_write())?;
        // A creation may have been stopped after its last act and before that was durable. If it were undone by a loss of power now,
        // the image would be taken for one that was not completed. Where directories cannot be synced the creation has failed for that.
        let _ = File::sync_directory(path);
        Ok(ImageDirectory { _lock: Some(lock), ..directory })
    }

    /// An image to look at. Somebody may be writing to it.
    ///
    /// # Errors
    /// When there is none, or it may not be read.
    pub fn look(path: &Path) -> Result<ImageDirectory, DriveError> {
        ImageDirectory::open(path, FileOptions::read_only())
    }

    /// An image to look at, which no other program may open for writing until this is dropped, nor could before. Others may look at
    /// it meanwhile. Nothing is written, so that it may be on a medium that is read-only.
    ///
    /// # Errors
    /// When there is none, it is in use, or may not be read.
    pub fn look_alone(path: &Path) -> Result<ImageDirectory, DriveError> {
        let lock = acquire_lock(path, FileOptions::read_only(), FlockOperation::NonBlockingLockShared)?;
        let directory = ImageDirectory::look(path)?;
        Ok(ImageDirectory { _lock: Some(lock), ..directory })
    }

    /// The same of files that may not be an image yet.
    pub(crate) fn look_at_any(path: &Path) -> Result<ImageDirectory, DriveError> {
        ImageDirectory::open_any(path, FileOptions::read_only())
    }

    fn open(path: &Path, access: FileOptions) -> Result<ImageDirectory, DriveError> {
        refuse_unfinished(path)?;
        let directory = ImageDirectory::open_any(path, access)?;
        // Files that were there before a look that finds no mark are those of an image that is complete.
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

    /// The same for another thread, with all files open.
    pub(crate) fn into_parts(mut self) -> Result<DirectoryParts, FileError> {
        let mut files = Vec::with_capacity(ImageFile::ALL.len());
        for file in ImageFile::ALL {
            self.file(file)?;
            let opened = self.files[file as usize].take().and_then(|file| Rc::try_unwrap(file).ok());
            files.push(opened.expect("nothing else uses a file of a directory that was just opened"));
        }
        Ok(DirectoryParts { path: self.path, files, access: self.access, lock: self._lock })
    }

    pub(crate) fn from_parts(parts: DirectoryParts) -> ImageDirectory {
        let DirectoryParts { path, files, access, lock } = parts;
        let mut directory = ImageDirectory { path, files: Default::default(), access, _lock: lock };
        directory.files.iter_mut().zip(files).for_each(|(place, file)| *place = Some(Rc::new(file)));
        directory
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file of the image; one that is missing is made if this directory may be written to.
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

/// Which files of an image others than its owner may open, and the command that ends that; `None` where none is open to them. Images are made with
/// files that are their owner's alone, but one that was made by an early zonda, or copied, may not be.
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
    Some(format!("others than the owner may open {first} (mode {mode:04o}){more}: chmod 600 {shown}/*.zonda"))
}

/// The lock of an image; it is released with the process, however that ends.
fn acquire_lock(path: &Path, access: FileOptions, operation: FlockOperation) -> Result<File, DriveError> {
    let place = path.join(ImageFile::Superblock.name());
    refuse_unfinished(path)?;
    let file = File::open(&place, access).map_err(|error| cannot_open(path, &place, &error))?;
    match retry_on_intr(|| flock(&file, operation)) {
        // One that was replaced meanwhile locks nothing.
        Ok(()) if is_in_place(&file, &place) => Ok(file),
        Ok(()) | Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        Err(error) => Err(DriveError::new(
            format!("the image in {} cannot be locked: {error}", path.display()),
            "put the image on a file system that has locks",
        )),
    }
}

/// Whether this is the file that is found in this place.
pub(crate) fn is_in_place(file: &File, place: &Path) -> bool {
    let Ok(opened) = fstat(file) else { return false };
    fs::metadata(place).is_ok_and(|found| (found.dev(), found.ino()) == (opened.st_dev, opened.st_ino))
}

pub(crate) fn in_use(path: &Path) -> DriveError {
    DriveError::in_use(
        format!("the image in {} is in use by another program", path.display()),
        "stop the server that has it, or reach it through that server by its nvme-tcp:// URL",
    )
}

pub(crate) fn occupied(path: &Path, what: &str) -> DriveError {
    DriveError::new(
        format!("the directory {} {what}", path.display()),
        "choose another directory, or remove this one if nobody needs what is in it",
    )
}

pub(crate) fn cannot_make(path: &Path, error: &io::Error) -> DriveError {
    let help = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room, or choose a directory on another file system",
        _ => "choose a directory in which you may write",
    };
    DriveError::new(format!("no image can be made in {}: {error}", path.display()), help)
}

/// What the system said, as the image understands it.
pub(crate) fn file_error(error: &io::Error) -> FileError {
    match error.kind() {
        ErrorKind::NotFound => FileError::Missing,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::StorageFull,
        _ => FileError::Other(error.to_string()),
    }
}

fn cannot_open(directory: &Path, file: &Path, error: &io::Error) -> DriveError {
    let shown = directory.display();
    match error.kind() {
        ErrorKind::NotFound if directory.is_dir() => DriveError::missing(
            format!("there is no image in {shown}"),
            format!("zonda drive create {shown} makes one, in an empty directory"),
        ),
        ErrorKind::NotFound => DriveError::missing(
            format!("there is no directory {shown}"),
            format!("zonda drive create {shown} makes an image there"),
        ),
        ErrorKind::NotADirectory => {
            DriveError::new(format!("{shown} is no directory"), "write the name of the directory of an image")
        }
        ErrorKind::PermissionDenied => DriveError::new(
            format!("{} may not be opened", file.display()),
            "run as the user who owns the image, or give this one the right",
        ),
        _ => DriveError::new(format!("{} cannot be opened: {error}", file.display()), "see whether the disk is well"),
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
        let first = ImageDirectory::lock(image.path()).expect("it is free");
        let error = ImageDirectory::lock(image.path()).expect_err("the first owner lives");
        assert!(error.is_in_use && error.message.contains("in use by another program"), "{error}");
        ImageDirectory::look(image.path()).expect("to look needs no lock");
        drop(first);
        ImageDirectory::lock(image.path()).expect("it is free again");
    }

    #[test]
    fn several_may_look_at_an_image_while_nobody_opens_it_for_writing() {
        let image = image();
        let first = ImageDirectory::look_alone(image.path()).expect("it is free");
        let second = ImageDirectory::look_alone(image.path()).expect("nobody writes to it");
        drop(first);
        assert!(ImageDirectory::lock(image.path()).expect_err("somebody looks at it").is_in_use);
        drop(second);
        let owner = ImageDirectory::lock(image.path()).expect("it is free again");
        assert!(ImageDirectory::look_alone(image.path()).expect_err("somebody writes to it").is_in_use);
        drop(owner);
    }

    #[test]
    fn files_that_a_dead_owners_ring_has_yet_to_close_do_not_keep_the_lock() {
        let image = image();
        let mut owner = ImageDirectory::lock(image.path()).expect("it is free");
        let files: Vec<Rc<File>> = ImageFile::ALL.iter().map(|&file| owner.file(file).expect("it exists")).collect();
        // What the kernel does for the ring of a killed process: the owner is gone, its files are open.
        drop(owner);
        ImageDirectory::lock(image.path()).expect("the lock went with its owner");
        drop(files);
    }
}
