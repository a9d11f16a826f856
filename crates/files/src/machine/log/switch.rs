//! Switches to the next metadata zone: resets it, writes a superblock and a snapshot; then it is
//! the one in use. The old zone is not changed until then.

use bytes::Bytes;
use zonda_zoned::{Operation, Status, ZoneAction, ZoneTarget};

use crate::machine::commands::{Commands, InFlight};
use crate::machine::shape::Shape;

use super::{Log, Lsn, Progress, Stage};

/// A snapshot that the store is to encode, of the state as it is now.
#[derive(Debug)]
pub(in crate::machine) struct SnapshotOrder {
    next: usize,
    lsn: Lsn,
    sequence: u64,
}

/// A snapshot being written.
#[derive(Clone, Debug)]
pub(super) struct SnapshotRun {
    next: usize,
    lsn: Lsn,
    blocks: Bytes,
    /// Blocks written, and blocks in flight.
    written: u32,
    in_flight: u32,
}

impl SnapshotOrder {
    /// The log sequence number of all records in the snapshot.
    pub(in crate::machine) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The sequence of its superblock.
    pub(in crate::machine) fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Log {
    /// Begins a snapshot in the next metadata zone.
    pub(in crate::machine) fn begin_snapshot(&mut self, shape: &Shape, commands: &mut Commands) -> Progress {
        self.try_next_zone(shape, commands, self.current)
    }

    /// Tries the metadata zone behind index `after`, until all except the one in use have been
    /// tried.
    pub(super) fn try_next_zone(&mut self, shape: &Shape, commands: &mut Commands, after: usize) -> Progress {
        let next = (after + 1) % self.zones.len();
        if next == self.current {
            return self.fail();
        }
        self.stage = Stage::Resetting { next };
        self.manage(shape, commands, next, ZoneAction::Reset);
        Progress::None
    }

    /// The zone in use accepts no more writes: frees its active resource, and continues in another
    /// zone.
    pub(in crate::machine) fn leave_zone(&mut self, shape: &Shape, commands: &mut Commands) {
        self.stage = Stage::Finishing;
        self.manage(shape, commands, self.current, ZoneAction::Finish);
    }

    fn manage(&mut self, shape: &Shape, commands: &mut Commands, number: usize, action: ZoneAction) {
        let target = ZoneTarget::Zone(shape.zone_start(self.zones[number]));
        commands.send(InFlight::Log, Operation::ManageZones { action, target });
    }

    /// A zone was reset, for a snapshot that includes the pending records: these need not be
    /// written any more.
    pub(super) fn on_reset(&mut self, shape: &Shape, commands: &mut Commands, next: usize, status: Status) -> Progress {
        if !status.is_success() {
            return self.try_next_zone(shape, commands, next);
        }
        self.sequence += 1;
        self.pending.clear();
        self.last.0 += 1;
        Progress::WantsSnapshot(SnapshotOrder { next, lsn: self.last, sequence: self.sequence })
    }

    /// Writes a snapshot that the store has encoded.
    pub(in crate::machine) fn write_snapshot(
        &mut self,
        shape: &Shape,
        commands: &mut Commands,
        order: &SnapshotOrder,
        blocks: Bytes,
    ) {
        let &SnapshotOrder { next, lsn, .. } = order;
        assert_eq!(lsn, self.last, "a snapshot contains every record");
        let run = SnapshotRun { next, lsn, blocks, written: 0, in_flight: 0 };
        if self.flushes {
            self.flush_snapshot(commands, run);
        } else {
            self.send_part(shape, commands, run);
        }
    }

    /// A part of a snapshot is written or has failed, or it is flushed.
    pub(super) fn on_snapshot_part(
        &mut self,
        shape: &Shape,
        commands: &mut Commands,
        mut run: SnapshotRun,
        status: Status,
    ) -> Progress {
        if !status.is_success() {
            // Once reset, it is not part of the store, and holds no active resource.
            self.stage = Stage::Abandoning { next: run.next };
            self.manage(shape, commands, run.next, ZoneAction::Reset);
            return Progress::None;
        }
        let was_flush = run.in_flight == 0;
        run.written += std::mem::take(&mut run.in_flight);
        if shape.bytes(run.written) < run.blocks.len() as u64 {
            self.send_part(shape, commands, run);
            return Progress::None;
        }
        if self.flushes && !was_flush {
            self.flush_snapshot(commands, run);
            return Progress::None;
        }
        self.current = run.next;
        self.written = run.written;
        self.become_durable(run.lsn, true)
    }

    fn flush_snapshot(&mut self, commands: &mut Commands, run: SnapshotRun) {
        self.stage = Stage::Snapshot(run);
        commands.send(InFlight::Log, Operation::Flush);
    }

    fn send_part(&mut self, shape: &Shape, commands: &mut Commands, mut run: SnapshotRun) {
        let from = shape.bytes(run.written) as usize;
        let to = run.blocks.len().min(from + shape.bytes(shape.write_blocks) as usize);
        let part = run.blocks.slice(from..to);
        run.in_flight = (part.len() / shape.block_bytes as usize) as u32;
        let (zone, start) = (self.zones[run.next], run.written);
        self.stage = Stage::Snapshot(run);
        self.write(shape, commands, zone, start, part);
    }
}
