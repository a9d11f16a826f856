//! Which segment garbage collection empties next, and when there is one: it starts while there is still room.

use zonda_zoned::Instant;

use super::Volume;
use crate::config::Victim;
use crate::format::tombstones_per_block;
use crate::limits::RELOCATION_SEGMENTS;
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

impl Volume {
    pub(super) fn needs_collection(&self) -> bool {
        self.space().is_low() || self.segments.doubtful().next().is_some()
    }

    /// The segment to be emptied next, and whether it must be, whatever is free.
    pub(super) fn choose_victim(&self) -> Option<(SegmentIndex, bool)> {
        if !self.is_ready() {
            // Nobody is there whose pace it could keep.
            return self.victim_at_mount().map(|index| (index, true));
        }
        let present = self.members.present_bits();
        let may = |segment: &Segment| {
            let is_free = !segment.is_pinned && !segment.has_lost && segment.readers == 0;
            segment.state == SegmentState::Sealed && is_free
        };
        // Zones that are lost on members that are there, blocks that are damaged: the rest of these segments is moved while it can
        // be read.
        let is_urgent = |segment: &Segment| {
            let is_degraded = segment.lost & present != 0 && !self.is_rebuilding_segment(segment);
            (is_degraded || segment.is_suspect) && (segment.live_blocks > 0 || !segment.tombstones.is_empty())
        };
        let urgent = self.segments.doubtful().find(|(_, segment)| may(segment) && is_urgent(segment));
        if let Some((index, _)) = urgent {
            return Some((index, true));
        }
        if !self.space().is_low() {
            return None;
        }
        let worth = |segment: &Segment| self.worth(segment);
        let mut candidates: Vec<_> =
            self.segments.iter().filter(|(_, segment)| may(segment) && worth(segment) > 0).collect();
        // Less than a segment in all: moving blocks to and fro would win nothing. But where hosts wait, what has been begun is brought to
        // an end, and the room that is left where moved blocks go counts as well.
        let blocks = self.spec.shape.data_blocks(self.spec.shape.layout(Stream::Relocation));
        let won = candidates.iter().map(|(_, segment)| worth(segment)).sum::<u64>();
        if won < blocks {
            let do_wait = self.space().free_segments() <= RELOCATION_SEGMENTS;
            let must = do_wait && (!self.collector.is_idle() || won + self.room_for_moves() >= blocks);
            if !must {
                return None;
            }
            // Less than a stripe may be what padding costs.
            candidates
                .retain(|(_, segment)| worth(segment) >= self.spec.shape.stripe_blocks(Stream::Relocation) as u64);
        }
        match self.spec.config.tuning.victim {
            Victim::Greedy => {
                candidates.into_iter().max_by_key(|(index, segment)| (worth(segment), std::cmp::Reverse(*index)))
            }
            Victim::CostBenefit => candidates.into_iter().max_by_key(|(index, segment)| {
                let all = u128::from(self.spec.shape.data_blocks(&segment.layout));
                let live = all - u128::from(worth(segment));
                let age = u128::from(age(self.now, segment.filled_at));
                (all.saturating_sub(live) * age * 1024 / (all + live), std::cmp::Reverse(*index))
            }),
        }
        .map(|(index, _)| (index, false))
    }

    /// Blocks that collecting a segment would reclaim.
    pub(super) fn worth(&self, segment: &Segment) -> u64 {
        let all = self.spec.shape.data_blocks(&segment.layout);
        let moved = self.moved_blocks(segment);
        if segment.tombstones.is_empty() {
            return all.saturating_sub(moved);
        }
        // The last stripe of what is moved is padded.
        all.saturating_sub(moved.next_multiple_of(self.spec.shape.stripe_blocks(Stream::Relocation) as u64))
    }

    /// Blocks that are written when a segment is emptied. Tombstones are written as close together as they fit.
    pub(super) fn moved_blocks(&self, segment: &Segment) -> u64 {
        let per_block = tombstones_per_block(self.spec.shape.block_bytes as u32) as u32;
        let tombstones = segment.tombstone_ranges.div_ceil(per_block).min(segment.tombstones.len() as u32);
        u64::from(segment.live_blocks) + u64::from(tombstones)
    }
}

fn age(now: Instant, since: Instant) -> u64 {
    now.since(since).as_nanos() / 1000 + 1
}
