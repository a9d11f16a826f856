//! Groups in which a power loss has left zones further on than others.
//!
//! Behind the first missing block of a group, some zones hold blocks that count for nothing. The next
//! write records that the rest of the group stands further on in its zones (a *jump*), and then fills
//! each zone up to there. In this order: padding that stands without the record would be taken for
//! what the host has written.

use zonda_zoned::{Blocks, Operation, Status};

use super::{Op, Pool, Waiter};
use crate::bug::SeededBug;
use crate::limits::HEADER_BLOCKS;
use crate::vzone::Busy;

/// A group that is being repaired.
#[derive(Debug)]
pub(super) struct Repair {
    /// Write pointers of its zones.
    pointers: Box<[u64]>,
    outstanding: u32,
    status: Status,
}

impl Pool {
    pub(super) fn begin_repair(&mut self, namespace: u32, vzone: u32) {
        let zone_rows = self.drive.zone_capacity_blocks.0 - HEADER_BLOCKS;
        let own = self.vzone(namespace, vzone);
        let pointers = own.torn.take().expect("the group is torn");
        let written = own.written;
        let group = own.groups.last_mut().expect("a torn v-zone has a group");
        let (before, rows_max) = (group.clone(), zone_rows / group.stripe_blocks());
        let has_jump = group.skip_torn(written, &pointers, rows_max);
        let Some(has_jump) = has_jump.filter(|has_jump| !has_jump || self.fits_metadata(namespace, vzone)) else {
            // No room is left for another loss: the v-zone is read only.
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
