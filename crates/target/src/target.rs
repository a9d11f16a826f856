//! The target's state machine: its owners, and the events that it routes to them.
//!
//! State has owners, each with private fields, operations and invariants:
//!
//! ```text
//! subsystems/            configuration, subsystems, namespaces: named, paused, removed
//! controller/table.rs    controllers, their identifiers and keep alive timers
//! connection/requests/   the requests of a queue: what each waits for, and the bytes it holds
//! reservations/          requests.rs: reservation commands and fences; table.rs: the rules
//! auth.rs                authentication steps that wait or are computed
//! half_open.rs           connections in their handshake, and which of them is evicted
//! budget.rs              memory of all connections
//! ```
//!
//! The other files are events that concern several of them: a command that arrives
//! (`connection/receive.rs`, `io.rs`), data (`connection/transfer.rs`), output and the end of a
//! connection (`connection/output.rs`), waits for memory (`connection/memory.rs`), pauses, changes
//! and removals.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_chap::Random;
use zonda_zoned::{Command, CommandId, Completion, Instant, NamespaceId, Operation};

use crate::auth::AuthSteps;
use crate::budget::Budget;
use crate::connection::{Connection, TransferTag};
use crate::controller::{Controller, ControllerKey, Controllers};
use crate::effects::{CloseReason, ConnectionId, Effect};
use crate::fair::Flow;
use crate::half_open::HalfOpen;
use crate::limits::Limits;
use crate::reservations::ReservationRequests;
use crate::slots::{SlotKey, Slots, slot_key};
use crate::statistics::{NamespaceStatistics, Statistics};
use crate::subsystems::{NamespaceIndex, Subsystems};
use crate::{DeviceKey, TargetConfig, TargetConfigError};

/// All subsystems, controllers and connections of one server loop.
///
/// The caller reports events of sockets and devices, and then polls effects until there are none
/// left.
#[derive(Debug)]
pub struct Target {
    /// Those of the configuration, which do not change.
    pub(crate) limits: Limits,
    pub(crate) subsystems: Subsystems,
    pub(crate) connections: Slots<ConnectionId, Connection>,
    pub(crate) controllers: Controllers,
    /// Commands at devices.
    pub(crate) commands: Slots<CommandKey, DeviceCommand>,
    pub(crate) reservation_requests: ReservationRequests,
    pub(crate) effects: VecDeque<Effect>,
    /// Connections with output for which no Send effect has been made.
    pub(crate) dirty: VecDeque<ConnectionId>,
    /// Connections that may accept commands again.
    pub(crate) stalled: VecDeque<ConnectionId>,
    /// Memory for the data of all connections.
    pub(crate) budget: Budget,
    /// Connections that wait for memory, each once.
    pub(crate) short_of_memory: VecDeque<ConnectionId>,
    /// [`Budget::releases`] when those were last retried.
    pub(crate) releases_seen: u64,
    /// While connections wait for memory: when to check next for connections that hold memory and
    /// make too little progress.
    pub(crate) stalls_at: Option<Instant>,
    /// Connections that have not finished their handshake.
    pub(crate) half_open: HalfOpen,
    pub(crate) auth_steps: AuthSteps,
    pub(crate) random: Random,
    pub(crate) draining: bool,
    pub(crate) statistics: Statistics,
}

slot_key! {
    /// Key of a command at a device.
    CommandKey
}

/// The identifier of the command at its device.
impl From<CommandKey> for CommandId {
    #[inline]
    fn from(key: CommandKey) -> CommandId {
        CommandId(key.bits())
    }
}

/// A command at a device.
#[derive(Debug)]
pub(crate) struct DeviceCommand {
    pub(crate) owner: Owner,
    pub(crate) device: DeviceKey,
    pub(crate) namespace: NamespaceIndex,
    /// Bytes that it still holds for a closed connection.
    pub(crate) orphaned_bytes: usize,
}

/// The owner of a device command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A request of a connection.
    Request(ConnectionId, TransferTag),
    /// A controller that is shutting down.
    Shutdown(ControllerKey),
    /// The target's own read of the changed zones of a namespace.
    Survey(NamespaceIndex),
    /// None any more, because the connection was closed: the completion is dropped.
    Orphaned,
}

impl Target {
    /// A target without connections.
    ///
    /// # Errors
    /// If the configuration is invalid: the field, and the remedy.
    pub fn new(config: TargetConfig) -> Result<Target, TargetConfigError> {
        config.check()?;
        Ok(Target {
            random: Random::new(config.auth_seed),
            half_open: HalfOpen::new(&config.limits),
            budget: config.budget.clone(),
            short_of_memory: VecDeque::new(),
            releases_seen: 0,
            stalls_at: None,
            limits: config.limits.clone(),
            subsystems: Subsystems::new(config)?,
            connections: Slots::new(),
            controllers: Controllers::new(),
            commands: Slots::new(),
            reservation_requests: ReservationRequests::new(),
            effects: VecDeque::new(),
            dirty: VecDeque::new(),
            stalled: VecDeque::new(),
            auth_steps: AuthSteps::default(),
            draining: false,
            statistics: Statistics::default(),
        })
    }

    /// A host has opened a connection to a portal (its index in the configuration), from the
    /// address `peer`. `None`: there are too many connections, close the socket.
    ///
    /// If there are too many half-open connections, one of them is evicted in favour of this one:
    /// that whose last handshake step was the longest ago, since an honest host needs milliseconds
    /// for each. It is one of the same address if that has used up its share, or of an address that
    /// has very many. Connections that wait for the server are not evicted.
    ///
    /// # Panics
    /// When there is no such portal.
    pub fn on_connect(&mut self, now: Instant, portal: usize, peer: &str) -> Option<ConnectionId> {
        let portals = self.subsystems.config().portals.len();
        assert!(portal < portals, "there are {portals} portals");
        if self.draining {
            return None;
        }
        if let Some(silent) = self.evicted_by(Flow::group_of(peer)) {
            self.close(now, silent, &CloseReason::Evicted);
        } else if self.connections.len() >= self.limits.connections {
            self.statistics.connections_refused += 1;
            return None;
        }
        let deadline = now + self.limits.handshake;
        let connection = Connection::new(portal, peer, deadline);
        let group = connection.group;
        let id = self.connections.insert(connection);
        self.half_open.insert(id, group, deadline);
        self.statistics.connections_accepted += 1;
        Some(id)
    }

    /// Sets the local address of a connection. The discovery log reports it to the host if the
    /// portal listens on every address of the machine.
    pub fn on_local_address(&mut self, connection: ConnectionId, address: &str) {
        if let Some(state) = self.connections.get_mut(connection) {
            state.local = Some(address.into());
        }
    }

    /// Bytes have arrived from a host, and will be passed to [`Target::on_bytes`] later. Until then
    /// a half-open connection does not count as silent, and is not evicted.
    pub fn on_arrival(&mut self, connection: ConnectionId) {
        self.half_open.pin(connection);
    }

    /// Bytes were received from a host. Ignored if the connection is closed.
    pub fn on_bytes(&mut self, now: Instant, connection: ConnectionId, chunk: Bytes) {
        let Some(state) = self.connections.get_mut(connection) else { return };
        if self.draining || state.is_draining {
            return;
        }
        state.reader.push(chunk);
        // An unauthenticated I/O queue must not keep another host's controller alive.
        if let Some(controller) = state.controller()
            && (state.may_command() || state.queue() == Some(0))
        {
            self.controllers.note_activity(now, controller);
        }
        self.pump(now, connection);
        if let Some(state) = self.connections.get(connection)
            && state.handshake.is_some()
            && !state.is_being_authenticated()
        {
            self.half_open.unpin(connection);
        }
        self.watch_stalls(now);
    }

    /// Commands received from hosts since the target was created.
    #[must_use]
    pub fn commands_received(&self) -> u64 {
        self.statistics.commands
    }

    /// So many bytes of the output have been written to the socket.
    ///
    /// # Panics
    /// If that is more than the unsent bytes.
    pub fn on_sent(&mut self, now: Instant, connection: ConnectionId, bytes: usize) {
        let Some(state) = self.connections.get_mut(connection) else { return };
        assert!(bytes <= state.unsent_bytes, "{bytes} bytes sent of {}", state.unsent_bytes);
        state.unsent_bytes -= bytes;
        state.progress.moved(bytes);
        self.count_memory(connection);
        self.resume_if_drained(connection);
        self.continue_stalled(now);
    }

    /// The socket was closed by the host, or failed.
    pub fn on_disconnect(&mut self, now: Instant, connection: ConnectionId) {
        self.forget(now, connection, &CloseReason::Disconnected);
        self.resume(now);
    }

    /// A device has completed a command.
    ///
    /// # Panics
    /// If the device has no such command.
    pub fn on_completion(&mut self, now: Instant, device: DeviceKey, completion: Completion) {
        let key = CommandKey::from_bits(completion.id.0);
        let command = self.commands.remove(key).expect("a device completes only commands that were submitted to it");
        assert!(command.device == device, "a device completes its own commands");
        let place = command.namespace;
        self.subsystems.namespace_mut(place).completed();
        match command.owner {
            Owner::Request(connection, tag) => {
                self.device_completed(connection, tag, key, completion);
                self.continue_stalled(now);
                if self.is_draining(connection) {
                    self.close_if_idle(now, connection);
                }
            }
            Owner::Shutdown(controller) => self.shutdown_progress(controller),
            Owner::Survey(namespace) => self.surveyed(namespace, completion.outcome),
            Owner::Orphaned => {
                self.budget.release_orphaned(command.orphaned_bytes);
                self.resume(now);
            }
        }
        self.pass_fences(now, key);
        self.finish_removal(place);
    }

    /// Shuts down: accepts no new connections and commands, completes the commands in flight, and
    /// closes each connection after its last response.
    pub fn shutdown(&mut self, now: Instant) {
        self.draining = true;
        self.interrupt_held_reservations();
        for connection in self.connections.keys() {
            self.close_if_idle(now, connection);
        }
    }

    /// Whether a draining target has closed all connections and completed all commands.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining
            && self.connections.len() == 0
            && self.commands.len() == 0
            && self.reservation_requests.is_empty()
            && self.effects.is_empty()
    }

    /// The time of [`Target::next_timeout`] has been reached.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some((deadline, connection)) = self.half_open.first_deadline()
            && deadline <= now
        {
            self.statistics.handshake_timeouts += 1;
            let state = self.connections.get(connection).expect("a half-open connection exists");
            let reason = state.handshake_end();
            self.close(now, connection, &reason);
        }
        if !self.draining {
            self.expire_keep_alive(now);
        }
        self.close_removed_subsystems(now);
        if self.stalls_at.is_some_and(|at| at <= now) {
            self.stalls_at = None;
            self.close_stalled(now);
        }
        self.resume(now);
    }

    /// When to call [`Target::on_timeout`] next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let handshake = self.half_open.first_deadline().map(|(deadline, _)| deadline);
        // A draining target reads no commands, so keep alive timers do not apply.
        let keep_alive = self.controllers.next_timeout().filter(|_| !self.draining);
        let closing = self.subsystems.next_timeout();
        [handshake, keep_alive, self.stalls_at, closing].into_iter().flatten().min()
    }

    /// The next effect. Output of a connection is coalesced until all earlier effects have been
    /// polled.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            let connection = self.dirty.pop_front()?;
            self.flush_output(connection);
        }
    }

    /// Counters since the start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            connections: self.connections.len(),
            half_open: self.half_open.len(),
            controllers: self.controllers.len(),
            commands_at_devices: self.commands.len(),
            ..self.statistics.clone()
        }
    }

    /// Counters of a namespace of the subsystem at this index of [`Target::config`]; `None` if the
    /// subsystem has no namespace with this identifier.
    #[must_use]
    pub fn namespace_statistics(&self, subsystem: usize, namespace: NamespaceId) -> Option<&NamespaceStatistics> {
        let subsystem = self.subsystems.find(&self.config().subsystems.get(subsystem)?.nqn);
        let place = self.subsystems.namespace_of(subsystem, namespace.0)?;
        Some(&self.subsystems.namespace(place).statistics)
    }

    /// Submits a command to the device of a namespace.
    #[inline]
    pub(crate) fn submit(&mut self, owner: Owner, namespace: NamespaceIndex, operation: Operation) -> CommandKey {
        let served = self.subsystems.namespace_mut(namespace);
        served.submitted();
        let (device, device_namespace) = (served.config().device, served.config().device_namespace);
        let flow = match owner {
            Owner::Request(connection, _) => self.flow_of(connection),
            Owner::Shutdown(_) | Owner::Survey(_) | Owner::Orphaned => Flow::SERVER,
        };
        let key = self.commands.insert(DeviceCommand { owner, device, namespace, orphaned_bytes: 0 });
        let command = Command::new(key.into(), device_namespace, operation);
        self.effects.push_back(Effect::Submit { device, flow, command });
        key
    }

    pub(crate) fn flow_of(&self, connection: ConnectionId) -> Flow {
        let state = self.connections.get(connection);
        state.map_or(Flow::SERVER, |state| Flow { group: state.group, queue: connection.0 })
    }

    /// Resumes the commands of connections that may accept them again.
    fn continue_stalled(&mut self, now: Instant) {
        self.continue_stalled_once(now);
        self.resume(now);
    }

    pub(crate) fn continue_stalled_once(&mut self, now: Instant) {
        while let Some(connection) = self.stalled.pop_front() {
            self.pump(now, connection);
            if let Some(state) = self.connections.get_mut(connection)
                && !state.paused
                && state.parked.is_none()
                && state.stopped
            {
                state.stopped = false;
                self.effects.push_back(Effect::Resume { connection });
            }
        }
    }

    /// Whether a connection accepts no more commands, and is closed after those at devices.
    pub(crate) fn is_draining(&self, id: ConnectionId) -> bool {
        self.draining || self.connections.get(id).is_some_and(|connection| connection.is_draining)
    }

    /// Closes a connection whose commands have all completed; an admin queue is closed after all
    /// I/O queues.
    pub(crate) fn close_if_idle(&mut self, now: Instant, id: ConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        if connection.requests.are_at_device() || self.reservation_requests.has_any_of(id) {
            return;
        }
        let controller = connection.controller().and_then(|key| self.controllers.get(key));
        let queues = controller.map_or(0, |controller| controller.queues().count());
        if connection.queue() == Some(0) && queues > 1 {
            return;
        }
        let admin = controller.and_then(Controller::admin_queue);
        let reason = if self.draining { CloseReason::Draining } else { CloseReason::SubsystemRemoved };
        self.close(now, id, &reason);
        if let Some(admin) = admin.filter(|&admin| admin != id) {
            self.close_if_idle(now, admin);
        }
    }
}
