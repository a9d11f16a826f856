//! A BLOCK_STATUS as questions to its drive.

use std::ops::Range;

use zonda_devices::Extent as Found;
use zonda_nbd::Extent;
use zonda_nbd::limits::EXTENTS_MAX;
use zonda_zoned::{Blocks, Lba};

use super::job::Shape;
use crate::nbd::limits::STATUS_BLOCKS_MAX;

/// What is known of the blocks that a client asks about.
#[derive(Debug)]
pub(super) struct Map {
    /// Bytes of the first block that the client does not ask about.
    head: u64,
    /// Blocks of which nothing is known yet.
    left: Range<u64>,
    /// Of blocks, from the front; neighbours differ.
    found: Vec<Found>,
    /// Extents that the client wants at most.
    most: usize,
}

impl Map {
    pub(super) fn new(shape: &Shape, offset: u64, length: u64, one: bool) -> Map {
        let size = shape.block_bytes();
        let (first, end) = (offset / size, (offset + length).div_ceil(size));
        // A client asks again for what is behind the last extent.
        let left = first..end.min(first + STATUS_BLOCKS_MAX);
        Map { head: offset % size, left, found: Vec::new(), most: if one { 1 } else { EXTENTS_MAX } }
    }

    /// The blocks that the drive is asked about next: what it says of the first of them, and how far that goes.
    pub(super) fn next(&self) -> Option<(Lba, Blocks)> {
        (!self.left.is_empty()).then(|| (Lba(self.left.start), Blocks(self.left.end - self.left.start)))
    }

    /// What the drive says of them.
    pub(super) fn found(&mut self, extent: Found) {
        let blocks = extent.blocks.0.clamp(1, self.left.end - self.left.start);
        self.left.start += blocks;
        let is_full = self.found.len() == self.most;
        match self.found.last_mut() {
            Some(last) if last.is_hole == extent.is_hole => last.blocks.0 += blocks,
            _ if is_full => self.left = 0..0,
            _ => self.found.push(Found { blocks: Blocks(blocks), is_hole: extent.is_hole }),
        }
    }

    /// As the protocol has it. Holes of a drive read as zeros.
    pub(super) fn into_extents(self, shape: &Shape) -> Vec<Extent> {
        let mut head = self.head;
        let extent = |found: Found| {
            let length = found.blocks.0 * shape.block_bytes() - std::mem::take(&mut head);
            Extent { length, is_hole: found.is_hole, is_zero: found.is_hole }
        };
        self.found.into_iter().map(extent).collect()
    }
}
