//! Suspended I/O: members that the volume needs are never failed.
//!
//! An unresponsive member is waited for. A member whose commands fail is retried every
//! [`RETRY_AFTER`]; until then nothing is written to any member, since a stripe counts only if all
//! its members have their chunks. The same holds after a write for which a member is out of space
//! (Capacity Exceeded), whether the volume needs the member or not: space is shared.
//!
//! Operations, in their order: [`suspend`](Suspensions::suspend) or
//! [`suspend_for_space`](Suspensions::suspend_for_space), then
//! [`may_write`](Suspensions::may_write) and [`retry_due`](Suspensions::retry_due), at last
//! [`answered`](Suspensions::answered).

use zonda_zoned::{Duration, Instant};

use crate::MemberIndex;
use crate::event::FailReason;

/// Interval between write retries after a needed member has failed, or a member was out of space.
pub(in crate::machine) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Owns the reasons for which I/O is suspended.
#[derive(Debug, Default)]
pub(super) struct Suspensions {
    /// At most one per member.
    members: Vec<Suspension>,
    /// Until then writes end for lack of space without being tried.
    full_until: Option<Instant>,
}

#[derive(Debug)]
struct Suspension {
    member: MemberIndex,
    reason: FailReason,
    /// When its commands are retried; `None`: its outstanding commands are waited for.
    retry_at: Option<Instant>,
}

impl Suspensions {
    /// A needed member is unresponsive, or fails. Returns whether it was not suspended for that
    /// before.
    pub(super) fn suspend(&mut self, now: Instant, member: MemberIndex, reason: FailReason) -> bool {
        let retry_at = (reason != FailReason::Timeout).then(|| now + RETRY_AFTER);
        match self.members.iter_mut().find(|suspension| suspension.member == member) {
            Some(known) => {
                known.retry_at = retry_at.or(known.retry_at);
                false
            }
            None => {
                self.members.push(Suspension { member, reason, retry_at });
                true
            }
        }
    }

    /// A member has no space for a write. Returns whether writes were not suspended before.
    pub(super) fn suspend_for_space(&mut self, now: Instant) -> bool {
        self.full_until.replace(now + RETRY_AFTER).is_none()
    }

    /// A command of a member has completed; `is_write`: it was a successful write. Returns whether
    /// the member is not suspended any longer.
    #[inline]
    pub(super) fn answered(&mut self, member: MemberIndex, is_write: bool) -> bool {
        if self.members.is_empty() {
            return false;
        }
        let before = self.members.len();
        self.members.retain(|known| known.member != member || !is_write && known.reason != FailReason::Timeout);
        self.members.len() < before
    }

    /// A stripe was written: there is space. Returns whether writes were suspended.
    #[inline]
    pub(super) fn space_found(&mut self, now: Instant) -> bool {
        self.full_until.take_if(|until| *until <= now).is_some()
    }

    /// A member is not needed any more. If no command of it has failed since its last retry was
    /// due, it is an ordinary member from now on: its next command reveals its state. Returns
    /// whether that is so.
    pub(super) fn release(&mut self, now: Instant, member: MemberIndex) -> bool {
        let before = self.members.len();
        self.members.retain(|known| known.member != member || known.retry_at.is_none_or(|at| at > now));
        self.members.len() < before
    }

    /// A member is failed after all, or replaced.
    pub(super) fn forget(&mut self, member: MemberIndex) {
        self.members.retain(|known| known.member != member);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberIndex, FailReason)> + '_ {
        self.members.iter().map(|known| (known.member, known.reason))
    }

    pub(super) fn reason(&self, member: MemberIndex) -> Option<FailReason> {
        self.iter().find(|&(known, _)| known == member).map(|(_, reason)| reason)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether writes end for lack of space.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_until.is_some_and(|until| until > now)
    }

    /// Whether members may be sent writes.
    #[inline]
    pub(super) fn may_write(&self, now: Instant) -> bool {
        !self.is_full(now) && self.members.iter().all(|known| known.retry_at.is_none_or(|at| at <= now))
    }

    /// When writes to members may be retried, if they are suspended.
    pub(super) fn retry_due(&self, now: Instant) -> Option<Instant> {
        let members = self.members.iter().filter_map(|known| known.retry_at);
        members.chain(self.full_until).filter(|&at| at > now).min()
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self) {
        for (at, known) in self.members.iter().enumerate() {
            let is_again = self.members[..at].iter().any(|other| other.member == known.member);
            assert!(!is_again, "a member is suspended once");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberIndex = MemberIndex(0);
    const B: MemberIndex = MemberIndex(1);

    #[test]
    fn an_unresponsive_member_blocks_no_writes_and_any_completion_resumes_it() {
        let mut suspensions = Suspensions::default();
        assert!(suspensions.suspend(Instant(5), A, FailReason::Timeout));
        assert!(!suspensions.suspend(Instant(6), A, FailReason::Timeout), "no news");
        assert!(suspensions.may_write(Instant(6)) && suspensions.retry_due(Instant(6)).is_none());
        assert!(!suspensions.answered(B, true));
        assert_eq!(suspensions.reason(A), Some(FailReason::Timeout));
        assert!(suspensions.answered(A, false) && suspensions.is_empty());
    }

    #[test]
    fn a_member_that_fails_is_tried_again_after_a_while_until_it_writes() {
        let mut suspensions = Suspensions::default();
        assert!(suspensions.suspend(Instant(5), A, FailReason::Errors));
        let due = Instant(5) + RETRY_AFTER;
        assert_eq!((suspensions.may_write(Instant(5)), suspensions.retry_due(Instant(5))), (false, Some(due)));
        assert!(suspensions.may_write(due) && !suspensions.answered(A, false), "a read does not resume writes");
        assert!(!suspensions.suspend(due, A, FailReason::Errors) && !suspensions.may_write(due));
        suspensions.check_invariants();
        assert!(suspensions.answered(A, true) && suspensions.may_write(due));
    }

    #[test]
    fn a_member_that_is_not_needed_any_more_is_released_once_it_may_be_tried_again() {
        let mut suspensions = Suspensions::default();
        assert!(suspensions.suspend(Instant(5), A, FailReason::Errors));
        assert!(suspensions.suspend(Instant(5), B, FailReason::Timeout));
        let due = Instant(5) + RETRY_AFTER;
        assert!(!suspensions.release(Instant(due.0 - 1), A), "it has failed just now");
        assert!(!suspensions.release(due, B), "it has not answered");
        assert!(suspensions.release(due, A));
        assert_eq!((suspensions.reason(A), suspensions.reason(B)), (None, Some(FailReason::Timeout)));
    }

    #[test]
    fn writes_are_retried_after_a_while_and_resume_once_one_succeeds() {
        let mut suspensions = Suspensions::default();
        assert!(suspensions.suspend_for_space(Instant(5)) && !suspensions.suspend_for_space(Instant(6)));
        assert!(suspensions.is_full(Instant(6)) && !suspensions.may_write(Instant(6)));
        assert!(!suspensions.space_found(Instant(7)), "writes submitted before do not count");
        let later = Instant(6) + RETRY_AFTER;
        assert!(!suspensions.is_full(later) && suspensions.space_found(later) && !suspensions.space_found(later));
    }
}
