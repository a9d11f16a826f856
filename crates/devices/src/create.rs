//! Making images.

use std::path::Path;

use zonda_config::{ByteSize, unplaced};
use zonda_image::ImageSpec;
use zonda_ssd::description::{DrivePlan, DriveSpec, PayloadSpec, Profiles, SpecError};

use crate::elements::create_elements;
use crate::making::Making;
use crate::{DriveError, ELEMENTS_FILE, ImageDirectory, random};

/// A drive of the profile `name`, with another number of zones, or zones of another capacity, if they are given. The size
/// of a sequential zone is then the next power of two, which Linux insists on.
///
/// # Errors
/// When there is no such profile, or it is wrong.
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

/// Makes an image of this drive in `path`, which must be empty or not there. What a creation has left there that was stopped goes first.
///
/// When this returns the image survives a loss of power. Before, it does not exist for anybody else, and if this fails nothing of it is left.
///
/// # Errors
/// When there is something already, another program makes an image there, or the disk refuses.
pub fn create_image(path: &Path, drive: &DrivePlan) -> Result<(), DriveError> {
    let spec = ImageSpec::new(drive.profile().geometry(), drive.profile_text().to_owned(), random::uuid()?);
    make(path, |path| {
        create_files(path, &spec)?;
        create_elements(path, drive.profile(), &spec.uuid)
            .map_err(|error| failed(format!("{ELEMENTS_FILE} in {} cannot be made: {error}", path.display())))
    })
}

/// The same with what a specification says, and without storage elements.
///
/// # Errors
/// As for [`create_image`].
pub fn create_image_of(path: &Path, spec: &ImageSpec) -> Result<(), DriveError> {
    make(path, |path| create_files(path, spec))
}

/// Makes the files of an image in `path` with `fill`, all of them or none.
pub(crate) fn make<T>(path: &Path, fill: impl FnOnce(&Path) -> Result<T, DriveError>) -> Result<T, DriveError> {
    let making = Making::begin(path)?;
    match fill(path) {
        Ok(made) => making.finish().map(|()| made),
        Err(error) => {
            making.abandon();
            Err(error)
        }
    }
}

fn create_files(path: &Path, spec: &ImageSpec) -> Result<(), DriveError> {
    zonda_image::create(spec, &mut ImageDirectory::new_in(path))
        .map_err(|error| failed(format!("the image in {} cannot be made: {}", path.display(), error.message())))
}

fn failed(what: String) -> DriveError {
    DriveError::new(what, "make room, or choose another directory, and try again")
}
