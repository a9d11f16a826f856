//! [`Sparse`]: sparse storage for the bytes of all zones.

use crate::limits::MEMORY_SPARE_BYTES_MAX;

/// Size of a chunk, the unit of allocation.
const CHUNK_BYTES: usize = 64 << 10;

/// A fixed number of bytes for each block of each zone; unwritten blocks are zeros. Memory is
/// allocated in chunks, and released when a chunk has only zeros.
#[derive(Debug)]
pub(crate) struct Sparse {
    block_bytes: usize,
    chunk_bytes: usize,
    /// The chunks of each zone, up to the last one written. A missing chunk has no capacity; bytes
    /// beyond the length of a chunk are zeros.
    zones: Vec<Vec<Vec<u8>>>,
    chunks: u64,
    /// Released chunks, kept because allocating fresh pages from the system takes longer than a
    /// write.
    spare: Vec<Vec<u8>>,
    spare_max: usize,
}

impl Sparse {
    /// All zeros. A chunk holds `chunk_blocks` whole blocks.
    pub(crate) fn new(zones: u32, block_bytes: usize, chunk_blocks: usize) -> Sparse {
        let zones = vec![Vec::new(); if block_bytes == 0 { 0 } else { zones as usize }];
        let chunk_bytes = block_bytes * chunk_blocks;
        let spare_max = MEMORY_SPARE_BYTES_MAX.checked_div(chunk_bytes).unwrap_or(0);
        Sparse { block_bytes, chunk_bytes, zones, chunks: 0, spare: Vec::new(), spare_max }
    }

    /// A suitable number of blocks for a chunk.
    pub(crate) fn chunk_blocks(block_bytes: usize, zone_blocks: u64) -> usize {
        (CHUNK_BYTES / block_bytes).clamp(1, usize::try_from(zone_blocks).unwrap_or(usize::MAX))
    }

    /// Bytes of all chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks * self.chunk_bytes as u64
    }

    /// Bytes of the chunks that a write would allocate.
    pub(crate) fn missing_bytes(&self, zone: usize, first: u64, blocks: u64) -> u64 {
        if self.block_bytes == 0 || blocks == 0 {
            return 0;
        }
        let chunk_of = |block: u64| block as usize * self.block_bytes / self.chunk_bytes;
        let zone = &self.zones[zone];
        let is_missing = |index: &usize| zone.get(*index).is_none_or(|chunk| chunk.capacity() == 0);
        let missing = (chunk_of(first)..=chunk_of(first + blocks - 1)).filter(is_missing).count();
        (missing * self.chunk_bytes) as u64
    }

    /// Writes whole blocks of a zone from the block `first`.
    #[inline]
    pub(crate) fn write(&mut self, zone: usize, first: u64, mut bytes: &[u8]) {
        let mut at = first as usize * self.block_bytes;
        while !bytes.is_empty() {
            let offset = at % self.chunk_bytes;
            let (now, later) = bytes.split_at(bytes.len().min(self.chunk_bytes - offset));
            let chunk = self.chunk_mut(zone, at / self.chunk_bytes);
            if chunk.len() < offset {
                chunk.resize(offset, 0);
            }
            // A chunk that is written sequentially is never filled with zeros before.
            let known = now.len().min(chunk.len() - offset);
            chunk[offset..offset + known].copy_from_slice(&now[..known]);
            chunk.extend_from_slice(&now[known..]);
            at += now.len();
            bytes = later;
        }
    }

    /// Appends blocks of a zone from the block `first` to `out`.
    #[inline]
    pub(crate) fn read(&self, zone: usize, first: u64, blocks: u64, out: &mut Vec<u8>) {
        let mut at = first as usize * self.block_bytes;
        let end = at + blocks as usize * self.block_bytes;
        while at < end {
            let offset = at % self.chunk_bytes;
            let length = (end - at).min(self.chunk_bytes - offset);
            let chunk = self.zones[zone].get(at / self.chunk_bytes).map_or(&[][..], Vec::as_slice);
            let known = chunk.get(offset..chunk.len().min(offset + length)).unwrap_or(&[]);
            out.extend_from_slice(known);
            out.resize(out.len() + length - known.len(), 0);
            at += length;
        }
    }

    /// Zeroes blocks of a zone. A chunk that has only zeros then is released.
    pub(crate) fn zero(&mut self, zone: usize, first: u64, blocks: u64) {
        let Some(zone) = self.zones.get_mut(zone) else { return };
        let start = first as usize * self.block_bytes;
        let end = start + blocks as usize * self.block_bytes;
        let chunks_end = zone.len().min(end.div_ceil(self.chunk_bytes));
        for (index, chunk) in zone.iter_mut().enumerate().take(chunks_end).skip(start / self.chunk_bytes) {
            let chunk_start = index * self.chunk_bytes;
            let from = start.saturating_sub(chunk_start);
            let to = end - chunk_start;
            if chunk.capacity() == 0 || from >= chunk.len() {
                continue;
            }
            if to < chunk.len() {
                chunk[from..to].fill(0);
            } else if from > 0 {
                chunk.truncate(from);
            } else {
                let chunk = std::mem::take(chunk);
                release(chunk, &mut self.spare, self.spare_max);
                self.chunks -= 1;
            }
        }
    }

    /// Releases all chunks of a zone.
    pub(crate) fn erase(&mut self, zone: usize) {
        if let Some(zone) = self.zones.get_mut(zone) {
            for chunk in std::mem::take(zone).into_iter().filter(|chunk| chunk.capacity() > 0) {
                self.chunks -= 1;
                release(chunk, &mut self.spare, self.spare_max);
            }
        }
    }

    fn chunk_mut(&mut self, zone: usize, index: usize) -> &mut Vec<u8> {
        let zone = &mut self.zones[zone];
        if zone.len() <= index {
            zone.resize_with(index + 1, Vec::new);
        }
        let chunk = &mut zone[index];
        if chunk.capacity() == 0 {
            *chunk = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(self.chunk_bytes));
            self.chunks += 1;
        }
        chunk
    }
}

/// Keeps a chunk for the next writes, or frees it if enough are kept.
fn release(mut chunk: Vec<u8>, spare: &mut Vec<Vec<u8>>, spare_max: usize) {
    if spare.len() < spare_max {
        chunk.clear();
        spare.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two zones of blocks of four bytes, two blocks to a chunk.
    fn sparse() -> Sparse {
        Sparse::new(2, 4, 2)
    }

    fn read(sparse: &Sparse, first: u64, blocks: u64) -> Vec<u8> {
        let mut out = Vec::new();
        sparse.read(1, first, blocks, &mut out);
        out
    }

    #[test]
    fn unwritten_blocks_are_zeros_and_take_no_memory() {
        let mut sparse = sparse();
        assert_eq!((read(&sparse, 0, 5), sparse.bytes()), (vec![0; 20], 0));
        sparse.write(1, 3, &[7; 8]);
        assert_eq!(read(&sparse, 2, 4), [[0; 4], [7; 4], [7; 4], [0; 4]].concat());
        assert_eq!(sparse.bytes(), 16, "two chunks of eight bytes");
        assert_eq!(sparse.missing_bytes(1, 0, 4), 8);
        assert_eq!(sparse.missing_bytes(1, 2, 3), 0);
    }

    #[test]
    fn a_chunk_of_zeros_is_released() {
        let mut sparse = sparse();
        sparse.write(1, 0, &[7; 16]);
        sparse.zero(1, 1, 2);
        assert_eq!(read(&sparse, 0, 4), [[7; 4], [0; 4], [0; 4], [7; 4]].concat());
        sparse.zero(1, 0, 2);
        assert_eq!((read(&sparse, 0, 4), sparse.bytes()), ([[0; 4], [0; 4], [0; 4], [7; 4]].concat(), 8));
        sparse.write(1, 1, &[3; 4]);
        assert_eq!(read(&sparse, 0, 2), [[0; 4], [3; 4]].concat(), "a released chunk is zeroed");
        sparse.erase(1);
        assert_eq!((read(&sparse, 0, 4), sparse.bytes()), (vec![0; 16], 0));
    }

    #[test]
    fn zeroing_unwritten_blocks_has_no_effect() {
        let mut sparse = sparse();
        sparse.write(1, 0, &[7; 4]);
        sparse.zero(1, 1, 100);
        assert_eq!(read(&sparse, 0, 2), [[7; 4], [0; 4]].concat());
        sparse.zero(0, 0, 1);
        assert_eq!(sparse.bytes(), 8);
    }
}
