//! What always holds between events.

use super::Volume;
use crate::MemberIndex;
use crate::format::Tombstone;
use crate::tables::{Location, SegmentState};

impl Volume {
    /// Looks at everything. For tests: it takes as long as the volume is large.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        if !self.is_ready() {
            return;
        }
        let mut live = vec![0u32; self.segments.iter().map(|(index, _)| index.as_usize() + 1).max().unwrap_or(0)];
        for (lba, entry) in self.map.iter().enumerate() {
            let mut entry = *entry;
            loop {
                match entry.location() {
                    Location::Nowhere => break,
                    Location::Trimmed { segment } => {
                        let segment = self.segments.get(segment).expect("a tombstone's segment is there");
                        assert!(!segment.tombstones.is_empty(), "block {lba}: a trimmed block has a tombstone");
                        break;
                    }
                    Location::Media(place) => {
                        let segment = self.segments.get(place.segment).expect("a block's segment is there");
                        assert!(segment.is_live(place.member, place.offset), "block {lba} is live where the map says");
                        assert!(segment.state != SegmentState::Resetting, "block {lba} is in a segment that goes");
                        live[place.segment.as_usize()] += 1;
                        break;
                    }
                    Location::Buffered { stripe, block } => {
                        let block = &self.stripes[stripe].blocks[block as usize];
                        assert!(!block.is_superseded, "block {lba}: what is superseded is in no chain");
                        entry = match &block.source {
                            super::write::Source::Trim { tombstones, olds, .. } => {
                                let lbas = tombstones.iter().flat_map(Tombstone::lbas);
                                let at = lbas.into_iter().position(|other| other == lba as u64);
                                olds[at.expect("a trim covers the blocks that refer to it")]
                            }
                            _ => {
                                assert_eq!(block.lba, lba as u64, "a block on its way knows who it is");
                                block.old
                            }
                        };
                    }
                }
            }
        }
        self.members.check_invariants();
        self.requests.check_invariants();
        self.check_trims();
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
