//! Sets of block addresses, stored as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, stored as ranges that are not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// The end of each range by its start.
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The number of ranges in the set.
    pub(crate) fn ranges_count(&self) -> usize {
        self.ends.len()
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// Whether all of a range is in the set.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.ends.range(..=range.start).next_back().is_some_and(|(_, &end)| range.end <= end)
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() || self.covers(&range) {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back().filter(|(_, other)| **other >= start)
        {
            self.ends.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ends.range(..range.end).next_back().filter(|(_, end)| **end > range.start)
        {
            self.ends.remove(&start);
            if end > range.end {
                self.ends.insert(range.end, end);
            }
            if start < range.start {
                self.ends.insert(start, range.start);
            }
        }
    }

    pub(crate) fn union(&mut self, other: &RangeSet) {
        other.iter().for_each(|range| self.insert(range));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use zonda_zoned::Prng;

    fn numbers(set: &RangeSet) -> BTreeSet<u64> {
        set.iter().flatten().collect()
    }

    #[test]
    fn ranges_are_those_of_a_set_of_numbers() {
        let mut prng = Prng::new(3);
        for _ in 0..300 {
            let (mut set, mut slow) = (RangeSet::default(), BTreeSet::new());
            let (mut other, mut other_slow) = (RangeSet::default(), BTreeSet::new());
            for _ in 0..12 {
                let start = prng.below(40);
                let range = start..start + prng.below(9);
                if prng.chance(2, 3) {
                    set.insert(range.clone());
                    slow.extend(range.clone());
                } else {
                    set.remove(range.clone());
                    slow.retain(|number| !range.contains(number));
                }
                let start = prng.below(40);
                other.insert(start..start + 4);
                other_slow.extend(start..start + 4);
                assert_eq!(numbers(&set), slow);
                let gaps = slow.iter().filter(|&&number| !slow.contains(&(number + 1))).count();
                assert_eq!(set.ranges_count(), gaps, "adjacent ranges are merged: {set:?}");
                let mut both = set.clone();
                both.union(&other);
                assert_eq!(numbers(&both), slow.union(&other_slow).copied().collect());
                for number in 0..50 {
                    let covered = (number..number + 3).all(|number| slow.contains(&number));
                    assert_eq!(set.covers(&(number..number + 3)), covered);
                }
            }
            assert!(set.covers(&(55..55)));
        }
    }
}
