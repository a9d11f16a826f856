//! Transfer limits, which are encoded as powers of two of the smallest memory page.
//!
//! A field of zero means "no limit" (or, for Zone Append, "the limit of all commands"). So the
//! smallest limit that can be encoded is twice the memory page, 8 KiB. A limit that is not a power
//! of two is rounded down.

use zonda_zoned::{Blocks, Geometry, limits::COMMAND_BLOCKS_MAX};

use crate::page::PageError;

/// The smallest memory page, CAP.MPSMIN: the unit of MDTS, ZASL, VSL and WZSL. Linux assumes the
/// same for ZASL.
pub const MEMORY_PAGE_BYTES: u32 = 4096;

/// The exponent for a limit of `blocks` blocks; `None` below 8 KiB, which has none.
///
/// Metadata is not counted: zonda's controllers report that (CTRATT bit 16, MEM).
#[must_use]
pub fn transfer_exponent(blocks: Blocks, block_size_bytes: u32) -> Option<u8> {
    let bytes = u128::from(blocks.0) * u128::from(block_size_bytes);
    let exponent = (bytes / u128::from(MEMORY_PAGE_BYTES)).checked_ilog2()?;
    (exponent > 0).then_some(exponent as u8)
}

/// The blocks of `bytes_each` bytes that a limit allows, at most those of the longest command; 0 is
/// no limit.
///
/// `bytes_each` includes the metadata that travels with a block, unless the controller does not
/// count it.
///
/// # Panics
/// When `bytes_each` is zero.
#[must_use]
pub fn transfer_blocks(exponent: u8, bytes_each: u32) -> Blocks {
    assert!(bytes_each > 0, "a block has bytes");
    if exponent == 0 {
        return Blocks(COMMAND_BLOCKS_MAX);
    }
    // 2^40 pages are more than any command can name.
    let bytes = u64::from(MEMORY_PAGE_BYTES) << exponent.min(40);
    Blocks((bytes / u64::from(bytes_each)).min(COMMAND_BLOCKS_MAX))
}

/// The exponent for the smallest of `limits`, with the name of its field; 0 without limits.
pub(super) fn common_exponent(
    page: &'static str,
    field: &'static str,
    limits: impl Iterator<Item = (Blocks, u32)>,
) -> Result<u8, PageError> {
    let mut common: Option<u8> = None;
    for (blocks, block_size_bytes) in limits {
        let exponent = transfer_exponent(blocks, block_size_bytes).ok_or(PageError::Value {
            page,
            field,
            value: blocks.0.saturating_mul(u64::from(block_size_bytes)),
            remedy: "a limit below 8192 bytes cannot be encoded: allow longer transfers",
        })?;
        common = Some(common.map_or(exponent, |common| common.min(exponent)));
    }
    Ok(common.unwrap_or(0))
}

/// Whether a namespace uses the Zoned Namespace Command Set: one with conventional zones only uses
/// the NVM Command Set.
pub(super) fn is_zoned(geometry: &Geometry) -> bool {
    geometry.conventional_zone_count < geometry.zone_count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_encoded_in_powers_of_two_of_4_kib() {
        assert_eq!(transfer_exponent(Blocks(2), 4096), Some(1));
        assert_eq!(transfer_exponent(Blocks(256), 4096), Some(8));
        assert_eq!(transfer_exponent(Blocks(255), 4096), Some(7));
        assert_eq!(transfer_exponent(Blocks(65_536), 65_536), Some(20));
    }

    #[test]
    fn a_limit_of_one_page_or_less_has_no_code_because_zero_means_no_limit() {
        assert_eq!(transfer_exponent(Blocks(1), 4096), None);
        assert_eq!(transfer_exponent(Blocks(15), 512), None);
        assert_eq!(transfer_exponent(Blocks(16), 512), Some(1));
    }

    #[test]
    fn no_exponent_allows_more_than_the_longest_command() {
        for exponent in 0..=u8::MAX {
            let blocks = transfer_blocks(exponent, 512);
            assert!(blocks.0 <= COMMAND_BLOCKS_MAX, "{exponent}");
            if (1..13).contains(&exponent) {
                assert_eq!(blocks.0, 8 << exponent);
                assert_eq!(transfer_exponent(blocks, 512), Some(exponent));
            }
        }
        assert_eq!(transfer_blocks(0, 4096), Blocks(65_536));
        assert_eq!(transfer_blocks(1, 65_536), Blocks(0));
        assert_eq!(transfer_blocks(1, 4104), Blocks(1));
    }

    #[test]
    fn namespaces_of_one_controller_share_the_smallest_limit() {
        let limits = [(Blocks(256), 4096), (Blocks(64), 4096), (Blocks(1024), 512)];
        assert_eq!(common_exponent("page", "MDTS", limits.into_iter()), Ok(6));
        assert_eq!(common_exponent("page", "MDTS", [].into_iter()), Ok(0));
        assert!(common_exponent("page", "MDTS", [(Blocks(8), 512)].into_iter()).is_err());
    }
}
