//! Pauses of a namespace: its commands wait, so that the caller can change its device.
//!
//! A command that arrives while its namespace is paused waits where it holds the least memory:
//! before its data is solicited, or with the data that came with it or was on its way. Commands at
//! the device complete, with all their steps (a flush before or after them). Reservation commands
//! and the flushes of shutdowns wait too. How much can wait is limited by the entries of queues, the
//! table of reservation requests and the number of controllers.

use zonda_nvme::{Nqn, StatusCode};
use zonda_zoned::{Instant, NamespaceId, Operation};

use crate::TargetConfigError;
use crate::connection::{Held, Request, Requests, TransferTag, Work};
use crate::effects::ConnectionId;
use crate::subsystems::NamespaceIndex;
use crate::target::{Owner, Target};

impl Target {
    /// Lets the commands of hosts to a namespace wait, until [`Target::resume_namespace`]. Admin
    /// commands are answered, and commands at the device complete. A paused namespace stays paused.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn pause_namespace(
        &mut self,
        _now: Instant,
        subsystem: &Nqn,
        id: NamespaceId,
    ) -> Result<(), TargetConfigError> {
        let place = self.subsystems.namespace_named(subsystem, id)?;
        self.subsystems.namespace_mut(place).pause();
        Ok(())
    }

    /// Submits the commands that have waited, in order of arrival. No effect on a namespace that is
    /// not paused.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn resume_namespace(
        &mut self,
        now: Instant,
        subsystem: &Nqn,
        id: NamespaceId,
    ) -> Result<(), TargetConfigError> {
        let place = self.subsystems.namespace_named(subsystem, id)?;
        let (held, shutdowns) = self.subsystems.namespace_mut(place).resume();
        self.continue_reservations(now, place);
        for (connection, tag) in held {
            self.start_held(connection, tag);
        }
        for controller in shutdowns {
            self.submit(Owner::Shutdown(controller), place, Operation::Flush);
        }
        self.resume(now);
        Ok(())
    }

    /// Whether the device has no command and no save of a namespace. A paused namespace stays
    /// quiescent until it is resumed. False if there is no such namespace.
    #[must_use]
    pub fn is_quiescent(&self, subsystem: &Nqn, id: NamespaceId) -> bool {
        self.subsystems
            .namespace_named(subsystem, id)
            .is_ok_and(|place| !self.subsystems.namespace(place).is_at_device())
    }

    /// Whether the namespace of a request that has just been received is paused.
    #[inline]
    pub(crate) fn is_held(&self, request: &Request) -> bool {
        matches!(request.work, Work::Io { namespace, .. } if self.subsystems.namespace(namespace).is_paused())
    }

    /// Lets a request wait until its namespace is resumed.
    pub(crate) fn hold(&mut self, id: ConnectionId, tag: TransferTag, held: Held) {
        let connection = self.connections.get_mut(id).expect("a request that waits has a connection");
        connection.requests.hold(tag, held);
        let Some(Work::Io { namespace, .. }) = connection.requests.get(tag).map(|request| &request.work) else {
            unreachable!("only I/O commands wait for a namespace")
        };
        self.subsystems.namespace_mut(*namespace).hold(id, tag);
    }

    fn start_held(&mut self, id: ConnectionId, tag: TransferTag) {
        let connection = self.connections.get_mut(id).expect("a request that waits has a connection");
        match connection.requests.resume_held(tag) {
            Some(data) => self.start_io(id, tag, data),
            None => {
                connection.requests.wait_for_memory(tag);
                self.start_waiting(id);
            }
        }
    }

    /// A connection is closed: none of its requests waits any more.
    pub(crate) fn drop_held(&mut self, id: ConnectionId, requests: &Requests) {
        for (_, request) in requests.iter() {
            if let Work::Io { namespace, .. } = request.work
                && request.is_held()
            {
                self.subsystems.namespace_mut(namespace).drop_held(id);
            }
        }
    }

    /// The target drains: reservation commands that wait for a namespace to be resumed fail.
    pub(crate) fn interrupt_held_reservations(&mut self) {
        let paused = self.subsystems.namespaces().filter(|(_, namespace)| namespace.is_paused());
        let paused: Vec<NamespaceIndex> = paused.map(|(place, _)| place).collect();
        for place in paused {
            self.end_waiting_reservations(place, StatusCode::COMMAND_INTERRUPTED);
        }
    }
}
