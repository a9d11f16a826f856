//! The keep alive timer (NVMe Base 2.0, section 3.9). Any command restarts it (CTRATT.TBKAS).

use zonda_zoned::{Duration, Instant};

use super::ControllerKey;
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
    /// Restarts the timer: a command was received. The table of timers is updated when the old
    /// deadline expires.
    #[inline]
    pub(crate) fn note_activity(&mut self, now: Instant, controller: ControllerKey) {
        if let Some(controller) = self.controllers.get_mut(controller) {
            controller.last_activity = now;
        }
    }

    /// Starts the timer of a controller.
    pub(super) fn arm_keep_alive(&mut self, now: Instant, key: ControllerKey) {
        let Some(controller) = self.controllers.get_mut(key) else { return };
        controller.last_activity = now;
        if let Some(old) = controller.keep_alive_deadline.take() {
            self.keep_alive.remove(&(old, key));
        }
        if let Some(timeout) = controller.keep_alive_timeout {
            let deadline = now + timeout;
            controller.keep_alive_deadline = Some(deadline);
            self.keep_alive.insert((deadline, key));
        }
    }

    /// Removes the controllers whose keep alive timers have expired.
    pub(crate) fn expire_keep_alive(&mut self, now: Instant) {
        while let Some(&(deadline, key)) = self.keep_alive.first()
            && deadline <= now
        {
            let controller = self.controllers.get_mut(key).expect("a timer's controller exists");
            let timeout = controller.keep_alive_timeout.expect("a timer that runs has a timeout");
            self.keep_alive.remove(&(deadline, key));
            let due = controller.last_activity + timeout;
            if due > now {
                controller.keep_alive_deadline = Some(due);
                self.keep_alive.insert((due, key));
                continue;
            }
            controller.keep_alive_deadline = None;
            let admin = controller.admin_queue().expect("a controller has an admin queue");
            self.statistics.keep_alive_expired += 1;
            self.close(now, admin, &CloseReason::KeepAliveExpired);
        }
    }
}
