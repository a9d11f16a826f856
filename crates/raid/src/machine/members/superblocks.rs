//! The log of superblocks: who the members are, in the first zones of each of them.
//!
//! A change of members is an epoch. Until all that are left know of it, no stripe counts that was written without those that
//! failed, and no segment is opened: a member that comes back is never taken for one that has seen everything.
//!
//! Verbs, in their order: [`begin_epoch`](Members::begin_epoch), [`write_superblocks`](Members::write_superblocks), an event for each
//! command that ends, [`decided`](Members::decided).

use bytes::BytesMut;
use zonda_zoned::{Operation, Status, ZoneAction};

use super::{Members, Verdict, Work};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::config::StreamShape;
use crate::format::Superblock;
use crate::limits::METADATA_ZONES;
use crate::machine::spec::Spec;
use crate::shape::Layout;

/// Where a member's log of superblocks is.
#[derive(Debug, Default)]
pub(in crate::machine) struct MetadataLog {
    zone: u32,
    /// The next block to be written.
    next: u32,
}

impl MetadataLog {
    pub(in crate::machine) fn new(zone: u32, next: u32) -> MetadataLog {
        MetadataLog { zone, next }
    }
}

/// Owns the epoch, and who waits until it is written.
#[derive(Debug)]
pub(super) struct Epochs {
    current: u64,
    /// Of the last superblock.
    sequence: u64,
    /// The current epoch has still to be written.
    is_wanted: bool,
    /// Superblocks in flight.
    pending: u32,
    /// Stripes that are complete but for the epoch.
    waiting: Vec<u32>,
}

impl Epochs {
    pub(super) fn new(current: u64, sequence: u64) -> Epochs {
        Epochs { current, sequence, is_wanted: false, pending: 0, waiting: Vec::new() }
    }

    /// Whether all members that are left know who they are.
    fn is_durable(&self) -> bool {
        !self.is_wanted && self.pending == 0
    }
}

impl Members {
    /// The members have changed.
    pub(in crate::machine) fn begin_epoch(&mut self, spec: &Spec) {
        let is_loss = |member: &super::Member| !member.is_present() && member.has_unrecorded_state();
        if spec.has(SeededBug::ForgottenEpoch) && self.members.iter().any(is_loss) {
            return;
        }
        self.epochs.current += 1;
        for member in &mut self.members {
            member.record(self.epochs.current);
        }
        self.epochs.is_wanted = true;
    }

    /// The superblocks are written once more: their newest copies may be damaged.
    pub(in crate::machine) fn renew_superblocks(&mut self) {
        self.epochs.is_wanted = true;
    }

    /// Writes the current epoch, if it is not written.
    pub(in crate::machine) fn write_superblocks(&mut self, spec: &Spec) {
        if self.epochs.is_wanted && self.epochs.pending == 0 {
            self.epochs.is_wanted = false;
            self.epochs.sequence += 1;
            for member in self.present() {
                self.epochs.pending += 1;
                self.write_superblock(spec, member);
            }
        }
    }

    /// A stripe is complete but for the epoch: it waits until that is durable.
    pub(in crate::machine) fn wait_for_epoch(&mut self, stripe: u32) {
        self.epochs.waiting.push(stripe);
    }

    /// Stripes that waited for an epoch which is durable now.
    pub(in crate::machine) fn decided(&mut self, spec: &Spec) -> Vec<u32> {
        if !self.epochs.is_durable() {
            return Vec::new();
        }
        let mut waiting = std::mem::take(&mut self.epochs.waiting);
        if spec.has(SeededBug::ForgottenStripe) {
            waiting.pop();
        }
        waiting
    }

    pub(in crate::machine) fn on_metadata_reset(
        &mut self,
        spec: &Spec,
        member: MemberIndex,
        status: Status,
    ) -> Verdict {
        if status.is_success() && self[member].is_present() {
            self.write_superblock(spec, member);
            return Verdict::Usable;
        }
        self.superblock_failed(spec, member, status)
    }

    pub(in crate::machine) fn on_superblock(&mut self, spec: &Spec, member: MemberIndex, status: Status) -> Verdict {
        if !status.is_success() {
            return self.superblock_failed(spec, member, status);
        }
        if spec.is_cache_volatile() {
            self.send(member, Work::SuperblockFlush, Operation::Flush);
        } else {
            self.epochs.pending -= 1;
        }
        Verdict::Usable
    }

    pub(in crate::machine) fn on_superblock_flush(
        &mut self,
        spec: &Spec,
        member: MemberIndex,
        status: Status,
    ) -> Verdict {
        if status.is_success() {
            self.epochs.pending -= 1;
            return Verdict::Usable;
        }
        self.superblock_failed(spec, member, status)
    }

    /// Whether all members that are left know who they are.
    pub(in crate::machine) fn is_epoch_durable(&self) -> bool {
        self.epochs.is_durable()
    }

    pub(in crate::machine) fn epoch(&self) -> u64 {
        self.epochs.current
    }

    /// A member that cannot record who belongs to the volume does not belong to it any more. One that the volume cannot do without, or
    /// that has no room, is asked again, in the other zone, since what was written of this one is not known.
    fn superblock_failed(&mut self, spec: &Spec, member: MemberIndex, status: Status) -> Verdict {
        self.epochs.pending -= 1;
        if !self[member].is_present() {
            return Verdict::Usable;
        }
        let verdict = self.verdict_of(status);
        if verdict == Verdict::Usable || !self.can_spare(spec, member) {
            self.epochs.is_wanted = true;
            self[member].log.next = u32::MAX;
        }
        verdict
    }

    fn write_superblock(&mut self, spec: &Spec, index: MemberIndex) {
        let member = &self[index];
        // To the end of the zone, so that it is not active any more when the other one is.
        if u64::from(member.log.next) >= member.geometry().zone_capacity_blocks.0 {
            let zone = (member.log.zone + 1) % METADATA_ZONES;
            let reset = member.manage(zone, ZoneAction::Reset);
            self[index].log = MetadataLog { zone, next: 0 };
            return self.send(index, Work::MetadataReset, reset);
        }
        let place = (member.log.zone, member.log.next);
        let metadata = spec.no_metadata(member.geometry(), 1);
        self[index].log.next += 1;
        let mut block = BytesMut::zeroed(spec.shape.block_bytes);
        self.superblock(spec, index).write(&mut block);
        self.write(spec, index, Work::Superblock, place, 1, (block.freeze(), metadata));
    }

    fn superblock(&self, spec: &Spec, member: MemberIndex) -> Superblock {
        let shape =
            |layout: &Layout| StreamShape { unit_blocks: layout.unit_blocks, group_stripes: layout.group_stripes };
        Superblock {
            array: spec.array,
            name: spec.config.name.clone(),
            epoch: self.epochs.current,
            sequence: self.epochs.sequence,
            block_size_bytes: spec.shape.block_bytes as u32,
            volume_blocks: spec.volume_blocks(),
            level: spec.shape.scheme.level.code(),
            data: spec.shape.scheme.data,
            parity: spec.shape.scheme.parity,
            is_in_band: spec.shape.is_in_band,
            small: shape(&spec.shape.small),
            large: shape(&spec.shape.large),
            member: member.0,
            members: self.members.iter().map(super::Member::entry).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::{end_next, members, spec};
    use super::*;

    #[test]
    fn stripes_wait_until_all_members_know_of_a_change() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        members.begin_epoch(&spec);
        members.wait_for_epoch(4);
        members.write_superblocks(&spec);
        for member in spec.member_indices() {
            assert!(!members.is_epoch_durable() && members.decided(&spec).is_empty());
            let (work, completion) = end_next(&mut members, member, Status::Success).expect("a superblock");
            assert!(matches!(work, Work::Superblock));
            assert_eq!(members.on_superblock(&spec, member, completion.status), Verdict::Usable);
        }
        assert!(members.is_epoch_durable());
        assert_eq!((members.epoch(), members.decided(&spec)), (2, vec![4]));
        members.check_invariants();
    }

    #[test]
    fn a_member_that_cannot_write_its_superblock_has_failed_and_delays_no_other() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        members.begin_epoch(&spec);
        members.write_superblocks(&spec);
        for member in spec.member_indices() {
            let status = if member.0 == 1 { Status::InternalError } else { Status::Success };
            end_next(&mut members, member, status).expect("a superblock");
            let expected = if member.0 == 1 { Verdict::Failed } else { Verdict::Usable };
            assert_eq!(members.on_superblock(&spec, member, status), expected);
        }
        assert!(members.is_epoch_durable());
    }
}
