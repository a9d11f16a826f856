//! Garbage collection: live blocks of a segment are moved, then its zones are reset.
//!
//! Which segment is next is in `victim.rs`, how fast it goes in `pace.rs`.

use bytes::Bytes;
use zonda_zoned::Status;

use super::Volume;
use super::pace::Pace;
use super::reads::Purpose;
use super::stripes::{Block, Mover, Source};
use crate::MemberIndex;
use crate::format::{Record, Tombstone, read_tombstones, tombstones_per_block};
use crate::limits::RELOCATED_BLOCKS_MAX;
use crate::shape::Stream;
use crate::tables::{Address, Location, Physical, Segment, SegmentIndex};

/// What is being collected.
#[derive(Debug, Default)]
pub(super) struct Collector {
    current: Option<Current>,
    /// A segment that is read to its end while its last blocks wait for others to fill their stripe.
    emptied: Option<SegmentIndex>,
    /// Blocks that wait in stripes.
    pub(super) waiting_blocks: u32,
    pub(super) pace: Pace,
}

#[derive(Debug)]
struct Current {
    segment: SegmentIndex,
    /// The next entry of each member that may be live.
    entries: Vec<u32>,
    /// All members are read to their ends.
    is_read: bool,
    tombstone: usize,
    /// Tombstones that were read: those of several blocks go to one.
    tombstones: Vec<Tombstone>,
    /// Fetches in flight, and those of them that are of tombstones.
    fetching: u32,
    fetching_tombstones: u32,
    /// Blocks that the fetches are of.
    fetching_blocks: u32,
    /// What it lacks is to be made good soon, whatever is free.
    is_urgent: bool,
    /// Something could not be read: the segment stays as it is.
    has_lost: bool,
}

impl Collector {
    /// Whether a segment is being collected.
    pub(super) fn has(&self, index: SegmentIndex) -> bool {
        self.current.as_ref().is_some_and(|current| current.segment == index) || self.emptied == Some(index)
    }

    /// Whether there is more to be read of one.
    pub(super) fn has_more(&self) -> bool {
        self.current.as_ref().is_some_and(|current| !current.is_read)
    }

    /// Whether it waits for blocks to be read.
    pub(super) fn is_fetching(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.fetching > 0)
    }

    /// A segment that waits for its last blocks to arrive.
    pub(super) fn emptied(&self) -> Option<SegmentIndex> {
        self.emptied
    }

    /// Whether none is.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.emptied.is_none()
    }

    /// A block that was moved is durable where it is now.
    pub(super) fn arrived(&mut self) {
        self.waiting_blocks -= 1;
        self.pace.moved_one();
    }
}

impl Volume {
    pub(super) fn pump_collector(&mut self) {
        loop {
            self.segments.reset_empty(&self.spec, &mut self.members);
            if self.collector.current.is_none() {
                let chosen = self.choose_victim();
                let is_in_need = chosen.is_none() && self.needs_collection();
                self.segments.set_awaited(is_in_need);
                match chosen {
                    Some((victim, is_urgent)) => self.begin_collecting(victim, is_urgent),
                    None if self.collector.is_idle() => self.collector.pace.rest(),
                    // Nobody else may come to fill the stripe.
                    None => self.stripes.pad(&self.spec, Stream::Relocation),
                }
            }
            self.move_blocks();
            if !self.end_if_moved() {
                return;
            }
        }
    }

    fn begin_collecting(&mut self, victim: SegmentIndex, is_urgent: bool) {
        self.segments.pin(victim);
        let segment = &self.segments[victim];
        self.collector.pace.begin(self.spec.shape.data_blocks(&segment.layout), u64::from(segment.live_blocks));
        self.collector.current = Some(Current {
            segment: victim,
            entries: vec![0; self.spec.members()],
            is_read: false,
            tombstone: 0,
            tombstones: Vec::new(),
            fetching: 0,
            fetching_tombstones: 0,
            fetching_blocks: 0,
            is_urgent,
            has_lost: false,
        });
    }

    fn move_blocks(&mut self) {
        let most = RELOCATED_BLOCKS_MAX.max(3 * self.spec.shape.stripe_blocks(Stream::Relocation)) as u32;
        while let Some(current) = self.collector.current.as_ref().filter(|current| !current.is_read) {
            let in_flight = self.collector.waiting_blocks + current.fetching_blocks;
            let may_move = in_flight < most && (current.is_urgent || self.may_move(in_flight));
            match self.next_moved() {
                None => self.current().is_read = true,
                Some(_) if !may_move => return,
                Some((place, 0)) => self.fetch_moved(place, 1, Purpose::MoveTombstones),
                Some((place, blocks)) => self.fetch_moved(place, blocks, Purpose::Move),
            }
        }
    }

    /// What is to be read next, and how many blocks of it; none if it is tombstones.
    fn next_moved(&mut self) -> Option<(Physical, u32)> {
        let current = self.collector.current.as_mut().expect("a segment is being collected");
        let index = current.segment;
        let segment = &self.segments[index];
        if let Some(&place) = segment.tombstones.get(current.tombstone) {
            return Some((place, 0));
        }
        // Slot by slot over all members, so that each has a part of the work.
        let payload = segment.layout.payload_blocks();
        let mut next: Option<(u32, MemberIndex, u32)> = None;
        for (member, from) in (0..).map(MemberIndex).zip(&mut current.entries) {
            *from = segment.next_live(member, *from).unwrap_or(u32::MAX);
            if *from != u32::MAX && next.is_none_or(|(slot, ..)| *from / payload < slot) {
                next = Some((*from / payload, member, *from));
            }
        }
        let (slot, member, entry) = next?;
        // Live blocks that follow in the same slot come with it.
        let is_live = |entry: &u32| segment.is_live(member, segment.layout.offset_of_entry(*entry));
        let blocks = (entry..(slot + 1) * payload).take_while(is_live).count() as u32;
        Some((Physical { segment: index, member, offset: segment.layout.offset_of_entry(entry) }, blocks))
    }

    fn current(&mut self) -> &mut Current {
        self.collector.current.as_mut().expect("a segment is being collected")
    }

    fn fetch_moved(&mut self, place: Physical, blocks: u32, purpose: Purpose) {
        let entry = self.segments[place.segment].layout.entry_of(place.offset);
        let current = self.current();
        current.fetching += 1;
        current.fetching_blocks += blocks;
        if purpose == Purpose::MoveTombstones {
            current.tombstone += 1;
            current.fetching_tombstones += 1;
        } else {
            current.entries[place.member.as_usize()] = entry + blocks;
        }
        self.fetch(place, blocks, purpose);
    }

    /// Live blocks of the segment have been read.
    pub(super) fn on_moved_read(&mut self, place: Physical, blocks: Vec<Result<(Bytes, Record), Status>>) {
        let Some(current) = &mut self.collector.current else { return };
        current.fetching -= 1;
        current.fetching_blocks -= blocks.len() as u32;
        for (at, block) in blocks.into_iter().enumerate() {
            let from = Physical { offset: place.offset + at as u32, ..place };
            if !self.segments[from.segment].is_live(from.member, from.offset) {
                if block.is_ok() {
                    self.collector.pace.moved_one();
                }
                continue;
            }
            let is_moved = block.is_ok_and(|(data, record)| self.move_block(from, record, data, Mover::Collector));
            if !is_moved {
                self.counters.lost_blocks += 1;
                self.collector.current.as_mut().expect("it is current").has_lost = true;
            }
        }
    }

    /// Writes a block to where moved ones go, if it is still needed, and is what the map takes it for; says whether it is.
    pub(super) fn move_block(&mut self, from: Physical, record: Record, data: Bytes, mover: Mover) -> bool {
        let address = Address::media(from);
        if !self.segments[from.segment].is_live(from.member, from.offset)
            || !self.map.refers_to(&mut self.stripes, record.lba, address)
        {
            return false;
        }
        let sequence = self.segments[from.segment].sequence;
        match mover {
            Mover::Collector => {
                self.collector.waiting_blocks += 1;
                self.counters.relocated_blocks += 1;
            }
            Mover::Repair => self.segments.add_reader(from.segment),
            Mover::Mount => {}
        }
        let block = Block::moved(record.lba, record.timestamp, address, sequence, mover);
        self.stripes.push(&self.spec, self.now, Stream::Relocation, block, data);
        true
    }

    pub(super) fn on_moved_tombstones(&mut self, place: Physical, block: Result<Bytes, Status>) {
        let Some(current) = &mut self.collector.current else { return };
        current.fetching -= 1;
        current.fetching_blocks -= 1;
        current.fetching_tombstones -= 1;
        match block.ok().and_then(|data| read_tombstones(&data)) {
            Some(found) => current.tombstones.extend(found),
            None => {
                current.has_lost = true;
                self.counters.lost_blocks += 1;
            }
        }
        let is_last =
            current.fetching_tombstones == 0 && current.tombstone == self.segments[place.segment].tombstones.len();
        if is_last {
            let tombstones = std::mem::take(&mut current.tombstones);
            self.move_tombstones(place.segment, &tombstones, Mover::Collector);
        }
    }

    /// Writes anew what is still needed of some tombstones; says how many blocks that takes.
    pub(super) fn move_tombstones(&mut self, from: SegmentIndex, found: &[Tombstone], mover: Mover) -> u64 {
        let mut blocks = 0;
        let mut kept: Vec<Tombstone> = Vec::new();
        for range in found {
            for lba in range.lbas() {
                let is_needed = match self.map.location_if_any(lba) {
                    Some(Location::Trimmed { segment }) => segment == from,
                    // A newer version is on its way: until it is durable a crash needs the tombstone.
                    Some(Location::Buffered { .. }) => true,
                    _ => false,
                };
                if !is_needed {
                    continue;
                }
                match kept.last_mut() {
                    Some(last) if last.lbas().end == lba && last.timestamp == range.timestamp => {
                        last.blocks += 1;
                    }
                    _ => kept.push(Tombstone { lba, blocks: 1, timestamp: range.timestamp }),
                }
            }
        }
        for tombstones in kept.chunks(tombstones_per_block(self.spec.shape.block_bytes as u32)) {
            if mover == Mover::Collector {
                self.collector.waiting_blocks += 1;
            }
            let data = self.spec.tombstone_block(tombstones);
            let timestamp = tombstones.iter().map(|range| range.timestamp).max().unwrap_or(0);
            let source = Source::MovedTombstones { from, tombstones: tombstones.to_vec(), mover };
            let block = Block::tombstones(source, timestamp);
            self.stripes.push(&self.spec, self.now, Stream::Relocation, block, data);
            blocks += 1;
        }
        blocks
    }

    /// Says whether another segment may be chosen.
    fn end_if_moved(&mut self) -> bool {
        if let Some(index) = self.collector.emptied.take_if(|index| is_unneeded(&self.segments[*index])) {
            self.end_collecting(index);
        }
        let Some(current) = self.collector.current.as_ref().filter(|current| current.is_read) else { return false };
        if current.fetching > 0 {
            return false;
        }
        let (index, has_lost) = (current.segment, current.has_lost);
        let segment = &self.segments[index];
        // Tombstones do not tell whether they have arrived. What else is on its way comes with blocks of the next segment.
        let has_to_wait = has_lost || !segment.tombstones.is_empty() || self.collector.emptied.is_some();
        if has_to_wait && self.collector.waiting_blocks > 0 {
            let filling = self.stripes.filling_blocks(Stream::Relocation);
            if self.collector.waiting_blocks as usize <= filling {
                // Nobody else comes to fill the stripe.
                self.stripes.pad(&self.spec, Stream::Relocation);
            }
            return false;
        }
        if has_lost {
            // What can be read in it can still be read; when all of it is rewritten by hosts, it goes.
            self.segments.set_lost(index);
            self.segments.unpin(index, false);
        } else if is_unneeded(segment) {
            self.end_collecting(index);
        } else if self.collector.waiting_blocks > 0 {
            self.collector.emptied = Some(index);
        } else {
            // A read is in flight. Nothing can have come to life: the segment is sealed.
            return false;
        }
        self.collector.current = None;
        true
    }

    fn end_collecting(&mut self, index: SegmentIndex) {
        self.segments.drop_all_tombstones(index);
        self.segments.unpin(index, false);
        self.segments.reset(&self.spec, &mut self.members, index);
    }
}

fn is_unneeded(segment: &Segment) -> bool {
    segment.live_blocks == 0 && segment.readers == 0
}
