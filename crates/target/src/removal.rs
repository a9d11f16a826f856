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
use crate::controller::{Controller, ErrorLocation};
use crate::effects::{CloseReason, ConnectionId, Effect};
use crate::limits::REMOVED_SUBSYSTEM_DRAIN;
use crate::namespace::{NamespaceIndex, NamespacePhase};
use crate::subsystem::SubsystemIndex;
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
        let place = self.namespace_named(subsystem, id)?;
        let index = self.namespaces[place].subsystem;
        let configured = &mut self.subsystem_config_mut(index).namespaces;
        configured.retain(|namespace| namespace.id != id);
        self.detach_namespace(place);
        self.update_subsystem(index);
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
        let index = self.find(subsystem)?;
        let removed_place = self.subsystems[index].place.take().expect("the subsystem was just found");
        let removed = self.config.subsystems.remove(removed_place);
        for other in self.subsystems.values_mut() {
            if let Some(place) = other.place.as_mut().filter(|place| **place > removed_place) {
                *place -= 1;
            }
        }
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
            let deadline = now + REMOVED_SUBSYSTEM_DRAIN;
            self.subsystems[index].closes_at = Some(deadline);
            self.closing_subsystems.insert((deadline, index));
        }
        let namespaces: Vec<NamespaceIndex> = self.subsystems[index].namespaces().collect();
        for &place in &namespaces {
            self.detach_namespace(place);
        }
        for id in connections {
            self.close_if_idle(now, id);
        }
        for place in namespaces {
            self.finish_removal(place);
        }
        self.finish_subsystem(index);
        self.note_discovery_change(|host| removed.allow.access(host).is_some());
        self.resume(now);
        Ok(())
    }

    /// Takes a namespace out of its subsystem, and ends what has not reached its device.
    fn detach_namespace(&mut self, place: NamespaceIndex) {
        let namespace = &mut self.namespaces[place];
        namespace.phase = NamespacePhase::Removed;
        namespace.held.clear();
        let shutdowns = std::mem::take(&mut namespace.held_shutdowns);
        let (index, id, device) = (namespace.subsystem, namespace.id(), namespace.config.device);
        self.subsystems[index].set_namespace(id.0, None);
        if !self.namespaces.iter().any(|(_, other)| other.is_served_by(device)) {
            self.config.write_protected.remove(&device);
            self.config.saved_reservations.remove(&device);
        }
        // The reservations do not restrict users of the device any more.
        self.reservation_changes += 1;
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
        let namespace = &self.namespaces[place];
        if !namespace.is_removed() || namespace.is_at_device() {
            return;
        }
        let namespace = self.namespaces.remove(place).expect("the namespace was just found");
        let index = namespace.subsystem;
        self.subsystems[index].removed_statistics.add(&namespace.statistics);
        let (device, device_namespace) = (namespace.config.device, namespace.config.device_namespace);
        self.effects.push_back(Effect::NamespaceRemoved { device, device_namespace });
        self.finish_subsystem(index);
    }

    /// A controller of a subsystem was removed.
    pub(crate) fn controller_removed(&mut self, index: SubsystemIndex) {
        if !self.controllers.has_any_of(index) {
            self.subsystems[index].report_present_limits();
            self.finish_subsystem(index);
        }
    }

    /// Removes a removed subsystem from the table if it has no controllers and no namespaces any
    /// more.
    fn finish_subsystem(&mut self, index: SubsystemIndex) {
        let Some(subsystem) = self.subsystems.get(index).filter(|subsystem| subsystem.place.is_none()) else { return };
        if self.controllers.has_any_of(index) {
            return;
        }
        if let Some(deadline) = subsystem.closes_at {
            self.closing_subsystems.remove(&(deadline, index));
        }
        if self.namespaces.iter().all(|(_, namespace)| namespace.subsystem != index) {
            self.subsystems.remove(index);
        }
    }

    /// Closes the connections of removed subsystems whose time has passed.
    pub(crate) fn close_removed_subsystems(&mut self, now: Instant) {
        while let Some(&(deadline, index)) = self.closing_subsystems.first()
            && deadline <= now
        {
            let admins: Vec<ConnectionId> =
                self.controllers.of(Some(index)).filter_map(Controller::admin_queue).collect();
            for admin in admins {
                self.close(now, admin, &CloseReason::SubsystemRemoved);
            }
            self.closing_subsystems.remove(&(deadline, index));
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
