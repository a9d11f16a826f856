//! What a handle asks of the way to its namespace.

use std::time::Instant;

use zonda_zoned::{CompletionQueue, Operation};

use crate::failure::Failure;

/// The way to a namespace.
pub(crate) trait Link {
    /// Whether this thread and this process may use it.
    fn check(&self) -> Result<(), Failure>;

    /// Takes an operation; its completion has `token` as its id.
    ///
    /// # Errors
    /// Hands the operation back when there is no room.
    fn submit(&mut self, token: u64, operation: Operation) -> Result<(), Operation>;

    /// Sends what was submitted, without waiting.
    fn kick(&mut self) -> Result<(), Failure>;

    /// Adds what has ended, without waiting.
    fn collect(&mut self, ended: &mut CompletionQueue) -> Result<(), Failure>;

    /// Sends what was submitted, sleeps until something has happened or `until` has come, and adds what has ended. It may
    /// return early with nothing.
    fn sleep(&mut self, until: Option<Instant>, ended: &mut CompletionQueue) -> Result<(), Failure>;

    /// Closes it; nothing is under way.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}
