//! Failing zones, failed members, and damaged contents.

use zonda_zoned::{Outcome, Status, ZoneState};

use super::super::members::{Members, Verdict, Work};
use super::super::space::Space;
use super::super::spec::Spec;
use super::Segments;
use crate::MemberIndex;
use crate::tables::SegmentIndex;

impl Segments {
    /// A command to a zone has failed: a report determines whether it is the zone, or the member.
    /// If a member has failed in too many consecutive segments, no report is requested.
    pub(in crate::machine) fn suspect(
        &mut self,
        members: &mut Members,
        member: MemberIndex,
        index: SegmentIndex,
    ) -> Verdict {
        self.has_progress = true;
        let segment = &mut self.table[index];
        let is_first = segment.suspected >> member.0 & 1 == 0;
        segment.suspected |= 1 << member.0;
        let entry = &mut members[member];
        if is_first && entry.count_failure() == Verdict::Failed {
            return Verdict::Failed;
        }
        entry.count_error();
        assert!(!segment.is_resetting(), "a segment that is being reset is not inspected");
        // The segment stays until the member has answered.
        segment.readers += 1;
        let report = entry.report(segment.zones[member.as_usize()].unwrap_or(0), 1);
        members.send(member, Work::Inspect { segment: index }, report);
        Verdict::Usable
    }

    pub(in crate::machine) fn on_inspect(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        member: MemberIndex,
        index: SegmentIndex,
        status: Status,
        outcome: Outcome,
    ) -> Verdict {
        self.reader_left(index);
        if !members[member].is_present() {
            return Verdict::Usable;
        }
        let state = match outcome {
            Outcome::Report(report) if status.is_success() => report.zones.first().map(|zone| zone.state),
            _ => None,
        };
        match state {
            None => return Verdict::Failed,
            Some(ZoneState::Offline) => {
                excuse(spec, members, member);
                self.release_zone(members, member, index);
                self.lose_zone(members, member, index);
                return Space::is_out_of_zones(spec, members, member);
            }
            Some(ZoneState::ReadOnly) => {
                excuse(spec, members, member);
                self.release_zone(members, member, index);
            }
            Some(_) => {}
        }
        Verdict::Usable
    }

    /// A zone cannot be read any more: its chunks are computed from their stripes.
    fn lose_zone(&mut self, members: &mut Members, member: MemberIndex, index: SegmentIndex) {
        self.table.doubt(index);
        let segment = &mut self.table[index];
        segment.lost |= 1 << member.0;
        segment.offline |= 1 << member.0;
        if let Some(zone) = segment.zones[member.as_usize()].take() {
            members[member].retire_zone(zone);
        }
        self.add_candidate(index);
    }

    /// A member has failed with all its zones. Open segments continue without it.
    pub(in crate::machine) fn forget_member(&mut self, spec: &Spec, members: &mut Members, member: MemberIndex) {
        let indices: Vec<SegmentIndex> = self.iter().map(|(index, _)| index).collect();
        for index in indices {
            let segment = &mut self.table[index];
            segment.zones[member.as_usize()] = None;
            segment.active &= !(1 << member.0);
            segment.lost |= 1 << member.0;
            self.close_if_done(spec, members, index);
        }
    }

    /// Damage was found in a segment: the rest of it is moved soon.
    pub(in crate::machine) fn set_damaged(&mut self, index: SegmentIndex) {
        self.table[index].is_suspect = true;
        self.table.doubt(index);
        self.has_progress = true;
    }

    /// A segment without a footer: it is moved in the background.
    pub(in crate::machine) fn set_exposed(&mut self, index: SegmentIndex) {
        self.table[index].is_exposed = true;
        self.table.doubt(index);
        self.has_progress = true;
    }
}

/// The zone was the cause. A member that the volume needs does not fail because of its zones: it
/// can still be read.
fn excuse(spec: &Spec, members: &mut Members, member: MemberIndex) {
    if !members.can_spare(spec, member) {
        members[member].excuse_failure();
    }
}
