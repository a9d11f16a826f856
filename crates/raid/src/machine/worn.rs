//! Volumes that have no room left and win none back. What waits for room ends with an error instead of waiting for ever; reads
//! go on, and so do trims, which make room: their tombstones go where only relocation writes else.
//!
//! That comes to pass when zones wear out, on members that the volume cannot do without. No state remembers it: once there is
//! room again, writes are taken as before.

use zonda_zoned::Status;

use super::Volume;
use super::write::{NO_REQUEST, Source};
use crate::MemberIndex;
use crate::event::FailReason;
use crate::format::{PADDING_LBA, Tombstone};
use crate::limits::RELOCATION_SEGMENTS;
use crate::shape::Stream;
use crate::tables::{Address, SegmentIndex, SegmentState};

/// How a write or a trim ends for which there is no room.
const NO_ROOM: Status = Status::ZoneIsFull;

impl Volume {
    /// Ends what waits for a segment that will never open. Says whether that changes what others can do.
    pub(super) fn end_if_worn(&mut self) -> bool {
        for stream in [Stream::Small, Stream::Large] {
            if self.is_without_segment(stream) && !self.comes_to_room(stream) {
                if let Some(worn) = self.narrowest_member() {
                    self.evict(worn, FailReason::Errors);
                } else if let Some(idle) = self.idle_segment(stream) {
                    self.segments.break_off(&self.spec, &mut self.members, idle);
                } else {
                    self.end_ready(stream);
                }
                return true;
            }
        }
        let stream = Stream::Relocation;
        let is_worn = self.is_without_segment(stream) && self.has_trims(stream) && !self.comes_to_room(stream);
        if is_worn {
            self.end_trims_in_relocation();
        }
        is_worn
    }

    /// Whether stripes wait, no segment is open for them, and none can be opened now.
    fn is_without_segment(&self, stream: Stream) -> bool {
        !self.stream(stream).ready.is_empty() && self.is_shut(stream)
    }

    fn is_shut(&self, stream: Stream) -> bool {
        self.segments.open(stream).is_empty()
            && self.members.is_epoch_durable()
            && !self.segments.may_open(self.space(), stream)
    }

    /// Whether something is under way that may make room, or show that there is some.
    fn comes_to_room(&self, stream: Stream) -> bool {
        let mut others = [Stream::Small, Stream::Large].into_iter().filter(|&other| other != stream);
        let is_written = |other: Stream| {
            let state = self.stream(other);
            !self.segments.open(other).is_empty() && (state.filling.is_some() || !state.ready.is_empty())
        };
        self.collection_moves() || others.any(is_written) || self.segments_move() || self.rebuild_progress().is_some()
    }

    /// Whether garbage collection has no room to move anything to, and will have none: hosts need not wait for it.
    pub(super) fn is_collection_stopped(&self) -> bool {
        self.is_without_segment(Self::MOVED_TO)
            && !self.collection_moves()
            && !self.segments_move()
            && self.rebuild_progress().is_none()
    }

    /// Whether segments are being opened, written, closed, or emptied of the last readers.
    fn segments_move(&self) -> bool {
        self.segments.iter().any(|(_, segment)| match segment.state {
            SegmentState::Opening | SegmentState::Closing | SegmentState::Resetting => true,
            SegmentState::Open => segment.in_flight > 0 || segment.is_broken || segment.awaits_flush,
            SegmentState::Sealed => segment.live_blocks == 0 && segment.tombstones.is_empty(),
        })
    }

    /// Whether garbage collection goes on, or will when those who read let go of what could be collected.
    fn collection_moves(&self) -> bool {
        if !self.collector.is_idle() {
            let is_stopped = self.is_without_segment(Self::MOVED_TO);
            // It does not go ahead of hosts while there is room for it: then it is not what they wait for.
            let is_paced = self.collector.has_more()
                && self.collector.waiting_blocks == 0
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
                worth += self.worth(segment);
            }
        }
        is_held && worth + self.room_for_moves() >= self.spec.shape.data_blocks(self.spec.shape.layout(Self::MOVED_TO))
    }

    /// A member that has lost zones, without which there would be room, and which the volume can do without.
    fn narrowest_member(&self) -> Option<MemberIndex> {
        let zones = |member: MemberIndex| self.members[member].free_zones();
        let narrowest = self.members.present().min_by_key(|&member| zones(member))?;
        let has_lost_zones = !(self.members[narrowest].retired_zones() == 0);
        let others = self.members.present().filter(|&member| member != narrowest).map(zones).min()?;
        let reserve = RELOCATION_SEGMENTS + self.space().mount_segments();
        let is_the_one = zones(narrowest) <= reserve && others > reserve;
        (has_lost_zones && is_the_one && self.members.can_spare(&self.spec, narrowest)).then_some(narrowest)
    }

    /// A segment that is open for requests of the other kind, and that nobody writes to: closed, it can be collected, and others can
    /// be open.
    fn idle_segment(&self, stream: Stream) -> Option<SegmentIndex> {
        let others = [Stream::Small, Stream::Large].into_iter().filter(|&other| other != stream);
        others.into_iter().find_map(|other| self.segments.open(other).first().copied())
    }

    /// Ends the stripes of hosts that wait in a stream. Tombstones in them go on, as long as they can go anywhere.
    fn end_ready(&mut self, stream: Stream) {
        let mut ended: Vec<(u32, Status)> = Vec::new();
        let may_move = !self.is_shut(Self::MOVED_TO);
        while let Some(index) = self.stream_mut(stream).ready.pop_front() {
            for at in 0..self.stripes[index].blocks.len() as u32 {
                let block = &mut self.stripes[index].blocks[at as usize];
                let source = std::mem::replace(&mut block.source, Source::Host { request: NO_REQUEST });
                match source {
                    Source::Host { request } => {
                        self.withdraw_block(index, at);
                        self.buffered_blocks -= 1;
                        if request != NO_REQUEST {
                            ended.push((request, NO_ROOM));
                        }
                    }
                    Source::Trim { request, tombstones, olds } if may_move => {
                        self.move_trim(index, at, request, tombstones, olds);
                    }
                    Source::Trim { request, tombstones, olds } => {
                        self.withdraw_trim(index, at, &tombstones, &olds);
                        self.buffered_blocks -= 1;
                        ended.push((request, NO_ROOM));
                    }
                    Source::Moved { .. } | Source::MovedTombstones { .. } => {
                        unreachable!("what is moved has a stream of its own")
                    }
                }
            }
            let stripe = self.stripes.remove(index);
            ended.extend(stripe.flushes.into_iter().map(|request| (request, Status::Success)));
        }
        if may_move && self.has_trims_filling() {
            self.pad(Self::MOVED_TO);
        }
        self.end_parts(ended);
    }

    fn end_parts(&mut self, ended: Vec<(u32, Status)>) {
        for (request, status) in ended {
            self.end_part(request, 1, status);
        }
    }

    /// A block that was written is not: what it would have replaced stays.
    fn withdraw_block(&mut self, index: u32, at: u32) {
        let block = &mut self.stripes[index].blocks[at as usize];
        if block.is_superseded {
            return;
        }
        let (lba, old) = (block.lba, std::mem::take(&mut block.old));
        self.take_over(lba, Address::buffered(index, at), old);
    }

    /// Tombstones are not written: what they would have replaced stays.
    fn withdraw_trim(&mut self, index: u32, at: u32, tombstones: &[Tombstone], olds: &[Address]) {
        for (lba, &old) in tombstones.iter().flat_map(Tombstone::lbas).zip(olds) {
            if old != Address::SUPERSEDED {
                self.take_over(lba, Address::buffered(index, at), old);
            }
        }
        self.trims.arrived(olds.len());
        self.give_up_trims(NO_ROOM);
    }

    /// Tombstones go to another stream.
    fn move_trim(&mut self, index: u32, at: u32, request: u32, tombstones: Vec<Tombstone>, olds: Vec<Address>) {
        let timestamp = self.stripes[index].blocks[at as usize].timestamp;
        let data = self.spec.tombstone_block(&tombstones);
        let lbas: Vec<u64> = tombstones.iter().flat_map(Tombstone::lbas).collect();
        let is_current: Vec<bool> = olds.iter().map(|&old| old != Address::SUPERSEDED).collect();
        let source = Source::Trim { request, tombstones, olds };
        let block = super::write::Block::tombstones(source, timestamp);
        let (stripe, block) = self.push_block(Self::MOVED_TO, block, data);
        for (lba, _) in lbas.into_iter().zip(is_current).filter(|(_, is_current)| *is_current) {
            self.take_over(lba, Address::buffered(index, at), Address::buffered(stripe, block));
        }
    }

    fn has_trims(&self, stream: Stream) -> bool {
        self.stream(stream).ready.iter().any(|&stripe| self.holds_trim(stripe))
    }

    fn has_trims_filling(&self) -> bool {
        self.stream(Self::MOVED_TO).filling.is_some_and(|stripe| self.holds_trim(stripe))
    }

    fn holds_trim(&self, stripe: u32) -> bool {
        self.stripes[stripe].blocks.iter().any(|block| matches!(block.source, Source::Trim { .. }))
    }

    /// Not even relocation has room: tombstones that wait there become padding.
    fn end_trims_in_relocation(&mut self) {
        let mut ended = Vec::new();
        let stripes: Vec<u32> = self.stream(Self::MOVED_TO).ready.iter().copied().collect();
        for index in stripes {
            for at in 0..self.stripes[index].blocks.len() as u32 {
                let block = &mut self.stripes[index].blocks[at as usize];
                if !matches!(block.source, Source::Trim { .. }) {
                    continue;
                }
                let source = std::mem::replace(&mut block.source, Source::Host { request: NO_REQUEST });
                (block.lba, block.timestamp, block.is_superseded) = (PADDING_LBA, 0, true);
                if let Source::Trim { request, tombstones, olds } = source {
                    self.withdraw_trim(index, at, &tombstones, &olds);
                    ended.push((request, NO_ROOM));
                }
            }
            let flushes = std::mem::take(&mut self.stripes[index].flushes);
            ended.extend(flushes.into_iter().map(|request| (request, Status::Success)));
        }
        self.end_parts(ended);
    }
}
