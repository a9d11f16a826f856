//! Controllers: created by the Connect of an admin queue, and joined by I/O queues.

use std::collections::VecDeque;

use zonda_nvme::fabrics::{Configuration, ControllerStatus, connect_offsets as at};
use zonda_nvme::log::ErrorEntry;
use zonda_nvme::{HostId, Nqn, StatusCode};
use zonda_zoned::{Duration, Instant, NamespaceId};

use crate::connection::Auth;
use crate::connection::handshake::Refusal;
use crate::effects::{CloseReason, ConnectionId, Effect, Event};
use crate::limits::KEEP_ALIVE_TIMEOUT_MAX_MS;
use crate::slots::slot_key;
use crate::subsystems::SubsystemIndex;
use crate::target::Target;

mod admin;
mod events;
mod features;
mod identify;
mod keep_alive;
mod logs;
mod properties;
mod table;

use events::Events;
use features::Features;
pub(crate) use table::Controllers;

/// NSID FFFFFFFFh: all namespaces, or the controller as a whole.
const ALL_NAMESPACES: u32 = u32::MAX;

slot_key! {
    /// Key of a controller in the target's table. A CNTLID is used again, this is not.
    ControllerKey
}

#[derive(Debug)]
pub(crate) struct Controller {
    /// CNTLID.
    pub(crate) id: u16,
    /// The subsystem; `None` for a discovery controller.
    subsystem: Option<SubsystemIndex>,
    pub(crate) host: Nqn,
    pub(crate) host_id: HostId,
    /// The portal of the admin queue.
    portal: usize,
    /// Queues by QID; the admin queue is the first.
    queues: Vec<Option<ConnectionId>>,
    configuration: Configuration,
    status: ControllerStatus,
    /// Flushes that a shutdown waits for.
    flushes: u32,
    features: Features,
    events: Events,
    /// KATO, after rounding.
    keep_alive_timeout: Option<Duration>,
    /// When the last command was received.
    last_activity: Instant,
    /// The entry of the target's table of timers.
    keep_alive_deadline: Option<Instant>,
    /// The newest entry is the last.
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
}

/// The namespace and LBA of a failed command, for the error log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorLocation {
    /// NSID, or zero.
    pub(crate) namespace: u32,
    /// First block, or zero.
    pub(crate) lba: u64,
}

/// The host and the subsystem of a Connect.
#[derive(Debug)]
pub(crate) struct Association {
    pub(crate) host: Nqn,
    pub(crate) host_id: HostId,
    pub(crate) subsystem: Nqn,
}

impl Controller {
    /// The subsystem; `None` for a discovery controller.
    #[inline]
    pub(crate) fn subsystem(&self) -> Option<SubsystemIndex> {
        self.subsystem
    }

    /// Whether commands other than Fabrics commands are accepted.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.status.is_ready()
    }

    /// Whether I/O commands are accepted: not before the controller is enabled, and not after the
    /// host has requested a shutdown.
    #[inline]
    pub(crate) fn takes_io(&self) -> bool {
        const SHUTDOWN: u32 = ControllerStatus::SHUTDOWN_IN_FLIGHT | ControllerStatus::SHUTDOWN_COMPLETE;
        self.status.is_ready() && self.status.0 & SHUTDOWN == 0
    }

    /// Whether the host has enabled all I/O command sets, and with them the Zoned Namespace command
    /// set.
    #[inline]
    pub(crate) fn has_zones(&self) -> bool {
        self.configuration.command_set() == Configuration::CSS_ALL
    }

    pub(crate) fn admin_queue(&self) -> Option<ConnectionId> {
        self.queues.first().copied().flatten()
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.queues.iter().copied().flatten()
    }

    /// The namespaces that its events and features are about.
    pub(crate) fn known_namespaces(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        self.events.namespaces().chain(self.features.namespaces())
    }

    /// When its last command was received.
    pub(crate) fn last_activity(&self) -> Instant {
        self.last_activity
    }
}

impl Target {
    /// A Connect of an admin queue: creates a controller.
    pub(crate) fn create_controller(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        association: Association,
        keep_alive_timeout_ms: u32,
    ) -> Result<(ControllerKey, Option<Box<Auth>>), Refusal> {
        let Association { host, host_id, subsystem } = association;
        let place = self.find_subsystem(&subsystem)?;
        let auth = self.admit(place, &host)?;
        if keep_alive_timeout_ms > KEEP_ALIVE_TIMEOUT_MAX_MS {
            return Err(Refusal::command_field(at::KEEP_ALIVE_TIMEOUT));
        }
        if auth.is_none() && place.is_some() && !self.has_slot_for_open_queue() {
            return Err(StatusCode::CONNECT_CONTROLLER_BUSY.into());
        }
        self.free_controller_slot(now, place, auth.is_some())?;
        let keep_alive_timeout = keep_alive::timeout_for(place.is_none(), keep_alive_timeout_ms);
        let id = self.controllers.next_id();
        let portal = self.connections.get(connection).map_or(0, |state| state.portal);
        let controller = Controller {
            id,
            subsystem: place,
            host: host.clone(),
            host_id,
            portal,
            queues: vec![Some(connection)],
            configuration: Configuration::default(),
            status: ControllerStatus::default(),
            flushes: 0,
            features: Features::new(),
            events: Events::default(),
            keep_alive_timeout,
            last_activity: now,
            keep_alive_deadline: None,
            errors: VecDeque::new(),
            error_count: 0,
        };
        let key = self.controllers.insert(now, controller);
        self.statistics.controllers_created += 1;
        let authentication_pending = auth.is_some();
        self.effects.push_back(Effect::Event(Event::HostConnected {
            connection,
            host,
            subsystem,
            controller_id: id,
            authentication_pending,
        }));
        Ok((key, auth))
    }

    /// A Connect of an I/O queue: finds the controller.
    pub(crate) fn join_controller(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        association: &Association,
        controller_id: u16,
        queue: u16,
    ) -> Result<(ControllerKey, Option<Box<Auth>>), Refusal> {
        let place = self.find_subsystem(&association.subsystem)?;
        let auth = self.admit(place, &association.host)?;
        if auth.is_none() && !self.has_slot_for_open_queue() {
            return Err(StatusCode::CONNECT_CONTROLLER_BUSY.into());
        }
        let Some(key) = self.controllers.find(controller_id) else {
            return Err(Refusal::data_field(at::CONTROLLER_ID));
        };
        let controller = self.controllers.get_mut(key).expect("the key was just found");
        if controller.subsystem != place {
            return Err(Refusal::data_field(at::SUBSYSTEM_NQN));
        }
        if controller.host != association.host {
            return Err(Refusal::data_field(at::HOST_NQN));
        }
        if controller.host_id != association.host_id {
            return Err(Refusal::data_field(at::HOST_ID));
        }
        // Discovery controllers have an admin queue only; other controllers have as many I/O queues
        // as the host was granted.
        if place.is_none() || queue > controller.features.io_queues(self.limits.io_queues) {
            return Err(Refusal::command_field(at::QUEUE_ID));
        }
        // Admin first: an unauthenticated host must not reach the controller of another through an
        // I/O queue.
        let admin = controller.admin_queue();
        if !controller.status.is_ready()
            || !admin.and_then(|admin| self.connections.get(admin)).is_some_and(|admin| admin.may_command())
        {
            return Err(StatusCode::COMMAND_SEQUENCE_ERROR.into());
        }
        let queue = usize::from(queue);
        if controller.queues.len() <= queue {
            controller.queues.resize(queue + 1, None);
        }
        if controller.queues[queue].is_some() {
            return Err(Refusal::command_field(at::QUEUE_ID));
        }
        controller.queues[queue] = Some(connection);
        if auth.is_none() {
            self.controllers.note_activity(now, key);
        }
        Ok((key, auth))
    }

    /// The connection of a queue has been closed. A controller is removed with its admin queue.
    pub(crate) fn queue_closed(&mut self, now: Instant, key: ControllerKey, queue: u16, reason: &CloseReason) {
        let Some(controller) = self.controllers.get_mut(key) else { return };
        controller.queues[usize::from(queue)] = None;
        if queue > 0 {
            return;
        }
        let controller = self.controllers.remove(key).expect("the controller was just found");
        let subsystem = match controller.subsystem {
            Some(place) => self.subsystems[place].nqn.clone(),
            None => Nqn::discovery(),
        };
        self.subsystems.drop_held_shutdowns(key);
        self.effects.push_back(Effect::Event(Event::ControllerRemoved {
            host: controller.host.clone(),
            subsystem,
            controller_id: controller.id,
            reason: reason.clone(),
        }));
        for connection in controller.queues() {
            self.close(now, connection, &CloseReason::ControllerRemoved);
        }
        if let Some(place) = controller.subsystem {
            self.controller_removed(place);
        }
    }

    /// Closes a controller's I/O queues: a reset deletes them.
    pub(crate) fn close_io_queues(&mut self, now: Instant, key: ControllerKey) {
        let Some(controller) = self.controllers.get(key) else { return };
        let connections: Vec<ConnectionId> = controller.queues.iter().skip(1).copied().flatten().collect();
        for connection in connections {
            self.close(now, connection, &CloseReason::ControllerRemoved);
        }
    }

    /// A command ended with an error: one more entry in the error log.
    pub(crate) fn note_error(&mut self, id: ConnectionId, command_id: u16, status: StatusCode, at: ErrorLocation) {
        self.statistics.errors += 1;
        let Some(connection) = self.connections.get(id) else { return };
        let crate::connection::Phase::Connected { controller, queue } = connection.phase else { return };
        if let Some(controller) = self.controllers.get_mut(controller) {
            controller.add_error(queue, command_id, status, at);
        }
    }

    fn find_subsystem(&self, nqn: &Nqn) -> Result<Option<SubsystemIndex>, Refusal> {
        if nqn.is_discovery() {
            return Ok(None);
        }
        self.subsystems.find(nqn).map(Some).ok_or(Refusal::data_field(at::SUBSYSTEM_NQN))
    }

    /// Whether a host may connect to a subsystem, and the authentication it has to pass for it.
    fn admit(&mut self, place: Option<SubsystemIndex>, host: &Nqn) -> Result<Option<Box<Auth>>, Refusal> {
        // Any host may connect to the discovery service, which reports to each host only the
        // subsystems it may access.
        let Some(place) = place else { return Ok(None) };
        let subsystem = self.subsystems.config_of(place);
        let access = subsystem.access(host).ok_or_else(Refusal::host)?;
        Ok(access.secret.map(|secret| {
            let (policy, random) = (&self.subsystems.config().auth_policy, &mut self.random);
            let machine = crate::auth::machine(host, &subsystem.nqn, secret, access.controller_secret, policy, random);
            Box::new(Auth { machine: Some(machine), has_begun: false, step: None, passed: false, failed: false })
        }))
    }
}
