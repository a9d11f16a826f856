//! Invariants of subsystems and namespaces, which change at run time.

use std::collections::BTreeSet;

use super::{Namespace, NamespaceIndex, SubsystemIndex, Subsystems, TransferLimits, is_zoned};
use crate::limits::{NAMESPACE_TABLE_MAX, NAMESPACES_MAX, SUBSYSTEMS_MAX};

impl Subsystems {
    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check_invariants(&self, has_controllers: impl Fn(SubsystemIndex) -> bool) {
        assert!(self.namespaces.len() <= NAMESPACE_TABLE_MAX, "namespaces are within their limit");
        let most = SUBSYSTEMS_MAX.max(self.config.subsystems.len());
        assert!(self.slots.len() <= most, "subsystems are within their limit");
        for (place, config) in self.config.subsystems.iter().enumerate() {
            let served = self.slots.iter().filter(|(_, subsystem)| subsystem.place == Some(place));
            let names: Vec<_> = served.map(|(_, subsystem)| &subsystem.nqn).collect();
            assert_eq!(names, [&config.nqn], "each subsystem of the configuration is in the table once");
        }
        for (index, _) in self.slots.iter() {
            self.check_subsystem(index, has_controllers(index));
        }
        for (place, namespace) in self.namespaces.iter() {
            self.check_namespace(place, namespace);
        }
        self.check_devices_of_config();
    }

    fn check_subsystem(&self, index: SubsystemIndex, has_controllers: bool) {
        let subsystem = &self.slots[index];
        let Some(place) = subsystem.place else {
            let has_namespaces = self.namespaces.iter().any(|(_, namespace)| namespace.subsystem == index);
            assert!(has_controllers || has_namespaces, "a removed subsystem leaves the table with its last user");
            assert_eq!(subsystem.namespaces().count(), 0, "a removed subsystem has no namespace that hosts can name");
            let closing = self.closing.iter().filter(|(_, other)| *other == index).count();
            assert!(!has_controllers || closing <= 1, "the connections of a removed subsystem are closed in time");
            return;
        };
        let config = &self.config.subsystems[place];
        let mut known: Vec<u32> = config.namespaces.iter().map(|namespace| namespace.id.0).collect();
        known.sort_unstable();
        let served: Vec<u32> = subsystem.namespaces().map(|place| self.namespaces[place].id().0).collect();
        assert_eq!(known, served, "the namespaces of the configuration, and no others, can be named");
        assert_eq!(subsystem.namespaces_max(), known.last().copied().unwrap_or(0), "NN is the greatest identifier");
        assert!(subsystem.namespaces_max() <= NAMESPACES_MAX, "identifiers are within their limit");
        for namespace in &config.namespaces {
            let place = subsystem.namespace(namespace.id.0).expect("the namespace was just found");
            let served = &self.namespaces[place];
            assert!(served.subsystem == index && !served.is_removed(), "a subsystem lists its own namespaces");
            let properties = |it: &crate::NamespaceConfig| (it.id, it.device, it.device_namespace, it.geometry.clone());
            assert_eq!(properties(&served.config), properties(namespace), "a namespace is as configured");
        }
        let geometries = || config.namespaces.iter().map(|namespace| &namespace.geometry);
        let capacity_bytes = geometries().map(|it| u128::from(it.zone_capacity_bytes()) * u128::from(it.zone_count));
        assert_eq!(subsystem.capacity_bytes, capacity_bytes.sum::<u128>(), "capacity is that of all namespaces");
        assert_eq!(subsystem.zoned, geometries().any(is_zoned));
        assert_eq!(subsystem.volatile_write_cache, config.namespaces.iter().any(|it| it.volatile_write_cache));
        let present = TransferLimits::of(&geometries(), &self.config.limits).expect("the configuration was checked");
        assert_eq!(subsystem.present_limits, present);
        assert!(has_controllers || subsystem.limits == present, "without controllers nothing restricts the limits");
        assert_eq!(
            present.field_below(subsystem.limits, subsystem.reports_append),
            None,
            "the limits that hosts have read hold"
        );
    }

    fn check_namespace(&self, place: NamespaceIndex, namespace: &Namespace) {
        if namespace.is_removed() {
            assert!(namespace.is_at_device(), "a removed namespace leaves the table with its last command");
            assert!(namespace.persistence.waiting().next().is_none(), "no change waits for a removed namespace");
        } else {
            let listed = self.slots[namespace.subsystem].namespace(namespace.id().0);
            assert_eq!(listed, Some(place), "a namespace is listed by its subsystem");
        }
        if !namespace.is_paused() {
            assert!(
                namespace.held.is_empty() && namespace.held_shutdowns.is_empty(),
                "commands wait for a paused namespace only"
            );
        }
        namespace.reservations.check_invariants();
        namespace.persistence.check_invariants(namespace.is_paused());
        assert!(
            namespace.persistence.is_possible || !namespace.reservations.persists(),
            "a namespace that cannot save reservations does not claim to persist them"
        );
        for (i, controller) in namespace.held_shutdowns.iter().enumerate() {
            assert!(!namespace.held_shutdowns[..i].contains(controller), "a shutdown waits once");
        }
    }

    /// What the configuration says about devices is about those of its namespaces.
    fn check_devices_of_config(&self) {
        let served = |device| self.namespaces.values().filter(move |it| it.is_served_by(device));
        for &device in &self.config.write_protected {
            assert!(served(device).all(|it| it.is_write_protected), "a device is write protected for all namespaces");
        }
        for &device in self.config.saved_reservations.keys() {
            assert_eq!(served(device).count(), 1, "a device that saves reservations belongs to one namespace");
        }
        let saving = self.namespaces.iter().filter(|(_, it)| it.persistence.is_saving());
        let mut devices = BTreeSet::new();
        for (_, namespace) in saving {
            assert!(devices.insert(namespace.config.device), "a device has one save in flight");
        }
    }
}
