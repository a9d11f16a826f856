//! The specification of an image.

use zonda_zoned::Geometry;

use crate::format::layout::Layout;
use crate::format::superblock::PROFILE_BYTES_MAX;
use crate::limits::JOURNAL_BYTES_DEFAULT;
use crate::{ImageError, limits};

/// The specification of an image, as stored in its superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    /// Shape and limits of the namespace.
    pub geometry: Geometry,
    /// The text of the profile that the geometry came from; not parsed here. At most 28 KiB.
    pub profile: String,
    /// The UUID of the drive.
    pub uuid: [u8; 16],
    /// Length of the journal file. Longer means fewer checkpoints and a longer recovery.
    pub journal_bytes: u64,
}

impl ImageSpec {
    /// A specification with the usual journal length.
    #[must_use]
    pub fn new(geometry: Geometry, profile: String, uuid: [u8; 16]) -> ImageSpec {
        let journal_bytes = JOURNAL_BYTES_DEFAULT.max(Layout::journal_bytes_min(&geometry));
        ImageSpec { geometry, profile, uuid, journal_bytes }
    }

    /// Checks whether an image can be created from it.
    ///
    /// # Errors
    /// Which value is invalid, and what it must be.
    pub fn validate(&self) -> Result<(), ImageError> {
        self.geometry.validate()?;
        if self.profile.len() > PROFILE_BYTES_MAX {
            return Err(ImageError::Spec(format!(
                "profile: {} bytes exceed the maximum of {PROFILE_BYTES_MAX}: shorten its comments",
                self.profile.len()
            )));
        }
        let least = Layout::journal_bytes_min(&self.geometry);
        if !(least..=limits::JOURNAL_BYTES_MAX).contains(&self.journal_bytes) {
            return Err(ImageError::Spec(format!(
                "journal_bytes: {} is out of range: must be {least} to {}",
                self.journal_bytes,
                limits::JOURNAL_BYTES_MAX
            )));
        }
        let layout = Layout::new(&self.geometry, self.journal_bytes);
        let blocks = u128::from(layout.capacity) * u128::from(layout.zones);
        if blocks * u128::from(layout.block_bytes.max(layout.tag_bytes)) > i64::MAX as u128 {
            return Err(ImageError::Spec(
                "zone_count: the blocks do not fit in one file: reduce the number of zones".into(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Blocks;

    use super::*;

    #[test]
    fn the_limits_themselves_are_possible_and_what_is_beyond_is_not() {
        let least = Layout::journal_bytes_min(&Geometry::tiny());
        let is_possible = |profile_bytes: usize, journal_bytes: u64| {
            let spec = ImageSpec::new(Geometry::tiny(), "p".repeat(profile_bytes), [7; 16]);
            ImageSpec { journal_bytes, ..spec }.validate().is_ok()
        };
        assert!(is_possible(PROFILE_BYTES_MAX, least));
        assert!(!is_possible(PROFILE_BYTES_MAX + 1, least));
        assert!(is_possible(1, limits::JOURNAL_BYTES_MAX));
        assert!(!is_possible(1, limits::JOURNAL_BYTES_MAX + 1));
        assert!(!is_possible(1, least - 1));
    }

    #[test]
    fn the_blocks_of_all_zones_fit_in_one_file_or_the_number_of_zones_is_refused() {
        let with_capacity = |blocks: u64| {
            let geometry = Geometry {
                zone_size_blocks: Blocks(1 << 40),
                zone_capacity_blocks: Blocks(blocks),
                zone_count: 1 << 14,
                ..Geometry::tiny()
            };
            assert_eq!(geometry.block_size_bytes, 512, "so that 2^54 blocks are 2^63 bytes");
            ImageSpec::new(geometry, String::new(), [7; 16]).validate()
        };
        assert!(with_capacity((1 << 40) - 1).is_ok());
        match with_capacity(1 << 40) {
            Err(ImageError::Spec(remedy)) => assert!(remedy.starts_with("zone_count:"), "{remedy}"),
            other => panic!("{other:?}"),
        }
    }
}
