//! Blocks that could not be read: determines whether they are lost. Lost blocks get a marker in the
//! log.
//!
//! A marker also names the place of the lost block, for mounts that cannot read the metadata there
//! (see `lost_places.rs`).
//!
//! A host read, a scrub, a rebuild or collection that cannot read a block
//! [reports](Volume::found_unreadable) it. The block is read again, with all chunks that could
//! help: a transient error is no loss, nor is a block lost while a missing member may hold it. Then
//! a marker is written, in a block of tombstones: once that is durable, the block's old place is
//! not needed any more, and its segment can be emptied.
//!
//! A marker has the timestamp of the lost version, where the block's own metadata have it, else one
//! between that and the next newer version. So any newer write supersedes it. On a mount it
//! supersedes a copy with the same timestamp that is damaged; if such a copy can be read after all,
//! the copy counts, since it is the version that was considered lost (see `mount/versions.rs`). To
//! prevent that another good copy becomes durable then, a block whose marker is in flight is not
//! moved, and no marker is written for a block that is being moved.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zonda_zoned::{Blocks, Lba, LbaRange, Status};

use super::Volume;
use super::address::Address;
use super::reads::{Purpose, Unreadable};
use super::stripes::{Block, Mover, Source};
use crate::bug::SeededBug;
use crate::event::Event;
use crate::format::{LostPlace, Record, Tombstone, crc, tombstones_per_block};
use crate::limits::{CONFIRMED_BLOCKS_MAX, REPAIRED_STRIPES_MAX, UNREADABLE_BLOCKS_MAX};
use crate::shape::Stream;
use crate::tables::{Physical, SegmentIndex};

/// Owns the unreadable blocks, until they are readable, superseded, or recorded as lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// To be read again.
    found: BTreeMap<Physical, Found>,
    /// Being read again.
    confirming: BTreeMap<Physical, Found>,
    /// Lost for good, the blocks or their metadata; what is known of each.
    confirmed: BTreeMap<Physical, Confirmed>,
    /// Places whose markers are in flight, and their logical blocks.
    recording: BTreeMap<Physical, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// Sequence number of its segment: once that is reset, the place may be reused.
    sequence: u64,
    /// The logical block, where it is known.
    lba: Option<u64>,
}

#[derive(Clone, Debug)]
struct Confirmed {
    found: Found,
    /// The record in the block's own metadata.
    record: Option<Record>,
    /// Its contents, if only its metadata are lost.
    proven: Option<Bytes>,
}

impl Losses {
    /// Whether more blocks can be tracked.
    pub(super) fn has_space(&self) -> bool {
        self.found.len() < UNREADABLE_BLOCKS_MAX / 2
    }

    /// Whether no block is being read again or recorded.
    pub(super) fn is_idle(&self) -> bool {
        self.found.is_empty() && self.confirming.is_empty() && self.confirmed.is_empty() && self.recording.is_empty()
    }

    /// Whether a marker for a place is in flight.
    pub(super) fn is_being_recorded(&self, place: Physical) -> bool {
        !self.recording.is_empty() && self.recording.contains_key(&place)
    }
}

impl Volume {
    /// Ranges of lost blocks from `from` on, in ascending order: reads of them fail until they are
    /// written or trimmed. This is what a mount would find, so a block is included until its
    /// replacement is durable, and while its marker is in flight.
    pub fn lost(&self, from: Lba) -> impl Iterator<Item = LbaRange> + '_ {
        let recording: BTreeSet<u64> = self.losses.recording.values().copied().collect();
        self.map.lost_ranges(from, recording)
    }

    /// The number of lost blocks, including those whose markers are in flight.
    pub(super) fn lost_blocks(&self) -> u64 {
        self.map.lost_blocks() + self.losses.recording.len() as u64
    }

    /// A block could not be read. The logical block is determined if it is not known.
    pub(super) fn found_unreadable(&mut self, place: Physical, lba: Option<u64>) {
        let losses = &mut self.losses;
        let is_known = losses.confirming.contains_key(&place)
            || losses.confirmed.contains_key(&place)
            || losses.recording.contains_key(&place);
        // Without contents there are no markers. Blocks beyond the limit are found again later.
        if is_known || !self.spec.has_contents() || losses.found.len() >= UNREADABLE_BLOCKS_MAX {
            return;
        }
        let sequence = self.segments[place.segment].sequence;
        let known = losses.found.get(&place).filter(|found| found.sequence == sequence).and_then(|found| found.lba);
        losses.found.insert(place, Found { sequence, lba: lba.or(known) });
        self.wake();
    }

    /// Reads unreadable blocks again, and records those that are lost.
    pub(super) fn pump_losses(&mut self) {
        while self.losses.confirming.len() + self.losses.confirmed.len() < CONFIRMED_BLOCKS_MAX
            && let Some((place, found)) = self.losses.found.pop_first()
        {
            if self.is_needed_at(place, found) {
                self.losses.confirming.insert(place, found);
                self.fetch(place, 1, Purpose::Confirm);
            }
        }
        let has_space = self.stripes.ready(Stream::Relocation).len() < REPAIRED_STRIPES_MAX;
        if self.losses.confirming.is_empty() && !self.losses.confirmed.is_empty() && has_space {
            self.record_losses();
        }
    }

    /// Whether a block is still needed at a place, as far as is known.
    fn is_needed_at(&mut self, place: Physical, found: Found) -> bool {
        let segment = self.segments.get(place.segment).filter(|segment| segment.sequence == found.sequence);
        let is_live = segment.is_some_and(|segment| segment.is_live(place.member, place.offset));
        is_live && found.lba.is_none_or(|lba| self.map.refers_to(&mut self.stripes, lba, Address::media(place)))
    }

    /// A block was read again.
    pub(super) fn on_confirmed(
        &mut self,
        place: Physical,
        block: Result<(Bytes, Record), Status>,
        unreadable: Unreadable,
    ) {
        self.wake();
        let Some(found) = self.losses.confirming.remove(&place) else { return };
        match block {
            Ok((data, record)) => {
                // A transient error: the block is rewritten while it can be read.
                if self.move_block(place, record, data, Mover::Repair) {
                    self.segments.forget_lost(place.segment);
                    self.collector.on_loss_recorded(place.segment);
                }
            }
            // Zones of a re-added member may have it, once they are claimed.
            Err(_) if self.has_zones_aside(place.segment) => self.damage_is_unreadable(place),
            Err(_) if unreadable.is_lost || unreadable.proven.is_some() => {
                let Unreadable { record, proven, .. } = unreadable;
                self.losses.confirmed.insert(place, Confirmed { found, record, proven });
            }
            // A missing member may have it.
            Err(_) => self.damage_is_unreadable(place),
        }
    }

    /// Markers for all blocks that are known to be lost.
    fn record_losses(&mut self) {
        let confirmed = std::mem::take(&mut self.losses.confirmed);
        let mut lbas: BTreeMap<Physical, u64> = BTreeMap::new();
        let mut unknown = BTreeSet::new();
        for (&place, Confirmed { found, record, .. }) in &confirmed {
            let address = Address::media(place);
            let own = record.map(|record| record.lba);
            match found.lba.or(own).filter(|&lba| self.map.refers_to(&mut self.stripes, lba, address)) {
                Some(lba) => drop(lbas.insert(place, lba)),
                None => drop(unknown.insert(place)),
            }
        }
        if !unknown.is_empty() {
            lbas.extend(self.map.blocks_at(&self.stripes, &unknown));
        }
        let mut lost: Vec<(Tombstone, (Physical, LostPlace))> = Vec::new();
        for (place, lba) in lbas {
            let Confirmed { found: Found { sequence, .. }, record, proven } = confirmed[&place].clone();
            if let Some(data) = proven {
                self.rewrite_proven(place, lba, data);
                continue;
            }
            let named = self.segments.lost_place(place).filter(|named| named.segment == sequence);
            let Some(named) = named.filter(|_| !self.stripes.is_moving(place)) else { continue };
            let Some(bound) = self.map.timestamp_bound(&self.stripes, lba, place) else { continue };
            let own = record.filter(|record| record.lba == lba).map(|record| record.timestamp);
            let is_late = self.spec.has(SeededBug::LateMarker);
            let timestamp = if is_late { u64::MAX >> 1 } else { own.map_or(bound, |own| own.min(bound)) };
            lost.push((Tombstone { lba, blocks: 1, timestamp, is_lost: true }, (place, named)));
        }
        lost.sort_unstable_by_key(|(range, _)| range.lba);
        // A range and its place are in one block: neither is durable without the other.
        for some in lost.chunks(tombstones_per_block(self.spec.shape.block_bytes as u32) / 2) {
            let (tombstones, from): (Vec<Tombstone>, Vec<(Physical, LostPlace)>) = some.iter().copied().unzip();
            let places: Vec<LostPlace> = from.iter().map(|(_, named)| *named).collect();
            let lbas = tombstones.iter().map(|range| range.lba);
            self.losses.recording.extend(from.iter().map(|(place, _)| *place).zip(lbas));
            let written = if self.spec.has(SeededBug::UnwrittenMarker) { 0 } else { places.len() };
            let data = self.spec.tombstone_block(&tombstones[..written], &places[..written]);
            let timestamp = tombstones.iter().map(|range| range.timestamp).max().unwrap_or(0);
            let block = Block::tombstones(Source::Lost { tombstones, from }, timestamp);
            self.stripes.push(&self.spec, self.now, Stream::Relocation, block, data);
        }
    }

    /// Rewrites a block whose metadata are lost, with a timestamp that is no earlier than its own.
    fn rewrite_proven(&mut self, place: Physical, lba: u64, data: Bytes) {
        if self.stripes.is_moving(place) {
            return;
        }
        let Some(timestamp) = self.map.timestamp_bound(&self.stripes, lba, place) else { return };
        let record = Record { lba, timestamp, data_crc: crc(&data) };
        if self.move_block(place, record, data, Mover::Repair) {
            self.segments.forget_lost(place.segment);
            self.collector.on_loss_recorded(place.segment);
        }
    }

    /// Markers are durable in a segment.
    pub(super) fn losses_recorded(&mut self, ranges: &[Tombstone], from: &[(Physical, LostPlace)], to: SegmentIndex) {
        self.wake();
        self.lost_places.forget_reset(&self.segments);
        let mut reported: Vec<(u64, u64)> = Vec::new();
        for (lba, &(place, named)) in ranges.iter().flat_map(Tombstone::lbas).zip(from) {
            self.losses.recording.remove(&place);
            let Volume { map, stripes, segments, lost_places, .. } = self;
            // The place stays damaged even if the block was written meanwhile.
            if segments.get(place.segment).is_some_and(|segment| segment.sequence == named.segment) {
                lost_places.name(named, to);
            }
            if !map.publish_lost(stripes, segments, lba, (place, named.segment), to) {
                continue;
            }
            segments.forget_lost(place.segment);
            self.collector.on_loss_recorded(place.segment);
            self.damage_is_lost(place);
            match reported.last_mut() {
                Some((start, blocks)) if *start + *blocks == lba => *blocks += 1,
                _ => reported.push((lba, 1)),
            }
        }
        let lost = |(lba, blocks)| Event::Lost { lba: Lba(lba), blocks: Blocks(blocks) };
        self.events.extend(reported.into_iter().map(lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberIndex;

    #[test]
    fn a_scrub_continues_until_half_of_the_trackable_blocks_wait_for_a_retry() {
        let mut losses = Losses::default();
        for offset in 0..UNREADABLE_BLOCKS_MAX as u32 / 2 {
            assert!(losses.has_space(), "{offset} blocks wait");
            let place = Physical { segment: SegmentIndex(0), member: MemberIndex(0), offset };
            losses.found.insert(place, Found { sequence: 1, lba: None });
        }
        assert!(!losses.has_space());
    }
}
