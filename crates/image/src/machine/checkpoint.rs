//! Checkpoints: the complete ledger is written, twice, so that the journal can restart; and the
//! clean shutdown.
//!
//! A checkpoint waits until no part uses the journal, and holds parts that need it. It syncs data
//! and tags, then writes and syncs one copy and then the other. Reads and writes at write pointers
//! continue meanwhile. If a copy cannot be written or synced, the next checkpoint begins with this
//! copy: only the other one is known to be on the media.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::{Key, Status};

use crate::bugs::SeededBug;
use crate::format::checkpoint;
use crate::format::entry::add;
use crate::{FileError, FileOperation, ImageFile};

use super::Image;
use super::commands::CommandRun;
use super::operations::Purpose;
use super::parts::{Part, Stage, Work};

/// The progress of a checkpoint.
#[derive(Debug)]
pub(super) struct Checkpointing {
    state: State,
    wanted: bool,
    /// A copy may have been written and the checkpoint is not complete: a recovery would not find
    /// the journal's records.
    blocked: bool,
    /// The sequence of the last checkpoint of which a copy was written.
    sequence: u64,
    /// The copy that the next checkpoint writes first: the other one is synced.
    first_slot: u64,
    /// Parts that may write to the journal, and that a checkpoint waits for.
    users: u32,
    held: VecDeque<Key<Part>>,
    /// Flushes whose notes this checkpoint or the next one contains.
    flushes: Vec<Key<CommandRun>>,
    closing: bool,
    closed: Option<Result<(), FileError>>,
    copy: Bytes,
    clean: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Until no part uses the journal.
    Draining,
    Flushing,
    Writing(u64),
    Syncing(u64),
}

impl Checkpointing {
    pub(super) fn new(sequence: u64) -> Checkpointing {
        Checkpointing {
            state: State::Idle,
            wanted: false,
            blocked: false,
            sequence,
            first_slot: 0,
            users: 0,
            held: VecDeque::new(),
            flushes: Vec::new(),
            closing: false,
            closed: None,
            copy: Bytes::new(),
            clean: false,
        }
    }

    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// The ledger has changes that do not fit in the journal: the next checkpoint contains them.
    pub(super) fn want_for_unrecorded(&mut self) {
        self.wanted |= !matches!(self.state, State::Draining | State::Flushing);
    }

    /// Requests another checkpoint for parts held behind a failed one.
    pub(super) fn want_if_blocked(&mut self) {
        self.wanted |= self.blocked;
    }

    /// Whether records may be written now.
    pub(super) fn admits(&self) -> bool {
        self.state == State::Idle && !self.blocked
    }

    /// Something that may write to the journal begins: a checkpoint waits for its end.
    pub(super) fn enter(&mut self) {
        assert!(self.admits(), "no record is written during a checkpoint");
        self.users += 1;
    }

    pub(super) fn leave(&mut self) {
        self.users = self.users.checked_sub(1).expect("what leaves has entered");
    }

    /// The notes of these flushes are in the next checkpoint, or the current one: they end with it.
    pub(super) fn await_flushes(&mut self, commands: Vec<Key<CommandRun>>) {
        self.flushes.extend(commands);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    pub(super) fn begin_closing(&mut self) {
        self.closing = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(super) fn closed(&self) -> Option<&Result<(), FileError>> {
        self.closed.as_ref()
    }

    pub(super) fn holds(&self) -> usize {
        self.held.len()
    }
}

impl Image {
    pub(super) fn hold(&mut self, key: Key<Part>) {
        self.parts[key].stage = Stage::Held;
        self.checkpointing.held.push_back(key);
        self.checkpointing.want_if_blocked();
    }

    /// Advances a checkpoint as far as possible without waiting.
    pub(super) fn pump_checkpoint(&mut self) {
        if self.checkpointing.state == State::Idle {
            let quiet = self.is_quiescent();
            let last = self.checkpointing.closing && self.checkpointing.closed.is_none() && quiet;
            if !self.checkpointing.wanted && !last {
                return;
            }
            self.checkpointing.wanted = false;
            self.checkpointing.state = State::Draining;
        }
        let drained = self.checkpointing.users == 0 && self.journal.is_idle() && !self.flush.is_running();
        if self.checkpointing.state == State::Draining && drained {
            self.checkpointing.state = State::Flushing;
            self.begin_round();
        }
    }

    /// Called when a round of flushes ends; if it was the checkpoint's, the ledger is written.
    pub(super) fn on_round_ended(&mut self, done: bool) {
        if self.checkpointing.state != State::Flushing {
            return;
        }
        if !done {
            self.abandon_checkpoint(FileError::Other("data or tags could not be synced".into()));
            return;
        }
        let quiet = self.is_quiescent();
        // Writes acknowledged since the round began are not synced: another checkpoint follows.
        self.checkpointing.clean = self.checkpointing.closing && quiet && !self.flush.is_dirty();
        if self.checkpointing.clean {
            self.note_last_pointers();
        }
        let sequence = checkpoint::next_sequence(self.checkpointing.sequence);
        self.checkpointing.copy =
            checkpoint::encode(&self.layout, &self.spec.uuid, sequence, self.checkpointing.clean, &self.ledger);
        self.checkpointing.sequence = sequence;
        self.checkpointing.blocked = true;
        self.write_copy(self.checkpointing.first_slot);
    }

    /// Whether nothing is in progress that would need another checkpoint.
    fn is_quiescent(&self) -> bool {
        self.commands.outstanding() == 0 && self.parts.is_empty() && self.reservations_change.is_idle()
    }

    /// Records the write pointers: after a clean shutdown the next opening does not scan for them.
    /// Everything up to them is synced.
    fn note_last_pointers(&mut self) {
        for zone in self.layout.sequential_zones() {
            let run = &self.zones[zone.as_usize()];
            let entry = &mut self.ledger.entries[zone.as_usize()];
            assert_eq!(run.generation, entry.generation, "resets of zone {zone} have ended");
            if entry.had_zrwa {
                let view = self.table.zone(zone);
                (entry.pointer, entry.written) = (view.write_pointer_blocks.0, view.written_blocks.0);
            } else if run.on_file > entry.durable {
                add(&mut self.ledger.counters.host_written_blocks, run.on_file - entry.durable);
                entry.durable = run.on_file;
            }
        }
    }

    fn write_copy(&mut self, slot: u64) {
        self.checkpointing.state = State::Writing(slot);
        let pieces = vec![self.checkpointing.copy.clone()];
        let offset = self.layout.slot_offset(slot);
        self.operations.issue(Purpose::Checkpoint, FileOperation::Write { file: ImageFile::State, offset, pieces });
    }

    pub(super) fn on_checkpoint_file(&mut self, result: Result<(), FileError>) {
        if let Err(error) = result {
            self.abandon_checkpoint(error);
            return;
        }
        match self.checkpointing.state {
            State::Writing(slot) => {
                self.checkpointing.state = State::Syncing(slot);
                self.operations.issue(Purpose::Checkpoint, FileOperation::Sync { file: ImageFile::State });
            }
            State::Syncing(slot) if slot == self.checkpointing.first_slot && !self.bug.has(SeededBug::SingleCopy) => {
                self.write_copy(1 - slot);
            }
            State::Syncing(_) => self.complete_checkpoint(),
            State::Idle | State::Draining | State::Flushing => panic!("no checkpoint is being written"),
        }
    }

    fn complete_checkpoint(&mut self) {
        let checkpointing = &mut self.checkpointing;
        checkpointing.state = State::Idle;
        checkpointing.blocked = false;
        checkpointing.copy = Bytes::new();
        if std::mem::take(&mut checkpointing.clean) {
            checkpointing.closed = Some(Ok(()));
        }
        let held = std::mem::take(&mut checkpointing.held);
        let (flushes, sequence) = (std::mem::take(&mut checkpointing.flushes), checkpointing.sequence);
        self.journal.restart(sequence);
        self.end_flushes(flushes);
        self.intents.restart();
        self.parts.start_again(held);
        self.record_reservations();
        self.begin_waiting_flushes();
    }

    /// Parts that waited for the checkpoint fail; the next part that needs the journal tries again.
    fn abandon_checkpoint(&mut self, error: FileError) {
        if let State::Writing(slot) | State::Syncing(slot) = self.checkpointing.state {
            self.checkpointing.first_slot = slot;
        }
        self.checkpointing.state = State::Idle;
        self.checkpointing.copy = Bytes::new();
        if self.checkpointing.closing {
            self.checkpointing.closed = Some(Err(error));
        }
        let flushes = std::mem::take(&mut self.checkpointing.flushes);
        self.end_flushes(flushes);
        self.refuse_reservations();
        for key in std::mem::take(&mut self.checkpointing.held) {
            match self.parts[key].work {
                Work::Manage(_) => self.refuse_management(key),
                _ => self.end_part(key, Status::WriteFault),
            }
        }
        self.begin_waiting_flushes();
    }
}
