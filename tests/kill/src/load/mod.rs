//! What hosts ask for: random commands, each with what its completion must say. Pure: the same seed and the same drive give the
//! same commands.

mod plain;
mod zones;

pub use plain::PlainLoad;
pub use zones::ZoneLoad;

use zonda_zoned::{Lba, Operation, Prng};

use crate::oracle::Change;
use crate::stamp::Contents;

/// The longest command: 256 KiB.
const COMMAND_BLOCKS_MAX: u64 = 64;

/// A command, with what it means.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The command.
    pub operation: Operation,
    /// Its meaning.
    pub meaning: Meaning,
}

/// What a command does, and what must come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Changes a zone.
    Zone {
        /// The zone.
        zone: u32,
        /// How.
        change: Change,
        /// Blocks that it writes.
        blocks: u64,
        /// Where an append must be placed.
        placed: Option<Lba>,
    },
    /// Overwrites blocks.
    Overwrite {
        /// Number of the write.
        write: u64,
        /// Its first block.
        first: u64,
        /// How many.
        blocks: u64,
    },
    /// Reads these.
    Read {
        /// The first block.
        start: Lba,
        /// What the blocks hold.
        expected: Vec<Contents>,
    },
    /// Flushes a conventional namespace: the acknowledgements up to this number are covered.
    Flush(u64),
    /// Leaves no trace after a restart: opens, closes, flushes of zones.
    Nothing,
}

/// A source of commands that knows what they do.
pub trait Load: Send {
    /// The next command. It counts as submitted, after all before it.
    fn next(&mut self) -> Planned;
    /// A command has succeeded.
    fn acknowledge(&mut self, meaning: &Meaning);
}

/// How many blocks a command has: one half of the time few, one half any number.
fn length(prng: &mut Prng, max: u64) -> u64 {
    let bound = if prng.chance(1, 2) { 4 } else { COMMAND_BLOCKS_MAX };
    1 + prng.below(bound.min(max))
}
