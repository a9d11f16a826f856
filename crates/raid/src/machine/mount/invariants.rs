//! Invariants of a mount between events.

use super::super::start::Step;
use super::Mount;
use crate::limits::MOUNT_ATTEMPTS_MAX;

impl Mount {
    /// The intermediate results of a step are consumed before the next step begins: nothing is
    /// decided twice.
    ///
    /// # Panics
    /// If that does not hold.
    pub(in super::super) fn check_invariants(&self, step: Step) {
        assert!(self.attempts < MOUNT_ATTEMPTS_MAX, "attempt {} is one too many", self.attempts);
        let headers = self.segments.len() + self.owners.iter().map(|owners| owners.len()).sum::<usize>();
        assert!(headers == 0 || step >= Step::ReadHeaders, "headers are known before the members");
        let reads_segments = matches!(step, Step::ReadSegments | Step::ReadLeaving);
        assert!(self.current.is_none() || reads_segments, "a segment is read in {step:?}");
        let read = self.tombstones.len() + self.unsound.len() + self.lost.len();
        assert!(read == 0 || step >= Step::ReadSegments, "blocks are known before the segments that they are in");
        if step > Step::ReadTombstones {
            let left = self.tombstones.len() + self.doubted.len() + self.doubting.len();
            assert_eq!(left, 0, "versions that are still compared in {step:?}");
        }
        if step > Step::ReadLeaving {
            assert_eq!(self.leaving.len() + self.orphans.len(), 0, "what may go is chosen in {step:?}");
            assert!(
                !self.unclaimed.is_unread(),
                "zones are reset in {step:?} of which it is not known whether they are needed"
            );
        }
        if step >= Step::CloseSegments && self.torn.is_empty() {
            assert!(self.stamps.is_empty(), "torn blocks are all that timestamps are needed for in {step:?}");
        }
        assert!(self.moving == 0 || step == Step::MoveTorn, "{} blocks are moved in {step:?}", self.moving);
        // From then on only blocks to be rewritten matter.
        let is_chosen = step >= Step::CloseSegments;
        let is_unsound = |place| is_chosen || self.unsound.contains(place);
        assert!(self.torn.iter().all(is_unsound), "what may never have been complete is not all there");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberIndex;
    use crate::tables::{Physical, SegmentIndex};

    const PLACE: Physical = Physical { segment: SegmentIndex(1), member: MemberIndex(0), offset: 4 };

    #[test]
    fn a_mount_that_has_found_nothing_may_be_at_any_step() {
        for step in [Step::ReportZones, Step::ReadHeaders, Step::ReadTombstones, Step::Reclaim, Step::MoveTorn] {
            Mount::default().check_invariants(step);
        }
    }

    #[test]
    #[should_panic(expected = "attempt 8 is one too many")]
    fn a_mount_that_restarts_without_end_is_a_bug() {
        Mount { attempts: MOUNT_ATTEMPTS_MAX, ..Mount::default() }.check_invariants(Step::ReportZones);
    }

    #[test]
    #[should_panic(expected = "blocks are known before the segments that they are in")]
    fn a_block_that_is_lost_before_any_segment_was_read_is_a_bug() {
        Mount { lost: [PLACE].into(), ..Mount::default() }.check_invariants(Step::ReadHeaders);
    }

    #[test]
    #[should_panic(expected = "versions that are still compared")]
    fn a_copy_in_doubt_once_versions_are_chosen_is_a_bug() {
        let doubted = [(PLACE, (7, SegmentIndex(2)))].into();
        Mount { doubted, ..Mount::default() }.check_invariants(Step::WriteSuperblocks);
    }

    #[test]
    #[should_panic(expected = "what may never have been complete is not all there")]
    fn a_torn_block_that_counts_as_whole_is_a_bug() {
        Mount { torn: [PLACE].into(), ..Mount::default() }.check_invariants(Step::ReadTombstones);
    }
}
