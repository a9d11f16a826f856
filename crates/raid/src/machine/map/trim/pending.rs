//! Pending ranges of trims, which do not overlap.

use std::collections::BTreeMap;

/// Blocks that are trimmed for hosts, and not processed yet.
#[derive(Debug, Default)]
pub(super) struct PendingTrims {
    /// Keyed by the first block of each.
    ranges: BTreeMap<u64, Tail>,
}

/// The remainder of a range.
#[derive(Clone, Copy, Debug)]
struct Tail {
    end: u64,
    trim: u64,
}

/// Consecutive blocks of one trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u64,
    /// The block behind the last.
    pub(super) end: u64,
    /// The number of the trim that named them first.
    pub(super) trim: u64,
}

impl Part {
    pub(super) fn blocks(&self) -> u64 {
        self.end - self.start
    }
}

impl PendingTrims {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of parts.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn contains(&self, block: u64) -> bool {
        self.part_of(block).is_some()
    }

    /// The part that contains a block.
    pub(super) fn part_of(&self, block: u64) -> Option<Part> {
        let (&start, tail) = self.ranges.range(..=block).next_back()?;
        (block < tail.end).then_some(Part { start, end: tail.end, trim: tail.trim })
    }

    /// The first part that begins at or behind `from`.
    pub(super) fn first_from(&self, from: u64) -> Option<Part> {
        self.ranges.range(from..).next().map(|(&start, tail)| Part { start, end: tail.end, trim: tail.trim })
    }

    /// Adds the blocks of a range that are in no part yet, for a trim. Returns their number.
    pub(super) fn insert(&mut self, start: u64, end: u64, trim: u64) -> u64 {
        let mut added = 0;
        let mut at = start;
        while at < end {
            if let Some(part) = self.part_of(at) {
                at = part.end;
                continue;
            }
            let gap_end = self.first_from(at).map_or(end, |part| part.start.min(end));
            self.ranges.insert(at, Tail { end: gap_end, trim });
            added += gap_end - at;
            at = gap_end;
        }
        added
    }

    /// Removes the blocks of a range, in ascending order.
    pub(super) fn cut(&mut self, start: u64, end: u64) -> Vec<Part> {
        let mut taken = Vec::new();
        let mut at = start;
        while at < end {
            let Some(part) = self.part_of(at).or_else(|| self.first_from(at)).filter(|part| part.start < end) else {
                break;
            };
            self.ranges.remove(&part.start);
            let (from, to) = (part.start.max(start), part.end.min(end));
            if part.start < from {
                self.ranges.insert(part.start, Tail { end: from, trim: part.trim });
            }
            if to < part.end {
                self.ranges.insert(to, Tail { end: part.end, trim: part.trim });
            }
            taken.push(Part { start: from, end: to, trim: part.trim });
            at = to;
        }
        taken
    }

    /// All parts, in ascending order.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        self.ranges.iter().map(|(&start, tail)| Part { start, end: tail.end, trim: tail.trim })
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::Prng;

    use super::*;

    #[test]
    fn ranges_are_as_an_array_of_owners_has_them() {
        const BLOCKS: u64 = 48;
        for seed in 0..300 {
            let mut prng = Prng::new(seed);
            let mut pending = PendingTrims::default();
            let mut owners: Vec<Option<u64>> = vec![None; BLOCKS as usize];
            for trim in 0..60 {
                let start = prng.below(BLOCKS);
                let end = start + 1 + prng.below(BLOCKS - start);
                if prng.chance(1, 2) {
                    let mut added = 0;
                    for owner in owners[start as usize..end as usize].iter_mut().filter(|owner| owner.is_none()) {
                        *owner = Some(trim);
                        added += 1;
                    }
                    assert_eq!(pending.insert(start, end, trim), added, "seed {seed}");
                } else {
                    let mut taken = Vec::new();
                    for part in pending.cut(start, end) {
                        taken.extend((part.start..part.end).map(|block| (block, part.trim)));
                    }
                    let expected: Vec<(u64, u64)> =
                        (start..end).filter_map(|block| Some((block, owners[block as usize].take()?))).collect();
                    assert_eq!(taken, expected, "seed {seed}");
                }
                for (block, owner) in (0..).zip(&owners) {
                    assert_eq!(pending.part_of(block).map(|part| part.trim), *owner, "seed {seed}");
                    assert_eq!(pending.contains(block), owner.is_some());
                    let next = pending.first_from(block).map(|part| part.start);
                    assert!(next.is_none_or(|next| next >= block && owners[next as usize].is_some()), "seed {seed}");
                }
                let blocks: u64 = pending.parts().map(|part| part.blocks()).sum();
                assert_eq!(blocks, owners.iter().flatten().count() as u64);
                assert!(pending.len() <= BLOCKS as usize && pending.is_empty() == (blocks == 0));
            }
        }
    }
}
