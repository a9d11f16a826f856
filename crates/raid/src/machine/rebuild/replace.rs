//! Replacement of a member by another device.

use zonda_zoned::{Geometry, Instant, Operation, Outcome, Status, ZoneAction, ZoneDescriptor, ZoneTarget};

use super::super::Volume;
use super::super::members::Work;
use super::super::members::{is_dead, is_mirrored};
use super::RebuildStep;
use crate::event::{Event, FailReason};
use crate::format::{MemberState, OOB_BYTES};
use crate::limits::{METADATA_ZONES, REPORT_ZONES_MAX};
use crate::{MemberIndex, VolumeError};

/// A device that is being reset.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) member: MemberIndex,
    zones: Vec<ZoneDescriptor>,
}

impl Volume {
    /// Replaces a failed member by another device. **All its zones are reset**; then it receives
    /// new stripes, and the rest is rebuilt from the other members, until [`Event::Rebuilt`]. If it
    /// fails instead, [`Event::MemberFailed`] is reported again. Several members can be replaced at
    /// once; they are rebuilt one after the other.
    ///
    /// `id` distinguishes it from the previous device.
    ///
    /// # Errors
    /// If the volume is not ready, the member has not failed, or the device does not suit the
    /// volume; with a remedy.
    pub fn replace_member(
        &mut self,
        now: Instant,
        member: MemberIndex,
        geometry: Geometry,
        id: [u8; 16],
    ) -> Result<(), VolumeError> {
        self.advance_to(now);
        self.may_take(member, &geometry)?;
        // It replaces a device that is being re-added, too.
        self.rebuild.returning.retain(|other| other.member != member);
        drop(self.members[member].abandon());
        self.members[member].replace(id, geometry);
        self.rebuild.replacements.push(Replacement { member, zones: Vec::new() });
        self.report_replacement(member, 0);
        self.make_progress();
        Ok(())
    }

    /// Whether a device with this geometry may replace a member.
    pub(super) fn may_take(&self, member: MemberIndex, geometry: &Geometry) -> Result<(), VolumeError> {
        let refuse = |remedy: String| Err(VolumeError::Config(remedy));
        if !self.is_ready() {
            return refuse("the volume is not ready; wait until it is assembled".to_owned());
        }
        let Some(entry) = self.members.get(member) else {
            return refuse(format!(
                "there is no member {}: the volume has {} members, numbered from 0",
                member.0,
                self.spec.members()
            ));
        };
        if entry.state() != MemberState::Failed {
            return refuse(format!("member {} is in use; fail it first", member.0));
        }
        if self.rebuild.replacements.iter().any(|other| other.member == member) {
            return refuse(format!(
                "member {} is being replaced already; wait until its rebuild completes or fails",
                member.0
            ));
        }
        self.must_suit(geometry)
    }

    /// Checks whether a device with this geometry can replace members.
    ///
    /// # Errors
    /// The requirement that it does not meet.
    pub fn must_suit(&self, geometry: &Geometry) -> Result<(), VolumeError> {
        self.suits(geometry)
            .map_err(|remedy| VolumeError::Config(format!("the device does not suit the volume: {remedy}")))
    }

    /// Checks whether a device meets the requirements.
    fn suits(&self, geometry: &Geometry) -> Result<(), String> {
        let at_least = |what: &str, has: u64, wanted: u64| {
            if has >= wanted { Ok(()) } else { Err(format!("it has {has} {what}, but at least {wanted} are needed")) }
        };
        let block_bytes = u64::from(geometry.block_size_bytes);
        if block_bytes != self.spec.shape.block_bytes as u64 {
            return Err(format!(
                "its block size is {block_bytes} bytes, that of the volume {} bytes",
                self.spec.shape.block_bytes
            ));
        }
        if geometry.conventional_zone_count > 0 {
            return Err("it has conventional zones; use a namespace without conventional zones".to_owned());
        }
        if !self.spec.shape.is_in_band {
            at_least("bytes of metadata per block", u64::from(geometry.metadata_bytes), OOB_BYTES as u64)?;
        }
        let capacity = u64::from(self.spec.shape.zone_capacity_blocks);
        at_least("blocks per zone", geometry.zone_capacity_blocks.0, capacity)?;
        at_least("blocks per transfer", geometry.max_transfer_blocks.0, u64::from(self.spec.shape.transfer_blocks))?;
        for layout in [&self.spec.shape.small, &self.spec.shape.large] {
            if layout.group_stripes > 1 {
                at_least("blocks per append", geometry.max_append_blocks.0, u64::from(layout.unit_blocks))?;
            }
        }
        let others = self.members.present().map(|member| self.members[member].geometry().zone_count).min().unwrap_or(0);
        at_least("zones", u64::from(geometry.zone_count), u64::from(others))?;
        let tuning = &self.spec.config.tuning;
        let active =
            2 + u64::from(is_mirrored(geometry)) + u64::from(tuning.small_segments) + u64::from(tuning.large_segments);
        at_least("active zones", geometry.max_active_zones.map_or(u64::MAX, u64::from), active)
    }

    fn report_replacement(&mut self, member: MemberIndex, zone: u32) {
        let report = self.members[member].report(zone, REPORT_ZONES_MAX);
        self.send_replacement(member, RebuildStep::Report, report);
    }

    fn send_replacement(&mut self, member: MemberIndex, step: RebuildStep, operation: Operation) {
        // It is not a member of the volume yet.
        self.members[member].send(Work::Rebuild(step), operation);
    }

    pub(super) fn on_replacement(&mut self, member: MemberIndex, step: RebuildStep, status: Status, outcome: Outcome) {
        let Some(at) = self.rebuild.replacements.iter().position(|other| other.member == member) else { return };
        match (step, outcome) {
            (RebuildStep::Report, Outcome::Report(report)) if status.is_success() && !report.zones.is_empty() => {
                let zones = &mut self.rebuild.replacements[at].zones;
                zones.extend(report.zones);
                let known = zones.len() as u32;
                if known < self.members[member].geometry().zone_count {
                    return self.report_replacement(member, known);
                }
                if zones.iter().take(METADATA_ZONES as usize).any(|zone| is_dead(zone.state)) {
                    return self.replacement_failed(member, FailReason::Errors);
                }
                let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
                self.send_replacement(member, RebuildStep::Wipe, reset);
            }
            (RebuildStep::Wipe, _) if status.is_success() => {
                let Replacement { zones, .. } = self.rebuild.replacements.remove(at);
                self.join(member, &zones);
            }
            _ => self.replacement_failed(member, FailReason::Errors),
        }
    }

    /// The device is reset: it joins the volume.
    fn join(&mut self, member: MemberIndex, zones: &[ZoneDescriptor]) {
        let entry = &mut self.members[member];
        entry.begin(zones);
        entry.begin_rebuild();
        self.members.begin_epoch(&self.spec);
        self.begin_rebuild_of_joined();
    }

    /// The device cannot replace the member.
    fn replacement_failed(&mut self, member: MemberIndex, reason: FailReason) {
        self.rebuild.replacements.retain(|other| other.member != member);
        // Its commands are abandoned.
        drop(self.members[member].abandon());
        self.events.push_back(Event::MemberFailed { member, reason });
    }

    /// Devices that leave a command unanswered before they have become members.
    pub(in super::super) fn fail_silent_replacements(&mut self) {
        let timeout = self.spec.config.tuning.member_timeout;
        let timed_out =
            |member: &MemberIndex| self.members[*member].answer_due(timeout).is_some_and(|due| due <= self.now);
        let members: Vec<MemberIndex> =
            self.rebuild.replacements.iter().map(|other| other.member).filter(timed_out).collect();
        for member in members {
            self.replacement_failed(member, FailReason::Timeout);
        }
        let returning: Vec<MemberIndex> = self.rebuild.returning.iter().map(|other| other.member).collect();
        for member in returning {
            if self.members[member].answer_due(timeout).is_none_or(|due| due > self.now) {
                continue;
            }
            let what = "it does not answer; check whether its server is running, and try again".to_owned();
            self.refuse_return(member, VolumeError::Member { member, what });
        }
    }
}
