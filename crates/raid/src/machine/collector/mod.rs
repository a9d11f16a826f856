//! Garbage collection: live blocks of a segment are moved, then its zones are reset.
//!
//! ```text
//! victim.rs  the choice of the next segment
//! pace.rs    the rate
//! ```

mod pace;
#[cfg(test)]
mod tests;
pub(super) mod victim;

use zonda_zoned::Instant;

use super::members::Members;
use super::reads::Purpose;
use super::segments::Segments;
use super::space::Space;
use super::spec::Spec;
use super::stripes::Stripes;
use crate::MemberIndex;
use crate::format::{LostPlace, Tombstones};
use crate::limits::RELOCATED_BLOCKS_MAX;
use crate::shape::Stream;
use crate::tables::{Physical, Segment, SegmentIndex};

use pace::Pace;

/// Owns the segment that is being emptied, its operations in flight, and the pace.
///
/// Operations, in their order: [`begin`](Collector::begin) with a [victim](victim::choose),
/// [`next_read`](Collector::next_read) until it returns none, [`read_ended`](Collector::read_ended)
/// and [`moving`](Collector::moving) for each block, [`arrived`](Collector::arrived) when it is
/// durable elsewhere, [`end_if_moved`](Collector::end_if_moved). Hosts are
/// [charged](Collector::charge) for their writes.
#[derive(Debug, Default)]
pub(super) struct Collector {
    current: Option<Current>,
    /// A completely read segment whose last blocks wait for others to fill their stripe.
    emptied: Option<SegmentIndex>,
    /// Blocks that wait in stripes.
    waiting_blocks: u32,
    pace: Pace,
    /// Blocks that were moved since the mount.
    relocated_blocks: u64,
}

#[derive(Debug)]
struct Current {
    segment: SegmentIndex,
    /// The next entry of each member that may be live, if any is left.
    entries: Vec<Option<u32>>,
    /// All members are read to their ends.
    is_read: bool,
    tombstone: usize,
    /// Tombstones that were read: those of several blocks are merged into one.
    tombstones: Tombstones,
    /// Fetches in flight, and those of them that are of tombstones.
    fetching: u32,
    fetching_tombstones: u32,
    /// Blocks of these fetches.
    fetching_blocks: u32,
    urgency: Urgency,
    /// Blocks that are not needed are read, too, to check them for damage.
    reads_unneeded: bool,
    /// Blocks are read and not moved yet: it is not known whether all of them can be read.
    is_checking: bool,
    /// Not all of it was read or moved, its tombstones included: it is not reset, even if none of
    /// its blocks is needed.
    is_abandoned: bool,
    /// A block could not be read: the segment stays until that is recorded.
    has_lost: bool,
    /// Since then some of them were recorded, or read after all: the segment is to be collected
    /// again.
    is_repeated: bool,
    /// The same of tombstones.
    has_lost_tombstones: bool,
    /// Tombstones that could not be read were reconstructed from the map.
    has_tombstones_of_map: bool,
    /// Their places: to be named once their contents are durable elsewhere.
    unnamed: Vec<LostPlace>,
}

/// Why a segment is emptied, which determines the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Its blocks have lost redundancy, or a mount needs the space: as fast as members are.
    Immediate,
    /// It is intact, but lacks footers: a share of host writes, and while hosts are idle.
    Background,
    /// As fast as hosts consume free space.
    ForSpace,
}

impl Collector {
    /// Whether a segment is being collected.
    pub(super) fn has(&self, index: SegmentIndex) -> bool {
        self.current.as_ref().is_some_and(|current| current.segment == index) || self.emptied == Some(index)
    }

    /// Whether more of it is to be read.
    pub(super) fn has_more(&self) -> bool {
        self.current.as_ref().is_some_and(|current| !current.is_read)
    }

    /// Whether it waits for blocks to be read.
    pub(super) fn is_fetching(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.fetching > 0)
    }

    /// A segment that waits for its last blocks to become durable.
    pub(super) fn emptied(&self) -> Option<SegmentIndex> {
        self.emptied
    }

    /// Whether no segment is being collected.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.emptied.is_none()
    }

    /// A moved block is durable in its new place.
    pub(super) fn arrived(&mut self) {
        self.waiting_blocks -= 1;
        self.pace.moved_one();
    }

    /// Whether another segment may be chosen.
    pub(super) fn wants_victim(&self) -> bool {
        self.current.is_none()
    }

    /// Whether moved blocks wait in stripes until they are durable.
    pub(super) fn waits_for_blocks(&self) -> bool {
        self.waiting_blocks > 0
    }

    pub(super) fn relocated_blocks(&self) -> u64 {
        self.relocated_blocks
    }

    /// Whether a segment is being emptied at a limited pace.
    pub(super) fn is_paced(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.urgency != Urgency::Immediate)
    }

    /// Empties the current segment at full speed. Returns the segment.
    pub(super) fn expedite(&mut self) -> Option<SegmentIndex> {
        let current = self.current.as_mut()?;
        current.urgency = Urgency::Immediate;
        Some(current.segment)
    }

    /// Reads blocks of the current segment that are not needed, too.
    pub(super) fn read_unneeded(&mut self) {
        if let Some(current) = &mut self.current {
            current.reads_unneeded = true;
        }
    }

    /// Reads all blocks of the current segment before the first one is moved.
    pub(super) fn check_first(&mut self, segments: &Segments) {
        if let Some(current) = &mut self.current {
            current.is_checking = true;
            // Those that cannot be read are reconstructed from the map.
            current.tombstone = segments[current.segment].tombstones.len();
        }
    }

    /// Whether blocks are read and not moved yet.
    pub(super) fn is_checking(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.is_checking)
    }

    /// Whether the blocks that wait to be moved will free their segment, as far as is known.
    pub(super) fn is_certain_to_reclaim(&self) -> bool {
        let is_certain = |current: &Current| !current.is_checking && (!current.has_lost || current.is_repeated);
        self.waiting_blocks > 0 && (self.emptied.is_some() || self.current.as_ref().is_some_and(is_certain))
    }

    /// Stops emptying a segment with a block that cannot be read. Returns the segment, if one is
    /// being emptied: its waiting blocks may stay where they are.
    pub(super) fn abandon(&mut self) -> Option<SegmentIndex> {
        let may = |current: &&mut Current| current.has_lost && !current.is_repeated && !current.is_checking;
        let current = self.current.as_mut().filter(may).filter(|_| self.emptied.is_none())?;
        (current.is_read, current.is_abandoned) = (true, true);
        // The contents of these places are not moved either.
        current.unnamed.clear();
        Some(current.segment)
    }

    /// Blocks that waited in stripes stay where they are.
    pub(super) fn withdrawn(&mut self, blocks: u32) {
        self.waiting_blocks -= blocks;
    }

    /// Begins to empty a segment.
    pub(super) fn begin(&mut self, spec: &Spec, segments: &mut Segments, victim: SegmentIndex, urgency: Urgency) {
        assert!(self.current.is_none(), "one segment is emptied at a time");
        segments.pin(victim);
        let segment = &segments[victim];
        self.pace.begin(spec.shape.data_blocks(&segment.layout), u64::from(segment.live_blocks), urgency);
        self.current = Some(Current {
            segment: victim,
            entries: vec![Some(0); spec.members()],
            is_read: false,
            tombstone: 0,
            tombstones: Tombstones::default(),
            fetching: 0,
            fetching_tombstones: 0,
            fetching_blocks: 0,
            urgency,
            reads_unneeded: false,
            is_checking: false,
            is_abandoned: false,
            has_lost: false,
            is_repeated: false,
            has_lost_tombstones: false,
            has_tombstones_of_map: false,
            unnamed: Vec::new(),
        });
    }

    /// There is nothing to collect.
    pub(super) fn set_idle(&mut self) {
        self.pace.set_idle();
    }

    /// The next blocks to read, how many, and why; none if all is read, or the pace forbids it.
    pub(super) fn next_read(
        &mut self,
        space: Space<'_>,
        segments: &Segments,
        buffered_blocks: usize,
        now: Instant,
    ) -> Option<(Physical, u32, Purpose)> {
        let spec = space.spec();
        let most = RELOCATED_BLOCKS_MAX.max(3 * spec.shape.stripe_blocks(Stream::Relocation)) as u32;
        let current = self.current.as_mut().filter(|current| !current.is_read)?;
        let in_flight = self.waiting_blocks + current.fetching_blocks;
        // Damage may have been found in the meantime.
        let is_urgent = current.urgency == Urgency::Immediate || segments[current.segment].is_suspect;
        let may_move = in_flight < most && (is_urgent || self.pace.may_move(space, buffered_blocks, now, in_flight));
        let Some((place, blocks)) = current.next_place(segments) else {
            current.is_read = true;
            return None;
        };
        if !may_move {
            return None;
        }
        current.fetching += 1;
        if blocks == 0 {
            current.fetching_blocks += 1;
            current.tombstone += 1;
            current.fetching_tombstones += 1;
            return Some((place, 1, Purpose::MoveTombstones));
        }
        current.fetching_blocks += blocks;
        let end = segments[place.segment].layout.entry_of(place.offset) + blocks;
        current.entries[place.member.as_usize()] = Some(end);
        Some((place, blocks, Purpose::Move))
    }

    /// A read of some blocks has ended. Returns whether a segment is still being emptied.
    pub(super) fn read_ended(&mut self, blocks: u32) -> bool {
        let Some(current) = &mut self.current else { return false };
        current.fetching -= 1;
        current.fetching_blocks -= blocks;
        true
    }

    /// A read of a block of tombstones has ended. Returns all of the segment after the last one.
    pub(super) fn tombstones_read(
        &mut self,
        segments: &Segments,
        place: Physical,
        found: Option<Tombstones>,
    ) -> Option<Tombstones> {
        if !self.read_ended(1) {
            return None;
        }
        let current = self.current.as_mut()?;
        current.fetching_tombstones -= 1;
        match found {
            Some(found) => current.tombstones.extend(found),
            None => current.has_lost_tombstones = true,
        }
        let is_last = current.fetching_tombstones == 0 && current.tombstone == segments[place.segment].tombstones.len();
        is_last.then(|| std::mem::take(&mut current.tombstones))
    }

    /// A block of tombstones could not be read. Returns whether it was the first.
    pub(super) fn tombstones_lost(&mut self) -> bool {
        self.current.as_mut().is_some_and(|current| !std::mem::replace(&mut current.has_tombstones_of_map, true))
    }

    /// The place of a block of tombstones that could not be read.
    pub(super) fn name_later(&mut self, place: LostPlace) {
        if let Some(current) = &mut self.current {
            current.unnamed.push(place);
        }
    }

    /// The segment, and the places of its unreadable tombstones, once their contents are durable
    /// elsewhere: a mount that finds the places named misses nothing.
    pub(super) fn take_unnamed(&mut self) -> Option<(SegmentIndex, Vec<LostPlace>)> {
        let current = self.current.as_mut().filter(|current| current.is_read && current.fetching == 0)?;
        let is_due = self.waiting_blocks == 0 && !current.unnamed.is_empty();
        is_due.then(|| (current.segment, std::mem::take(&mut current.unnamed)))
    }

    /// A block of the segment could not be read: the segment stays until that is recorded.
    pub(super) fn block_lost(&mut self) {
        self.current.as_mut().expect("a segment is being collected").has_lost = true;
    }

    /// What could not be read of a segment was recorded as lost, or was read after all.
    pub(super) fn on_loss_recorded(&mut self, index: SegmentIndex) {
        if let Some(current) = self.current.as_mut().filter(|current| current.segment == index) {
            current.is_repeated = true;
        }
    }

    /// A block that was read does not need to be moved any more.
    pub(super) fn skipped(&mut self) {
        if self.current.as_ref().is_none_or(|current| !current.reads_unneeded) {
            self.pace.moved_one();
        }
    }

    /// A block of data is in a stripe, to be written to another segment.
    pub(super) fn moving(&mut self) {
        self.waiting_blocks += 1;
        self.relocated_blocks += 1;
    }

    /// The same of tombstones.
    pub(super) fn moving_tombstones(&mut self) {
        self.waiting_blocks += 1;
    }

    /// Finishes a segment that was completely moved. Returns whether another one may be chosen.
    pub(super) fn end_if_moved(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        stripes: &mut Stripes,
    ) -> bool {
        if let Some(index) = self.emptied.take_if(|index| is_unneeded(&segments[*index])) {
            end_collecting(spec, members, segments, index);
        }
        let Some(current) = self.current.as_ref().filter(|current| current.is_read) else { return false };
        if current.fetching > 0 {
            return false;
        }
        let index = current.segment;
        if current.is_checking {
            self.end_check(segments);
            return true;
        }
        let segment = &segments[index];
        // Those blocks may be recorded as lost by now.
        let has_lost =
            current.is_abandoned || current.has_lost_tombstones || current.has_lost && segment.live_blocks > 0;
        // Tombstones do not report that they are durable. Other blocks in flight belong to the next
        // segment.
        let has_to_wait = has_lost || !segment.tombstones.is_empty() || self.emptied.is_some();
        if has_to_wait && self.waiting_blocks > 0 {
            if self.waiting_blocks as usize <= stripes.filling_blocks(Stream::Relocation) {
                // Nothing else will fill the stripe.
                stripes.pad(spec, Stream::Relocation);
            }
            return false;
        }
        if has_lost {
            // Readable blocks in it stay readable; when hosts have rewritten all of them, it is
            // reset.
            if !current.is_repeated {
                segments.set_lost(index);
            }
            segments.unpin(index, false);
        } else if is_unneeded(segment) {
            end_collecting(spec, members, segments, index);
        } else if self.waiting_blocks > 0 {
            self.emptied = Some(index);
        } else {
            // A read is in flight. No block can have become live: the segment is sealed.
            return false;
        }
        self.current = None;
        true
    }

    /// All blocks of the segment were read: it is emptied, if all are readable.
    fn end_check(&mut self, segments: &mut Segments) {
        let Some(current) = &mut self.current else { return };
        if current.has_lost && segments[current.segment].live_blocks > 0 {
            if !current.is_repeated {
                segments.set_lost(current.segment);
            }
            segments.unpin(current.segment, false);
            self.current = None;
            return;
        }
        current.entries.fill(Some(0));
        (current.is_checking, current.is_read, current.has_lost, current.tombstone) = (false, false, false, 0);
    }

    /// Whether hosts are not too far ahead, or nothing is collected: then free space is for hosts.
    pub(super) fn allows_hosts(&self, spec: &Spec) -> bool {
        self.pace.allows_hosts(spec) || self.is_idle()
    }

    /// A stripe was written.
    pub(super) fn charge(&mut self, space: Space<'_>, now: Instant, stream: Stream) {
        let is_idle = self.is_idle();
        self.pace.charge(space, now, stream, is_idle);
    }

    /// When collection continues without host writes, if that is what it waits for.
    pub(super) fn due(&self, spec: &Spec, buffered_blocks: usize, now: Instant) -> Option<Instant> {
        if self.has_more() { self.pace.due(spec, buffered_blocks, now) } else { None }
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self, segments: &Segments) {
        for index in self.current.iter().map(|current| current.segment).chain(self.emptied) {
            assert!(segments[index].is_pinned, "a segment that is collected is chosen once");
        }
        if let Some(current) = &self.current {
            assert!(current.fetching >= current.fetching_tombstones && current.fetching_blocks >= current.fetching);
            assert!(self.emptied != Some(current.segment), "one segment is read while the one before it is moved");
        }
    }
}

impl Current {
    /// The next blocks to read, and how many; none if tombstones are next.
    fn next_place(&mut self, segments: &Segments) -> Option<(Physical, u32)> {
        let index = self.segment;
        let segment = &segments[index];
        if let Some(&place) = segment.tombstones.get(self.tombstone) {
            return Some((place, 0));
        }
        // Slot by slot over all members, so that all of them share the work.
        let payload = segment.layout.payload_blocks();
        let mut next: Option<(u32, MemberIndex, u32)> = None;
        for (member, from) in (0..).map(MemberIndex).zip(&mut self.entries) {
            *from = from.and_then(|from| match self.reads_unneeded {
                true => (from..segment.layout.entries()).find(|&entry| is_read(segment, member, entry)),
                false => segment.next_live(member, from),
            });
            if let Some(entry) = *from
                && next.is_none_or(|(slot, ..)| entry / payload < slot)
            {
                next = Some((entry / payload, member, entry));
            }
        }
        let (slot, member, entry) = next?;
        // Live blocks that follow in the same slot are included.
        let is_wanted = |entry: &u32| match self.reads_unneeded {
            true => is_read(segment, member, *entry),
            false => segment.is_live(member, segment.layout.offset_of_entry(*entry)),
        };
        let blocks = (entry..(slot + 1) * payload).take_while(is_wanted).count() as u32;
        Some((Physical { segment: index, member, offset: segment.layout.offset_of_entry(entry) }, blocks))
    }
}

/// Whether a block is read: it is live, or known to be written and readable.
fn is_read(segment: &Segment, member: MemberIndex, entry: u32) -> bool {
    let slot = entry / segment.layout.payload_blocks();
    let has_chunk = segment.zones[member.as_usize()].is_some() && segment.slots.stripe_at(member, slot).is_some();
    has_chunk && segment.has(member) || segment.is_live(member, segment.layout.offset_of_entry(entry))
}

fn end_collecting(spec: &Spec, members: &mut Members, segments: &mut Segments, index: SegmentIndex) {
    segments.drop_all_tombstones(index);
    segments.unpin(index, false);
    segments.reset(spec, members, index);
}

fn is_unneeded(segment: &Segment) -> bool {
    segment.live_blocks == 0 && segment.readers == 0
}
