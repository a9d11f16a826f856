//! Saving what can be read of a damaged image into a new one.

use std::path::Path;

use zonda_image::{CheckProgress, ImageError, RepairReport};

use crate::create::make;
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
    make(to, |to| {
        let mut new = ImageDirectory::new_in(to);
        zonda_image::repair(&mut damaged, &mut new, uuid, progress).map_err(|error| refused(path, to, &error))
    })
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
