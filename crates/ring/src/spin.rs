//! How long a wait polls before it sleeps.

use zonda_zoned::Duration;

/// After this many consecutive waits that were too long for polling, polling stops.
const LONG_WAITS_MAX: u64 = 4;
/// From then on every n-th wait polls again: if both sides sleep, each is too slow for the other to
/// poll, until one of them begins.
const TRY_EVERY: u64 = 16;
/// But not when the wait before was longer than this many times the polling time: the peer is idle
/// then.
const TRY_WITHIN: u64 = 16;

/// Adaptive polling: a wait that ends within the longest poll is worth polling for, in others the
/// thread sleeps.
///
/// A wake-up costs several microseconds, on an idle virtual CPU some 25 (measured: 4 KiB random
/// reads at queue depth 1 over loopback take 60 us with both sides asleep, 12 us with both
/// polling). Linux does the same for the virtual CPUs of its guests (`halt_poll_ns`).
#[derive(Debug)]
pub(crate) struct Spin {
    longest: Duration,
    /// Consecutive waits that were too long.
    long_waits: u64,
    /// The wait before this one.
    last: Duration,
}

impl Spin {
    /// Polls for `longest` at most; zero never polls.
    pub(crate) fn new(longest: Duration) -> Spin {
        Spin { longest, long_waits: 0, last: Duration::ZERO }
    }

    /// How long to poll now.
    pub(crate) fn budget(&self) -> Duration {
        let is_worth_a_try = self.long_waits.is_multiple_of(TRY_EVERY) && self.last.0 / TRY_WITHIN <= self.longest.0;
        if self.long_waits < LONG_WAITS_MAX || is_worth_a_try { self.longest } else { Duration::ZERO }
    }

    /// Records a wait that has ended, polled and slept.
    pub(crate) fn waited(&mut self, wait: Duration) {
        self.last = wait;
        self.long_waits = if wait <= self.longest { 0 } else { self.long_waits + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration(50_000);
    const LONG: Duration = Duration(200_000);

    fn after(waits: impl IntoIterator<Item = Duration>) -> Spin {
        let mut spin = Spin::new(LONGEST);
        waits.into_iter().for_each(|wait| spin.waited(wait));
        spin
    }

    #[test]
    fn short_waits_are_polled_and_a_few_long_ones_end_that() {
        assert_eq!(after([]).budget(), LONGEST);
        assert_eq!(after([LONG; 3]).budget(), LONGEST);
        assert_eq!(after([LONG; 4]).budget(), Duration::ZERO);
        assert_eq!(after([LONG, LONG, LONG, LONGEST, LONG]).budget(), LONGEST);
    }

    #[test]
    fn polling_is_retried_now_and_then_and_one_short_wait_resumes_it() {
        let tries = |count| (4..count).filter(|waits| after(vec![LONG; *waits]).budget() == LONGEST).count();
        assert_eq!(tries(64), 3);
        assert_eq!(after([vec![LONG; 64], vec![Duration(1)]].concat()).budget(), LONGEST);
    }

    #[test]
    fn long_idle_waits_are_never_polled() {
        let waits = |count| vec![Duration(1_000_000_000); count];
        assert!((4..100).all(|count| after(waits(count)).budget() == Duration::ZERO));
    }

    #[test]
    fn zero_never_polls() {
        let mut spin = Spin::new(Duration::ZERO);
        (0..40).for_each(|_| {
            spin.waited(Duration(1));
            assert_eq!(spin.budget(), Duration::ZERO);
        });
    }
}
