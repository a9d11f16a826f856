//! Invariants that hold between any two events.

use std::collections::BTreeSet;

use crate::connection::{Phase, Work};
use crate::target::{Owner, Target};

impl Target {
    /// Checks all invariants. Slow: for tests and simulation.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        self.check_connections();
        self.check_commands();
        self.check_controllers();
        self.check_reservations();
        self.subsystems.check_invariants(|index| self.controllers.has_any_of(index));
        self.check_namespaces();
        self.check_held();
        self.budget.check_invariants(self.connections.iter().map(|(_, connection)| &connection.account));
        let limits = &self.limits;
        assert!(self.connections.len() <= limits.connections, "connections are within their limit");
        assert!(self.half_open.len() <= limits.half_open, "half-open connections are within their limit");
        assert!(self.half_open.pins_are_within_limits(), "pinned connections are within their limits");
        self.controllers.check_invariants(limits);
        self.auth_steps.check_invariants(limits.auth_steps);
        for (deadline, id) in self.half_open.iter() {
            let connection = self.connections.get(id).expect("a half-open connection exists");
            assert_eq!(connection.handshake, Some(deadline), "the table has the deadline of the connection");
        }
    }

    /// Checks that no request waits for memory, for its data or in a reader.
    #[cfg(test)]
    pub(crate) fn assert_nothing_waits(&self) {
        assert!(self.short_of_memory.is_empty() && self.stalled.is_empty(), "no connection waits for memory");
        for (key, connection) in self.connections.iter() {
            let waits = connection.has_waiting() || connection.requests.missing_bytes() > 0;
            assert!(!waits, "nothing of connection {key} waits");
            assert!(!connection.stopped && !connection.account.is_waiting(), "connection {key} is read");
        }
    }

    fn check_connections(&self) {
        let limits = &self.limits;
        for (id, connection) in self.connections.iter() {
            connection.requests.check_invariants(limits);
            for (tag, request) in connection.requests.iter() {
                if let Some(command) = request.device_command() {
                    let command = self.commands.get(command).expect("a request's device command is in the table");
                    assert_eq!(command.owner, Owner::Request(id, tag), "a device command belongs to its request");
                }
            }
            assert!(
                connection.is_short_of_memory == self.short_of_memory.contains(&id),
                "a connection that waits for memory is in the list"
            );
            assert!(
                connection.is_short_of_memory
                    || (!connection.account.is_waiting() && (connection.parked.is_none() || connection.paused)),
                "a connection that is not in the list does not wait"
            );
            assert_eq!(
                connection.handshake.is_some(),
                self.half_open.contains(id),
                "a handshake in progress is in the table"
            );
            if let Phase::Connected { controller, .. } = connection.phase {
                let controller = self.controllers.get(controller).expect("a queue's controller exists");
                assert!(controller.queues().any(|queue| queue == id), "a controller lists its queues");
            }
            assert!(
                connection.dirty || connection.writer.queued_bytes() == 0,
                "a connection with output is in the list"
            );
        }
    }

    fn check_commands(&self) {
        for (key, command) in self.commands.iter() {
            if let Owner::Request(connection, tag) = command.owner {
                let connection = self.connections.get(connection).expect("the connection of an owner exists");
                let request = connection.requests.get(tag).expect("an owning request exists");
                assert_eq!(request.device_command(), Some(key), "a request lists its device command");
            }
        }
    }

    fn check_reservations(&self) {
        let waiting = self.subsystems.namespaces().flat_map(|(_, namespace)| namespace.persistence.requests());
        self.reservation_requests.check_invariants(waiting, |command| self.commands.get(command).is_some());
    }

    fn check_namespaces(&self) {
        for (place, namespace) in self.subsystems.namespaces() {
            let mut count = 0;
            for (_, command) in self.commands.iter().filter(|(_, command)| command.namespace == place) {
                count += 1;
                assert_eq!(command.device, namespace.config().device, "a command is at the device of its namespace");
            }
            assert_eq!(namespace.commands_at_device(), count, "commands at the device are counted");
            for controller in namespace.held_shutdowns() {
                assert!(self.controllers.get(*controller).is_some(), "a shutdown that waits has a controller");
            }
        }
    }

    /// Requests refer to namespaces in the table, and those that wait for one are in its list.
    fn check_held(&self) {
        let mut held = BTreeSet::new();
        for (id, connection) in self.connections.iter() {
            for (tag, request) in connection.requests.iter() {
                let (Work::Io { namespace, .. } | Work::ChangedZones { namespace, .. }) = request.work else {
                    continue;
                };
                assert!(
                    !self.subsystems.namespace(namespace).is_removed() || request.device_command().is_some(),
                    "requests of a removed namespace are at the device"
                );
                if request.is_held() {
                    held.insert((namespace, id, tag));
                }
            }
        }
        let mut listed = BTreeSet::new();
        for (place, namespace) in self.subsystems.namespaces() {
            for (connection, tag) in namespace.held() {
                assert!(listed.insert((place, connection, tag)), "a request is listed once");
            }
        }
        assert_eq!(held, listed, "the requests that wait for a namespace are in its list");
    }

    fn check_controllers(&self) {
        for (key, controller) in self.controllers.iter() {
            for queue in controller.queues() {
                let connection = self.connections.get(queue).expect("a controller's queue exists");
                assert_eq!(connection.controller(), Some(key), "a queue belongs to its controller");
            }
            let Some(index) = controller.subsystem() else { continue };
            let subsystem = &self.subsystems[index];
            for namespace in controller.known_namespaces() {
                assert!(
                    subsystem.namespace(namespace.0).is_some() || subsystem.is_removed(),
                    "{key:?} has events of namespaces of its subsystem only"
                );
            }
            for queue in controller.queues() {
                let connection = self.connections.get(queue).expect("a controller's queue exists");
                assert_eq!(
                    connection.is_draining,
                    subsystem.is_removed(),
                    "connections of removed subsystems, and no others, drain"
                );
            }
        }
    }
}
