//! The journal's writer: records are written in batches, with one write and one sync each.

use bytes::Bytes;
use zonda_zoned::{Key, Status, ZoneIndex};

use crate::bugs::SeededBug;
use crate::format::Generation;
use crate::format::record::{self, Encoded, HEADER_BYTES, Kind, MARK_STRIDE, MARKS_BYTES, Place, Record};
use crate::format::tag::TAG_BYTES;
use crate::{FileOperation, ImageFile};

use super::Image;
use super::commands::CommandRun;
use super::operations::Purpose;
use super::parts::{Part, Work};

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

/// The journal since the checkpoint.
#[derive(Debug)]
pub(super) struct Journal {
    epoch: u64,
    next_sequence: u64,
    /// Checksum of the last record written, and of the last one of the batch in flight.
    last_sum: u32,
    batch_sum: u32,
    failed_batches: u32,
    /// Offset of the next batch.
    tail: u64,
    stage: Stage,
    pending: Vec<OwnRecord>,
    pending_bytes: u64,
    /// Records that were added since the checkpoint, those of batches that failed as well.
    added: u64,
    /// Those that wait for pending records, and for the batch in flight.
    pending_waiters: Vec<Waiter>,
    batch_waiters: Vec<Waiter>,
    /// Flushes that end when pending records are written, and when the batch in flight is.
    pending_flushes: Vec<Key<CommandRun>>,
    batch_flushes: Vec<Key<CommandRun>>,
    /// A record did not fit since this was last checked: the next checkpoint contains its change.
    has_left_out: bool,
    batch_bytes: u64,
    batch_records: u64,
    /// Bytes that the parts which have entered may still record.
    reserved: u64,
    mark: u64,
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

    fn view(&self) -> Record<'_> {
        let OwnRecord { kind, zone, generation, a, b, c, .. } = *self;
        Record { kind, zone, generation, a, b, c, payload: [&self.head, &self.data] }
    }
}

impl Journal {
    pub(super) fn new(epoch: u64) -> Journal {
        Journal {
            epoch,
            next_sequence: 1,
            last_sum: 0,
            batch_sum: 0,
            failed_batches: 0,
            tail: MARKS_BYTES,
            stage: Stage::Idle,
            pending: Vec::new(),
            pending_bytes: 0,
            added: 0,
            pending_waiters: Vec::new(),
            batch_waiters: Vec::new(),
            pending_flushes: Vec::new(),
            batch_flushes: Vec::new(),
            has_left_out: false,
            batch_bytes: 0,
            batch_records: 0,
            reserved: 0,
            mark: 0,
        }
    }

    /// Restarts the journal, behind another checkpoint.
    pub(super) fn restart(&mut self, epoch: u64) {
        assert!(self.is_idle() && self.reserved == 0, "a checkpoint waits for the journal");
        *self = Journal::new(epoch);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle && self.pending.is_empty()
    }

    /// Bytes written since the checkpoint.
    pub(super) fn used_bytes(&self) -> u64 {
        self.tail - MARKS_BYTES
    }

    /// Records that were added since the checkpoint: an upper bound for the sequence of each.
    pub(super) fn added_records(&self) -> u64 {
        self.added
    }

    fn push(&mut self, record: OwnRecord) {
        self.pending_bytes += record.length();
        self.added += 1;
        self.pending.push(record);
    }

    fn has_space(&self, bytes: u64, journal_bytes: u64) -> bool {
        let batch = if matches!(self.stage, Stage::Writing | Stage::Syncing) { self.batch_bytes } else { 0 };
        self.tail + batch + self.pending_bytes + self.reserved + bytes <= journal_bytes
    }
}

impl Image {
    /// Whether a part that may write to the journal may continue now. If not, it is held until the
    /// next checkpoint.
    pub(super) fn enter_journal(&mut self, key: Key<Part>) -> bool {
        let needed = self.record_bytes(key);
        if !self.journal_admits(needed) {
            self.hold(key);
            return false;
        }
        self.journal.reserved += needed;
        self.parts[key].reserved_bytes = needed;
        self.checkpointing.users += 1;
        true
    }

    /// Whether a record of so many bytes may be written now. If it does not fit, a checkpoint
    /// begins.
    pub(super) fn journal_admits(&mut self, bytes: u64) -> bool {
        let has_space = self.journal.has_space(bytes, self.layout.journal_bytes);
        if !has_space {
            self.checkpointing.want();
        }
        has_space && self.checkpointing.admits()
    }

    /// Called when a part that entered has ended.
    pub(super) fn leave_journal(&mut self, key: Key<Part>) {
        self.journal.reserved -= std::mem::take(&mut self.parts[key].reserved_bytes);
        self.checkpointing.users -= 1;
    }

    /// The longest record that a part may write.
    fn record_bytes(&self, key: Key<Part>) -> u64 {
        let payload = match &self.parts[key].work {
            Work::Overwrite { data: Some(data), tags, .. } if self.layout.logs_contents => data.len() + tags.len(),
            Work::Overwrite { data: Some(_), .. } | Work::Read { .. } => {
                2 * TAG_BYTES * self.parts[key].blocks() as usize
            }
            Work::Manage(manage) => manage.extension.len(),
            _ => 0,
        };
        (HEADER_BYTES + payload).next_multiple_of(8) as u64
    }

    /// Adds a record: to the ledger immediately, to the journal with the next batch. `waiter` is
    /// notified of the sync, and has reserved space for it.
    pub(super) fn push_record(&mut self, record: OwnRecord, waiter: Waiter) {
        if let Waiter::Part(part) = waiter {
            self.journal.reserved -= std::mem::take(&mut self.parts[part].reserved_bytes);
        }
        self.journal.pending_waiters.push(waiter);
        self.ledger.apply(&record.view());
        self.journal.push(record);
    }

    /// Adds a record that nothing waits for. If it does not fit, it is left to the next checkpoint.
    pub(super) fn push_note(&mut self, record: OwnRecord) {
        self.ledger.apply(&record.view());
        if !self.checkpointing.admits() || !self.journal.has_space(record.length(), self.layout.journal_bytes) {
            self.journal.has_left_out = true;
            self.checkpointing.want_for_unrecorded();
            return;
        }
        self.journal.push(record);
    }

    /// Submits the next batch.
    pub(super) fn pump_journal(&mut self) {
        let journal = &mut self.journal;
        if journal.stage != Stage::Idle || journal.pending.is_empty() {
            return;
        }
        let mut pieces = Vec::with_capacity(journal.pending.len());
        journal.batch_records = journal.pending.len() as u64;
        journal.batch_sum = journal.last_sum;
        for (sequence, record) in (journal.next_sequence..).zip(journal.pending.drain(..)) {
            let place = Place {
                epoch: journal.epoch,
                sequence,
                previous: journal.batch_sum,
                failed_batches: journal.failed_batches,
            };
            let Encoded { head, padding, sum } = record.view().encode(place);
            journal.batch_sum = sum;
            pieces.push(head);
            if !record.data.is_empty() {
                pieces.push(record.data);
            }
            if padding > 0 {
                pieces.push(Bytes::from_static(&[0; 8][..padding]));
            }
        }
        journal.batch_bytes = std::mem::take(&mut journal.pending_bytes);
        journal.batch_waiters = std::mem::take(&mut journal.pending_waiters);
        journal.batch_flushes = std::mem::take(&mut journal.pending_flushes);
        journal.stage = Stage::Writing;
        let offset = journal.tail;
        assert!(offset + journal.batch_bytes <= self.layout.journal_bytes, "a batch fits in the journal");
        self.operations.issue(Purpose::Journal, FileOperation::Write { file: ImageFile::Journal, offset, pieces });
    }

    /// Ends successful flushes when their notes are on file, so that a kill does not lose them: in
    /// the journal, or in the checkpoint that begins because the journal is full.
    pub(super) fn end_flushes_when_noted(&mut self, commands: Vec<Key<CommandRun>>) {
        let journal = &mut self.journal;
        if std::mem::take(&mut journal.has_left_out) {
            self.checkpointing.flushes.extend(commands);
        } else if !journal.pending.is_empty() && !self.bug.has(SeededBug::EarlyFlush) {
            journal.pending_flushes.extend(commands);
        } else if journal.stage == Stage::Writing && !self.bug.has(SeededBug::EarlyFlush) {
            journal.batch_flushes.extend(commands);
        } else {
            self.end_flushes(commands);
        }
    }

    /// Ends flushes, whether their notes are on file or not: the data that they have synced are on
    /// the media.
    pub(super) fn end_flushes(&mut self, commands: Vec<Key<CommandRun>>) {
        commands.into_iter().for_each(|command| self.commands.end_part(command, Status::Success));
    }

    pub(super) fn on_journal_file(&mut self, done: bool) {
        if self.journal.stage == Stage::Writing {
            let flushes = std::mem::take(&mut self.journal.batch_flushes);
            self.end_flushes(flushes);
        }
        match self.journal.stage {
            Stage::Writing if done && self.bug.has(SeededBug::UnsyncedRecord) => self.batch_is_written(),
            Stage::Writing if done && !self.journal.batch_waiters.is_empty() => {
                self.journal.stage = Stage::Syncing;
                self.operations.issue(Purpose::Journal, FileOperation::Sync { file: ImageFile::Journal });
            }
            Stage::Writing if done => self.batch_is_written(),
            Stage::Syncing if done => {
                self.batch_is_written();
                self.mark_synced();
            }
            Stage::Writing | Stage::Syncing => self.batch_has_failed(),
            Stage::Marking => self.journal.stage = Stage::Idle,
            Stage::Voiding if done => {
                self.journal.stage = Stage::VoidSyncing;
                self.operations.issue(Purpose::Journal, FileOperation::Sync { file: ImageFile::Journal });
            }
            Stage::Voiding | Stage::VoidSyncing => self.batch_is_void(done),
            Stage::Idle => panic!("the journal has no outstanding operation"),
        }
    }

    fn batch_is_written(&mut self) {
        let journal = &mut self.journal;
        journal.tail += journal.batch_bytes;
        journal.next_sequence += journal.batch_records;
        journal.last_sum = journal.batch_sum;
        journal.stage = Stage::Idle;
        if journal.used_bytes() > (self.layout.journal_bytes - MARKS_BYTES) / 4 * 3 {
            self.checkpointing.want();
        }
        for waiter in std::mem::take(&mut self.journal.batch_waiters) {
            self.on_recorded(waiter, true);
        }
    }

    /// Writes a mark, which distinguishes a damaged synced record from the torn end of the journal.
    fn mark_synced(&mut self) {
        let journal = &mut self.journal;
        journal.stage = Stage::Marking;
        journal.mark = 1 - journal.mark;
        let early = if self.bug.has(SeededBug::EarlyMark) { journal.pending.len() as u64 } else { 0 };
        let mark = record::encode_mark(&self.spec.uuid, journal.epoch, journal.next_sequence - 1 + early);
        let offset = journal.mark * MARK_STRIDE;
        self.operations
            .issue(Purpose::Journal, FileOperation::Write { file: ImageFile::Journal, offset, pieces: vec![mark] });
    }

    fn batch_has_failed(&mut self) {
        if self.bug.has(SeededBug::KeptBatch) {
            self.journal.stage = Stage::Idle;
            let waiters = std::mem::take(&mut self.journal.batch_waiters);
            return waiters.into_iter().for_each(|waiter| self.on_recorded(waiter, false));
        }
        let offset = self.journal.tail;
        self.journal.stage = Stage::Voiding;
        // Records that the failed batch left behind the next one must not be taken for its
        // continuation. Records have 24 bits for the number.
        self.journal.failed_batches = self.journal.failed_batches.wrapping_add(1);
        let pieces = vec![Bytes::from_static(&[0; HEADER_BYTES])];
        self.operations.issue(Purpose::Journal, FileOperation::Write { file: ImageFile::Journal, offset, pieces });
    }

    /// Called when the failed batch is invalidated; if not, a recovery may find it until a
    /// checkpoint has begun another epoch.
    fn batch_is_void(&mut self, void: bool) {
        self.journal.stage = Stage::Idle;
        if !void {
            self.checkpointing.want();
        }
        for waiter in std::mem::take(&mut self.journal.batch_waiters) {
            self.on_recorded(waiter, false);
        }
    }

    fn on_recorded(&mut self, waiter: Waiter, recorded: bool) {
        let part = match waiter {
            Waiter::Part(part) => part,
            Waiter::Reservations => return self.on_reservations_recorded(recorded),
        };
        match self.parts[part].work {
            Work::Overwrite { .. } => self.on_overwrite_recorded(part, recorded),
            Work::Manage(_) => self.on_management_recorded(part, recorded),
            Work::Read { .. } => self.on_damage_recorded(part, recorded),
            _ => unreachable!("no other part writes records"),
        }
    }
}
