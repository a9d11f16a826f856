//! Identify Controller of the NVM Command Set (NVM Command Set 1.0, section 4.1.5, CNS 06h).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::Geometry;
use zonda_zoned::limits::DEALLOCATE_RANGES_MAX;

use super::transfer::common_exponent;
use crate::page::{Page, PageError};

/// Limits of commands without data transfer. Zero: no limit, or not reported.
///
/// ```text
/// 0 VSL | 1 WZSL | 2 WUSL | 3 DMRL | 4 DMRSL | 8 DMSL
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmController {
    /// Verify Size Limit (VSL), 2^n memory pages of 4 KiB.
    pub verify_exponent: u8,
    /// Write Zeroes Size Limit (WZSL), 2^n memory pages of 4 KiB.
    pub write_zeroes_exponent: u8,
    /// Write Uncorrectable Size Limit (WUSL), 2^n memory pages of 4 KiB.
    pub write_uncorrectable_exponent: u8,
    /// Dataset Management Ranges Limit (DMRL); 256 does not fit and is encoded as zero.
    pub deallocate_ranges: u8,
    /// Dataset Management Range Size Limit (DMRSL), blocks of one range.
    pub deallocate_range_blocks: U32,
    /// Dataset Management Size Limit (DMSL), blocks of one command.
    pub deallocate_blocks: U64,
    _reserved_16: [u8; 4080],
}

const _: () = assert!(size_of::<NvmController>() == super::IDENTIFY_BYTES);

impl Page for NvmController {
    const NAME: &'static str = "Identify Controller of the NVM Command Set";
}

impl NvmController {
    /// The page of a controller with namespaces of these geometries: Write Zeroes may be as long as
    /// any other command (a device holds it to the same limit), and deallocation has no limit.
    ///
    /// # Errors
    /// [`PageError::Value`] if a limit is below 8 KiB, which WZSL cannot express.
    pub fn from_geometries<'a>(geometries: impl IntoIterator<Item = &'a Geometry>) -> Result<NvmController, PageError> {
        let limits = geometries.into_iter().map(|geometry| (geometry.max_transfer_blocks, geometry.block_size_bytes));
        let mut page = NvmController::empty();
        page.write_zeroes_exponent = common_exponent(Self::NAME, "WZSL", limits)?;
        Ok(page)
    }

    /// Ranges of one Dataset Management command.
    #[must_use]
    pub fn deallocate_ranges_max(&self) -> usize {
        match self.deallocate_ranges {
            0 => DEALLOCATE_RANGES_MAX,
            ranges => usize::from(ranges),
        }
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Blocks;

    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(NvmController {
            verify_exponent: 0..=0,
            write_zeroes_exponent: 1..=1,
            write_uncorrectable_exponent: 2..=2,
            deallocate_ranges: 3..=3,
            deallocate_range_blocks: 4..=7,
            deallocate_blocks: 8..=15,
        });
    }

    #[test]
    fn without_a_limit_a_command_has_256_ranges() {
        let mut page = NvmController::empty();
        assert_eq!(page.deallocate_ranges_max(), 256);
        page.deallocate_ranges = 8;
        assert_eq!(page.deallocate_ranges_max(), 8);
    }

    #[test]
    fn write_zeroes_has_the_limit_of_all_commands() {
        let geometry = Geometry { block_size_bytes: 4096, max_transfer_blocks: Blocks(256), ..Geometry::tiny() };
        assert_eq!(NvmController::from_geometries([&geometry]).unwrap().bytes()[0..4], [0, 8, 0, 0]);
        assert!(NvmController::from_geometries([&Geometry::tiny()]).is_err(), "4 KiB has no code");
    }
}
