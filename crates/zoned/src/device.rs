//! The interface of the data plane.

use crate::{Command, CompletionQueue, Geometry, Instant, NamespaceId, Namespaces};

/// A device that accepts zoned commands: a drive, a layer around one, a volume, a connection to a
/// server.
///
/// A device never blocks and reads no clock. The caller calls [`submit`](ZonedDevice::submit) for
/// each command, and [`poll`](ZonedDevice::poll) at [`next_timeout`](ZonedDevice::next_timeout): in
/// simulation virtual time advances to it, in production the event loop sleeps until then. `now`
/// never decreases from call to call.
///
/// The rules of zones take effect in the order of submission: status, write pointers and the data
/// that a read returns are those of the moment in which the device accepted the command. Only the
/// time of the completion depends on the device.
pub trait ZonedDevice {
    /// The namespaces that the device has now.
    fn namespaces(&self) -> &Namespaces;

    /// The geometry of a namespace that the caller knows to exist.
    ///
    /// # Panics
    /// If the device does not have the namespace, which is a bug of the caller: who does not know
    /// asks [`namespaces`](ZonedDevice::namespaces). A *command* to a namespace that does not exist
    /// ends with [`crate::Status::InvalidNamespace`].
    #[inline]
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        let geometry = self.namespaces().geometry(namespace);
        geometry.unwrap_or_else(|| panic!("the device has no namespace {namespace}"))
    }

    /// Submits a command.
    ///
    /// # Errors
    /// [`QueueFull`] returns the command; it can be submitted again after the next completion.
    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull>;

    /// Processes everything that is due at `now`, and adds the completions to `completions`.
    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue);

    /// The earliest instant at which `poll` may make progress; `None` while no command is in
    /// flight.
    fn next_timeout(&self) -> Option<Instant>;
}

/// The queue of the device is full: it refuses a command and returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFull(pub Command);

impl<D: ZonedDevice + ?Sized> ZonedDevice for Box<D> {
    fn namespaces(&self) -> &Namespaces {
        (**self).namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        (**self).submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        (**self).poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        (**self).next_timeout()
    }
}

/// A device of another owner, for example below a layer for the time of a run.
impl<D: ZonedDevice + ?Sized> ZonedDevice for &mut D {
    fn namespaces(&self) -> &Namespaces {
        (**self).namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        (**self).submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        (**self).poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        (**self).next_timeout()
    }
}
