//! Records of parts, notes of flushes, and what continues when they are written.

use zonda_zoned::{Key, Status};

use crate::format::record::HEADER_BYTES;
use crate::format::tag::TAG_BYTES;

use super::Image;
use super::commands::CommandRun;
use super::journal::{Notes, OwnRecord, Progress, Waiter};
use super::operations::Purpose;
use super::parts::{Part, Work};

impl Image {
    /// Whether a part that may write to the journal may continue now. If not, it is held until the
    /// next checkpoint.
    pub(super) fn enter_journal(&mut self, key: Key<Part>) -> bool {
        let needed = self.record_bytes(key);
        if !self.journal_admits(needed) {
            self.hold(key);
            return false;
        }
        self.journal.reserve(needed);
        self.parts[key].reserved_bytes = needed;
        self.checkpointing.enter();
        true
    }

    /// Whether a record of so many bytes may be written now. If it does not fit, a checkpoint
    /// begins.
    pub(super) fn journal_admits(&mut self, bytes: u64) -> bool {
        let has_space = self.journal.has_space(bytes);
        if !has_space {
            self.checkpointing.want();
        }
        has_space && self.checkpointing.admits()
    }

    /// Called when a part that entered has ended.
    pub(super) fn leave_journal(&mut self, key: Key<Part>) {
        self.journal.unreserve(std::mem::take(&mut self.parts[key].reserved_bytes));
        self.checkpointing.leave();
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
    /// notified of the sync, and space is reserved for the record or was found free.
    pub(super) fn push_record(&mut self, record: OwnRecord, waiter: Waiter) {
        if let Waiter::Part(part) = waiter {
            self.journal.unreserve(std::mem::take(&mut self.parts[part].reserved_bytes));
        }
        self.ledger.apply(&record.view());
        self.journal.push(record, Some(waiter));
    }

    /// Adds a record that nothing waits for. If it does not fit, it is left to the next checkpoint.
    pub(super) fn push_note(&mut self, record: OwnRecord) {
        self.ledger.apply(&record.view());
        if self.checkpointing.admits() && self.journal.has_space(record.length()) {
            self.journal.push(record, None);
        } else {
            self.journal.leave_out();
            self.checkpointing.want_for_unrecorded();
        }
    }

    /// Submits the next batch.
    pub(super) fn pump_journal(&mut self) {
        if let Some(operation) = self.journal.begin_batch() {
            self.operations.issue(Purpose::Journal, operation);
        }
    }

    /// Ends successful flushes when their notes are on file, so that a kill does not lose them: in
    /// the journal, or in the checkpoint that begins because the journal is full.
    pub(super) fn end_flushes_when_noted(&mut self, commands: Vec<Key<CommandRun>>) {
        match self.journal.await_notes(commands) {
            Notes::OnFile(commands) => self.end_flushes(commands),
            Notes::InBatch => {}
            Notes::LeftOut(commands) => self.checkpointing.await_flushes(commands),
        }
    }

    /// Ends flushes, whether their notes are on file or not: the data that they have synced are on
    /// the media.
    pub(super) fn end_flushes(&mut self, commands: Vec<Key<CommandRun>>) {
        commands.into_iter().for_each(|command| self.commands.end_part(command, Status::Success));
    }

    pub(super) fn on_journal_file(&mut self, done: bool) {
        let flushes = self.journal.end_noted_flushes();
        self.end_flushes(flushes);
        match self.journal.on_file(done) {
            Progress::Continues(operation) => self.operations.issue(Purpose::Journal, operation),
            Progress::Recorded { waiters, is_synced } => {
                if self.journal.is_nearly_full() {
                    self.checkpointing.want();
                }
                waiters.into_iter().for_each(|waiter| self.on_recorded(waiter, true));
                if is_synced {
                    let mark = self.journal.mark();
                    self.operations.issue(Purpose::Journal, mark);
                }
            }
            Progress::NotRecorded { waiters, is_void } => {
                if !is_void {
                    self.checkpointing.want();
                }
                waiters.into_iter().for_each(|waiter| self.on_recorded(waiter, false));
            }
            Progress::Marked => {}
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
