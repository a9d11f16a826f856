//! The cache of data blocks: evicts the least recently used, bounded in bytes, every operation in
//! constant time.

use super::entry::FileNumber;

/// No slot.
const NONE: u32 = u32::MAX;
/// Maximum number of chains of the hash table.
const CHAINS_MAX: u64 = 1 << 22;

/// The set of cached blocks. Blocks of deleted files stay until they are the oldest, as in RocksDB.
#[derive(Debug)]
pub(super) struct BlockCache {
    capacity_bytes: u64,
    used_bytes: u64,
    /// First slot of each chain; a power of two.
    chains: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    block: BlockId,
    bytes: u32,
    newer: u32,
    older: u32,
    next_in_chain: u32,
}

/// A data block of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockId {
    pub(super) file: FileNumber,
    pub(super) index: u32,
}

impl BlockCache {
    /// A cache of `capacity_bytes`, for blocks of about `block_bytes`. Without capacity it caches
    /// nothing.
    pub(super) fn new(capacity_bytes: u64, block_bytes: u64) -> BlockCache {
        let chains = (capacity_bytes / block_bytes).clamp(1, CHAINS_MAX).next_power_of_two();
        BlockCache {
            capacity_bytes,
            used_bytes: 0,
            chains: vec![NONE; chains as usize],
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// Whether the block is cached; it is then the newest.
    pub(super) fn touch(&mut self, block: BlockId) -> bool {
        let mut slot = self.chains[self.chain(block)];
        while slot != NONE {
            if self.slots[slot as usize].block == block {
                self.unlink(slot);
                self.link_as_newest(slot);
                return true;
            }
            slot = self.slots[slot as usize].next_in_chain;
        }
        false
    }

    /// Inserts a block that is not cached, and evicts the oldest to free space.
    pub(super) fn insert(&mut self, block: BlockId, bytes: u32) {
        if u64::from(bytes) > self.capacity_bytes || self.touch(block) {
            return;
        }
        while self.used_bytes + u64::from(bytes) > self.capacity_bytes {
            self.evict_oldest();
        }
        let chain = self.chain(block);
        let slot = Slot { block, bytes, newer: NONE, older: NONE, next_in_chain: self.chains[chain] };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.chains[chain] = index;
        self.link_as_newest(index);
        self.used_bytes += u64::from(bytes);
    }

    fn evict_oldest(&mut self) {
        let victim = self.oldest;
        assert!(victim != NONE, "a cache in use has an oldest block");
        self.unlink(victim);
        let Slot { block, bytes, next_in_chain, .. } = self.slots[victim as usize];
        let chain = self.chain(block);
        if self.chains[chain] == victim {
            self.chains[chain] = next_in_chain;
        } else {
            let mut before = self.chains[chain];
            while self.slots[before as usize].next_in_chain != victim {
                before = self.slots[before as usize].next_in_chain;
            }
            self.slots[before as usize].next_in_chain = next_in_chain;
        }
        self.used_bytes -= u64::from(bytes);
        self.free.push(victim);
    }

    fn chain(&self, block: BlockId) -> usize {
        let joined = u64::from(block.file.0) << 32 | u64::from(block.index);
        let hash = joined.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> 32) as usize) & (self.chains.len() - 1)
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link_as_newest(&mut self, slot: u32) {
        let older = self.newest;
        self.slots[slot as usize].newer = NONE;
        self.slots[slot as usize].older = older;
        match older {
            NONE => self.oldest = slot,
            older => self.slots[older as usize].newer = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;

    fn block(file: u32, index: u32) -> BlockId {
        BlockId { file: FileNumber(file), index }
    }

    /// The same, slow and obvious: newest last.
    struct Oracle {
        capacity_bytes: u64,
        blocks: Vec<(BlockId, u32)>,
    }

    impl Oracle {
        fn touch(&mut self, block: BlockId) -> bool {
            let Some(place) = self.blocks.iter().position(|entry| entry.0 == block) else { return false };
            let entry = self.blocks.remove(place);
            self.blocks.push(entry);
            true
        }

        fn insert(&mut self, block: BlockId, bytes: u32) {
            if u64::from(bytes) <= self.capacity_bytes && !self.touch(block) {
                self.blocks.push((block, bytes));
                while self.used_bytes() > self.capacity_bytes {
                    self.blocks.remove(0);
                }
            }
        }

        fn used_bytes(&self) -> u64 {
            self.blocks.iter().map(|entry| u64::from(entry.1)).sum()
        }
    }

    #[test]
    fn the_cache_keeps_the_same_blocks_as_a_plain_list() {
        let mut prng = Prng::new(11);
        for capacity_bytes in [0, 10, 100, 1_000] {
            let mut cache = BlockCache::new(capacity_bytes, 20);
            let mut oracle = Oracle { capacity_bytes, blocks: Vec::new() };
            for _ in 0..20_000 {
                let which = block(prng.below(3) as u32, prng.below(30) as u32);
                if prng.chance(1, 2) {
                    assert_eq!(cache.touch(which), oracle.touch(which));
                } else {
                    let bytes = 1 + prng.below(40) as u32;
                    cache.insert(which, bytes);
                    oracle.insert(which, bytes);
                }
                assert_eq!(cache.used_bytes, oracle.used_bytes());
            }
        }
    }

    #[test]
    fn a_used_block_stays_longer_than_an_unused_one() {
        let mut cache = BlockCache::new(30, 10);
        (0..3).for_each(|index| cache.insert(block(1, index), 10));
        assert!(cache.touch(block(1, 0)));
        cache.insert(block(2, 0), 10);
        assert!(cache.touch(block(1, 0)) && !cache.touch(block(1, 1)) && cache.touch(block(1, 2)));
    }
}
