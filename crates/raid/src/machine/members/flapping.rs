//! Members that fail and come back again and again, and members that stop answering for a while again and again without ever being
//! silent for as long as it takes to fail.
//!
//! A look is taken once a second while a command is in flight. A second counts for a member that has answered nothing for
//! [`STALL_MIN`] although it has commands in flight; it counts for none where more members stall at the same time than the volume can
//! do without, since then it is the network, or this machine. Slow members that go on answering do not stall.

use std::collections::VecDeque;

use zonda_zoned::{Duration, Instant};

use crate::limits::{RETURNS_MAX, RETURNS_WINDOW, STALL_WINDOW_SECONDS, STALLED_SECONDS_MAX};

/// Owns what is known of one member's stalls and returns.
#[derive(Debug, Default)]
pub(super) struct Flapping {
    /// A bit for each of the last seconds: whether it stalled. The lowest one is that of the last look.
    stalled: u64,
    looked_at: Instant,
    /// When a command of it ended last.
    answered_at: Instant,
    /// When it was taken back.
    returns: VecDeque<Instant>,
}

impl Flapping {
    /// A command has ended.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant) {
        self.answered_at = now;
    }

    /// Since when nothing was answered, of a member with a command in flight since `oldest`.
    pub(super) fn silent_since(&self, oldest: Instant) -> Instant {
        oldest.max(self.answered_at)
    }

    /// Nobody has looked at completions for a while.
    pub(super) fn excuse(&mut self, by: Duration) {
        self.answered_at += by;
        self.looked_at += by;
    }

    /// A look at `now`: whether the member stalls.
    pub(super) fn look(&mut self, now: Instant, is_stalled: bool) {
        let seconds = (now.since(self.looked_at).0 / 1_000_000_000).min(u64::from(STALL_WINDOW_SECONDS)) as u32;
        if seconds == 0 {
            return;
        }
        self.looked_at = now;
        let window = (1u64 << STALL_WINDOW_SECONDS) - 1;
        self.stalled = (self.stalled << seconds & window) | u64::from(is_stalled);
    }

    /// Whether it stalled in too many of the last seconds.
    pub(super) fn stalls(&self) -> bool {
        self.stalled.count_ones() > STALLED_SECONDS_MAX
    }

    /// It was taken back. What it did before it had failed does not count any more.
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

    /// An operator has it taken back: it begins anew.
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
            flapping.look(at(second), true);
        }
        assert!(!flapping.stalls());
        flapping.look(at(31), true);
        assert!(flapping.stalls());
        flapping.look(at(62), false);
        assert!(!flapping.stalls(), "two of these seconds are longer ago than the window");
    }

    #[test]
    fn stalls_that_are_short_or_long_ago_do_not_count() {
        let mut flapping = Flapping::default();
        for second in 1..600 {
            flapping.look(at(second), second % 3 == 0);
            assert!(!flapping.stalls(), "at {second}");
        }
        flapping.look(at(100_000), true);
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
    fn silence_begins_with_the_last_answer_or_the_oldest_command() {
        let mut flapping = Flapping::default();
        flapping.answered(at(5));
        assert_eq!((flapping.silent_since(at(3)), flapping.silent_since(at(7))), (at(5), at(7)));
        flapping.excuse(Duration::from_secs(2));
        assert_eq!(flapping.silent_since(at(3)), at(7));
    }
}
