//! The metadata log: records are collected while a write is in flight, and written together by the
//! next one.
//!
//! ```text
//! switch.rs   from one metadata zone to the next
//! waiters.rs  actions when records are durable
//! ```

mod switch;
mod waiters;

use bytes::Bytes;
use zonda_zoned::{Blocks, Operation, Status, ZoneIndex};

use crate::extents::Run;
use crate::format::record::{Record, RecordBuffer};
use crate::{FileError, FileId};

use super::commands::{Commands, InFlight};
use super::shape::Shape;
pub(super) use switch::SnapshotOrder;
use switch::SnapshotRun;
use waiters::Waiters;
pub(super) use waiters::{Wait, Waiter};

/// A log sequence number: the number of the records up to one, which it names. A snapshot has one,
/// too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lsn(u64);

/// Owns the metadata zones, the records not yet written to them, and what waits for these.
///
/// [`push`](Log::push) adds a record, [`wait`](Log::wait) an action for when it is durable. Of each
/// step the log returns the [`Progress`], on which the store must act.
#[derive(Debug)]
pub(super) struct Log {
    zones: Vec<ZoneIndex>,
    /// The zone in use, by its index.
    current: usize,
    /// Blocks written to it.
    written: u32,
    /// The sequence of its superblock.
    sequence: u64,
    /// Pending records: not in a write yet.
    pending: RecordBuffer,
    /// The log sequence number of the last record.
    last: Lsn,
    waiters: Waiters,
    stage: Stage,
    /// The drive has a volatile write cache: data are flushed before the records that refer to
    /// them, and the records too.
    flushes: bool,
    /// The status of the last failed command to a metadata zone.
    last_failure: Status,
    /// The metadata cannot be written any more.
    failed: Option<FileError>,
    /// Bytes written since the mount.
    written_bytes: u64,
}

/// The stage of the log. It has at most one command in flight.
#[derive(Clone, Debug)]
enum Stage {
    Idle,
    /// The data that records refer to are being flushed.
    FlushingData {
        lsn: Lsn,
        blocks: Bytes,
    },
    /// Records up to an LSN are being written.
    Writing {
        lsn: Lsn,
        blocks: u32,
    },
    /// Records up to an LSN are being flushed.
    Flushing {
        lsn: Lsn,
    },
    /// The zone in use failed a write, and is being finished to free its active resource.
    Finishing,
    /// A zone is being reset for a snapshot.
    Resetting {
        next: usize,
    },
    /// A snapshot is being written. While no blocks of it are in flight, the data that it refers
    /// to, or the snapshot, are being flushed.
    Snapshot(SnapshotRun),
    /// A zone failed a snapshot, and is being reset.
    Abandoning {
        next: usize,
    },
}

/// What a step of the log leads to.
#[must_use]
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing yet: a command is in flight, or no record is urgent.
    None,
    /// More records are durable: [`Log::next_durable`] returns those who waited for them.
    Durable { by_snapshot: bool },
    /// A zone is ready for a snapshot: the store encodes it, for [`Log::write_snapshot`].
    WantsSnapshot(SnapshotOrder),
    /// The metadata cannot be written any more.
    Failed(FileError),
}

impl Log {
    pub(super) fn new(first: u32, count: u32) -> Log {
        Log {
            zones: (first..first + count).map(ZoneIndex).collect(),
            current: 0,
            written: 0,
            sequence: 0,
            pending: RecordBuffer::default(),
            last: Lsn::default(),
            waiters: Waiters::default(),
            stage: Stage::Idle,
            flushes: false,
            last_failure: Status::Success,
            failed: None,
            written_bytes: 0,
        }
    }

    /// Flushes the drive's write cache.
    pub(super) fn enable_flushes(&mut self) {
        self.flushes = true;
    }

    /// The metadata zones.
    pub(super) fn zones(&self) -> &[ZoneIndex] {
        &self.zones
    }

    /// The error that ended the log.
    pub(super) fn failed(&self) -> Option<&FileError> {
        self.failed.as_ref()
    }

    /// Bytes written since the mount.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Adds a record, and returns its LSN. It is written when a waiter needs it, or when enough
    /// records are pending.
    pub(super) fn push(&mut self, record: &Record<'_>) -> Lsn {
        self.pending.push(record);
        self.last.0 += 1;
        self.last
    }

    pub(super) fn push_extents(&mut self, file: FileId, runs: impl Iterator<Item = Run>) -> Lsn {
        let before = self.pending.count();
        self.pending.push_extents(file, runs);
        self.last.0 += self.pending.count() - before;
        self.last
    }

    /// A format begins with the first metadata zone.
    pub(super) fn begin_with_first_zone(&mut self, shape: &Shape) {
        self.current = self.zones.len() - 1;
        self.written = shape.capacity_blocks;
    }

    /// A mount has found `written` blocks in the zone with this index, and a superblock of this
    /// sequence.
    pub(super) fn adopt(&mut self, current: usize, sequence: u64, written: u32) {
        self.current = current;
        self.sequence = sequence;
        self.written = written;
    }

    /// Continues behind the records that a mount has found.
    pub(super) fn resume(&mut self, commands: &mut Commands) -> Progress {
        self.last.0 += 1;
        self.flush_records(commands, self.last)
    }

    /// Adds an action for when the records up to an LSN are durable.
    pub(super) fn wait(&mut self, lsn: Lsn, waiter: Waiter) -> Wait {
        self.waiters.add(lsn, waiter, self.failed.as_ref())
    }

    /// Adds an action for when the next record or snapshot is durable.
    pub(super) fn wait_for_next(&mut self, waiter: Waiter) -> Wait {
        self.wait(Lsn(self.last.0 + 1), waiter)
    }

    /// Writes the next batch, if a waiter needs it.
    pub(super) fn pump(&mut self, shape: &Shape, commands: &mut Commands) -> Progress {
        let is_urgent = !self.waiters.is_empty() || self.pending.bytes() as u64 >= shape.bytes(shape.write_blocks);
        if !matches!(self.stage, Stage::Idle) || self.failed.is_some() || !is_urgent {
            return Progress::None;
        }
        if self.pending.count() == 0 {
            // A mount waits only for a snapshot.
            return Progress::None;
        }
        let free = shape.capacity_blocks - self.written;
        if free == 0 {
            return self.begin_snapshot(shape, commands);
        }
        let blocks_max = free.min(shape.write_blocks);
        let block_bytes = shape.block_bytes as usize;
        let blocks = self.pending.pack(self.sequence, self.written, blocks_max, block_bytes).into();
        // Records added meanwhile may refer to data that this flush does not cover.
        let lsn = Lsn(self.last.0 - self.pending.count());
        if self.flushes {
            self.stage = Stage::FlushingData { lsn, blocks };
            commands.send(InFlight::Log, Operation::Flush);
        } else {
            self.write_batch(shape, commands, lsn, blocks);
        }
        Progress::None
    }

    fn write_batch(&mut self, shape: &Shape, commands: &mut Commands, lsn: Lsn, data: Bytes) {
        let blocks = (data.len() / shape.block_bytes as usize) as u32;
        self.stage = Stage::Writing { lsn, blocks };
        self.write(shape, commands, self.zones[self.current], self.written, data);
    }

    /// Flushes records up to an LSN, if necessary.
    fn flush_records(&mut self, commands: &mut Commands, lsn: Lsn) -> Progress {
        if self.flushes {
            self.stage = Stage::Flushing { lsn };
            commands.send(InFlight::Log, Operation::Flush);
            return Progress::None;
        }
        self.become_durable(lsn, false)
    }

    /// Writes blocks to a metadata zone.
    fn write(&mut self, shape: &Shape, commands: &mut Commands, zone: ZoneIndex, start: u32, data: Bytes) {
        let blocks = Blocks(data.len() as u64 / u64::from(shape.block_bytes));
        assert!(u64::from(start) + blocks.0 <= u64::from(shape.capacity_blocks), "records end with their zone");
        self.written_bytes += data.len() as u64;
        let payload = shape.payload(data);
        let start = shape.lba(zone, start);
        commands.send(InFlight::Log, Operation::Write { start, blocks, payload });
    }

    /// The log's command has ended.
    pub(super) fn on_completion(&mut self, shape: &Shape, commands: &mut Commands, status: Status) -> Progress {
        if !status.is_success() {
            self.last_failure = status;
        }
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle => panic!("the log has no command in flight"),
            Stage::FlushingData { lsn, blocks } if status.is_success() => {
                self.write_batch(shape, commands, lsn, blocks);
                Progress::None
            }
            Stage::Writing { lsn, blocks } if status.is_success() => {
                self.written += blocks;
                self.flush_records(commands, lsn)
            }
            Stage::Flushing { lsn } if status.is_success() => self.become_durable(lsn, false),
            // After a failed flush it is unknown which data the drive has lost.
            Stage::FlushingData { .. } | Stage::Flushing { .. } => self.fail(),
            // The contents of the zone are unknown: the records go into a snapshot in another zone.
            Stage::Writing { .. } => {
                self.leave_zone(shape, commands);
                Progress::None
            }
            Stage::Finishing => self.begin_snapshot(shape, commands),
            Stage::Resetting { next } => self.on_reset(shape, commands, next, status),
            Stage::Snapshot(run) => self.on_snapshot_part(shape, commands, run, status),
            Stage::Abandoning { next } => self.try_next_zone(shape, commands, next),
        }
    }

    /// Everything up to an LSN is durable.
    fn become_durable(&mut self, lsn: Lsn, by_snapshot: bool) -> Progress {
        self.waiters.become_durable(lsn);
        Progress::Durable { by_snapshot }
    }

    /// The next action that waited for records that are durable.
    pub(super) fn next_durable(&mut self) -> Option<Waiter> {
        self.waiters.next_durable()
    }

    fn fail(&mut self) -> Progress {
        let status = self.last_failure;
        let error = FileError::Media { status, what: "writing the metadata to every metadata zone" };
        self.failed = Some(error.clone());
        Progress::Failed(error)
    }

    /// All actions whose records will never be durable.
    pub(super) fn take_never_durable(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        assert!(self.failed.is_some(), "while the log works, its records will be durable");
        self.waiters.take_all()
    }

    /// Loses a request that waits: a seeded bug.
    pub(super) fn lose_request(&mut self) {
        self.waiters.lose_request();
    }

    /// Whether extents will be freed when pending records are durable.
    pub(super) fn has_releases(&self) -> bool {
        self.failed.is_none() && self.waiters.has_releases()
    }

    /// The extents that will be freed.
    pub(super) fn releases(&self) -> impl Iterator<Item = &Run> {
        self.waiters.releases()
    }

    /// Requests that wait for records.
    pub(super) fn requests(&self) -> usize {
        self.waiters.requests()
    }

    pub(super) fn check_invariants(&self, shape: &Shape) {
        self.waiters.check_invariants();
        assert!(self.failed.is_none() || self.waiters.is_empty(), "nothing waits for a log that has failed");
        assert!(self.current < self.zones.len(), "one of the metadata zones is in use");
        assert!(self.written <= shape.capacity_blocks, "records end with their zone");
        assert!(self.pending.count() <= self.last.0, "pending records have a log sequence number");
        if let Stage::Resetting { next } | Stage::Abandoning { next } = self.stage {
            assert_ne!(next, self.current, "the zone in use is not reset");
        }
    }
}
