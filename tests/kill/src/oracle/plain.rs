//! Blocks that are overwritten in place.

use std::collections::{BTreeMap, BTreeSet};

use super::Mismatch;
use crate::stamp::Contents;

/// Everything that was asked of the blocks of a conventional namespace since they were last looked at.
#[derive(Clone, Debug)]
pub struct PlainHistory {
    /// The last acknowledged contents, in the order of submission.
    kept: Vec<Contents>,
    /// What was submitted after that, in its order: each write with its number.
    under_way: BTreeMap<u64, Vec<(u64, Contents)>>,
    /// What acknowledged writes have replaced, each with the number of that acknowledgement, until a flush covers it.
    unflushed: BTreeMap<u64, Vec<(u64, Contents)>>,
    /// Blocks whose last read ended with an error, and which no write has ended for since.
    unreadable: BTreeSet<u64>,
    next: u64,
    acknowledgements: u64,
}

/// What a drive must have kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Everything acknowledged.
    Acknowledged,
    /// Everything that a flush has covered.
    Flushed,
}

impl PlainHistory {
    /// So many blocks, none of them ever written.
    #[must_use]
    pub fn new(blocks: u64) -> PlainHistory {
        PlainHistory {
            kept: vec![Contents::Zeros; blocks as usize],
            under_way: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            next: 0,
            acknowledgements: 0,
        }
    }

    /// How many blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Blocks are overwritten; returns the write's number, for its acknowledgement.
    pub fn write(&mut self, first: u64, blocks: u64, contents: Contents) -> u64 {
        self.next += 1;
        for block in first..first + blocks {
            self.under_way.entry(block).or_default().push((self.next, contents));
        }
        self.next
    }

    /// A write was acknowledged: what was submitted before it is gone.
    pub fn acknowledge(&mut self, write: u64, first: u64, blocks: u64) {
        self.acknowledgements += 1;
        for block in first..first + blocks {
            let Some(writes) = self.under_way.get_mut(&block) else { continue };
            // Absent when a later one has been acknowledged already.
            let Some(place) = writes.iter().position(|&(number, _)| number == write) else { continue };
            let replaced = std::mem::replace(&mut self.kept[block as usize], writes[place].1);
            let replaced = std::iter::once(replaced).chain(writes[..place].iter().map(|&(_, contents)| contents));
            let number = self.acknowledgements;
            self.unflushed.entry(block).or_default().extend(replaced.map(|contents| (number, contents)));
            self.unreadable.remove(&block);
            writes.drain(..=place);
            if writes.is_empty() {
                self.under_way.remove(&block);
            }
        }
    }

    /// A flush is submitted now; returns what it covers, for its acknowledgement.
    #[must_use]
    pub fn flush(&self) -> u64 {
        self.acknowledgements
    }

    /// A flush was acknowledged: what it covers stays, whatever caches lose.
    pub fn flushed(&mut self, covered: u64) {
        self.unflushed.retain(|_, replaced| {
            replaced.retain(|&(number, _)| number > covered);
            !replaced.is_empty()
        });
    }

    /// A read of a block ended with an error. What it may hold stays as it is.
    pub fn mark_unreadable(&mut self, block: u64) {
        self.unreadable.insert(block);
    }

    /// Blocks that could not be read and were not written since.
    #[must_use]
    pub fn unreadable(&self) -> &BTreeSet<u64> {
        &self.unreadable
    }

    /// What a read that is submitted now must return.
    #[must_use]
    pub fn expected(&self, block: u64) -> Contents {
        let last = self.under_way.get(&block).and_then(|writes| writes.last());
        last.map_or(self.kept[block as usize], |&(_, contents)| contents)
    }

    /// What a block may hold if any of the writes that were submitted and have not been acknowledged has failed.
    #[must_use]
    pub fn possible(&self, block: u64) -> Vec<Contents> {
        let under_way = self.under_way.get(&block).into_iter().flatten().map(|&(_, contents)| contents);
        std::iter::once(self.kept[block as usize]).chain(under_way).collect()
    }

    /// Whether a block may hold this after a crash.
    ///
    /// # Errors
    /// What it may hold.
    pub fn check(&self, block: u64, found: Contents) -> Result<(), Mismatch> {
        self.check_from(block, found, Floor::Acknowledged)
    }

    /// Whether a block may hold this after a crash of a drive that has kept so much.
    ///
    /// # Errors
    /// What it may hold.
    pub fn check_from(&self, block: u64, found: Contents, floor: Floor) -> Result<(), Mismatch> {
        let kept = self.kept[block as usize];
        let under_way = self.under_way.get(&block).map_or(&[][..], |writes| &writes[..]);
        let unflushed = match floor {
            Floor::Acknowledged => &[][..],
            Floor::Flushed => self.unflushed.get(&block).map_or(&[][..], |replaced| &replaced[..]),
        };
        let others = || under_way.iter().chain(unflushed);
        if found == kept || others().any(|&(_, contents)| contents == found) {
            return Ok(());
        }
        let mut expected = kept.to_string();
        for (_, contents) in others() {
            expected += &format!(", or {contents}");
        }
        Err(Mismatch::new(Some(block), expected, found))
    }

    /// Goes on from what was found, which from now on must stay.
    ///
    /// # Panics
    /// When that is not as many blocks as there are.
    pub fn settle(&mut self, found: Vec<Contents>) {
        assert_eq!(found.len(), self.kept.len(), "every block was looked at");
        self.kept = found;
        self.under_way.clear();
        self.unflushed.clear();
    }

    /// Goes on from what was found in one block, which from now on must stay.
    pub fn settle_block(&mut self, block: u64, found: Contents) {
        self.kept[block as usize] = found;
        self.under_way.remove(&block);
        self.unflushed.remove(&block);
        self.unreadable.remove(&block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Sequence;

    const OLD: Contents = Contents::Write(Sequence(1));
    const NEW: Contents = Contents::Write(Sequence(2));
    const NEWER: Contents = Contents::Write(Sequence(3));

    fn acknowledged() -> PlainHistory {
        let mut history = PlainHistory::new(4);
        let write = history.write(1, 2, OLD);
        history.acknowledge(write, 1, 2);
        history
    }

    #[test]
    fn an_acknowledged_block_holds_what_was_written() {
        let history = acknowledged();
        history.check(1, OLD).unwrap();
        let lost = history.check(1, Contents::Zeros).unwrap_err();
        assert_eq!((lost.block, lost.found.as_str()), (Some(1), "zeros"));
        history.check(0, Contents::Zeros).unwrap();
        history.check(0, OLD).unwrap_err();
    }

    #[test]
    fn a_block_that_was_being_overwritten_is_old_or_new_and_nothing_else() {
        let mut history = acknowledged();
        history.write(2, 1, NEW);
        history.check(2, OLD).unwrap();
        history.check(2, NEW).unwrap();
        history.check(1, NEW).unwrap_err();
        for found in [Contents::Zeros, Contents::Torn(Sequence(2)), Contents::Foreign] {
            history.check(2, found).unwrap_err();
        }
    }

    #[test]
    fn after_a_write_that_may_have_failed_a_read_may_return_any_of_those_since_the_last_acknowledged_one() {
        let mut history = acknowledged();
        assert_eq!(history.possible(1), [OLD]);
        history.write(1, 1, NEW);
        let last = history.write(1, 1, NEWER);
        assert_eq!(history.possible(1), [OLD, NEW, NEWER]);
        history.acknowledge(last, 1, 1);
        assert_eq!(history.possible(1), [NEWER]);
    }

    #[test]
    fn an_acknowledgement_out_of_turn_covers_what_was_submitted_before_it() {
        let mut history = acknowledged();
        let first = history.write(1, 1, NEW);
        let second = history.write(1, 1, NEWER);
        assert_eq!(history.expected(1), NEWER);
        history.acknowledge(second, 1, 1);
        history.acknowledge(first, 1, 1);
        history.check(1, NEWER).unwrap();
        history.check(1, NEW).unwrap_err();
        history.check(1, OLD).unwrap_err();
    }

    #[test]
    fn what_was_found_once_must_stay() {
        let mut history = acknowledged();
        history.write(1, 1, NEW);
        history.settle(vec![Contents::Zeros, NEW, OLD, Contents::Zeros]);
        history.check(1, NEW).unwrap();
        history.check(1, OLD).unwrap_err();
    }

    #[test]
    fn without_a_flush_what_an_acknowledged_write_replaced_may_be_found_if_caches_are_lost() {
        let mut history = acknowledged();
        history.flushed(history.flush());
        let write = history.write(1, 1, NEW);
        let before = history.flush();
        history.acknowledge(write, 1, 1);
        for floor in [Floor::Acknowledged, Floor::Flushed] {
            history.check_from(1, NEW, floor).unwrap();
            history.check_from(1, Contents::Zeros, floor).unwrap_err();
        }
        history.check_from(1, OLD, Floor::Acknowledged).unwrap_err();
        // A flush that was submitted before the acknowledgement does not cover it.
        history.flushed(before);
        history.check_from(1, OLD, Floor::Flushed).unwrap();
        history.flushed(history.flush());
        history.check_from(1, OLD, Floor::Flushed).unwrap_err();
    }

    #[test]
    fn an_unreadable_block_keeps_what_it_may_hold_until_it_is_written() {
        let mut history = acknowledged();
        history.mark_unreadable(1);
        history.check(1, OLD).unwrap();
        history.check(1, Contents::Zeros).unwrap_err();
        assert!(history.unreadable().contains(&1));
        let write = history.write(1, 1, NEW);
        assert!(history.unreadable().contains(&1));
        history.acknowledge(write, 1, 1);
        assert!(history.unreadable().is_empty());
    }
}
