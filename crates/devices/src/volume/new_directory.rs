//! The directory of a new volume.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::directory::{FileState, NEW_FILE, VOLUME_FILE, is_volume, read};
use crate::DriveError;
use crate::creation::{make_directories, remove_directories};
use crate::open_directory::LOCK_FILE;

/// Refuses a directory for a new volume that is not empty, unless it has the files of an
/// interrupted creation.
pub(super) fn refuse_occupied(path: &Path) -> Result<(), DriveError> {
    let is_complete = is_volume(path) && read(path)?.state != Some(FileState::Creating);
    must_be_vacant(path, "volume", [LOCK_FILE, NEW_FILE, VOLUME_FILE], is_volume(path), is_complete)
}

/// Refuses a directory for a new volume or pool (`kind`) that holds a complete one, or other files than
/// `own`; `holds_one`: whether it holds one, complete or not.
pub(crate) fn must_be_vacant(
    path: &Path,
    kind: &str,
    own: [&str; 3],
    holds_one: bool,
    is_complete: bool,
) -> Result<(), DriveError> {
    let is_own = |name: &std::ffi::OsStr| own.iter().any(|known| name == *known);
    let is_other = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| !is_own(&entry.file_name()));
    let is_occupied = fs::read_dir(path).is_ok_and(|mut entries| entries.any(is_other));
    if !is_occupied && !is_complete {
        return Ok(());
    }
    let what = if holds_one { format!("holds a {kind} already") } else { "is not empty".to_owned() };
    Err(DriveError::new(
        format!("the directory {} {what}", path.display()),
        "choose another directory, or remove this one if its contents are not needed",
    ))
}

/// Whether a directory without volume.toml has the lock file of a volume.
pub(crate) fn is_left_of_volume(path: &Path) -> bool {
    !is_volume(path) && path.join(LOCK_FILE).is_file()
}

/// Creates the directory of a new volume with its missing parents. Returns those that were created.
///
/// # Errors
/// The error of the system, with the remedy; nothing is created then.
pub(crate) fn make(path: &Path) -> Result<Vec<PathBuf>, DriveError> {
    let mut made = Vec::new();
    make_directories(path, &mut made).map_err(|error| {
        remove_directories(&made);
        let help = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                "the path, or a part of it, is a file: choose another path for the directory"
            }
            _ => "choose a directory that you can write to",
        };
        DriveError::new(format!("cannot create the directory {}: {error}", path.display()), help)
    })?;
    Ok(made)
}

/// Removes the files of a volume whose creation has changed no member, and the directories that
/// were created for it.
pub(super) fn remove(path: &Path, made: &[PathBuf]) {
    // If this fails, a directory without a volume remains.
    for name in [VOLUME_FILE, NEW_FILE, LOCK_FILE] {
        let _ = fs::remove_file(path.join(name));
    }
    remove_directories(made);
}
