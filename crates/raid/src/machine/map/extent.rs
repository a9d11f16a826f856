//! Extents of written blocks and holes.

use zonda_zoned::{Blocks, Lba};

use super::super::address::Location;
use super::super::stripes::Stripes;
use super::Map;
use crate::limits::EXTENT_BLOCKS_MAX;

/// Consecutive blocks of a volume in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of blocks; at least one.
    pub blocks: Blocks,
    /// The blocks were never written, or were trimmed since: they read as zeros. Other blocks may
    /// read as zeros, too.
    pub is_hole: bool,
}

impl Map {
    /// The extent that begins at `start`, at most `most` blocks. At most [`EXTENT_BLOCKS_MAX`]
    /// blocks are examined, so the next extent may be in the same state. As for a read, requests
    /// count that were accepted before.
    ///
    /// # Panics
    /// If `start` is behind the end of the volume, or `most` is 0.
    pub(in crate::machine) fn extent(&self, stripes: &Stripes, start: Lba, most: Blocks) -> Extent {
        let end = self.blocks();
        assert!(start.0 < end && most.0 > 0, "the extent begins within the volume");
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

    /// Whether a block is a hole, and how far that is known to continue, before `end`.
    fn run_of(&self, stripes: &Stripes, lba: u64, end: u64) -> (bool, u64) {
        let end = match self.trims.has_until(lba) {
            // Pending ranges of trims need not be examined.
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
            // A lost block has contents.
            Location::Media(_) | Location::Lost { .. } => false,
            // Tombstones are not blocks of the volume.
            Location::Buffered { stripe, block } => stripes[stripe].blocks[block as usize].lba != lba,
        }
    }
}
