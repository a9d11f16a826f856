//! Merges sorted runs into one, as far as their bytes have been read.

use std::sync::Arc;

use super::entry::{Entry, FileNumber, Key};
use super::table::{Table, TableBuilder};

/// The head of an exhausted run: larger than every key.
const USED_UP: u64 = u64::MAX;

/// A merge of runs, from the newest to the oldest. The newest version of each key is kept.
#[derive(Debug)]
pub(super) struct Merge {
    runs: Vec<Run>,
    /// The next key of each run.
    heads: Vec<u64>,
    /// A run whose next entry has not been read.
    starved: Option<usize>,
    last_key: Option<Key>,
    tombstones: Tombstones,
    grandparents: Grandparents,
}

/// A run: consecutive tables, or entries in memory.
#[derive(Debug)]
pub(super) struct Run {
    source: Source,
    /// The next entry.
    entry: usize,
    /// Entries of the source that have been read.
    readable: usize,
}

#[derive(Debug)]
enum Source {
    Memory(Vec<Entry>),
    Tables { tables: Vec<Arc<Table>>, current: usize, read_bytes: u64 },
}

/// The treatment of tombstones.
#[derive(Debug)]
pub(super) enum Tombstones {
    /// They are kept.
    Keep,
    /// They are kept if a level below the output's may have the key: for each such level, its
    /// tables in the range, and how many are before the last key.
    DropAtBottom(Vec<(Vec<Arc<Table>>, usize)>),
}

/// Cuts an output before it overlaps too much of the level after its own.
#[derive(Debug)]
pub(super) struct Grandparents {
    tables: Vec<Arc<Table>>,
    bytes_max: u64,
    next: usize,
    overlapped_bytes: u64,
}

/// Why a merge has stopped for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// More of this run must be read.
    Starved(usize),
    /// The output has the requested number of bytes to write.
    Output,
    /// The output is complete: the next entry belongs to the next output.
    OutputFull,
    /// The merge is complete.
    End,
}

/// Part of a file that a merge must read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextRead {
    pub(super) file: FileNumber,
    pub(super) offset_bytes: u64,
    pub(super) bytes: u32,
}

impl Merge {
    /// A merge of `runs`, the newest first.
    pub(super) fn new(runs: Vec<Run>, tombstones: Tombstones, grandparents: Grandparents) -> Merge {
        let heads = vec![USED_UP; runs.len()];
        let mut merge = Merge { runs, heads, starved: None, last_key: None, tombstones, grandparents };
        (0..merge.runs.len()).for_each(|run| merge.look(run));
        merge
    }

    /// A merge of no runs.
    pub(super) fn of_nothing() -> Merge {
        Merge::new(Vec::new(), Tombstones::Keep, Grandparents::none())
    }

    /// Merges into `output` until it must stop, and returns the number of consumed entries, kept or
    /// not.
    ///
    /// It stops when `output` has closed blocks up to `closed_bytes`, or has `output_bytes_max`.
    pub(super) fn advance(
        &mut self,
        output: &mut TableBuilder,
        closed_bytes: u64,
        output_bytes_max: u64,
    ) -> (u64, Stop) {
        let mut taken = 0;
        loop {
            if let Some(run) = self.starved {
                return (taken, Stop::Starved(run));
            }
            let Some(run) = self.newest_of_smallest() else { return (taken, Stop::End) };
            let entry = self.runs[run].next();
            if self.is_wanted(entry) {
                if self.grandparents.must_cut_before(entry.key, output) || output.data_bytes() >= output_bytes_max {
                    self.grandparents.overlapped_bytes = 0;
                    return (taken, Stop::OutputFull);
                }
                output.add(entry);
            }
            self.last_key = Some(entry.key);
            taken += 1;
            self.runs[run].entry += 1;
            self.look(run);
            if output.closed_bytes() >= closed_bytes {
                return (taken, Stop::Output);
            }
        }
    }

    /// What a starved run needs next, in pieces of `bytes`.
    pub(super) fn next_read(&self, run: usize, bytes: u32) -> NextRead {
        let Source::Tables { tables, current, read_bytes } = &self.runs[run].source else {
            unreachable!("a run in memory is never starved")
        };
        let table = &tables[*current];
        let left = table.data_bytes - read_bytes;
        NextRead { file: table.file, offset_bytes: *read_bytes, bytes: left.min(u64::from(bytes)) as u32 }
    }

    /// Called when the part returned by [`next_read`](Merge::next_read) was read.
    pub(super) fn on_read(&mut self, run: usize, bytes: u32) {
        assert_eq!(self.starved, Some(run), "only a starved run reads");
        let Run { source: Source::Tables { tables, current, read_bytes }, readable, .. } = &mut self.runs[run] else {
            unreachable!("a run in memory is never read")
        };
        *read_bytes += u64::from(bytes);
        *readable = tables[*current].entries_within(*read_bytes);
        self.starved = None;
        self.look(run);
        // The next run that has not begun.
        if self.starved.is_none() {
            (0..self.runs.len()).for_each(|run| self.look(run));
        }
    }

    /// Notes the next key of a run, or that it must be read.
    #[inline]
    fn look(&mut self, run: usize) {
        let state = &mut self.runs[run];
        if state.entry < state.readable {
            self.heads[run] = state.next().key.0;
        } else if state.has_more() {
            self.starved = Some(self.starved.map_or(run, |other| other.min(run)));
        } else {
            self.heads[run] = USED_UP;
        }
    }

    /// The run with the smallest next key; of several, the newest.
    #[inline]
    fn newest_of_smallest(&self) -> Option<usize> {
        let (mut best, mut smallest) = (None, USED_UP);
        for (run, &head) in self.heads.iter().enumerate() {
            if head < smallest {
                (best, smallest) = (Some(run), head);
            }
        }
        best
    }

    /// Whether an entry must be kept: neither an older version nor a tombstone without a version
    /// below.
    #[inline]
    fn is_wanted(&mut self, entry: Entry) -> bool {
        if self.last_key == Some(entry.key) {
            return false;
        }
        entry.stamp.is_put() || self.tombstones.must_keep(entry.key)
    }
}

impl Tombstones {
    /// `levels` are the tables in the range on each level below the output's.
    pub(super) fn drop_at_bottom(levels: impl Iterator<Item = Vec<Arc<Table>>>) -> Tombstones {
        Tombstones::DropAtBottom(levels.filter(|tables| !tables.is_empty()).map(|tables| (tables, 0)).collect())
    }

    /// Whether a tombstone must be kept. Keys must increase from call to call.
    fn must_keep(&mut self, key: Key) -> bool {
        let Tombstones::DropAtBottom(levels) = self else { return true };
        levels.iter_mut().any(|(tables, next)| {
            while tables.get(*next).is_some_and(|table| table.largest() < key) {
                *next += 1;
            }
            tables.get(*next).is_some_and(|table| table.smallest() <= key)
        })
    }
}

impl Run {
    pub(super) fn of_memory(entries: Vec<Entry>) -> Run {
        Run { readable: entries.len(), source: Source::Memory(entries), entry: 0 }
    }

    /// Of tables in the order of their keys, none of which has been read.
    pub(super) fn of_tables(tables: Vec<Arc<Table>>) -> Run {
        Run { source: Source::Tables { tables, current: 0, read_bytes: 0 }, entry: 0, readable: 0 }
    }

    #[inline]
    fn next(&self) -> Entry {
        match &self.source {
            Source::Memory(entries) => entries[self.entry],
            Source::Tables { tables, current, .. } => tables[*current].entries[self.entry],
        }
    }

    /// Whether there is an entry that has not been read. Goes to the next table at the end of one.
    fn has_more(&mut self) -> bool {
        let Source::Tables { tables, current, read_bytes } = &mut self.source else { return false };
        if tables.get(*current).is_some_and(|table| self.entry == table.entries.len()) {
            *current += 1;
            *read_bytes = 0;
            (self.entry, self.readable) = (0, 0);
        }
        *current < tables.len()
    }
}

impl Grandparents {
    /// Without tables.
    pub(super) fn none() -> Grandparents {
        Grandparents::new(Vec::new(), u64::MAX)
    }

    pub(super) fn new(tables: Vec<Arc<Table>>, bytes_max: u64) -> Grandparents {
        Grandparents { tables, bytes_max, next: 0, overlapped_bytes: 0 }
    }

    /// Whether the output so far overlaps too much.
    #[inline]
    fn must_cut_before(&mut self, key: Key, output: &TableBuilder) -> bool {
        while self.tables.get(self.next).is_some_and(|table| table.largest() < key) {
            // Tables before the first key of an output are not in its range.
            if output.data_bytes() > 0 {
                self.overlapped_bytes += self.tables[self.next].file_bytes;
            }
            self.next += 1;
        }
        self.overlapped_bytes > self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::entry::{EntryFormat, Stamp};
    use crate::lsm::table::TableFormat;
    use crate::lsm::version::tests::table;
    use std::collections::BTreeMap;
    use zonda_zoned::Prng;

    fn builder() -> TableBuilder {
        let entry = EntryFormat { key_bytes: 16, value_bytes: 100 };
        let format = TableFormat { entry, block_bytes: 1000, bloom_bits_per_key: 0 };
        TableBuilder::new(format)
    }

    /// Merges to the end, and returns the outputs and the bytes that were read.
    fn all(mut merge: Merge, output_bytes_max: u64, read_bytes: u32) -> (Vec<Table>, u64) {
        let (mut outputs, mut output, mut read) = (Vec::new(), builder(), 0);
        loop {
            match merge.advance(&mut output, u64::MAX, output_bytes_max).1 {
                Stop::Starved(run) => {
                    let next = merge.next_read(run, read_bytes);
                    assert!(next.bytes > 0);
                    read += u64::from(next.bytes);
                    merge.on_read(run, next.bytes);
                }
                Stop::OutputFull => outputs.push(std::mem::replace(&mut output, builder()).finish(FileNumber(1000))),
                Stop::Output => unreachable!("no limit of closed bytes was given"),
                Stop::End if output.data_bytes() == 0 => return (outputs, read),
                Stop::End => {
                    outputs.push(output.finish(FileNumber(1000)));
                    return (outputs, read);
                }
            }
        }
    }

    #[test]
    fn the_newest_version_of_each_key_is_kept() {
        let mut prng = Prng::new(3);
        for _ in 0..50 {
            let mut expected = BTreeMap::new();
            let mut runs = Vec::new();
            let mut data_bytes = 0;
            for age in 0..1 + prng.below(6) {
                let mut keys: Vec<u64> = (0..1 + prng.below(200)).map(|_| prng.below(300)).collect();
                keys.sort_unstable();
                keys.dedup();
                // Stamps fall with age.
                let file = 100 - age as u32;
                keys.iter().for_each(|&key| _ = expected.entry(key).or_insert(Stamp::put(u64::from(file))));
                let half = keys.split_off(keys.len() / 2);
                let tables: Vec<_> = [keys, half].into_iter().filter(|keys| !keys.is_empty()).collect();
                let tables: Vec<_> = tables.into_iter().map(|keys| table(file, keys)).collect();
                data_bytes += tables.iter().map(|table| table.data_bytes).sum::<u64>();
                runs.push(Run::of_tables(tables));
            }
            let merge = Merge::new(runs, Tombstones::Keep, Grandparents::none());
            let (outputs, read) = all(merge, 3_000, 1 + prng.below(5_000) as u32);
            assert_eq!(read, data_bytes, "every block is read once");
            let merged: Vec<(u64, Stamp)> =
                outputs.iter().flat_map(|table| &table.entries).map(|entry| (entry.key.0, entry.stamp)).collect();
            assert_eq!(merged, expected.into_iter().collect::<Vec<_>>());
            assert!(outputs.iter().all(|table| table.data_bytes < 3_000 + 200));
        }
    }

    #[test]
    fn a_tombstone_is_kept_while_a_level_below_may_have_the_key() {
        let tombstones: Vec<Entry> =
            (0..40).map(|key| Entry { key: Key(key), stamp: Stamp::tombstone(100 + key) }).collect();
        let puts: Vec<Entry> = (0..40).map(|key| Entry { key: Key(key), stamp: Stamp::put(key) }).collect();
        let runs = || vec![Run::of_memory(tombstones.clone()), Run::of_memory(puts.clone())];
        let deeper = vec![vec![table(1, [5, 9])], vec![table(2, [20]), table(3, [30, 31])]];
        let tombstones = Tombstones::drop_at_bottom(deeper.into_iter());
        let (outputs, _) = all(Merge::new(runs(), tombstones, Grandparents::none()), u64::MAX, 1);
        let left: Vec<u64> = outputs[0].entries.iter().map(|entry| entry.key.0).collect();
        assert_eq!(left, [5, 6, 7, 8, 9, 20, 30, 31]);
        assert!(outputs[0].entries.iter().all(|entry| !entry.stamp.is_put()));
        let bottom = Tombstones::drop_at_bottom(std::iter::empty());
        let (outputs, _) = all(Merge::new(runs(), bottom, Grandparents::none()), u64::MAX, 1);
        assert!(outputs.is_empty(), "at the bottom level no tombstone is kept");
    }

    #[test]
    fn an_output_is_cut_before_it_overlaps_too_many_grandparents() {
        let entries: Vec<Entry> = (0..100).map(|key| Entry { key: Key(key), stamp: Stamp::put(key) }).collect();
        let below: Vec<_> =
            (0..10).map(|index| table(index, u64::from(index) * 10..u64::from(index) * 10 + 10)).collect();
        let bytes_max = 2 * below[0].file_bytes;
        let merge = Merge::new(vec![Run::of_memory(entries)], Tombstones::Keep, Grandparents::new(below, bytes_max));
        let (outputs, _) = all(merge, u64::MAX, 1);
        let starts: Vec<u64> = outputs.iter().map(|table| table.smallest().0).collect();
        assert_eq!(starts, [0, 30, 60, 90]);
    }

    #[test]
    fn the_merge_stops_when_the_output_has_enough_bytes() {
        let entries: Vec<Entry> = (0..100).map(|key| Entry { key: Key(key), stamp: Stamp::put(key) }).collect();
        let mut merge = Merge::new(vec![Run::of_memory(entries)], Tombstones::Keep, Grandparents::none());
        let mut output = builder();
        let (taken, stop) = merge.advance(&mut output, 1_000, u64::MAX);
        assert_eq!((taken, stop), (9, Stop::Output), "the ninth entry closes a block of eight");
        assert!((1_000..1_100).contains(&output.closed_bytes()));
    }
}
