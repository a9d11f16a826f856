//! Removal: first hosts cannot name a namespace or subsystem any more, then it has no user, and
//! leaves the table.

use zonda_zoned::{Instant, NamespaceId};

use super::{NamespaceIndex, SubsystemIndex, Subsystems};
use crate::controller::ControllerKey;
use crate::{DeviceKey, SubsystemConfig};

/// A namespace that has left the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemovedNamespace {
    pub(crate) subsystem: SubsystemIndex,
    pub(crate) device: DeviceKey,
    pub(crate) device_namespace: NamespaceId,
}

impl Subsystems {
    /// Removes a namespace from the configuration: hosts cannot name it any more. Returns the
    /// controllers whose shutdown waited for its resumption.
    pub(crate) fn remove_namespace(&mut self, place: NamespaceIndex, has_controllers: bool) -> Vec<ControllerKey> {
        let (index, id) = (self.namespaces[place].subsystem, self.namespaces[place].id());
        self.config_of_mut(index).namespaces.retain(|namespace| namespace.id != id);
        let shutdowns = self.detach_namespace(place);
        self.update(index, has_controllers);
        shutdowns
    }

    /// Removes a subsystem from the configuration: hosts cannot name it any more. Its namespaces are
    /// to be detached. Returns its configuration.
    pub(crate) fn remove(&mut self, index: SubsystemIndex) -> SubsystemConfig {
        let removed_place = self.slots[index].place.take().expect("a subsystem is removed once");
        let removed = self.config.subsystems.remove(removed_place);
        for other in self.slots.values_mut() {
            if let Some(place) = other.place.as_mut().filter(|place| **place > removed_place) {
                *place -= 1;
            }
        }
        removed
    }

    /// Takes a namespace out of its subsystem. Returns the controllers whose shutdown waited for its
    /// resumption.
    pub(crate) fn detach_namespace(&mut self, place: NamespaceIndex) -> Vec<ControllerKey> {
        let namespace = &mut self.namespaces[place];
        let shutdowns = namespace.remove();
        let (index, id, device) = (namespace.subsystem, namespace.id(), namespace.config.device);
        assert!(
            self.slots[index].namespace(id.0) == Some(place),
            "a subsystem lists its namespaces until their removal"
        );
        self.slots[index].set_namespace(id.0, None);
        if self.of_device(device).next().is_none() {
            self.config.write_protected.remove(&device);
            self.config.saved_reservations.remove(&device);
        }
        // The reservations do not restrict users of the device any more.
        self.reservation_changes += 1;
        shutdowns
    }

    /// Removes a removed namespace from the table if its device has nothing of it any more.
    pub(crate) fn finish_namespace(&mut self, place: NamespaceIndex) -> Option<RemovedNamespace> {
        let namespace = &self.namespaces[place];
        if !namespace.is_removed() || namespace.is_at_device() {
            return None;
        }
        let namespace = self.namespaces.remove(place).expect("the namespace was just found");
        // They would never complete.
        assert!(namespace.held.is_empty() && namespace.held_shutdowns.is_empty(), "no command waits for a removed one");
        assert!(namespace.persistence.waiting().next().is_none(), "no reservation command waits for a removed one");
        let subsystem = namespace.subsystem;
        self.slots[subsystem].removed_statistics.add(&namespace.statistics);
        let (device, device_namespace) = (namespace.config.device, namespace.config.device_namespace);
        Some(RemovedNamespace { subsystem, device, device_namespace })
    }

    /// The last controller of a subsystem was removed.
    pub(crate) fn last_controller_removed(&mut self, index: SubsystemIndex) {
        self.slots[index].report_present_limits();
        self.finish(index, false);
    }

    /// Removes a removed subsystem from the table if it has no controllers and no namespaces any
    /// more.
    pub(crate) fn finish(&mut self, index: SubsystemIndex, has_controllers: bool) {
        let Some(subsystem) = self.slots.get(index).filter(|subsystem| subsystem.place.is_none()) else { return };
        if has_controllers {
            return;
        }
        if let Some(deadline) = subsystem.closes_at {
            self.closing.remove(&(deadline, index));
        }
        if self.namespaces.values().all(|namespace| namespace.subsystem != index) {
            self.slots.remove(index);
        }
    }

    /// The connections of a removed subsystem are to be closed at this time.
    pub(crate) fn close_at(&mut self, index: SubsystemIndex, deadline: Instant) {
        let subsystem = &mut self.slots[index];
        assert!(
            subsystem.place.is_none() && subsystem.closes_at.is_none(),
            "a subsystem is removed before it is closed"
        );
        subsystem.closes_at = Some(deadline);
        self.closing.insert((deadline, index));
    }

    /// When to call [`Subsystems::pop_closing`] next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.closing.first().map(|&(deadline, _)| deadline)
    }

    /// A removed subsystem whose connections are to be closed now.
    pub(crate) fn pop_closing(&mut self, now: Instant) -> Option<SubsystemIndex> {
        let &(deadline, index) = self.closing.first().filter(|(deadline, _)| *deadline <= now)?;
        self.closing.remove(&(deadline, index));
        Some(index)
    }
}
