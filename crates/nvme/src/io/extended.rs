//! Extended logical blocks: each block's metadata follows its data (NVM Command Set 1.0, section
//! 5.2.1.1). Over Fabrics Fabrics has no other transfer of metadata.

use bytes::{BufMut, Bytes, BytesMut};
use zonda_zoned::BlockBuffer;

use super::NamespaceFormat;

/// Data and metadata of consecutive blocks, interleaved; without metadata the data itself, not
/// copied.
///
/// # Panics
/// When data and metadata are not of the same number of blocks.
#[must_use]
pub fn interleave(buffer: &BlockBuffer, format: &NamespaceFormat) -> Bytes {
    if format.metadata_bytes == 0 {
        return buffer.data.clone();
    }
    let (block, metadata) = (format.block_size_bytes as usize, usize::from(format.metadata_bytes));
    assert!(
        buffer.data.len() / block == buffer.metadata.len() / metadata,
        "data and metadata must have the same number of blocks: {} and {} bytes",
        buffer.data.len(),
        buffer.metadata.len()
    );
    let mut bytes = BytesMut::with_capacity(buffer.data.len() + buffer.metadata.len());
    for (data, metadata) in buffer.data.chunks_exact(block).zip(buffer.metadata.chunks_exact(metadata)) {
        bytes.put_slice(data);
        bytes.put_slice(metadata);
    }
    bytes.freeze()
}

/// The reverse; without metadata the bytes themselves, not copied. A part of a block at the end is
/// dropped.
#[must_use]
pub fn split_interleaved(bytes: Bytes, format: &NamespaceFormat) -> BlockBuffer {
    if format.metadata_bytes == 0 {
        return BlockBuffer { data: bytes, metadata: Bytes::new() };
    }
    let (block, metadata_bytes) = (format.block_size_bytes as usize, usize::from(format.metadata_bytes));
    let blocks = bytes.len() / (block + metadata_bytes);
    let mut data = BytesMut::with_capacity(blocks * block);
    let mut metadata = BytesMut::with_capacity(blocks * metadata_bytes);
    for extended in bytes.chunks_exact(block + metadata_bytes) {
        data.put_slice(&extended[..block]);
        metadata.put_slice(&extended[block..]);
    }
    BlockBuffer { data: data.freeze(), metadata: metadata.freeze() }
}
