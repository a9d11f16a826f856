//! Ranges of Dataset Management (NVM Command Set 1.0, Figure 41).
//!
//! ```text
//! 0..4 context attributes (ignored)   4..8 length in blocks   8..16 starting LBA
//! ```

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::{Blocks, Lba, LbaRange};

/// Bytes of one range.
pub const DATASET_RANGE_BYTES: usize = size_of::<WireRange>();

/// One range, with the byte map above.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WireRange {
    context: U32,
    blocks: U32,
    start: U64,
}

const _: () = assert!(size_of::<WireRange>() == 16);

/// Reads ranges; empty ones are skipped.
#[must_use]
pub fn decode_ranges(bytes: &[u8]) -> Box<[LbaRange]> {
    bytes
        .chunks_exact(DATASET_RANGE_BYTES)
        .map(|bytes| WireRange::read_from_bytes(bytes).expect("the chunk has the range's size"))
        .filter(|range| range.blocks.get() > 0)
        .map(|range| LbaRange { start: Lba(range.start.get()), blocks: Blocks(u64::from(range.blocks)) })
        .collect()
}

/// Writes ranges.
///
/// # Panics
/// When a range has more than 2^32 - 1 blocks: [`super::encode`] refuses that before.
#[must_use]
pub fn encode_ranges(ranges: &[LbaRange]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ranges.len() * DATASET_RANGE_BYTES);
    for range in ranges {
        let blocks = u32::try_from(range.blocks.0).expect("the length of a range was checked");
        let wire = WireRange { context: 0.into(), blocks: blocks.into(), start: range.start.0.into() };
        bytes.extend_from_slice(wire.as_bytes());
    }
    bytes
}
