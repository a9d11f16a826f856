//! Segments open, close and are reset.

use bytes::Bytes;
use zonda_zoned::{Outcome, Status, ZoneAction, ZoneState};

use super::Volume;
use super::members::{Verdict, Waiter, Work};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::event::FailReason;
use crate::limits::RELOCATION_SEGMENTS;
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

impl Volume {
    /// Segments that could be opened, as far as zones go: but for those that are left to the next mount.
    pub(super) fn free_segments(&self) -> u32 {
        let free = self.all_free_segments();
        if self.is_ready() { free.saturating_sub(self.mount_segments()) } else { free }
    }

    fn all_free_segments(&self) -> u32 {
        self.members.present().map(|member| self.members[member].free_zones()).min().unwrap_or(0)
    }

    /// Sees to it that a stream with something to write has as many segments as it is to have.
    pub(super) fn want_segments(&mut self, stream: Stream) {
        let wanted = match stream {
            Stream::Small => self.spec.config.tuning.small_segments,
            Stream::Large => self.spec.config.tuning.large_segments,
            Stream::Relocation => 1,
        };
        while self.stream(stream).open.len() < usize::from(wanted) && self.may_open(stream) {
            self.open_segment(stream);
        }
    }

    pub(super) fn may_open(&self, stream: Stream) -> bool {
        if !self.members.is_epoch_durable() {
            return false;
        }
        let is_relocation = stream == Stream::Relocation;
        // Rather than stop for ever, collection takes what is left to mounts: these undo what it has not brought to an end.
        let has_free =
            if is_relocation { self.all_free_segments() > 0 } else { self.free_segments() > RELOCATION_SEGMENTS };
        // What is won back has to be written somewhere, whatever hosts do.
        let spare_zones = u32::from(!is_relocation && self.stream(Stream::Relocation).open.is_empty());
        has_free && self.members.present().all(|member| self.members[member].may_activate(spare_zones))
    }

    fn open_segment(&mut self, stream: Stream) {
        let mut zones = vec![None; self.spec.members()];
        let mut active = 0;
        for member in self.members.present() {
            let entry = &mut self.members[member];
            zones[member.as_usize()] = entry.take_zone();
            active |= 1 << member.0;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let mut segment =
            Segment::new(sequence, stream, &self.spec.shape, zones.clone(), self.spec.array, self.spec.has_contents());
        segment.active = active;
        segment.pending = active.count_ones();
        let index = self.segments.insert(segment);
        self.stream_mut(stream).open.push(index);
        for member in self.members.present() {
            let zone = zones[member.as_usize()].expect("every member that is there gave a zone");
            let header = self.header(&self.segments[index], member, zones.clone());
            let metadata = self.spec.no_metadata(&self.members[member].geometry(), 1);
            self.members.write(&self.spec, member, Work::Header { segment: index }, (zone, 0), 1, (header, metadata));
            self.members.count_written(1);
        }
    }

    pub(super) fn on_header(&mut self, member: MemberIndex, index: SegmentIndex, status: Status) {
        if !status.is_success() && self.members[member].is_present() {
            self.segments[index].is_broken = true;
            self.suspect(member, index);
        }
        let segment = &mut self.segments[index];
        segment.pending -= 1;
        if segment.pending == 0 {
            segment.state = SegmentState::Open;
            // What is in a zone implies its header, on all members.
            self.barrier(index);
            self.close_if_done(index);
        }
    }

    /// Nothing follows in a segment before what it has is durable.
    pub(super) fn barrier(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        segment.awaits_flush = true;
        let sequence = segment.sequence;
        self.when_durable(Waiter::Barrier(index, sequence));
    }

    /// Nothing is added to a segment any more.
    pub(super) fn break_segment(&mut self, index: SegmentIndex) {
        self.segments[index].is_broken = true;
        self.close_if_done(index);
    }

    /// Streams forget segments that take no more, and those that lack a member which is there again.
    pub(super) fn tidy_open(&mut self, stream: Stream) {
        let present = self.members.present_bits();
        let lacks = |index: &&SegmentIndex| self.segments[**index].lost & present != 0;
        if let Some(index) = self.stream(stream).open.iter().find(lacks).copied() {
            self.segments[index].is_broken = true;
            self.close_if_done(index);
        }
        let segments = &self.segments;
        let takes_more = |index: &SegmentIndex| {
            let segment = &segments[*index];
            matches!(segment.state, SegmentState::Opening | SegmentState::Open)
                && !segment.is_broken
                && segment.next_stripe < segment.layout.stripes
        };
        let state = &mut self.streams[stream as usize];
        state.open.retain(takes_more);
        state.turn = state.turn.min(state.open.len().saturating_sub(1));
    }

    pub(super) fn close_if_done(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        let is_done = segment.is_broken || segment.next_stripe == segment.layout.stripes;
        // A footer says that all before it is there.
        let awaits_flush = segment.awaits_flush && !segment.is_broken;
        if segment.state != SegmentState::Open || !is_done || segment.in_flight > 0 || awaits_flush {
            return;
        }
        segment.state = SegmentState::Closing;
        let stream = segment.stream;
        if segment.is_broken {
            segment.footers = None;
        }
        self.tidy_open(stream);
        // One more, so that the segment is not sealed before all members are under way.
        self.segments[index].pending = 1;
        for member in self.members.present() {
            if self.segments[index].zones[member.as_usize()].is_some() {
                self.segments[index].pending += 1;
                self.close_zone(member, index);
            }
        }
        self.closed_one(index);
    }

    /// The next command that brings a zone to its end.
    fn close_zone(&mut self, member: MemberIndex, index: SegmentIndex) {
        let segment = &self.segments[index];
        let Some(zone) = segment.zones[member.as_usize()] else { return self.closed_one(index) };
        let written = segment.footer_written[member.as_usize()];
        let layout = segment.layout;
        if !segment.is_broken && written < layout.footer_blocks {
            let blocks = (layout.footer_blocks - written).min(self.spec.shape.transfer_blocks);
            let entries = segment.footers.as_ref().map(|footers| &footers.entries[member.as_usize()]);
            let footer = entries
                .map_or_else(Bytes::new, |entries| self.footer(segment.sequence, member, entries, written, blocks));
            let place = (zone, layout.footer_offset() + written);
            let metadata = self.spec.no_metadata(&self.members[member].geometry(), blocks);
            self.members.count_written(u64::from(blocks));
            self.members.write(
                &self.spec,
                member,
                Work::Footer { segment: index, blocks },
                place,
                blocks,
                (footer, metadata),
            );
            return;
        }
        let geometry = &self.members[member].geometry();
        let end = u64::from(layout.footer_offset() + layout.footer_blocks);
        if !segment.is_broken && end == geometry.zone_capacity_blocks.0 {
            self.release_zone(member, index);
            return self.closed_one(index);
        }
        self.finish_zone(member, index);
    }

    fn finish_zone(&mut self, member: MemberIndex, index: SegmentIndex) {
        let Some(zone) = self.segments[index].zones[member.as_usize()] else { return self.closed_one(index) };
        let finish = self.members[member].manage(zone, ZoneAction::Finish);
        self.members.send(member, Work::FinishZone { segment: index }, finish);
    }

    pub(super) fn on_footer(&mut self, member: MemberIndex, index: SegmentIndex, blocks: u32, status: Status) {
        if !self.members[member].is_present() {
            return self.closed_one(index);
        }
        if status.is_success() {
            self.segments[index].footer_written[member.as_usize()] += blocks;
        } else {
            // Without a footer here a mount reads the blocks themselves.
            let layout = self.segments[index].layout;
            self.segments[index].footer_written[member.as_usize()] = layout.footer_blocks;
            return self.finish_zone(member, index);
        }
        self.close_zone(member, index);
    }

    pub(super) fn on_finish_zone(&mut self, member: MemberIndex, index: SegmentIndex, status: Status) {
        let entry = &mut self.members[member];
        if !entry.is_present() {
            return self.closed_one(index);
        }
        if status.is_success() {
            entry.forgive_finishes();
        } else if is_worn_zone(status) {
            // Such zones are not active.
            self.suspect(member, index);
        } else {
            // The zone may still be active: what is open elsewhere would be one too many.
            let verdict = entry.count_failed_finish();
            if verdict == Verdict::Failed {
                self.judge(member, verdict);
                return self.closed_one(index);
            }
            return self.finish_zone(member, index);
        }
        self.release_zone(member, index);
        self.closed_one(index);
    }

    fn release_zone(&mut self, member: MemberIndex, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        if segment.active >> member.0 & 1 == 1 {
            segment.active &= !(1 << member.0);
            self.members[member].close_one_zone();
        }
    }

    /// A member has done its part of closing a segment.
    fn closed_one(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        segment.pending -= 1;
        if segment.pending == 0 {
            segment.state = SegmentState::Sealed;
            segment.footers = None;
            self.collector.look_at(index);
        }
    }

    /// Nothing in the segment is needed any more.
    pub(super) fn reset_segment(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        assert!(segment.live_blocks == 0 && segment.readers == 0, "what is needed is not reset");
        assert_eq!(segment.state, SegmentState::Sealed, "a segment is closed before it is reset");
        segment.state = SegmentState::Resetting;
        segment.pending = 1;
        if self.spec.has(SeededBug::UnflushedReset) {
            return self.reset_zones(index);
        }
        // What replaces its contents may be in the members' caches alone.
        self.when_durable(Waiter::Reset(index));
    }

    /// What replaces the contents of a segment is durable.
    pub(super) fn reset_zones(&mut self, index: SegmentIndex) {
        for member in self.members.present() {
            let Some(zone) = self.segments[index].zones[member.as_usize()] else { continue };
            self.segments[index].pending += 1;
            let reset = self.members[member].manage(zone, ZoneAction::Reset);
            self.members.send(member, Work::ResetZone { segment: index }, reset);
        }
        self.reset_one(index);
    }

    pub(super) fn on_reset_zone(&mut self, member: MemberIndex, index: SegmentIndex, status: Status) {
        // Others may take longer: until then the segment holds this zone no more.
        let zone = self.segments[index].zones[member.as_usize()].take();
        let entry = &mut self.members[member];
        if let (true, Some(zone)) = (entry.is_present(), zone) {
            if status.is_success() {
                entry.forgive_failures();
            } else {
                entry.count_error();
            }
            let segment = &mut self.segments[index];
            let was_active = segment.active >> member.0 & 1 == 1;
            segment.active &= !(1 << member.0);
            entry.zone_reset_ended(zone, was_active, status);
            let is_excused = is_worn_zone(status) && !self.members.can_spare(&self.spec, member);
            if !status.is_success() && !is_excused && !self.has_failed_again(member) {
                self.give_up_if_worn(member);
            }
        }
        self.reset_one(index);
    }

    fn reset_one(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        segment.pending -= 1;
        if segment.pending == 0 {
            let left = self.segments.remove(index);
            debug_assert_eq!(left.live_blocks, 0);
            self.counters.collected_segments += 1;
        }
    }

    /// A member has failed in another segment; says whether it is given up for that.
    fn has_failed_again(&mut self, member: MemberIndex) -> bool {
        let verdict = self.members[member].count_failure();
        self.judge(member, verdict);
        verdict == Verdict::Failed
    }

    /// A member with too few zones left holds up all others, where the volume can do without it.
    pub(super) fn give_up_if_worn(&mut self, member: MemberIndex) {
        let entry = &self.members[member];
        let needed = self.needed_segments() + RELOCATION_SEGMENTS + 1;
        let missing = self.members.missing().len();
        let is_worn = entry.zones_for_segments() < needed || !entry.has_active_to_spare();
        if is_worn && missing < self.spec.code.tolerates() {
            self.evict(member, FailReason::Errors);
        }
    }

    /// A command to a zone has failed: is it the zone, or the member?
    pub(super) fn suspect(&mut self, member: MemberIndex, index: SegmentIndex) {
        self.wake();
        let segment = &mut self.segments[index];
        let is_first = segment.suspected >> member.0 & 1 == 0;
        segment.suspected |= 1 << member.0;
        if is_first && self.has_failed_again(member) {
            return;
        }
        let entry = &mut self.members[member];
        entry.count_error();
        let segment = &mut self.segments[index];
        // The segment stays until the answer is there.
        segment.readers += 1;
        let zone = segment.zones[member.as_usize()].unwrap_or(0);
        let report = entry.report(zone, 1);
        self.members.send(member, Work::Inspect { segment: index }, report);
    }

    pub(super) fn on_inspect(&mut self, member: MemberIndex, index: SegmentIndex, status: Status, outcome: Outcome) {
        self.reader_left(index);
        if !self.members[member].is_present() {
            return;
        }
        let state = match outcome {
            Outcome::Report(report) if status.is_success() => report.zones.first().map(|zone| zone.state),
            _ => None,
        };
        match state {
            None => self.evict(member, FailReason::Errors),
            Some(ZoneState::Offline) => {
                self.excuse(member);
                self.release_zone(member, index);
                self.lose_zone(member, index);
            }
            Some(ZoneState::ReadOnly) => {
                self.excuse(member);
                self.release_zone(member, index);
            }
            Some(_) => {}
        }
    }

    /// It was the zone. A member that the volume cannot do without is not given up for what its zones do: it can still be read.
    fn excuse(&mut self, member: MemberIndex) {
        if !self.members.can_spare(&self.spec, member) {
            self.members[member].excuse_failure();
        }
    }

    /// A zone cannot be read any more: its chunks come out of their stripes.
    fn lose_zone(&mut self, member: MemberIndex, index: SegmentIndex) {
        self.segments.doubt(index);
        let segment = &mut self.segments[index];
        segment.lost |= 1 << member.0;
        if let Some(zone) = segment.zones[member.as_usize()].take() {
            self.members[member].retire_zone(zone);
        }
        self.collector.look_at(index);
        self.give_up_if_worn(member);
    }

    /// A member is gone with all its zones. Segments that are open go on without it.
    pub(super) fn forget_zones_of(&mut self, member: MemberIndex) {
        let indices: Vec<SegmentIndex> = self.segments.iter().map(|(index, _)| index).collect();
        for index in indices {
            let segment = &mut self.segments[index];
            segment.zones[member.as_usize()] = None;
            segment.active &= !(1 << member.0);
            segment.lost |= 1 << member.0;
            self.close_if_done(index);
        }
    }
}

/// Whether it is the zone that has given up.
fn is_worn_zone(status: Status) -> bool {
    matches!(status, Status::ZoneIsReadOnly | Status::ZoneIsOffline | Status::InvalidZoneStateTransition)
}
