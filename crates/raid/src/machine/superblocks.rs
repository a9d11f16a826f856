//! The log of superblocks: who the members are, in the first zones of each of them.
//!
//! A change of members is an epoch. Until all that are left know of it, no stripe counts that was written without those that
//! failed, and no segment is opened: a member that comes back is never taken for one that has seen everything.

use bytes::BytesMut;
use zonda_zoned::{Operation, Status, ZoneAction};

use super::Volume;
use super::members::Work;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::config::StreamShape;
use crate::event::FailReason;
use crate::format::{MemberEntry, Superblock};
use crate::limits::METADATA_ZONES;
use crate::shape::Layout;

/// Where a member's log of superblocks is.
#[derive(Debug, Default)]
pub(super) struct MetadataLog {
    pub(super) zone: u32,
    /// The next block to be written.
    pub(super) next: u32,
}

/// Changes of members, and who waits for them.
#[derive(Debug)]
pub(super) struct Epochs {
    pub(super) current: u64,
    /// Of the last superblock.
    pub(super) sequence: u64,
    /// The current epoch has still to be written.
    is_wanted: bool,
    /// Superblocks under way.
    pending: u32,
    /// Stripes that are complete but for the epoch.
    pub(super) waiting: Vec<u32>,
}

impl Epochs {
    pub(super) fn new(current: u64, sequence: u64) -> Epochs {
        Epochs { current, sequence, is_wanted: false, pending: 0, waiting: Vec::new() }
    }

    /// Whether all members that are left know who they are.
    pub(super) fn is_durable(&self) -> bool {
        !self.is_wanted && self.pending == 0
    }
}

impl Volume {
    /// The members have changed.
    pub(super) fn begin_epoch(&mut self) {
        let is_loss = |member: &super::Member| !member.is_there() && member.recorded != Some(member.state);
        if self.spec.has(SeededBug::ForgottenEpoch) && self.members.iter().any(is_loss) {
            return;
        }
        self.epochs.current += 1;
        for member in &mut self.members {
            let is_new = member.recorded != Some(member.state);
            if is_new {
                member.since_epoch = self.epochs.current;
                member.recorded = Some(member.state);
            }
        }
        self.epochs.is_wanted = true;
    }

    /// Writes what is wanted.
    pub(super) fn pump_superblocks(&mut self) {
        if self.epochs.is_wanted && self.epochs.pending == 0 {
            self.epochs.is_wanted = false;
            self.epochs.sequence += 1;
            for member in self.present() {
                self.epochs.pending += 1;
                self.write_superblock(member);
            }
        }
        if self.epochs.is_durable() {
            // A member may have failed since: what stripes have is looked at anew.
            let mut waiting = std::mem::take(&mut self.epochs.waiting);
            if self.spec.has(SeededBug::ForgottenStripe) {
                waiting.pop();
            }
            for stripe in waiting {
                self.stripe_ended(stripe);
            }
        }
    }

    fn write_superblock(&mut self, member: MemberIndex) {
        let log = &self.members[member.as_usize()].metadata;
        // To the end of the zone, so that it is not active any more when the other one is.
        let capacity = self.members[member.as_usize()].geometry.zone_capacity_blocks.0;
        if u64::from(log.next) >= capacity {
            let zone = (log.zone + 1) % METADATA_ZONES;
            let reset = self.members[member.as_usize()].manage(zone, ZoneAction::Reset);
            self.members[member.as_usize()].metadata = MetadataLog { zone, next: 0 };
            return self.send(member, Work::MetadataReset, reset);
        }
        let (zone, offset) = (log.zone, log.next);
        self.members[member.as_usize()].metadata.next += 1;
        let mut block = BytesMut::zeroed(self.spec.shape.block_bytes);
        self.superblock(member).write(&mut block);
        let metadata = self.spec.no_metadata(&self.members[member.as_usize()].geometry, 1);
        self.write_blocks(member, Work::Superblock, (zone, offset), 1, (block.freeze(), metadata));
    }

    pub(super) fn on_metadata_reset(&mut self, member: MemberIndex, status: Status) {
        if status.is_success() && self.members[member.as_usize()].is_there() {
            return self.write_superblock(member);
        }
        self.superblock_ended(member);
    }

    pub(super) fn on_superblock(&mut self, member: MemberIndex, status: Status) {
        if !status.is_success() {
            self.superblock_ended(member);
        } else if self.spec.is_cache_volatile() {
            self.send(member, Work::SuperblockFlush, Operation::Flush);
        } else {
            self.epochs.pending -= 1;
        }
    }

    pub(super) fn on_superblock_flush(&mut self, member: MemberIndex, status: Status) {
        if status.is_success() {
            self.epochs.pending -= 1;
        } else {
            self.superblock_ended(member);
        }
    }

    /// A member that cannot say who belongs to the volume does not belong to it any more.
    fn superblock_ended(&mut self, member: MemberIndex) {
        self.epochs.pending -= 1;
        if self.members[member.as_usize()].is_there() {
            self.give_up(member, FailReason::Errors);
        }
    }

    fn superblock(&self, member: MemberIndex) -> Superblock {
        let shape =
            |layout: &Layout| StreamShape { unit_blocks: layout.unit_blocks, group_stripes: layout.group_stripes };
        let entry = |member: &super::Member| MemberEntry {
            id: member.id,
            state: member.state,
            since_epoch: member.since_epoch,
        };
        Superblock {
            array: self.spec.array,
            name: self.spec.config.name.clone(),
            epoch: self.epochs.current,
            sequence: self.epochs.sequence,
            block_size_bytes: self.spec.shape.block_bytes as u32,
            volume_blocks: self.spec.geometry.namespace_blocks().0,
            level: self.spec.shape.scheme.level.code(),
            data: self.spec.shape.scheme.data,
            parity: self.spec.shape.scheme.parity,
            is_in_band: self.spec.shape.is_in_band,
            small: shape(&self.spec.shape.small),
            large: shape(&self.spec.shape.large),
            member: member.0,
            members: self.members.iter().map(entry).collect(),
        }
    }
}
