//! The metadata log: records gather while a write is under way, and leave together with the next one.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::{Blocks, Operation, Status, ZoneIndex};

use crate::bug::SeededBug;
use crate::extents::Run;
use crate::format::record::{Record, RecordBuffer};
use crate::{Event, FileError, FileId, FileStore, Outcome, RequestId};

use super::{Phase, UnderWay};

/// The metadata zones, and the records on their way to them.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) zones: Vec<ZoneIndex>,
    /// The one in use, by its number among them.
    pub(super) current: usize,
    /// Blocks written of it.
    pub(super) written: u32,
    /// The sequence of its superblock.
    pub(super) sequence: u64,
    /// Records that are not in a write yet.
    pub(super) pending: RecordBuffer,
    /// Records so far; each has its number as ticket, and so has a snapshot.
    pub(super) tickets: u64,
    /// Every record with a ticket up to this one is durable.
    durable: u64,
    pub(super) stage: Stage,
    /// The drive has a volatile write cache: data are flushed before the records that speak of them, and these too.
    pub(super) flushes: bool,
    /// Who waits for which ticket, in the order of tickets.
    pub(super) waiters: VecDeque<(u64, Waiter)>,
    /// How the last command to a metadata zone ended that failed.
    pub(super) last_failure: Status,
    /// The metadata cannot be written any more.
    pub(super) failed: Option<FileError>,
}

/// What the log does. It has one command under way at most.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    Idle,
    /// The data that records speak of are being flushed.
    FlushingData {
        ticket: u64,
        blocks: Bytes,
    },
    /// Records up to a ticket are being written.
    Writing {
        ticket: u64,
        blocks: u32,
    },
    /// Records up to a ticket are being flushed.
    Flushing {
        ticket: u64,
    },
    /// The zone in use failed a write, and is being finished to give its active resource back.
    Finishing,
    /// A zone is being reset to take a snapshot.
    Resetting {
        next: usize,
    },
    /// A snapshot is being written. While no blocks of it are under way, the data that it speaks of are being flushed, or it is.
    Snapshot(SnapshotRun),
    /// A zone failed a snapshot, and is being reset.
    Abandoning {
        next: usize,
    },
}

/// A snapshot on its way.
#[derive(Clone, Debug)]
pub(super) struct SnapshotRun {
    pub(super) next: usize,
    pub(super) ticket: u64,
    pub(super) blocks: Bytes,
    /// Blocks written, and blocks under way.
    pub(super) written: u32,
    pub(super) under_way: u32,
}

/// What happens when records are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A request ends.
    Request(RequestId),
    /// What belonged to a file belongs to nobody.
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
            tickets: 0,
            durable: 0,
            stage: Stage::Idle,
            flushes: false,
            waiters: VecDeque::new(),
            last_failure: Status::Success,
            failed: None,
        }
    }

    /// Adds a record, and returns its ticket. It is written when somebody waits for it, or when enough have gathered.
    pub(super) fn push(&mut self, record: &Record<'_>) -> u64 {
        self.pending.push(record);
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn push_extents(&mut self, file: FileId, runs: impl Iterator<Item = Run>) -> u64 {
        let before = self.pending.count();
        self.pending.push_extents(file, runs);
        self.tickets += self.pending.count() - before;
        self.tickets
    }

    /// Whether something will be released when what is under way has ended.
    pub(super) fn has_releases(&self) -> bool {
        self.failed.is_none() && self.waiters.iter().any(|(_, waiter)| matches!(waiter, Waiter::Release(_)))
    }

    /// What waits to be released.
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
    /// Has something happen when the records up to a ticket are durable, which may be now.
    pub(super) fn when_durable(&mut self, ticket: u64, waiter: Waiter) {
        let is_eager = matches!(waiter, Waiter::Release(_)) && self.has(SeededBug::EagerReset);
        if ticket <= self.log.durable || is_eager {
            return self.on_durable(waiter);
        }
        if let Some(error) = self.log.failed.clone() {
            return self.on_never_durable(&waiter, &error);
        }
        let waiters = &mut self.log.waiters;
        let behind = waiters.iter().rev().take_while(|(other, _)| *other > ticket).count();
        waiters.insert(waiters.len() - behind, (ticket, waiter));
    }

    /// Sends the next batch off, if there is somebody to wait for it.
    pub(super) fn pump_log(&mut self) {
        let log = &mut self.log;
        let is_urgent =
            !log.waiters.is_empty() || log.pending.bytes() as u64 >= self.shape.bytes(self.shape.write_blocks);
        if !matches!(log.stage, Stage::Idle) || log.failed.is_some() || !is_urgent {
            return;
        }
        if log.pending.count() == 0 {
            // A mount waits for a snapshot, and for nothing else.
            return;
        }
        let room = self.shape.capacity_blocks - log.written;
        if room == 0 {
            return self.begin_snapshot();
        }
        let blocks_max = room.min(self.shape.write_blocks);
        let blocks = log.pending.pack(log.sequence, log.written, blocks_max, self.shape.block_bytes as usize).into();
        // What comes in meanwhile may speak of data that a flush now does not cover.
        let ticket = log.tickets - log.pending.count();
        if log.flushes {
            log.stage = Stage::FlushingData { ticket, blocks };
            self.send(UnderWay::Log, Operation::Flush);
        } else {
            self.write_batch(ticket, blocks);
        }
    }

    fn write_batch(&mut self, ticket: u64, data: Bytes) {
        let blocks = (data.len() / self.shape.block_bytes as usize) as u32;
        self.log.stage = Stage::Writing { ticket, blocks };
        self.write_metadata(self.log.zones[self.log.current], self.log.written, data);
    }

    /// Has records up to a ticket flushed, if need be.
    pub(super) fn flush_records(&mut self, ticket: u64) {
        if self.log.flushes {
            self.log.stage = Stage::Flushing { ticket };
            self.send(UnderWay::Log, Operation::Flush);
        } else {
            self.become_durable(ticket);
        }
    }

    /// Sends blocks to a metadata zone.
    pub(super) fn write_metadata(&mut self, zone: ZoneIndex, start: u32, data: Bytes) {
        let blocks = Blocks(data.len() as u64 / u64::from(self.shape.block_bytes));
        self.counters.metadata_bytes += data.len() as u64;
        let payload = self.shape.payload(data);
        let start = self.shape.lba(zone, start);
        self.send(UnderWay::Log, Operation::Write { start, blocks, payload });
    }

    /// The log's command has ended.
    pub(super) fn on_log(&mut self, status: Status) {
        if !status.is_success() {
            self.log.last_failure = status;
        }
        match std::mem::replace(&mut self.log.stage, Stage::Idle) {
            Stage::Idle => panic!("the log has no command under way"),
            Stage::FlushingData { ticket, blocks } if status.is_success() => self.write_batch(ticket, blocks),
            Stage::Writing { ticket, blocks } if status.is_success() => {
                self.log.written += blocks;
                self.flush_records(ticket);
            }
            Stage::Flushing { ticket } if status.is_success() => self.become_durable(ticket),
            // What a drive loses after a flush that failed, nobody knows.
            Stage::FlushingData { .. } | Stage::Flushing { .. } => self.break_log(),
            // Nobody knows what is in the zone now: the records go into a snapshot elsewhere.
            Stage::Writing { .. } => self.leave_log_zone(),
            Stage::Finishing => self.begin_snapshot(),
            Stage::Resetting { next } => self.on_log_reset(next, status),
            Stage::Snapshot(run) => self.on_snapshot_part(run, status),
            Stage::Abandoning { next } => self.try_next_zone(next),
        }
    }

    /// Everything up to a ticket is durable.
    pub(super) fn become_durable(&mut self, ticket: u64) {
        self.log.durable = ticket;
        while let Some((_, waiter)) = self.log.waiters.pop_front_if(|(waits_for, _)| *waits_for <= ticket) {
            self.on_durable(waiter);
        }
    }

    /// The metadata cannot be written any more: whoever waits for that hears of it, and so do those who come later.
    pub(super) fn break_log(&mut self) {
        let status = self.log.last_failure;
        let error = FileError::Media { status, what: "writing the metadata, in one zone after another" };
        self.log.failed = Some(error.clone());
        for (_, waiter) in std::mem::take(&mut self.log.waiters) {
            self.on_never_durable(&waiter, &error);
        }
        if !matches!(self.phase, Phase::Ready) {
            self.phase = Phase::Failed(error.clone());
        }
        let ids: Vec<FileId> = self.files.keys().copied().collect();
        for id in ids {
            self.fail_file(id, &error);
        }
        self.zones.tell();
        self.events.push_back(Event::Failed(error));
    }

    fn on_durable(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Request(request) => self.end(request, Ok(Outcome::None)),
            Waiter::Release(runs) => {
                self.release(&runs);
                self.zones.tell();
            }
            Waiter::Ready => {
                self.phase = Phase::Ready;
                self.events.push_back(Event::Ready);
            }
        }
    }

    fn on_never_durable(&mut self, waiter: &Waiter, error: &FileError) {
        match waiter {
            Waiter::Request(request) => self.end(*request, Err(error.clone())),
            // The metadata on the media still have it.
            Waiter::Release(_) | Waiter::Ready => {}
        }
    }
}
