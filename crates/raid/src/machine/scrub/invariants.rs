//! Invariants of a scrub between events.

use super::super::members::{Members, Work};
use super::super::pieces::{Owner, Pieces};
use super::super::segments::Segments;
use super::Scrub;

impl Scrub {
    /// A scrub works on one segment at a time, which stays meanwhile, and waits for reads in
    /// flight.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(in super::super) fn check_invariants(&self, members: &Members, segments: &Segments, pieces: &Pieces) {
        assert!(self.next <= self.end, "no segment is scrubbed that was opened later");
        for place in &self.repairing {
            assert!(segments.get(place.segment).is_some(), "{place:?} exists until its repair is durable");
        }
        let Some(current) = &self.current else { return };
        let segment = &segments[current.segment];
        assert_eq!(segment.sequence, current.sequence, "the segment that is read is the one that was chosen");
        assert!(current.sequence < self.next, "segment {} is not read twice", current.sequence);
        assert!(segment.is_pinned, "segment {} stays while it is read", current.sequence);
        assert!(current.next_stripe <= current.end.max(segment.layout.stripes), "stripes of {}", current.sequence);
        if let Some(key) = current.piece {
            let piece = &pieces[key];
            assert_eq!((piece.segment, piece.owner), (current.segment, Owner::Scrub), "whose piece {key:?} is");
        }
        // A scrub that was stopped may have reads in flight, too.
        let is_of_it = |work: &&Work| matches!(work, Work::Described { sequence, .. } if *sequence == current.sequence);
        let reads = members.in_flight().filter(is_of_it).count();
        assert!(reads >= current.describing as usize, "{reads} reads of headers and footers are in flight");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use zonda_zoned::Instant;

    use super::super::super::damage::DamageCounts;
    use super::super::super::fixtures;
    use super::super::super::pieces::Pace;
    use super::*;
    use crate::MemberIndex;
    use crate::tables::{Physical, SegmentIndex};

    fn scrub() -> Scrub {
        Scrub {
            next: 3,
            end: 7,
            current: None,
            done: 3,
            all: 7,
            pace: Pace::from(Instant::ZERO),
            blocks: 100,
            before: DamageCounts::default(),
            lost_before: 0,
            repairing: BTreeSet::new(),
            damaged: BTreeMap::new(),
            has_reports: false,
            reports: 0,
            has_superblocks: false,
        }
    }

    fn check(scrub: &Scrub) {
        let spec = fixtures::spec(1, false);
        scrub.check_invariants(&fixtures::members(&spec), &Segments::new(), &Pieces::new());
    }

    #[test]
    fn a_scrub_between_two_segments_waits_for_nothing() {
        check(&scrub());
    }

    #[test]
    #[should_panic(expected = "no segment is scrubbed that was opened later")]
    fn a_scrub_that_has_gone_beyond_its_end_is_a_bug() {
        check(&Scrub { next: 8, ..scrub() });
    }

    #[test]
    #[should_panic(expected = "exists until its repair is durable")]
    fn a_repair_in_a_reset_segment_is_a_bug() {
        let place = Physical { segment: SegmentIndex(2), member: MemberIndex(1), offset: 5 };
        check(&Scrub { repairing: BTreeSet::from([place]), ..scrub() });
    }
}
