//! Members that repeatedly fail and return, and members that repeatedly stop answering for a while
//! without ever timing out.
//!
//! Members with commands in flight are checked once a second. A second counts for a member that has
//! completed nothing for [`STALL_MIN`] although it has commands in flight; it counts for none where
//! more members stall at the same time than the volume tolerates to lose, since then the cause is
//! the network, or this machine. Slow members that keep completing commands do not stall.

use std::collections::VecDeque;

use zonda_zoned::{Duration, Instant};

use crate::limits::{RETURNS_MAX, RETURNS_WINDOW, STALL_WINDOW_SECONDS, STALLED_SECONDS_MAX};

/// Owns the history of one member's stalls and returns.
#[derive(Debug, Default)]
pub(super) struct Flapping {
    /// A bit for each of the last seconds: whether it stalled. The lowest one is that of the last
    /// check.
    stalled: u64,
    checked_at: Instant,
    /// When a command last completed.
    answered_at: Instant,
    /// When it was re-added.
    returns: VecDeque<Instant>,
}

impl Flapping {
    /// A command has completed.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant) {
        self.answered_at = now;
    }

    /// When a command last completed.
    pub(super) fn answered_at(&self) -> Instant {
        self.answered_at
    }

    /// Since when nothing was completed, for a member with a command in flight since `oldest`.
    pub(super) fn unresponsive_since(&self, oldest: Instant) -> Instant {
        oldest.max(self.answered_at)
    }

    /// Completions were not processed for a while.
    pub(super) fn excuse(&mut self, by: Duration) {
        self.answered_at += by;
        self.checked_at += by;
    }

    /// Records at `now` whether the member stalls.
    pub(super) fn sample(&mut self, now: Instant, is_stalled: bool) {
        let seconds = (now.since(self.checked_at).0 / 1_000_000_000).min(u64::from(STALL_WINDOW_SECONDS)) as u32;
        if seconds == 0 {
            return;
        }
        self.checked_at = now;
        let window = (1u64 << STALL_WINDOW_SECONDS) - 1;
        self.stalled = (self.stalled << seconds & window) | u64::from(is_stalled);
    }

    /// Whether it stalled in too many of the last seconds.
    pub(super) fn stalls(&self) -> bool {
        self.stalled.count_ones() > STALLED_SECONDS_MAX
    }

    /// The member was re-added. Stalls before its failure do not count any more.
    pub(super) fn returned(&mut self, now: Instant) {
        self.stalled = 0;
        self.returns.push_back(now);
        while self.returns.len() > RETURNS_MAX {
            self.returns.pop_front();
        }
    }

    /// Whether a failure now is one too many.
    pub(super) fn has_returned_too_often(&self, now: Instant) -> bool {
        self.returns.len() == RETURNS_MAX && self.returns.front().is_some_and(|&first| now < first + RETURNS_WINDOW)
    }

    /// An operator re-added it: the history is reset.
    pub(super) fn forgive(&mut self) {
        self.stalled = 0;
        self.returns.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn a_member_that_stalls_in_more_than_half_of_the_last_minute_flaps() {
        let mut flapping = Flapping::default();
        for second in 1..=u64::from(STALLED_SECONDS_MAX) {
            flapping.sample(at(second), true);
        }
        assert!(!flapping.stalls());
        flapping.sample(at(31), true);
        assert!(flapping.stalls());
        flapping.sample(at(62), false);
        assert!(!flapping.stalls(), "two of these seconds are longer ago than the window");
    }

    #[test]
    fn stalls_that_are_short_or_long_ago_do_not_count() {
        let mut flapping = Flapping::default();
        for second in 1..600 {
            flapping.sample(at(second), second % 3 == 0);
            assert!(!flapping.stalls(), "at {second}");
        }
        flapping.sample(at(100_000), true);
        assert!(!flapping.stalls());
    }

    #[test]
    fn a_member_that_has_returned_three_times_within_ten_minutes_is_failed_for_it() {
        let mut flapping = Flapping::default();
        for second in [0, 100, 599] {
            assert!(!flapping.has_returned_too_often(at(second)));
            flapping.returned(at(second));
        }
        assert!(flapping.has_returned_too_often(at(599)));
        assert!(!flapping.has_returned_too_often(at(600)), "the first time is too long ago");
        flapping.forgive();
        assert!(!flapping.has_returned_too_often(at(599)));
    }

    #[test]
    fn the_timeout_starts_at_the_last_completion_or_the_oldest_command() {
        let mut flapping = Flapping::default();
        flapping.answered(at(5));
        assert_eq!((flapping.unresponsive_since(at(3)), flapping.unresponsive_since(at(7))), (at(5), at(7)));
        flapping.excuse(Duration::from_secs(2));
        assert_eq!(flapping.unresponsive_since(at(3)), at(7));
    }
}
