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
    pub(in crate::machine) fn victim_at_mount(&self) -> Option<SegmentIndex> {
        let found = self.mounting()?;
        let torn = found.torn.first().map(|place| found.torn_in(place.segment).count() as u64);
        let wanted = match torn {
            Some(_) => MOUNT_SEGMENTS,
            None => self.space().mount_segments() + RELOCATION_SEGMENTS,
        };
        let is_resetting = |segment: &Segment| segment.state == SegmentState::Resetting;
        let resetting = self.segments.iter().filter(|(_, segment)| is_resetting(segment)).count() as u32;
        let coming = resetting + u32::from(self.collector.emptied().is_some());
        if self.space().free_segments() + coming >= wanted {
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
        let room = self.room_for_moves();
        let stripe = self.spec.shape.stripe_blocks(Stream::Relocation) as u64;
        let each = self.spec.shape.data_blocks(self.spec.shape.layout(Stream::Relocation));
        let segments_for = |blocks: u64| blocks.next_multiple_of(stripe).saturating_sub(room).div_ceil(each);
        // Whatever is emptied, torn blocks take what they take.
        let mut blocks = torn.unwrap_or(0);
        let anyway = segments_for(blocks);
        let wins = (1..).zip(&victims).any(|(emptied, (moved, _))| {
            blocks += moved;
            emptied > segments_for(blocks) - anyway
        });
        let has_room = segments_for(first) <= u64::from(self.space().free_segments());
        (wins && has_room).then_some(victim)
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
