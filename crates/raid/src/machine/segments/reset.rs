//! Resets of segments in which nothing is needed.

use zonda_zoned::{Status, ZoneAction};

use super::super::members::{Members, Verdict, Waiter, Work};
use super::super::space::Space;
use super::super::spec::Spec;
use super::close::{is_dead_zone, keeps_zones};
use super::{Retry, Segments};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::tables::{SegmentIndex, SegmentState};

impl Segments {
    /// Resets empty segments.
    pub(in crate::machine) fn reset_empty(&mut self, spec: &Spec, members: &mut Members) {
        while let Some(index) = self.candidates.pop_first() {
            let Some(segment) = self.table.get(index) else { continue };
            let is_empty = segment.state == SegmentState::Sealed
                && segment.live_blocks == 0
                && segment.readers == 0
                && segment.tombstones.is_empty()
                && !segment.is_pinned;
            if is_empty {
                self.reset(spec, members, index);
            }
        }
    }

    /// Nothing in the segment is needed any more.
    pub(in crate::machine) fn reset(&mut self, spec: &Spec, members: &mut Members, index: SegmentIndex) {
        let segment = &mut self.table[index];
        let is_needed = segment.live_blocks > 0 || segment.readers > 0 || !segment.tombstones.is_empty();
        assert!(!is_needed && !segment.is_pinned, "a needed segment is not reset");
        assert_eq!(segment.state, SegmentState::Sealed, "a segment is closed before it is reset");
        segment.state = SegmentState::Resetting;
        segment.pending = 1;
        let offline = segment.offline;
        members.count_offline(offline);
        // The versions that replace its contents may be in the members' caches only.
        if spec.has(SeededBug::UnflushedReset) || members.when_durable(spec, Waiter::Reset(index)) {
            self.on_replacement_durable(members, index);
        }
    }

    /// The versions that replace the contents of a segment are durable: its zones are reset.
    pub(in crate::machine) fn on_replacement_durable(&mut self, members: &mut Members, index: SegmentIndex) {
        for member in members.present() {
            let Some(zone) = self.table[index].zones[member.as_usize()] else { continue };
            self.table[index].pending += 1;
            let reset = members[member].manage(zone, ZoneAction::Reset);
            members.send(member, Work::ResetZone { segment: index }, reset);
        }
        self.reset_one(index);
    }

    /// Retries failed commands on members that keep their zones.
    pub(in crate::machine) fn retry(&mut self, members: &mut Members) {
        for (member, index, retry) in std::mem::take(&mut self.retries) {
            match retry {
                _ if !members[member].is_present() && retry == Retry::Finish => self.closed_one(index),
                _ if !members[member].is_present() => self.reset_one(index),
                Retry::Finish => self.finish_zone(members, member, index),
                Retry::Reset => match self.table[index].zones[member.as_usize()] {
                    Some(zone) => {
                        let reset = members[member].manage(zone, ZoneAction::Reset);
                        members.send(member, Work::ResetZone { segment: index }, reset);
                    }
                    None => self.reset_one(index),
                },
            }
        }
    }

    /// Whether a command is to be retried.
    pub(in crate::machine) fn has_retries(&self) -> bool {
        !self.retries.is_empty()
    }

    pub(in crate::machine) fn on_reset(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        member: MemberIndex,
        index: SegmentIndex,
        status: Status,
    ) -> Verdict {
        if members[member].is_present()
            && !status.is_success()
            && !is_dead_zone(status)
            && keeps_zones(spec, members, member, status)
        {
            members[member].count_write_error(status);
            self.retries.push((member, index, Retry::Reset));
            return members.verdict_of(status);
        }
        let segment = &mut self.table[index];
        // Other resets may take longer: until then the segment does not hold this zone any more.
        let zone = segment.zones[member.as_usize()].take();
        let entry = &mut members[member];
        let mut verdict = Verdict::Usable;
        if let (true, Some(zone)) = (entry.is_present(), zone) {
            // Only a chunk clears the failures: a member whose headers all fail can still reset the
            // zone.
            if !status.is_success() {
                entry.count_write_error(status);
            }
            let was_active = segment.active >> member.0 & 1 == 1;
            segment.active &= !(1 << member.0);
            entry.zone_reset_ended(zone, was_active, status);
            if status == Status::ZoneIsOffline {
                members.count_offline(1 << member.0);
            }
            let is_excused = is_dead_zone(status) && !members.can_spare(spec, member);
            if !status.is_success() && !is_excused {
                verdict = members[member].count_failure();
                if verdict == Verdict::Usable {
                    verdict = Space::is_out_of_zones(spec, members, member);
                }
            }
        }
        self.reset_one(index);
        verdict
    }

    fn reset_one(&mut self, index: SegmentIndex) {
        let segment = &mut self.table[index];
        assert!(segment.is_resetting(), "resets are of a segment in which nothing is needed");
        segment.pending -= 1;
        if segment.pending == 0 {
            let left = self.table.remove(index);
            assert!(
                left.live_blocks == 0 && left.readers == 0 && left.tombstones.is_empty() && !left.is_pinned,
                "a segment that is being reset does not become needed again"
            );
            self.reset_sequences.push(left.sequence);
            self.reset_count += 1;
        }
    }
}
