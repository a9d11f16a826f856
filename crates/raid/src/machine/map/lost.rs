//! Blocks that can never be read again: their newest version was durable, and too much of its
//! stripe is damaged.
//!
//! From then on a marker in a block of tombstones records that, for mounts as well, until the block
//! is written or trimmed: an older version that is found somewhere must not replace it.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::{Blocks, Lba, LbaRange};

use super::super::address::{Address, Location};
use super::super::segments::Segments;
use super::super::stripes::Stripes;
use super::Map;
use crate::format::Tombstone;
use crate::limits::TOMBSTONE_BLOCKS_MAX;
use crate::tables::{Physical, SegmentIndex};

impl Map {
    /// A marker is durable in the segment `to`: the version at `from`, in the segment with this
    /// sequence number, is lost. Returns whether that was still the block's newest durable version.
    pub(in crate::machine) fn publish_lost(
        &mut self,
        stripes: &mut Stripes,
        segments: &mut Segments,
        lba: u64,
        (from, sequence): (Physical, u64),
        to: SegmentIndex,
    ) -> bool {
        let exists = segments.get(from.segment).is_some_and(|segment| segment.sequence == sequence);
        if !exists || !self.replace(stripes, lba, Address::media(from), Address::lost(to)) {
            return false;
        }
        segments.set_dead(from);
        self.lost.insert(lba);
        true
    }

    /// A timestamp for the version of a block at a place whose metadata cannot be read: not less
    /// than its own, and less than those of all newer versions. `None` if the place holds no
    /// version that is needed.
    pub(in crate::machine) fn timestamp_bound(&mut self, stripes: &Stripes, lba: u64, place: Physical) -> Option<u64> {
        if lba >= self.blocks() {
            return None;
        }
        let (oldest, newer) = self.oldest_version(stripes, lba);
        (oldest == Address::media(place)).then(|| newer.map_or_else(|| self.take_timestamp(), |newer| newer - 1))
    }

    /// The tombstones and markers of a segment according to the map: a replacement for unreadable
    /// ones. Their timestamps are not earlier than the original ones, and earlier than those of
    /// newer versions. Examines every block of the volume.
    pub(in crate::machine) fn tombstones_in(&mut self, stripes: &Stripes, segment: SegmentIndex) -> Vec<Tombstone> {
        let newest = self.take_timestamp();
        let mut found: Vec<Tombstone> = Vec::new();
        for lba in 0..self.blocks() {
            let (oldest, newer) = self.oldest_version(stripes, lba);
            let is_lost = oldest == Address::lost(segment);
            if !is_lost && oldest != Address::trimmed(segment) {
                continue;
            }
            let timestamp = newer.map_or(newest, |newer| newer - 1);
            match found.last_mut() {
                Some(last)
                    if last.lbas().end == lba
                        && (last.timestamp, last.is_lost) == (timestamp, is_lost)
                        && u64::from(last.blocks) < TOMBSTONE_BLOCKS_MAX =>
                {
                    last.blocks += 1;
                }
                _ => found.push(Tombstone { lba, blocks: 1, timestamp, is_lost }),
            }
        }
        found
    }

    /// Counts the blocks whose newest durable version is a tombstone or a marker, for each segment;
    /// `None` if the counts cannot have decreased since the last time. Examines every block of the
    /// volume.
    pub(in crate::machine) fn recount_tombstones(&mut self, stripes: &Stripes) -> Option<BTreeMap<SegmentIndex, u32>> {
        if !std::mem::take(&mut self.has_stale_tombstones) {
            return None;
        }
        let mut needed = BTreeMap::new();
        for lba in 0..self.blocks() {
            if let Location::Trimmed { segment } | Location::Lost { segment } =
                self.oldest_version(stripes, lba).0.location()
            {
                *needed.entry(segment).or_default() += 1;
            }
        }
        Some(needed)
    }

    /// The place of a block's newest durable version, if the block exists.
    pub(in crate::machine) fn durable_location(&self, stripes: &Stripes, lba: u64) -> Option<Location> {
        (lba < self.blocks()).then(|| self.oldest_version(stripes, lba).0.location())
    }

    /// The oldest known version of a block, which is the durable one, and the timestamp of the next
    /// newer one: timestamps are unique and ascending.
    fn oldest_version(&self, stripes: &Stripes, lba: u64) -> (Address, Option<u64>) {
        let mut entry = self.entries[lba as usize];
        let mut newer = None;
        while let Location::Buffered { stripe, block } = entry.location() {
            newer = Some(stripes.timestamp_of(lba, (stripe, block)));
            entry = stripes.replaced_by(lba, (stripe, block));
        }
        (entry, newer)
    }

    /// The logical blocks with versions at these places. Examines every block of the volume: for
    /// rare cases.
    pub(in crate::machine) fn blocks_at(
        &self,
        stripes: &Stripes,
        places: &BTreeSet<Physical>,
    ) -> BTreeMap<Physical, u64> {
        let mut found = BTreeMap::new();
        for lba in 0..self.blocks() {
            if let Location::Media(place) = self.oldest_version(stripes, lba).0.location()
                && places.contains(&place)
            {
                found.insert(place, lba);
            }
        }
        found
    }

    /// The number of lost blocks.
    pub(in crate::machine) fn lost_blocks(&self) -> u64 {
        self.lost.len() as u64
    }

    /// The ranges of lost blocks from `from` on, in ascending order, none next to another.
    pub(in crate::machine) fn lost_ranges(
        &self,
        from: Lba,
        others: BTreeSet<u64>,
    ) -> impl Iterator<Item = LbaRange> + '_ {
        let mut known = self.lost.range(from.0..).copied().peekable();
        let mut others = others.into_iter().filter(move |&lba| lba >= from.0).peekable();
        let mut blocks = std::iter::from_fn(move || match (known.peek(), others.peek()) {
            (Some(first), Some(other)) if other < first => others.next(),
            (Some(first), Some(other)) if other == first => known.next().and(others.next()),
            (None, _) => others.next(),
            _ => known.next(),
        })
        .peekable();
        std::iter::from_fn(move || {
            let start = blocks.next()?;
            let mut end = start + 1;
            while blocks.next_if_eq(&end).is_some() {
                end += 1;
            }
            Some(LbaRange { start: Lba(start), blocks: Blocks(end - start) })
        })
    }

    /// A mount sets the location of a block.
    pub(super) fn note_lost(&mut self, lba: u64, address: Address) {
        if matches!(address.location(), Location::Lost { .. }) {
            self.lost.insert(lba);
        } else {
            self.lost.remove(&lba);
        }
    }
}
