//! Blocks with a failed write. Chunks of its stripe may be on members, so that a mount takes the
//! write for one that a crash has interrupted, and the block gets the failed version. A later
//! successful write of the block is newer, and so is a trim: but a trim of a block without contents
//! writes no tombstone, unless such a version may return.

use std::collections::BTreeMap;

use super::super::segments::Segments;

/// Owns the blocks with failed writes, as long as a segment exists that these may have been written
/// to.
#[derive(Debug, Default)]
pub(super) struct FailedWrites {
    /// The sequence number of the next segment when the write failed: its stripe was in earlier
    /// ones.
    blocks: BTreeMap<u64, u64>,
    /// The sequence number of the oldest segment at the last check.
    oldest: u64,
}

impl FailedWrites {
    /// A write of a block has failed.
    pub(super) fn note(&mut self, segments: &Segments, lba: u64) {
        self.blocks.insert(lba, segments.next_sequence());
        if self.blocks.len().is_power_of_two() {
            self.forget_reset(segments);
        }
    }

    /// Whether a failed version may appear after a crash, if the block has no contents now.
    pub(super) fn may_return(&mut self, segments: &Segments, lba: u64) -> bool {
        if !self.blocks.contains_key(&lba) {
            return false;
        }
        self.forget_reset(segments);
        self.blocks.contains_key(&lba)
    }

    /// Forgets versions whose segments were reset.
    fn forget_reset(&mut self, segments: &Segments) {
        let oldest = segments.iter().map(|(_, segment)| segment.sequence).min().unwrap_or(u64::MAX);
        if oldest != self.oldest {
            self.oldest = oldest;
            self.blocks.retain(|_, next| oldest < *next);
        }
    }
}
