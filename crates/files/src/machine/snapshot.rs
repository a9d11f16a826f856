//! Switches to the next metadata zone: resets it, writes a superblock and a snapshot; then it is
//! the one in use. The old zone is not changed until then.

use zonda_zoned::{Operation, Status, ZoneAction, ZoneTarget};

use crate::FileStore;
use crate::bug::SeededBug;
use crate::format::record::{Record, RecordBuffer};
use crate::format::superblock::Superblock;

use super::commands::InFlight;
use super::log::{SnapshotRun, Stage, Waiter};
use super::zones::State;

impl FileStore {
    /// Begins a snapshot in the next metadata zone.
    pub(super) fn begin_snapshot(&mut self) {
        self.try_next_zone(self.log.current);
    }

    /// Tries the metadata zone behind index `after`, until all except the one in use have been
    /// tried.
    pub(super) fn try_next_zone(&mut self, after: usize) {
        let next = (after + 1) % self.log.zones.len();
        if next == self.log.current {
            return self.break_log();
        }
        self.log.stage = Stage::Resetting { next };
        self.manage_log_zone(next, ZoneAction::Reset);
    }

    /// The zone in use failed a write: frees its active resource, and continues in another zone.
    pub(super) fn leave_log_zone(&mut self) {
        self.log.stage = Stage::Finishing;
        self.manage_log_zone(self.log.current, ZoneAction::Finish);
    }

    fn manage_log_zone(&mut self, number: usize, action: ZoneAction) {
        let target = ZoneTarget::Zone(self.shape.zone_start(self.log.zones[number]));
        self.commands.send(InFlight::Log, Operation::ManageZones { action, target });
    }

    pub(super) fn on_log_reset(&mut self, next: usize, status: Status) {
        if !status.is_success() {
            return self.try_next_zone(next);
        }
        self.log.sequence += 1;
        let blocks = self.encode_snapshot().into();
        let run = SnapshotRun { next, lsn: self.log.records, blocks, written: 0, in_flight: 0 };
        if self.log.flushes {
            self.flush_snapshot(run);
        } else {
            self.send_snapshot_part(run);
        }
    }

    /// Called when a part of a snapshot is written or has failed, or when it is flushed.
    pub(super) fn on_snapshot_part(&mut self, mut run: SnapshotRun, status: Status) {
        if !status.is_success() {
            // Once reset, it is not part of the store, and holds no active resource.
            self.log.stage = Stage::Abandoning { next: run.next };
            return self.manage_log_zone(run.next, ZoneAction::Reset);
        }
        let was_flush = run.in_flight == 0;
        run.written += std::mem::take(&mut run.in_flight);
        if self.shape.bytes(run.written) < run.blocks.len() as u64 {
            return self.send_snapshot_part(run);
        }
        if self.log.flushes && !was_flush {
            return self.flush_snapshot(run);
        }
        self.log.current = run.next;
        self.log.written = run.written;
        if self.has(SeededBug::ForgottenWaiter) && self.is_ready() {
            self.log.waiters.pop_front_if(|(_, waiter)| matches!(waiter, Waiter::Request(_)));
        }
        self.become_durable(run.lsn);
    }

    fn flush_snapshot(&mut self, run: SnapshotRun) {
        self.log.stage = Stage::Snapshot(run);
        self.commands.send(InFlight::Log, Operation::Flush);
    }

    fn send_snapshot_part(&mut self, mut run: SnapshotRun) {
        let from = self.shape.bytes(run.written) as usize;
        let to = run.blocks.len().min(from + self.shape.bytes(self.shape.write_blocks) as usize);
        let part = run.blocks.slice(from..to);
        run.in_flight = (part.len() / self.shape.block_bytes as usize) as u32;
        let (zone, start) = (self.log.zones[run.next], run.written);
        self.log.stage = Stage::Snapshot(run);
        self.write_metadata(zone, start, part);
    }

    /// The superblock of the next sequence, and records of the complete recorded state, with the
    /// data of these files that have reached the media since. It includes pending records, which
    /// need not be written any more.
    fn encode_snapshot(&mut self) -> Vec<u8> {
        self.log.pending.clear();
        self.log.records += 1;
        let lsn = self.log.records;
        let mut records = RecordBuffer::default();
        for (zone, entry) in self.zones.iter().filter(|(_, entry)| entry.state != State::Empty) {
            records.push(&Record::ZoneOpened { zone, lifetime: entry.lifetime });
            if entry.is_finished_early {
                records.push(&Record::ZoneFinished { zone, written: entry.written });
            }
        }
        let forgotten = self.migrator.last_moved.filter(|_| self.has(SeededBug::ForgottenMove));
        self.files.write_snapshot(&mut records, lsn, forgotten);

        let block_bytes = self.shape.block_bytes as usize;
        let superblock = Superblock { uuid: self.uuid, facts: self.shape.facts };
        let mut blocks = Vec::new();
        superblock.encode(self.log.sequence, block_bytes, &mut blocks);
        blocks.extend(records.pack(self.log.sequence, 1, self.shape.capacity_blocks - 1, block_bytes));
        assert_eq!(records.count(), 0, "a snapshot fits in its zone");
        blocks
    }
}
