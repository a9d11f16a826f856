//! Reclaims free segments before the volume is ready.
//!
//! A crash leaves the open segments half empty, and rewriting torn blocks takes another one. So
//! that any number of crashes can follow each other, the segments reserved for mounts
//! ([`MOUNT_SEGMENTS`](crate::limits::MOUNT_SEGMENTS)) are free again before hosts see the volume:
//! segments are emptied, those first that take the fewest moves, before torn blocks are moved and
//! after that.
//!
//! An interrupted mount leaves the next one as many free segments as it had itself. Blocks that it
//! was moving out of a segment that it has not emptied do not count (see `versions.rs`), so the
//! segment that these were moved to is empty, or holds all blocks of others that are free. Torn
//! blocks that were rewritten stay: they gradually fill a segment, which is the first to be moved
//! if crashes have left several of them.
//!
//! Whether emptying segments gains any is estimated as if all moved blocks were written without
//! gaps. They are not where a segment must be reset before the next one can be emptied: its last
//! stripe is padded. A mount whose estimate was wrong counts whole stripes for each segment from
//! then on: otherwise it could move the same blocks back and forth for ever.

use super::{Mount, Volume};
use crate::limits::{MOUNT_SEGMENTS, RELOCATION_SEGMENTS};
use crate::machine::Phase;
use crate::machine::collector::victim::moved_blocks;
use crate::machine::start::{Kind, Step};
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

impl Volume {
    /// Empties segments until enough are free; then torn blocks are moved, if any are left, or the
    /// volume becomes ready.
    pub(super) fn reclaim(&mut self) {
        self.pump_superblocks();
        if self.is_lost() {
            return;
        }
        self.pump_collector();
        self.pump_stream(Stream::Relocation);
        if !self.collector.is_idle() {
            return self.fail_if_stuck();
        }
        if !self.is_quiescent() {
            return;
        }
        if !self.found().torn.is_empty() {
            return self.enter(Step::MoveTorn);
        }
        if self.is_flushed_at_mount() {
            self.become_ready();
            self.resume_rebuild();
        }
    }

    /// Whether nothing is in flight.
    pub(super) fn is_quiescent(&self) -> bool {
        let is_changing = |segment: &Segment| {
            let is_stable = matches!(segment.state, SegmentState::Open | SegmentState::Sealed);
            !is_stable || segment.in_flight > 0 || segment.readers > 0 || segment.awaits_flush
        };
        self.members.is_epoch_durable() && !self.segments.iter().any(|(_, segment)| is_changing(segment))
    }

    /// Writes have failed, and have used the segments that the estimate relied on: the only option
    /// is to restart the mount, which frees these.
    pub(super) fn fail_if_stuck(&mut self) {
        let waits = self.stripes.has_ready(Stream::Relocation) && self.segments.open(Stream::Relocation).is_empty();
        if waits && self.space().free_segments() == 0 && self.is_quiescent() {
            self.mount_again("no segment is free, and none can be emptied; replace members with failed zones");
        }
    }

    /// The segment to be emptied next during a mount: the one with the fewest moves, as long as too
    /// few are free and emptying some of them gains one.
    pub(in crate::machine) fn victim_at_mount(&mut self) -> Option<SegmentIndex> {
        let found = self.mounting()?;
        let torn = found.torn.first().map(|place| found.torn_in(place.segment).count() as u64);
        let wanted = match torn {
            Some(_) => MOUNT_SEGMENTS,
            None => self.space().mount_segments() + RELOCATION_SEGMENTS,
        };
        let is_resetting = |segment: &Segment| segment.state == SegmentState::Resetting;
        let resetting = self.segments.iter().filter(|(_, segment)| is_resetting(segment)).count() as u32;
        let coming = resetting + u32::from(self.collector.emptied().is_some());
        let free = self.space().free_segments() + coming;
        if free >= wanted {
            return None;
        }
        let may = |(index, segment): &(SegmentIndex, &Segment)| {
            segment.state == SegmentState::Sealed
                && !segment.is_pinned
                && !segment.has_lost
                && segment.readers == 0
                && found.torn_in(*index).next().is_none()
                && moved_blocks(&self.spec, segment) < self.spec.shape.data_blocks(&segment.layout)
        };
        let mut victims: Vec<(u64, SegmentIndex)> = self
            .segments
            .iter()
            .filter(may)
            .map(|(index, segment)| (moved_blocks(&self.spec, segment), index))
            .collect();
        victims.sort_unstable();
        let &(first, victim) = victims.first()?;
        let stripe = self.spec.shape.stripe_blocks(Stream::Relocation) as u64;
        let move_space = MoveSpace {
            open: self.space_for_moves(),
            stripe,
            segment: self.spec.shape.data_blocks(self.spec.shape.layout(Stream::Relocation)),
        };
        let mut estimate = found.estimate.at(free);
        let is_padded = estimate.is_padded;
        // Torn blocks need their space in any case.
        let emptied = move_space.first_gain(torn.unwrap_or(0), victims.iter().map(|&(moved, _)| moved), is_padded)?;
        if move_space.segments_for(first) > u64::from(self.space().free_segments()) {
            return None;
        }
        estimate.begin(emptied, free);
        self.found().estimate = estimate;
        Some(victim)
    }

    /// The mount in progress, if any.
    fn mounting(&self) -> Option<&Mount> {
        match &self.phase {
            Phase::Starting(start) => match &start.kind {
                Kind::Mount(mount) => Some(mount),
                Kind::Create { .. } => None,
            },
            _ => None,
        }
    }
}

/// Space for moved blocks, in blocks.
#[derive(Clone, Copy, Debug)]
struct MoveSpace {
    /// Free space in the segments that are open for them.
    open: u64,
    stripe: u64,
    /// Capacity of a free segment.
    segment: u64,
}

impl MoveSpace {
    /// Free segments needed for this many moved blocks.
    fn segments_for(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.stripe).saturating_sub(self.open).div_ceil(self.segment)
    }

    /// How many segments are to be emptied until one more is free, if `moves` are the moved blocks
    /// of each, and `anyway` are moved before; `None` if none is gained.
    fn first_gain(&self, anyway: u64, moves: impl Iterator<Item = u64>, is_padded: bool) -> Option<u64> {
        let taken = self.segments_for(anyway);
        let mut blocks = anyway;
        for (emptied, moved) in (1..).zip(moves) {
            blocks += if is_padded { moved.next_multiple_of(self.stripe) } else { moved };
            if emptied > self.segments_for(blocks) - taken {
                return Some(emptied);
            }
        }
        None
    }
}

/// Estimates whether emptying segments gains free ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReclaimEstimate {
    /// Segments that are still to be emptied until there is one more free than this.
    until: Option<(u64, u32)>,
    /// The estimate was wrong once.
    is_padded: bool,
}

impl ReclaimEstimate {
    /// The estimate at a number of segments that are free, or will be.
    fn at(self, free: u32) -> ReclaimEstimate {
        match self.until {
            Some((0, before)) => ReclaimEstimate { until: None, is_padded: self.is_padded || free <= before },
            _ => self,
        }
    }

    /// Begins to empty the first of `emptied` segments that together gain one.
    fn begin(&mut self, emptied: u64, free: u32) {
        let (left, before) = self.until.unwrap_or((emptied, free));
        self.until = Some((left - 1, before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVE_SPACE: MoveSpace = MoveSpace { open: 24, stripe: 6, segment: 30 };

    #[test]
    fn a_segment_is_gained_once_fewer_are_taken_than_emptied() {
        // Without a gap the second gains one: 54 blocks take 24 and one segment.
        let moves = [25, 28, 28, 29, 29, 29];
        assert_eq!(MOVE_SPACE.first_gain(0, moves.into_iter(), false), Some(2));
        assert_eq!(MOVE_SPACE.first_gain(0, moves.into_iter(), true), None, "each takes five stripes");
        assert_eq!(MOVE_SPACE.first_gain(0, [24, 30].into_iter(), true), Some(1), "it fits the open segments");
        assert_eq!(MOVE_SPACE.first_gain(24, [6, 6].into_iter(), true), Some(2), "torn blocks have filled these");
    }

    #[test]
    fn a_wrong_estimate_counts_whole_stripes_from_then_on() {
        let mut estimate = ReclaimEstimate::default();
        for left in (0..3).rev() {
            estimate = estimate.at(2);
            estimate.begin(3, 2);
            assert_eq!((estimate.until, estimate.is_padded), (Some((left, 2)), false));
        }
        assert!(estimate.at(2).is_padded, "three are emptied, and none is gained");
        let gained = estimate.at(3);
        assert!(gained.until.is_none() && !gained.is_padded);
    }
}
