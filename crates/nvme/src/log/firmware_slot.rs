//! Firmware Slot Information, 03h (NVMe Base 2.0, section 5.16.1.4).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::page::{Page, PageError, ascii_field, field_text};

/// Which firmware is where.
///
/// ```text
/// 0 active slot (AFI): 2:0 now, 6:4 after the next reset | 8 revision of slot 1 (FRS1) | ... | 56 slot 7 | 64 reserved
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareSlots {
    /// Active Firmware Info (AFI).
    pub active: u8,
    _reserved_1: [u8; 7],
    /// Firmware Revision for Slots 1 to 7 (FRS1 to FRS7), ASCII; zeros for an empty slot.
    pub revisions: [[u8; 8]; 7],
    _reserved_64: [u8; 448],
}

const _: () = assert!(size_of::<FirmwareSlots>() == 512);

impl Page for FirmwareSlots {
    const NAME: &'static str = "Firmware Slot Information Log";
}

impl FirmwareSlots {
    /// One slot, with the firmware that runs.
    ///
    /// # Errors
    /// [`PageError::Text`] for a revision of more than 8 characters, or not printable.
    pub fn only(revision: &str) -> Result<FirmwareSlots, PageError> {
        let mut page = FirmwareSlots::empty();
        page.active = 1;
        page.revisions[0] = ascii_field(Self::NAME, "FRS1", revision)?;
        Ok(page)
    }

    /// The active revision; `None` if the active slot is not one of the seven.
    #[must_use]
    pub fn active_revision(&self) -> Option<String> {
        let slot = usize::from(self.active & 0b111).checked_sub(1)?;
        self.revisions.get(slot).map(|revision| field_text(revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(FirmwareSlots { active: 0..=0, revisions: 8..=63 });
    }

    #[test]
    fn the_active_revision_is_that_of_the_active_slot() {
        let mut page = FirmwareSlots::only("0.1").unwrap();
        assert_eq!(page.active_revision().as_deref(), Some("0.1"));
        page.active = 7;
        assert_eq!(page.active_revision().as_deref(), Some(""));
        page.active = 0;
        assert_eq!(page.active_revision(), None);
        assert!(FirmwareSlots::only("123456789").is_err());
    }
}
