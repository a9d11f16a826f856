//! Sorted tables: the entries of a file of the store in the order of their keys, and their
//! positions in the file.

use super::bloom::Bloom;
use super::entry::{Entry, EntryFormat, FileNumber, Key, Stamp};

/// Compression type and checksum behind each block.
const BLOCK_TRAILER_BYTES: u32 = 5;
/// Restart points of a data block and their number.
const BLOCK_FIXED_BYTES: u32 = 8;
/// An entry of the index without its key: three varints, and a handle of two.
const INDEX_ENTRY_BYTES: u32 = 8;
/// Properties, metaindex and footer.
const TABLE_FIXED_BYTES: u64 = 1024;
/// A block is closed before its size is reached if it is this full and the next entry would exceed
/// the size (RocksDB, `block_size_deviation`).
const BLOCK_FULL_PERCENT: u32 = 90;

/// A written table. Its file has data blocks, then filter, index and footer.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) file: FileNumber,
    smallest: Key,
    largest: Key,
    pub(super) entries: Vec<Entry>,
    /// Data blocks, in the order of the file.
    blocks: Vec<Block>,
    bloom: Option<Bloom>,
    pub(super) data_bytes: u64,
    pub(super) file_bytes: u64,
}

/// A data block: its start among the entries and in the file. Its first key is stored here too, so
/// that a search does not access the entries of other blocks.
#[derive(Clone, Copy, Debug)]
struct Block {
    first_key: Key,
    first_entry: u32,
    offset_bytes: u32,
}

/// The layout of tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableFormat {
    pub(super) entry: EntryFormat,
    pub(super) block_bytes: u32,
    pub(super) bloom_bits_per_key: u32,
}

/// A table under construction.
#[derive(Debug)]
pub(super) struct TableBuilder {
    format: TableFormat,
    entries: Vec<Entry>,
    blocks: Vec<Block>,
    /// Bytes of all blocks before the current one.
    closed_bytes: u32,
    /// Bytes of the current block; 0 without one.
    block_bytes: u32,
}

impl Table {
    #[inline]
    pub(super) fn smallest(&self) -> Key {
        self.smallest
    }

    #[inline]
    pub(super) fn largest(&self) -> Key {
        self.largest
    }

    pub(super) fn overlaps(&self, smallest: Key, largest: Key) -> bool {
        self.smallest() <= largest && smallest <= self.largest()
    }

    /// Whether the table may have the key, by its filter.
    #[inline]
    pub(super) fn may_contain(&self, key: Key) -> bool {
        self.bloom.as_ref().is_none_or(|bloom| bloom.may_contain(key))
    }

    pub(super) fn has_filter(&self) -> bool {
        self.bloom.is_some()
    }

    /// The block of the key, if the table has it.
    pub(super) fn block_of(&self, key: Key) -> u32 {
        let after = self.blocks.partition_point(|block| block.first_key <= key);
        after.saturating_sub(1) as u32
    }

    /// The block of an entry, and the entry behind that block.
    pub(super) fn block_of_entry(&self, entry: usize) -> (u32, usize) {
        let next = self.blocks.partition_point(|block| block.first_entry as usize <= entry);
        (next as u32 - 1, self.first_entry(next))
    }

    /// The offset and length of a block in the file.
    pub(super) fn block_extent(&self, block: u32) -> (u64, u32) {
        let start = u64::from(self.blocks[block as usize].offset_bytes);
        let end = self.blocks.get(block as usize + 1).map_or(self.data_bytes, |next| u64::from(next.offset_bytes));
        (start, (end - start) as u32)
    }

    /// The key in this block.
    pub(super) fn find(&self, block: u32, key: Key) -> Option<Stamp> {
        let from = self.first_entry(block as usize);
        let to = self.first_entry(block as usize + 1);
        let found = self.entries[from..to].iter().find(|entry| entry.key >= key)?;
        (found.key == key).then_some(found.stamp)
    }

    /// The first entry whose key is not below `key`.
    pub(super) fn lower_bound(&self, key: Key) -> usize {
        self.entries.partition_point(|entry| entry.key < key)
    }

    /// The number of entries completely in the first `bytes` of the file.
    pub(super) fn entries_within(&self, bytes: u64) -> usize {
        if bytes >= self.data_bytes {
            return self.entries.len();
        }
        // The block that begins at or after `bytes`, and the one before it, which may not end
        // before `bytes`.
        let next = self.blocks.partition_point(|block| u64::from(block.offset_bytes) <= bytes);
        self.first_entry(next.saturating_sub(1))
    }

    /// The first entry of a block, or the end of the last.
    fn first_entry(&self, block: usize) -> usize {
        self.blocks.get(block).map_or(self.entries.len(), |block| block.first_entry as usize)
    }
}

impl TableBuilder {
    /// An empty table.
    pub(super) fn new(format: TableFormat) -> TableBuilder {
        TableBuilder { format, entries: Vec::new(), blocks: Vec::new(), closed_bytes: 0, block_bytes: 0 }
    }

    /// Adds an entry; keys must increase.
    #[inline]
    pub(super) fn add(&mut self, entry: Entry) {
        assert!(self.entries.last().is_none_or(|last| last.key < entry.key), "keys of a table increase");
        let bytes = self.format.entry.table_bytes(entry.stamp);
        let size = self.format.block_bytes;
        let is_full = self.block_bytes >= size
            || (self.block_bytes + bytes > size && self.block_bytes * 100 > size * BLOCK_FULL_PERCENT);
        if self.block_bytes > 0 && is_full {
            self.close_block();
        }
        if self.block_bytes == 0 {
            let first_entry = self.entries.len() as u32;
            self.blocks.push(Block { first_key: entry.key, first_entry, offset_bytes: self.closed_bytes });
            self.block_bytes = BLOCK_FIXED_BYTES;
        }
        self.block_bytes += bytes;
        self.entries.push(entry);
    }

    /// Bytes of the completed blocks.
    #[inline]
    pub(super) fn closed_bytes(&self) -> u64 {
        u64::from(self.closed_bytes)
    }

    /// Bytes of all blocks so far.
    #[inline]
    pub(super) fn data_bytes(&self) -> u64 {
        u64::from(self.closed_bytes) + u64::from(self.block_bytes)
    }

    /// The finished table in this file, with filter, index and footer.
    ///
    /// # Panics
    /// Without an entry.
    pub(super) fn finish(mut self, file: FileNumber) -> Table {
        let ends = self.entries.first().zip(self.entries.last()).map(|(first, last)| (first.key, last.key));
        let (smallest, largest) = ends.expect("an empty table is not written");
        self.close_block();
        self.entries.shrink_to_fit();
        let format = self.format;
        let index_bytes = self.blocks.len() as u64 * u64::from(format.entry.key_bytes + INDEX_ENTRY_BYTES);
        let filter_bytes = Bloom::file_bytes(self.entries.len() as u64, format.bloom_bits_per_key);
        let data_bytes = u64::from(self.closed_bytes);
        Table {
            file,
            smallest,
            largest,
            bloom: Bloom::new(&self.entries, format.bloom_bits_per_key),
            entries: self.entries,
            blocks: self.blocks,
            data_bytes,
            file_bytes: data_bytes + index_bytes + filter_bytes + TABLE_FIXED_BYTES,
        }
    }

    fn close_block(&mut self) {
        let end = self.closed_bytes.checked_add(self.block_bytes + BLOCK_TRAILER_BYTES);
        self.closed_bytes = end.expect("the plan keeps tables below 4 GiB");
        self.block_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format() -> TableFormat {
        let entry = EntryFormat { key_bytes: 16, value_bytes: 496 };
        TableFormat { entry, block_bytes: 4096, bloom_bits_per_key: 10 }
    }

    fn table(entries: &[Entry]) -> Table {
        let mut builder = TableBuilder::new(format());
        entries.iter().for_each(|&entry| builder.add(entry));
        builder.finish(FileNumber(1))
    }

    /// Every third key, each seventh a tombstone.
    fn entries(count: u64) -> Vec<Entry> {
        let stamp = |index: u64| if index % 7 == 6 { Stamp::tombstone(index) } else { Stamp::put(index) };
        (0..count).map(|index| Entry { key: Key(index * 3 + 1), stamp: stamp(index) }).collect()
    }

    #[test]
    fn eight_entries_of_512_bytes_fill_a_block_of_4_kib() {
        let puts: Vec<Entry> = (0..80).map(|key| Entry { key: Key(key), stamp: Stamp::put(key) }).collect();
        let table = table(&puts);
        assert_eq!(table.blocks.len(), 10);
        assert_eq!(table.block_extent(3), (3 * 4197, 4197), "8 x 523, restart point, trailer");
        assert_eq!(table.data_bytes, 41_970);
        assert_eq!(table.file_bytes, 41_970 + 10 * 24 + 109 + 1024);
    }

    #[test]
    fn blocks_follow_each_other_and_none_is_far_from_its_size() {
        let table = table(&entries(5_000));
        let mut end = 0;
        for block in 0..table.blocks.len() as u32 {
            let (start, bytes) = table.block_extent(block);
            assert_eq!(start, end);
            assert!((3_600..4_700).contains(&bytes) || block as usize == table.blocks.len() - 1, "{bytes}");
            end = start + u64::from(bytes);
        }
        assert_eq!(end, table.data_bytes);
    }

    #[test]
    fn every_key_is_found_in_its_block_and_no_other_key_is() {
        let entries = entries(3_000);
        let table = table(&entries);
        for (index, entry) in entries.iter().enumerate() {
            let block = table.block_of(entry.key);
            let (same, end) = table.block_of_entry(index);
            assert!(same == block && index < end && end - index <= 60);
            assert_eq!(table.find(block, entry.key), Some(entry.stamp));
            let absent = Key(entry.key.0 + 1);
            assert_eq!(table.find(table.block_of(absent), absent), None);
        }
        assert_eq!(table.find(table.block_of(Key(0)), Key(0)), None, "below the first key");
    }

    #[test]
    fn an_entry_is_within_so_many_bytes_when_its_block_is() {
        let table = table(&entries(2_000));
        for bytes in (0..table.data_bytes + 2_000).step_by(777) {
            let whole = (0..table.blocks.len() as u32).filter(|&block| {
                let (start, length) = table.block_extent(block);
                start + u64::from(length) <= bytes
            });
            let expected = whole.max().map_or(0, |block| {
                table.blocks.get(block as usize + 1).map_or(table.entries.len(), |next| next.first_entry as usize)
            });
            assert_eq!(table.entries_within(bytes), expected, "{bytes}");
        }
    }
}
