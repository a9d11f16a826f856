//! Reads an unreadable slot block by block: the readable blocks are preserved.

use bytes::{Bytes, BytesMut};
use zonda_zoned::BlockBuffer;

/// Filler for an unreadable block: it is no valid metadata, no valid checksum and no blank block.
const UNREADABLE: u8 = 0xFF;

/// A partially read slot.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    data: BytesMut,
    metadata: BytesMut,
    blocks: u32,
}

impl Salvage {
    /// The next block to read, from the start of the slot.
    pub(super) fn next(&self) -> u32 {
        self.blocks
    }

    /// The read of the next block has ended.
    pub(super) fn add(&mut self, buffer: Option<BlockBuffer>, block_bytes: usize, metadata_bytes: usize) {
        self.blocks += 1;
        let is_complete = buffer.as_ref().is_some_and(|buffer| buffer.data.len() == block_bytes);
        if let Some(buffer) = buffer.filter(|_| is_complete) {
            self.data.extend_from_slice(&buffer.data);
            self.metadata.extend_from_slice(&buffer.metadata);
        }
        self.data.resize(self.blocks as usize * block_bytes, UNREADABLE);
        self.metadata.resize(self.blocks as usize * metadata_bytes, UNREADABLE);
    }

    /// The complete slot.
    pub(super) fn into_buffer(self) -> BlockBuffer {
        let [data, metadata]: [Bytes; 2] = [self.data.freeze(), self.metadata.freeze()];
        BlockBuffer { data, metadata }
    }
}
