//! The newest writes, in the order of their keys, until they become a table of level 0.

use std::collections::{BTreeMap, btree_map};

use super::entry::{Entry, EntryFormat, FileNumber, Key, Stamp};

/// Writes in memory. An overwritten version is dropped immediately, but its bytes count until the
/// memtable is flushed, as in a store that keeps all versions.
#[derive(Debug)]
pub(super) struct Memtable {
    entries: BTreeMap<Key, Stamp>,
    pub(super) bytes: u64,
    /// The log of the same writes.
    pub(super) log: FileNumber,
}

impl Memtable {
    pub(super) fn new(log: FileNumber) -> Memtable {
        Memtable { entries: BTreeMap::new(), bytes: 0, log }
    }

    pub(super) fn insert(&mut self, entry: Entry, format: &EntryFormat) {
        self.bytes += u64::from(format.memory_bytes(entry.stamp));
        let before = self.entries.insert(entry.key, entry.stamp);
        assert!(before.is_none_or(|before| before < entry.stamp), "writes come in the order of their stamps");
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<Stamp> {
        self.entries.get(&key).copied()
    }

    /// The entries in order, for a flush.
    pub(super) fn sorted(&self) -> Vec<Entry> {
        self.entries.iter().map(|(&key, &stamp)| Entry { key, stamp }).collect()
    }

    /// The entries from a key on.
    pub(super) fn from(&self, key: Key) -> btree_map::Range<'_, Key, Stamp> {
        self.entries.range(key..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_of_a_key_is_found_and_all_writes_take_space() {
        let format = EntryFormat { key_bytes: 16, value_bytes: 496 };
        let mut memtable = Memtable::new(FileNumber(1));
        for (key, stamp) in [(7, Stamp::put(1)), (3, Stamp::put(2)), (7, Stamp::tombstone(3))] {
            memtable.insert(Entry { key: Key(key), stamp }, &format);
        }
        assert_eq!((memtable.get(Key(7)), memtable.get(Key(5))), (Some(Stamp::tombstone(3)), None));
        assert_eq!(memtable.bytes, 2 * 534 + 37);
        let sorted: Vec<(u64, Stamp)> = memtable.sorted().iter().map(|entry| (entry.key.0, entry.stamp)).collect();
        assert_eq!(sorted, [(3, Stamp::put(2)), (7, Stamp::tombstone(3))]);
    }
}
