//! The keep alive timer (NVMe Base 2.0, section 3.9): a controller disconnects a host that has sent
//! no command for this time.

use zonda_zoned::{Duration, Instant};

/// The action at a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepAliveAction {
    /// No action.
    None,
    /// Send a Keep Alive command.
    Send,
    /// The last Keep Alive command has not completed within the keep alive timeout.
    TimedOut,
}

/// When to send the next Keep Alive command.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    timeout: Option<Duration>,
    next: Option<Instant>,
    unanswered_since: Option<Instant>,
    /// Any command restarts the controller's timer (TBKAS).
    traffic_counts: bool,
    has_traffic: bool,
}

impl KeepAlive {
    pub(crate) fn new(timeout: Option<Duration>) -> KeepAlive {
        KeepAlive { timeout, next: None, unanswered_since: None, traffic_counts: false, has_traffic: false }
    }

    /// Starts the timer together with the controller's.
    pub(crate) fn start(&mut self, now: Instant) {
        self.stop();
        self.next = self.timeout.map(|timeout| now + self.interval(timeout));
    }

    pub(crate) fn stop(&mut self) {
        *self = KeepAlive::new(self.timeout);
    }

    /// Any command restarts the controller's timer (TBKAS).
    pub(crate) fn count_traffic(&mut self) {
        self.traffic_counts = true;
    }

    /// A command has completed.
    #[inline]
    pub(crate) fn note_traffic(&mut self) {
        self.has_traffic = true;
    }

    /// The Keep Alive command has completed.
    pub(crate) fn answered(&mut self) {
        self.unanswered_since = None;
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// The time of `next_timeout` has been reached.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> KeepAliveAction {
        let (Some(timeout), Some(next)) = (self.timeout, self.next) else { return KeepAliveAction::None };
        if now < next {
            return KeepAliveAction::None;
        }
        self.next = Some(now + self.interval(timeout));
        if let Some(since) = self.unanswered_since {
            return if now.since(since) >= timeout { KeepAliveAction::TimedOut } else { KeepAliveAction::None };
        }
        if std::mem::take(&mut self.has_traffic) && self.traffic_counts {
            return KeepAliveAction::None;
        }
        self.unanswered_since = Some(now);
        KeepAliveAction::Send
    }

    /// Half the timeout. A quarter if traffic counts: a command may complete right after a timeout,
    /// and the next Keep Alive is skipped for it.
    fn interval(&self, timeout: Duration) -> Duration {
        Duration(timeout.0 / if self.traffic_counts { 4 } else { 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration(100);

    #[test]
    fn a_keep_alive_is_sent_every_half_timeout() {
        let mut timer = KeepAlive::new(Some(TIMEOUT));
        assert_eq!(timer.next_timeout(), None);
        timer.start(Instant(0));
        assert_eq!(timer.on_timeout(Instant(49)), KeepAliveAction::None);
        for time in [50, 100, 150] {
            assert_eq!(timer.next_timeout(), Some(Instant(time)));
            assert_eq!(timer.on_timeout(Instant(time)), KeepAliveAction::Send);
            timer.answered();
        }
    }

    #[test]
    fn no_completion_for_a_whole_timeout_is_a_failure() {
        let mut timer = KeepAlive::new(Some(TIMEOUT));
        timer.start(Instant(0));
        assert_eq!(timer.on_timeout(Instant(50)), KeepAliveAction::Send);
        assert_eq!(timer.on_timeout(Instant(100)), KeepAliveAction::None);
        assert_eq!(timer.on_timeout(Instant(150)), KeepAliveAction::TimedOut);
    }

    #[test]
    fn traffic_replaces_keep_alives_if_the_controller_counts_it() {
        let mut timer = KeepAlive::new(Some(TIMEOUT));
        timer.start(Instant(0));
        timer.note_traffic();
        assert_eq!(timer.on_timeout(Instant(50)), KeepAliveAction::Send);
        timer.answered();
        timer.count_traffic();
        timer.note_traffic();
        assert_eq!(timer.on_timeout(Instant(100)), KeepAliveAction::None);
        assert_eq!(timer.on_timeout(Instant(125)), KeepAliveAction::Send, "no command has completed since");
    }

    #[test]
    fn without_a_timeout_no_keep_alive_is_sent() {
        let mut timer = KeepAlive::new(None);
        timer.start(Instant(0));
        assert_eq!((timer.next_timeout(), timer.on_timeout(Instant(1000))), (None, KeepAliveAction::None));
    }
}
