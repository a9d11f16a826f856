//! The keep alive timer (NVMe Base 2.0, section 3.9). Any command restarts it (CTRATT.TBKAS).

use zonda_zoned::{Duration, Instant};

use crate::effects::CloseReason;
use crate::limits::{DISCOVERY_IDLE, KEEP_ALIVE_GRANULARITY_100MS};
use crate::target::Target;

/// The keep alive timeout of a controller. A discovery controller always has one, at most
/// `DISCOVERY_IDLE`.
pub(super) fn timeout_for(is_discovery: bool, milliseconds: u32) -> Option<Duration> {
    let asked = timeout_of(milliseconds);
    if is_discovery { Some(asked.map_or(DISCOVERY_IDLE, |asked| asked.min(DISCOVERY_IDLE))) } else { asked }
}

/// KATO, rounded up to the timer's unit; zero is no timer.
fn timeout_of(milliseconds: u32) -> Option<Duration> {
    let unit = u64::from(KEEP_ALIVE_GRANULARITY_100MS) * 100;
    (milliseconds > 0).then(|| Duration::from_millis(u64::from(milliseconds).next_multiple_of(unit)))
}

impl Target {
    /// Removes the controllers whose keep alive timers have expired.
    pub(crate) fn expire_keep_alive(&mut self, now: Instant) {
        while let Some(admin) = self.controllers.pop_expired(now) {
            self.statistics.keep_alive_expired += 1;
            self.close(now, admin, &CloseReason::KeepAliveExpired);
        }
    }
}
