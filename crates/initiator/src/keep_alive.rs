//! The keep alive timer (NVMe Base 2.0, section 3.9): a controller gives up a host that it has not heard of for so long.

use zonda_zoned::{Duration, Instant};

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// Nothing.
    Nothing,
    /// Send a Keep Alive command.
    Send,
    /// The last one has had no answer for the whole timeout.
    Silent,
}

/// When to send the next Keep Alive command.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    timeout: Option<Duration>,
    next: Option<Instant>,
    unanswered_since: Option<Instant>,
    /// Commands restart the controller's timer, too (TBKAS), and one has been answered since the last beat.
    traffic_counts: bool,
    heard: bool,
}

impl KeepAlive {
    pub(crate) fn new(timeout: Option<Duration>) -> KeepAlive {
        KeepAlive { timeout, next: None, unanswered_since: None, traffic_counts: false, heard: false }
    }

    /// The controller's timer runs.
    pub(crate) fn start(&mut self, now: Instant) {
        self.stop();
        self.next = self.timeout.map(|timeout| now + self.interval(timeout));
    }

    pub(crate) fn stop(&mut self) {
        *self = KeepAlive::new(self.timeout);
    }

    /// Any command restarts the controller's timer.
    pub(crate) fn count_traffic(&mut self) {
        self.traffic_counts = true;
    }

    /// A command has been answered.
    #[inline]
    pub(crate) fn heard(&mut self) {
        self.heard = true;
    }

    /// The Keep Alive command has been answered.
    pub(crate) fn answered(&mut self) {
        self.unanswered_since = None;
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Time has passed.
    pub(crate) fn timeout(&mut self, now: Instant) -> Beat {
        let (Some(timeout), Some(next)) = (self.timeout, self.next) else { return Beat::Nothing };
        if now < next {
            return Beat::Nothing;
        }
        self.next = Some(now + self.interval(timeout));
        if let Some(since) = self.unanswered_since {
            return if now.since(since) >= timeout { Beat::Silent } else { Beat::Nothing };
        }
        if std::mem::take(&mut self.heard) && self.traffic_counts {
            return Beat::Nothing;
        }
        self.unanswered_since = Some(now);
        Beat::Send
    }

    /// Half the timeout; a quarter where traffic counts: it may have come right after the last beat, and a beat is left out
    /// for it.
    fn interval(&self, timeout: Duration) -> Duration {
        Duration(timeout.0 / if self.traffic_counts { 4 } else { 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration(100);

    #[test]
    fn a_command_goes_out_every_half_timeout() {
        let mut timer = KeepAlive::new(Some(TIMEOUT));
        assert_eq!(timer.next_timeout(), None);
        timer.start(Instant(0));
        assert_eq!(timer.timeout(Instant(49)), Beat::Nothing);
        for time in [50, 100, 150] {
            assert_eq!(timer.next_timeout(), Some(Instant(time)));
            assert_eq!(timer.timeout(Instant(time)), Beat::Send);
            timer.answered();
        }
    }

    #[test]
    fn no_answer_for_a_whole_timeout_is_silence() {
        let mut timer = KeepAlive::new(Some(TIMEOUT));
        timer.start(Instant(0));
        assert_eq!(timer.timeout(Instant(50)), Beat::Send);
        assert_eq!(timer.timeout(Instant(100)), Beat::Nothing);
        assert_eq!(timer.timeout(Instant(150)), Beat::Silent);
    }

    #[test]
    fn traffic_makes_commands_unnecessary_where_the_controller_counts_it() {
        let mut timer = KeepAlive::new(Some(TIMEOUT));
        timer.start(Instant(0));
        timer.heard();
        assert_eq!(timer.timeout(Instant(50)), Beat::Send);
        timer.answered();
        timer.count_traffic();
        timer.heard();
        assert_eq!(timer.timeout(Instant(100)), Beat::Nothing);
        assert_eq!(timer.timeout(Instant(125)), Beat::Send, "nothing was heard since");
    }

    #[test]
    fn without_a_timeout_nothing_beats() {
        let mut timer = KeepAlive::new(None);
        timer.start(Instant(0));
        assert_eq!((timer.next_timeout(), timer.timeout(Instant(1000))), (None, Beat::Nothing));
    }
}
