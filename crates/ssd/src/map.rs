//! A map from block addresses to 32-bit places, with memory only for entries in use.

/// Entries in one chunk.
const CHUNK: u64 = 4096;

/// Block addresses to places; absent ones read as the default.
#[derive(Debug)]
pub(crate) struct BlockMap {
    default: u32,
    chunks: Vec<Option<Box<[u32]>>>,
}

impl BlockMap {
    pub(crate) fn new(default: u32) -> BlockMap {
        BlockMap { default, chunks: Vec::new() }
    }

    #[inline]
    pub(crate) fn get(&self, lba: u64) -> u32 {
        match self.chunks.get((lba / CHUNK) as usize) {
            Some(Some(chunk)) => chunk[(lba % CHUNK) as usize],
            _ => self.default,
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, lba: u64, place: u32) {
        let index = (lba / CHUNK) as usize;
        if self.chunks.len() <= index {
            self.chunks.resize_with(index + 1, || None);
        }
        let default = self.default;
        let chunk = self.chunks[index].get_or_insert_with(|| vec![default; CHUNK as usize].into());
        chunk[(lba % CHUNK) as usize] = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_as_it_was_set_and_its_neighbours_as_the_default() {
        let mut map = BlockMap::new(9);
        map.set(5_000, 1);
        assert_eq!([4_999, 5_000, 5_001, 1 << 40].map(|lba| map.get(lba)), [9, 1, 9, 9]);
    }
}
