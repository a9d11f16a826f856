//! Everything that was taken ends, and soon.

use zonda_zoned::{Duration, Instant};

use crate::outcome::FailureKind;
use crate::survey::Trouble;

/// A device that is left alone ends something within this time. The slowest thing a drawn drive does is a Finish of all
/// its zones: a thousand programs of half a millisecond, or of 50 ms in the rare case, that share one die.
pub(crate) const QUIET_TIME_MAX: Duration = Duration::from_secs(60);
/// A device that is left alone ends something within so many events.
pub(crate) const QUIET_EVENTS_MAX: u64 = 1_000_000;
/// A command of a performance run ends within this time.
pub(crate) const LATENCY_MAX: Duration = Duration::from_secs(20);

/// Watches that something ends as long as something is under way.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    since: Instant,
    events: u64,
}

impl Watch {
    /// Something was taken or has ended, or nothing is under way.
    pub(crate) fn progress(&mut self, now: Instant) {
        *self = Watch { since: now, events: 0 };
    }

    /// An event passed, after which `under_way` commands are; `oldest` tells of the one taken first.
    pub(crate) fn check(&mut self, now: Instant, oldest: impl FnOnce() -> String) -> Result<(), Trouble> {
        self.events += 1;
        let quiet = now.since(self.since);
        if quiet <= QUIET_TIME_MAX && self.events <= QUIET_EVENTS_MAX {
            return Ok(());
        }
        let message = format!("{}; nothing has ended for {quiet} and {} events", oldest(), self.events);
        Err(Trouble::new(FailureKind::Starved, None, message))
    }
}

/// The device says that it has nothing to do, and something is under way.
pub(crate) fn asleep(oldest: &str) -> Trouble {
    Trouble::new(FailureKind::Starved, None, format!("{oldest}; the device waits for nothing"))
}

/// Holds the time of one command against the bound of a performance run.
pub(crate) fn check_latency(told: impl FnOnce() -> String, latency: Duration) -> Result<(), Trouble> {
    if latency <= LATENCY_MAX {
        return Ok(());
    }
    Err(Trouble::new(FailureKind::Slow, None, format!("{} took {latency}, and may take {LATENCY_MAX}", told())))
}
