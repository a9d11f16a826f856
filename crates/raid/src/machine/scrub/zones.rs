//! Empty zones that have gone offline, or cannot be written any more: no command has revealed it. A
//! mount without other members would have to assume that an offline one held something, and a
//! segment would be opened in it.

use zonda_zoned::{Outcome, Status, ZoneDescriptor, ZoneState};

use super::super::Volume;
use super::super::members::Work;
use super::super::space::Space;
use crate::MemberIndex;
use crate::limits::{METADATA_ZONES, READ_ATTEMPTS_MAX, REPORT_ZONES_MAX};

/// A report on the zones of a member, from this one.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::machine) struct ScrubReport {
    zone: u32,
    /// Zones before this one that are offline, and of no segment.
    offline: u32,
    failures: u8,
}

impl Volume {
    /// Requests zone reports of all members, once everything is read. Returns whether all have
    /// answered.
    pub(super) fn are_zones_scrubbed(&mut self) -> bool {
        let Some(scrub) = &mut self.scrub else { return true };
        if !std::mem::replace(&mut scrub.has_reports, true) {
            for member in self.members.present() {
                self.report_for_scrub(member, ScrubReport::default());
            }
        }
        self.scrub.as_ref().is_none_or(|scrub| scrub.reports == 0)
    }

    fn report_for_scrub(&mut self, member: MemberIndex, next: ScrubReport) {
        let report = self.members[member].report(next.zone, REPORT_ZONES_MAX);
        self.members.send(member, Work::ScrubReport(next), report);
        if let Some(scrub) = &mut self.scrub {
            scrub.reports += 1;
        }
    }

    pub(in super::super) fn on_scrub_report(
        &mut self,
        member: MemberIndex,
        mut next: ScrubReport,
        status: Status,
        outcome: Outcome,
    ) {
        let Some(scrub) = self.scrub.as_mut().filter(|scrub| scrub.reports > 0) else { return };
        scrub.reports -= 1;
        if !self.members[member].is_present() {
            return;
        }
        let zones = match outcome {
            Outcome::Report(report) if status.is_success() && !report.zones.is_empty() => report.zones,
            // The next scrub tries again.
            _ if next.failures + 1 == READ_ATTEMPTS_MAX => return,
            _ => return self.report_for_scrub(member, ScrubReport { failures: next.failures + 1, ..next }),
        };
        for (zone, descriptor) in (next.zone..).zip(&zones).filter(|(zone, _)| *zone >= METADATA_ZONES) {
            next.offline += u32::from(self.is_offline_and_of_none(member, zone, descriptor));
            self.members[member].found_dead_zone(zone, descriptor.state);
        }
        (next.zone, next.failures) = (next.zone + zones.len() as u32, 0);
        if next.zone < self.members[member].geometry().zone_count {
            return self.report_for_scrub(member, next);
        }
        // If a segment has lost its zone, this is counted when nothing in it is needed any more.
        let named = self.segments.iter().filter(|(_, segment)| segment.offline >> member.0 & 1 == 1).count() as u32;
        let known = self.members[member].offline_zones();
        self.members[member].lost_offline(next.offline.saturating_sub(named).saturating_sub(known));
        let verdict = Space::is_out_of_zones(&self.spec, &self.members, member);
        self.apply_verdict(member, verdict);
    }

    fn is_offline_and_of_none(&self, member: MemberIndex, zone: u32, descriptor: &ZoneDescriptor) -> bool {
        let holds = |zones: &[Option<u32>]| zones[member.as_usize()] == Some(zone);
        descriptor.state == ZoneState::Offline && !self.segments.iter().any(|(_, segment)| holds(&segment.zones))
    }
}
