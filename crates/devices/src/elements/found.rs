//! What `elements.zonda` says of an image, and what is done where it says nothing.

use std::io::{self, ErrorKind};
use std::path::Path;

use zonda_image::ImageSpec;
use zonda_ring::{File, FileOptions};
use zonda_ssd::allocation::{ElementBook, ElementRecord};
use zonda_ssd::profile::{AllocationKind, Profile};
use zonda_zoned::zones::ZoneTable;

use super::ELEMENTS_FILE;
use super::format::{SlotFault, decode, encode, is_later, slot_bytes};

/// The elements of an image, brought to where its zones stand.
#[derive(Debug)]
pub struct FoundElements {
    /// Which element is whose, and how worn each is.
    pub book: ElementBook,
    /// Why the elements begin anew, in words; `None`: they were found.
    pub anew: Option<String>,
    /// One of the two slots was damaged, or had not been written to its end when the program was killed; the other one,
    /// which is up to a second older, served.
    pub is_one_slot_lost: bool,
    /// The slot to be written next, and the sequence of the other one.
    pub(super) next_slot: usize,
    pub(super) sequence: u64,
}

fn has_elements(profile: &Profile) -> bool {
    profile.zones.allocation != AllocationKind::Fixed && profile.geometry.conventional_zones < profile.geometry.zones
}

/// Makes the file for a new image, whole, so that a full file system does not stop what is saved later. Nothing is made
/// where zones are fixed.
///
/// # Errors
/// What the system said.
pub(crate) fn create_elements(directory: &Path, profile: &Profile, uuid: &[u8; 16]) -> io::Result<()> {
    if !has_elements(profile) {
        return Ok(());
    }
    let book = ElementBook::new(profile);
    let file = File::open(&directory.join(ELEMENTS_FILE), FileOptions::create_new())?;
    let mut bytes = encode(&book.record(), uuid, 1).to_vec();
    bytes.resize(2 * slot_bytes(&book) as usize, 0);
    file.write_at(&bytes, 0)?;
    file.sync()
}

impl FoundElements {
    /// Looks at the elements of an image, and changes nothing; no lock is needed. `None` where its zones are fixed.
    ///
    /// # Errors
    /// In words, why the elements that the image has cannot be followed by this program.
    pub fn look(directory: &Path, spec: &ImageSpec, zones: &ZoneTable) -> Result<Option<FoundElements>, String> {
        let path = directory.join(ELEMENTS_FILE);
        let Some(profile) = profile_of_elements(&path, spec)? else { return Ok(None) };
        let file = File::open(&path, FileOptions::read_only());
        FoundElements::read(file.as_ref(), &profile, &spec.uuid, zones).map(Some)
    }

    /// The elements that a file has; new ones where there is no such file, or it says nothing.
    pub(super) fn read(
        file: Result<&File, &io::Error>,
        profile: &Profile,
        uuid: &[u8; 16],
        zones: &ZoneTable,
    ) -> Result<FoundElements, String> {
        let new = |why: String| {
            let book = ElementBook::standing_as(profile, zones);
            Ok(FoundElements { book, anew: Some(why), is_one_slot_lost: false, next_slot: 0, sequence: 0 })
        };
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return new(format!("{ELEMENTS_FILE} is missing")),
            Err(error) => return new(format!("{ELEMENTS_FILE} cannot be opened: {error}")),
        };
        let length = slot_bytes(&ElementBook::new(profile));
        let slots = [0, 1].map(|slot| slot_of(file, slot * length, length, uuid));
        let is_one_slot_lost = slots.iter().any(|slot| matches!(slot, Err(fault) if *fault != SlotFault::Unwritten));
        let (slot, sequence, record) = match later(slots) {
            Ok(found) => found,
            Err(fault @ SlotFault::Version { .. }) => return Err(left_alone(&fault.to_string())),
            Err(fault) => return new(format!("{ELEMENTS_FILE}: {fault}")),
        };
        match ElementBook::restore(profile, &record, zones) {
            Ok(book) => Ok(FoundElements { book, anew: None, is_one_slot_lost, next_slot: 1 - slot, sequence }),
            Err(error) => new(format!("{ELEMENTS_FILE}: {error}")).map(|new| FoundElements { sequence, ..new }),
        }
    }
}

/// The profile of an image whose zones are built of elements, which are kept in this file; `None` where zones are fixed.
///
/// # Errors
/// In words, why that cannot be known.
pub(super) fn profile_of_elements(path: &Path, spec: &ImageSpec) -> Result<Option<Profile>, String> {
    let why = match Profile::parse(&spec.profile) {
        Ok(profile) if profile.geometry() == spec.geometry => return Ok(Some(profile).filter(has_elements)),
        Ok(_) => "the image's zones are not those of its profile",
        Err(_) => "the image's profile cannot be read by this zonda",
    };
    // An image that has no elements has none to lose.
    if path.exists() { Err(left_alone(why)) } else { Ok(None) }
}

fn left_alone(why: &str) -> String {
    format!("{ELEMENTS_FILE} is left as it is: {why}; use the zonda that wrote it")
}

fn slot_of(file: &File, offset: u64, length: u64, uuid: &[u8; 16]) -> Result<(u64, ElementRecord), SlotFault> {
    let mut bytes = vec![0; length as usize];
    let count = file.read_at(&mut bytes, offset).map_err(|error| SlotFault::Unreadable(error.to_string()))?;
    decode(&bytes[..count], uuid)
}

/// The slot that counts, with what it holds; else what is wrong with the first one that was ever written.
fn later(slots: [Result<(u64, ElementRecord), SlotFault>; 2]) -> Result<(usize, u64, ElementRecord), SlotFault> {
    match slots {
        [Ok((first, _)), Ok((second, record))] if is_later(second, first) => Ok((1, second, record)),
        [Ok((first, record)), _] => Ok((0, first, record)),
        [Err(_), Ok((second, record))] => Ok((1, second, record)),
        [Err(SlotFault::Unwritten), Err(fault)] | [Err(fault), Err(_)] => Err(fault),
    }
}
