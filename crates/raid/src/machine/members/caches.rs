//! Volatile caches of members, and the operations that wait for flushes.
//!
//! A group of stripes is durable before the next one begins, and headers before the first, so that
//! a mount can rely on the order; blocks that replace the contents of a zone are durable before the
//! zone is reset. One round of flushes goes to all members, and serves all waiters that were queued
//! when it began. Without volatile caches nothing waits, and nothing is sent.
//!
//! Operations, in their order: [`wait`](Caches::wait), [`begin_round`](Caches::begin_round),
//! [`sent`](Caches::sent) and [`answered`](Caches::answered) for each member,
//! [`end_round`](Caches::end_round).

use super::super::requests::RequestKey;
use crate::MemberIndex;
use crate::tables::SegmentIndex;

/// Owns the round of flushes in flight, and the waiters for it and for the next one. No table is
/// longer than those of requests and of segments together.
#[derive(Debug, Default)]
pub(super) struct Caches {
    is_in_flight: bool,
    /// Members that have not completed their flush.
    pending: u32,
    served: Vec<Waiter>,
    /// The flush of a member that the volume needs has failed: the round is repeated.
    has_failed: bool,
    waiting: Vec<Waiter>,
}

/// An operation that waits until everything written so far is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Waiter {
    /// A flush of a host.
    Request(RequestKey),
    /// The next group of a segment, or its footer; with the segment's sequence number, since
    /// indices are reused.
    Barrier(SegmentIndex, u64),
    /// A segment in which nothing is needed.
    Reset(SegmentIndex),
    /// A member whose rebuild is complete but for the flush.
    Rebuilt(MemberIndex),
    /// A mount that has rewritten torn blocks.
    Mount,
}

impl Caches {
    pub(super) fn wait(&mut self, waiter: Waiter) {
        self.waiting.push(waiter);
    }

    /// Begins a round if none is in flight and a waiter is queued. Returns whether flushes are to
    /// be sent.
    pub(super) fn begin_round(&mut self) -> bool {
        if self.is_in_flight || self.waiting.is_empty() {
            return false;
        }
        assert!(self.pending == 0 && self.served.is_empty(), "a round begins after the previous one");
        self.is_in_flight = true;
        self.served = std::mem::take(&mut self.waiting);
        true
    }

    /// A flush of the round was sent to a member.
    pub(super) fn sent(&mut self) {
        assert!(self.is_in_flight, "flushes are sent in a round");
        self.pending += 1;
    }

    /// A member has completed its flush, or never will.
    pub(super) fn answered(&mut self) {
        self.pending -= 1;
    }

    /// The round makes nothing durable: its waiters wait for the next one.
    pub(super) fn fail_round(&mut self) {
        self.has_failed = true;
    }

    /// Ends a round that all members have completed, and returns its waiters.
    pub(super) fn end_round(&mut self) -> Vec<Waiter> {
        if !self.is_in_flight || self.pending > 0 {
            return Vec::new();
        }
        self.is_in_flight = false;
        let mut served = std::mem::take(&mut self.served);
        if std::mem::take(&mut self.has_failed) {
            served.append(&mut self.waiting);
            self.waiting = served;
            return Vec::new();
        }
        served
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self) {
        assert!(self.is_in_flight || self.pending == 0 && self.served.is_empty(), "only a round has flushes in flight");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::key;
    use super::*;

    #[test]
    fn a_round_serves_those_who_waited_when_it_began() {
        let mut caches = Caches::default();
        assert!(!caches.begin_round(), "no waiter is queued");
        caches.wait(Waiter::Request(key(1)));
        assert!(caches.begin_round());
        caches.sent();
        caches.sent();
        caches.wait(Waiter::Request(key(2)));
        assert!(!caches.begin_round(), "one round at a time");
        caches.answered();
        assert_eq!(caches.end_round(), []);
        caches.answered();
        assert_eq!(caches.end_round(), [Waiter::Request(key(1))]);
        caches.check_invariants();
        assert!(caches.begin_round());
        assert_eq!(caches.end_round(), [Waiter::Request(key(2))], "no member is left to be flushed");
    }

    #[test]
    fn waiters_of_a_failed_round_wait_for_the_next_one() {
        let mut caches = Caches::default();
        caches.wait(Waiter::Request(key(1)));
        assert!(caches.begin_round());
        caches.sent();
        caches.wait(Waiter::Request(key(2)));
        caches.fail_round();
        caches.answered();
        assert_eq!(caches.end_round(), []);
        assert!(caches.begin_round());
        assert_eq!(caches.end_round(), [Waiter::Request(key(1)), Waiter::Request(key(2))]);
    }
}
