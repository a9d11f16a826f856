//! Segments: their table, the open ones, and those that are to be reset.
//!
//! ```text
//! open.rs      segments open; headers
//! fill.rs      stripes and their slots
//! close.rs     footers, finishes
//! reset.rs     segments in which nothing is needed are reset
//! faults.rs    failing zones, failed members
//! describe.rs  the bytes of headers and footers
//! ```

mod close;
mod describe;
mod faults;
mod fill;
mod open;
mod reset;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Index;

use super::members::Members;
use super::spec::Spec;
use crate::MemberIndex;
use crate::format::{BlockMeta, MemberState};
use crate::shape::Stream;
use crate::tables::{Physical, Segment, SegmentIndex, SegmentState, SegmentTable};

pub(super) use describe::{footer, header};

/// Owns the segments: their table, those that are open for each stream, and the next sequence
/// number. Others read segments; all changes are operations here, with the members whose zones are
/// taken, closed or reset.
///
/// The life of a segment: [`open_wanted`](Segments::open_wanted),
/// [`on_header`](Segments::on_header), [`begin_stripe`](Segments::begin_stripe) and
/// [`stripe_complete`](Segments::stripe_complete) for each stripe,
/// [`close_if_done`](Segments::close_if_done), [`on_footer`](Segments::on_footer),
/// [`on_finish`](Segments::on_finish), then [`reset`](Segments::reset) and
/// [`on_reset`](Segments::on_reset). An operation that needs it unchanged
/// [reads](Segments::add_reader) it or [pins](Segments::pin) it.
#[derive(Debug)]
pub(super) struct Segments {
    table: SegmentTable,
    /// For each [`Stream`].
    open: [Open; 3],
    next_sequence: u64,
    /// Segments that may have become empty.
    candidates: BTreeSet<SegmentIndex>,
    /// Failed commands on members that keep their zones, to be retried.
    retries: Vec<(MemberIndex, SegmentIndex, Retry)>,
    /// Garbage collection has found no victim although it needs one: it tries again when a reader
    /// leaves.
    is_awaited: bool,
    /// Free segments that are not available to relocation.
    kept: u32,
    /// Something has changed that others may wait for.
    has_progress: bool,
    /// Segments that were emptied and reset.
    reset_count: u64,
    /// Sequence numbers of segments that were reset since the last call.
    reset_sequences: Vec<u64>,
}

/// Segments of one stream that are opening or open.
#[derive(Debug, Default)]
struct Open {
    segments: Vec<SegmentIndex>,
    /// The one that received the last stripe.
    last: usize,
}

/// A command to a zone that is to be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    Finish,
    Reset,
}

impl Segments {
    pub(super) fn new() -> Segments {
        Segments {
            table: SegmentTable::default(),
            open: std::array::from_fn(|_| Open::default()),
            next_sequence: 1,
            candidates: BTreeSet::new(),
            retries: Vec::new(),
            is_awaited: false,
            kept: 0,
            has_progress: false,
            reset_count: 0,
            reset_sequences: Vec::new(),
        }
    }

    /// A mount has found a segment. It may lack chunks of members that are present.
    pub(super) fn insert_found(&mut self, segment: Segment) -> SegmentIndex {
        assert!(segment.sequence < self.next_sequence, "the header of a segment is read before its contents");
        let lacks_chunks = segment.lost != 0;
        let index = self.table.insert(segment);
        if lacks_chunks {
            self.table.doubt(index);
        }
        index
    }

    /// A mount has found this sequence in use.
    pub(super) fn saw_sequence(&mut self, sequence: u64) {
        self.next_sequence = self.next_sequence.max(sequence + 1);
    }

    /// The contents of a block are needed.
    #[inline]
    pub(super) fn set_live(&mut self, place: Physical) {
        let segment = &mut self.table[place.segment];
        assert!(!segment.is_resetting(), "nothing in a segment that is being reset becomes needed");
        segment.set_live(place.member, place.offset);
    }

    /// The contents of a block are not needed any more.
    #[inline]
    pub(super) fn set_dead(&mut self, place: Physical) {
        let segment = &mut self.table[place.segment];
        segment.set_dead(place.member, place.offset);
        if segment.live_blocks == 0 {
            self.candidates.insert(place.segment);
        }
    }

    /// A block of tombstones, with this many ranges, was written.
    pub(super) fn add_tombstones(&mut self, place: Physical, ranges: u32) {
        let segment = &mut self.table[place.segment];
        assert!(!segment.is_resetting(), "tombstones in a segment that is being reset would be lost");
        segment.tombstones.push(place);
        segment.tombstone_ranges += ranges;
    }

    /// This many ranges of tombstones were found in a segment.
    pub(super) fn add_tombstone_ranges(&mut self, index: SegmentIndex, ranges: u32) {
        self.table[index].tombstone_ranges += ranges;
    }

    /// Upper bound of needed ranges of tombstones in a segment. Returns whether that is fewer than
    /// the segment counted.
    pub(super) fn lower_tombstone_ranges(&mut self, index: SegmentIndex, needed: u32) -> bool {
        let ranges = &mut self.table[index].tombstone_ranges;
        let are_fewer = needed < *ranges;
        *ranges = needed.min(*ranges);
        are_fewer
    }

    /// The tombstones of a block are not needed.
    pub(super) fn drop_tombstones(&mut self, place: Physical) {
        self.table[place.segment].tombstones.retain(|other| *other != place);
    }

    /// All tombstones of a segment were moved.
    pub(super) fn drop_all_tombstones(&mut self, index: SegmentIndex) {
        self.table[index].tombstones.clear();
    }

    /// The zones of a segment stay as they are until [`reader_left`](Segments::reader_left).
    #[inline]
    pub(super) fn add_reader(&mut self, index: SegmentIndex) {
        let segment = &mut self.table[index];
        assert!(!segment.is_resetting(), "a segment that is being reset is not read");
        segment.readers += 1;
    }

    /// A reader does not need the segment any more.
    #[inline]
    pub(super) fn reader_left(&mut self, index: SegmentIndex) {
        let segment = &mut self.table[index];
        segment.readers -= 1;
        if segment.readers > 0 {
            return;
        }
        self.has_progress |= segment.is_pinned || self.is_awaited;
        if segment.live_blocks == 0 {
            self.candidates.insert(index);
            self.has_progress = true;
        }
    }

    /// Pins a segment: it is not collected until it is unpinned. Returns whether it was pinned
    /// before.
    pub(super) fn pin(&mut self, index: SegmentIndex) -> bool {
        std::mem::replace(&mut self.table[index].is_pinned, true)
    }

    /// Unpins a segment; `was_pinned` is the result of [`pin`](Segments::pin).
    pub(super) fn unpin(&mut self, index: SegmentIndex, was_pinned: bool) {
        let is_pinned = std::mem::replace(&mut self.table[index].is_pinned, was_pinned);
        assert!(is_pinned, "a segment is unpinned by the operation that has pinned it");
        self.add_candidate(index);
    }

    /// Some of a segment cannot be read: it is not collected, and is reset when nothing in it is
    /// needed.
    pub(super) fn set_lost(&mut self, index: SegmentIndex) {
        self.table[index].has_lost = true;
    }

    /// What could not be read was recorded as lost, or was read after all: the segment may be
    /// collected.
    pub(super) fn forget_lost(&mut self, index: SegmentIndex) {
        self.table[index].has_lost = false;
        self.has_progress = true;
        self.candidates.insert(index);
    }

    /// A member answers again, or was rebuilt: unreadable blocks may be readable, so these segments
    /// may be collected.
    pub(super) fn forget_all_lost(&mut self) {
        let lost: Vec<SegmentIndex> = self.iter().filter(|(_, segment)| segment.has_lost).map(|(at, _)| at).collect();
        lost.into_iter().for_each(|index| self.forget_lost(index));
    }

    /// A segment may have become empty.
    pub(super) fn add_candidate(&mut self, index: SegmentIndex) {
        self.candidates.insert(index);
    }

    /// Relocation must leave this many free segments.
    pub(super) fn keep(&mut self, segments: u32) {
        self.kept = segments;
    }

    /// Whether garbage collection waits for readers to leave.
    pub(super) fn set_awaited(&mut self, is_awaited: bool) {
        self.is_awaited = is_awaited;
    }

    /// A member holds its part of a segment again.
    pub(super) fn rebuilt(
        &mut self,
        index: SegmentIndex,
        member: MemberIndex,
        zone: u32,
        footer_written: u32,
        entries: &[BlockMeta],
    ) {
        let segment = &mut self.table[index];
        assert!(!segment.has(member), "a member receives a part of a segment that it lacks");
        assert_eq!(segment.state, SegmentState::Sealed, "a rebuilt zone lacks no stripe");
        segment.zones[member.as_usize()] = Some(zone);
        segment.lost &= !(1 << member.0);
        segment.footer_written[member.as_usize()] = footer_written;
        if let Some(sums) = segment.sums.get_mut(member.as_usize()) {
            sums.iter_mut().zip(entries).for_each(|(sum, entry)| *sum = entry.block_crc);
        }
        // Unreadable blocks may be readable there.
        self.forget_lost(index);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
        self.table.iter()
    }

    pub(super) fn get(&self, index: SegmentIndex) -> Option<&Segment> {
        self.table.get(index)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Segments that lack chunks of a member that is present, hold some that are wrong, or lack
    /// footers.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = (SegmentIndex, &Segment)> {
        self.table.doubtful()
    }

    /// Segments of a stream that are opening or open.
    pub(super) fn open(&self, stream: Stream) -> &[SegmentIndex] {
        &self.open[stream as usize].segments
    }

    /// Of the next segment.
    pub(super) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    pub(super) fn reset_count(&self) -> u64 {
        self.reset_count
    }

    /// Sequence numbers of segments that were reset since the last call.
    pub(super) fn take_reset_sequences(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.reset_sequences)
    }

    pub(super) fn has_progress(&self) -> bool {
        self.has_progress
    }

    pub(super) fn clear_progress(&mut self) {
        self.has_progress = false;
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self, spec: &Spec, members: &Members) {
        let doubtful: BTreeSet<SegmentIndex> = self.doubtful().map(|(index, _)| index).collect();
        for (index, segment) in self.iter() {
            let lacks = |member: MemberIndex| members[member].state() == MemberState::Active && !segment.has(member);
            let goes = segment.state == SegmentState::Resetting;
            let is_doubtful = segment.is_suspect || segment.is_exposed || spec.member_indices().any(lacks);
            assert!(
                goes || !is_doubtful || doubtful.contains(&index),
                "segment {} is known to lack something",
                segment.sequence
            );
            assert!(segment.sequence < self.next_sequence, "a sequence is given once");
        }
        for stream in Stream::ALL {
            for &index in self.open(stream) {
                assert_eq!(self[index].stream, stream, "a segment is open for its own stream");
            }
        }
        for member in members.present() {
            let mut seen = BTreeSet::new();
            let held = self.iter().filter_map(|(_, segment)| segment.zones[member.as_usize()]);
            for zone in held.chain(members[member].each_free_zone()) {
                assert!(seen.insert(zone), "zone {zone} of member {} is held once", member.0);
            }
        }
    }
}

impl Index<SegmentIndex> for Segments {
    type Output = Segment;

    #[inline]
    fn index(&self, index: SegmentIndex) -> &Segment {
        &self.table[index]
    }
}
