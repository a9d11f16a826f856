//! Removal of namespaces and subsystems while hosts use them.
//!
//! Hosts cannot name a removed namespace any more, and commands that have not reached the device
//! end with Invalid Namespace or Format. Commands at the device complete as usual, with all their
//! steps, and a save of reservations that is in flight too. After the last of them the namespace
//! leaves the table. The connections of a removed subsystem are closed when the last of their
//! commands has completed, or after [`REMOVED_SUBSYSTEM_DRAIN`].

use zonda_nvme::{AdminOpcode, Nqn, StatusCode};
use zonda_zoned::{Instant, NamespaceId};

use crate::TargetConfigError;
use crate::connection::{Request, TransferTag, Work};
use crate::controller::{Controller, ControllerKey, ErrorLocation};
use crate::effects::{CloseReason, ConnectionId, Effect};
use crate::limits::REMOVED_SUBSYSTEM_DRAIN;
use crate::subsystems::{NamespaceIndex, RemovedNamespace, SubsystemIndex};
use crate::target::Target;

impl Target {
    /// Removes a namespace. Commands that arrive from now on, or have not reached the device, end
    /// with Invalid Namespace or Format; those at the device complete normally. Its reservations
    /// end, and are not deleted from the device. [`Effect::NamespaceRemoved`] reports that the
    /// device has nothing of the namespace any more. The identifier may be used again at once, the
    /// namespace of the device after that effect.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn remove_namespace(
        &mut self,
        now: Instant,
        subsystem: &Nqn,
        id: NamespaceId,
    ) -> Result<(), TargetConfigError> {
        let place = self.subsystems.namespace_named(subsystem, id)?;
        let index = self.subsystems.namespace(place).subsystem();
        let shutdowns = self.subsystems.remove_namespace(place, self.controllers.has_any_of(index));
        self.end_commands_of(place, shutdowns);
        self.forget_namespace(index, id);
        self.note_namespace_change(index, id);
        self.finish_removal(place);
        self.resume(now);
        Ok(())
    }

    /// Removes a subsystem, and its namespaces as by [`Target::remove_namespace`]. Its connections
    /// accept no more commands, and are closed when their commands at devices have completed, after
    /// 10 s at the latest. Hosts that could connect to it get a Discovery Log Page Change event. A
    /// subsystem with this name may be added again at once.
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn remove_subsystem(&mut self, now: Instant, subsystem: &Nqn) -> Result<(), TargetConfigError> {
        let index = self.subsystems.named(subsystem)?;
        let removed = self.subsystems.remove(index);
        let connections: Vec<ConnectionId> = self.controllers.of(Some(index)).flat_map(Controller::queues).collect();
        for &id in &connections {
            let connection = self.connections.get_mut(id).expect("a controller's queue exists");
            connection.is_draining = true;
            // A command that waits for memory in the byte stream is not accepted any more.
            connection.parked = None;
            if !connection.requests.has_waiting() {
                self.budget.withdraw(&mut connection.account);
            }
        }
        if !connections.is_empty() {
            self.subsystems.close_at(index, now + REMOVED_SUBSYSTEM_DRAIN);
        }
        let namespaces: Vec<NamespaceIndex> = self.subsystems[index].namespaces().collect();
        for &place in &namespaces {
            let shutdowns = self.subsystems.detach_namespace(place);
            self.end_commands_of(place, shutdowns);
        }
        for id in connections {
            self.close_if_idle(now, id);
        }
        for place in namespaces {
            self.finish_removal(place);
        }
        self.subsystems.finish(index, self.controllers.has_any_of(index));
        self.note_discovery_change(|host| removed.allow.access(host).is_some());
        self.resume(now);
        Ok(())
    }

    /// Ends the commands of a removed namespace that have not reached its device, and the shutdowns
    /// that waited for it.
    fn end_commands_of(&mut self, place: NamespaceIndex, shutdowns: Vec<ControllerKey>) {
        let namespace = self.subsystems.namespace(place);
        let (index, id) = (namespace.subsystem(), namespace.id());
        self.end_waiting_reservations(place, StatusCode::INVALID_NAMESPACE);
        for connection in self.connections.keys() {
            self.end_requests(connection, place, index, id);
        }
        for controller in shutdowns {
            self.shutdown_progress(controller);
        }
    }

    /// Ends the requests of a connection that name a removed namespace and are not at its device.
    fn end_requests(&mut self, id: ConnectionId, place: NamespaceIndex, index: SubsystemIndex, nsid: NamespaceId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let controller = connection.controller().and_then(|key| self.controllers.get(key));
        if controller.and_then(Controller::subsystem) != Some(index) {
            return;
        }
        let is_io = connection.queue().is_some_and(|queue| queue > 0);
        let names_it = |request: &Request| match &request.work {
            Work::Io { namespace, .. } => *namespace == place && request.device_command().is_none(),
            Work::Command(entry) => {
                is_io && entry.opcode != AdminOpcode::Fabrics.code() && entry.namespace.get() == nsid.0
            }
            Work::ChangedZones { .. } | Work::Removed(_) => false,
        };
        let tags: Vec<TransferTag> =
            connection.requests.iter().filter(|(_, request)| names_it(request)).map(|(tag, _)| tag).collect();
        let mut ended = Vec::new();
        for tag in tags {
            let request = connection.requests.get(tag).expect("the request was just found");
            let at = location_of(request, nsid);
            if connection.requests.remove_namespace(tag, at) {
                ended.push(tag);
            }
        }
        self.withdraw_if_nothing_waits(id);
        for tag in ended {
            self.end_request(id, tag, StatusCode::INVALID_NAMESPACE, 0);
        }
    }

    /// Removes a removed namespace from the table if its device has nothing of it any more.
    pub(crate) fn finish_removal(&mut self, place: NamespaceIndex) {
        let Some(removed) = self.subsystems.finish_namespace(place) else { return };
        let RemovedNamespace { subsystem, device, device_namespace } = removed;
        self.effects.push_back(Effect::NamespaceRemoved { device, device_namespace });
        self.subsystems.finish(subsystem, self.controllers.has_any_of(subsystem));
    }

    /// A controller of a subsystem was removed.
    pub(crate) fn controller_removed(&mut self, index: SubsystemIndex) {
        if !self.controllers.has_any_of(index) {
            self.subsystems.last_controller_removed(index);
        }
    }

    /// Closes the connections of removed subsystems whose time has passed.
    pub(crate) fn close_removed_subsystems(&mut self, now: Instant) {
        while let Some(index) = self.subsystems.pop_closing(now) {
            let admins: Vec<ConnectionId> =
                self.controllers.of(Some(index)).filter_map(Controller::admin_queue).collect();
            for admin in admins {
                self.close(now, admin, &CloseReason::SubsystemRemoved);
            }
        }
    }
}

/// The location of a request for the error log.
fn location_of(request: &Request, namespace: NamespaceId) -> ErrorLocation {
    let lba = match &request.work {
        Work::Io { request, .. } => request.start().map_or(0, |lba| lba.0),
        _ => 0,
    };
    ErrorLocation { namespace: namespace.0, lba }
}
