//! Loads of hosts: random commands, each with its expected completion. Pure: the same seed and the
//! same drive give the same commands.

mod plain;
mod zones;

pub use plain::PlainLoad;
pub use zones::ZoneLoad;

use std::fmt;

use zonda_zoned::{Lba, Operation, Prng};

use crate::oracle::Change;
use crate::stamp::Contents;

/// The longest command: 256 KiB.
const COMMAND_BLOCKS_MAX: u64 = 64;

/// A command, with its meaning.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The command.
    pub operation: Operation,
    /// Its meaning.
    pub meaning: Meaning,
}

/// The effect of a command, and its expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Changes a zone.
    Zone {
        /// The zone.
        zone: u32,
        /// The change.
        change: Change,
        /// Blocks that it writes.
        blocks: u64,
        /// The LBA that an append must return.
        placed: Option<Lba>,
    },
    /// Overwrites blocks.
    Overwrite {
        /// Number of the write.
        write: u64,
        /// Its first block.
        first: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Reads blocks.
    Read {
        /// The first block.
        start: Lba,
        /// The expected contents.
        expected: Vec<Contents>,
    },
    /// Flushes a conventional namespace: acknowledgements up to this number are covered.
    Flush(u64),
    /// Has no effect that survives a restart: opens, closes, flushes of zones.
    Nothing,
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meaning::Zone { zone, .. } => write!(f, "zone {zone}"),
            Meaning::Overwrite { first, blocks, .. } => write!(f, "blocks {first} to {}", first + blocks - 1),
            Meaning::Read { start, expected } => write!(f, "LBA {start} to {}", start.0 + expected.len() as u64 - 1),
            Meaning::Flush(_) => f.write_str("namespace"),
            Meaning::Nothing => f.write_str("no lasting effect"),
        }
    }
}

/// A source of commands and their expected effects.
pub trait Load: Send {
    /// The next command. It counts as submitted after all earlier ones.
    fn next(&mut self) -> Planned;
    /// Records that a command succeeded.
    fn acknowledge(&mut self, meaning: &Meaning);
    /// Records that a command has failed, which it may.
    fn fail(&mut self, _meaning: &Meaning) {}
}

/// The length of a command in blocks: half of the time short, otherwise any.
fn length(prng: &mut Prng, max: u64) -> u64 {
    let bound = if prng.chance(1, 2) { 4 } else { COMMAND_BLOCKS_MAX };
    1 + prng.below(bound.min(max))
}
