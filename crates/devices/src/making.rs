//! [`Making`]: the directory of an image that is being made, and the mark that says so.
//!
//! An image is made in its place, and not elsewhere to be renamed: a directory that is there already may be a mount point or somebody's working
//! directory, and has an owner, rights and attributes that another one would not have. So a mark, the file `creating.zonda`, stands there
//! from before the first file of the image until everything is durable.
//!
//! - A mark with content: what is beside it is no image yet, and no opening goes past it. This content is synced before there is anything else,
//!   so it is there after a loss of power too.
//! - Its lock: somebody makes the image at present. A mark that nobody has locked was left by a creation that was stopped, and the next
//!   creation removes what that one made.
//! - A mark without content says nothing: whoever made it had not seen yet that the directory is empty. Nothing is removed for it, since
//!   there may be an image beside it that another creation has brought to its end in the meantime.

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

/// The mark's name.
const MARK: &str = "creating.zonda";
/// What is in it, for whoever finds it.
const WORDS: &[u8] = b"zonda makes an image here, or was stopped while it did: zonda drive create makes it again\n";
/// How long to wait for another program that has the mark: most need less to make an image.
const OTHER_MAKER_MAX: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A directory that is empty but for the mark, with content, whose lock this holds.
#[derive(Debug)]
pub(crate) struct Making {
    path: PathBuf,
    /// Directories that were not there before, the last one first.
    made: Vec<PathBuf>,
    _mark: File,
}

impl Making {
    /// Begins in a directory that is empty, not there, or has nothing in it but what a creation has left that was stopped.
    ///
    /// # Errors
    /// When it holds something else, another program makes an image in it, or it may not be written.
    pub(crate) fn begin(path: &Path) -> Result<Making, DriveError> {
        let mut made = Vec::new();
        let give_up_at = Instant::now() + OTHER_MAKER_MAX;
        loop {
            let begun = Making::try_begin(path, &mut made);
            match begun {
                Ok(Some(mark)) => return Ok(Making { path: path.to_owned(), made, _mark: mark }),
                Ok(None) if Instant::now() < give_up_at => thread::sleep(LOOK_INTERVAL),
                Ok(None) => return Err(being_made(path)),
                Err(error) => {
                    remove_directories(&made);
                    return Err(error);
                }
            }
        }
    }

    /// The mark, locked and written. `None`: another program has it, or has removed it just now.
    fn try_begin(path: &Path, made: &mut Vec<PathBuf>) -> Result<Option<File>, DriveError> {
        // No mark is ever put beside an image that can be seen.
        if !path.join(MARK).exists() {
            refuse_others(path, &names_in(path)?)?;
        }
        make_directories(path, made).map_err(|error| cannot_make(path, &error))?;
        let place = path.join(MARK);
        let mark = match File::open(&place, FileOptions { create: true, ..FileOptions::read_write() }) {
            Ok(mark) => mark,
            // The directory is another program's, which has failed and removes what it has made.
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
        // From here to the end of the lock nobody else writes the mark, and so nobody else makes an image.
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

    /// The files are complete and synced: makes their names last, and what is here is an image.
    ///
    /// # Errors
    /// What the system said. Then nothing is there, or, where only the removal of the mark may not last, the image is.
    pub(crate) fn finish(self) -> Result<(), DriveError> {
        let failed = |error: io::Error| {
            DriveError::new(
                format!("the files in {} may not survive a loss of power: {error}", self.path.display()),
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

    /// It has come to nothing: removes what was made.
    pub(crate) fn abandon(self) {
        // The mark goes last, so that a stop on the way leaves what the next creation removes.
        if remove_files(&self.path).and_then(|()| fs::remove_file(self.path.join(MARK))).is_ok() {
            remove_directories(&self.made);
        }
    }
}

/// Whether there is the beginning of an image that was not brought to its end, or is not yet.
fn is_unfinished(path: &Path) -> bool {
    let is_begun = |mark: fs::Metadata| mark.len() > 0 || !path.join(ImageFile::Superblock.name()).exists();
    fs::metadata(path.join(MARK)).is_ok_and(is_begun)
}

/// Whether an image can be made in this directory: it is not there, or empty, or holds what a creation has left that was stopped.
#[must_use]
pub fn is_vacant(path: &Path) -> bool {
    is_unfinished(path) || names_in(path).is_ok_and(|names| names.is_empty())
}

/// What is in this directory is an image, or nothing: an opening may go on.
pub(crate) fn refuse_unfinished(path: &Path) -> Result<(), DriveError> {
    if !is_unfinished(path) {
        return Ok(());
    }
    let is_locked = File::open(&path.join(MARK), FileOptions::read_only())
        .is_ok_and(|mark| flock(&mark, FlockOperation::NonBlockingLockShared).is_err());
    if is_locked {
        return Err(being_made(path));
    }
    let shown = path.display();
    Err(DriveError::missing(
        format!("the image in {shown} is not complete: its creation was stopped"),
        format!("zonda drive create {shown} makes it again"),
    ))
}

fn being_made(path: &Path) -> DriveError {
    DriveError::in_use(
        format!("the image in {} is being made by another program", path.display()),
        "wait until that has come to its end",
    )
}

/// Names in a directory, but for the mark; none where it is not there.
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

/// Names of files that a creation makes.
pub(crate) fn image_files() -> impl Iterator<Item = &'static str> {
    ImageFile::ALL.into_iter().map(ImageFile::name).chain([ELEMENTS_FILE])
}

/// Removes what a creation has left that was stopped.
fn remove_leftovers(path: &Path) -> Result<(), DriveError> {
    let mut names = names_in(path)?;
    names.retain(|name| image_files().all(|file| name != file));
    if let Some(first) = names.first() {
        let what = format!(
            "holds the beginning of an image, and what does not belong to it: {first}{}",
            and_more(names.len())
        );
        return Err(occupied(path, &what));
    }
    // Nothing opens an image that is marked. But whoever may have one open is not disturbed.
    let superblock = File::open(&path.join(ImageFile::Superblock.name()), FileOptions::read_write());
    if superblock.is_ok_and(|file| file.lock().is_ok_and(|locked| !locked)) {
        return Err(in_use(path));
    }
    if was_used(path) {
        let what =
            format!("holds an image that was used, and {MARK} all the same: remove that file to have the image back");
        return Err(occupied(path, &what));
    }
    remove_files(path).map_err(|error| cannot_make(path, &error))
}

/// Whether a drive has run on what is here. None does on an image that is marked, but nothing that a host has written is ever removed.
fn was_used(path: &Path) -> bool {
    let inspected = ImageDirectory::look_at_any(path).map(|mut files| zonda_image::inspect(&mut files));
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

/// Makes a directory and those above it, and notes which were not there.
fn make_directories(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Ok(()) => made.insert(0, directory.to_owned()),
            // Another program is on the same way.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    if path.is_dir() { Ok(()) } else { Err(ErrorKind::NotADirectory.into()) }
}

/// Removes directories that are empty.
fn remove_directories(made: &[PathBuf]) {
    for directory in made {
        if fs::remove_dir(directory).is_err() {
            return;
        }
    }
}

/// Makes the names in a directory last, its own, and those of all directories above it on the same file system. Which of them are new cannot be
/// told: a creation that was stopped may have made some and not come to here. `made` of them were made now, and must be there after a
/// loss of power; others may not be readable, and then belong to somebody else.
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
