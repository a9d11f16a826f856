//! Outstanding commands: the parts that each waits for, and its result.
//!
//! Operations, in their order: [`begin`](Commands::begin) or [`begin_read`](Commands::begin_read),
//! [`add_part`](Commands::add_part) for each part, [`add_data`](Commands::add_data) for blocks that
//! were read, [`end_part`](Commands::end_part); [`poll`](Commands::poll) returns the completion. A
//! command begins with one part more than it has, so that it does not complete before all of them
//! are added.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, CommandId, Completion, Key, Outcome, Payload, Slab, Status};

use crate::format::entry::add;

/// Owns the outstanding commands and their completions.
#[derive(Debug)]
pub(super) struct Commands {
    outstanding: Slab<CommandRun>,
    completions: VecDeque<Completion>,
    block_bytes: usize,
    metadata_bytes: usize,
    /// Blocks that hosts have read since the drive was created.
    read_blocks: u64,
}

/// An outstanding command.
#[derive(Debug)]
pub(super) struct CommandRun {
    id: CommandId,
    /// Parts that have not ended.
    left: u32,
    /// The first error of its parts, else success.
    status: Status,
    /// Its outcome if it succeeds.
    outcome: Outcome,
    /// For a read.
    read: Option<Box<ReadRun>>,
}

/// The collected data of a read.
#[derive(Debug)]
struct ReadRun {
    blocks: u64,
    /// Absent until the first part has ended; the only part of a command leaves its own bytes here.
    found: Option<BlockBuffer>,
    /// Data and metadata of a read of several parts, or of one that is partly unwritten.
    assembled: Option<(Vec<u8>, Vec<u8>)>,
}

impl Commands {
    pub(super) fn new(block_bytes: usize, metadata_bytes: usize, read_blocks: u64) -> Commands {
        let (outstanding, completions) = (Slab::new(), VecDeque::new());
        Commands { outstanding, completions, block_bytes, metadata_bytes, read_blocks }
    }

    pub(super) fn begin(&mut self, id: CommandId, outcome: Outcome) -> Key<CommandRun> {
        self.outstanding.insert(CommandRun { id, left: 1, status: Status::Success, outcome, read: None })
    }

    /// Begins a read. Blocks without a part are zeros.
    pub(super) fn begin_read(&mut self, id: CommandId, blocks: u64) -> Key<CommandRun> {
        let command = self.begin(id, Outcome::None);
        self.outstanding[command].read = Some(Box::new(ReadRun { blocks, found: None, assembled: None }));
        command
    }

    /// The command waits for one more part.
    #[inline]
    pub(super) fn add_part(&mut self, command: Key<CommandRun>) {
        self.outstanding[command].left += 1;
    }

    /// Adds blocks that a part has read; the first of them is block `place` of the command.
    pub(super) fn add_data(&mut self, command: Key<CommandRun>, place: u64, buffer: BlockBuffer) {
        let (block_bytes, metadata_bytes) = (self.block_bytes, self.metadata_bytes);
        let read = self.outstanding[command].read.as_deref_mut().expect("the command is a read");
        let BlockBuffer { data, metadata } = buffer;
        let total = read.blocks as usize;
        if data.len() == total * block_bytes {
            read.found = Some(BlockBuffer { data, metadata });
            return;
        }
        let assembled =
            read.assembled.get_or_insert_with(|| (vec![0; total * block_bytes], vec![0; total * metadata_bytes]));
        assembled.0[place as usize * block_bytes..][..data.len()].copy_from_slice(&data);
        assembled.1[place as usize * metadata_bytes..][..metadata.len()].copy_from_slice(&metadata);
    }

    /// Called when a part of a command has ended, and when all its parts are added.
    pub(super) fn end_part(&mut self, command: Key<CommandRun>, status: Status) {
        let run = &mut self.outstanding[command];
        if run.status.is_success() {
            run.status = status;
        }
        run.left -= 1;
        if run.left > 0 {
            return;
        }
        let CommandRun { id, status, outcome, read, .. } = self.outstanding.remove(command);
        match read {
            _ if !status.is_success() => self.refuse(id, status),
            Some(read) => {
                add(&mut self.read_blocks, read.blocks);
                let buffer = self.assemble(*read);
                self.answer(id, Outcome::Data(Payload::Bytes(Box::new(buffer))));
            }
            None => self.answer(id, outcome),
        }
    }

    /// All blocks of a read; those that no part has read are zeros.
    fn assemble(&self, read: ReadRun) -> BlockBuffer {
        match (read.found, read.assembled) {
            (Some(found), _) => found,
            (None, Some((data, metadata))) => BlockBuffer { data: data.into(), metadata: metadata.into() },
            (None, None) => {
                let zeros = |unit: usize| Bytes::from(vec![0; read.blocks as usize * unit]);
                BlockBuffer { data: zeros(self.block_bytes), metadata: zeros(self.metadata_bytes) }
            }
        }
    }

    /// Completes a command that has not begun.
    pub(super) fn answer(&mut self, id: CommandId, outcome: Outcome) {
        self.completions.push_back(Completion { id, status: Status::Success, outcome });
    }

    /// As [`answer`](Commands::answer), with an error.
    pub(super) fn refuse(&mut self, id: CommandId, status: Status) {
        self.completions.push_back(Completion::of(id, status));
    }

    pub(super) fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Commands that have not completed.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    pub(super) fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    pub(super) fn read_blocks(&self) -> u64 {
        self.read_blocks
    }

    /// Does not count blocks that were read.
    pub(super) fn forget_reads(&mut self, blocks: u64) {
        assert!(self.outstanding.is_empty(), "a read in flight would be counted later");
        self.read_blocks = self.read_blocks.checked_sub(blocks).expect("no more blocks are forgotten than were read");
    }

    /// `parts` are the commands of all parts.
    pub(super) fn check_invariants(&self, parts: impl Iterator<Item = Key<CommandRun>>) {
        let mut of_commands = std::collections::BTreeMap::new();
        for command in parts {
            *of_commands.entry(command).or_insert(0) += 1;
        }
        for (key, run) in self.outstanding.iter() {
            let parts = of_commands.remove(&key).unwrap_or(0);
            // A flush waits for a round, and has no part.
            assert!(run.left >= parts, "command {key:?} waits for {} of {parts}", run.left);
            assert!(run.left > 0, "command {key:?} waits for nothing");
        }
        assert!(of_commands.is_empty(), "parts of commands that have completed: {of_commands:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(blocks: u64, parts: &[(u64, u8, usize)]) -> BlockBuffer {
        let mut commands = Commands::new(2, 1, 0);
        let read = commands.begin_read(CommandId(7), blocks);
        for &(place, byte, blocks) in parts {
            commands.add_part(read);
            let buffer = BlockBuffer { data: vec![byte; 2 * blocks].into(), metadata: vec![byte; blocks].into() };
            commands.add_data(read, place, buffer);
            commands.end_part(read, Status::Success);
        }
        assert!(!commands.has_completions(), "parts may follow");
        commands.end_part(read, Status::Success);
        assert_eq!(commands.read_blocks(), blocks);
        let completion = commands.poll().expect("all parts have ended");
        assert_eq!((completion.id, completion.status), (CommandId(7), Status::Success));
        match completion.outcome {
            Outcome::Data(Payload::Bytes(buffer)) => *buffer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_read_has_the_blocks_of_its_parts_in_their_places_and_zeros_between() {
        let buffer = read_of(4, &[(3, 9, 1), (0, 5, 2)]);
        assert_eq!((&buffer.data[..], &buffer.metadata[..]), (&[5, 5, 5, 5, 0, 0, 9, 9][..], &[5, 5, 0, 9][..]));
        let whole = read_of(2, &[(0, 5, 2)]);
        assert_eq!((&whole.data[..], &whole.metadata[..]), (&[5, 5, 5, 5][..], &[5, 5][..]));
        assert_eq!(read_of(2, &[]).data, [0; 4][..]);
    }

    #[test]
    fn a_command_fails_with_the_first_error_of_its_parts() {
        let mut commands = Commands::new(512, 0, 10);
        let read = commands.begin_read(CommandId(1), 1);
        commands.add_part(read);
        commands.add_part(read);
        commands.end_part(read, Status::UnrecoveredReadError);
        commands.end_part(read, Status::InternalError);
        commands.end_part(read, Status::Success);
        assert_eq!(commands.poll(), Some(Completion::of(CommandId(1), Status::UnrecoveredReadError)));
        assert_eq!((commands.read_blocks(), commands.outstanding()), (10, 0));
    }
}
