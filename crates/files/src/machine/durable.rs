//! Durability: actions when records are durable, snapshots, and a log that has failed.

use crate::bug::SeededBug;
use crate::format::record::{Record, RecordBuffer};
use crate::format::superblock::Superblock;
use crate::{Event, FileError, FileId, FileStore, Outcome};

use super::Phase;
use super::log::{Lsn, Progress, SnapshotOrder, Wait, Waiter};
use super::zones::State;

impl FileStore {
    /// Runs an action when the records up to an LSN are durable, which may be now.
    pub(super) fn when_durable(&mut self, lsn: Lsn, waiter: Waiter) {
        if matches!(waiter, Waiter::Release(_)) && self.has(SeededBug::EagerReset) {
            return self.on_durable(waiter);
        }
        let wait = self.log.wait(lsn, waiter);
        self.on_wait(wait);
    }

    /// The store is ready when the next record or snapshot is durable.
    pub(super) fn await_readiness(&mut self) {
        let wait = self.log.wait_for_next(Waiter::Ready);
        self.on_wait(wait);
    }

    fn on_wait(&mut self, wait: Wait) {
        match wait {
            Wait::Begun => {}
            Wait::Durable(waiter) => self.on_durable(waiter),
            Wait::Never(waiter, error) => self.on_never_durable(&waiter, &error),
        }
    }

    /// Writes the next batch of records, if an action waits for it.
    pub(super) fn pump_log(&mut self) {
        let progress = self.log.pump(&self.shape, &mut self.commands);
        self.on_log_progress(progress);
    }

    /// Acts on a step of the log.
    pub(super) fn on_log_progress(&mut self, progress: Progress) {
        match progress {
            Progress::None => {}
            Progress::Durable { by_snapshot } => {
                if by_snapshot && self.has(SeededBug::ForgottenWaiter) && self.is_ready() {
                    self.log.lose_request();
                }
                while let Some(waiter) = self.log.next_durable() {
                    self.on_durable(waiter);
                }
            }
            Progress::WantsSnapshot(order) => {
                let blocks = self.encode_snapshot(&order).into();
                self.log.write_snapshot(&self.shape, &mut self.commands, &order, blocks);
            }
            Progress::Failed(error) => self.on_log_failed(error),
        }
    }

    /// The metadata cannot be written any more: all that waits for them fails, and so do later
    /// requests.
    fn on_log_failed(&mut self, error: FileError) {
        for waiter in self.log.take_never_durable() {
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

    /// A superblock, and records of the complete recorded state, with the data of these files that
    /// have reached the media since.
    fn encode_snapshot(&mut self, order: &SnapshotOrder) -> Vec<u8> {
        let mut records = RecordBuffer::default();
        for (zone, entry) in self.zones.iter().filter(|(_, entry)| entry.state != State::Empty) {
            records.push(&Record::ZoneOpened { zone, lifetime: entry.lifetime });
            if entry.is_finished_early {
                records.push(&Record::ZoneFinished { zone, written: entry.written });
            }
        }
        let forgotten = self.migrator.last_moved().filter(|_| self.has(SeededBug::ForgottenMove));
        self.files.write_snapshot(&mut records, order.lsn(), forgotten);

        let block_bytes = self.shape.block_bytes as usize;
        let superblock = Superblock { uuid: self.uuid, facts: self.shape.facts };
        let mut blocks = Vec::new();
        superblock.encode(order.sequence(), block_bytes, &mut blocks);
        blocks.extend(records.pack(order.sequence(), 1, self.shape.capacity_blocks - 1, block_bytes));
        assert_eq!(records.count(), 0, "a snapshot fits in its zone");
        blocks
    }
}
