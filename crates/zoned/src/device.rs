//! The one seam of the data plane.

use crate::{Command, CompletionQueue, Geometry, Instant, NamespaceId};

/// Anything that takes commands to zones: a drive, a layer around one, a volume, a connection to a server.
///
/// A device never blocks and knows no clock. Whoever drives it calls [`submit`](ZonedDevice::submit) when there is a
/// command, and [`poll`](ZonedDevice::poll) when [`next_wakeup`](ZonedDevice::next_wakeup) has come: in simulation
/// virtual time jumps there, in production the loop sleeps until then. `now` never goes back from call to call.
///
/// The rules of zones take effect in the order of submission: status, write pointers and the data a read returns are
/// those of the moment in which the device took the command. Only *when* the completion appears is a matter of timing.
pub trait ZonedDevice {
    /// The geometry of a namespace.
    ///
    /// # Panics
    /// When the device has no such namespace: whoever builds a stack knows its namespaces. A *command* to a namespace
    /// that does not exist ends with [`crate::Status::InvalidNamespace`].
    fn geometry(&self, namespace: NamespaceId) -> &Geometry;

    /// Takes a command.
    ///
    /// # Errors
    /// [`QueueFull`] hands the command back; it can be submitted again after the next completion.
    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull>;

    /// Moves everything that is due at `now`, and adds what has ended to `completions`.
    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue);

    /// The earliest instant at which `poll` may have news; `None` while nothing is under way.
    fn next_wakeup(&self) -> Option<Instant>;
}

/// A device that has no room refuses a command by handing it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFull(pub Command);

impl<D: ZonedDevice + ?Sized> ZonedDevice for Box<D> {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        (**self).geometry(namespace)
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        (**self).submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        (**self).poll(now, completions);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        (**self).next_wakeup()
    }
}
