//! The place that a block belongs to.
//!
//! ```text
//! byte 0..16   array         16  member         17..25  segment
//! ```
//!
//! The CRC-32C of these 25 bytes is the seed of the seals of all blocks there. Segment numbers are
//! never reused, so a block that remains from an earlier use of its zone has another seed. Two
//! places of one array whose segment numbers differ only in their lower 24 bits never have the same
//! seed, since a CRC distinguishes messages that differ within 32 consecutive bits: those of the
//! member and these.

use super::bytes::{array_at, put_u64, u64_at};
use super::{ArrayId, crc};

const ARRAY_AT: usize = 0;
const MEMBER_AT: usize = 16;
const SEGMENT_AT: usize = 17;
/// Bytes of a place.
pub(super) const PLACE_BYTES: usize = 25;

/// Odd, so that rows have different seeds: 2^32 divided by the golden ratio.
const ROW_FACTOR: u32 = 0x9e37_79b1;

/// The zone that a block belongs to, and which use of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) array: ArrayId,
    /// The sequence of the segment.
    pub(crate) segment: u64,
    pub(crate) member: u8,
}

/// A place in four bytes: computed once for each zone of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceSeed(pub(super) u32);

impl PlaceSeed {
    /// The seed of the block with this row of a chunk there: a block that a drive writes in place
    /// of another block of its chunk is detected.
    #[inline]
    pub(super) fn of_row(self, row: u32) -> PlaceSeed {
        PlaceSeed(self.0 ^ (row + 1).wrapping_mul(ROW_FACTOR))
    }
}

impl Place {
    pub(crate) fn seed(&self) -> PlaceSeed {
        let mut bytes = [0; PLACE_BYTES];
        self.write(&mut bytes);
        PlaceSeed(crc(&bytes))
    }

    pub(super) fn write(&self, out: &mut [u8]) {
        out[ARRAY_AT..MEMBER_AT].copy_from_slice(&self.array);
        put_u64(out, SEGMENT_AT, self.segment);
        out[MEMBER_AT] = self.member;
    }

    pub(super) fn read(bytes: &[u8]) -> Place {
        Place { array: array_at(bytes, ARRAY_AT), segment: u64_at(bytes, SEGMENT_AT), member: bytes[MEMBER_AT] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_near_segments_and_of_all_members_have_seeds_of_their_own() {
        let mut seeds = Vec::new();
        for segment in 0..2_000 {
            for member in 0..16 {
                seeds.push(Place { array: [7; 16], segment: 5_000_000_000 + segment, member }.seed().0);
            }
        }
        let count = seeds.len();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), count);
        assert_ne!(
            Place { array: [7; 16], segment: 1, member: 0 }.seed(),
            Place { array: [8; 16], segment: 1, member: 0 }.seed()
        );
    }

    #[test]
    fn the_seed_of_a_place_is_golden() {
        let array = *b"0123456789abcdef";
        assert_eq!(Place { array, segment: 0x0102_0304_0506_0708, member: 9 }.seed().0, 0xB672_89D0);
    }
}
