//! The journal's writer: records are written in batches, with one write and one sync each.
//!
//! Operations, in their order: [`reserve`](Journal::reserve) space for a record that something will
//! wait for, [`push`](Journal::push) records, [`begin_batch`](Journal::begin_batch),
//! [`on_file`](Journal::on_file) for the result of each operation; then what waits for the batch
//! continues, and [`mark`](Journal::mark) covers a synced one.

use bytes::Bytes;
use zonda_zoned::{Key, ZoneIndex};

use crate::bugs::{Seeded, SeededBug};
use crate::format::Generation;
use crate::format::record::{self, Encoded, HEADER_BYTES, Kind, MARK_STRIDE, MARKS_BYTES, Place, Record};
use crate::{FileOperation, ImageFile};

use super::commands::CommandRun;
use super::parts::Part;

/// A record that waits to be written. See format/record.rs for what the fields mean.
#[derive(Debug)]
pub(super) struct OwnRecord {
    pub(super) kind: Kind,
    pub(super) zone: ZoneIndex,
    pub(super) generation: Generation,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
    /// The payload: first the copied part, then the part that is written without a copy.
    pub(super) head: Bytes,
    pub(super) data: Bytes,
}

/// Owns the journal since the checkpoint.
#[derive(Debug)]
pub(super) struct Journal {
    uuid: [u8; 16],
    capacity_bytes: u64,
    bug: Seeded,
    epoch: u64,
    next_sequence: u64,
    /// Checksum of the last record written.
    last_sum: u32,
    failed_batches: u32,
    /// Offset of the next batch.
    tail: u64,
    stage: Stage,
    pending: Pending,
    batch: Batch,
    /// Records that were added since the checkpoint, those of batches that failed as well.
    added: u64,
    /// A record did not fit since this was last checked: the next checkpoint contains its change.
    has_left_out: bool,
    /// Bytes that the parts which have entered may still record.
    reserved_bytes: u64,
    /// The mark that was written last.
    mark: u64,
}

/// Records that no batch contains yet.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<OwnRecord>,
    bytes: u64,
    waiters: Vec<Waiter>,
    /// Flushes that end when the records are written.
    flushes: Vec<Key<CommandRun>>,
}

/// The batch in flight.
#[derive(Debug, Default)]
struct Batch {
    records: u64,
    bytes: u64,
    /// Checksum of its last record.
    sum: u32,
    waiters: Vec<Waiter>,
    flushes: Vec<Key<CommandRun>>,
}

/// What continues when a record is synced, or was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    Part(Key<Part>),
    /// The change of reservations.
    Reservations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Writing,
    Syncing,
    /// Marking the batch as synced, after its parts have continued.
    Marking,
    /// Invalidating a failed batch, so that no recovery finds it: its parts fail once that is
    /// synced.
    Voiding,
    VoidSyncing,
}

/// What follows when a file operation of the journal has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// This operation.
    Continues(FileOperation),
    /// The batch is written, and synced if something waits for it.
    Recorded {
        waiters: Vec<Waiter>,
        is_synced: bool,
    },
    /// The batch has failed. If it could not be invalidated, a recovery may find it until a
    /// checkpoint has begun another epoch.
    NotRecorded {
        waiters: Vec<Waiter>,
        is_void: bool,
    },
    Marked,
}

/// Where the notes of successful flushes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notes {
    /// On file: the flushes end.
    OnFile(Vec<Key<CommandRun>>),
    /// In the journal: it returns the flushes with the batch.
    InBatch,
    /// Some did not fit: the flushes end with the next checkpoint.
    LeftOut(Vec<Key<CommandRun>>),
}

impl OwnRecord {
    /// A record that concerns no zone.
    pub(super) fn new(kind: Kind) -> OwnRecord {
        OwnRecord::of_zone(kind, ZoneIndex::default(), Generation::default())
    }

    pub(super) fn of_zone(kind: Kind, zone: ZoneIndex, generation: Generation) -> OwnRecord {
        OwnRecord { kind, zone, generation, a: 0, b: 0, c: 0, head: Bytes::new(), data: Bytes::new() }
    }

    /// Bytes that it takes in the journal.
    pub(super) fn length(&self) -> u64 {
        self.view().length() as u64
    }

    pub(super) fn view(&self) -> Record<'_> {
        let OwnRecord { kind, zone, generation, a, b, c, .. } = *self;
        Record { kind, zone, generation, a, b, c, payload: [&self.head, &self.data] }
    }
}

impl Journal {
    pub(super) fn new(epoch: u64, uuid: [u8; 16], capacity_bytes: u64, bug: Seeded) -> Journal {
        Journal {
            uuid,
            capacity_bytes,
            bug,
            epoch,
            next_sequence: 1,
            last_sum: 0,
            failed_batches: 0,
            tail: MARKS_BYTES,
            stage: Stage::Idle,
            pending: Pending::default(),
            batch: Batch::default(),
            added: 0,
            has_left_out: false,
            reserved_bytes: 0,
            mark: 0,
        }
    }

    /// Restarts the journal, behind another checkpoint.
    pub(super) fn restart(&mut self, epoch: u64) {
        assert!(self.is_idle() && self.reserved_bytes == 0, "a checkpoint waits for the journal");
        // Otherwise commands would never end.
        assert!(self.batch.waiters.is_empty() && self.batch.flushes.is_empty(), "nothing waits for an idle journal");
        *self = Journal::new(epoch, self.uuid, self.capacity_bytes, self.bug);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle && self.pending.records.is_empty()
    }

    /// Whether a checkpoint should begin before the journal is full.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.tail - MARKS_BYTES > (self.capacity_bytes - MARKS_BYTES) / 4 * 3
    }

    /// Records that were added since the checkpoint: an upper bound for the sequence of each.
    pub(super) fn added_records(&self) -> u64 {
        self.added
    }

    pub(super) fn has_space(&self, bytes: u64) -> bool {
        let batch = if matches!(self.stage, Stage::Writing | Stage::Syncing) { self.batch.bytes } else { 0 };
        self.tail + batch + self.pending.bytes + self.reserved_bytes + bytes <= self.capacity_bytes
    }

    /// Reserves space for a record that will be pushed.
    pub(super) fn reserve(&mut self, bytes: u64) {
        assert!(self.has_space(bytes), "space is reserved where there is some");
        self.reserved_bytes += bytes;
    }

    /// Releases reserved space: its record is pushed now, or never.
    pub(super) fn unreserve(&mut self, bytes: u64) {
        self.reserved_bytes = self.reserved_bytes.checked_sub(bytes).expect("the space was reserved");
    }

    /// Adds a record to the next batch.
    pub(super) fn push(&mut self, record: OwnRecord, waiter: Option<Waiter>) {
        let bytes = record.length();
        assert!(self.has_space(bytes), "a record of {bytes} bytes has space in the journal");
        self.pending.bytes += bytes;
        self.pending.waiters.extend(waiter);
        self.pending.records.push(record);
        self.added += 1;
    }

    /// A record does not fit, and is left to the next checkpoint.
    pub(super) fn leave_out(&mut self) {
        self.has_left_out = true;
    }

    /// Flushes have succeeded, and their notes were pushed.
    pub(super) fn await_notes(&mut self, flushes: Vec<Key<CommandRun>>) -> Notes {
        if std::mem::take(&mut self.has_left_out) {
            return Notes::LeftOut(flushes);
        }
        if self.bug.has(SeededBug::EarlyFlush) {
            return Notes::OnFile(flushes);
        }
        if !self.pending.records.is_empty() {
            self.pending.flushes.extend(flushes);
        } else if self.stage == Stage::Writing {
            self.batch.flushes.extend(flushes);
        } else {
            return Notes::OnFile(flushes);
        }
        Notes::InBatch
    }

    /// The write of the next batch, if it can begin.
    pub(super) fn begin_batch(&mut self) -> Option<FileOperation> {
        if self.stage != Stage::Idle || self.pending.records.is_empty() {
            return None;
        }
        let Pending { records, bytes, waiters, flushes } = std::mem::take(&mut self.pending);
        assert!(self.tail + bytes <= self.capacity_bytes, "a batch fits in the journal");
        let mut pieces = Vec::with_capacity(records.len());
        self.batch = Batch { records: records.len() as u64, bytes, sum: self.last_sum, waiters, flushes };
        for (sequence, record) in (self.next_sequence..).zip(records) {
            let (previous, failed_batches) = (self.batch.sum, self.failed_batches);
            let place = Place { epoch: self.epoch, sequence, previous, failed_batches };
            let Encoded { head, padding, sum } = record.view().encode(place);
            self.batch.sum = sum;
            pieces.push(head);
            if !record.data.is_empty() {
                pieces.push(record.data);
            }
            if padding > 0 {
                pieces.push(Bytes::from_static(&[0; 8][..padding]));
            }
        }
        self.stage = Stage::Writing;
        Some(FileOperation::Write { file: ImageFile::Journal, offset: self.tail, pieces })
    }

    /// The flushes whose notes were in the write that ends now. They end whether it has succeeded
    /// or not: the data that they have synced are on the media.
    pub(super) fn end_noted_flushes(&mut self) -> Vec<Key<CommandRun>> {
        if self.stage == Stage::Writing { std::mem::take(&mut self.batch.flushes) } else { Vec::new() }
    }

    /// The operation in flight has ended.
    pub(super) fn on_file(&mut self, done: bool) -> Progress {
        let sync = FileOperation::Sync { file: ImageFile::Journal };
        match self.stage {
            Stage::Writing if done && self.bug.has(SeededBug::UnsyncedRecord) => self.batch_is_written(false),
            Stage::Writing if done && !self.batch.waiters.is_empty() => {
                self.stage = Stage::Syncing;
                Progress::Continues(sync)
            }
            Stage::Writing if done => self.batch_is_written(false),
            Stage::Syncing if done => self.batch_is_written(true),
            Stage::Writing | Stage::Syncing if self.bug.has(SeededBug::KeptBatch) => self.batch_has_failed(true),
            Stage::Writing | Stage::Syncing => Progress::Continues(self.void_batch()),
            Stage::Marking => {
                self.stage = Stage::Idle;
                Progress::Marked
            }
            Stage::Voiding if done => {
                self.stage = Stage::VoidSyncing;
                Progress::Continues(sync)
            }
            Stage::Voiding | Stage::VoidSyncing => self.batch_has_failed(done),
            Stage::Idle => panic!("the journal has no outstanding operation"),
        }
    }

    fn batch_is_written(&mut self, is_synced: bool) -> Progress {
        let Batch { records, bytes, sum, waiters, .. } = std::mem::take(&mut self.batch);
        self.tail += bytes;
        self.next_sequence += records;
        self.last_sum = sum;
        self.stage = Stage::Idle;
        Progress::Recorded { waiters, is_synced }
    }

    /// The write of a mark, which distinguishes a damaged synced record from the torn end of the
    /// journal.
    pub(super) fn mark(&mut self) -> FileOperation {
        assert_eq!(self.stage, Stage::Idle, "a mark follows the sync that it covers");
        self.stage = Stage::Marking;
        self.mark = 1 - self.mark;
        let early = if self.bug.has(SeededBug::EarlyMark) { self.pending.records.len() as u64 } else { 0 };
        let mark = record::encode_mark(&self.uuid, self.epoch, self.next_sequence - 1 + early);
        let offset = self.mark * MARK_STRIDE;
        FileOperation::Write { file: ImageFile::Journal, offset, pieces: vec![mark] }
    }

    /// The write that invalidates the failed batch.
    fn void_batch(&mut self) -> FileOperation {
        self.stage = Stage::Voiding;
        // Records that the failed batch left behind the next one must not be taken for its
        // continuation. Records have 24 bits for the number.
        self.failed_batches = self.failed_batches.wrapping_add(1);
        let pieces = vec![Bytes::from_static(&[0; HEADER_BYTES])];
        FileOperation::Write { file: ImageFile::Journal, offset: self.tail, pieces }
    }

    fn batch_has_failed(&mut self, is_void: bool) -> Progress {
        self.stage = Stage::Idle;
        Progress::NotRecorded { waiters: std::mem::take(&mut self.batch).waiters, is_void }
    }

    /// `reserved_bytes` is the space that all parts have reserved.
    pub(super) fn check_invariants(&self, reserved_bytes: u64) {
        assert_eq!(self.reserved_bytes, reserved_bytes, "space is reserved for parts");
        assert!(self.has_space(0), "everything that may be recorded has space");
        let pending = &self.pending;
        assert_eq!(pending.bytes, pending.records.iter().map(OwnRecord::length).sum::<u64>(), "bytes of records");
        let nothing_waits = pending.waiters.is_empty() && pending.flushes.is_empty();
        assert!(nothing_waits || !pending.records.is_empty(), "what waits has a record to wait for");
        let batch = &self.batch;
        let is_in_flight = !matches!(self.stage, Stage::Idle | Stage::Marking);
        assert_eq!(is_in_flight, batch.records > 0, "a batch has records: {:?}", self.stage);
        assert!(is_in_flight || batch.waiters.is_empty(), "what waits for a batch continues when it ends");
        assert!(self.stage == Stage::Writing || batch.flushes.is_empty(), "flushes end when their notes are written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        Journal::new(5, [7; 16], MARKS_BYTES + 1024, Seeded::NONE)
    }

    fn offset_of(operation: &FileOperation) -> u64 {
        match operation {
            FileOperation::Write { file: ImageFile::Journal, offset, .. } => *offset,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn records_pushed_during_a_batch_are_in_the_next_one() {
        let mut journal = journal();
        journal.push(OwnRecord::new(Kind::Flush), None);
        let first = journal.begin_batch().expect("a record is pending");
        journal.push(OwnRecord::new(Kind::Flush), Some(Waiter::Reservations));
        assert_eq!(journal.begin_batch(), None, "one batch at a time");
        assert_eq!(journal.on_file(true), Progress::Recorded { waiters: Vec::new(), is_synced: false });
        let second = journal.begin_batch().expect("a record is pending");
        assert_eq!((offset_of(&first), offset_of(&second)), (MARKS_BYTES, MARKS_BYTES + HEADER_BYTES as u64));
        journal.check_invariants(0);
        assert_eq!(journal.on_file(true), Progress::Continues(FileOperation::Sync { file: ImageFile::Journal }));
        let waiters = vec![Waiter::Reservations];
        assert_eq!(journal.on_file(true), Progress::Recorded { waiters, is_synced: true });
        assert_eq!(offset_of(&journal.mark()), MARK_STRIDE);
        assert_eq!((journal.on_file(true), journal.is_idle()), (Progress::Marked, true));
    }

    #[test]
    fn what_waits_for_a_failed_batch_is_notified_once_the_batch_is_void() {
        for is_void in [true, false] {
            let mut journal = journal();
            journal.push(OwnRecord::new(Kind::Reservations), Some(Waiter::Reservations));
            let write = journal.begin_batch().expect("a record is pending");
            let Progress::Continues(void) = journal.on_file(false) else { panic!("it is invalidated") };
            assert_eq!(offset_of(&void), offset_of(&write));
            journal.check_invariants(0);
            assert_eq!(journal.on_file(true), Progress::Continues(FileOperation::Sync { file: ImageFile::Journal }));
            let waiters = vec![Waiter::Reservations];
            assert_eq!(journal.on_file(is_void), Progress::NotRecorded { waiters, is_void });
            journal.check_invariants(0);
        }
    }

    #[test]
    fn reserved_space_is_not_given_to_other_records() {
        let mut journal = journal();
        journal.reserve(1000);
        assert!(journal.has_space(24) && !journal.has_space(25));
        journal.check_invariants(1000);
        journal.unreserve(1000);
        assert!(journal.has_space(1024));
    }
}
