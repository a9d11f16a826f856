//! Commands for the drive, and their purposes.

use std::collections::VecDeque;

use zonda_zoned::{Command, CommandId, Completion, Key, NamespaceId, Operation, Outcome, Slab, Status, ZoneIndex};

use crate::FileId;
use crate::extents::Run;

use super::files::ChunkId;
use super::read::{Piece, ReadRun};

/// Owns the commands in flight, and those that the drive has not accepted yet.
#[derive(Debug, Default)]
pub(super) struct Commands {
    in_flight: Slab<InFlight>,
    outbox: VecDeque<Command>,
    /// The drive's queue is full until the next completion.
    is_blocked: bool,
    /// Writes of data in flight.
    data_writes: usize,
}

/// The purpose of a command in flight.
#[derive(Debug)]
pub(super) enum InFlight {
    Write {
        file: FileId,
        chunk: ChunkId,
        run: Run,
    },
    Read {
        read: Key<ReadRun>,
        zone: ZoneIndex,
        piece: Piece,
    },
    Finish {
        zone: ZoneIndex,
    },
    Reset {
        zone: ZoneIndex,
    },
    /// A report on a zone after a failure; if its management failed, this is the last attempt.
    Inspect {
        zone: ZoneIndex,
        is_last: bool,
    },
    Log,
    Start,
    FormatReset {
        zone: ZoneIndex,
    },
    MigrationRead,
    MigrationWrite {
        run: Run,
    },
}

impl Commands {
    /// Adds a command for the drive.
    pub(super) fn send(&mut self, in_flight: InFlight, operation: Operation) {
        self.data_writes += usize::from(in_flight.is_data_write());
        let id = CommandId::from(self.in_flight.insert(in_flight));
        self.outbox.push_back(Command::new(id, NamespaceId::FIRST, operation));
    }

    /// The next command to submit.
    pub(super) fn poll(&mut self) -> Option<Command> {
        if self.is_blocked { None } else { self.outbox.pop_front() }
    }

    /// The drive has refused a command: it stays the next one.
    pub(super) fn on_queue_full(&mut self, command: Command) {
        self.outbox.push_front(command);
        // Without a command in flight there is no completion to wait for.
        self.is_blocked = self.in_flight.len() > self.outbox.len();
    }

    /// A command has completed.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(super) fn on_completion(&mut self, completion: Completion) -> (InFlight, Status, Outcome) {
        self.is_blocked = false;
        let Completion { id, status, outcome } = completion;
        let key = Key::of_command(id).expect("the store numbers its commands by their keys");
        let in_flight = self.in_flight.remove(key);
        self.data_writes -= usize::from(in_flight.is_data_write());
        (in_flight, status, outcome)
    }

    /// Whether a write of data is in flight, also one that the drive has not accepted yet.
    pub(super) fn has_data_writes(&self) -> bool {
        self.data_writes > 0
    }

    /// The purposes of all commands.
    pub(super) fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter().map(|(_, in_flight)| in_flight)
    }

    pub(super) fn check_invariants(&self) {
        let writes = self.iter().filter(|in_flight| in_flight.is_data_write()).count();
        assert_eq!(self.data_writes, writes, "writes in flight are counted");
        assert!(self.outbox.len() <= self.in_flight.len(), "a command to submit has a purpose");
        assert!(
            !self.is_blocked || self.outbox.len() < self.in_flight.len(),
            "the store waits for a full queue only while a completion will come"
        );
    }
}

impl InFlight {
    fn is_data_write(&self) -> bool {
        matches!(self, InFlight::Write { .. } | InFlight::MigrationWrite { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_the_drive_refused_is_the_next_one_after_a_completion() {
        let mut commands = Commands::default();
        commands.send(InFlight::Log, Operation::Flush);
        commands.send(InFlight::MigrationRead, Operation::Flush);
        let first = commands.poll().expect("two commands");
        let second = commands.poll().expect("one command");
        let id = second.id;
        commands.on_queue_full(second);
        commands.check_invariants();
        assert_eq!(commands.poll(), None, "the queue of the drive is full");
        let (in_flight, ..) = commands.on_completion(Completion::of(first.id, Status::Success));
        assert!(matches!(in_flight, InFlight::Log));
        let again = commands.poll().expect("the refused command");
        assert_eq!(again.id, id);
        commands.on_queue_full(again);
        assert_eq!(commands.poll().map(|command| command.id), Some(id), "no completion would come");
    }
}
