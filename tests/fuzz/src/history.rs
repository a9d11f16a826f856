//! All contents that each block ever had, for devices that are damaged afterwards: a read may
//! return only these.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// By block address. Any block may read as zeros: its contents can be lost, and may never have been
/// written.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    written: BTreeMap<u64, BTreeSet<Bytes>>,
}

impl History {
    /// Records contents that a write may have stored.
    pub(crate) fn note(&mut self, lba: u64, block: Bytes) {
        self.written.entry(lba).or_default().insert(block);
    }

    /// Blocks that were ever written.
    pub(crate) fn lbas(&self) -> impl Iterator<Item = u64> {
        self.written.keys().copied()
    }

    /// Panics if a block has contents that were never written to it.
    pub(crate) fn check(&self, lba: u64, found: &Bytes) {
        let was_there = self.written.get(&lba).is_some_and(|known| known.contains(found));
        assert!(
            was_there || found.iter().all(|&byte| byte == 0),
            "block {lba} has contents that were never written to it"
        );
    }
}
