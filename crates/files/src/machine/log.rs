//! The metadata log: records are collected while a write is in flight, and written together by the
//! next one.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::{Blocks, Operation, Status, ZoneIndex};

use crate::bug::SeededBug;
use crate::extents::Run;
use crate::format::record::{Record, RecordBuffer};
use crate::{Event, FileError, FileId, FileStore, Outcome, RequestId};

use super::Phase;
use super::commands::InFlight;

/// The metadata zones, and the records not yet written to them.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) zones: Vec<ZoneIndex>,
    /// The zone in use, by its index.
    pub(super) current: usize,
    /// Blocks written to it.
    pub(super) written: u32,
    /// The sequence of its superblock.
    pub(super) sequence: u64,
    /// Pending records: not in a write yet.
    pub(super) pending: RecordBuffer,
    /// The number of records so far. It is the log sequence number (LSN) of the last record; a
    /// snapshot has one, too.
    pub(super) records: u64,
    /// Every record with an LSN up to this one is durable.
    durable: u64,
    pub(super) stage: Stage,
    /// The drive has a volatile write cache: data are flushed before the records that refer to
    /// them, and the records too.
    pub(super) flushes: bool,
    /// Waiters, each with its LSN, in the order of LSNs.
    pub(super) waiters: VecDeque<(u64, Waiter)>,
    /// The status of the last failed command to a metadata zone.
    pub(super) last_failure: Status,
    /// The metadata cannot be written any more.
    pub(super) failed: Option<FileError>,
}

/// The stage of the log. It has at most one command in flight.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    Idle,
    /// The data that records refer to are being flushed.
    FlushingData {
        lsn: u64,
        blocks: Bytes,
    },
    /// Records up to an LSN are being written.
    Writing {
        lsn: u64,
        blocks: u32,
    },
    /// Records up to an LSN are being flushed.
    Flushing {
        lsn: u64,
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

/// A snapshot being written.
#[derive(Clone, Debug)]
pub(super) struct SnapshotRun {
    pub(super) next: usize,
    pub(super) lsn: u64,
    pub(super) blocks: Bytes,
    /// Blocks written, and blocks in flight.
    pub(super) written: u32,
    pub(super) in_flight: u32,
}

/// The action when records are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// End a request.
    Request(RequestId),
    /// Free extents of a file.
    Release(Vec<Run>),
    /// The store is formatted or mounted.
    Ready,
}

impl Log {
    pub(super) fn new(first: u32, count: u32) -> Log {
        Log {
            zones: (first..first + count).map(ZoneIndex).collect(),
            current: 0,
            written: 0,
            sequence: 0,
            pending: RecordBuffer::default(),
            records: 0,
            durable: 0,
            stage: Stage::Idle,
            flushes: false,
            waiters: VecDeque::new(),
            last_failure: Status::Success,
            failed: None,
        }
    }

    /// Adds a record, and returns its LSN. It is written when a waiter needs it, or when enough
    /// records are pending.
    pub(super) fn push(&mut self, record: &Record<'_>) -> u64 {
        self.pending.push(record);
        self.records += 1;
        self.records
    }

    pub(super) fn push_extents(&mut self, file: FileId, runs: impl Iterator<Item = Run>) -> u64 {
        let before = self.pending.count();
        self.pending.push_extents(file, runs);
        self.records += self.pending.count() - before;
        self.records
    }

    /// Whether extents will be freed when pending records are durable.
    pub(super) fn has_releases(&self) -> bool {
        self.failed.is_none() && self.waiters.iter().any(|(_, waiter)| matches!(waiter, Waiter::Release(_)))
    }

    /// The extents that will be freed.
    pub(super) fn releases(&self) -> impl Iterator<Item = &Run> {
        self.waiters
            .iter()
            .filter_map(|(_, waiter)| if let Waiter::Release(runs) = waiter { Some(runs) } else { None })
            .flatten()
    }

    /// Requests that wait for records.
    pub(super) fn requests(&self) -> usize {
        self.waiters.iter().filter(|(_, waiter)| matches!(waiter, Waiter::Request(_))).count()
    }
}

impl FileStore {
    /// Runs an action when the records up to an LSN are durable, which may be now.
    pub(super) fn when_durable(&mut self, lsn: u64, waiter: Waiter) {
        let is_eager = matches!(waiter, Waiter::Release(_)) && self.has(SeededBug::EagerReset);
        if lsn <= self.log.durable || is_eager {
            return self.on_durable(waiter);
        }
        if let Some(error) = self.log.failed.clone() {
            return self.on_never_durable(&waiter, &error);
        }
        let waiters = &mut self.log.waiters;
        let behind = waiters.iter().rev().take_while(|(other, _)| *other > lsn).count();
        waiters.insert(waiters.len() - behind, (lsn, waiter));
    }

    /// Writes the next batch, if a waiter needs it.
    pub(super) fn pump_log(&mut self) {
        let log = &mut self.log;
        let is_urgent =
            !log.waiters.is_empty() || log.pending.bytes() as u64 >= self.shape.bytes(self.shape.write_blocks);
        if !matches!(log.stage, Stage::Idle) || log.failed.is_some() || !is_urgent {
            return;
        }
        if log.pending.count() == 0 {
            // A mount waits only for a snapshot.
            return;
        }
        let free = self.shape.capacity_blocks - log.written;
        if free == 0 {
            return self.begin_snapshot();
        }
        let blocks_max = free.min(self.shape.write_blocks);
        let blocks = log.pending.pack(log.sequence, log.written, blocks_max, self.shape.block_bytes as usize).into();
        // Records added meanwhile may refer to data that this flush does not cover.
        let lsn = log.records - log.pending.count();
        if log.flushes {
            log.stage = Stage::FlushingData { lsn, blocks };
            self.commands.send(InFlight::Log, Operation::Flush);
        } else {
            self.write_batch(lsn, blocks);
        }
    }

    fn write_batch(&mut self, lsn: u64, data: Bytes) {
        let blocks = (data.len() / self.shape.block_bytes as usize) as u32;
        self.log.stage = Stage::Writing { lsn, blocks };
        self.write_metadata(self.log.zones[self.log.current], self.log.written, data);
    }

    /// Flushes records up to an LSN, if necessary.
    pub(super) fn flush_records(&mut self, lsn: u64) {
        if self.log.flushes {
            self.log.stage = Stage::Flushing { lsn };
            self.commands.send(InFlight::Log, Operation::Flush);
        } else {
            self.become_durable(lsn);
        }
    }

    /// Writes blocks to a metadata zone.
    pub(super) fn write_metadata(&mut self, zone: ZoneIndex, start: u32, data: Bytes) {
        let blocks = Blocks(data.len() as u64 / u64::from(self.shape.block_bytes));
        self.counters.metadata_bytes += data.len() as u64;
        let payload = self.shape.payload(data);
        let start = self.shape.lba(zone, start);
        self.commands.send(InFlight::Log, Operation::Write { start, blocks, payload });
    }

    /// Called when the log's command has ended.
    pub(super) fn on_log(&mut self, status: Status) {
        if !status.is_success() {
            self.log.last_failure = status;
        }
        match std::mem::replace(&mut self.log.stage, Stage::Idle) {
            Stage::Idle => panic!("the log has no command in flight"),
            Stage::FlushingData { lsn, blocks } if status.is_success() => self.write_batch(lsn, blocks),
            Stage::Writing { lsn, blocks } if status.is_success() => {
                self.log.written += blocks;
                self.flush_records(lsn);
            }
            Stage::Flushing { lsn } if status.is_success() => self.become_durable(lsn),
            // After a failed flush it is unknown which data the drive has lost.
            Stage::FlushingData { .. } | Stage::Flushing { .. } => self.break_log(),
            // The contents of the zone are unknown: the records go into a snapshot in another zone.
            Stage::Writing { .. } => self.leave_log_zone(),
            Stage::Finishing => self.begin_snapshot(),
            Stage::Resetting { next } => self.on_log_reset(next, status),
            Stage::Snapshot(run) => self.on_snapshot_part(run, status),
            Stage::Abandoning { next } => self.try_next_zone(next),
        }
    }

    /// Everything up to an LSN is durable.
    pub(super) fn become_durable(&mut self, lsn: u64) {
        self.log.durable = lsn;
        while let Some((_, waiter)) = self.log.waiters.pop_front_if(|(waits_for, _)| *waits_for <= lsn) {
            self.on_durable(waiter);
        }
    }

    /// The metadata cannot be written any more: all waiters fail, and so do later requests.
    pub(super) fn break_log(&mut self) {
        let status = self.log.last_failure;
        let error = FileError::Media { status, what: "writing the metadata to every metadata zone" };
        self.log.failed = Some(error.clone());
        for (_, waiter) in std::mem::take(&mut self.log.waiters) {
            self.on_never_durable(&waiter, &error);
        }
        if !matches!(self.phase, Phase::Ready) {
            self.phase = Phase::Failed(error.clone());
        }
        let ids: Vec<FileId> = self.files.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.fail_file(id, &error);
        }
        self.zones.note_change();
        self.requests.notify(Event::Failed(error));
    }

    fn on_durable(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Request(request) => self.end(request, Ok(Outcome::None)),
            Waiter::Release(runs) => {
                self.release(&runs);
                self.zones.note_change();
            }
            Waiter::Ready => {
                self.phase = Phase::Ready;
                self.requests.notify(Event::Ready);
            }
        }
    }

    fn on_never_durable(&mut self, waiter: &Waiter, error: &FileError) {
        match waiter {
            Waiter::Request(request) => self.end(*request, Err(error.clone())),
            // The metadata on the media still refer to it.
            Waiter::Release(_) | Waiter::Ready => {}
        }
    }
}
