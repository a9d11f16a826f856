//! Garbage collection goes on: what it reads, and where that is written.

use std::collections::BTreeSet;

use bytes::Bytes;
use zonda_zoned::{Instant, Status};

use super::collector::{Urgency, victim};
use super::stripes::{Block, Mover, Source};
use super::{Space, Volume};
use crate::bug::SeededBug;
use crate::format::{LostPlace, Record, Tombstone, Tombstones, read_tombstones, tombstones_per_block};
use crate::shape::Stream;
use crate::tables::{Address, Location, Physical, SegmentIndex};

impl Volume {
    pub(super) fn pump_collector(&mut self) {
        loop {
            self.segments.reset_empty(&self.spec, &mut self.members);
            if self.collector.wants_victim() {
                let chosen = self.choose_victim();
                let is_in_need = chosen.is_none() && victim::is_needed(self.space(), &self.segments);
                self.segments.set_awaited(is_in_need);
                match chosen {
                    Some((victim, urgency)) => {
                        self.collector.begin(&self.spec, &mut self.segments, victim, urgency);
                        let is_unseen = self.is_still_to_be_scrubbed(self.segments[victim].sequence);
                        if self.spec.has_contents() && (is_unseen || self.spec.config.tuning.reads_unneeded) {
                            self.collector.read_unneeded();
                            self.collector.hurry();
                            self.scrub_waits_for(victim);
                        }
                    }
                    None if self.collector.is_idle() => self.collector.rest(),
                    // Nobody else may come to fill the stripe.
                    None => self.stripes.pad(&self.spec, Stream::Relocation),
                }
            }
            self.read_moved();
            if let Some((from, places)) = self.collector.take_unnamed() {
                self.move_tombstones(from, &Tombstones { ranges: Vec::new(), places }, Mover::Collector);
            }
            let Volume { spec, members, segments, stripes, collector, .. } = self;
            if !collector.end_if_moved(spec, members, segments, stripes) {
                return;
            }
        }
    }

    fn choose_victim(&self) -> Option<(SegmentIndex, Urgency)> {
        if !self.is_ready() {
            // Nobody is there whose pace it could keep.
            return self.victim_at_mount().map(|index| (index, Urgency::AtOnce));
        }
        victim::choose(self.space(), &self.segments, &self.stripes, self.collector.is_idle(), self.now)
    }

    fn read_moved(&mut self) {
        loop {
            let is_ready = self.is_ready();
            let Volume { spec, members, segments, stripes, collector, now, .. } = self;
            let space = Space::new(spec, members, is_ready);
            let next = collector.next_read(space, segments, stripes.buffered_blocks(), *now);
            let Some((place, blocks, purpose)) = next else { return };
            self.fetch(place, blocks, purpose);
        }
    }

    /// Whether the next stripe of a stream may be written.
    pub(super) fn may_write(&self, stream: Stream) -> bool {
        stream == Stream::Relocation || self.collector.allows_hosts(&self.spec) || self.is_collection_stopped()
    }

    /// A stripe is written.
    pub(super) fn pay(&mut self, stream: Stream) {
        let is_ready = self.is_ready();
        let Volume { spec, members, collector, now, .. } = self;
        collector.pay(Space::new(spec, members, is_ready), *now, stream);
    }

    /// When collection goes on although nobody writes, if that is what it waits for.
    pub(super) fn collection_due(&self) -> Option<Instant> {
        self.collector.due(&self.spec, self.stripes.buffered_blocks(), self.now)
    }

    /// Blocks that still fit the segments that take moved blocks.
    pub(super) fn room_for_moves(&self) -> u64 {
        victim::room_for_moves(&self.spec, &self.segments, &self.stripes)
    }

    /// Live blocks of the segment have been read.
    pub(super) fn on_moved_read(&mut self, place: Physical, blocks: Vec<Result<(Bytes, Record), Status>>) {
        if !self.collector.read_ended(blocks.len() as u32) {
            return;
        }
        for (at, block) in blocks.into_iter().enumerate() {
            let from = Physical { offset: place.offset + at as u32, ..place };
            if !self.segments[from.segment].is_live(from.member, from.offset) {
                if block.is_ok() {
                    self.collector.skipped();
                }
                continue;
            }
            let is_moved = block.is_ok_and(|(data, record)| self.move_block(from, record, data, Mover::Collector));
            if !is_moved {
                self.found_unreadable(from, None);
                self.collector.block_lost();
            }
        }
    }

    /// Writes a block to where moved ones go, if it is still needed, and is what the map takes it for; says whether it is.
    pub(super) fn move_block(&mut self, from: Physical, record: Record, data: Bytes, mover: Mover) -> bool {
        let address = Address::media(from);
        if !self.segments[from.segment].is_live(from.member, from.offset)
            || !self.map.refers_to(&mut self.stripes, record.lba, address)
            // A mount would find both, and the marker may have the later timestamp.
            || self.losses.is_being_recorded(from)
        {
            return false;
        }
        let sequence = self.segments[from.segment].sequence;
        match mover {
            Mover::Collector => {
                self.collector.moving();
            }
            Mover::Repair => self.segments.add_reader(from.segment),
            Mover::Mount => {}
        }
        let block = Block::moved(record.lba, record.timestamp, address, sequence, mover);
        self.stripes.push(&self.spec, self.now, Stream::Relocation, block, data);
        true
    }

    pub(super) fn on_moved_tombstones(&mut self, place: Physical, block: Result<Bytes, Status>) {
        let mut found = block.ok().and_then(|data| read_tombstones(&data));
        if found.is_none() && self.spec.has_contents() && self.is_ready() {
            // The map knows all that its tombstones say; once for a segment will do.
            let is_first = self.collector.tombstones_lost();
            let known = is_first.then(|| Tombstones {
                ranges: self.map.tombstones_in(&self.stripes, place.segment),
                places: self.lost_places.held_by(place.segment, &self.segments),
            });
            found = Some(known.unwrap_or_default());
            if let Some(named) = self.segments.lost_place(place) {
                self.lost_places.name(named, place.segment);
                self.collector.name_later(named);
            }
        }
        if let Some(tombstones) = self.collector.tombstones_read(&self.segments, place, found) {
            self.move_tombstones(place.segment, &tombstones, Mover::Collector);
        }
    }

    /// Rewrites what is still needed of some tombstones; says how many blocks that takes.
    pub(super) fn move_tombstones(&mut self, from: SegmentIndex, found: &Tombstones, mover: Mover) -> u64 {
        let mut blocks = 0;
        let mut kept: Vec<Tombstone> = Vec::new();
        for range in &found.ranges {
            for lba in range.lbas() {
                let is_needed = match self.map.location_if_any(lba) {
                    Some(Location::Trimmed { segment }) => !range.is_lost && segment == from,
                    Some(Location::Lost { segment }) => {
                        range.is_lost && segment == from && !self.spec.has(SeededBug::DroppedMarker)
                    }
                    // A newer version is on its way: until it is durable a crash needs the tombstone.
                    Some(Location::Buffered { .. }) => true,
                    _ => false,
                };
                if !is_needed {
                    continue;
                }
                match kept.last_mut() {
                    Some(last)
                        if last.lbas().end == lba
                            && last.timestamp == range.timestamp
                            && last.is_lost == range.is_lost =>
                    {
                        last.blocks += 1;
                    }
                    _ => kept.push(Tombstone { lba, blocks: 1, ..*range }),
                }
            }
        }
        let mut places = self.places_to_move(from, found);
        let per_block = tombstones_per_block(self.spec.shape.block_bytes as u32);
        if mover == Mover::Mount && kept.len() + places.len() > per_block {
            // They come from one block of a stripe that may be cut shorter: a place must not outlast the range of its marker. They are
            // moved when the segment is collected.
            places.clear();
        }
        // The places fill the rest of the last block of ranges, and more blocks.
        while !kept.is_empty() || !places.is_empty() {
            if mover == Mover::Collector {
                self.collector.moving_tombstones();
            }
            let ranges: Vec<Tombstone> = kept.drain(..per_block.min(kept.len())).collect();
            let places: Vec<LostPlace> = places.drain(..(per_block - ranges.len()).min(places.len())).collect();
            let data = self.spec.tombstone_block(&ranges, &places);
            let timestamp = ranges.iter().map(|range| range.timestamp).max().unwrap_or(0);
            let source = Source::MovedTombstones { from, tombstones: Tombstones { ranges, places }, mover };
            let block = Block::tombstones(source, timestamp);
            self.stripes.push(&self.spec, self.now, Stream::Relocation, block, data);
            blocks += 1;
        }
        blocks
    }

    /// Of the places that some tombstones of a segment name those that no others do, as long as they exist.
    fn places_to_move(&mut self, from: SegmentIndex, found: &Tombstones) -> Vec<LostPlace> {
        if found.places.is_empty() {
            return Vec::new();
        }
        let mut places = self.lost_places.held_by(from, &self.segments);
        let found: BTreeSet<LostPlace> = found.places.iter().copied().collect();
        places.retain(|place| found.contains(place));
        places
    }
}
