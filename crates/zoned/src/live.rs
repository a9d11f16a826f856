//! Time that passes by itself.

use crate::Instant;

/// The clock of a host that drives a device in real time. Only the trait is here: what reads a clock implements it.
pub trait LiveClock {
    /// The current time. It never goes back.
    fn now(&mut self) -> Instant;

    /// Lets the device make progress, and returns when it may have news, or at `until`. Does not wait if `until` is in the
    /// past. Returning early does no harm.
    fn wait(&mut self, until: Option<Instant>);
}
