//! Creating images.

use std::path::Path;

use zonda_config::{ByteSize, unplaced};
use zonda_image::ImageSpec;
use zonda_ssd::description::{DrivePlan, DriveSpec, PayloadSpec, Profiles, SpecError};

use crate::creation::Creation;
use crate::directory::FILE_TOO_LARGE;
use crate::elements::create_elements;
use crate::{DriveError, ELEMENTS_FILE, ImageDirectory, random};

/// A drive of the profile `name`, with the number of zones and the zone capacity overridden if they
/// are given. The size of a sequential zone is then the next power of two, as Linux requires.
///
/// # Errors
/// When the profile does not exist or is invalid.
pub fn sized(
    name: &str,
    zones: Option<u32>,
    zone_capacity: Option<ByteSize>,
    profiles: &Profiles<'_>,
) -> Result<DriveSpec, SpecError> {
    let geometry = profiles.find(name)?.parse()?.geometry();
    let is_conventional = geometry.conventional_zone_count == geometry.zone_count;
    let mut spec = DriveSpec {
        profile: unplaced(name.to_owned()),
        payload: PayloadSpec::Bytes,
        set: std::collections::BTreeMap::new(),
        layer: Vec::new(),
    };
    let mut set = |key: &str, value: toml::Value| {
        spec.set.insert(unplaced(key.to_owned()), unplaced(value));
    };
    if let Some(zones) = zones {
        set("geometry.zones", i64::from(zones).into());
        if is_conventional {
            set("geometry.conventional_zones", i64::from(zones).into());
        }
    }
    if let Some(ByteSize(bytes)) = zone_capacity {
        let size = if is_conventional { bytes } else { bytes.next_power_of_two() };
        set("geometry.zone_capacity", ByteSize(bytes).to_string().into());
        set("geometry.zone_size", ByteSize(size).to_string().into());
    }
    Ok(spec)
}

/// Creates an image of this drive in `path`, which must be empty or not exist. The files of an
/// interrupted creation are removed first.
///
/// When this returns, the image is durable. Until then other programs cannot open it, and a
/// creation that fails leaves no files.
///
/// # Errors
/// When the directory is not empty, another program is creating an image there, or writing fails.
pub fn create_image(path: &Path, drive: &DrivePlan) -> Result<(), DriveError> {
    let spec = ImageSpec::new(drive.profile().geometry(), drive.profile_text().to_owned(), random::uuid()?);
    make(path, |path| {
        create_files(path, &spec)?;
        create_elements(path, drive.profile(), &spec.uuid)
            .map_err(|error| failed(format!("cannot create {ELEMENTS_FILE} in {}: {error}", path.display())))
    })
}

/// Creates an image of this specification, without storage elements.
///
/// # Errors
/// As for [`create_image`].
pub fn create_image_of(path: &Path, spec: &ImageSpec) -> Result<(), DriveError> {
    make(path, |path| create_files(path, spec))
}

/// Creates the files of an image in `path` with `fill`, all of them or none.
pub(crate) fn make<T>(path: &Path, fill: impl FnOnce(&Path) -> Result<T, DriveError>) -> Result<T, DriveError> {
    let creation = Creation::begin(path)?;
    match fill(path) {
        Ok(made) => creation.finish().map(|()| made),
        Err(error) => {
            creation.abandon();
            Err(error)
        }
    }
}

fn create_files(path: &Path, spec: &ImageSpec) -> Result<(), DriveError> {
    zonda_image::create(spec, &mut ImageDirectory::new_in(path))
        .map_err(|error| failed(format!("cannot create the image in {}: {}", path.display(), error.message())))
}

fn failed(what: String) -> DriveError {
    let help = if what.contains(FILE_TOO_LARGE) {
        "reduce the size of the drive: fewer --zones, or a smaller --zone-capacity; or raise the limit of the process \
         (ulimit -f), or choose a directory on another file system"
    } else {
        "free space, or choose another directory, and try again"
    };
    DriveError::new(what, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_is_too_large_for_the_file_system_is_to_be_reduced() {
        let too_large = failed(format!("cannot create the image in a: {FILE_TOO_LARGE}"));
        assert!(too_large.help.starts_with("reduce the size of the drive"), "{too_large}");
        assert!(failed("cannot create the image in a: no space left".to_owned()).help.starts_with("free space"));
    }
}
