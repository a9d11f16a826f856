//! The interface between a handle and its namespace.

use std::time::Instant;

use zonda_zoned::{CompletionQueue, Operation};

use crate::failure::Failure;

/// The connection of a handle to its namespace.
pub(crate) trait Link {
    /// Checks whether this thread and this process may use it.
    fn check(&self) -> Result<(), Failure>;

    /// Submits an operation; its completion has `token` as its id.
    ///
    /// # Errors
    /// Returns the operation when the queue is full.
    fn submit(&mut self, token: u64, operation: Operation) -> Result<(), Operation>;

    /// Sends submitted operations, without waiting.
    fn kick(&mut self) -> Result<(), Failure>;

    /// Appends completions, without waiting.
    fn collect(&mut self, ended: &mut CompletionQueue) -> Result<(), Failure>;

    /// Sends submitted operations, sleeps until an event or `until`, and appends completions. It
    /// may return early without any.
    fn sleep(&mut self, until: Option<Instant>, ended: &mut CompletionQueue) -> Result<(), Failure>;

    /// Closes it; no operation is outstanding.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}
