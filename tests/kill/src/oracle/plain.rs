//! Blocks that are overwritten in place.

use std::collections::{BTreeMap, BTreeSet};

use super::Mismatch;
use crate::stamp::Contents;

/// The commands to the blocks of a conventional namespace since they were last verified.
#[derive(Clone, Debug)]
pub struct PlainHistory {
    /// The last acknowledged contents, in the order of submission.
    kept: Vec<Contents>,
    /// Writes submitted after that, in order, with their numbers.
    in_flight: BTreeMap<u64, Vec<(u64, Contents)>>,
    /// Contents replaced by acknowledged writes, each with the number of that acknowledgement,
    /// until a flush covers it.
    unflushed: BTreeMap<u64, Vec<(u64, Contents)>>,
    /// Blocks whose last read failed, and to which no write has completed since.
    unreadable: BTreeSet<u64>,
    next: u64,
    acknowledgements: u64,
}

/// The writes that a drive must have kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// All acknowledged writes.
    Acknowledged,
    /// All writes covered by a flush.
    Flushed,
}

impl PlainHistory {
    /// A namespace of blocks that were never written.
    #[must_use]
    pub fn new(blocks: u64) -> PlainHistory {
        PlainHistory {
            kept: vec![Contents::Zeros; blocks as usize],
            in_flight: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            next: 0,
            acknowledgements: 0,
        }
    }

    /// The number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Records a write; returns its number, for its acknowledgement.
    pub fn write(&mut self, first: u64, blocks: u64, contents: Contents) -> u64 {
        self.next += 1;
        for block in first..first + blocks {
            self.in_flight.entry(block).or_default().push((self.next, contents));
        }
        self.next
    }

    /// Records the acknowledgement of a write: earlier ones are superseded.
    pub fn acknowledge(&mut self, write: u64, first: u64, blocks: u64) {
        self.acknowledgements += 1;
        for block in first..first + blocks {
            let Some(writes) = self.in_flight.get_mut(&block) else { continue };
            // Missing if a later one has been acknowledged already.
            let Some(place) = writes.iter().position(|&(number, _)| number == write) else { continue };
            let replaced = std::mem::replace(&mut self.kept[block as usize], writes[place].1);
            let replaced = std::iter::once(replaced).chain(writes[..place].iter().map(|&(_, contents)| contents));
            let number = self.acknowledgements;
            self.unflushed.entry(block).or_default().extend(replaced.map(|contents| (number, contents)));
            self.unreadable.remove(&block);
            writes.drain(..=place);
            if writes.is_empty() {
                self.in_flight.remove(&block);
            }
        }
    }

    /// Records a flush; returns the number that it covers, for its acknowledgement.
    #[must_use]
    pub fn flush(&self) -> u64 {
        self.acknowledgements
    }

    /// Records the acknowledgement of a flush: the writes it covers are durable.
    pub fn flushed(&mut self, covered: u64) {
        self.unflushed.retain(|_, replaced| {
            replaced.retain(|&(number, _)| number > covered);
            !replaced.is_empty()
        });
    }

    /// Records a failed read of a block. Its permitted contents do not change.
    pub fn mark_unreadable(&mut self, block: u64) {
        self.unreadable.insert(block);
    }

    /// Blocks whose read failed and that were not written since.
    #[must_use]
    pub fn unreadable(&self) -> &BTreeSet<u64> {
        &self.unreadable
    }

    /// The contents that a read submitted now must return.
    #[must_use]
    pub fn expected(&self, block: u64) -> Contents {
        let last = self.in_flight.get(&block).and_then(|writes| writes.last());
        last.map_or(self.kept[block as usize], |&(_, contents)| contents)
    }

    /// The permitted contents of a block if any of the unacknowledged writes may have failed.
    #[must_use]
    pub fn possible(&self, block: u64) -> Vec<Contents> {
        let in_flight = self.in_flight.get(&block).into_iter().flatten().map(|&(_, contents)| contents);
        std::iter::once(self.kept[block as usize]).chain(in_flight).collect()
    }

    /// Checks the contents of a block after a crash.
    ///
    /// # Errors
    /// The permitted contents.
    pub fn check(&self, block: u64, found: Contents) -> Result<(), Mismatch> {
        self.check_from(block, found, Floor::Acknowledged)
    }

    /// Checks the contents of a block after a crash of a drive that has kept at least `floor`.
    ///
    /// # Errors
    /// The permitted contents.
    pub fn check_from(&self, block: u64, found: Contents, floor: Floor) -> Result<(), Mismatch> {
        let kept = self.kept[block as usize];
        let in_flight = self.in_flight.get(&block).map_or(&[][..], |writes| &writes[..]);
        let unflushed = match floor {
            Floor::Acknowledged => &[][..],
            Floor::Flushed => self.unflushed.get(&block).map_or(&[][..], |replaced| &replaced[..]),
        };
        let others = || in_flight.iter().chain(unflushed);
        if found == kept || others().any(|&(_, contents)| contents == found) {
            return Ok(());
        }
        let mut expected = kept.to_string();
        for (_, contents) in others() {
            expected += &format!(", or {contents}");
        }
        Err(Mismatch::new(Some(block), expected, found))
    }

    /// Continues from the contents found, which must not change from now on.
    ///
    /// # Panics
    /// When the number of blocks differs.
    pub fn resume_from(&mut self, found: Vec<Contents>) {
        assert_eq!(found.len(), self.kept.len(), "every block was verified");
        self.kept = found;
        self.in_flight.clear();
        self.unflushed.clear();
    }

    /// Continues from the contents found in one block, which must not change from now on.
    pub fn resume_block_from(&mut self, block: u64, found: Contents) {
        self.kept[block as usize] = found;
        self.in_flight.remove(&block);
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
    fn an_acknowledged_block_has_the_written_contents() {
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
    fn after_a_write_that_may_have_failed_a_read_may_return_any_since_the_last_acknowledged_one() {
        let mut history = acknowledged();
        assert_eq!(history.possible(1), [OLD]);
        history.write(1, 1, NEW);
        let last = history.write(1, 1, NEWER);
        assert_eq!(history.possible(1), [OLD, NEW, NEWER]);
        history.acknowledge(last, 1, 1);
        assert_eq!(history.possible(1), [NEWER]);
    }

    #[test]
    fn an_out_of_order_acknowledgement_covers_earlier_writes() {
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
    fn contents_found_once_must_not_change() {
        let mut history = acknowledged();
        history.write(1, 1, NEW);
        history.resume_from(vec![Contents::Zeros, NEW, OLD, Contents::Zeros]);
        history.check(1, NEW).unwrap();
        history.check(1, OLD).unwrap_err();
    }

    #[test]
    fn without_a_flush_an_acknowledged_write_may_be_lost_with_the_cache() {
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
    fn an_unreadable_block_keeps_its_permitted_contents_until_it_is_written() {
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
