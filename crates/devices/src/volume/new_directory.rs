//! The directory of a new volume.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::directory::{FileState, NEW_FILE, VOLUME_FILE, has_other_file, is_volume, read};
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
    // A job file may have the name of the last one.
    let has_job_file = !holds_one && path.join(own[2]).is_file();
    let is_occupied = has_job_file || fs::read_dir(path).is_ok_and(|mut entries| entries.any(is_other));
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
    !is_volume(path) && !has_other_file(path) && path.join(LOCK_FILE).is_file()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::directory::VolumeDirectory;
    use crate::{is_pool, is_vacant, is_volume, user_of_image};

    #[test]
    fn a_job_file_with_the_name_of_a_volume_makes_no_volume() {
        let directory = tempfile::tempdir().expect("there is space");
        let path = directory.path();
        fs::write(path.join("volume.toml"), include_str!("../../../../examples/volume.toml")).expect("there is space");
        fs::write(path.join("pool.toml"), "[drive]\nprofile = \"zn540\"\n[[job]]\n").expect("there is space");
        assert!(!is_volume(path) && !is_pool(path) && user_of_image(path).is_none());
        let error = VolumeDirectory::open(path).expect_err("it is no volume");
        assert!(error.message.contains("there is no volume in") && error.help.contains("another file"), "{error:?}");
        assert!(!path.join("lock").exists() && !is_vacant(path));
        for text in ["", "format = 1\n", "damaged"] {
            fs::write(path.join("volume.toml"), text).expect("there is space");
            assert!(is_volume(path), "{text:?} may be a damaged file of a volume");
        }
    }

    #[test]
    fn a_job_file_is_not_replaced_by_a_new_volume() {
        let directory = tempfile::tempdir().expect("there is space");
        let text = "[volume]\nlevel = \"raid5\"\n";
        fs::write(directory.path().join("volume.toml"), text).expect("there is space");
        let error = VolumeDirectory::make(directory.path(), &[7; 16]).expect_err("occupied");
        assert!(error.message.ends_with("is not empty"), "{error:?}");
        assert_eq!(fs::read_to_string(directory.path().join("volume.toml")).expect("it exists"), text);
    }
}
