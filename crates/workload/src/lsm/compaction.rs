//! Selects the next compaction.
//!
//! Each level has a score: its size divided by its target size; for level 0 also its tables divided
//! by their trigger. The level with the highest score is compacted first, if that is at least one:
//! all overlapping tables of level 0, or the next table of another level in the order of keys, with
//! the overlapping tables of the level below.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::entry::{FileNumber, Key};
use super::table::Table;
use super::version::{Edit, Version};
use crate::limits::STORE_LEVELS;

/// A score of one.
const SCORE_ONE: u64 = 1000;

/// The target sizes of levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelSizes {
    pub(super) level0_trigger: usize,
    pub(super) level1_bytes: u64,
    pub(super) multiplier: u64,
    /// Bytes of the level after the next that one output may overlap.
    pub(super) grandparent_bytes_max: u64,
}

/// A compaction: tables that are merged into the next level.
#[derive(Clone, Debug)]
pub(super) struct Compaction {
    /// The upper level.
    pub(super) level: usize,
    /// Tables of this level; on level 0 from new to old.
    pub(super) upper: Vec<Arc<Table>>,
    /// Tables of the next level, in the order of their keys.
    pub(super) lower: Vec<Arc<Table>>,
}

/// Selects compactions that can run concurrently.
#[derive(Debug)]
pub(super) struct Picker {
    sizes: LevelSizes,
    /// The largest key of the last table that was compacted from each level.
    cursors: [Option<Key>; STORE_LEVELS],
    /// Tables under compaction.
    busy: BTreeSet<FileNumber>,
}

impl LevelSizes {
    /// The target size in bytes of a level above 0.
    pub(super) fn level_bytes(&self, level: usize) -> u64 {
        let power = self.multiplier.saturating_pow(level as u32 - 1);
        self.level1_bytes.saturating_mul(power)
    }
}

impl Compaction {
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> + Clone {
        self.upper.iter().chain(&self.lower)
    }

    pub(super) fn output_level(&self) -> usize {
        self.level + 1
    }

    /// The smallest and the largest key of all inputs.
    pub(super) fn range(&self) -> (Key, Key) {
        hull(self.tables())
    }

    /// Whether the only table can be moved to the next level unchanged.
    pub(super) fn is_trivial_move(&self, version: &Version, sizes: &LevelSizes) -> bool {
        if self.upper.len() != 1 || !self.lower.is_empty() {
            return false;
        }
        let grandparents: u64 = self.grandparents(version).iter().map(|table| table.file_bytes).sum();
        grandparents <= sizes.grandparent_bytes_max
    }

    /// Tables of the level after the output's that have keys in the range.
    pub(super) fn grandparents<'a>(&self, version: &'a Version) -> &'a [Arc<Table>] {
        let level = self.output_level() + 1;
        if level >= STORE_LEVELS {
            return &[];
        }
        let (smallest, largest) = self.range();
        &version.level(level)[version.overlapping(level, smallest, largest)]
    }

    /// The edit that replaces the inputs by `outputs`.
    pub(super) fn edit(&self, outputs: Vec<Arc<Table>>) -> Edit {
        let upper = self.upper.iter().map(|table| (self.level, table.file));
        let lower = self.lower.iter().map(|table| (self.output_level(), table.file));
        let level = self.output_level();
        Edit { removed: upper.chain(lower).collect(), added: outputs.into_iter().map(|table| (level, table)).collect() }
    }
}

impl Picker {
    pub(super) fn new(sizes: LevelSizes) -> Picker {
        Picker { sizes, cursors: [None; STORE_LEVELS], busy: BTreeSet::new() }
    }

    /// The most urgent compaction that can run concurrently with the running ones. Its tables are
    /// busy until they are released.
    pub(super) fn pick(&mut self, version: &Version) -> Option<Compaction> {
        let mut scores: Vec<(u64, usize)> =
            (0..STORE_LEVELS - 1).map(|level| (self.score(version, level), level)).collect();
        scores.retain(|&(score, _)| score >= SCORE_ONE);
        scores.sort_unstable_by_key(|&(score, level)| (std::cmp::Reverse(score), level));
        let compaction = scores.into_iter().find_map(|(_, level)| match level {
            0 => self.pick_level0(version),
            level => self.pick_level(version, level),
        })?;
        self.busy.extend(compaction.tables().map(|table| table.file));
        if compaction.level > 0 {
            self.cursors[compaction.level] = Some(hull(compaction.upper.iter()).1);
        }
        Some(compaction)
    }

    /// Ends a compaction.
    pub(super) fn release(&mut self, compaction: &Compaction) {
        for table in compaction.tables() {
            assert!(self.busy.remove(&table.file), "a table under compaction is busy");
        }
    }

    /// The score in thousandths, without tables under compaction.
    fn score(&self, version: &Version, level: usize) -> u64 {
        let idle = || version.level(level).iter().filter(|table| !self.is_busy(table));
        let bytes: u64 = idle().map(|table| table.file_bytes).sum();
        if level == 0 {
            let by_count = idle().count() as u64 * SCORE_ONE / self.sizes.level0_trigger as u64;
            let by_bytes = bytes.saturating_mul(SCORE_ONE) / self.sizes.level1_bytes;
            return by_count.max(by_bytes);
        }
        bytes.saturating_mul(SCORE_ONE) / self.sizes.level_bytes(level)
    }

    /// The oldest table, and all that overlap it or one another: newer entries must not move below
    /// older ones.
    fn pick_level0(&self, version: &Version) -> Option<Compaction> {
        let tables = version.level(0);
        if tables.iter().any(|table| self.is_busy(table)) {
            return None;
        }
        let oldest = tables.last()?;
        let (mut smallest, mut largest) = (oldest.smallest(), oldest.largest());
        loop {
            let (low, high) = hull(tables.iter().filter(|table| table.overlaps(smallest, largest)));
            if (low, high) == (smallest, largest) {
                break;
            }
            (smallest, largest) = (low, high);
        }
        let upper = tables.iter().filter(|table| table.overlaps(smallest, largest)).cloned().collect();
        self.with_lower(version, 0, upper)
    }

    /// The next table in the order of keys whose tables below are idle.
    fn pick_level(&self, version: &Version, level: usize) -> Option<Compaction> {
        let tables = version.level(level);
        let first = match self.cursors[level] {
            Some(cursor) => tables.partition_point(|table| table.smallest() <= cursor),
            None => 0,
        };
        let round_robin = (first..tables.len()).chain(0..first);
        round_robin
            .map(|index| &tables[index])
            .filter(|table| !self.is_busy(table))
            .find_map(|table| self.with_lower(version, level, vec![Arc::clone(table)]))
    }

    /// With the tables of the next level; `None` if one of them is busy.
    fn with_lower(&self, version: &Version, level: usize, upper: Vec<Arc<Table>>) -> Option<Compaction> {
        let (smallest, largest) = hull(upper.iter());
        let lower = version.level(level + 1)[version.overlapping(level + 1, smallest, largest)].to_vec();
        let is_free = !lower.iter().any(|table| self.is_busy(table));
        is_free.then_some(Compaction { level, upper, lower })
    }

    fn is_busy(&self, table: &Table) -> bool {
        self.busy.contains(&table.file)
    }
}

/// The smallest and the largest key of tables.
fn hull<'a>(tables: impl Iterator<Item = &'a Arc<Table>> + Clone) -> (Key, Key) {
    let smallest = tables.clone().map(|table| table.smallest()).min();
    let largest = tables.map(|table| table.largest()).max();
    smallest.zip(largest).expect("a compaction has tables")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::version::tests::{table, version};

    fn sizes() -> LevelSizes {
        let bytes = table(0, 0..10).file_bytes;
        LevelSizes { level0_trigger: 2, level1_bytes: 2 * bytes, multiplier: 10, grandparent_bytes_max: 2 * bytes }
    }

    fn files(tables: &[Arc<Table>]) -> Vec<u32> {
        tables.iter().map(|table| table.file.0).collect()
    }

    #[test]
    fn a_small_tree_is_not_compacted() {
        let version = version(&[(0, table(1, 0..3)), (1, table(2, 0..10)), (1, table(3, 10..12))]);
        assert!(Picker::new(sizes()).pick(&version).is_none());
    }

    #[test]
    fn level_0_is_compacted_with_all_overlapping_tables_and_no_others() {
        let tables = [
            (0, table(1, [10, 20])),
            (0, table(2, [60, 70])),
            (0, table(3, [20, 30])),
            (0, table(4, [30, 40])),
            (1, table(5, [0, 9])),
            (1, table(6, [35, 50])),
        ];
        let compaction = Picker::new(sizes()).pick(&version(&tables)).expect("there are four tables");
        assert_eq!((files(&compaction.upper), files(&compaction.lower)), (vec![4, 3, 1], vec![6]));
        assert_eq!(compaction.range(), (Key(10), Key(50)));
    }

    #[test]
    fn a_level_is_compacted_round_robin_by_key() {
        let tables = (0..4u32).map(|index| (1, table(index + 1, u64::from(index) * 10..u64::from(index) * 10 + 10)));
        let version = version(&tables.collect::<Vec<_>>());
        let mut picker = Picker::new(sizes());
        let order: Vec<u32> = (0..6)
            .map(|_| {
                let compaction = picker.pick(&version).expect("the level has twice its size");
                picker.release(&compaction);
                compaction.upper[0].file.0
            })
            .collect();
        assert_eq!(order, [1, 2, 3, 4, 1, 2]);
    }

    #[test]
    fn concurrent_compactions_share_no_table() {
        let tables = [
            (1, table(1, 0..10)),
            (1, table(2, 10..20)),
            (1, table(3, 20..30)),
            (1, table(4, 30..50)),
            (2, table(5, [5, 15])),
        ];
        let version = version(&tables);
        let mut picker = Picker::new(sizes());
        let first = picker.pick(&version).expect("the level is too large");
        assert_eq!((files(&first.upper), files(&first.lower)), (vec![1], vec![5]));
        let second = picker.pick(&version).expect("it still is, without the first table");
        assert_eq!(files(&second.upper), [3], "table 2 would be merged into table 5 too");
        assert!(second.is_trivial_move(&version, &sizes()));
        picker.release(&first);
        picker.release(&second);
    }

    #[test]
    fn the_level_with_the_highest_score_comes_first() {
        let mut tables: Vec<_> = (0..3).map(|index| (0, table(100 + index, 0..2))).collect();
        tables.extend((0..4).map(|index| (1, table(index, u64::from(index) * 10..u64::from(index) * 10 + 10))));
        let at_level_1 = version(&tables);
        assert_eq!(Picker::new(sizes()).pick(&at_level_1).expect("both are due").level, 1, "2.0 is more than 1.5");
        tables.extend((0..3).map(|index| (0, table(200 + index, 0..2))));
        let at_level_0 = version(&tables);
        assert_eq!(Picker::new(sizes()).pick(&at_level_0).expect("both are due").level, 0, "3.0 is more than 2.0");
    }

    #[test]
    fn a_table_with_too_much_overlap_two_levels_below_is_not_moved_unchanged() {
        let version =
            version(&[(1, table(1, 0..40)), (3, table(2, 0..10)), (3, table(3, 10..20)), (3, table(4, 20..30))]);
        let compaction = Picker::new(sizes()).pick(&version).expect("level 1 is too large");
        assert!(compaction.lower.is_empty() && !compaction.is_trivial_move(&version, &sizes()));
        assert_eq!(files(compaction.grandparents(&version)), [2, 3, 4]);
    }
}
