//! [`Ready`]: the groups with requests that may be released.

use super::buckets::{Buckets, LaneIndex};
use crate::Accepts;

/// Groups with requests that may be released, and those with reads among them, each by the number of their
/// outstanding requests.
///
/// Both change with each release and each completion. As long as no group has writes alone, they are the
/// same, and one of them is kept; from then on both, until no group is listed.
#[derive(Debug)]
pub(super) struct Ready {
    all: Buckets,
    /// Empty while it is the same as `all`.
    reads: Buckets,
    is_split: bool,
}

impl Ready {
    pub(super) fn new(lanes: usize) -> Ready {
        Ready { all: Buckets::new(lanes), reads: Buckets::new(lanes), is_split: false }
    }

    /// Lists a group under these counts: `all` if it has requests, `reads` if it has reads, [`NONE`] if not.
    ///
    /// [`NONE`]: super::buckets::NONE
    #[inline]
    pub(super) fn set(&mut self, lane: LaneIndex, all: u32, reads: u32) {
        if all != reads && !self.is_split {
            self.is_split = true;
            self.reads.copy(&self.all);
        }
        self.all.set(lane, all);
        if self.is_split {
            self.reads.set(lane, reads);
            // A group with reads has requests, so both are empty.
            self.is_split = !self.all.is_empty();
        }
    }

    /// The group with the fewest outstanding requests.
    pub(super) fn first(&self, accepts: Accepts) -> Option<LaneIndex> {
        match accepts {
            Accepts::Reads if self.is_split => self.reads.first(),
            Accepts::All | Accepts::Reads => self.all.first(),
        }
    }

    /// A group with the most outstanding requests, for a seeded bug.
    pub(super) fn last(&self) -> Option<LaneIndex> {
        self.all.last()
    }

    /// The counts under which a group is listed: for its requests, and for its reads.
    pub(super) fn counts(&self, lane: LaneIndex) -> (u32, u32) {
        let reads = if self.is_split { &self.reads } else { &self.all };
        (self.all.count(lane), reads.count(lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interference::buckets::NONE;
    use zonda_zoned::Prng;

    #[test]
    fn random_changes_leave_the_same_order_as_two_lists_that_are_always_kept() {
        let mut prng = Prng::new(1);
        let mut ready = Ready::new(10);
        let (mut all, mut reads) = (Buckets::new(10), Buckets::new(10));
        let mut splits = 0;
        for step in 0..40_000 {
            let lane = prng.below(10) as u32;
            // Now and then nothing waits.
            let has_requests = prng.chance(if step % 100 < 30 { 1 } else { 12 }, 16);
            let has_writes_alone = step % 1000 < 500 && prng.chance(1, 16);
            let count = if has_requests { prng.below(6) as u32 } else { NONE };
            let of_reads = if has_writes_alone { NONE } else { count };
            let before = ready.is_split;
            ready.set(lane, count, of_reads);
            splits += u32::from(ready.is_split && !before);
            all.set(lane, count);
            reads.set(lane, of_reads);
            assert_eq!(ready.first(Accepts::All), all.first());
            assert_eq!(ready.first(Accepts::Reads), reads.first());
            assert!((0..10).all(|lane| ready.counts(lane) == (all.count(lane), reads.count(lane))));
        }
        assert!(splits > 10, "{splits}");
    }
}
