//! [`Group`]: where the blocks of a stripe group stand.
//!
//! ```text
//! width 4, stripes of 2 blocks: the first rows        the same after a power loss in which block 11 was lost
//!
//! row   zone a  zone b  zone c  zone d                row   zone a  zone b  zone c  zone d
//!  0    0  1    2  3    4  5    6  7                   0    0  1    2  3    4  5    6  7
//!  1    8  9   10 11   12 13   14 15                   1    8  9   10  -   (12 13)  -  -
//!  2   16 17   18 19   20 21   22 23                   1    -  -    - 11   12 13   14 15       a jump of one row at block 11
//! ```
//!
//! Blocks that are behind each other in a zone are consecutive there, so a command of any length
//! touches each zone once, except across a jump.

use std::ops::Range;

use crate::format::GroupRecord;
use crate::limits::{HEADER_BLOCKS, JUMPS_MAX};

/// Physical zones that a part of a v-zone is striped over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    zones: Box<[u32]>,
    stripe_blocks: u64,
    /// The first block of the group, within the v-zone.
    first_block: u64,
    /// Blocks of the group in each zone.
    blocks_per_zone: u64,
    jumps: Vec<Jump>,
}

/// From this block of the group on, rows stand `shift_rows` further on in their zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jump {
    from_block: u64,
    shift_rows: u64,
}

/// Consecutive blocks of a zone that hold blocks of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The physical zone.
    pub(crate) zone: u32,
    /// Offset in the physical zone.
    pub(crate) zone_block: u64,
    pub(crate) blocks: u64,
    /// The first block, within the v-zone.
    pub(crate) start: u64,
}

impl Group {
    /// What it has allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.zones) + self.jumps.capacity() * size_of::<Jump>()
    }

    pub(crate) fn new(zones: Vec<u32>, stripe_blocks: u64, first_block: u64, blocks_per_zone: u64) -> Group {
        assert!(zones.len().is_power_of_two(), "the width of a group is a power of two");
        assert!(blocks_per_zone.is_multiple_of(stripe_blocks), "a zone holds whole stripes");
        Group { zones: zones.into(), stripe_blocks, first_block, blocks_per_zone, jumps: Vec::new() }
    }

    /// The group of a record, if the record can be one.
    pub(crate) fn of_record(record: &GroupRecord, first_block: u64, blocks_per_zone: u64) -> Option<Group> {
        let stripe_blocks = u64::from(record.stripe_blocks);
        if !blocks_per_zone.is_multiple_of(stripe_blocks) {
            return None;
        }
        let mut group = Group::new(record.zones.clone(), stripe_blocks, first_block, blocks_per_zone);
        for (from_block, shift_rows) in &record.jumps {
            group.add_jump(u64::from(*from_block), u64::from(*shift_rows)).then_some(())?;
        }
        Some(group)
    }

    pub(crate) fn record(&self) -> GroupRecord {
        GroupRecord {
            stripe_blocks: self.stripe_blocks as u16,
            zones: self.zones.to_vec(),
            jumps: self.jumps.iter().map(|jump| (jump.from_block as u32, jump.shift_rows as u32)).collect(),
        }
    }

    pub(crate) fn zones(&self) -> &[u32] {
        &self.zones
    }

    pub(crate) fn width(&self) -> u32 {
        self.zones.len() as u32
    }

    pub(crate) fn stripe_blocks(&self) -> u64 {
        self.stripe_blocks
    }

    /// Blocks of the group, within the v-zone.
    pub(crate) fn blocks(&self) -> Range<u64> {
        self.first_block..self.first_block + self.blocks_per_zone * self.zones.len() as u64
    }

    pub(crate) fn row_blocks(&self) -> u64 {
        self.stripe_blocks * self.zones.len() as u64
    }

    pub(crate) fn rows(&self) -> u64 {
        self.blocks_per_zone / self.stripe_blocks
    }

    /// Rows by which the blocks of the group from `block` on are further on.
    fn shift_at(&self, block: u64) -> u64 {
        self.jumps.iter().rev().find(|jump| jump.from_block <= block).map_or(0, |jump| jump.shift_rows)
    }

    fn next_jump_after(&self, block: u64) -> u64 {
        self.jumps.iter().map(|jump| jump.from_block).find(|from| *from > block).unwrap_or(u64::MAX)
    }

    /// From `from_block` of the group on, rows stand `shift_rows` further on. Returns whether that is
    /// possible: a later jump is larger, and the number of jumps is limited.
    #[must_use]
    fn add_jump(&mut self, from_block: u64, shift_rows: u64) -> bool {
        if let Some(last) = self.jumps.last_mut() {
            if shift_rows <= last.shift_rows || from_block < last.from_block {
                return false;
            }
            // Nothing was written since.
            if last.from_block == from_block {
                last.shift_rows = shift_rows;
                return true;
            }
        }
        let is_possible =
            shift_rows > 0 && from_block < self.row_blocks() * self.rows() && self.jumps.len() < JUMPS_MAX;
        if is_possible {
            self.jumps.push(Jump { from_block, shift_rows });
        }
        is_possible
    }

    /// Makes the group writable from `block` of the v-zone on, although its zones have the write
    /// pointers `pointers`: with a jump if any is too far on. Returns whether it has changed; `None`
    /// if it has no room for a jump, of so many rows in a zone.
    pub(crate) fn skip_torn(&mut self, block: u64, pointers: &[u64], rows_max: u64) -> Option<bool> {
        let offset = block - self.first_block;
        let too_far = |(place, pointer): (usize, &u64)| {
            let (row, in_stripe) = self.first_from(offset, place as u64);
            let written = pointer.saturating_sub(HEADER_BLOCKS).saturating_sub(in_stripe);
            written.div_ceil(self.stripe_blocks).saturating_sub(row)
        };
        let shift_rows = pointers.iter().enumerate().map(too_far).max().unwrap_or(0);
        if shift_rows <= self.shift_at(offset) {
            return Some(false);
        }
        let has_room = self.rows() + shift_rows <= rows_max;
        (has_room && self.add_jump(offset, shift_rows)).then_some(true)
    }

    /// The row, and the block of its stripe, of the first block of the zone at `place` that is not
    /// before `offset`.
    fn first_from(&self, offset: u64, place: u64) -> (u64, u64) {
        let (row, in_row) = (offset / self.row_blocks(), offset % self.row_blocks());
        let own = place * self.stripe_blocks;
        if in_row < own {
            (row, 0)
        } else if in_row < own + self.stripe_blocks {
            (row, in_row - own)
        } else {
            (row + 1, 0)
        }
    }

    /// Where the write pointer of each zone must stand before `block` of the v-zone is written.
    pub(crate) fn pointers_at(&self, block: u64) -> Vec<u64> {
        let offset = block - self.first_block;
        let shift = self.shift_at(offset);
        let pointer = |place| {
            let (row, in_stripe) = self.first_from(offset, place);
            HEADER_BLOCKS + (row + shift) * self.stripe_blocks + in_stripe
        };
        (0..self.zones.len() as u64).map(pointer).collect()
    }

    /// The pieces of a range of blocks, all of them in the group, in the order of the zones' first
    /// blocks.
    pub(crate) fn pieces(&self, range: Range<u64>, out: &mut Vec<Piece>) {
        let own = self.blocks();
        assert!(own.start <= range.start && range.start < range.end && range.end <= own.end, "blocks of the group");
        let (mut start, end) = (range.start - own.start, range.end - own.start);
        if self.jumps.is_empty() {
            return self.pieces_of_run(start, end, 0, out);
        }
        while start < end {
            let part_end = end.min(self.next_jump_after(start));
            self.pieces_of_run(start, part_end, self.shift_at(start), out);
            start = part_end;
        }
    }

    /// The piece of a range of blocks of the group, if they are in one stripe, and no jump is known.
    #[inline]
    pub(crate) fn piece_of_stripe(&self, range: &Range<u64>) -> Option<Piece> {
        let offset = range.start.checked_sub(self.first_block)?;
        let (stripe, blocks) = (offset / self.stripe_blocks, range.end - range.start);
        let in_stripe = offset - stripe * self.stripe_blocks;
        if in_stripe + blocks > self.stripe_blocks || !self.jumps.is_empty() {
            return None;
        }
        let (width, width_log2) = (self.zones.len() as u64, self.zones.len().ilog2());
        let place = (stripe & (width - 1)) as usize;
        let row = stripe >> width_log2;
        let first_block = row * self.stripe_blocks;
        if first_block >= self.blocks_per_zone {
            return None;
        }
        let zone_block = HEADER_BLOCKS + first_block + in_stripe;
        Some(Piece { zone: self.zones[place], zone_block, blocks, start: range.start })
    }

    /// The pieces of blocks between two jumps.
    fn pieces_of_run(&self, start: u64, end: u64, shift_rows: u64, out: &mut Vec<Piece>) {
        // The width is a power of two, for which no division is needed.
        let (stripe, width, width_log2) = (self.stripe_blocks, self.zones.len() as u64, self.zones.len().ilog2());
        let (first_stripe, last_stripe) = (start / stripe, (end - 1) / stripe);
        for first in first_stripe..=last_stripe.min(first_stripe + width - 1) {
            let place = (first & (width - 1)) as usize;
            let last = first + ((last_stripe - first) & !(width - 1));
            let from = if first == first_stripe { start % stripe } else { 0 };
            let to = if last == last_stripe { (end - 1) % stripe + 1 } else { stripe };
            let place_of = |index: u64| ((index >> width_log2) + shift_rows) * stripe;
            let zone_block = place_of(first) + from;
            out.push(Piece {
                zone: self.zones[place],
                zone_block: HEADER_BLOCKS + zone_block,
                blocks: place_of(last) + to - zone_block,
                start: self.first_block + first * stripe + from,
            });
        }
    }

    /// The runs of consecutive blocks of the v-zone that a piece consists of: offset in the piece,
    /// first block, and number of blocks.
    pub(crate) fn runs(&self, piece: &Piece) -> impl Iterator<Item = (u64, u64, u64)> {
        let (stripe, row_blocks) = (self.stripe_blocks, self.row_blocks());
        let mut offset = 0;
        let mut block = piece.start;
        let (blocks, first_block) = (piece.blocks, self.first_block);
        std::iter::from_fn(move || {
            if offset == blocks {
                return None;
            }
            let in_stripe = (block - first_block) % stripe;
            let length = (stripe - in_stripe).min(blocks - offset);
            let run = (offset, block, length);
            offset += length;
            block += row_blocks - in_stripe;
            Some(run)
        })
    }

    /// The first block of the group, within the v-zone, that is not in its zone, if `written`
    /// holds the blocks of data that are in each zone, headers apart.
    pub(crate) fn first_missing(&self, written: &[u64]) -> u64 {
        let missing = written.iter().enumerate().map(|(place, blocks)| self.first_missing_in(place as u64, *blocks));
        missing.min().unwrap_or(self.first_block)
    }

    fn first_missing_in(&self, place: u64, written: u64) -> u64 {
        let stripe = self.stripe_blocks;
        let end = self.row_blocks() * self.rows();
        let (mut from_block, mut shift_rows) = (0, 0);
        let last = Jump { from_block: end, shift_rows: 0 };
        for next in self.jumps.iter().chain([&last]) {
            let (row, in_stripe) = self.first_from(from_block, place);
            // Before that stand blocks that were torn, or padding.
            let first = (row + shift_rows) * stripe + in_stripe;
            let (row, in_stripe) =
                if written < first { (row, in_stripe) } else { (written / stripe - shift_rows, written % stripe) };
            let block = row * self.row_blocks() + place * stripe + in_stripe;
            if block < next.from_block {
                return self.first_block + block;
            }
            (from_block, shift_rows) = (next.from_block, next.shift_rows);
        }
        self.first_block + end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;

    /// Every block, one by one: its zone and its place there.
    fn oracle(group: &Group, block: u64) -> (u32, u64) {
        let offset = block - group.first_block;
        let stripe = offset / group.stripe_blocks;
        let (row, place) = (stripe / u64::from(group.width()), stripe % u64::from(group.width()));
        let physical_row = row + group.shift_at(offset);
        (group.zones[place as usize], HEADER_BLOCKS + physical_row * group.stripe_blocks + offset % group.stripe_blocks)
    }

    fn random_group(prng: &mut Prng) -> Group {
        let width = 1 << prng.below(4);
        let stripe = 1 << prng.below(4);
        let mut group = Group::new((40..40 + width).collect(), stripe, prng.below(3) * 100, stripe * 12);
        for block in 0..group.row_blocks() * 12 {
            if group.jumps.len() < JUMPS_MAX && prng.chance(2, group.row_blocks() * 12) {
                let shift = group.jumps.last().map_or(0, |jump| jump.shift_rows) + 1 + prng.below(2);
                assert!(group.add_jump(block, shift));
            }
        }
        group
    }

    #[test]
    fn pieces_are_where_their_blocks_are_and_hold_each_block_once() {
        let mut prng = Prng::new(1);
        for _ in 0..500 {
            let group = random_group(&mut prng);
            let own = group.blocks();
            let start = own.start + prng.below(own.end - own.start);
            let range = start..start + 1 + prng.below(own.end - start);
            let mut pieces = Vec::new();
            group.pieces(range.clone(), &mut pieces);
            let stripe_of = |block: u64| (block - own.start) / group.stripe_blocks;
            let is_one = group.jumps.is_empty() && stripe_of(range.start) == stripe_of(range.end - 1);
            assert_eq!(group.piece_of_stripe(&range), is_one.then(|| pieces[0]), "{group:?} {range:?}");
            let mut seen = Vec::new();
            for piece in &pieces {
                for (offset, block, length) in group.runs(piece) {
                    for index in 0..length {
                        assert_eq!(oracle(&group, block + index), (piece.zone, piece.zone_block + offset + index));
                        seen.push(block + index);
                    }
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, range.collect::<Vec<u64>>(), "{group:?}");
            let pieces_max = (group.jumps.len() + 1) * group.width() as usize;
            assert!(pieces.len() <= pieces_max, "one piece for each zone, except across a jump");
        }
    }

    #[test]
    fn the_first_missing_block_is_that_of_a_search_one_by_one() {
        let mut prng = Prng::new(2);
        for _ in 0..500 {
            let group = random_group(&mut prng);
            let rows_max = group.rows() + group.jumps.last().map_or(0, |jump| jump.shift_rows);
            let written: Vec<u64> =
                (0..group.width()).map(|_| prng.below(rows_max * group.stripe_blocks + 1)).collect();
            let is_there = |block: &u64| {
                let (zone, place) = oracle(&group, *block);
                place < HEADER_BLOCKS + written[group.zones.iter().position(|other| *other == zone).unwrap()]
            };
            let expected = group.blocks().find(|block| !is_there(block)).unwrap_or(group.blocks().end);
            assert_eq!(group.first_missing(&written), expected, "{group:?} {written:?}");
        }
    }

    #[test]
    fn a_jump_goes_further_and_the_same_block_can_be_lost_again() {
        let mut group = Group::new(vec![1, 2], 2, 0, 24);
        assert!(group.add_jump(3, 1));
        assert!(!group.add_jump(4, 1), "it would overlap the row before");
        assert!(group.add_jump(3, 2));
        assert!(!group.add_jump(2, 3), "an earlier block stands already");
        assert_eq!(group.record().jumps, [(3, 2)]);
        assert_eq!(Group::of_record(&group.record(), 0, 24), Some(group));
    }

    /// The picture above.
    #[test]
    fn a_group_that_lost_a_block_goes_on_in_the_next_row_and_keeps_what_stands() {
        let mut group = Group::new(vec![1, 2, 3, 4], 2, 0, 24);
        let pointers = [6, 5, 6, 4];
        assert_eq!(group.first_missing(&pointers.map(|pointer| pointer - HEADER_BLOCKS)), 11);
        assert_eq!(group.skip_torn(11, &pointers, 14), Some(true));
        assert_eq!(group.record().jumps, [(11, 1)]);
        assert_eq!(group.pointers_at(11), [8, 7, 6, 6], "row 2 in the zones, and block 11 is the second of its stripe");
        assert_eq!((oracle(&group, 10), oracle(&group, 11), oracle(&group, 12)), ((2, 4), (2, 7), (3, 6)));
        assert_eq!(group.first_missing(&[4, 3, 4, 2]), 11, "the record alone changes nothing that stands");
        assert_eq!(group.first_missing(&[6, 5, 4, 4]), 11, "nor does padding");
        assert_eq!(group.first_missing(&[6, 6, 4, 4]), 12);
        assert_eq!(group.clone().skip_torn(11, &group.pointers_at(11), 14), Some(false));
        assert_eq!(group.skip_torn(12, &[8, 8, 30, 6], 14), None, "there is no room for so many rows");
    }
}
