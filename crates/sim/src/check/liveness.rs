//! Every submitted command completes, within a time limit.

use zonda_zoned::{Duration, Instant};

use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Maximum virtual time between two completions of a device with commands in flight. The slowest
/// operation of a generated drive is a Finish of all zones: a thousand programs of 0.5 ms, rarely
/// of 50 ms, on one die.
pub(crate) const QUIET_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of events between two completions of a device with commands in flight.
pub(crate) const QUIET_EVENTS_MAX: u64 = 1_000_000;
/// Maximum latency of a command in a performance run.
pub(crate) const LATENCY_MAX: Duration = Duration::from_secs(20);

/// Watchdog: commands complete while commands are in flight.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    since: Instant,
    events: u64,
}

impl Watch {
    /// A command was accepted or has completed, or none is in flight.
    pub(crate) fn progress(&mut self, now: Instant) {
        *self = Watch { since: now, events: 0 };
    }

    /// Counts an event after which commands are in flight; `oldest` describes the oldest of them.
    pub(crate) fn check(&mut self, now: Instant, oldest: impl FnOnce() -> String) -> Result<(), CheckError> {
        self.events += 1;
        let quiet = now.since(self.since);
        if quiet <= QUIET_TIME_MAX && self.events <= QUIET_EVENTS_MAX {
            return Ok(());
        }
        let message = format!("{}; no completion for {quiet} and {} events", oldest(), self.events);
        Err(CheckError::new(FailureKind::Starved, None, message))
    }
}

/// The error of a device without a next wakeup while commands are in flight.
pub(crate) fn asleep(oldest: &str) -> CheckError {
    CheckError::new(FailureKind::Starved, None, format!("{oldest}; the device has no next wakeup"))
}

/// Checks the latency of a command against the limit of a performance run.
pub(crate) fn check_latency(name: impl FnOnce() -> String, latency: Duration) -> Result<(), CheckError> {
    if latency <= LATENCY_MAX {
        return Ok(());
    }
    Err(CheckError::new(FailureKind::Slow, None, format!("{} took {latency}, the limit is {LATENCY_MAX}", name())))
}
