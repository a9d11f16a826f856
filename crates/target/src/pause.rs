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
use crate::controller::ControllerKey;
use crate::effects::ConnectionId;
use crate::namespace::{NamespaceIndex, NamespacePhase};
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
        let place = self.namespace_named(subsystem, id)?;
        self.namespaces[place].phase = NamespacePhase::Paused;
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
        let place = self.namespace_named(subsystem, id)?;
        let namespace = &mut self.namespaces[place];
        namespace.phase = NamespacePhase::Active;
        let (held, shutdowns) = (std::mem::take(&mut namespace.held), std::mem::take(&mut namespace.held_shutdowns));
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
        self.namespace_named(subsystem, id).is_ok_and(|place| !self.namespaces[place].is_at_device())
    }

    /// Whether the namespace of a request that has just been received is paused.
    #[inline]
    pub(crate) fn is_held(&self, request: &Request) -> bool {
        matches!(request.work, Work::Io { namespace, .. } if self.namespaces[namespace].is_paused())
    }

    /// Lets a request wait until its namespace is resumed.
    pub(crate) fn hold(&mut self, id: ConnectionId, tag: TransferTag, held: Held) {
        let connection = self.connections.get_mut(id).expect("a request that waits has a connection");
        connection.requests.hold(tag, held);
        let Some(Work::Io { namespace, .. }) = connection.requests.get(tag).map(|request| &request.work) else {
            unreachable!("only I/O commands wait for a namespace")
        };
        let namespace = &mut self.namespaces[*namespace];
        // No end of a pause would start it again.
        assert!(namespace.is_paused(), "a request waits for a namespace that is paused");
        namespace.held.push_back((id, tag));
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
                self.namespaces[namespace].held.retain(|&(connection, _)| connection != id);
            }
        }
    }

    /// A controller is removed: its shutdown waits for no flush any more.
    pub(crate) fn drop_held_shutdowns(&mut self, controller: ControllerKey) {
        for namespace in self.namespaces.values_mut() {
            namespace.held_shutdowns.retain(|&other| other != controller);
        }
    }

    /// The target drains: reservation commands that wait for a namespace to be resumed fail.
    pub(crate) fn interrupt_held_reservations(&mut self) {
        let paused: Vec<NamespaceIndex> =
            self.namespaces.iter().filter(|(_, namespace)| namespace.is_paused()).map(|(place, _)| place).collect();
        for place in paused {
            self.end_waiting_reservations(place, StatusCode::COMMAND_INTERRUPTED);
        }
    }
}
