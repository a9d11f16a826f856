//! Serializes writes of partial blocks.
//!
//! Such a request is a read-modify-write of the block. A write of the same block in between would
//! be undone, so overlapping requests wait. Requests of whole blocks never wait for one another:
//! concurrent writes to one block are the clients' responsibility, as with a disk.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The blocks that a request writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Blocks, including partial ones.
    pub(super) blocks: Range<u64>,
    /// Whether it writes a partial block.
    pub(super) partial: bool,
}

/// The requests that write to one drive.
#[derive(Debug, Default)]
pub(super) struct RangeLock {
    inside: BTreeMap<u32, Claim>,
    /// In order of arrival.
    waiting: VecDeque<(u32, Claim)>,
    /// How many of those inside write a partial block.
    partial_inside: usize,
}

impl Claim {
    fn conflicts_with(&self, other: &Claim) -> bool {
        (self.partial || other.partial) && self.blocks.start < other.blocks.end && other.blocks.start < self.blocks.end
    }
}

impl RangeLock {
    /// Locks the blocks of a request. Returns whether it succeeded; otherwise a later `release`
    /// returns the request.
    pub(super) fn acquire(&mut self, job: u32, claim: Claim) -> bool {
        let is_free = self.waiting.is_empty() && self.partial_inside == 0 && !claim.partial;
        if is_free || !self.has_to_wait(&claim, self.waiting.len()) {
            self.admit(job, claim);
            return true;
        }
        self.waiting.push_back((job, claim));
        false
    }

    /// Unlocks the blocks of a request. Returns the requests that have got their locks now.
    pub(super) fn release(&mut self, job: u32) -> Vec<u32> {
        let claim = self.inside.remove(&job).expect("the request holds its lock");
        self.partial_inside -= usize::from(claim.partial);
        let mut admitted = Vec::new();
        let mut place = 0;
        while let Some((_, claim)) = self.waiting.get(place) {
            if self.has_to_wait(claim, place) {
                place += 1;
                continue;
            }
            let (job, claim) = self.waiting.remove(place).expect("the index was just found");
            self.admit(job, claim);
            admitted.push(job);
        }
        admitted
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.waiting.is_empty()
    }

    /// Whether a locked claim, or one of the first `before` waiting ones, conflicts with it.
    fn has_to_wait(&self, claim: &Claim, before: usize) -> bool {
        let waiting = self.waiting.iter().take(before).map(|(_, earlier)| earlier);
        self.inside.values().chain(waiting).any(|earlier| earlier.conflicts_with(claim))
    }

    fn admit(&mut self, job: u32, claim: Claim) {
        self.partial_inside += usize::from(claim.partial);
        let earlier = self.inside.insert(job, claim);
        assert!(earlier.is_none(), "a request locks once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(blocks: Range<u64>) -> Claim {
        Claim { blocks, partial: false }
    }

    fn part(block: u64) -> Claim {
        Claim { blocks: block..block + 1, partial: true }
    }

    #[test]
    fn requests_of_whole_blocks_never_wait_for_one_another() {
        let mut range_lock = RangeLock::default();
        assert!(
            range_lock.acquire(1, whole(0..8))
                && range_lock.acquire(2, whole(4..5))
                && range_lock.acquire(3, whole(0..8))
        );
        assert!(
            range_lock.release(1).is_empty()
                && range_lock.release(3).is_empty()
                && range_lock.release(2).is_empty()
                && range_lock.is_empty()
        );
    }

    #[test]
    fn a_partial_write_and_overlapping_requests_are_serialized() {
        let mut range_lock = RangeLock::default();
        assert!(range_lock.acquire(1, whole(0..8)));
        assert!(!range_lock.acquire(2, part(3)), "the write of the whole block is in flight");
        assert!(range_lock.acquire(3, part(9)), "other blocks are free");
        assert!(!range_lock.acquire(4, whole(3..4)), "it does not overtake waiting ones");
        assert!(range_lock.acquire(5, whole(4..8)));
        assert!(!range_lock.acquire(6, whole(3..4)));
        assert_eq!(range_lock.release(1), [2]);
        assert!(range_lock.release(3).is_empty());
        assert_eq!(range_lock.release(2), [4, 6], "both at once: they are of whole blocks");
        assert!(
            range_lock.release(4).is_empty()
                && range_lock.release(5).is_empty()
                && range_lock.release(6).is_empty()
                && range_lock.is_empty()
        );
    }

    #[test]
    fn partial_writes_of_one_block_are_served_in_order_of_arrival() {
        let mut range_lock = RangeLock::default();
        assert!(range_lock.acquire(1, part(0)) && !range_lock.acquire(2, part(0)) && !range_lock.acquire(3, part(0)));
        assert_eq!(range_lock.release(1), [2]);
        assert_eq!(range_lock.release(2), [3]);
    }
}
