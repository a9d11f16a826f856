//! Groups in which a power loss has left zones further on than others.
//!
//! Behind the first missing block of a group, some zones hold blocks that count for nothing. The next
//! write records that the rest of the group stands further on in its zones (a *jump*), and then fills
//! each zone up to there. In this order: padding that stands without the record would be taken for
//! what the host has written.
//!
//! A group has a limited number of jumps. A mount that finds a torn group without one left finishes its
//! v-zone: the checkpoint of the mount records that, before the pool is started.

use zonda_zoned::{Blocks, Operation, Status, ZoneIndex};

use super::{Namespace, Op, Pool, Record, Waiter};
use crate::bug::SeededBug;
use crate::limits::HEADER_BLOCKS;
use crate::vzone::{Busy, VZone};

/// A group that is being repaired.
#[derive(Debug)]
pub(super) struct Repair {
    /// Write pointers of its zones.
    pointers: Box<[u64]>,
    outstanding: u32,
    status: Status,
}

impl Pool {
    /// Finishes the v-zones that a mount has found torn, and that no jump repairs: their last group has no
    /// room for one, or the log has none for its record. Each of the others has its jump reserved in the log.
    pub(crate) fn finish_unrepairable(&mut self) {
        let is_torn = |vzone: &VZone| {
            let is_lost = vzone.has_failed || vzone.is_offline || vzone.is_damaged;
            vzone.torn.is_some() && !is_lost && !vzone.is_finished
        };
        let torn_of = |(id, own): (&u32, &Namespace)| {
            let indices =
                own.vzones.iter().enumerate().filter(|(_, vzone)| is_torn(vzone)).map(|(index, _)| index as u32);
            indices.map(|index| (*id, index)).collect::<Vec<_>>()
        };
        let torn: Vec<(u32, u32)> = self.namespaces.iter().flat_map(torn_of).collect();
        if torn.is_empty() {
            return;
        }
        let mut all = self.snapshot_bytes();
        for (namespace, vzone) in torn {
            let own = &self.namespaces[&namespace].vzones[vzone as usize];
            let bytes = |own: &VZone| Record::VZone(own.record(namespace, vzone)).encode().len() as u64;
            let pointers = own.torn.as_deref().expect("it is torn");
            let mut repaired =
                VZone { groups: own.groups.clone(), extension: own.extension.clone(), ..VZone::default() };
            let before = bytes(&repaired);
            let group = repaired.groups.last_mut().expect("a torn v-zone has a group");
            let has_jump = group.skip_torn(own.written, pointers, self.rows_max(group.stripe_blocks()));
            let after = bytes(&repaired);
            if has_jump.is_some_and(|has_jump| !has_jump || self.fits(after, all + after - before)) {
                all += after - before;
                continue;
            }
            let found = self.namespaces.get_mut(&namespace).expect("it has the v-zone");
            let own = &mut found.vzones[vzone as usize];
            // Until the mount is recorded, as after a Finish without a record.
            (own.is_finished, own.is_finished_by_pool, own.is_unrecorded, own.torn) = (true, true, true, None);
            found.table.finish_by_controller(ZoneIndex(vzone));
        }
    }

    /// Rows of stripes of so many blocks that a zone holds.
    fn rows_max(&self, stripe_blocks: u64) -> u64 {
        (self.drive.zone_capacity_blocks.0 - HEADER_BLOCKS) / stripe_blocks
    }

    pub(super) fn begin_repair(&mut self, namespace: u32, vzone: u32) {
        let own = self.vzone(namespace, vzone);
        let pointers = own.torn.take().expect("the group is torn");
        let written = own.written;
        let before = own.groups.last().expect("a torn v-zone has a group").clone();
        let rows_max = self.rows_max(before.stripe_blocks());
        let group = self.vzone(namespace, vzone).groups.last_mut().expect("it was just found");
        let has_jump = group.skip_torn(written, &pointers, rows_max);
        let Some(has_jump) = has_jump.filter(|has_jump| !has_jump || self.fits_metadata(namespace, vzone)) else {
            // The log has grown since the mount, and has no room for the jump: the v-zone is read only.
            let own = self.vzone(namespace, vzone);
            *own.groups.last_mut().expect("a torn v-zone has a group") = before;
            self.fail(namespace, vzone, None);
            self.pump(namespace, vzone);
            return;
        };
        self.vzone(namespace, vzone).busy = Some(Busy::Repair);
        self.repairs.insert((namespace, vzone), Repair { pointers, outstanding: 0, status: Status::Success });
        if has_jump && !self.bug.has(SeededBug::UnrecordedJump) {
            self.record_vzone(namespace, vzone, Waiter::Repair { namespace, vzone });
        } else {
            self.fill(namespace, vzone);
        }
    }

    pub(super) fn on_repair_recorded(&mut self, namespace: u32, vzone: u32, is_durable: bool) {
        if is_durable {
            self.fill(namespace, vzone);
        } else {
            let status = self.status_of_record(false);
            self.note_space(namespace, vzone, status);
            self.end_repair(namespace, vzone, status);
        }
    }

    /// Fills the zones up to where the next block of the v-zone stands.
    fn fill(&mut self, namespace: u32, vzone: u32) {
        let own = &self.namespaces[&namespace].vzones[vzone as usize];
        let index = own.groups.len() - 1;
        let wanted = own.groups[index].pointers_at(own.written);
        let zones: Vec<u32> = own.groups[index].zones().to_vec();
        let pointers = self.repairs[&(namespace, vzone)].pointers.clone();
        let origin = Pool::origin_of(namespace, &own.groups[index]);
        let mut sent = 0;
        for (place, zone) in zones.into_iter().enumerate() {
            let pointer = pointers[place];
            if pointer < 1 {
                let block = self.reservation_of(zone).to_block(self.id, self.format.data_bytes);
                let operation = self.write_of_block(zone, 0, block);
                self.issue(Op::RepairWrite { namespace, vzone }, operation, origin);
                sent += 1;
            }
            if pointer < HEADER_BLOCKS {
                self.write_owner(namespace, vzone, index, place, Op::RepairWrite { namespace, vzone });
                sent += 1;
            }
            let from = pointer.max(HEADER_BLOCKS);
            if from < wanted[place] {
                let (start, blocks) = (self.zone_lba(zone, from), Blocks(wanted[place] - from));
                self.issue(Op::RepairWrite { namespace, vzone }, Operation::WriteZeroes { start, blocks }, origin);
                sent += 1;
            }
        }
        if sent == 0 {
            self.end_repair(namespace, vzone, Status::Success);
        } else {
            self.repairs.get_mut(&(namespace, vzone)).expect("it is being repaired").outstanding = sent;
        }
    }

    pub(super) fn on_repair_written(&mut self, namespace: u32, vzone: u32, status: Status) {
        self.note_space(namespace, vzone, status);
        let repair = self.repairs.get_mut(&(namespace, vzone)).expect("it is being repaired");
        repair.outstanding -= 1;
        if repair.status.is_success() {
            repair.status = status;
        }
        if repair.outstanding == 0 {
            let status = repair.status;
            self.end_repair(namespace, vzone, status);
        }
    }

    fn end_repair(&mut self, namespace: u32, vzone: u32, status: Status) {
        self.repairs.remove(&(namespace, vzone));
        let own = self.vzone(namespace, vzone);
        assert_eq!(own.busy.take(), Some(Busy::Repair), "the v-zone is being repaired");
        own.is_ready = true;
        if !status.is_success() {
            self.fail(namespace, vzone, None);
        }
        self.pump(namespace, vzone);
    }
}
