//! Free segments are reclaimed before hosts come.
//!
//! A crash leaves the segments that were open half empty, and what it has torn takes another one to be rewritten. So that any
//! number of crashes can follow each other, the segments that are left to mounts
//! ([`MOUNT_SEGMENTS`](crate::limits::MOUNT_SEGMENTS)) are free again before hosts see the volume: segments are emptied, those first
//! that take the fewest moves, before torn blocks are moved and after that.
//!
//! A mount that is cut short leaves the next one as many free segments as it had itself. What it was moving out of a segment that it
//! has not emptied counts for nothing (see `versions.rs`), so the segment that this was moved to is empty, or holds all of what was in
//! others that are free. What was torn and has been rewritten stays: it fills a segment by and by, and is the first to be moved on
//! if crashes have left it in several.
//!
//! Whether emptying segments wins one is reckoned as if all that is moved came to lie without a gap. It does not where a segment must be
//! reset before the next one can be emptied: its last stripe is padded. A mount whose reckoning did not come true reckons from then on with
//! whole stripes for each segment: else it could move the same blocks to and fro for ever.

use super::{Mount, Volume};
use crate::limits::{MOUNT_SEGMENTS, RELOCATION_SEGMENTS};
use crate::machine::Phase;
use crate::machine::collector::victim::moved_blocks;
use crate::machine::start::{Kind, Step};
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

impl Volume {
    /// Segments are emptied until enough are free; then torn blocks are moved, if any are left, or hosts may come.
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

    /// Writes have failed, and have used up the segments that were reckoned with: all that can be done is to begin anew, which gives
    /// those back.
    pub(super) fn fail_if_stuck(&mut self) {
        let waits = self.stripes.has_ready(Stream::Relocation) && self.segments.open(Stream::Relocation).is_empty();
        if waits && self.space().free_segments() == 0 && self.is_quiescent() {
            self.mount_again("no segment is free, and none can be emptied: replace members of which zones have failed");
        }
    }

    /// The segment to be emptied next while the volume is mounted: that of the fewest moves, as long as too few are free and as
    /// emptying some of them wins one.
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
        let room = Room {
            open: self.room_for_moves(),
            stripe,
            segment: self.spec.shape.data_blocks(self.spec.shape.layout(Stream::Relocation)),
        };
        let mut reckoning = found.reckoning.at(free);
        let is_padded = reckoning.is_padded;
        // Whatever is emptied, torn blocks take what they take.
        let emptied = room.first_win(torn.unwrap_or(0), victims.iter().map(|&(moved, _)| moved), is_padded)?;
        if room.segments_for(first) > u64::from(self.space().free_segments()) {
            return None;
        }
        reckoning.begin(emptied, free);
        self.found().reckoning = reckoning;
        Some(victim)
    }

    /// The mount in progress, if one is.
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

/// What moved blocks fit into, in blocks.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// What is left of the segments that are open for them.
    open: u64,
    stripe: u64,
    /// What a free segment holds.
    segment: u64,
}

impl Room {
    /// Free segments that so many moved blocks take.
    fn segments_for(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.stripe).saturating_sub(self.open).div_ceil(self.segment)
    }

    /// How many segments are emptied until one more is free, if the blocks that are moved out of each are these, and `anyway` are moved
    /// before; `None` if none is won.
    fn first_win(&self, anyway: u64, moves: impl Iterator<Item = u64>, is_padded: bool) -> Option<u64> {
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

/// Whether emptying segments has won what was reckoned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reckoning {
    /// Segments that are still to be emptied until one more is free than these.
    until: Option<(u64, u32)>,
    /// It once did not come true.
    is_padded: bool,
}

impl Reckoning {
    /// What holds when so many segments are free, or will be.
    fn at(self, free: u32) -> Reckoning {
        match self.until {
            Some((0, before)) => Reckoning { until: None, is_padded: self.is_padded || free <= before },
            _ => self,
        }
    }

    /// The next segment is emptied, the first of so many that win one.
    fn begin(&mut self, emptied: u64, free: u32) {
        let (left, before) = self.until.unwrap_or((emptied, free));
        self.until = Some((left - 1, before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { open: 24, stripe: 6, segment: 30 };

    #[test]
    fn segments_win_one_as_soon_as_fewer_are_taken_than_emptied() {
        // Without a gap the second wins one: 54 blocks take 24 and one segment.
        let moves = [25, 28, 28, 29, 29, 29];
        assert_eq!(ROOM.first_win(0, moves.into_iter(), false), Some(2));
        assert_eq!(ROOM.first_win(0, moves.into_iter(), true), None, "each takes five stripes");
        assert_eq!(ROOM.first_win(0, [24, 30].into_iter(), true), Some(1), "it fits what is open");
        assert_eq!(ROOM.first_win(24, [6, 6].into_iter(), true), Some(2), "torn blocks have taken that");
    }

    #[test]
    fn a_reckoning_that_did_not_come_true_counts_whole_stripes_from_then_on() {
        let mut reckoning = Reckoning::default();
        for left in (0..3).rev() {
            reckoning = reckoning.at(2);
            reckoning.begin(3, 2);
            assert_eq!((reckoning.until, reckoning.is_padded), (Some((left, 2)), false));
        }
        assert!(reckoning.at(2).is_padded, "three are emptied, and none is won");
        let won = reckoning.at(3);
        assert!(won.until.is_none() && !won.is_padded);
    }
}
