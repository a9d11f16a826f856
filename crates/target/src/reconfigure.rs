//! Changes of the configuration while hosts are connected and have commands in flight.
//!
//! A change is checked completely before it takes effect: an error changes nothing. Hosts are
//! notified with Namespace Attribute Changed and Discovery Log Page Change events. The ends of
//! namespaces and subsystems, which may have to wait for devices, are in
//! [`removal`](crate::removal).

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::Nqn;
use zonda_nvme::io::NamespaceFormat;
use zonda_zoned::{Geometry, Instant, NamespaceId};

use crate::config::fault;
use crate::controller::Controller;
use crate::effects::{CloseReason, ConnectionId};
use crate::health::DeviceHealth;
use crate::limits::{NAMESPACE_TABLE_MAX, SUBSYSTEMS_MAX};
use crate::namespace::{Namespace, NamespaceIndex, NamespacePhase};
use crate::reservations::{Persistence, Reservations, restore};
use crate::statistics::NamespaceStatistics;
use crate::subsystem::{Subsystem, SubsystemIndex};
use crate::target::Target;
use crate::{DeviceKey, HostAccess, NamespaceConfig, SubsystemConfig, TargetConfig, TargetConfigError};

/// What the device of a new namespace can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// See [`TargetConfig::write_protected`]; the same for all namespaces of the device.
    pub is_write_protected: bool,
    /// See [`TargetConfig::saved_reservations`]; `None`: the device cannot save reservations.
    pub saved_reservations: Option<Bytes>,
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

impl Target {
    /// What the target serves now.
    #[must_use]
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// Adds a namespace to a subsystem. Hosts with a controller of the subsystem get a Namespace
    /// Attribute Changed event.
    ///
    /// # Errors
    /// If there is no such subsystem, the namespace is invalid, the identifier is in use, the
    /// device has commands of a removed namespace, connected hosts have read limits that the
    /// namespace does not meet, or the table of namespaces is full.
    pub fn add_namespace(
        &mut self,
        _now: Instant,
        subsystem: &Nqn,
        namespace: NamespaceConfig,
        options: NamespaceOptions,
    ) -> Result<(), TargetConfigError> {
        let index = self.find(subsystem)?;
        let config = self.subsystem_config(index);
        config.check_namespace(&namespace, &config.namespaces)?;
        self.check_devices(subsystem, &[(&namespace, &options)])?;
        if self.controllers.has_any_of(index) {
            let all = config.namespaces.iter().chain([&namespace]);
            self.subsystems[index].check_limits(&all.map(|it| &it.geometry), &self.config.limits)?;
        }
        self.check_table(1)?;
        let prepared = prepare(subsystem, &namespace, options)?;
        let id = namespace.id;
        self.install_namespace(index, namespace, prepared);
        self.update_subsystem(index);
        self.reservation_changes += 1;
        self.note_namespace_change(index, id);
        Ok(())
    }

    /// The device of a namespace has another size. Only the number of zones may differ; all zones
    /// of a conventional namespace stay conventional. Hosts get a Namespace Attribute Changed
    /// event, and commands beyond the new end fail as the device reports.
    ///
    /// # Errors
    /// If there is no such namespace, or the geometry differs in another field or is invalid.
    pub fn resize_namespace(
        &mut self,
        _now: Instant,
        subsystem: &Nqn,
        id: NamespaceId,
        geometry: Geometry,
    ) -> Result<(), TargetConfigError> {
        let place = self.namespace_named(subsystem, id)?;
        let namespace = &self.namespaces[place];
        let (index, old) = (namespace.subsystem, &namespace.config.geometry);
        let conventional_zone_count = if old.conventional_zone_count == old.zone_count {
            geometry.zone_count
        } else {
            old.conventional_zone_count
        };
        let subject = || format!("subsystem {subsystem}, namespace {id}, geometry");
        if geometry != (Geometry { zone_count: geometry.zone_count, conventional_zone_count, ..old.clone() }) {
            return fault(
                subject(),
                "may differ in zone_count only: remove the namespace, and add one with the new geometry",
            );
        }
        let resized = NamespaceConfig { geometry, ..namespace.config.clone() };
        resized.check(&format!("subsystem {subsystem}, namespace {id}"))?;
        if resized.geometry == *old {
            return Ok(());
        }
        let zone_count = resized.geometry.zone_count;
        let configured = self.subsystem_config_mut(index).namespaces.iter_mut().find(|it| it.id == id);
        *configured.expect("a served namespace is configured") = resized.clone();
        self.namespaces[place].format = NamespaceFormat::of(&resized.geometry, self.config.limits.transfer_bytes);
        self.namespaces[place].config = resized;
        self.update_subsystem(index);
        self.truncate_changed_zones(index, id, zone_count);
        self.note_namespace_change(index, id);
        Ok(())
    }

    /// Adds a subsystem, with or without namespaces; `options` of those that need any, by
    /// identifier. Hosts that may connect to it get a Discovery Log Page Change event.
    ///
    /// # Errors
    /// If the name is in use, the subsystem, a namespace or an option is invalid, a device has
    /// commands of a removed namespace, or a table is full.
    pub fn add_subsystem(
        &mut self,
        _now: Instant,
        subsystem: SubsystemConfig,
        mut options: BTreeMap<NamespaceId, NamespaceOptions>,
    ) -> Result<(), TargetConfigError> {
        let nqn = subsystem.nqn.clone();
        subsystem.check_name(&self.config.subsystems)?;
        subsystem.check()?;
        if let Some(id) = options.keys().find(|&&id| subsystem.namespaces.iter().all(|it| it.id != id)) {
            return fault(format!("subsystem {nqn}, options of namespace {id}"), "name no namespace: remove them");
        }
        if self.subsystems.len() >= SUBSYSTEMS_MAX {
            return fault(format!("subsystem {nqn}"), "the table of 1024 subsystems is full: remove one first");
        }
        self.check_table(subsystem.namespaces.len())?;
        let ids = subsystem.namespaces.iter().map(|namespace| namespace.id);
        let options: Vec<NamespaceOptions> = ids.map(|id| options.remove(&id).unwrap_or_default()).collect();
        let pairs: Vec<_> = subsystem.namespaces.iter().zip(&options).collect();
        self.check_devices(&nqn, &pairs)?;
        let mut prepared = Vec::new();
        for (namespace, options) in subsystem.namespaces.iter().zip(options) {
            prepared.push(prepare(&nqn, namespace, options)?);
        }
        let allow = subsystem.allow.clone();
        self.install_subsystem(subsystem, prepared);
        self.reservation_changes += 1;
        self.note_discovery_change(|host| allow.access(host).is_some());
        Ok(())
    }

    /// Replaces the hosts that may connect to a subsystem. Hosts that may not any more are
    /// disconnected at once; their commands at devices complete without a response. A changed
    /// secret counts from the next connection on.
    ///
    /// # Errors
    /// If there is no such subsystem, or the list is invalid.
    pub fn set_hosts(&mut self, now: Instant, subsystem: &Nqn, allow: HostAccess) -> Result<(), TargetConfigError> {
        let index = self.find(subsystem)?;
        allow.check(subsystem)?;
        let revoked = self.controllers.of(Some(index)).filter(|controller| allow.access(&controller.host).is_none());
        let admins: Vec<ConnectionId> = revoked.filter_map(Controller::admin_queue).collect();
        let before = std::mem::replace(&mut self.subsystem_config_mut(index).allow, allow);
        for admin in admins {
            self.close(now, admin, &CloseReason::AccessRevoked);
        }
        let after = self.subsystem_config(index).allow.clone();
        self.note_discovery_change(|host| before.access(host).is_some() != after.access(host).is_some());
        self.resume(now);
        Ok(())
    }

    /// The index of a subsystem that is not removed.
    pub(crate) fn subsystem_named(&self, nqn: &Nqn) -> Option<SubsystemIndex> {
        let is_named = |subsystem: &Subsystem| subsystem.place.is_some() && subsystem.nqn == *nqn;
        self.subsystems.iter().find(|(_, subsystem)| is_named(subsystem)).map(|(index, _)| index)
    }

    /// The index of a namespace that is not removed.
    pub(crate) fn namespace_named(&self, nqn: &Nqn, id: NamespaceId) -> Result<NamespaceIndex, TargetConfigError> {
        let subsystem = self.find(nqn)?;
        self.subsystems[subsystem].namespace(id.0).ok_or_else(|| TargetConfigError {
            subject: format!("subsystem {nqn}, namespace {id}"),
            remedy: "does not exist: choose the identifier of a namespace of the subsystem".to_owned(),
        })
    }

    /// The configuration of a subsystem that is not removed.
    pub(crate) fn subsystem_config(&self, index: SubsystemIndex) -> &SubsystemConfig {
        &self.config.subsystems[self.subsystems[index].place.expect("a removed subsystem has no configuration")]
    }

    pub(crate) fn subsystem_config_mut(&mut self, index: SubsystemIndex) -> &mut SubsystemConfig {
        &mut self.config.subsystems[self.subsystems[index].place.expect("a removed subsystem has no configuration")]
    }

    pub(crate) fn find(&self, nqn: &Nqn) -> Result<SubsystemIndex, TargetConfigError> {
        self.subsystem_named(nqn).ok_or_else(|| TargetConfigError {
            subject: format!("subsystem {nqn}"),
            remedy: "does not exist: choose the NQN of a subsystem, or add it first".to_owned(),
        })
    }

    /// The namespace with the least identifier of the first subsystem.
    #[cfg(test)]
    pub(crate) fn first_namespace(&self) -> &Namespace {
        let (_, subsystem) = self.subsystems.iter().next().expect("there is a subsystem");
        &self.namespaces[subsystem.namespaces().next().expect("it has a namespace")]
    }

    /// Adds a subsystem that was checked, with its namespaces.
    pub(crate) fn install_subsystem(&mut self, mut config: SubsystemConfig, prepared: Vec<Prepared>) {
        let namespaces = std::mem::take(&mut config.namespaces);
        let subsystem = Subsystem::new(&config.nqn, self.config.subsystems.len(), &self.config.limits);
        self.config.subsystems.push(config);
        let index = self.subsystems.insert(subsystem);
        for (namespace, prepared) in namespaces.into_iter().zip(prepared) {
            self.install_namespace(index, namespace, prepared);
        }
        self.update_subsystem(index);
    }

    /// Adds a namespace that was checked.
    fn install_namespace(&mut self, subsystem: SubsystemIndex, config: NamespaceConfig, prepared: Prepared) {
        let Prepared { is_write_protected, saved, reservations, persistence } = prepared;
        if is_write_protected {
            self.config.write_protected.insert(config.device);
        }
        if let Some(saved) = saved {
            self.config.saved_reservations.insert(config.device, saved);
        }
        self.subsystem_config_mut(subsystem).namespaces.push(config.clone());
        let id = config.id;
        let index = self.namespaces.insert(Namespace {
            subsystem,
            format: NamespaceFormat::of(&config.geometry, self.config.limits.transfer_bytes),
            health: self.health_of(config.device),
            config,
            is_write_protected,
            reservations,
            persistence,
            is_surveyed: false,
            statistics: NamespaceStatistics::default(),
            phase: NamespacePhase::Active,
            commands_at_device: 0,
            held: Default::default(),
            held_shutdowns: Vec::new(),
        });
        self.subsystems[subsystem].set_namespace(id.0, Some(index));
    }

    /// The health of a device as far as another namespace of it has it.
    fn health_of(&self, device: DeviceKey) -> DeviceHealth {
        let of_device = self.namespaces.values().find(|it| it.is_served_by(device));
        of_device.map_or_else(DeviceHealth::default, |namespace| namespace.health)
    }

    /// The namespaces of a subsystem have changed: calculates what its controllers report.
    pub(crate) fn update_subsystem(&mut self, index: SubsystemIndex) {
        let has_controllers = self.controllers.has_any_of(index);
        let place = self.subsystems[index].place.expect("a removed subsystem does not change");
        let config = &self.config.subsystems[place];
        self.subsystems[index].update(config, &self.config.limits, has_controllers);
    }

    /// Checks that so many more namespaces fit the table.
    fn check_table(&self, more: usize) -> Result<(), TargetConfigError> {
        if self.namespaces.len() + more > NAMESPACE_TABLE_MAX {
            return fault(
                "namespaces".to_owned(),
                "the table of 4096 namespaces is full: remove one first, and wait for its commands to complete",
            );
        }
        Ok(())
    }

    /// Checks the devices of new namespaces against those of all others.
    fn check_devices(
        &self,
        nqn: &Nqn,
        added: &[(&NamespaceConfig, &NamespaceOptions)],
    ) -> Result<(), TargetConfigError> {
        for (i, (namespace, options)) in added.iter().enumerate() {
            let subject = |what: &str| format!("subsystem {nqn}, namespace {}, {what}", namespace.id);
            let device = namespace.device;
            let in_table = self.namespaces.values().filter(|it| it.config.device == device);
            let mut shares_reservations = false;
            let mut protections = Vec::new();
            for other in in_table {
                let is_same = other.config.device_namespace == namespace.device_namespace;
                if other.is_removed() && (is_same || other.persistence.is_saving()) {
                    return fault(
                        subject("device"),
                        "has commands of a removed namespace: add the namespace after they have completed",
                    );
                }
                if !other.is_removed() {
                    shares_reservations |= self.config.saved_reservations.contains_key(&device);
                    shares_reservations |= options.saved_reservations.is_some();
                    protections.push(other.is_write_protected);
                }
            }
            for (_, other) in added[..i].iter().filter(|(other, _)| other.device == device) {
                shares_reservations |= options.saved_reservations.is_some() || other.saved_reservations.is_some();
                protections.push(other.is_write_protected);
            }
            if shares_reservations {
                return fault(
                    subject("saved reservations"),
                    "the device must belong to exactly one namespace: hosts of another namespace would share its \
                     reservations",
                );
            }
            if protections.iter().any(|&other| other != options.is_write_protected) {
                return fault(subject("write protection"), "must be that of the other namespaces of the device");
            }
        }
        Ok(())
    }
}
