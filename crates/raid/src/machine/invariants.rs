//! What always holds between events.

use super::Volume;
use crate::MemberIndex;

impl Volume {
    /// Looks at everything. For tests: it takes as long as the volume is large.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
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
        for (index, segment) in self.segments.iter() {
            assert_eq!(segment.live_blocks, live[index.as_usize()], "live blocks of segment {}", segment.sequence);
        }
        for (at, member) in self.members.iter().enumerate() {
            if !member.is_present() {
                continue;
            }
            let active = self.segments.iter().filter(|(_, segment)| segment.active >> at & 1 == 1).count() as u32;
            let rebuilding = self.rebuild_active(MemberIndex(at as u8));
            assert_eq!(
                member.active_zones(),
                active + 1 + rebuilding + member.stuck_zones(),
                "active zones of member {at}"
            );
        }
    }
}
