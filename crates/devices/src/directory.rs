//! The directory of an image: the five files of the format, and the lock that keeps two programs from writing to them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use zonda_image::{FileError, Files, ImageFile};
use zonda_ring::{File, FileOptions};

use crate::DriveError;

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
    /// A directory for a new image, made if it is not there.
    ///
    /// # Errors
    /// When it holds something else already, or cannot be made.
    pub fn make(path: &Path) -> Result<ImageDirectory, DriveError> {
        if let Ok(mut entries) = fs::read_dir(path)
            && entries.next().is_some()
        {
            let is_image = path.join(ImageFile::Superblock.name()).exists();
            let what = if is_image { "holds an image already" } else { "is not empty" };
            return Err(occupied(path, what));
        }
        fs::create_dir_all(path).map_err(|error| cannot_make(path, &error))?;
        // Of two programs that begin at once one makes the file, and has the image to itself until it is complete.
        let place = path.join(ImageFile::Superblock.name());
        let made = File::open(&place, FileOptions::create_new()).and_then(|file| Ok((file.lock()?, file)));
        let lock = match made {
            Ok((true, file)) => file,
            Ok((false, _)) => return Err(in_use(path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(occupied(path, "holds an image already"));
            }
            Err(error) => return Err(cannot_make(path, &error)),
        };
        Ok(ImageDirectory {
            path: path.to_owned(),
            files: Default::default(),
            access: FileOptions::read_write(),
            _lock: Some(lock),
        })
    }

    /// An image that nobody else may open for writing until this is dropped, nor could before.
    ///
    /// # Errors
    /// When there is none, it is in use, or may not be written.
    pub fn lock(path: &Path) -> Result<ImageDirectory, DriveError> {
        let lock = acquire_lock(path, FileOptions::read_write())?;
        let directory = ImageDirectory::open(path, FileOptions::read_write())?;
        Ok(ImageDirectory { _lock: Some(lock), ..directory })
    }

    /// An image to look at. Somebody may be writing to it.
    ///
    /// # Errors
    /// When there is none, or it may not be read.
    pub fn look(path: &Path) -> Result<ImageDirectory, DriveError> {
        ImageDirectory::open(path, FileOptions::read_only())
    }

    /// An image to look at, which no other program may open for writing until this is dropped, nor could before.
    ///
    /// # Errors
    /// When there is none, it is in use, or may not be read.
    pub fn look_alone(path: &Path) -> Result<ImageDirectory, DriveError> {
        let lock = acquire_lock(path, FileOptions::read_only())?;
        let directory = ImageDirectory::look(path)?;
        Ok(ImageDirectory { _lock: Some(lock), ..directory })
    }

    fn open(path: &Path, access: FileOptions) -> Result<ImageDirectory, DriveError> {
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

    /// Makes the names of the files last.
    ///
    /// # Errors
    /// What the system said.
    pub fn sync_names(&self) -> io::Result<()> {
        File::sync_directory(&self.path)?;
        // The directory's own name is in the one above.
        match self.path.parent() {
            Some(above) if above.as_os_str().is_empty() => File::sync_directory(Path::new(".")),
            Some(above) => File::sync_directory(above),
            None => Ok(()),
        }
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

/// The lock of an image; it is released with the process, however that ends.
fn acquire_lock(path: &Path, access: FileOptions) -> Result<File, DriveError> {
    let place = path.join(ImageFile::Superblock.name());
    let file = File::open(&place, access).map_err(|error| cannot_open(path, &place, &error))?;
    match file.lock() {
        Ok(true) => Ok(file),
        Ok(false) => Err(in_use(path)),
        Err(error) => Err(DriveError::new(
            format!("the image in {} cannot be locked: {error}", path.display()),
            "put the image on a file system that has locks",
        )),
    }
}

fn in_use(path: &Path) -> DriveError {
    DriveError::in_use(
        format!("the image in {} is in use by another program", path.display()),
        "stop the server that has it, or reach it through that server by its nvme-tcp:// URL",
    )
}

fn occupied(path: &Path, what: &str) -> DriveError {
    DriveError::new(
        format!("the directory {} {what}", path.display()),
        "choose another directory, or remove this one if nobody needs what is in it",
    )
}

fn cannot_make(path: &Path, error: &io::Error) -> DriveError {
    DriveError::new(
        format!("the directory {} cannot be made: {error}", path.display()),
        "choose a directory in which you may write",
    )
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
    fn an_image_that_is_being_made_belongs_to_one_program() {
        let above = tempfile::tempdir().expect("a directory");
        let path = above.path().join("image");
        let makers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| ImageDirectory::make(&path).map(|made| made._lock))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) = makers.into_iter().partition(Result::is_ok);
        assert_eq!(made.len(), 1, "{refused:?}");
        for error in refused.into_iter().filter_map(Result::err) {
            assert!(
                error.message.contains("holds an image already") || error.message.contains("is not empty"),
                "{error}"
            );
        }
        let error = ImageDirectory::lock(&path).expect_err("it is not complete");
        assert!(error.is_in_use, "{error}");
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
