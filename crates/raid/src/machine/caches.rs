//! Members that may lose what they have acknowledged, until they are flushed: who waits for that.
//!
//! A group of stripes is durable before the next one begins, and headers before the first, so that a mount can believe what one
//! thing says of another; what replaces the contents of a zone is durable before the zone is reset. One round of flushes goes to
//! all members, and serves everybody who waited when it began. Where caches are not volatile nobody waits, and nothing is sent.

use zonda_zoned::{Operation, Status};

use super::Volume;
use super::members::Work;
use super::start::StartStep;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::event::FailReason;
use crate::tables::SegmentIndex;

/// The round under way, and the next one. No table is longer than those of requests and of segments together.
#[derive(Debug, Default)]
pub(super) struct Caches {
    is_under_way: bool,
    /// Members that have not answered.
    pending: u32,
    served: Vec<Waiter>,
    waiting: Vec<Waiter>,
}

/// Who waits until all that was written so far is durable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// A flush of a host.
    Request(u32),
    /// The next group of a segment, or its footer; and the segment's sequence, since an index is used again.
    Barrier(SegmentIndex, u64),
    /// A segment in which nothing is needed.
    Reset(SegmentIndex),
    /// A member that was given all that it lacked.
    Rebuilt(MemberIndex),
    /// A mount that has written anew what was torn.
    Mount,
}

impl Volume {
    /// Whatever comes of it, comes when all that members have acknowledged so far is durable.
    pub(super) fn when_durable(&mut self, waiter: Waiter) {
        let is_careless = matches!(waiter, Waiter::Barrier(..)) && self.spec.has(SeededBug::UnflushedBarrier);
        if self.spec.is_cache_volatile() && !is_careless {
            self.caches.waiting.push(waiter);
        } else {
            self.is_durable_for(waiter);
        }
    }

    /// Nothing follows in a segment before what it has is durable.
    pub(super) fn barrier(&mut self, index: SegmentIndex) {
        let segment = &mut self.segments[index];
        segment.awaits_flush = true;
        let sequence = segment.sequence;
        self.when_durable(Waiter::Barrier(index, sequence));
    }

    /// What a mount reads is to be there after the next crash, too.
    pub(super) fn flush_at_start(&mut self) {
        if self.spec.is_cache_volatile() {
            for member in self.present() {
                self.send_start(member, StartStep::Flush, Operation::Flush);
            }
        }
    }

    /// Begins a round, if somebody waits for one.
    pub(super) fn begin_flushes(&mut self) {
        if self.caches.is_under_way || self.caches.waiting.is_empty() {
            return;
        }
        self.caches.is_under_way = true;
        self.caches.served = std::mem::take(&mut self.caches.waiting);
        for member in self.present() {
            self.caches.pending += 1;
            self.send(member, Work::Flush, Operation::Flush);
        }
    }

    pub(super) fn on_member_flush(&mut self, member: MemberIndex, status: Status) {
        self.caches.pending -= 1;
        // A member that cannot make durable what it acknowledged has lost it, for all that one can know.
        if !status.is_success() && self.members[member.as_usize()].is_there() {
            self.give_up(member, FailReason::Errors);
        }
    }

    /// Ends a round that all members have answered; one that has cost a member, once the others know of it.
    pub(super) fn end_flushes(&mut self) {
        let is_over = self.caches.is_under_way && self.caches.pending == 0 && self.epochs.is_durable();
        if !is_over || self.is_lost() {
            return;
        }
        self.caches.is_under_way = false;
        for waiter in std::mem::take(&mut self.caches.served) {
            self.is_durable_for(waiter);
        }
    }

    fn is_durable_for(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Request(request) => self.end_part(request, 1, Status::Success),
            Waiter::Barrier(index, sequence) => {
                if self.segments.get(index).is_some_and(|segment| segment.sequence == sequence) {
                    self.segments[index].awaits_flush = false;
                    self.close_if_done(index);
                }
            }
            Waiter::Reset(index) => self.reset_zones(index),
            Waiter::Rebuilt(member) => self.rebuild_flushed(member),
            Waiter::Mount => self.flushed_at_mount(),
        }
    }
}
