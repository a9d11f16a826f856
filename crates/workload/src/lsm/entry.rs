//! Keys, versions of entries, and their sizes in a real store.

use std::fmt;

/// A key, as its index in the order of all keys: the bytes of a real key do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key(pub(super) u64);

/// The write of an entry, and whether it put a value or a tombstone. A later write has a larger
/// stamp. Stamps of puts are unique, so a stamp represents the value, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(u64);

/// One version of one key: 16 bytes, whatever the size of a real entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) stamp: Stamp,
}

/// The number in a file's name, unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileNumber(pub(crate) u32);

/// The sizes of keys and values, which determine the size of an entry in each structure.
///
/// The overheads are those of RocksDB's formats (`log_format.h`, `block_builder.cc`,
/// `write_batch.cc`), without prefix compression of keys and without compression of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryFormat {
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
}

/// Sequence number and type behind each key in memory and in tables.
const INTERNAL_KEY_BYTES: u32 = 8;
/// Three varints before an entry of a data block: bytes shared, key bytes, value bytes.
const BLOCK_ENTRY_BYTES: u32 = 3;
/// Header of a log record (checksum, length, type) and of the batch in it (sequence number, count).
const LOG_RECORD_BYTES: u32 = 7 + 12;
/// Type of the entry and length of its key.
const LOG_ENTRY_BYTES: u32 = 2;
/// A node of the skip list with its links, and the length of the key.
const MEMORY_ENTRY_BYTES: u32 = 12;

impl Stamp {
    /// The stamp of the `sequence`-th write, a put.
    pub(super) fn put(sequence: u64) -> Stamp {
        Stamp(sequence << 1 | 1)
    }

    /// The stamp of the `sequence`-th write, a delete.
    pub(super) fn tombstone(sequence: u64) -> Stamp {
        Stamp(sequence << 1)
    }

    #[inline]
    pub(super) fn is_put(self) -> bool {
        self.0 & 1 == 1
    }
}

impl EntryFormat {
    /// Size in a data block of a table.
    #[inline]
    pub(super) fn table_bytes(&self, stamp: Stamp) -> u32 {
        self.key_bytes + INTERNAL_KEY_BYTES + BLOCK_ENTRY_BYTES + if stamp.is_put() { self.value_bytes } else { 0 }
    }

    /// Size in a write-ahead log, where each write is a record.
    #[inline]
    pub(super) fn log_bytes(&self, stamp: Stamp) -> u32 {
        let value = if stamp.is_put() { self.value_length_bytes() + self.value_bytes } else { 0 };
        LOG_RECORD_BYTES + LOG_ENTRY_BYTES + self.key_bytes + value
    }

    /// Size in a memtable.
    #[inline]
    pub(super) fn memory_bytes(&self, stamp: Stamp) -> u32 {
        let value = if stamp.is_put() { self.value_length_bytes() + self.value_bytes } else { 1 };
        MEMORY_ENTRY_BYTES + self.key_bytes + INTERNAL_KEY_BYTES + value
    }

    /// Size of the user's data: key and value, or the key of a delete.
    #[inline]
    pub(super) fn user_bytes(&self, stamp: Stamp) -> u32 {
        self.key_bytes + if stamp.is_put() { self.value_bytes } else { 0 }
    }

    /// A varint: seven bits a byte.
    fn value_length_bytes(&self) -> u32 {
        (u32::BITS - self.value_bytes.leading_zeros()).div_ceil(7).max(1)
    }
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

const _: () = assert!(size_of::<Entry>() <= 24, "millions of entries are in memory");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_write_of_any_kind_has_a_larger_stamp() {
        let stamps = [Stamp::put(1), Stamp::tombstone(2), Stamp::put(3), Stamp::put(4)];
        assert!(stamps.is_sorted() && stamps[0].is_put() && !stamps[1].is_put());
    }

    #[test]
    fn an_entry_of_512_bytes_takes_a_little_more_everywhere() {
        let format = EntryFormat { key_bytes: 16, value_bytes: 496 };
        let (put, tombstone) = (Stamp::put(1), Stamp::tombstone(1));
        assert_eq!((format.user_bytes(put), format.user_bytes(tombstone)), (512, 16));
        assert_eq!((format.table_bytes(put), format.table_bytes(tombstone)), (523, 27));
        assert_eq!((format.log_bytes(put), format.log_bytes(tombstone)), (535, 37));
        assert_eq!((format.memory_bytes(put), format.memory_bytes(tombstone)), (534, 37));
    }
}
