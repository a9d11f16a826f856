//! Garbage collection, part of the volume: what it reads, and where that is written.

use std::collections::BTreeSet;

use bytes::Bytes;
use zonda_zoned::{Instant, Status};

use super::address::{Address, Location};
use super::collector::{Urgency, victim};
use super::stripes::{Block, Mover, Source};
use super::{Space, Volume};
use crate::bug::SeededBug;
use crate::format::{LostPlace, Record, Tombstone, Tombstones, read_tombstones, tombstones_per_block};
use crate::shape::Stream;
use crate::tables::{Physical, SegmentIndex};

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
                        let checks_first = self.checks_first(victim);
                        self.collector.begin(&self.spec, &mut self.segments, victim, urgency);
                        if checks_first {
                            self.collector.check_first(&self.segments);
                        }
                        let is_unseen = self.is_still_to_be_scrubbed(self.segments[victim].sequence);
                        if self.spec.has_contents() && (is_unseen || self.spec.config.tuning.reads_unneeded) {
                            self.collector.read_unneeded();
                            self.collector.expedite();
                            self.scrub_waits_for(victim);
                        }
                    }
                    None if self.collector.is_idle() => self.collector.set_idle(),
                    // Nothing else will fill the stripe.
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

    fn choose_victim(&mut self) -> Option<(SegmentIndex, Urgency)> {
        if !self.is_ready() {
            // Before hosts come, there is no pace to keep.
            return self.victim_at_mount().map(|index| (index, Urgency::Immediate));
        }
        // The choice examines all segments, and is requested with each event.
        if !victim::is_needed(self.space(), &self.segments) {
            return None;
        }
        let most = self.fitting_blocks();
        victim::choose(self.space(), &self.segments, &self.stripes, self.collector.is_idle(), most, self.now)
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

    /// A stripe was written.
    pub(super) fn charge(&mut self, stream: Stream) {
        let is_ready = self.is_ready();
        let Volume { spec, members, collector, now, .. } = self;
        collector.charge(Space::new(spec, members, is_ready), *now, stream);
    }

    /// When collection continues without host writes, if that is what it waits for.
    pub(super) fn collection_due(&self) -> Option<Instant> {
        self.collector.due(&self.spec, self.stripes.buffered_blocks(), self.now)
    }

    /// Free blocks in the open segments for moved blocks.
    pub(super) fn space_for_moves(&self) -> u64 {
        victim::space_for_moves(&self.spec, &self.segments, &self.stripes)
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
            let is_movable = match block {
                Ok((_, record)) if self.collector.is_checking() => self.is_movable(from, record),
                Ok((data, record)) => self.move_block(from, record, data, Mover::Collector),
                Err(_) => false,
            };
            if !is_movable {
                self.found_unreadable(from, None);
                self.collector.block_lost();
            }
        }
    }

    /// Moves a block, if it is still needed and is the version that the map refers to; returns
    /// whether it is.
    pub(super) fn move_block(&mut self, from: Physical, record: Record, data: Bytes, mover: Mover) -> bool {
        if !self.is_movable(from, record) {
            return false;
        }
        let address = Address::media(from);
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

    /// Whether a block is still needed and is the version that the map refers to.
    fn is_movable(&mut self, from: Physical, record: Record) -> bool {
        self.segments[from.segment].is_live(from.member, from.offset)
            && self.map.refers_to(&mut self.stripes, record.lba, Address::media(from))
            // A mount would find both, and the marker may have the later timestamp.
            && !self.losses.is_being_recorded(from)
    }

    pub(super) fn on_moved_tombstones(&mut self, place: Physical, block: Result<Bytes, Status>) {
        let mut found = block.ok().and_then(|data| read_tombstones(&data));
        if found.is_none() && self.spec.has_contents() && self.is_ready() {
            // The map knows the contents of these tombstones; once per segment is enough.
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

    /// Rewrites the tombstones that are still needed; returns the number of blocks.
    ///
    /// A tombstone is needed while it is the newest durable version of its block: older versions
    /// may be on any member, also on one that is absent or being rebuilt, and in segments that are
    /// not reset, and a mount that does not find the tombstone would take one of these for the
    /// newest. Once a newer version is durable, a mount finds that one instead, whatever older
    /// versions it finds, and the version itself stays until a newer one is durable. A version in
    /// flight does not count: it may be withdrawn, and a crash may come first. So what counts is
    /// the durable version, and of several tombstones of a block in one segment the latest: the map
    /// refers to it, and if an earlier one were moved as well, to another segment, the map might
    /// refer to that one, and the latest would be dropped.
    pub(super) fn move_tombstones(&mut self, from: SegmentIndex, found: &Tombstones, mover: Mover) -> u64 {
        let mut blocks = 0;
        let mut kept: Vec<Tombstone> = Vec::new();
        for range in found.newest_ranges() {
            for lba in range.lbas() {
                let is_needed = match self.map.durable_location(&self.stripes, lba) {
                    Some(Location::Trimmed { segment }) => !range.is_lost && segment == from,
                    Some(Location::Lost { segment }) => {
                        range.is_lost && segment == from && !self.spec.has(SeededBug::DroppedMarker)
                    }
                    _ => false,
                };
                if is_needed {
                    range.add_block(lba, &mut kept);
                }
            }
        }
        let mut places = self.places_to_move(from, found);
        let per_block = tombstones_per_block(self.spec.shape.block_bytes as u32);
        if mover == Mover::Mount && kept.len() + places.len() > per_block {
            // They come from one block of a stripe that may be cut shorter: a place must not
            // outlast the range of its marker. They are moved when the segment is collected.
            places.clear();
        }
        // The places fill the rest of the last block of ranges, and further blocks.
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

    /// The places that some tombstones of a segment name and no others do, as long as they exist.
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

#[cfg(test)]
mod tests {
    use zonda_zoned::{Blocks, Geometry, Prng};

    use super::*;
    use crate::testing::{Drive, Request, Simulation};
    use crate::{Level, Scheme, VolumeConfig};

    /// A volume in which a block was written and trimmed, and the segment of its tombstone.
    fn trimmed(lba: u64) -> (Simulation, SegmentIndex) {
        let zone_blocks = Blocks(64);
        let geometry = Geometry {
            metadata_bytes: 64,
            zone_size_blocks: zone_blocks,
            zone_capacity_blocks: zone_blocks,
            zone_count: 24,
            ..Geometry::tiny()
        };
        let drives = (0..2).map(|at| Drive::new(geometry.clone(), Prng::new(at))).collect();
        let config = VolumeConfig::new("small", Scheme { level: Level::Raid1, data: 1, parity: 1 });
        let mut simulation = Simulation::create(config, drives, Prng::new(2)).expect("the drives suit");
        simulation.submit(&Request::Write { start: lba, blocks: 1 }).unwrap();
        simulation.quiesce().unwrap();
        simulation.submit(&Request::Trim(vec![(lba, 1)])).unwrap();
        simulation.quiesce().unwrap();
        let Location::Trimmed { segment } = simulation.volume.map.location(lba) else { panic!("it was trimmed") };
        (simulation, segment)
    }

    /// The ranges of these tombstones that are moved out of a segment.
    fn moved(volume: &mut Volume, from: SegmentIndex, ranges: &[Tombstone]) -> Vec<Tombstone> {
        let found = Tombstones { ranges: ranges.to_vec(), places: Vec::new() };
        if volume.move_tombstones(from, &found, Mover::Repair) == 0 {
            return Vec::new();
        }
        let stripe = volume.stripes.is_filling(Stream::Relocation).expect("it waits for more blocks");
        match &volume.stripes[stripe].blocks.last().expect("it was added").source {
            Source::MovedTombstones { tombstones, .. } => tombstones.ranges.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tombstone_is_moved_if_the_newest_durable_version_of_its_block_is_in_its_segment() {
        const LBA: u64 = 5;
        let (mut simulation, segment) = trimmed(LBA);
        let range = |timestamp| Tombstone { lba: LBA, blocks: 1, timestamp, is_lost: false };
        assert_eq!(moved(&mut simulation.volume, segment, &[range(2)]), [range(2)]);
        assert_eq!(
            moved(&mut simulation.volume, SegmentIndex(segment.0 + 1), &[range(2)]),
            [],
            "it is in another segment"
        );
        assert_eq!(
            moved(&mut simulation.volume, segment, &[Tombstone { is_lost: true, ..range(2) }]),
            [],
            "a marker does not count"
        );
        simulation.submit(&Request::Write { start: LBA, blocks: 1 }).unwrap();
        assert_eq!(moved(&mut simulation.volume, segment, &[range(2)]), [range(2)], "a crash needs it until then");
        simulation.quiesce().unwrap();
        assert_eq!(moved(&mut simulation.volume, segment, &[range(2)]), [], "the write is durable");
        simulation.submit(&Request::Write { start: LBA, blocks: 1 }).unwrap();
        assert_eq!(moved(&mut simulation.volume, segment, &[range(2)]), [], "and it is if it is written once more");
    }

    #[test]
    fn of_two_tombstones_of_a_block_in_a_segment_the_later_one_is_moved_alone() {
        let (mut simulation, segment) = trimmed(5);
        let range = |timestamp| Tombstone { lba: 5, blocks: 1, timestamp, is_lost: false };
        assert_eq!(moved(&mut simulation.volume, segment, &[range(2), range(4), range(3)]), [range(4)]);
    }
}
