//! Volumes that are out of space and can reclaim none. Requests that need space end with an error
//! instead of waiting for ever; reads continue, and so do trims, which free space: their tombstones
//! are written to the segments of relocation.
//!
//! This happens when zones fail on members that the volume needs. It is not a persistent state:
//! once there is space again, writes are accepted as before.

use zonda_zoned::Status;

use super::Volume;
use super::collector::victim;
use super::requests::RequestKey;
use super::stripes::{Source, StripeKey};
use crate::MemberIndex;
use crate::event::FailReason;
use crate::limits::RELOCATION_SEGMENTS;
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

/// Status of a write or a trim for which there is no space.
const NO_SPACE: Status = Status::CapacityExceeded;

impl Volume {
    /// Ends everything that waits for a segment that will never open. Returns whether that enables
    /// other operations.
    pub(super) fn end_if_out_of_space(&mut self) -> bool {
        if !self.members.may_write(self.now) {
            return self.end_if_full();
        }
        for stream in [Stream::Small, Stream::Large] {
            if self.is_without_segment(stream) && !self.may_get_space(stream) {
                if self.recount_tombstones() {
                    // Segments with little else may be collected now.
                } else if let Some(narrowest) = self.narrowest_member() {
                    self.evict(narrowest, FailReason::Errors);
                } else if let Some(idle) = self.idle_segment(stream) {
                    self.segments.break_off(&self.spec, &mut self.members, idle);
                } else {
                    self.end_ready(stream);
                }
                return true;
            }
        }
        let stream = Stream::Relocation;
        let is_out = self.is_without_segment(stream) && self.waits_with_trims(stream) && !self.may_get_space(stream);
        if is_out && !self.recount_tombstones() {
            self.end_trims_in_relocation();
        }
        is_out
    }

    /// A member is out of space: host writes end with that status, until they are retried.
    fn end_if_full(&mut self) -> bool {
        let mut has_changed = false;
        if self.members.is_full(self.now) {
            for stream in [Stream::Small, Stream::Large] {
                if self.stripes.has_ready(stream) {
                    self.end_ready(stream);
                    has_changed = true;
                }
            }
            // Tombstones do not fit the stream of moved blocks either.
            if self.waits_with_trims(Stream::Relocation) {
                self.end_trims_in_relocation();
                has_changed = true;
            }
        }
        has_changed
    }

    /// Whether stripes wait, no segment is open for them, and none can be opened now.
    fn is_without_segment(&self, stream: Stream) -> bool {
        self.stripes.has_ready(stream) && self.is_shut(stream)
    }

    fn is_shut(&self, stream: Stream) -> bool {
        self.segments.open(stream).is_empty()
            && self.members.is_epoch_durable()
            && !self.segments.may_open(self.space(), stream)
    }

    /// Counts how many tombstones each segment still has to keep. A segment counts its tombstones
    /// as needed when they are written, since updating the count would take time with each write.
    /// Returns whether fewer are needed than a segment counted.
    fn recount_tombstones(&mut self) -> bool {
        let counts = |segment: &Segment| segment.tombstone_ranges > 0 && !segment.tombstones.is_empty();
        let counting: Vec<SegmentIndex> =
            self.segments.iter().filter(|(_, segment)| counts(segment)).map(|(index, _)| index).collect();
        if counting.is_empty() {
            return false;
        }
        let Some(needed) = self.map.recount_tombstones(&self.stripes) else { return false };
        let mut are_fewer = false;
        for index in counting {
            let blocks = needed.get(&index).copied().unwrap_or(0);
            let places = self.lost_places.held_by(index, &self.segments).len() as u32;
            are_fewer |= self.segments.lower_tombstone_ranges(index, blocks + places);
        }
        are_fewer
    }

    /// Whether an operation in flight may free space, or find some.
    fn may_get_space(&self, stream: Stream) -> bool {
        let mut others = [Stream::Small, Stream::Large].into_iter().filter(|&other| other != stream);
        let is_written = |other: Stream| {
            !self.segments.open(other).is_empty()
                && (self.stripes.is_filling(other).is_some() || self.stripes.has_ready(other))
        };
        self.collection_moves() || others.any(is_written) || self.segments_move() || self.rebuild_moves()
    }

    /// Whether garbage collection has no space to move anything to, and will have none: hosts need
    /// not wait for it.
    pub(super) fn is_collection_stopped(&self) -> bool {
        self.is_without_segment(Stream::Relocation)
            && !self.collection_moves()
            && !self.segments_move()
            && !self.rebuild_moves()
    }

    /// Whether a rebuild makes progress: it may wait for space itself, which only collection could
    /// free. Then no command is in flight, and no timer is pending.
    fn rebuild_moves(&self) -> bool {
        self.is_rebuilding() && (!self.members.are_idle() || self.next_timeout().is_some())
    }

    /// Whether segments are being opened, written, closed, or are waiting for their last readers.
    fn segments_move(&self) -> bool {
        self.segments.iter().any(|(_, segment)| match segment.state {
            SegmentState::Opening | SegmentState::Closing | SegmentState::Resetting => true,
            SegmentState::Open => segment.in_flight > 0 || segment.is_broken || segment.awaits_flush,
            SegmentState::Sealed => segment.live_blocks == 0 && segment.tombstones.is_empty(),
        })
    }

    /// Whether garbage collection makes progress, or will when readers release a victim.
    fn collection_moves(&self) -> bool {
        if !self.collector.is_idle() {
            let is_stopped = self.is_without_segment(Stream::Relocation);
            // It does not run ahead of hosts while it has space: then they do not wait for it.
            let is_paced = self.collector.has_more()
                && !self.collector.waits_for_blocks()
                && self.space().free_segments() > RELOCATION_SEGMENTS;
            return self.collector.is_fetching() || !(is_stopped || is_paced);
        }
        if !self.space().is_low() {
            return false;
        }
        let mut is_held = false;
        let mut worth = 0;
        for (_, segment) in self.segments.iter() {
            if segment.state == SegmentState::Sealed && !segment.has_lost {
                is_held |= segment.readers > 0 || segment.is_pinned;
                worth += victim::worth(&self.spec, segment);
            }
        }
        is_held
            && worth + self.space_for_moves() >= self.spec.shape.data_blocks(self.spec.shape.layout(Stream::Relocation))
    }

    /// A member that has lost zones, without which there would be space, and whose loss the volume
    /// tolerates.
    fn narrowest_member(&self) -> Option<MemberIndex> {
        let zones = |member: MemberIndex| self.members[member].free_zones();
        let narrowest = self.members.present().min_by_key(|&member| zones(member))?;
        let has_lost_zones = self.members[narrowest].retired_zones() != 0;
        let others = self.members.present().filter(|&member| member != narrowest).map(zones).min()?;
        let reserve = RELOCATION_SEGMENTS + self.space().mount_segments();
        let is_the_one = zones(narrowest) <= reserve && others > reserve;
        (has_lost_zones && is_the_one && self.members.can_spare(&self.spec, narrowest)).then_some(narrowest)
    }

    /// A segment that is open for the other kind of requests, and that nothing is written to: once
    /// closed, it can be collected, and others can be opened.
    fn idle_segment(&self, stream: Stream) -> Option<SegmentIndex> {
        let others = [Stream::Small, Stream::Large].into_iter().filter(|&other| other != stream);
        others.into_iter().find_map(|other| self.segments.open(other).first().copied())
    }

    /// Ends the stripes of hosts that wait in a stream. Tombstones in them continue, as long as
    /// there is space for them.
    fn end_ready(&mut self, stream: Stream) {
        let mut ended: Vec<(RequestKey, Status)> = Vec::new();
        let may_move = !self.is_shut(Stream::Relocation) && !self.members.is_full(self.now);
        while let Some(index) = self.stripes.next_ready(stream) {
            for at in 0..self.stripes[index].blocks.len() as u32 {
                let (_, source) = self.stripes.take_source(index, at);
                match source {
                    Source::Host { request } => {
                        self.map.withdraw(&mut self.stripes, &self.segments, (index, at));
                        self.stripes.unbuffer_one();
                        ended.extend(request.map(|request| (request, NO_SPACE)));
                    }
                    Source::Trim { request, tombstones, olds } if may_move => {
                        let (map, mut reach) = self.map_and_reach();
                        map.move_trim(&mut reach, (index, at), (request, tombstones, olds));
                    }
                    Source::Trim { request, tombstones, olds } => {
                        self.map.withdraw_trim(&mut self.stripes, (index, at), &tombstones, &olds);
                        self.map.fail_trims(&mut self.requests, NO_SPACE);
                        self.stripes.unbuffer_one();
                        ended.push((request, NO_SPACE));
                    }
                    Source::Moved { .. } | Source::MovedTombstones { .. } | Source::Lost { .. } => {
                        unreachable!("moved blocks have a stream of their own")
                    }
                }
            }
            let stripe = self.stripes.withdraw(index);
            ended.extend(stripe.flushes.into_iter().map(|request| (request, Status::Success)));
        }
        let filling = self.stripes.is_filling(Stream::Relocation);
        if may_move && filling.is_some_and(|stripe| self.stripes.holds_trim(stripe)) {
            self.stripes.pad(&self.spec, Stream::Relocation);
        }
        self.end_parts(ended);
    }

    /// Even relocation is out of space: tombstones that wait there become padding.
    fn end_trims_in_relocation(&mut self) {
        let mut ended = Vec::new();
        let stripes: Vec<StripeKey> = self.stripes.ready(Stream::Relocation).collect();
        for index in stripes {
            for at in 0..self.stripes[index].blocks.len() as u32 {
                if let Some(Source::Trim { request, tombstones, olds }) = self.stripes.pad_trim(index, at) {
                    self.map.withdraw_trim(&mut self.stripes, (index, at), &tombstones, &olds);
                    self.map.fail_trims(&mut self.requests, NO_SPACE);
                    ended.push((request, NO_SPACE));
                }
            }
            let flushes = self.stripes.take_flushes(index);
            ended.extend(flushes.into_iter().map(|request| (request, Status::Success)));
        }
        self.end_parts(ended);
    }

    fn end_parts(&mut self, ended: Vec<(RequestKey, Status)>) {
        for (request, status) in ended {
            self.end_part(request, 1, status);
        }
    }

    /// Whether tombstones of hosts wait in a stream.
    fn waits_with_trims(&self, stream: Stream) -> bool {
        self.stripes.ready(stream).any(|stripe| self.stripes.holds_trim(stripe))
    }
}
