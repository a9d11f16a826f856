//! [`LoadedElements`]: the storage elements of an image as loaded from `elements.zonda`, or reset where
//! the file cannot be used.

use std::io::{self, ErrorKind};
use std::path::Path;

use zonda_image::ImageSpec;
use zonda_ring::{File, FileOptions};
use zonda_ssd::allocation::{ElementRecord, ElementTracker};
use zonda_ssd::profile::{AllocationKind, Profile};
use zonda_zoned::zones::ZoneTable;

use super::ELEMENTS_FILE;
use super::format::{SlotFault, decode, encode, is_later, slot_bytes};

/// The elements of an image, updated to the state of its zones.
#[derive(Debug)]
pub struct LoadedElements {
    /// Which zone owns each element, and the wear of each.
    pub tracker: ElementTracker,
    /// Why the elements were reset; `None`: they were loaded.
    pub reset_reason: Option<String>,
    /// One of the two slots is damaged, or was written in part when the program was killed; the
    /// other one, which is up to a second older, was loaded.
    pub is_one_slot_lost: bool,
    /// The slot to be written next, and the sequence of the other one.
    pub(super) next_slot: usize,
    pub(super) sequence: u64,
}

fn has_elements(profile: &Profile) -> bool {
    profile.zones.allocation != AllocationKind::Fixed && profile.geometry.conventional_zones < profile.geometry.zones
}

/// Creates the file of a new image with all its blocks allocated, so that later saves succeed on a
/// full file system. Creates no file where zones are fixed.
///
/// # Errors
/// The error of the system.
pub(crate) fn create_elements(directory: &Path, profile: &Profile, uuid: &[u8; 16]) -> io::Result<()> {
    if !has_elements(profile) {
        return Ok(());
    }
    let tracker = ElementTracker::new(profile);
    let file = File::open(&directory.join(ELEMENTS_FILE), FileOptions::create_new())?;
    let mut bytes = encode(&tracker.record(), uuid, 1).to_vec();
    bytes.resize(2 * slot_bytes(&tracker) as usize, 0);
    file.write_at(&bytes, 0)?;
    file.sync()
}

impl LoadedElements {
    /// Loads the elements of an image without changing the file; no lock is needed. `None` where
    /// its zones are fixed.
    ///
    /// # Errors
    /// Why this program does not support the elements of the image.
    pub fn inspect(directory: &Path, spec: &ImageSpec, zones: &ZoneTable) -> Result<Option<LoadedElements>, String> {
        let path = directory.join(ELEMENTS_FILE);
        let Some(profile) = profile_of_elements(&path, spec)? else { return Ok(None) };
        let file = File::open(&path, FileOptions::read_only());
        LoadedElements::read(file.as_ref(), &profile, &spec.uuid, zones).map(Some)
    }

    /// Loads the elements in a file; resets them where the file does not exist or cannot be used.
    pub(super) fn read(
        file: Result<&File, &io::Error>,
        profile: &Profile,
        uuid: &[u8; 16],
        zones: &ZoneTable,
    ) -> Result<LoadedElements, String> {
        let new = |why: String| {
            let tracker = ElementTracker::from_zones(profile, zones);
            Ok(LoadedElements { tracker, reset_reason: Some(why), is_one_slot_lost: false, next_slot: 0, sequence: 0 })
        };
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return new(format!("{ELEMENTS_FILE} is missing")),
            Err(error) => return new(format!("{ELEMENTS_FILE} cannot be opened: {error}")),
        };
        let length = slot_bytes(&ElementTracker::new(profile));
        let slots = [0, 1].map(|slot| slot_of(file, slot * length, length, uuid));
        let is_one_slot_lost = slots.iter().any(|slot| matches!(slot, Err(fault) if *fault != SlotFault::Unwritten));
        let (slot, sequence, record) = match later(slots) {
            Ok(found) => found,
            Err(fault @ SlotFault::Version { .. }) => return Err(unsupported(&fault.to_string())),
            Err(fault) => return new(format!("{ELEMENTS_FILE}: {fault}")),
        };
        match ElementTracker::restore(profile, &record, zones) {
            Ok(tracker) => {
                Ok(LoadedElements { tracker, reset_reason: None, is_one_slot_lost, next_slot: 1 - slot, sequence })
            }
            Err(error) => new(format!("{ELEMENTS_FILE}: {error}")).map(|new| LoadedElements { sequence, ..new }),
        }
    }
}

/// The profile of an image whose zones are built of elements, which are saved in this file; `None`
/// where zones are fixed.
///
/// # Errors
/// Why the profile cannot be used.
pub(super) fn profile_of_elements(path: &Path, spec: &ImageSpec) -> Result<Option<Profile>, String> {
    let why = match Profile::parse(&spec.profile) {
        Ok(profile) if profile.geometry() == spec.geometry => return Ok(Some(profile).filter(has_elements)),
        Ok(_) => "the zones of the image differ from those of its profile",
        Err(_) => "this zonda cannot read the profile of the image",
    };
    // An image without the file has no elements to lose.
    if path.exists() { Err(unsupported(why)) } else { Ok(None) }
}

fn unsupported(why: &str) -> String {
    format!("{ELEMENTS_FILE} is not used and not changed: {why}; use the zonda that wrote it")
}

fn slot_of(file: &File, offset: u64, length: u64, uuid: &[u8; 16]) -> Result<(u64, ElementRecord), SlotFault> {
    let mut bytes = vec![0; length as usize];
    let count = file.read_at(&mut bytes, offset).map_err(|error| SlotFault::Unreadable(error.to_string()))?;
    decode(&bytes[..count], uuid)
}

/// The later valid slot, with its contents; else the fault of the first one that was ever written.
fn later(slots: [Result<(u64, ElementRecord), SlotFault>; 2]) -> Result<(usize, u64, ElementRecord), SlotFault> {
    match slots {
        [Ok((first, _)), Ok((second, record))] if is_later(second, first) => Ok((1, second, record)),
        [Ok((first, record)), _] => Ok((0, first, record)),
        [Err(_), Ok((second, record))] => Ok((1, second, record)),
        [Err(SlotFault::Unwritten), Err(fault)] | [Err(fault), Err(_)] => Err(fault),
    }
}
