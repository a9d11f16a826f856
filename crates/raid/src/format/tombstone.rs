//! A block of tombstones: trimmed ranges, lost ranges, and places of lost blocks.
//!
//! ```text
//! byte 0..4   magic "ZVTB"                        10..12  entries
//!      4..8   CRC-32C over byte 8 to the end       12..16  0
//!      8..10  version, 1 or 2                      16..    entries of 20 bytes, then zeros
//!
//! a range:     0..8  LBA        8..12  blocks        12..20  timestamp of the trim, or of what is lost
//! a place:     0..8  segment    8..12  0             12..16  stripe    16  member    17  0    18..20  block of the chunk
//!
//! bits of byte 8..12 in version 2:   neither 30 nor 31: trimmed range    31: lost range    30: place    both: refused
//! ```
//!
//! A lost range holds a version that can never be read again: reads of it fail until it is written
//! or trimmed.
//!
//! A place is where such a version was. If the metadata there are lost too, only this entry records
//! that the logical block of that version is known; it stays valid when the block is written again.
//! A place is named by stripe and not by slot: where the metadata of several slots are lost, a
//! mount cannot know which of them holds which stripe. Chunk metadata do not count as blocks of a
//! chunk.
//!
//! Version 2 marks a block with lost ranges or places: a reader that supports only version 1 must
//! not mistake them for trims. In version 1 all entries are trimmed ranges, and the two bits are
//! not fields.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::block;
use super::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

const MAGIC: [u8; 4] = *b"ZVTB";
const VERSION_WITH_LOST: u16 = 2;
const COUNT_AT: usize = block::FIELDS_AT;
const ENTRIES_AT: usize = 16;

const BLOCKS_AT: usize = 8;
const TIMESTAMP_AT: usize = 12;
const ENTRY_BYTES: usize = 20;
/// Flag in the number of blocks: the range is lost.
const LOST: u32 = 1 << 31;
/// Flag in the same field: the entry is a place.
const PLACE: u32 = 1 << 30;
const KIND: u32 = LOST | PLACE;
const _: () = assert!(crate::limits::TOMBSTONE_BLOCKS_MAX < PLACE as u64);

const STRIPE_AT: usize = 12;
const MEMBER_AT: usize = 16;
const BLOCK_AT: usize = 18;
const _: () = assert!(crate::limits::UNIT_BLOCKS_MAX <= u16::MAX as u32);

/// A trimmed range, which reads as zeros, or a lost range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
    /// Timestamp of the trim. Of a lost range: not less than that of the lost version, and less
    /// than that of any newer one.
    pub(crate) timestamp: u64,
    /// The range is lost: reads fail instead of returning zeros.
    pub(crate) is_lost: bool,
}

impl Tombstone {
    /// The blocks of the range.
    pub(crate) fn lbas(&self) -> std::ops::Range<u64> {
        self.lba..self.lba + u64::from(self.blocks)
    }

    /// Adds one of its blocks to ranges: extends the last one, if the block continues it.
    pub(crate) fn add_block(&self, lba: u64, ranges: &mut Vec<Tombstone>) {
        match ranges.last_mut() {
            Some(last)
                if last.lbas().end == lba && (last.timestamp, last.is_lost) == (self.timestamp, self.is_lost) =>
            {
                last.blocks += 1;
            }
            _ => ranges.push(Tombstone { lba, blocks: 1, ..*self }),
        }
    }
}

/// The place of a lost block whose logical block is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LostPlace {
    /// The sequence number of its segment.
    pub(crate) segment: u64,
    pub(crate) stripe: u32,
    pub(crate) member: u8,
    /// Index in the payload of the member's chunk of that stripe.
    pub(crate) block: u16,
}

/// Contents of a block of tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tombstones {
    pub(crate) ranges: Vec<Tombstone>,
    pub(crate) places: Vec<LostPlace>,
}

impl Tombstones {
    /// The number of entries that they take.
    pub(crate) fn entries(&self) -> usize {
        self.ranges.len() + self.places.len()
    }

    /// Adds the contents of another block.
    pub(crate) fn extend(&mut self, other: Tombstones) {
        self.ranges.extend(other.ranges);
        self.places.extend(other.places);
    }

    /// For each block only the range with the latest timestamp.
    pub(crate) fn newest_ranges(&self) -> Vec<Tombstone> {
        let mut ranges = self.ranges.clone();
        ranges.sort_by_key(|range| (Reverse(range.timestamp), range.lba));
        // The end of each piece, by its first block. Pieces do not overlap.
        let mut pieces: BTreeMap<u64, u64> = BTreeMap::new();
        let mut newest = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Range { start: mut at, end } = range.lbas();
            if let Some((_, &later_end)) = pieces.range(..=at).next_back() {
                at = at.max(later_end);
            }
            while at < end {
                let later = pieces.range(at..end).next().map(|(&start, &end)| (start, end));
                let (piece_end, next) = later.unwrap_or((end, end));
                if at < piece_end {
                    newest.push(Tombstone { lba: at, blocks: (piece_end - at) as u32, ..range });
                    pieces.insert(at, piece_end);
                }
                at = next;
            }
        }
        newest
    }
}

/// Entries per block of tombstones.
pub(crate) fn tombstones_per_block(block_size_bytes: u32) -> usize {
    (block_size_bytes as usize).saturating_sub(ENTRIES_AT) / ENTRY_BYTES
}

/// Writes a block of at most [`tombstones_per_block`] entries.
pub(crate) fn write_tombstones(ranges: &[Tombstone], places: &[LostPlace], out: &mut [u8]) {
    let count = ranges.len() + places.len();
    assert!(count <= tombstones_per_block(out.len() as u32), "tombstones fit their block");
    let has_lost = !places.is_empty() || ranges.iter().any(|range| range.is_lost);
    block::begin_version(out, MAGIC, if has_lost { VERSION_WITH_LOST } else { block::FIRST_VERSION });
    put_u16(out, COUNT_AT, count as u16);
    for (bytes, range) in out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(ranges) {
        put_u64(bytes, 0, range.lba);
        put_u32(bytes, BLOCKS_AT, range.blocks | if range.is_lost { LOST } else { 0 });
        put_u64(bytes, TIMESTAMP_AT, range.timestamp);
    }
    let entries = out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).skip(ranges.len());
    for (bytes, place) in entries.zip(places) {
        put_u64(bytes, 0, place.segment);
        put_u32(bytes, BLOCKS_AT, PLACE);
        put_u32(bytes, STRIPE_AT, place.stripe);
        bytes[MEMBER_AT] = place.member;
        put_u16(bytes, BLOCK_AT, place.block);
    }
    block::seal(out);
}

/// Reads a block of tombstones; `None` if it is damaged, or has an invalid entry.
pub(crate) fn read_tombstones(block: &[u8]) -> Option<Tombstones> {
    let has_lost = block::check_version(block, MAGIC, VERSION_WITH_LOST).ok()? == VERSION_WITH_LOST;
    let count = usize::from(u16_at(block, COUNT_AT));
    if count > tombstones_per_block(block.len() as u32) {
        return None;
    }
    let mut found = Tombstones::default();
    for bytes in block[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(count) {
        let blocks = u32_at(bytes, BLOCKS_AT);
        let (kind, blocks) = if has_lost { (blocks & KIND, blocks & !KIND) } else { (0, blocks) };
        match kind {
            0 | LOST => found.ranges.push(Tombstone {
                lba: u64_at(bytes, 0),
                blocks,
                timestamp: u64_at(bytes, TIMESTAMP_AT),
                is_lost: kind == LOST,
            }),
            PLACE => found.places.push(LostPlace {
                segment: u64_at(bytes, 0),
                stripe: u32_at(bytes, STRIPE_AT),
                member: bytes[MEMBER_AT],
                block: u16_at(bytes, BLOCK_AT),
            }),
            _ => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};

    const TOMBSTONE: Tombstone =
        Tombstone { lba: 0x0102_0304_0506_0708, blocks: 0x1112_1314, timestamp: 0x2122_2324_2526_2728, is_lost: false };

    const PLACE_OF_LOST: LostPlace =
        LostPlace { segment: 0x0102_0304_0506_0708, stripe: 0x1112_1314, member: 0x21, block: 0x3132 };

    #[test]
    fn of_several_ranges_that_have_a_block_only_the_latest_counts() {
        let range = |lba, blocks, timestamp| Tombstone { lba, blocks, timestamp, is_lost: false };
        let marker = Tombstone { is_lost: true, ..range(12, 3, 7) };
        let ranges = vec![range(10, 10, 5), marker, range(8, 4, 6), range(13, 1, 9), range(8, 1, 6)];
        let places = Vec::new();
        let newest = Tombstones { ranges, places }.newest_ranges();
        let before = Tombstone { blocks: 1, ..marker };
        let behind = Tombstone { lba: 14, ..before };
        assert_eq!(newest, [range(13, 1, 9), before, behind, range(8, 4, 6), range(15, 5, 5)]);
        let apart = vec![range(0, 4, 1), range(4, 4, 2), range(9, 1, 3)];
        let newest = Tombstones { ranges: apart, places: Vec::new() }.newest_ranges();
        assert_eq!(newest, [range(9, 1, 3), range(4, 4, 2), range(0, 4, 1)], "ranges that do not overlap stay whole");
    }

    #[test]
    fn tombstones_read_back() {
        assert_eq!([512, 4096, 65_536].map(tombstones_per_block), [24, 204, 3276]);
        for block_size_bytes in [512_u32, 4096, 65_536] {
            let most = tombstones_per_block(block_size_bytes);
            for count in [0, 1, most] {
                let ranges: Vec<_> = (0..count).map(|at| Tombstone { lba: at as u64, ..TOMBSTONE }).collect();
                let places: Vec<_> = (0..count).map(|at| LostPlace { segment: at as u64, ..PLACE_OF_LOST }).collect();
                let mut block = vec![0xFF; block_size_bytes as usize];
                for of_ranges in [0, count / 2, count] {
                    let (ranges, places) = (&ranges[..of_ranges], &places[of_ranges..]);
                    write_tombstones(ranges, places, &mut block);
                    let expected = Tombstones { ranges: ranges.to_vec(), places: places.to_vec() };
                    assert_eq!((expected.entries(), read_tombstones(&block)), (count, Some(expected)));
                }
            }
        }
    }

    #[test]
    fn tombstones_with_a_flipped_bit_or_more_than_fit_are_none() {
        let mut block = [0; 512];
        write_tombstones(&[TOMBSTONE; 3], &[], &mut block);
        every_flipped_bit_is_noticed(&block, |block| read_tombstones(block).is_none());
        put_u16(&mut block, COUNT_AT, 25);
        block::seal(&mut block);
        assert_eq!(read_tombstones(&block), None);
    }

    #[test]
    fn the_bytes_of_tombstones_are_golden() {
        let mut block = [0; 512];
        let second = Tombstone { lba: 1, blocks: 2, timestamp: 3, is_lost: false };
        write_tombstones(&[TOMBSTONE, second], &[], &mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a5654421e42a3490100020000000000\n",
                "08070605040302011413121128272625\n",
                "24232221010000000000000002000000\n",
                "03",
            )
        );
    }

    #[test]
    fn a_block_with_a_lost_range_is_of_version_2_and_distinguishes_it_from_a_trimmed_one() {
        let mut block = [0; 512];
        let lost = Tombstone { lba: 1, blocks: 2, timestamp: 3, is_lost: true };
        write_tombstones(&[lost, TOMBSTONE], &[], &mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a5654420e488c990200020000000000\n",
                "01000000000000000200008003000000\n",
                "00000000080706050403020114131211\n",
                "2827262524232221",
            )
        );
        assert_eq!(read_tombstones(&block), Some(Tombstones { ranges: vec![lost, TOMBSTONE], places: Vec::new() }));
        every_flipped_bit_is_noticed(&block, |block| read_tombstones(block).is_none());
    }

    #[test]
    fn a_block_with_a_place_is_of_version_2_and_distinguishes_it_from_ranges() {
        let mut block = [0; 512];
        let lost = Tombstone { lba: 1, blocks: 1, timestamp: 3, is_lost: true };
        write_tombstones(&[lost], &[PLACE_OF_LOST], &mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a56544273c90e060200020000000000\n",
                "01000000000000000100008003000000\n",
                "00000000080706050403020100000040\n",
                "1413121121003231",
            )
        );
        assert_eq!(read_tombstones(&block), Some(Tombstones { ranges: vec![lost], places: vec![PLACE_OF_LOST] }));
        every_flipped_bit_is_noticed(&block, |block| read_tombstones(block).is_none());
        write_tombstones(&[], &[PLACE_OF_LOST], &mut block);
        assert_eq!(u16_at(&block, 8), VERSION_WITH_LOST, "a place is no trimmed range either");
    }

    #[test]
    fn an_entry_that_is_a_lost_range_and_a_place_is_refused() {
        let mut block = [0; 512];
        write_tombstones(&[], &[PLACE_OF_LOST], &mut block);
        put_u32(&mut block, ENTRIES_AT + BLOCKS_AT, LOST | PLACE);
        block::seal(&mut block);
        assert_eq!(read_tombstones(&block), None);
    }
}
