//! A BLOCK_STATUS as queries to its drive.

use std::ops::Range;

use zonda_devices::Extent as Found;
use zonda_nbd::Extent;
use zonda_nbd::limits::EXTENTS_MAX;
use zonda_zoned::{Blocks, Lba};

use super::job::Shape;
use crate::nbd::limits::STATUS_BLOCKS_MAX;

/// The status of the requested blocks, as far as known.
#[derive(Debug)]
pub(super) struct Map {
    /// Bytes of the first block before the requested range.
    head: u64,
    /// Blocks whose status is not known yet.
    left: Range<u64>,
    /// Extents, in order; adjacent ones differ.
    found: Vec<Found>,
    /// The maximum of extents.
    most: usize,
}

impl Map {
    pub(super) fn new(shape: &Shape, offset: u64, length: u64, one: bool) -> Map {
        let size = shape.block_bytes();
        let (first, end) = (offset / size, (offset + length).div_ceil(size));
        // A client sends another request for the rest.
        let left = first..end.min(first + STATUS_BLOCKS_MAX);
        Map { head: offset % size, left, found: Vec::new(), most: if one { 1 } else { EXTENTS_MAX } }
    }

    /// The blocks of the next query: the drive returns the status of the first, and how far it
    /// extends.
    pub(super) fn next(&self) -> Option<(Lba, Blocks)> {
        (!self.left.is_empty()).then(|| (Lba(self.left.start), Blocks(self.left.end - self.left.start)))
    }

    /// Adds the result of a query.
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

    /// Converts to extents of the protocol. Holes of a drive read as zeros.
    pub(super) fn into_extents(self, shape: &Shape) -> Vec<Extent> {
        let mut head = self.head;
        let extent = |found: Found| {
            let length = found.blocks.0 * shape.block_bytes() - std::mem::take(&mut head);
            Extent { length, is_hole: found.is_hole, is_zero: found.is_hole }
        };
        self.found.into_iter().map(extent).collect()
    }
}
