//! A slot that cannot be read at once is read block by block: one block that is lost does not take along what the others say.

use bytes::{Bytes, BytesMut};
use zonda_zoned::BlockBuffer;

/// What stands for a block that cannot be read: no metadata, no checksum and no blank block look like it.
const UNREADABLE: u8 = 0xFF;

/// A slot as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    data: BytesMut,
    metadata: BytesMut,
    blocks: u32,
}

impl Salvage {
    /// The next block to be read, from the start of the slot.
    pub(super) fn next(&self) -> u32 {
        self.blocks
    }

    /// The next block was read, or could not be.
    pub(super) fn add(&mut self, buffer: Option<BlockBuffer>, block_bytes: usize, metadata_bytes: usize) {
        self.blocks += 1;
        let is_there = buffer.as_ref().is_some_and(|buffer| buffer.data.len() == block_bytes);
        if let Some(buffer) = buffer.filter(|_| is_there) {
            self.data.extend_from_slice(&buffer.data);
            self.metadata.extend_from_slice(&buffer.metadata);
        }
        self.data.resize(self.blocks as usize * block_bytes, UNREADABLE);
        self.metadata.resize(self.blocks as usize * metadata_bytes, UNREADABLE);
    }

    /// The slot, all of it read.
    pub(super) fn into_buffer(self) -> BlockBuffer {
        let [data, metadata]: [Bytes; 2] = [self.data.freeze(), self.metadata.freeze()];
        BlockBuffer { data, metadata }
    }
}
