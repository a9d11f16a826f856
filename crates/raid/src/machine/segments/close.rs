//! Closing of segments: footers are written, and zones are finished.

use bytes::Bytes;
use zonda_zoned::{Status, ZoneAction};

use super::super::members::{Members, Verdict, Work};
use super::super::spec::Spec;
use super::{Retry, Segments, describe};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::tables::{Segment, SegmentIndex, SegmentState};

impl Segments {
    /// Nothing is added to a segment any more.
    pub(in crate::machine) fn break_off(&mut self, spec: &Spec, members: &mut Members, index: SegmentIndex) {
        self.table[index].is_broken = true;
        self.close_if_done(spec, members, index);
    }

    /// Closes a segment that receives no more stripes, and waits for nothing.
    pub(in crate::machine) fn close_if_done(&mut self, spec: &Spec, members: &mut Members, index: SegmentIndex) {
        let segment = &mut self.table[index];
        let is_done = segment.is_broken || segment.next_stripe == segment.layout.stripes;
        // A footer implies that everything before it is written.
        let is_hasty = spec.has(SeededBug::UnflushedFooter);
        let awaits_flush = segment.awaits_flush && !segment.is_broken && !is_hasty;
        if segment.state != SegmentState::Open || !is_done || segment.in_flight > 0 || awaits_flush {
            return;
        }
        segment.state = SegmentState::Closing;
        let stream = segment.stream;
        if segment.is_broken {
            segment.footers = None;
        }
        self.tidy(spec, members, stream);
        // One more, so that the segment is not sealed before the commands of all members are sent.
        self.table[index].pending = 1;
        for member in members.present() {
            if self.table[index].zones[member.as_usize()].is_some() {
                self.table[index].pending += 1;
                self.close_zone(spec, members, member, index);
            }
        }
        self.closed_one(index);
    }

    /// Closes segments that a mount found open; unneeded ones are reset.
    pub(in crate::machine) fn close_found(&mut self, spec: &Spec, members: &mut Members) {
        let indices: Vec<SegmentIndex> = self.iter().map(|(index, _)| index).collect();
        for index in indices {
            let segment = &mut self.table[index];
            let is_needed = segment.live_blocks > 0 || !segment.tombstones.is_empty() || segment.is_pinned;
            if segment.state == SegmentState::Open && !is_needed {
                // Resetting its zones makes finishing them unnecessary.
                segment.state = SegmentState::Sealed;
            }
            self.close_if_done(spec, members, index);
            self.add_candidate(index);
        }
    }

    pub(in crate::machine) fn on_footer(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        member: MemberIndex,
        index: SegmentIndex,
        blocks: u32,
        status: Status,
    ) {
        if !members[member].is_present() {
            return self.closed_one(index);
        }
        let segment = &mut self.table[index];
        if !status.is_success() {
            // Without a footer a mount reads the blocks themselves.
            segment.footer_written[member.as_usize()] = segment.layout.footer_blocks;
            return self.finish_zone(members, member, index);
        }
        segment.footer_written[member.as_usize()] += blocks;
        self.close_zone(spec, members, member, index);
    }

    pub(in crate::machine) fn on_finish(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        member: MemberIndex,
        index: SegmentIndex,
        status: Status,
    ) -> Verdict {
        let mut verdict = Verdict::Usable;
        if !members[member].is_present() {
            self.closed_one(index);
            return verdict;
        }
        if status.is_success() {
            members[member].forgive_finishes();
        } else if is_dead_zone(status) {
            // Such zones are not active.
            verdict = self.suspect(members, member, index);
        } else if keeps_zones(spec, members, member, status) {
            self.retries.push((member, index, Retry::Finish));
            return members.verdict_of(status);
        } else {
            // The zone may still be active: another open one would exceed the limit.
            verdict = members[member].count_failed_finish();
            if verdict == Verdict::Failed {
                self.closed_one(index);
            } else {
                self.finish_zone(members, member, index);
            }
            return verdict;
        }
        self.release_zone(members, member, index);
        self.closed_one(index);
        verdict
    }

    /// The next command that brings a zone to its end.
    fn close_zone(&mut self, spec: &Spec, members: &mut Members, member: MemberIndex, index: SegmentIndex) {
        let segment = &self.table[index];
        let Some(zone) = segment.zones[member.as_usize()] else { return self.closed_one(index) };
        let written = segment.footer_written[member.as_usize()];
        let layout = segment.layout;
        if !segment.is_broken && written < layout.footer_blocks {
            let blocks = (layout.footer_blocks - written).min(spec.shape.transfer_blocks);
            let entries = segment.footers.as_ref().map(|footers| &footers.entries[member.as_usize()]);
            let footer = entries.map_or_else(Bytes::new, |entries| {
                describe::footer(spec, segment.sequence, member, entries, written, blocks)
            });
            let place = (zone, layout.footer_offset() + written);
            let metadata = spec.no_metadata(members[member].geometry(), blocks);
            members.count_written(u64::from(blocks));
            members.write(spec, member, Work::Footer { segment: index, blocks }, place, blocks, (footer, metadata));
            return;
        }
        let end = u64::from(layout.footer_offset() + layout.footer_blocks);
        if !segment.is_broken && end == members[member].geometry().zone_capacity_blocks.0 {
            self.release_zone(members, member, index);
            return self.closed_one(index);
        }
        self.finish_zone(members, member, index);
    }

    pub(super) fn finish_zone(&mut self, members: &mut Members, member: MemberIndex, index: SegmentIndex) {
        let Some(zone) = self.table[index].zones[member.as_usize()] else { return self.closed_one(index) };
        let finish = members[member].manage(zone, ZoneAction::Finish);
        members.send(member, Work::FinishZone { segment: index }, finish);
    }

    /// A zone of the segment needs no active resource any more.
    pub(super) fn release_zone(&mut self, members: &mut Members, member: MemberIndex, index: SegmentIndex) {
        let segment = &mut self.table[index];
        if segment.active >> member.0 & 1 == 1 {
            segment.active &= !(1 << member.0);
            members[member].close_one_zone();
        }
    }

    /// A zone of one of the segments that a member holds active.
    pub(in crate::machine) fn active_zone_of(&self, member: MemberIndex) -> Option<(SegmentIndex, u32)> {
        let is_active = |segment: &Segment| segment.active >> member.0 & 1 == 1;
        let mut active = self.iter().filter(|(_, segment)| is_active(segment));
        active.find_map(|(index, segment)| Some((index, segment.zones[member.as_usize()]?)))
    }

    /// A zone of a segment that receives no more stripes was finished before the segment is closed.
    pub(in crate::machine) fn was_finished(&mut self, members: &mut Members, member: MemberIndex, index: SegmentIndex) {
        assert!(self.table[index].is_broken, "a finished segment receives no more stripes");
        self.release_zone(members, member, index);
    }

    /// A member has done its part of closing a segment.
    pub(super) fn closed_one(&mut self, index: SegmentIndex) {
        let segment = &mut self.table[index];
        assert_eq!(segment.state, SegmentState::Closing, "footers and finishes are of a segment that closes");
        segment.pending -= 1;
        if segment.pending == 0 {
            segment.state = SegmentState::Sealed;
            segment.footers = None;
            self.add_candidate(index);
        }
    }
}

/// Whether a zone stays in use although its finish or reset has failed: the volume needs its
/// member, or space was missing.
pub(super) fn keeps_zones(spec: &Spec, members: &Members, member: MemberIndex, status: Status) -> bool {
    status == Status::CapacityExceeded && !spec.has(SeededBug::FullZoneRetired) || !members.can_spare(spec, member)
}

/// Whether the zone has failed, and not the member.
pub(super) fn is_dead_zone(status: Status) -> bool {
    matches!(status, Status::ZoneIsReadOnly | Status::ZoneIsOffline | Status::InvalidZoneStateTransition)
}
