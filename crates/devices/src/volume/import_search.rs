//! Searches directories for images, for an import.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zonda_image::ImageFile;

use super::directory::is_volume;
use crate::DriveError;

/// Finds the directories of images below this one, including itself.
pub(super) fn find_images(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), DriveError> {
    if directory.join(ImageFile::Superblock.name()).is_file() {
        found.push(directory.to_owned());
        return Ok(());
    }
    if depth == 0 || is_volume(directory) {
        return Ok(());
    }
    let entries = fs::read_dir(directory).map_err(|error| {
        let help = if error.kind() == io::ErrorKind::NotFound { "check the path" } else { "check its permissions" };
        DriveError::new(format!("cannot search {}: {error}", directory.display()), help)
    })?;
    for entry in entries.flatten() {
        // Symbolic links are not followed: they may be cyclic.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find_images(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}
