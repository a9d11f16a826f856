//! What the target serves: its configuration, and the tables of subsystems and namespaces that
//! follow it.
//!
//! Everything that changes one of them changes the others here, so that the configuration, the
//! subsystems and their lists of namespaces agree. Removed subsystems and namespaces stay in the
//! tables until their last command or controller ends. Whether a subsystem has controllers is an argument.

use std::collections::BTreeSet;
use std::ops::Index;

use bytes::Bytes;
use zonda_nvme::Nqn;
use zonda_nvme::io::NamespaceFormat;
use zonda_zoned::{Geometry, Instant, NamespaceId};

use crate::controller::ControllerKey;
use crate::health::DeviceHealth;
use crate::limits::Limits;
use crate::reservations::{Persistence, Reservations, restore};
use crate::slots::Slots;
use crate::statistics::NamespaceStatistics;
use crate::{
    DeviceKey, HostAccess, NamespaceConfig, NamespaceOptions, SubsystemConfig, TargetConfig, TargetConfigError,
};

mod checks;
mod discovery;
mod invariants;
mod namespace;
mod removal;
mod subsystem;

pub(crate) use namespace::{Namespace, NamespaceIndex};
pub(crate) use removal::RemovedNamespace;
pub(crate) use subsystem::{Subsystem, SubsystemIndex, TransferLimits, is_zoned};

/// The configuration, subsystems and namespaces.
#[derive(Debug)]
pub(crate) struct Subsystems {
    config: TargetConfig,
    /// Subsystems, including removed ones that still have controllers or namespaces.
    slots: Slots<SubsystemIndex, Subsystem>,
    /// Namespaces, including removed ones that devices still have commands of.
    namespaces: Slots<NamespaceIndex, Namespace>,
    /// Removed subsystems that have controllers, and when their connections are closed.
    closing: BTreeSet<(Instant, SubsystemIndex)>,
    /// The generation counter of the discovery log page.
    discovery_generation: u64,
    reservation_changes: u64,
}

/// What a namespace has besides its configuration, after all checks.
#[derive(Debug)]
pub(crate) struct Prepared {
    is_write_protected: bool,
    saved: Option<Bytes>,
    reservations: Reservations,
    persistence: Persistence,
}

/// Restores the reservations of a namespace of the subsystem `nqn`.
pub(crate) fn prepare(
    nqn: &Nqn,
    namespace: &NamespaceConfig,
    options: NamespaceOptions,
) -> Result<Prepared, TargetConfigError> {
    let NamespaceOptions { is_write_protected, saved_reservations: saved } = options;
    let subject = || format!("subsystem {nqn}, namespace {}", namespace.id);
    let (reservations, persistence) = restore(saved.as_ref(), is_write_protected, subject)?;
    Ok(Prepared { is_write_protected, saved, reservations, persistence })
}

impl Subsystems {
    /// The subsystems of a configuration that was checked.
    pub(crate) fn new(config: TargetConfig) -> Result<Subsystems, TargetConfigError> {
        let TargetConfig { subsystems, saved_reservations, write_protected, .. } = &config;
        let mut prepared = Vec::new();
        for subsystem in subsystems {
            let mut namespaces = Vec::new();
            for namespace in &subsystem.namespaces {
                let options = NamespaceOptions {
                    is_write_protected: write_protected.contains(&namespace.device),
                    saved_reservations: saved_reservations.get(&namespace.device).cloned(),
                };
                namespaces.push(prepare(&subsystem.nqn, namespace, options)?);
            }
            prepared.push((subsystem.clone(), namespaces));
        }
        let mut all = Subsystems {
            config: TargetConfig { subsystems: Vec::new(), ..config },
            slots: Slots::new(),
            namespaces: Slots::new(),
            closing: BTreeSet::new(),
            discovery_generation: 1,
            reservation_changes: 0,
        };
        for (subsystem, namespaces) in prepared {
            all.install(subsystem, namespaces);
        }
        Ok(all)
    }

    /// What the target serves now.
    pub(crate) fn config(&self) -> &TargetConfig {
        &self.config
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The index of a subsystem that is not removed.
    pub(crate) fn find(&self, nqn: &Nqn) -> Option<SubsystemIndex> {
        let is_named = |subsystem: &Subsystem| subsystem.place.is_some() && subsystem.nqn == *nqn;
        self.slots.iter().find(|(_, subsystem)| is_named(subsystem)).map(|(index, _)| index)
    }

    /// The same, or an error for the operator.
    pub(crate) fn named(&self, nqn: &Nqn) -> Result<SubsystemIndex, TargetConfigError> {
        self.find(nqn).ok_or_else(|| TargetConfigError {
            subject: format!("subsystem {nqn}"),
            remedy: "does not exist: choose the NQN of a subsystem, or add it first".to_owned(),
        })
    }

    /// The index of a namespace that is not removed.
    pub(crate) fn namespace_named(&self, nqn: &Nqn, id: NamespaceId) -> Result<NamespaceIndex, TargetConfigError> {
        let subsystem = self.named(nqn)?;
        self.slots[subsystem].namespace(id.0).ok_or_else(|| TargetConfigError {
            subject: format!("subsystem {nqn}, namespace {id}"),
            remedy: "does not exist: choose the identifier of a namespace of the subsystem".to_owned(),
        })
    }

    /// The configuration of a subsystem that is not removed.
    pub(crate) fn config_of(&self, index: SubsystemIndex) -> &SubsystemConfig {
        &self.config.subsystems[self.slots[index].place.expect("a removed subsystem has no configuration")]
    }

    fn config_of_mut(&mut self, index: SubsystemIndex) -> &mut SubsystemConfig {
        &mut self.config.subsystems[self.slots[index].place.expect("a removed subsystem has no configuration")]
    }

    /// The namespace that a host names with an NSID; `None` for the discovery service, too.
    #[inline]
    pub(crate) fn namespace_of(&self, subsystem: Option<SubsystemIndex>, nsid: u32) -> Option<NamespaceIndex> {
        self.slots[subsystem?].namespace(nsid)
    }

    /// Whether a controller of the subsystem has zoned namespaces.
    pub(crate) fn has_zones(&self, subsystem: Option<SubsystemIndex>) -> bool {
        subsystem.is_some_and(|index| self.slots[index].zoned)
    }

    #[inline]
    pub(crate) fn namespace(&self, index: NamespaceIndex) -> &Namespace {
        &self.namespaces[index]
    }

    #[inline]
    pub(crate) fn namespace_mut(&mut self, index: NamespaceIndex) -> &mut Namespace {
        &mut self.namespaces[index]
    }

    /// All namespaces, including removed ones.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (NamespaceIndex, &Namespace)> {
        self.namespaces.iter()
    }

    /// The namespaces of a device that are not removed.
    pub(crate) fn of_device(&self, device: DeviceKey) -> impl Iterator<Item = &Namespace> {
        self.namespaces.values().filter(move |it| it.is_served_by(device))
    }

    /// Sets the health of a device; returns the warnings that are new.
    pub(crate) fn set_health(&mut self, device: DeviceKey, health: DeviceHealth) -> u8 {
        let mut news = 0;
        for namespace in self.namespaces.values_mut().filter(|namespace| namespace.is_served_by(device)) {
            news |= health.warnings() & !namespace.health.warnings();
            namespace.health = health;
        }
        news
    }

    /// A controller is removed: its shutdown waits for no flush any more.
    pub(crate) fn drop_held_shutdowns(&mut self, controller: ControllerKey) {
        for namespace in self.namespaces.values_mut() {
            namespace.held_shutdowns.retain(|&other| other != controller);
        }
    }

    /// How often reservations have changed.
    pub(crate) fn reservation_changes(&self) -> u64 {
        self.reservation_changes
    }

    /// The reservations of a namespace have changed.
    pub(crate) fn set_reservations(&mut self, index: NamespaceIndex, next: Reservations) {
        self.namespaces[index].reservations = next;
        self.reservation_changes += 1;
    }

    /// A device has saved the reservations of its namespace.
    pub(crate) fn note_saved(&mut self, device: DeviceKey, saved: impl FnOnce() -> Bytes) {
        if let Some(configured) = self.config.saved_reservations.get_mut(&device) {
            *configured = saved();
        }
    }

    /// Adds a subsystem that was checked, with its namespaces.
    pub(crate) fn add(&mut self, config: SubsystemConfig, prepared: Vec<Prepared>) {
        self.install(config, prepared);
        self.reservation_changes += 1;
    }

    fn install(&mut self, mut config: SubsystemConfig, prepared: Vec<Prepared>) {
        let namespaces = std::mem::take(&mut config.namespaces);
        let subsystem = Subsystem::new(&config.nqn, self.config.subsystems.len(), &self.config.limits);
        self.config.subsystems.push(config);
        let index = self.slots.insert(subsystem);
        for (namespace, prepared) in namespaces.into_iter().zip(prepared) {
            self.install_namespace(index, namespace, prepared);
        }
        self.update(index, false);
    }

    /// Adds a namespace that was checked.
    pub(crate) fn add_namespace(
        &mut self,
        index: SubsystemIndex,
        config: NamespaceConfig,
        prepared: Prepared,
        has_controllers: bool,
    ) {
        self.install_namespace(index, config, prepared);
        self.update(index, has_controllers);
        self.reservation_changes += 1;
    }

    fn install_namespace(&mut self, subsystem: SubsystemIndex, config: NamespaceConfig, prepared: Prepared) {
        // Hosts would lose the namespace that they use now.
        assert!(self.slots[subsystem].namespace(config.id.0).is_none(), "an identifier names one namespace");
        let Prepared { is_write_protected, saved, reservations, persistence } = prepared;
        if is_write_protected {
            self.config.write_protected.insert(config.device);
        }
        if let Some(saved) = saved {
            self.config.saved_reservations.insert(config.device, saved);
        }
        self.config_of_mut(subsystem).namespaces.push(config.clone());
        let id = config.id;
        let format = NamespaceFormat::of(&config.geometry, self.config.limits.transfer_bytes);
        // The health of a device is that of all its namespaces.
        let health = self.of_device(config.device).next().map(|other| other.health).unwrap_or_default();
        let mut namespace = Namespace::new(subsystem, config, format, (reservations, persistence));
        namespace.is_write_protected = is_write_protected;
        namespace.health = health;
        let index = self.namespaces.insert(namespace);
        self.slots[subsystem].set_namespace(id.0, Some(index));
    }

    /// Replaces the hosts that may connect to a subsystem; returns those before.
    pub(crate) fn set_hosts(&mut self, index: SubsystemIndex, allow: HostAccess) -> HostAccess {
        std::mem::replace(&mut self.config_of_mut(index).allow, allow)
    }

    /// Sets the geometry of a namespace, which was checked.
    pub(crate) fn resize(&mut self, place: NamespaceIndex, geometry: Geometry, has_controllers: bool) {
        let resized = NamespaceConfig { geometry, ..self.namespaces[place].config.clone() };
        let index = self.namespaces[place].subsystem;
        let configured = self.config_of_mut(index).namespaces.iter_mut().find(|it| it.id == resized.id);
        *configured.expect("a served namespace is configured") = resized.clone();
        self.namespaces[place].format = NamespaceFormat::of(&resized.geometry, self.config.limits.transfer_bytes);
        self.namespaces[place].config = resized;
        self.update(index, has_controllers);
    }

    /// The namespaces of a subsystem have changed: calculates what its controllers report.
    fn update(&mut self, index: SubsystemIndex, has_controllers: bool) {
        let place = self.slots[index].place.expect("a removed subsystem does not change");
        self.slots[index].update(&self.config.subsystems[place], &self.config.limits, has_controllers);
    }

    /// Counters of all namespaces of a subsystem. They never decrease: those of removed namespaces
    /// are included.
    pub(crate) fn statistics_of(&self, index: SubsystemIndex) -> impl Iterator<Item = &NamespaceStatistics> {
        let own = self.namespaces.values().filter(move |it| it.subsystem == index);
        own.map(|namespace| &namespace.statistics).chain([&self.slots[index].removed_statistics])
    }

    fn limits(&self) -> &Limits {
        &self.config.limits
    }
}

impl Index<SubsystemIndex> for Subsystems {
    type Output = Subsystem;

    #[inline]
    fn index(&self, index: SubsystemIndex) -> &Subsystem {
        &self.slots[index]
    }
}
