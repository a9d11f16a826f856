//! Garbage collection: live blocks of a segment are moved, then its zones are reset.
//!
//! ```text
//! victim.rs  which segment is next
//! pace.rs    how fast it goes
//! ```

mod pace;
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

/// Owns the segment that is being emptied, what of it is in flight, and the pace.
///
/// Verbs, in their order: [`begin`](Collector::begin) with a [victim](victim::choose), [`next_read`](Collector::next_read) until there
/// is none, [`read_ended`](Collector::read_ended) and [`moving`](Collector::moving) for each block, [`arrived`](Collector::arrived) when
/// it is durable elsewhere, [`end_if_moved`](Collector::end_if_moved). Hosts [pay](Collector::pay) for what they write.
#[derive(Debug, Default)]
pub(super) struct Collector {
    current: Option<Current>,
    /// A segment that is read to its end while its last blocks wait for others to fill their stripe.
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
    /// The next entry of each member that may be live.
    entries: Vec<u32>,
    /// All members are read to their ends.
    is_read: bool,
    tombstone: usize,
    /// Tombstones that were read: those of several blocks go to one.
    tombstones: Tombstones,
    /// Fetches in flight, and those of them that are of tombstones.
    fetching: u32,
    fetching_tombstones: u32,
    /// Blocks that the fetches are of.
    fetching_blocks: u32,
    urgency: Urgency,
    /// What is not needed is read, too, to see whether it is damaged.
    reads_unneeded: bool,
    /// Blocks are read and not moved yet: whether all of them can be read is not known.
    is_checking: bool,
    /// Not all of it was read or moved, its tombstones included: it is not reset, whatever becomes of its blocks.
    is_abandoned: bool,
    /// A block could not be read: the segment stays as it is until that is recorded.
    has_lost: bool,
    /// Since then some of them were recorded, or read after all: the segment is to be collected once more.
    is_repeated: bool,
    /// The same of tombstones.
    has_lost_tombstones: bool,
    /// Tombstones that could not be read were taken from the map.
    has_tombstones_of_map: bool,
    /// Where they were: to be named once what they said is durable elsewhere.
    unnamed: Vec<LostPlace>,
}

/// Why a segment is emptied, which says how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Its blocks have lost redundancy, or a mount needs the room: as fast as members are.
    AtOnce,
    /// Nothing is wrong with it, but it lacks footers: a share of what hosts write, and when they write nothing.
    BesideHosts,
    /// As fast as hosts use up what is free.
    ForRoom,
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

    /// Whether another segment may be chosen.
    pub(super) fn wants_victim(&self) -> bool {
        self.current.is_none()
    }

    /// Blocks that wait in stripes until they are where they are moved to.
    pub(super) fn waits_for_blocks(&self) -> bool {
        self.waiting_blocks > 0
    }

    pub(super) fn relocated_blocks(&self) -> u64 {
        self.relocated_blocks
    }

    /// Whether a segment is being emptied no faster than it must be.
    pub(super) fn is_paced(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.urgency != Urgency::AtOnce)
    }

    /// The segment that is being emptied is emptied at once. Returns which one it is.
    pub(super) fn hurry(&mut self) -> Option<SegmentIndex> {
        let current = self.current.as_mut()?;
        current.urgency = Urgency::AtOnce;
        Some(current.segment)
    }

    /// Of the segment that is being emptied what is not needed is read, too.
    pub(super) fn read_unneeded(&mut self) {
        if let Some(current) = &mut self.current {
            current.reads_unneeded = true;
        }
    }

    /// Of the segment that is being emptied all blocks are read before the first one is moved.
    pub(super) fn check_first(&mut self, segments: &Segments) {
        if let Some(current) = &mut self.current {
            current.is_checking = true;
            // Those that cannot be read are taken from the map.
            current.tombstone = segments[current.segment].tombstones.len();
        }
    }

    /// Whether blocks are read and not moved yet.
    pub(super) fn is_checking(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.is_checking)
    }

    /// Whether what waits to be moved will, as far as is known, free the segment that it comes from.
    pub(super) fn is_certain_to_reclaim(&self) -> bool {
        let is_certain = |current: &Current| !current.is_checking && (!current.has_lost || current.is_repeated);
        self.waiting_blocks > 0 && (self.emptied.is_some() || self.current.as_ref().is_some_and(is_certain))
    }

    /// A segment that holds a block which cannot be read is not emptied any further. Returns which one it is, if one is being emptied: what
    /// waits of it may stay where it is.
    pub(super) fn abandon(&mut self) -> Option<SegmentIndex> {
        let may = |current: &&mut Current| current.has_lost && !current.is_repeated && !current.is_checking;
        let current = self.current.as_mut().filter(may).filter(|_| self.emptied.is_none())?;
        (current.is_read, current.is_abandoned) = (true, true);
        // What these places said is not moved either.
        current.unnamed.clear();
        Some(current.segment)
    }

    /// So many blocks that waited in stripes stay where they are.
    pub(super) fn withdrawn(&mut self, blocks: u32) {
        self.waiting_blocks -= blocks;
    }

    /// A segment is emptied from now on.
    pub(super) fn begin(&mut self, spec: &Spec, segments: &mut Segments, victim: SegmentIndex, urgency: Urgency) {
        segments.pin(victim);
        let segment = &segments[victim];
        self.pace.begin(spec.shape.data_blocks(&segment.layout), u64::from(segment.live_blocks), urgency);
        self.current = Some(Current {
            segment: victim,
            entries: vec![0; spec.members()],
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

    /// Nothing is to be collected.
    pub(super) fn rest(&mut self) {
        self.pace.rest();
    }

    /// What is to be read next, how many blocks of it, and why; none when all is read, or when it goes no faster.
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
        // Damage may have been found since.
        let is_urgent = current.urgency == Urgency::AtOnce || segments[current.segment].is_suspect;
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
        current.entries[place.member.as_usize()] = segments[place.segment].layout.entry_of(place.offset) + blocks;
        Some((place, blocks, Purpose::Move))
    }

    /// So many blocks were read, or could not be. Says whether a segment is being emptied still.
    pub(super) fn read_ended(&mut self, blocks: u32) -> bool {
        let Some(current) = &mut self.current else { return false };
        current.fetching -= 1;
        current.fetching_blocks -= blocks;
        true
    }

    /// A block of tombstones was read, or could not be. Returns all those of the segment if it was the last.
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

    /// A block of tombstones could not be read: the map knows those of the segment. Says whether it was the first.
    pub(super) fn tombstones_lost(&mut self) -> bool {
        self.current.as_mut().is_some_and(|current| !std::mem::replace(&mut current.has_tombstones_of_map, true))
    }

    /// Where a block of tombstones is that could not be read.
    pub(super) fn name_later(&mut self, place: LostPlace) {
        if let Some(current) = &mut self.current {
            current.unnamed.push(place);
        }
    }

    /// The segment, and where its unreadable tombstones are, once what they said is durable elsewhere: a mount that finds the places named
    /// misses nothing.
    pub(super) fn take_unnamed(&mut self) -> Option<(SegmentIndex, Vec<LostPlace>)> {
        let current = self.current.as_mut().filter(|current| current.is_read && current.fetching == 0)?;
        let is_due = self.waiting_blocks == 0 && !current.unnamed.is_empty();
        is_due.then(|| (current.segment, std::mem::take(&mut current.unnamed)))
    }

    /// A block of the segment could not be read: the segment stays as it is, until that is recorded.
    pub(super) fn block_lost(&mut self) {
        self.current.as_mut().expect("a segment is being collected").has_lost = true;
    }

    /// What could not be read of a segment is recorded as lost, or was read after all.
    pub(super) fn lost_is_known(&mut self, index: SegmentIndex) {
        if let Some(current) = self.current.as_mut().filter(|current| current.segment == index) {
            current.is_repeated = true;
        }
    }

    /// A block that was read need not be moved any more.
    pub(super) fn skipped(&mut self) {
        if self.current.as_ref().is_none_or(|current| !current.reads_unneeded) {
            self.pace.moved_one();
        }
    }

    /// A block of data is in a stripe, on its way to another segment.
    pub(super) fn moving(&mut self) {
        self.waiting_blocks += 1;
        self.relocated_blocks += 1;
    }

    /// The same of tombstones.
    pub(super) fn moving_tombstones(&mut self) {
        self.waiting_blocks += 1;
    }

    /// Ends the segment of which all is moved. Says whether another one may be chosen.
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
        // Tombstones do not tell whether they have arrived. What else is in flight comes with blocks of the next segment.
        let has_to_wait = has_lost || !segment.tombstones.is_empty() || self.emptied.is_some();
        if has_to_wait && self.waiting_blocks > 0 {
            if self.waiting_blocks as usize <= stripes.filling_blocks(Stream::Relocation) {
                // Nobody else comes to fill the stripe.
                stripes.pad(spec, Stream::Relocation);
            }
            return false;
        }
        if has_lost {
            // What can be read in it can still be read; when all of it is rewritten by hosts, it goes.
            if !current.is_repeated {
                segments.set_lost(index);
            }
            segments.unpin(index, false);
        } else if is_unneeded(segment) {
            end_collecting(spec, members, segments, index);
        } else if self.waiting_blocks > 0 {
            self.emptied = Some(index);
        } else {
            // A read is in flight. Nothing can have come to life: the segment is sealed.
            return false;
        }
        self.current = None;
        true
    }

    /// All blocks of the segment were read: it is emptied, if all can be.
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
        current.entries.fill(0);
        (current.is_checking, current.is_read, current.has_lost, current.tombstone) = (false, false, false, 0);
    }

    /// Whether hosts are not too far ahead, or nothing is collected: what space there is, is for them.
    pub(super) fn allows_hosts(&self, spec: &Spec) -> bool {
        self.pace.allows_hosts(spec) || self.is_idle()
    }

    /// A stripe is written.
    pub(super) fn pay(&mut self, space: Space<'_>, now: Instant, stream: Stream) {
        let is_idle = self.is_idle();
        self.pace.pay(space, now, stream, is_idle);
    }

    /// When collection goes on although nobody writes, if that is what it waits for.
    pub(super) fn due(&self, spec: &Spec, buffered_blocks: usize, now: Instant) -> Option<Instant> {
        if self.has_more() { self.pace.due(spec, buffered_blocks, now) } else { None }
    }

    /// What holds between events.
    ///
    /// # Panics
    /// When it does not.
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
    /// What is to be read next, and how many blocks of it; none if it is tombstones.
    fn next_place(&mut self, segments: &Segments) -> Option<(Physical, u32)> {
        let index = self.segment;
        let segment = &segments[index];
        if let Some(&place) = segment.tombstones.get(self.tombstone) {
            return Some((place, 0));
        }
        // Slot by slot over all members, so that each has a part of the work.
        let payload = segment.layout.payload_blocks();
        let mut next: Option<(u32, MemberIndex, u32)> = None;
        for (member, from) in (0..).map(MemberIndex).zip(&mut self.entries) {
            let found = match self.reads_unneeded {
                true => (*from..segment.layout.entries()).find(|&entry| is_read(segment, member, entry)),
                false => segment.next_live(member, *from),
            };
            *from = found.unwrap_or(u32::MAX);
            if *from != u32::MAX && next.is_none_or(|(slot, ..)| *from / payload < slot) {
                next = Some((*from / payload, member, *from));
            }
        }
        let (slot, member, entry) = next?;
        // Live blocks that follow in the same slot come with it.
        let is_wanted = |entry: &u32| match self.reads_unneeded {
            true => is_read(segment, member, *entry),
            false => segment.is_live(member, segment.layout.offset_of_entry(*entry)),
        };
        let blocks = (entry..(slot + 1) * payload).take_while(is_wanted).count() as u32;
        Some((Physical { segment: index, member, offset: segment.layout.offset_of_entry(entry) }, blocks))
    }
}

/// Whether a block is read that need not be needed: it is, or it was written, as far as is known, and can be read.
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

#[cfg(test)]
mod tests {
    use zonda_zoned::Outcome;

    use super::super::fixtures::{end_all, members, spec};
    use super::*;

    #[test]
    fn a_segment_is_read_slot_by_slot_and_reset_when_its_blocks_have_arrived() {
        let spec = spec(1, false);
        let (mut members, mut segments, mut stripes) = (members(&spec), Segments::new(), Stripes::new());
        segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
        let index = segments.open(Stream::Small)[0];
        let place = |member: u8, slot: u32| Physical { segment: index, member: MemberIndex(member), offset: 2 + slot };
        let live = [place(0, 0), place(1, 0), place(1, 2)];
        live.iter().for_each(|&place| segments.set_live(place));
        segments.break_off(&spec, &mut members, index);
        let _ = end_all(&spec, &mut members, &mut segments, None);
        let mut collector = Collector::default();
        collector.begin(&spec, &mut segments, index, Urgency::AtOnce);
        let mut read = Vec::new();
        let next = |collector: &mut Collector, segments: &Segments| {
            collector.next_read(Space::new(&spec, &members, true), segments, 0, Instant::ZERO)
        };
        assert!(!collector.is_fetching());
        while let Some((place, blocks, purpose)) = next(&mut collector, &segments) {
            assert_eq!((blocks, purpose), (1, Purpose::Move));
            read.push(place);
        }
        assert_eq!(read, live, "by slots, then by members");
        for &place in &read {
            assert!(collector.is_fetching(), "blocks are being read");
            assert!(collector.read_ended(1));
            collector.moving();
            collector.check_invariants(&segments);
            segments.set_dead(place);
            collector.arrived();
        }
        assert!(!collector.is_fetching(), "all are read");
        assert!(collector.end_if_moved(&spec, &mut members, &mut segments, &mut stripes));
        assert!(collector.is_idle() && segments[index].is_resetting());
        assert_eq!(collector.relocated_blocks(), 3);
    }

    #[test]
    fn a_segment_that_is_abandoned_keeps_its_tombstones_though_none_of_its_blocks_is_needed_any_more() {
        let spec = spec(1, false);
        let (mut members, mut segments, mut stripes) = (members(&spec), Segments::new(), Stripes::new());
        segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
        let index = segments.open(Stream::Small)[0];
        let place = |slot: u32| Physical { segment: index, member: MemberIndex(0), offset: 2 + slot };
        segments.set_live(place(0));
        segments.add_tombstones(place(1), 1);
        segments.break_off(&spec, &mut members, index);
        let _ = end_all(&spec, &mut members, &mut segments, None);
        let mut collector = Collector::default();
        collector.begin(&spec, &mut segments, index, Urgency::AtOnce);
        assert_eq!(collector.abandon(), None, "all can be read, as far as is known");
        collector.block_lost();
        assert_eq!(collector.abandon(), Some(index));
        // Its marker has become durable.
        collector.lost_is_known(index);
        segments.set_dead(place(0));
        assert!(collector.end_if_moved(&spec, &mut members, &mut segments, &mut stripes));
        assert!(collector.is_idle() && !segments[index].is_resetting());
        assert_eq!(segments[index].tombstones, [place(1)]);
        assert!(!segments[index].has_lost && !segments[index].is_pinned, "it can be collected once more");
    }

    #[test]
    fn places_of_unreadable_tombstones_are_named_once_and_only_when_all_that_was_moved_is_durable() {
        let spec = spec(1, false);
        let (mut members, mut segments) = (members(&spec), Segments::new());
        segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
        let index = segments.open(Stream::Small)[0];
        segments.break_off(&spec, &mut members, index);
        let mut collector = Collector::default();
        collector.begin(&spec, &mut segments, index, Urgency::AtOnce);
        let place = LostPlace { segment: 1, stripe: 2, member: 0, block: 3 };
        collector.name_later(place);
        assert_eq!(collector.take_unnamed(), None, "more of the segment may be unreadable");
        let space = Space::new(&spec, &members, true);
        assert_eq!(collector.next_read(space, &segments, 0, Instant::ZERO), None);
        collector.moving_tombstones();
        assert_eq!(collector.take_unnamed(), None, "a crash would leave the places named and the tombstones lost");
        collector.arrived();
        assert_eq!(collector.take_unnamed(), Some((index, vec![place])));
        assert_eq!(collector.take_unnamed(), None);
    }

    #[test]
    fn of_a_segment_that_was_not_filled_no_slot_is_read_that_has_no_chunk() {
        let spec = spec(1, false);
        let (mut members, mut segments) = (members(&spec), Segments::new());
        segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
        let index = segments.open(Stream::Small)[0];
        for _ in 0..2 {
            let number = segments.begin_stripe(index, Instant::ZERO);
            for member in spec.member_indices() {
                assert_eq!(segments.place_chunk(&members, member, index, number, &Outcome::None), Some(number));
            }
            segments.stripe_complete(&spec, &mut members, index, number);
        }
        let mut collector = Collector::default();
        collector.begin(&spec, &mut segments, index, Urgency::AtOnce);
        collector.read_unneeded();
        let space = Space::new(&spec, &members, true);
        let mut read = Vec::new();
        while let Some((place, blocks, _)) = collector.next_read(space, &segments, 0, Instant::ZERO) {
            assert_eq!(blocks, 1);
            read.push((place.member.0, place.offset));
        }
        assert_eq!(read, [(0, 2), (1, 2), (2, 2), (0, 3), (1, 3), (2, 3)], "two headers, then two chunks");
    }
}
