//! The load of one host on a conventional namespace.

use zonda_zoned::{Blocks, Lba, Operation, Prng};

use super::{COMMAND_BLOCKS_MAX, Load, Meaning, Planned, length};
use crate::oracle::PlainHistory;
use crate::stamp::{Contents, Sequence, Stamper};

/// Half of the commands are for this many blocks, so that overwrites of the same block are in
/// flight together.
const HOT_BLOCKS: u64 = 256;

/// Overwrites and reads anywhere.
pub struct PlainLoad {
    /// The history of the namespace, for the duration of the load.
    pub history: PlainHistory,
    prng: Prng,
    stamper: Stamper,
    number: u32,
    host: u32,
    writes: u64,
}

impl PlainLoad {
    /// Creates load `number` of a host.
    #[must_use]
    pub fn new(history: PlainHistory, stamper: &Stamper, prng: Prng, (number, host): (u32, u32)) -> PlainLoad {
        PlainLoad { history, prng, stamper: stamper.clone(), number, host, writes: 0 }
    }

    fn range(&mut self) -> (u64, u64) {
        let blocks = length(&mut self.prng, COMMAND_BLOCKS_MAX);
        let bound = if self.prng.chance(1, 2) { HOT_BLOCKS.min(self.history.blocks()) } else { self.history.blocks() };
        (self.prng.below(bound - blocks + 1), blocks)
    }

    fn write(&mut self, zeros: bool) -> Planned {
        let (first, blocks) = self.range();
        let sequence = Sequence::new(self.number, self.host, self.writes);
        self.writes += 1;
        let contents = if zeros { Contents::Zeros } else { Contents::Write(sequence) };
        let write = self.history.write(first, blocks, contents);
        let operation = if zeros {
            Operation::WriteZeroes { start: Lba(first), blocks: Blocks(blocks) }
        } else {
            let payload = self.stamper.payload(Lba(first), blocks, sequence);
            Operation::Write { start: Lba(first), blocks: Blocks(blocks), payload }
        };
        Planned { operation, meaning: Meaning::Overwrite { write, first, blocks } }
    }

    fn read(&mut self) -> Planned {
        let (first, blocks) = self.range();
        let expected = (first..first + blocks).map(|block| self.history.expected(block)).collect();
        Planned {
            operation: Operation::Read { start: Lba(first), blocks: Blocks(blocks) },
            meaning: Meaning::Read { start: Lba(first), expected },
        }
    }
}

impl Load for PlainLoad {
    fn next(&mut self) -> Planned {
        match self.prng.below(100) {
            0..70 => self.write(false),
            70..75 => self.write(true),
            75..92 => self.read(),
            _ => Planned { operation: Operation::Flush, meaning: Meaning::Flush(self.history.flush()) },
        }
    }

    fn acknowledge(&mut self, meaning: &Meaning) {
        match *meaning {
            Meaning::Overwrite { write, first, blocks } => self.history.acknowledge(write, first, blocks),
            Meaning::Flush(covered) => self.history.flushed(covered),
            _ => {}
        }
    }
}
