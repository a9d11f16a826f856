//! [`Creation`]: the directory of an image that is being created, and its marker file.
//!
//! An image is created in place, and not in a temporary directory that is renamed: an existing
//! directory may be a mount point or the working directory of a process, and has an owner,
//! permissions and attributes that a new one would not have. So the marker file `creating.zonda`
//! exists from before the first file of the image until everything is durable.
//!
//! - A marker with content: the files beside it are not an image yet, and cannot be opened as one.
//!   The content is synced before any other file is created, so the marker survives a loss of
//!   power.
//! - A locked marker: a program is creating the image at present. An unlocked marker was left by an
//!   interrupted creation, and the next creation removes its files.
//! - A marker without content is ignored: its creator had not verified yet that the directory is
//!   empty. No file is removed because of it, since another creation may have completed an image
//!   beside it in the meantime.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use zonda_image::{Counters, ImageFile};
use zonda_ring::{File, FileOptions};

use crate::directory::{cannot_make, in_use, is_in_place, occupied};
use crate::{DriveError, ELEMENTS_FILE, ImageDirectory};

/// The name of the marker file.
const MARK: &str = "creating.zonda";
/// The content of the marker file.
const WORDS: &[u8] = b"zonda is creating an image here, or was interrupted: zonda drive create creates it again\n";
/// How long to wait for another program that has locked the marker: most images are created faster.
const OTHER_CREATION_MAX: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A directory that is empty but for the marker, which has content and is locked by this.
#[derive(Debug)]
pub(crate) struct Creation {
    path: PathBuf,
    /// Directories that were created, the deepest one first.
    made: Vec<PathBuf>,
    _mark: File,
}

impl Creation {
    /// Begins in a directory that is empty, does not exist, or has only the files of an interrupted
    /// creation.
    ///
    /// # Errors
    /// When the directory holds other files, another program is creating an image in it, or it is
    /// not writable.
    pub(crate) fn begin(path: &Path) -> Result<Creation, DriveError> {
        let mut made = Vec::new();
        let deadline = Instant::now() + OTHER_CREATION_MAX;
        loop {
            let begun = Creation::try_begin(path, &mut made);
            match begun {
                Ok(Some(mark)) => return Ok(Creation { path: path.to_owned(), made, _mark: mark }),
                Ok(None) if Instant::now() < deadline => thread::sleep(RETRY_INTERVAL),
                Ok(None) => return Err(creation_in_progress(path)),
                Err(error) => {
                    remove_directories(&made);
                    return Err(error);
                }
            }
        }
    }

    /// Creates, locks and writes the marker. `None`: another program has locked or just removed it.
    fn try_begin(path: &Path, made: &mut Vec<PathBuf>) -> Result<Option<File>, DriveError> {
        // No marker is ever created beside a complete image.
        if !path.join(MARK).exists() {
            refuse_others(path, &names_in(path)?)?;
        }
        make_directories(path, made).map_err(|error| cannot_make(path, &error))?;
        let place = path.join(MARK);
        let mark = match File::open(&place, FileOptions { create: true, ..FileOptions::read_write() }) {
            Ok(mark) => mark,
            // Another program created the directory, has failed, and is removing it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot_make(path, &error)),
        };
        let locked = mark.lock().map_err(|error| {
            let _ = fs::remove_file(&place);
            cannot_make(path, &error)
        })?;
        if !locked || !is_in_place(&mark, &place) {
            return Ok(None);
        }
        if mark.length().map_err(|error| cannot_make(path, &error))? > 0 {
            remove_leftovers(path)?;
            return Ok(Some(mark));
        }
        // While the lock is held, no other program writes the marker or creates an image.
        let written = refuse_others(path, &names_in(path)?).and_then(|()| {
            let written = mark.write_at(WORDS, 0).and_then(|()| mark.sync());
            written.and_then(|()| File::sync_directory(path)).map_err(|error| cannot_make(path, &error))
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&place);
            return Err(error);
        }
        Ok(Some(mark))
    }

    /// Completes the image: its files are written and synced; syncs the directories, and removes
    /// the marker.
    ///
    /// # Errors
    /// The error of the system. The files are removed then, unless only the removal of the marker
    /// may not be durable.
    pub(crate) fn finish(self) -> Result<(), DriveError> {
        let failed = |error: io::Error| {
            DriveError::new(
                format!("cannot make the files in {} durable: {error}", self.path.display()),
                "put the image on another file system",
            )
        };
        let synced = sync_names(&self.path, self.made.len(), &mut File::sync_directory);
        if let Err(error) = synced.and_then(|()| fs::remove_file(self.path.join(MARK))) {
            let error = failed(error);
            self.abandon();
            return Err(error);
        }
        File::sync_directory(&self.path).map_err(failed)
    }

    /// The creation has failed: removes its files and directories.
    pub(crate) fn abandon(self) {
        // The marker is removed last, so that the next creation cleans up after an interruption.
        if remove_files(&self.path).and_then(|()| fs::remove_file(self.path.join(MARK))).is_ok() {
            remove_directories(&self.made);
        }
    }
}

/// Whether the directory has an incomplete image.
fn is_unfinished(path: &Path) -> bool {
    let is_begun = |mark: fs::Metadata| mark.len() > 0 || !path.join(ImageFile::Superblock.name()).exists();
    fs::metadata(path.join(MARK)).is_ok_and(is_begun)
}

/// Whether an image can be created in this directory: it does not exist, is empty, or has only the
/// files of an interrupted creation.
#[must_use]
pub fn is_vacant(path: &Path) -> bool {
    is_unfinished(path) || names_in(path).is_ok_and(|names| names.is_empty())
}

/// Fails if the directory has an incomplete image.
pub(crate) fn refuse_unfinished(path: &Path) -> Result<(), DriveError> {
    if !is_unfinished(path) {
        return Ok(());
    }
    let is_locked = File::open(&path.join(MARK), FileOptions::read_only())
        .is_ok_and(|mark| flock(&mark, FlockOperation::NonBlockingLockShared).is_err());
    if is_locked {
        return Err(creation_in_progress(path));
    }
    let shown = path.display();
    Err(DriveError::missing(
        format!("the image in {shown} is incomplete: its creation was interrupted"),
        format!("create it again: zonda drive create {shown}"),
    ))
}

fn creation_in_progress(path: &Path) -> DriveError {
    DriveError::in_use(
        format!("the image in {} is being created by another program", path.display()),
        "wait until that program has finished",
    )
}

/// The names in a directory, without the marker; none if it does not exist.
fn names_in(path: &Path) -> Result<Vec<String>, DriveError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot_make(path, &error)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>().map_err(|error| cannot_make(path, &error))?;
    names.retain(|name| name != MARK);
    names.sort_unstable();
    Ok(names)
}

fn refuse_others(path: &Path, names: &[String]) -> Result<(), DriveError> {
    match names.first() {
        None => Ok(()),
        Some(_) if names.iter().any(|name| name == ImageFile::Superblock.name()) => {
            Err(occupied(path, "holds an image already"))
        }
        Some(first) => Err(occupied(path, &format!("is not empty: it holds {first}{}", and_more(names.len())))),
    }
}

fn and_more(count: usize) -> &'static str {
    if count > 1 { " and more" } else { "" }
}

/// The names of the files that a creation creates.
pub(crate) fn image_files() -> impl Iterator<Item = &'static str> {
    ImageFile::ALL.into_iter().map(ImageFile::name).chain([ELEMENTS_FILE])
}

/// Removes the files of an interrupted creation.
fn remove_leftovers(path: &Path) -> Result<(), DriveError> {
    let mut names = names_in(path)?;
    names.retain(|name| image_files().all(|file| name != file));
    if let Some(first) = names.first() {
        let what = format!("holds an incomplete image and other files: {first}{}", and_more(names.len()));
        return Err(occupied(path, &what));
    }
    // An image with a marker cannot be opened, but a program may have opened it before.
    let superblock = File::open(&path.join(ImageFile::Superblock.name()), FileOptions::read_write());
    if superblock.is_ok_and(|file| file.lock().is_ok_and(|locked| !locked)) {
        return Err(in_use(path));
    }
    if was_used(path) {
        let what = format!("holds an image that was used, but also {MARK}: remove that file to use the image");
        return Err(occupied(path, &what));
    }
    remove_files(path).map_err(|error| cannot_make(path, &error))
}

/// Whether the image was used as a drive. That cannot be of an image with a marker, but host data
/// are never removed.
fn was_used(path: &Path) -> bool {
    let inspected = ImageDirectory::open_unchecked(path).map(|mut files| zonda_image::inspect(&mut files));
    inspected.is_ok_and(|found| found.is_ok_and(|found| !found.clean || found.counters != Counters::default()))
}

fn remove_files(path: &Path) -> io::Result<()> {
    for file in image_files() {
        match fs::remove_file(path.join(file)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Creates a directory and its missing parents, and records which were created.
pub(crate) fn make_directories(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Ok(()) => made.insert(0, directory.to_owned()),
            // Another program has created it at the same time.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    if path.is_dir() { Ok(()) } else { Err(ErrorKind::NotADirectory.into()) }
}

/// Removes empty directories.
pub(crate) fn remove_directories(made: &[PathBuf]) {
    for directory in made {
        if fs::remove_dir(directory).is_err() {
            return;
        }
    }
}

/// Syncs a directory and all its parents on the same file system. Which of them are new is not
/// known: an interrupted creation may have created some without syncing them. Of the first `made`,
/// which were created now, the sync must succeed; others may not be readable, and belong to other
/// users.
fn sync_names(path: &Path, made: usize, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let whole = fs::canonicalize(path)?;
    let device = fs::metadata(&whole)?.dev();
    for (above, directory) in whole.ancestors().enumerate() {
        if above > made && fs::metadata(directory).is_ok_and(|found| found.dev() != device) {
            return Ok(());
        }
        match sync(directory) {
            Err(error) if above <= made => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
