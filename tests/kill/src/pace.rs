//! How fast a host submits commands, which another thread changes.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// The pace of a host.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    /// The least time between two commands; `None` while the host is paused.
    interval: Option<Duration>,
    /// When the interval was last changed.
    since: Instant,
    /// When the next command may be submitted.
    next: Instant,
}

impl Pace {
    /// A paused host.
    pub(crate) fn paused() -> Pace {
        let now = Instant::now();
        Pace(Mutex::new(State { interval: None, since: now, next: now }))
    }

    /// Submits commands at least `interval` apart; zero: as fast as they complete.
    pub(crate) fn run(&self, interval: Duration) {
        self.set(Some(interval));
    }

    /// Submits no commands.
    pub(crate) fn pause(&self) {
        self.set(None);
    }

    /// For how long the host has been running, at any pace.
    pub(crate) fn running_for(&self) -> Option<Duration> {
        let state = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.interval.map(|_| state.since.elapsed())
    }

    /// For how long the host has been paused.
    pub(crate) fn paused_for(&self) -> Option<Duration> {
        let state = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.interval.is_none().then(|| state.since.elapsed())
    }

    /// Whether a command may be submitted now; it counts as submitted then.
    pub(crate) fn admits(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(interval) = state.interval else { return false };
        if now < state.next {
            return false;
        }
        state.next = now + interval;
        true
    }

    fn set(&self, interval: Option<Duration>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.interval.is_some() != interval.is_some() {
            state.since = now;
        }
        (state.interval, state.next) = (interval, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_host_submits_nothing_and_a_slow_one_waits() {
        let pace = Pace::paused();
        assert!(!pace.admits() && pace.paused_for().is_some() && pace.running_for().is_none());
        pace.run(Duration::ZERO);
        assert!(pace.admits() && pace.admits() && pace.running_for().is_some());
        pace.run(Duration::from_secs(3_600));
        assert!(pace.admits(), "the first command after a change does not wait");
        assert!(!pace.admits());
        pace.pause();
        assert!(!pace.admits() && pace.paused_for().is_some());
    }
}
