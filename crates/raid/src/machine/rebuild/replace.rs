//! Replacement of a member by another device.

use zonda_zoned::{Geometry, Instant, Operation, Outcome, Status, ZoneAction, ZoneDescriptor, ZoneTarget};

use super::super::Volume;
use super::super::members::Work;
use super::super::members::{is_dead, is_mirrored};
use super::RebuildStep;
use crate::event::{Event, FailReason};
use crate::format::{MemberState, OOB_BYTES};
use crate::limits::{METADATA_ZONES, REPORT_ZONES_MAX};
use crate::{MemberIndex, Membership, VolumeError};

/// A device that is being reset.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) member: MemberIndex,
    zones: Vec<ZoneDescriptor>,
}

impl Membership {
    /// Checks whether a drive with this geometry can replace members, as far as the superblock and
    /// the geometries of the other members show it: an assembled volume may have more requirements.
    /// Without `others`, which must be all members in use, only the formats of blocks are compared.
    ///
    /// # Errors
    /// The requirement that it does not meet.
    pub fn must_suit(&self, geometry: &Geometry, others: &[Geometry]) -> Result<(), VolumeError> {
        let smallest = |of: fn(&Geometry) -> u64| others.iter().map(of).min().unwrap_or(0);
        let zone = |geometry: &Geometry| geometry.zone_capacity_blocks.0;
        let zones = |geometry: &Geometry| u64::from(geometry.zone_count);
        suits_format(geometry, u64::from(self.block_size_bytes), self.is_in_band)
            .and_then(|()| at_least("blocks per zone", zone(geometry), smallest(zone)))
            .and_then(|()| at_least("zones", zones(geometry), smallest(zones)))
            .map_err(|why| unsuited(&why))
    }
}

fn unsuited(why: &str) -> VolumeError {
    VolumeError::Config(format!("the drive does not suit the volume: {why}"))
}

fn at_least(what: &str, has: u64, wanted: u64) -> Result<(), String> {
    if has >= wanted { Ok(()) } else { Err(format!("it has {has} {what}, but at least {wanted} are needed")) }
}

/// Checks whether the blocks of a drive have the format of those of the volume.
fn suits_format(geometry: &Geometry, block_bytes: u64, is_in_band: bool) -> Result<(), String> {
    if u64::from(geometry.block_size_bytes) != block_bytes {
        return Err(format!(
            "its block size is {} bytes, that of the volume {block_bytes} bytes",
            geometry.block_size_bytes
        ));
    }
    if geometry.conventional_zone_count > 0 {
        return Err("it has conventional zones; use a namespace without conventional zones".to_owned());
    }
    if is_in_band {
        return Ok(());
    }
    at_least("bytes of metadata per block", u64::from(geometry.metadata_bytes), OOB_BYTES as u64)
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
        self.suits(geometry).map_err(|why| unsuited(&why))
    }

    /// Checks whether a device meets the requirements.
    fn suits(&self, geometry: &Geometry) -> Result<(), String> {
        let shape = &self.spec.shape;
        suits_format(geometry, shape.block_bytes as u64, shape.is_in_band)?;
        let capacity = u64::from(shape.zone_capacity_blocks);
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
