//! Which blocks hold something.

use zonda_zoned::{Blocks, Lba};

use super::Volume;
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

impl Volume {
    /// What is to be had from `start` on: the blocks that are as the first one is, at most `most` of them. No more than
    /// [`EXTENT_BLOCKS_MAX`] are looked at, so what is behind them may be in the same state. As with a read, what counts is what was
    /// taken before. A volume that is not ready says that everything holds something.
    ///
    /// # Panics
    /// When `start` is behind the end of the volume, or `most` is nothing.
    #[must_use]
    pub fn extent(&self, start: Lba, most: Blocks) -> Extent {
        let end = self.map.len() as u64;
        assert!(start.0 < end && most.0 > 0, "whoever asks knows how large the volume is");
        let most = most.0.min(end - start.0).min(EXTENT_BLOCKS_MAX);
        if !self.is_ready() {
            return Extent { blocks: Blocks(most), is_hole: false };
        }
        let is_hole = self.reads_as_zeros(start.0);
        let blocks = (1..most).find(|&at| self.reads_as_zeros(start.0 + at) != is_hole).unwrap_or(most);
        Extent { blocks: Blocks(blocks), is_hole }
    }

    /// Whether a block is known to be zeros without being read.
    fn reads_as_zeros(&self, lba: u64) -> bool {
        match self.map[lba as usize].location() {
            Location::Nowhere | Location::Trimmed { .. } => true,
            Location::Media(_) => false,
            // A tombstone is no block of its own.
            Location::Buffered { stripe, block } => self.stripes[stripe].blocks[block as usize].lba != lba,
        }
    }
}
