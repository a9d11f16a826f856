//! Members that may lose what they have acknowledged, until they are flushed: who waits for that.
//!
//! A group of stripes is durable before the next one begins, and headers before the first, so that a mount can believe what one
//! thing says of another; what replaces the contents of a zone is durable before the zone is reset. One round of flushes goes to
//! all members, and serves everybody who waited when it began. Where caches are not volatile nobody waits, and nothing is sent.
//!
//! Verbs, in their order: [`wait`](Caches::wait), [`begin_round`](Caches::begin_round), [`sent`](Caches::sent) and
//! [`answered`](Caches::answered) for each member, [`end_round`](Caches::end_round).

use crate::MemberIndex;
use crate::tables::SegmentIndex;

/// Owns the round of flushes in flight, and who waits for it and for the next one. No table is longer than those of requests and of
/// segments together.
#[derive(Debug, Default)]
pub(super) struct Caches {
    is_in_flight: bool,
    /// Members that have not answered.
    pending: u32,
    served: Vec<Waiter>,
    /// A member that the volume cannot do without has failed its flush: the round is repeated.
    has_failed: bool,
    waiting: Vec<Waiter>,
}

/// Who waits until all that was written so far is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Waiter {
    /// A flush of a host.
    Request(u32),
    /// The next group of a segment, or its footer; and the segment's sequence, since an index is used again.
    Barrier(SegmentIndex, u64),
    /// A segment in which nothing is needed.
    Reset(SegmentIndex),
    /// A member that was given all that it lacked.
    Rebuilt(MemberIndex),
    /// A mount that has rewritten what was torn.
    Mount,
}

impl Caches {
    pub(super) fn wait(&mut self, waiter: Waiter) {
        self.waiting.push(waiter);
    }

    /// Begins a round if there is none and somebody waits for one. Says whether flushes are to be sent.
    pub(super) fn begin_round(&mut self) -> bool {
        if self.is_in_flight || self.waiting.is_empty() {
            return false;
        }
        self.is_in_flight = true;
        self.served = std::mem::take(&mut self.waiting);
        true
    }

    /// A member was sent the flush of the round.
    pub(super) fn sent(&mut self) {
        self.pending += 1;
    }

    /// A member has answered, or never will.
    pub(super) fn answered(&mut self) {
        self.pending -= 1;
    }

    /// The round makes nothing durable: those who wait for it wait for the next one.
    pub(super) fn fail_round(&mut self) {
        self.has_failed = true;
    }

    /// Ends a round that all members have answered, and hands out whom it serves.
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

    /// What holds between events.
    ///
    /// # Panics
    /// When it does not.
    pub(super) fn check_invariants(&self) {
        assert!(self.is_in_flight || self.pending == 0 && self.served.is_empty(), "only a round has flushes in flight");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_serves_those_who_waited_when_it_began() {
        let mut caches = Caches::default();
        assert!(!caches.begin_round(), "nobody waits");
        caches.wait(Waiter::Request(1));
        assert!(caches.begin_round());
        caches.sent();
        caches.sent();
        caches.wait(Waiter::Request(2));
        assert!(!caches.begin_round(), "one round at a time");
        caches.answered();
        assert_eq!(caches.end_round(), []);
        caches.answered();
        assert_eq!(caches.end_round(), [Waiter::Request(1)]);
        caches.check_invariants();
        assert!(caches.begin_round());
        assert_eq!(caches.end_round(), [Waiter::Request(2)], "no member is left to be flushed");
    }

    #[test]
    fn those_whom_a_round_that_failed_would_have_served_wait_for_the_next_one() {
        let mut caches = Caches::default();
        caches.wait(Waiter::Request(1));
        assert!(caches.begin_round());
        caches.sent();
        caches.wait(Waiter::Request(2));
        caches.fail_round();
        caches.answered();
        assert_eq!(caches.end_round(), []);
        assert!(caches.begin_round());
        assert_eq!(caches.end_round(), [Waiter::Request(1), Waiter::Request(2)]);
    }
}
