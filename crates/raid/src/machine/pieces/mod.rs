//! Pieces: runs of stripes of one segment, read from its members in large reads, for rebuilds and
//! scrubs.
//!
//! Within a group each member has its own order. Where whole groups fit a piece, their regions are
//! read sequentially; of larger groups some stripes are chosen, and their chunks are read
//! individually.

mod arrive;
mod running;

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_zoned::{Blocks, Duration, Instant, Key, Operation};

use super::Volume;
use super::members::{RETRY_AFTER, Work};
use super::reads::Singly;
use crate::MemberIndex;
use crate::format::RECORD_BYTES;
use crate::limits::PIECE_BLOCKS_MAX;
use crate::shape::bits;
use crate::tables::{Segment, SegmentIndex};

pub(super) use running::Pieces;

/// A run of stripes that is being read.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) segment: SegmentIndex,
    pub(super) run: Run,
    pub(super) owner: Owner,
    /// Members that are read, as bits.
    pub(super) requested: u32,
    /// Its stripes, in ascending order.
    stripes: Vec<u32>,
    /// Reads in flight.
    pending: u32,
    /// Remaining retries: an error that is not a medium error may be transient.
    retries: u8,
    /// Reads that have failed too often: member, first slot and number of slots. They may succeed
    /// later.
    failed: Vec<(MemberIndex, u32, u32)>,
    /// When these are retried, if the piece waits for them.
    retry_at: Option<Instant>,
    /// Its owner does not need it any more.
    is_abandoned: bool,
    /// Slots that are read block by block, by member and slot.
    singly: BTreeMap<(u8, u32), Singly>,
    /// By stripe and member. Chunks of members that were not read, or did not answer, are absent.
    chunks: BTreeMap<(u32, u8), Chunk>,
}

/// A piece in progress.
pub(super) type PieceKey = Key<Piece>;

/// Read retries of a piece.
const RETRIES_MAX: u8 = 16;

/// The owner of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Slots of the run are slots of this member, which is being rebuilt.
    Rebuild(MemberIndex),
    Scrub,
}

/// Consecutive slots, or stripes where pieces do not consist of whole groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
    /// It consists of whole groups: it covers the same stripes on every member.
    is_whole_groups: bool,
}

/// A chunk as it was read.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    /// Its payload blocks; empty without contents.
    pub(super) data: Bytes,
    /// The record of each intact block.
    pub(super) records: Vec<Option<[u8; RECORD_BYTES]>>,
}

/// Limits the rate of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) next_at: Instant,
}

impl Pace {
    pub(super) fn from(now: Instant) -> Pace {
        Pace { next_at: now }
    }

    /// Accounts for blocks that are started.
    pub(super) fn spend(&mut self, now: Instant, blocks: u64, blocks_per_second: Option<u64>) {
        if let Some(rate) = blocks_per_second {
            self.next_at = self.next_at.max(now) + Duration::of_transfer(blocks, rate);
        }
    }
}

impl Run {
    pub(super) fn end(&self) -> u32 {
        self.first + self.count
    }

    /// The part of the run before `end`, where a group ends, or nothing follows.
    pub(super) fn until(self, end: u32) -> Run {
        Run { count: self.count.min(end - self.first), ..self }
    }
}

impl Chunk {
    pub(super) fn is_whole(&self) -> bool {
        self.records.iter().all(Option::is_some)
    }

    /// Whether a block is damaged, except those that look unwritten.
    pub(super) fn has_damage(&self, block_bytes: usize) -> bool {
        let is_damaged = |block: usize| {
            self.records[block].is_none() && self.block(block, block_bytes).iter().any(|&byte| byte != 0)
        };
        (0..self.records.len()).any(is_damaged)
    }

    pub(super) fn block(&self, block: usize, block_bytes: usize) -> &[u8] {
        &self.data[block * block_bytes..(block + 1) * block_bytes]
    }
}

impl Piece {
    pub(super) fn chunk(&self, stripe: u32, member: MemberIndex) -> Option<&Chunk> {
        self.chunks.get(&(stripe, member.0))
    }

    /// Whether a damaged block was read.
    pub(super) fn is_damaged(&self) -> bool {
        !self.chunks.values().all(Chunk::is_whole)
    }

    pub(super) fn stripes(&self) -> &[u32] {
        &self.stripes
    }
}

impl Volume {
    /// The run that begins at a slot or stripe, the end of the previous one.
    pub(super) fn run_from(&self, segment: &Segment, first: u32) -> Run {
        let layout = &segment.layout;
        let fitting = (PIECE_BLOCKS_MAX / (layout.unit_blocks * self.spec.members() as u32)).max(1);
        let at_once = self.slots_at_once(segment).min(fitting);
        let group = layout.group_range(first);
        if group.len() as u32 > fitting {
            return Run { first, count: at_once.min(group.end - first), is_whole_groups: false };
        }
        assert_eq!(first, group.start, "runs end with groups");
        let groups = (at_once / layout.group_stripes).max(1);
        Run { first, count: (groups * layout.group_stripes).min(layout.stripes - first), is_whole_groups: true }
    }

    /// The same where a group is not complete, or was not when it was begun: some stripes, before
    /// `end`.
    pub(super) fn run_of_stripes(&self, segment: &Segment, first: u32, end: u32) -> Run {
        let layout = &segment.layout;
        let fitting = (PIECE_BLOCKS_MAX / (layout.unit_blocks * self.spec.members() as u32)).max(1);
        let count = self.slots_at_once(segment).min(fitting).min(end.min(layout.group_range(first).end) - first);
        Run { first, count, is_whole_groups: false }
    }

    /// Slots per command.
    fn slots_at_once(&self, segment: &Segment) -> u32 {
        (self.spec.shape.transfer_blocks / segment.layout.unit_blocks).max(1)
    }

    /// Members whose zones of a segment can be read, as bits.
    pub(super) fn readable(&self, segment: SegmentIndex) -> u32 {
        let segment = &self.segments[segment];
        let can_be_read = |member: &MemberIndex| segment.has(*member) && segment.zones[member.as_usize()].is_some();
        bits(self.members.present().filter(can_be_read).map(MemberIndex::as_usize))
    }

    /// Reads a run from some members. Its owner is notified when it is complete.
    pub(super) fn start_piece(
        &mut self,
        owner: Owner,
        segment_index: SegmentIndex,
        run: Run,
        members: u32,
    ) -> PieceKey {
        self.segments.add_reader(segment_index);
        let segment = &self.segments[segment_index];
        let slots = run.first..run.end();
        let mut stripes: Vec<u32> = match owner {
            Owner::Rebuild(member) => slots.filter_map(|slot| segment.slots.stripe_at(member, slot)).collect(),
            Owner::Scrub => slots.collect(),
        };
        stripes.sort_unstable();
        let chunks = BTreeMap::new();
        let piece = Piece {
            segment: segment_index,
            run,
            owner,
            requested: 0,
            stripes,
            pending: 1,
            retries: RETRIES_MAX,
            failed: Vec::new(),
            retry_at: None,
            is_abandoned: false,
            singly: BTreeMap::new(),
            chunks,
        };
        let key = self.pieces.begin(piece);
        self.read_from(key, members);
        key
    }

    /// Reads the run from further members.
    pub(super) fn read_from(&mut self, key: PieceKey, members: u32) {
        let piece = &mut self.pieces[key];
        piece.requested |= members;
        let (segment_index, run) = (piece.segment, piece.run);
        let readable = self.readable(segment_index) & members;
        let at_once = self.slots_at_once(&self.segments[segment_index]);
        for member in (0..self.spec.members() as u8).filter(|member| readable >> member & 1 == 1).map(MemberIndex) {
            for (slot, count) in self.slots_of_run(key, member, run, at_once) {
                self.read_slots(key, member, slot, count);
            }
        }
    }

    /// The slots of a member that hold the stripes of a run, as first slots and counts.
    fn slots_of_run(&self, key: PieceKey, member: MemberIndex, run: Run, at_once: u32) -> Vec<(u32, u32)> {
        if run.is_whole_groups {
            return (run.first..run.end())
                .step_by(at_once as usize)
                .map(|slot| (slot, at_once.min(run.end() - slot)))
                .collect();
        }
        let piece = &self.pieces[key];
        let segment = &self.segments[piece.segment];
        let mut reads: Vec<(u32, u32)> = Vec::new();
        for slot in segment.layout.group_range(run.first) {
            let stripe = segment.slots.stripe_at(member, slot);
            if stripe.is_none_or(|stripe| piece.stripes.binary_search(&stripe).is_err()) {
                continue;
            }
            match reads.last_mut() {
                Some((first, count)) if *first + *count == slot && *count < at_once => *count += 1,
                _ => reads.push((slot, 1)),
            }
        }
        reads
    }

    fn read_slots(&mut self, piece: PieceKey, member: MemberIndex, slot: u32, count: u32) {
        let segment = &self.segments[self.pieces[piece].segment];
        let Some(zone) = segment.zones[member.as_usize()] else { return };
        let start = self.members[member].lba(zone, segment.layout.slot_offset(slot));
        let blocks = Blocks(u64::from(count * segment.layout.unit_blocks));
        self.pieces[piece].pending += 1;
        self.members.send(member, Work::Slots { piece, slot, count }, Operation::Read { start, blocks });
    }

    /// Reads the blocks of a slot one by one.
    fn read_slot_singly(&mut self, piece: PieceKey, member: MemberIndex, slot: u32) {
        let segment = &self.segments[self.pieces[piece].segment];
        let Some(zone) = segment.zones[member.as_usize()] else { return };
        let (first, unit) = (segment.layout.slot_offset(slot), segment.layout.unit_blocks);
        self.pieces[piece].singly.insert((member.0, slot), Singly::of(unit, unit));
        self.pieces[piece].pending += unit;
        for at in 0..unit {
            let start = self.members[member].lba(zone, first + at);
            self.members.send(
                member,
                Work::SlotBlock { piece, slot, at },
                Operation::Read { start, blocks: Blocks(1) },
            );
        }
    }

    /// A read of a piece has ended, or its setup.
    pub(super) fn piece_step(&mut self, key: PieceKey) {
        let piece = &mut self.pieces[key];
        piece.pending -= 1;
        if piece.pending > 0 {
            return;
        }
        let owner = piece.owner;
        if piece.is_abandoned {
            self.end_piece(key);
            return;
        }
        match owner {
            Owner::Rebuild(_) => self.on_rebuild_piece(key),
            Owner::Scrub => self.on_scrub_piece(key),
        }
    }

    /// Whether reads of a piece have failed for other reasons than the medium: their blocks are not
    /// lost.
    pub(super) fn may_be_readable(&self, key: PieceKey) -> bool {
        let failed = &self.pieces[key].failed;
        failed.iter().any(|(member, ..)| self.readable(self.pieces[key].segment) >> member.0 & 1 == 1)
    }

    /// Delays a piece, and then retries its failed reads.
    pub(super) fn retry_later(&mut self, key: PieceKey) {
        let piece = &mut self.pieces[key];
        piece.pending += 1;
        piece.retry_at = Some(self.now + RETRY_AFTER);
    }

    /// When reads of pieces are retried.
    pub(super) fn pieces_due(&self) -> Option<Instant> {
        self.pieces.next_retry()
    }

    /// Retries reads that are due.
    pub(super) fn retry_pieces(&mut self) {
        for key in self.pieces.due(self.now) {
            let piece = &mut self.pieces[key];
            (piece.retry_at, piece.retries) = (None, RETRIES_MAX);
            let failed = std::mem::take(&mut piece.failed);
            let readable = if piece.is_abandoned { 0 } else { self.readable(self.pieces[key].segment) };
            for (member, slot, count) in failed.into_iter().filter(|(member, ..)| readable >> member.0 & 1 == 1) {
                self.read_slots(key, member, slot, count);
            }
            self.piece_step(key);
        }
    }

    /// Reads a complete piece from further members.
    pub(super) fn read_more_from(&mut self, key: PieceKey, members: u32) {
        self.pieces[key].pending += 1;
        self.read_from(key, members);
        self.piece_step(key);
    }

    /// Ends a piece.
    pub(super) fn end_piece(&mut self, key: PieceKey) -> Piece {
        let piece = self.pieces.end(key);
        self.segments.reader_left(piece.segment);
        piece
    }

    /// A piece is not needed any more.
    pub(super) fn abandon_piece(&mut self, key: PieceKey) {
        self.pieces[key].is_abandoned = true;
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Geometry;

    use super::*;
    use crate::shape::Stream;
    use crate::{Scheme, StreamShape, VolumeConfig};

    #[test]
    fn runs_are_whole_groups_where_these_fit_in_memory_and_parts_of_a_group_otherwise() {
        let scheme = Scheme::raid5(3);
        let fitting = PIECE_BLOCKS_MAX / scheme.members() as u32;
        for group_stripes in [1, 8, fitting, fitting + 1, fitting + 100] {
            let mut config = VolumeConfig::new("test", scheme);
            config.small = StreamShape { unit_blocks: 1, group_stripes };
            let blocks = Blocks(2400);
            let geometry = Geometry {
                metadata_bytes: 64,
                zone_size_blocks: blocks,
                zone_capacity_blocks: blocks,
                zone_count: 32,
                max_active_zones: None,
                max_open_zones: None,
                ..Geometry::tiny()
            };
            let members = scheme.members();
            let ids: Vec<[u8; 16]> = (0..members as u8).map(|at| [at; 16]).collect();
            let volume =
                Volume::create(config, vec![geometry; members], [9; 16], &ids, false).expect("a valid configuration");
            let zones = vec![Some(4); members];
            let segment = Segment::new(1, Stream::Small, &volume.spec.shape, zones, volume.spec.array, true);
            let mut first = 0;
            while first < segment.layout.stripes {
                let run = volume.run_from(&segment, first);
                let what = format!("groups of {group_stripes}, {} from {first}", run.count);
                assert!((1..=fitting).contains(&run.count), "{what}");
                let group = segment.layout.group_range(first);
                assert_eq!(run.is_whole_groups, group.len() as u32 <= fitting, "{what}");
                let is_whole = run.end() == segment.layout.stripes || run.end().is_multiple_of(group_stripes);
                assert!(if run.is_whole_groups { is_whole } else { run.end() <= group.end }, "{what}");
                first = run.end();
            }
        }
    }
}
