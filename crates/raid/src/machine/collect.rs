//! Garbage collection: live blocks of a segment are moved, then its zones are reset.
//!
//! It starts while there is still room, and while there is little, hosts write as much as it wins back: latency has no cliff.

use std::collections::BTreeSet;

use bytes::Bytes;
use zonda_zoned::{Instant, Status};

use super::Volume;
use super::commit::is_special;
use super::read::Purpose;
use super::write::{Block, Source, Ticket};
use crate::MemberIndex;
use crate::config::Victim;
use crate::format::{Record, Tombstone, read_tombstones, tombstones_per_block, write_tombstones};
use crate::limits::{RELOCATED_BLOCKS_MAX, RELOCATION_SEGMENTS};
use crate::shape::Stream;
use crate::tables::{Address, Location, Physical, Segment, SegmentIndex, SegmentState};

/// What is being collected.
#[derive(Debug, Default)]
pub(super) struct Collector {
    current: Option<Current>,
    /// Segments that may have become empty, or need to be emptied.
    candidates: BTreeSet<SegmentIndex>,
    /// Blocks that wait in stripes.
    pub(super) waiting_blocks: u32,
    /// Blocks that hosts may write, in units of 1/1024.
    credits: u64,
}

#[derive(Debug)]
struct Current {
    segment: SegmentIndex,
    member: u8,
    entry: u32,
    tombstone: usize,
    /// Tombstones that were read: those of several blocks go to one.
    tombstones: Vec<Tombstone>,
    /// Fetches under way, and those of them that are of tombstones.
    fetching: u32,
    fetching_tombstones: u32,
    /// Blocks of the segment, and those that were live when it was chosen.
    all: u64,
    live: u64,
    /// Something could not be read: the segment stays as it is.
    has_lost: bool,
}

/// One block of credit.
const CREDIT: u64 = 1024;
/// Blocks of credit that are kept.
const CREDIT_BLOCKS_MAX: u64 = 4096;

impl Collector {
    /// Something about a segment has changed.
    pub(super) fn look_at(&mut self, index: SegmentIndex) {
        self.candidates.insert(index);
    }

    pub(super) fn segment(&self) -> Option<SegmentIndex> {
        self.current.as_ref().map(|current| current.segment)
    }
}

impl Volume {
    /// Free segments below which collection begins.
    pub(super) fn low_segments(&self) -> u32 {
        let zones = |member: MemberIndex| {
            let member = &self.members[member.as_usize()];
            member.geometry.zone_count - member.retired_zones.len() as u32
        };
        let total: u32 = self.present().map(zones).min().unwrap_or(0);
        let reserve = total.saturating_sub(self.needed_segments() + crate::limits::METADATA_ZONES);
        // No more than can be free while segments are open, or collection would never end.
        let tuning = &self.config.tuning;
        let open = u32::from(tuning.small_segments) + u32::from(tuning.large_segments) + 1;
        let most = reserve.saturating_sub(open).max(RELOCATION_SEGMENTS + 1);
        (RELOCATION_SEGMENTS + 2 + reserve / 4).min(most)
    }

    /// Segments that all blocks of hosts take, if none of them held anything else.
    pub(super) fn needed_segments(&self) -> u32 {
        (self.map.len() as u64).div_ceil(self.shape.segment_blocks()) as u32
    }

    /// Whether the next stripe of a stream may be written.
    pub(super) fn may_write(&self, stream: Stream) -> bool {
        stream == Stream::Relocation
            || self.free_segments() >= self.low_segments()
            || self.collector.credits >= self.stripe_cost(stream)
            // With nothing to be won back, what room there is, is for hosts.
            || (self.collector.current.is_none() && self.collector.waiting_blocks == 0)
    }

    /// A stripe is written.
    pub(super) fn pay(&mut self, stream: Stream) {
        if stream != Stream::Relocation && self.free_segments() < self.low_segments() {
            let cost = self.stripe_cost(stream);
            self.collector.credits = self.collector.credits.saturating_sub(cost);
        }
    }

    fn stripe_cost(&self, stream: Stream) -> u64 {
        self.shape.stripe_blocks(stream) as u64 * CREDIT
    }

    fn earn(&mut self, blocks_1024: u64) {
        let (free, low) = (u64::from(self.free_segments()), u64::from(self.low_segments()));
        // Twice as much where there is room, less where there is none: free segments settle at half of the mark.
        let earned = blocks_1024 * (free * 2).max(low / 4) / low.max(1);
        self.collector.credits = (self.collector.credits + earned).min(CREDIT_BLOCKS_MAX * CREDIT);
    }

    pub(super) fn pump_collector(&mut self) {
        self.reset_empty();
        if self.collector.current.is_none()
            && let Some(victim) = self.choose()
        {
            let segment = &mut self.segments[victim];
            segment.is_pinned = true;
            let all = self.shape.data_blocks(&segment.layout);
            let live = u64::from(segment.live_blocks);
            self.collector.current = Some(Current {
                segment: victim,
                member: 0,
                entry: 0,
                tombstone: 0,
                tombstones: Vec::new(),
                fetching: 0,
                fetching_tombstones: 0,
                all,
                live,
                has_lost: false,
            });
            if live == 0 {
                self.earn(all * CREDIT);
            }
        }
        self.move_blocks();
        self.end_if_moved();
    }

    /// Something in a segment is wrong: the rest of it is moved soon.
    pub(super) fn suspect_segment(&mut self, index: SegmentIndex) {
        self.segments[index].is_suspect = true;
        self.segments.doubt(index);
    }

    /// Whoever needed a segment to stay as it is needs it no more.
    pub(super) fn reader_left(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        segment.readers -= 1;
        if segment.readers == 0 && segment.live_blocks == 0 {
            self.collector.look_at(index);
        }
    }

    /// Resets segments in which nothing is left.
    pub(super) fn reset_empty(&mut self) {
        while let Some(index) = self.collector.candidates.pop_first() {
            let Some(segment) = self.segments.get(index) else { continue };
            let is_empty = segment.state == SegmentState::Sealed
                && segment.live_blocks == 0
                && segment.readers == 0
                && segment.tombstones.is_empty()
                && !segment.is_pinned;
            if is_empty {
                self.reset_segment(index);
            }
        }
    }

    fn choose(&self) -> Option<SegmentIndex> {
        let present = self.present_bits();
        let may = |segment: &Segment| {
            let is_free = !segment.is_pinned && !segment.has_lost && segment.readers == 0;
            segment.state == SegmentState::Sealed && is_free
        };
        // Zones that are lost on members that are there, blocks that are damaged: the rest of these segments is moved while it can
        // be read.
        let is_urgent = |segment: &Segment| {
            let is_degraded = segment.lost & present != 0 && !self.is_rebuilding_segment(segment);
            (is_degraded || segment.is_suspect) && (segment.live_blocks > 0 || !segment.tombstones.is_empty())
        };
        let urgent = self.segments.doubtful().find(|(_, segment)| may(segment) && is_urgent(segment));
        if let Some((index, _)) = urgent {
            return Some(index);
        }
        if self.free_segments() >= self.low_segments() {
            return None;
        }
        let worth = |segment: &Segment| {
            // Tombstones are written as close together as they fit, and what is moved fills whole stripes.
            let per_block = tombstones_per_block(self.shape.block_bytes as u32) as u32;
            let tombstones = segment.tombstone_ranges.div_ceil(per_block).min(segment.tombstones.len() as u32);
            let live = u64::from(segment.live_blocks) + u64::from(tombstones);
            self.shape
                .data_blocks(&segment.layout)
                .saturating_sub(live.next_multiple_of(self.shape.stripe_blocks(Stream::Relocation) as u64))
        };
        let candidates: Vec<_> =
            self.segments.iter().filter(|(_, segment)| may(segment) && worth(segment) > 0).collect();
        // Less than a segment in all: moving blocks to and fro would win nothing.
        let blocks = self.shape.data_blocks(self.shape.layout(Stream::Relocation));
        if candidates.iter().map(|(_, segment)| worth(segment)).sum::<u64>() < blocks {
            return None;
        }
        match self.config.tuning.victim {
            Victim::Greedy => {
                candidates.into_iter().max_by_key(|(index, segment)| (worth(segment), std::cmp::Reverse(*index)))
            }
            Victim::CostBenefit => candidates.into_iter().max_by_key(|(index, segment)| {
                let all = u128::from(self.shape.data_blocks(&segment.layout));
                let live = all - u128::from(worth(segment));
                let age = u128::from(age(self.now, segment.filled_at));
                (all.saturating_sub(live) * age * 1024 / (all + live), std::cmp::Reverse(*index))
            }),
        }
        .map(|(index, _)| index)
    }

    fn move_blocks(&mut self) {
        loop {
            let Some(current) = &mut self.collector.current else { return };
            let most = RELOCATED_BLOCKS_MAX.max(2 * self.shape.stripe_blocks(Stream::Relocation)) as u32;
            if self.collector.waiting_blocks + current.fetching * 8 >= most {
                return;
            }
            let index = current.segment;
            let segment = &self.segments[index];
            if current.tombstone < segment.tombstones.len() {
                let place = segment.tombstones[current.tombstone];
                current.tombstone += 1;
                current.fetching += 1;
                current.fetching_tombstones += 1;
                self.fetch(place, 1, Purpose::MoveTombstones);
                continue;
            }
            if usize::from(current.member) == self.members.len() {
                return;
            }
            let member = MemberIndex(current.member);
            let Some(entry) = segment.next_live(member, current.entry) else {
                current.member += 1;
                current.entry = 0;
                continue;
            };
            // Live blocks that follow in the same slot come with it.
            let payload = segment.layout.payload_blocks();
            let end = (entry - entry % payload) + payload;
            let offset = segment.layout.offset_of_entry(entry);
            let blocks =
                (entry..end).take_while(|&entry| segment.is_live(member, segment.layout.offset_of_entry(entry)));
            let blocks = blocks.count() as u32;
            current.entry = entry + blocks;
            current.fetching += 1;
            self.fetch(Physical { segment: index, member, offset }, blocks, Purpose::Move);
        }
    }

    /// Live blocks of the segment have been read.
    pub(super) fn on_moved_read(&mut self, place: Physical, blocks: Vec<Result<(Bytes, Record), Status>>) {
        let Some(current) = &mut self.collector.current else { return };
        current.fetching -= 1;
        let (all, live) = (current.all, current.live);
        for (at, block) in blocks.into_iter().enumerate() {
            let from = Physical { offset: place.offset + at as u32, ..place };
            match block {
                Ok((data, record)) => {
                    self.move_block(from, record, data, Ticket::Collector);
                    self.earn((all - live) * CREDIT / live.max(1));
                }
                Err(_) => {
                    if self.segments[from.segment].is_live(from.member, from.offset) {
                        self.counters.lost_blocks += 1;
                        self.collector.current.as_mut().expect("it is current").has_lost = true;
                    }
                }
            }
        }
    }

    /// Writes a block to where moved ones go, if it is still needed; says whether it is.
    pub(super) fn move_block(&mut self, from: Physical, record: Record, data: Bytes, ticket: Ticket) -> bool {
        let address = Address::media(from);
        if is_special(record.lba) || !self.segments[from.segment].is_live(from.member, from.offset) {
            return false;
        }
        match ticket {
            Ticket::Collector => {
                self.collector.waiting_blocks += 1;
                self.counters.relocated_blocks += 1;
            }
            // Its segment stays until the block has arrived: the address must not come to mean another block.
            Ticket::Mend => self.segments[from.segment].readers += 1,
            Ticket::Start => {}
        }
        self.push_block(Self::MOVED_TO, Block::moved(record.lba, record.timestamp, address, ticket), data);
        true
    }

    pub(super) fn on_moved_tombstones(&mut self, place: Physical, block: Result<Bytes, Status>) {
        let Some(current) = &mut self.collector.current else { return };
        current.fetching -= 1;
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
            self.move_tombstones(place.segment, &tombstones, Ticket::Collector);
        }
    }

    /// Writes anew what is still needed of some tombstones; says how many blocks that takes.
    pub(super) fn move_tombstones(&mut self, from: SegmentIndex, found: &[Tombstone], ticket: Ticket) -> u64 {
        let mut blocks = 0;
        let mut kept: Vec<Tombstone> = Vec::new();
        for range in found {
            for lba in range.lbas() {
                let is_needed = match self.map.get(lba as usize).map(|entry| entry.location()) {
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
        for tombstones in kept.chunks(tombstones_per_block(self.shape.block_bytes as u32)) {
            if ticket == Ticket::Collector {
                self.collector.waiting_blocks += 1;
            }
            let data = self.tombstone_block(tombstones);
            let timestamp = tombstones.iter().map(|range| range.timestamp).max().unwrap_or(0);
            let source = Source::MovedTombstones { from, tombstones: tombstones.to_vec(), ticket };
            self.push_block(Self::MOVED_TO, Block::tombstones(source, timestamp), data);
            blocks += 1;
        }
        blocks
    }

    pub(super) fn tombstone_block(&self, tombstones: &[Tombstone]) -> Bytes {
        if !self.has_contents() {
            return Bytes::new();
        }
        let mut out = bytes::BytesMut::zeroed(self.shape.block_bytes);
        write_tombstones(tombstones, &mut out);
        out.freeze()
    }

    fn end_if_moved(&mut self) {
        let Some(current) = &self.collector.current else { return };
        let segment = &self.segments[current.segment];
        let is_read = usize::from(current.member) == self.members.len()
            && current.tombstone == segment.tombstones.len()
            && current.fetching == 0;
        if !is_read {
            return;
        }
        if self.collector.waiting_blocks > 0 {
            // Nobody else may come to fill the stripe.
            return self.pad(Self::MOVED_TO);
        }
        let (index, has_lost) = (current.segment, current.has_lost);
        if has_lost {
            self.collector.current = None;
            // What can be read in it can still be read; when all of it is written anew by hosts, it goes.
            let segment = &mut self.segments[index];
            (segment.is_pinned, segment.has_lost) = (false, true);
            self.collector.look_at(index);
            return;
        }
        if segment.live_blocks > 0 || segment.readers > 0 {
            // A read is under way. Nothing can have come to life: the segment is sealed.
            return;
        }
        self.collector.current = None;
        let segment = &mut self.segments[index];
        segment.is_pinned = false;
        segment.tombstones.clear();
        self.reset_segment(index);
    }
}

fn age(now: Instant, since: Instant) -> u64 {
    now.since(since).as_nanos() / 1000 + 1
}
