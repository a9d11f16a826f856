//! Copies the readable blocks of a damaged image to a new one.

use std::path::Path;

use zonda_image::{CheckProgress, ImageError, RepairReport};

use crate::create::make;
use crate::{DriveError, ImageDirectory, random};

/// Copies the readable blocks of the image in `path` to a new image in `to`, which must be empty or
/// not exist. Nothing is written in `path`, which must not be in use. The storage elements of the
/// new image are reset.
///
/// # Errors
/// When there is no image, its superblock is lost, `to` is not empty, or writing fails. The new
/// files are removed then.
pub fn repair_image(
    path: &Path,
    to: &Path,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<RepairReport, DriveError> {
    let mut damaged = ImageDirectory::open_shared(path)?;
    let uuid = random::uuid()?;
    make(to, |to| {
        let mut new = ImageDirectory::new_in(to);
        zonda_image::repair(&mut damaged, &mut new, uuid, progress).map_err(|error| refused(path, to, &error))
    })
}

fn refused(path: &Path, to: &Path, error: &ImageError) -> DriveError {
    // Only the new image is written, and only the damaged one is read.
    if let ImageError::File { operation, error: system, .. } = error
        && *operation != "read"
    {
        return DriveError::new(
            format!("cannot write the repaired image to {}: {system}", to.display()),
            "free as much space as the damaged image uses, or choose another file system",
        );
    }
    DriveError::new(
        format!("cannot repair the image in {}: {}", path.display(), error.message()),
        error.remedy().unwrap_or("check the directory"),
    )
}
