//! The tables on each level. A version never changes: a reader keeps its version, and its tables.

use std::ops::Range;
use std::sync::Arc;

use super::entry::{FileNumber, Key};
use super::table::Table;
use crate::limits::STORE_LEVELS;

/// All tables at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Version {
    /// Level 0 from new to old; the others by key, and disjoint.
    levels: [Vec<Arc<Table>>; STORE_LEVELS],
}

/// The difference between two versions.
#[derive(Clone, Debug, Default)]
pub(super) struct Edit {
    pub(super) removed: Vec<(usize, FileNumber)>,
    pub(super) added: Vec<(usize, Arc<Table>)>,
}

impl Version {
    #[inline]
    pub(super) fn level(&self, level: usize) -> &[Arc<Table>] {
        &self.levels[level]
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.levels.iter().flatten()
    }

    pub(super) fn bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().map(|table| table.file_bytes).sum()
    }

    /// The table of a level above 0 that may have the key.
    #[inline]
    pub(super) fn table_for(&self, level: usize, key: Key) -> Option<&Arc<Table>> {
        let tables = &self.levels[level];
        let candidate = tables.get(tables.partition_point(|table| table.largest() < key))?;
        (candidate.smallest() <= key).then_some(candidate)
    }

    /// The tables of a level above 0 that have keys in a range.
    pub(super) fn overlapping(&self, level: usize, smallest: Key, largest: Key) -> Range<usize> {
        assert!(level > 0, "tables of level 0 are in the order of their age");
        let tables = &self.levels[level];
        let start = tables.partition_point(|table| table.largest() < smallest);
        let end = tables.partition_point(|table| table.smallest() <= largest);
        start..end.max(start)
    }

    /// The version after an edit.
    ///
    /// # Panics
    /// If a table to remove does not exist, or tables of a level above 0 would overlap.
    pub(super) fn after(&self, edit: &Edit) -> Version {
        let mut next = self.clone();
        for &(level, file) in &edit.removed {
            let place = next.levels[level].iter().position(|table| table.file == file);
            next.levels[level].remove(place.expect("only tables of the version are removed"));
        }
        for (level, table) in &edit.added {
            let tables = &mut next.levels[*level];
            let place =
                if *level == 0 { 0 } else { tables.partition_point(|other| other.smallest() < table.smallest()) };
            tables.insert(place, Arc::clone(table));
        }
        next.check();
        next
    }

    fn check(&self) {
        for tables in &self.levels[1..] {
            let disjoint = tables.windows(2).all(|pair| pair[0].largest() < pair[1].smallest());
            assert!(disjoint, "tables of a level above 0 have no key in common");
        }
        let newest_first = self.levels[0].windows(2).all(|pair| pair[0].file > pair[1].file);
        assert!(newest_first, "level 0 goes from new to old");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lsm::entry::{Entry, EntryFormat, Stamp};
    use crate::lsm::table::{TableBuilder, TableFormat};

    /// Puts of these keys, each with a stamp of the file's number, in blocks of two.
    pub(in crate::lsm) fn table(file: u32, keys: impl IntoIterator<Item = u64>) -> Arc<Table> {
        let entry = EntryFormat { key_bytes: 16, value_bytes: 100 };
        let format = TableFormat { entry, block_bytes: 200, bloom_bits_per_key: 10 };
        let mut builder = TableBuilder::new(format);
        keys.into_iter().for_each(|key| builder.add(Entry { key: Key(key), stamp: Stamp::put(u64::from(file)) }));
        Arc::new(builder.finish(FileNumber(file)))
    }

    pub(in crate::lsm) fn version(tables: &[(usize, Arc<Table>)]) -> Version {
        Version::default().after(&Edit { removed: Vec::new(), added: tables.to_vec() })
    }

    #[test]
    fn a_key_belongs_to_one_table_of_a_level_at_most() {
        let version = version(&[(1, table(1, [10, 20])), (1, table(2, [30, 40]))]);
        let file = |key| version.table_for(1, Key(key)).map(|table| table.file.0);
        assert_eq!([5, 10, 15, 20, 25, 30, 41].map(file), [None, Some(1), Some(1), Some(1), None, Some(2), None]);
    }

    #[test]
    fn tables_overlap_a_range_that_touches_their_ends() {
        let version = version(&[(1, table(1, [10, 20])), (1, table(2, [30, 40])), (1, table(3, [50, 60]))]);
        let overlapping = |from, to| version.overlapping(1, Key(from), Key(to));
        assert_eq!(overlapping(0, 9), 0..0);
        assert_eq!(overlapping(20, 30), 0..2);
        assert_eq!(overlapping(21, 29), 1..1);
        assert_eq!(overlapping(0, 100), 0..3);
    }

    #[test]
    fn an_edit_removes_and_adds_tables_and_leaves_the_old_version_unchanged() {
        let before = version(&[(0, table(1, [1, 9])), (0, table(2, [2, 8])), (1, table(3, [5]))]);
        let edit = Edit {
            removed: vec![(0, FileNumber(1)), (1, FileNumber(3))],
            added: vec![(1, table(5, [7, 9])), (1, table(4, [1, 5]))],
        };
        let after = before.after(&edit);
        let files = |version: &Version, level: usize| -> Vec<u32> {
            version.level(level).iter().map(|table| table.file.0).collect()
        };
        assert_eq!((files(&before, 0), files(&before, 1)), (vec![2, 1], vec![3]));
        assert_eq!((files(&after, 0), files(&after, 1)), (vec![2], vec![4, 5]));
    }

    #[test]
    #[should_panic(expected = "have no key in common")]
    fn overlapping_tables_on_a_level_above_0_are_a_bug() {
        let _ = version(&[(1, table(1, [1, 5])), (1, table(2, [5, 9]))]);
    }
}
