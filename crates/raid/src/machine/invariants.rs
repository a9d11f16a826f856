//! Invariants that hold between events.

use super::{Phase, Volume};
use crate::MemberIndex;

impl Volume {
    /// Checks all invariants. For tests: the time is proportional to the size of the volume.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        if let Phase::Starting(start) = &self.phase {
            self.members.check_invariants();
            return start.check_invariants(&self.members);
        }
        if !self.is_ready() {
            return;
        }
        let live = self.map.check_invariants(&self.stripes, &self.segments);
        self.stripes.check_invariants(&self.spec);
        self.members.check_invariants();
        self.requests.check_invariants();
        self.reads.check_invariants(&self.segments);
        self.collector.check_invariants(&self.segments);
        self.segments.check_invariants(&self.spec, &self.members);
        self.lost_places.check_invariants(&self.segments);
        self.damage.check_invariants();
        self.pieces.check_invariants(&self.members);
        self.rebuild.check_invariants(&self.members, &self.segments, &self.pieces);
        if let Some(scrub) = &self.scrub {
            scrub.check_invariants(&self.members, &self.segments, &self.pieces);
        }
        self.check_readers();
        for (index, segment) in self.segments.iter() {
            assert_eq!(segment.live_blocks, live[index.as_usize()], "live blocks of segment {}", segment.sequence);
        }
        for (at, member) in self.members.iter().enumerate() {
            if !member.is_present() {
                continue;
            }
            let active = self.segments.iter().filter(|(_, segment)| segment.active >> at & 1 == 1).count() as u32;
            let rebuilding = self.rebuild_active(MemberIndex(at as u8)) + self.aside_active(MemberIndex(at as u8));
            assert_eq!(
                member.active_zones(),
                active + member.log_zones() + rebuilding + member.stuck_zones(),
                "active zones of member {at}"
            );
        }
    }

    /// A segment is pinned by operations on the whole of it, and read by those in flight; by
    /// nothing else, or it would never be reset.
    fn check_readers(&self) {
        let mut readers = vec![0u32; self.segments.iter().map(|(index, _)| index.as_usize() + 1).max().unwrap_or(0)];
        let pieces = self.pieces.segments();
        let in_flight =
            self.reads.fetched().chain(pieces).chain(self.members.inspected()).chain(self.stripes.repaired());
        for index in in_flight {
            readers[index.as_usize()] += 1;
        }
        for (index, segment) in self.segments.iter() {
            assert_eq!(
                segment.readers,
                readers[index.as_usize()],
                "segment {} has as many readers as there are reads of it in flight",
                segment.sequence
            );
            let is_worked_on = self.collector.has(index)
                || self.scrubbed_segment() == Some(index)
                || self.rebuilt_segment() == Some(index);
            assert_eq!(
                segment.is_pinned, is_worked_on,
                "segment {} is pinned while it is collected, scrubbed or rebuilt, and only then",
                segment.sequence
            );
        }
    }
}
