//! Gets and scans, from the newest to the oldest.
//!
//! A read sees the store as it is when it begins: the memtables are searched immediately, and the
//! version is kept until all blocks are read.

use std::collections::btree_map;
use std::iter::Peekable;
use std::sync::Arc;

use super::{Answer, Store};
use crate::limits::STORE_LEVELS;
use crate::lsm::cache::BlockId;
use crate::lsm::effect::{Effect, Owner};
use crate::lsm::entry::{Entry, Key, Stamp};
use crate::lsm::table::Table;
use crate::lsm::version::Version;

/// A read that waits for a block.
#[derive(Debug)]
pub(super) enum Reading {
    Get {
        key: Key,
        version: Arc<Version>,
        /// Where the search continues.
        place: Place,
        /// The expected result, if reads are checked.
        expected: Option<Stamp>,
    },
    Scan {
        /// The blocks it needs, in the order in which iterators visit them, and their tables.
        blocks: Vec<(Arc<Table>, u32)>,
        /// The number of blocks read.
        done: usize,
        found: u32,
    },
}

/// The position of a search: a level, and on level 0 a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    level: usize,
    table: usize,
    /// The block that the search waits for.
    block: Option<u32>,
}

/// A source of a scan, at its next entry.
enum Cursor<'a> {
    Memory(Peekable<btree_map::Range<'a, Key, Stamp>>),
    Tables {
        tables: &'a [Arc<Table>],
        entry: usize,
        /// The entry behind the last visited block.
        block_end: usize,
    },
}

impl Store {
    /// Searches a key; `None` if the answer comes later.
    pub(in crate::lsm) fn get(&mut self, client: u32, key: Key) -> Option<Answer> {
        let expected = self.oracle.as_ref().and_then(|oracle| oracle.get(&key).copied());
        let in_memory =
            self.memtable.get(key).or_else(|| self.immutables.iter().rev().find_map(|memtable| memtable.get(key)));
        if let Some(stamp) = in_memory {
            return Some(self.answer(Some(stamp), expected));
        }
        let version = Arc::clone(&self.version);
        self.search(client, key, version, Place::default(), expected)
    }

    /// Collects keys from `start` on, as many as requested or exist; `None` if the answer comes
    /// later.
    pub(in crate::lsm) fn scan(&mut self, client: u32, start: Key, keys_max: u32) -> Option<Answer> {
        let mut blocks = Vec::new();
        let entries = self.collect(start, keys_max as usize, &mut blocks);
        if let Some(oracle) = &self.oracle {
            let expected = oracle.range(start..).take(keys_max as usize).map(|(&key, &stamp)| Entry { key, stamp });
            assert!(expected.eq(entries.iter().copied()), "a scan from {start:?} returns the existing keys");
        }
        let found = entries.len() as u32;
        self.read_blocks(client, blocks, 0, found)
    }

    /// Compares all keys with the plain map, if reads are checked.
    pub(in crate::lsm) fn check_all(&self) {
        if let Some(oracle) = &self.oracle {
            let entries = self.collect(Key(0), usize::MAX, &mut Vec::new());
            let expected = oracle.iter().map(|(&key, &stamp)| Entry { key, stamp });
            assert!(expected.eq(entries), "the tree contains exactly the keys put and not deleted");
        }
    }

    /// Called when the block that a client waits for was read.
    pub(super) fn on_block(&mut self, client: u32) {
        let answer = match self.readings[client as usize].take().expect("a client that waits for a block") {
            Reading::Get { key, version, place, expected } => self.search(client, key, version, place, expected),
            Reading::Scan { blocks, done, found } => {
                let (table, block) = &blocks[done];
                let bytes = table.block_extent(*block).1;
                self.cache.insert(BlockId { file: table.file, index: *block }, bytes);
                self.read_blocks(client, blocks, done + 1, found)
            }
        };
        if let Some(answer) = answer {
            self.answers.push_back((client, answer));
            self.collect_obsolete();
        }
    }

    /// Searches level by level until the key is found, or a block must be read.
    fn search(
        &mut self,
        client: u32,
        key: Key,
        version: Arc<Version>,
        mut place: Place,
        expected: Option<Stamp>,
    ) -> Option<Answer> {
        while let Some(table) = candidate(&version, key, &mut place) {
            let block = if let Some(block) = place.block.take() {
                self.cache.insert(BlockId { file: table.file, index: block }, table.block_extent(block).1);
                block
            } else {
                if !self.passes_filter(table, key) {
                    place.table += 1;
                    continue;
                }
                let block = table.block_of(key);
                if !self.cache.touch(BlockId { file: table.file, index: block }) {
                    self.read_block(client, table, block);
                    place.block = Some(block);
                    self.readings[client as usize] = Some(Reading::Get { key, version, place, expected });
                    return None;
                }
                self.out.counters.cache_hits += 1;
                block
            };
            place.table += 1;
            match table.find(block, key) {
                Some(stamp) => return Some(self.answer(Some(stamp), expected)),
                None => self.out.counters.bloom_false_positives += u64::from(table.has_filter()),
            }
        }
        Some(self.answer(None, expected))
    }

    fn passes_filter(&mut self, table: &Table, key: Key) -> bool {
        if !table.has_filter() {
            return true;
        }
        let passes = table.may_contain(key);
        self.out.counters.bloom_checks += 1;
        self.out.counters.bloom_useful += u64::from(!passes);
        passes
    }

    fn read_block(&mut self, client: u32, table: &Table, block: u32) {
        let (offset_bytes, bytes) = table.block_extent(block);
        self.out.counters.cache_misses += 1;
        self.out.counters.block_read_bytes += u64::from(bytes);
        self.out.push(Effect::Read { owner: Owner::Client(client), file: table.file, offset_bytes, bytes });
    }

    fn answer(&self, stamp: Option<Stamp>, expected: Option<Stamp>) -> Answer {
        let found = stamp.filter(|stamp| stamp.is_put());
        assert!(self.oracle.is_none() || found == expected, "a get finds {found:?}, expected {expected:?}");
        if found.is_some() { Answer::Found } else { Answer::NotFound }
    }

    /// Reads the blocks of a scan that are not in the cache, one after another.
    fn read_blocks(
        &mut self,
        client: u32,
        blocks: Vec<(Arc<Table>, u32)>,
        mut done: usize,
        found: u32,
    ) -> Option<Answer> {
        while let Some((table, block)) = blocks.get(done) {
            if !self.cache.touch(BlockId { file: table.file, index: *block }) {
                let (table, block) = (Arc::clone(table), *block);
                self.read_block(client, &table, block);
                self.readings[client as usize] = Some(Reading::Scan { blocks, done, found });
                return None;
            }
            self.out.counters.cache_hits += 1;
            done += 1;
        }
        Some(Answer::Scanned(found))
    }

    /// Merges memtables and tables from a key on, and notes every visited block.
    fn collect(&self, start: Key, keys_max: usize, blocks: &mut Vec<(Arc<Table>, u32)>) -> Vec<Entry> {
        let memtables = [&self.memtable].into_iter().chain(self.immutables.iter().rev().map(Arc::as_ref));
        let mut cursors: Vec<Cursor<'_>> =
            memtables.map(|memtable| Cursor::Memory(memtable.from(start).peekable())).collect();
        let level0 = self.version.level(0).iter().map(std::slice::from_ref);
        let levels = (1..STORE_LEVELS).map(|level| {
            let tables = self.version.level(level);
            &tables[tables.partition_point(|table| table.largest() < start)..]
        });
        cursors.extend(level0.chain(levels).map(|tables| Cursor::at(tables, start, blocks)));
        let (mut entries, mut last_key) = (Vec::new(), None);
        while entries.len() < keys_max {
            let heads = cursors.iter_mut().enumerate().filter_map(|(age, cursor)| Some((cursor.head()?.key, age)));
            let Some((_, newest)) = heads.min() else { break };
            let entry = cursors[newest].head().expect("it was the smallest");
            if last_key != Some(entry.key) && entry.stamp.is_put() {
                entries.push(entry);
            }
            last_key = Some(entry.key);
            cursors[newest].advance(blocks);
        }
        entries
    }
}

/// The next table that may have the key by its range.
fn candidate<'a>(version: &'a Version, key: Key, place: &mut Place) -> Option<&'a Arc<Table>> {
    while place.level < STORE_LEVELS {
        let level0 = version.level(0);
        if place.level == 0 {
            while let Some(table) = level0.get(place.table) {
                if table.overlaps(key, key) {
                    return Some(table);
                }
                place.table += 1;
            }
        } else if place.table == 0
            && let Some(table) = version.table_for(place.level, key)
        {
            return Some(table);
        }
        place.level += 1;
        place.table = 0;
    }
    None
}

impl<'a> Cursor<'a> {
    /// A cursor at the first entry whose key is not below `start`.
    fn at(tables: &'a [Arc<Table>], start: Key, blocks: &mut Vec<(Arc<Table>, u32)>) -> Cursor<'a> {
        let entry = tables.first().map_or(0, |table| table.lower_bound(start));
        let mut cursor = Cursor::Tables { tables, entry, block_end: 0 };
        cursor.visit(blocks);
        cursor
    }

    fn head(&mut self) -> Option<Entry> {
        match self {
            Cursor::Memory(range) => range.peek().map(|&(&key, &stamp)| Entry { key, stamp }),
            Cursor::Tables { tables, entry, .. } => tables.first()?.entries.get(*entry).copied(),
        }
    }

    fn advance(&mut self, blocks: &mut Vec<(Arc<Table>, u32)>) {
        match self {
            Cursor::Memory(range) => _ = range.next(),
            Cursor::Tables { entry, .. } => *entry += 1,
        }
        self.visit(blocks);
    }

    /// Moves to the next table behind the last entry of one, and notes the block of the entry if it
    /// is a new one.
    fn visit(&mut self, blocks: &mut Vec<(Arc<Table>, u32)>) {
        let Cursor::Tables { tables, entry, block_end } = self else { return };
        if tables.first().is_some_and(|table| *entry == table.entries.len()) {
            *tables = &tables[1..];
            (*entry, *block_end) = (0, 0);
        }
        if let Some(table) = tables.first()
            && *entry >= *block_end
        {
            let (block, end) = table.block_of_entry(*entry);
            *block_end = end;
            blocks.push((Arc::clone(table), block));
        }
    }
}
