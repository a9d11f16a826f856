//! Real time.

use crate::Instant;

/// The clock of a host that drives a device in real time. Crates that read a clock implement this
/// trait.
pub trait LiveClock {
    /// The current time. It never decreases.
    fn now(&mut self) -> Instant;

    /// Lets the device make progress, and returns when it may have completions, or at `until`. Does
    /// not wait if `until` is in the past. May return early.
    fn wait(&mut self, until: Option<Instant>);
}
