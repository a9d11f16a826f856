//! Everything that was ever in each block, for devices that are damaged afterwards: what it may be read as, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// By the block's address. Blocks may always be read as zeros: what was there can be lost, and may never have come there.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    written: BTreeMap<u64, BTreeSet<Bytes>>,
}

impl History {
    /// A write may put this there.
    pub(crate) fn note(&mut self, lba: u64, block: Bytes) {
        self.written.entry(lba).or_default().insert(block);
    }

    /// Blocks that were ever written.
    pub(crate) fn lbas(&self) -> impl Iterator<Item = u64> {
        self.written.keys().copied()
    }

    /// Panics when a block reads as what was never there.
    pub(crate) fn check(&self, lba: u64, found: &Bytes) {
        let was_there = self.written.get(&lba).is_some_and(|known| known.contains(found));
        assert!(was_there || found.iter().all(|&byte| byte == 0), "block {lba} reads as what was never there");
    }
}
