//! Identify Controller of the Zoned Namespace Command Set (Zoned Namespace Command Set 1.1, section
//! 4.1.5, CNS 06h).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::Geometry;

use super::transfer::{common_exponent, is_zoned};
use crate::page::{Page, PageError};

/// The limit of an append.
///
/// ```text
/// 0 ZASL | 1 reserved
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZnsController {
    /// Zone Append Size Limit (ZASL), 2^n memory pages of 4 KiB; 0 is the limit of all commands
    /// (MDTS).
    pub append_limit_exponent: u8,
    _reserved_1: [u8; 4095],
}

const _: () = assert!(size_of::<ZnsController>() == super::IDENTIFY_BYTES);

impl Page for ZnsController {
    const NAME: &'static str = "Identify Controller of the Zoned Namespace Command Set";
}

impl ZnsController {
    /// The page of a controller with namespaces of these geometries: the smallest of their append
    /// limits, and never more than MDTS, which conventional namespaces limit, too.
    ///
    /// # Errors
    /// [`PageError::Value`] if a limit is below 8 KiB, which ZASL cannot express.
    pub fn from_geometries<'a>(geometries: impl IntoIterator<Item = &'a Geometry>) -> Result<ZnsController, PageError> {
        let limits = geometries.into_iter().map(|geometry| {
            let blocks = if is_zoned(geometry) { geometry.max_append_blocks } else { geometry.max_transfer_blocks };
            (blocks, geometry.block_size_bytes)
        });
        let mut page = ZnsController::empty();
        page.append_limit_exponent = common_exponent(Self::NAME, "ZASL", limits)?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Blocks;

    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn the_limit_is_the_first_byte() {
        assert_layout!(ZnsController { append_limit_exponent: 0..=0 });
    }

    #[test]
    fn the_limit_is_the_smallest_of_all_namespaces() {
        let zoned = Geometry {
            block_size_bytes: 4096,
            max_transfer_blocks: Blocks(256),
            max_append_blocks: Blocks(64),
            ..Geometry::tiny()
        };
        let conventional = Geometry {
            zone_capacity_blocks: Blocks(16),
            conventional_zone_count: 8,
            max_transfer_blocks: Blocks(32),
            max_append_blocks: Blocks(1),
            ..zoned.clone()
        };
        assert_eq!(ZnsController::from_geometries([&zoned]).unwrap().append_limit_exponent, 6);
        assert_eq!(ZnsController::from_geometries([&zoned, &conventional]).unwrap().append_limit_exponent, 5);
        assert!(ZnsController::from_geometries([&Geometry::tiny()]).is_err(), "2 KiB has no code");
    }
}
