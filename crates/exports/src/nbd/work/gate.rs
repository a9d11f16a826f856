//! Who may write now, where a request writes a part of a block.
//!
//! Such a request reads the block, changes it and writes it again. A write of the same block in between would be undone, so
//! requests that overlap it wait for their turn. Requests of whole blocks never wait for one another: what they do to one
//! block at the same time is the clients' affair, as it is with a disk.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What a request writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Blocks, those included that it writes in part.
    pub(super) blocks: Range<u64>,
    /// Whether it writes one of them in part.
    pub(super) partial: bool,
}

/// The requests that write to one drive.
#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: BTreeMap<u32, Claim>,
    /// In the order in which they came.
    waiting: VecDeque<(u32, Claim)>,
    /// How many of those inside write a part of a block.
    partial_inside: usize,
}

impl Claim {
    fn conflicts_with(&self, other: &Claim) -> bool {
        (self.partial || other.partial) && self.blocks.start < other.blocks.end && other.blocks.start < self.blocks.end
    }
}

impl Gate {
    /// A request comes. Returns whether it may go ahead; else it hears of it when one leaves.
    pub(super) fn enter(&mut self, job: u32, claim: Claim) -> bool {
        let is_free = self.waiting.is_empty() && self.partial_inside == 0 && !claim.partial;
        if is_free || !self.has_to_wait(&claim, self.waiting.len()) {
            self.admit(job, claim);
            return true;
        }
        self.waiting.push_back((job, claim));
        false
    }

    /// A request that was let in has ended. Returns those that may go ahead now.
    pub(super) fn leave(&mut self, job: u32) -> Vec<u32> {
        let claim = self.inside.remove(&job).expect("who leaves was let in");
        self.partial_inside -= usize::from(claim.partial);
        let mut admitted = Vec::new();
        let mut place = 0;
        while let Some((_, claim)) = self.waiting.get(place) {
            if self.has_to_wait(claim, place) {
                place += 1;
                continue;
            }
            let (job, claim) = self.waiting.remove(place).expect("it was just looked at");
            self.admit(job, claim);
            admitted.push(job);
        }
        admitted
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.waiting.is_empty()
    }

    /// Whether one inside, or one of the first `before` that wait, stands in its way.
    fn has_to_wait(&self, claim: &Claim, before: usize) -> bool {
        let waiting = self.waiting.iter().take(before).map(|(_, earlier)| earlier);
        self.inside.values().chain(waiting).any(|earlier| earlier.conflicts_with(claim))
    }

    fn admit(&mut self, job: u32, claim: Claim) {
        self.partial_inside += usize::from(claim.partial);
        let earlier = self.inside.insert(job, claim);
        assert!(earlier.is_none(), "a request comes once");
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
        let mut gate = Gate::default();
        assert!(gate.enter(1, whole(0..8)) && gate.enter(2, whole(4..5)) && gate.enter(3, whole(0..8)));
        assert!(gate.leave(1).is_empty() && gate.leave(3).is_empty() && gate.leave(2).is_empty() && gate.is_empty());
    }

    #[test]
    fn a_request_of_a_part_and_those_that_overlap_it_take_turns() {
        let mut gate = Gate::default();
        assert!(gate.enter(1, whole(0..8)));
        assert!(!gate.enter(2, part(3)), "the write of the whole is under way");
        assert!(gate.enter(3, part(9)), "other blocks are free");
        assert!(!gate.enter(4, whole(3..4)), "it does not overtake");
        assert!(gate.enter(5, whole(4..8)));
        assert!(!gate.enter(6, whole(3..4)));
        assert_eq!(gate.leave(1), [2]);
        assert!(gate.leave(3).is_empty());
        assert_eq!(gate.leave(2), [4, 6], "both at once: they are of whole blocks");
        assert!(gate.leave(4).is_empty() && gate.leave(5).is_empty() && gate.leave(6).is_empty() && gate.is_empty());
    }

    #[test]
    fn parts_of_one_block_go_one_after_another_in_the_order_of_their_coming() {
        let mut gate = Gate::default();
        assert!(gate.enter(1, part(0)) && !gate.enter(2, part(0)) && !gate.enter(3, part(0)));
        assert_eq!(gate.leave(1), [2]);
        assert_eq!(gate.leave(2), [3]);
    }
}
