//! Saving what can be read of a damaged image into a new one.

use std::fs;
use std::path::Path;

use zonda_image::{CheckProgress, ImageError, ImageFile, RepairReport};

use crate::{DriveError, ImageDirectory, random};

/// Copies what can be read of the image in `path` into a new one in `to`, which must be empty or not there. Nothing is written
/// in `path`, and no other program may have it meanwhile. Storage elements of the new image begin anew.
///
/// # Errors
/// When there is no image, its superblock is lost, `to` holds something already, or the disk refuses. What was made until
/// then is removed.
pub fn repair_image(
    path: &Path,
    to: &Path,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<RepairReport, DriveError> {
    let mut damaged = ImageDirectory::look_alone(path)?;
    let uuid = random::uuid()?;
    let mut new = ImageDirectory::make(to)?;
    let repaired =
        zonda_image::repair(&mut damaged, &mut new, uuid, progress).map_err(|error| refused(path, to, &error));
    let repaired = repaired.and_then(|report| match new.sync_names() {
        Ok(()) => Ok(report),
        Err(error) => Err(DriveError::new(
            format!("the files in {} may not survive a loss of power: {error}", to.display()),
            "repair the image to another file system",
        )),
    });
    if repaired.is_err() {
        remove(to);
    }
    repaired
}

fn refused(path: &Path, to: &Path, error: &ImageError) -> DriveError {
    // Nothing is read of the new image, and nothing else done to the damaged one.
    if let ImageError::File { doing, error: system, .. } = error
        && *doing != "reading"
    {
        return DriveError::new(
            format!("the repaired image cannot be written to {}: {system}", to.display()),
            "make room for what is written in the damaged image, or choose another file system",
        );
    }
    DriveError::new(
        format!("the image in {} cannot be repaired: {}", path.display(), error.message()),
        error.remedy().unwrap_or("see the directory"),
    )
}

/// Files of an image that is not complete: they were made here, in a directory that was empty.
fn remove(to: &Path) {
    for file in ImageFile::ALL {
        // What cannot be removed stays: the error that is told says why there is no image.
        let _ = fs::remove_file(to.join(file.name()));
    }
    let _ = fs::remove_dir(to);
}
