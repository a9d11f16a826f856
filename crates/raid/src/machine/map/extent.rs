//! Which blocks hold something.

use zonda_zoned::{Blocks, Lba};

use super::super::stripes::Stripes;
use super::Map;
use crate::limits::EXTENT_BLOCKS_MAX;
use crate::tables::Location;

/// Blocks of a volume that follow each other, all of them in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many; at least one.
    pub blocks: Blocks,
    /// They were never written, or were trimmed since: they read as zeros. Others may read as zeros, too.
    pub is_hole: bool,
}

impl Map {
    /// What is to be had from `start` on: the blocks that are as the first one is, at most `most` of them. No more than
    /// [`EXTENT_BLOCKS_MAX`] are looked at, so what is behind them may be in the same state. As with a read, what counts is what was
    /// taken before.
    ///
    /// # Panics
    /// When `start` is behind the end of the volume, or `most` is nothing.
    pub(in crate::machine) fn extent(&self, stripes: &Stripes, start: Lba, most: Blocks) -> Extent {
        let end = self.blocks();
        assert!(start.0 < end && most.0 > 0, "whoever asks knows how large the volume is");
        let most = most.0.min(end - start.0).min(EXTENT_BLOCKS_MAX);
        let end = start.0 + most;
        let (first, mut at) = self.run_of(stripes, start.0, end);
        while at < end {
            let (is_hole, run_end) = self.run_of(stripes, at, end);
            if is_hole != first {
                break;
            }
            at = run_end;
        }
        Extent { blocks: Blocks(at - start.0), is_hole: first }
    }

    /// Whether a block is a hole, and how far blocks are that as far as can be told at once, before `end`.
    fn run_of(&self, stripes: &Stripes, lba: u64, end: u64) -> (bool, u64) {
        let end = match self.trims.has_until(lba) {
            // What is left of a trim need not be looked at.
            Ok(trimmed) => return (true, trimmed.min(end)),
            Err(next) => next.map_or(end, |next| next.min(end)),
        };
        let is_hole = self.reads_as_zeros(stripes, lba);
        (is_hole, (lba + 1..end).find(|&other| self.reads_as_zeros(stripes, other) != is_hole).unwrap_or(end))
    }

    /// Whether a block is known to be zeros without being read.
    fn reads_as_zeros(&self, stripes: &Stripes, lba: u64) -> bool {
        match self.location(lba) {
            Location::Nowhere | Location::Trimmed { .. } => true,
            // A lost block held something.
            Location::Media(_) | Location::Lost { .. } => false,
            // A tombstone is no block of its own.
            Location::Buffered { stripe, block } => stripes[stripe].blocks[block as usize].lba != lba,
        }
    }
}
