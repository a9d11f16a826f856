//! Changes of the configuration while hosts are connected and have commands in flight.
//!
//! A change is checked completely before it takes effect: an error changes nothing. Hosts are
//! notified with Namespace Attribute Changed and Discovery Log Page Change events. The ends of
//! namespaces and subsystems, which may have to wait for devices, are in
//! [`removal`](crate::removal).

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::Nqn;
use zonda_zoned::{Geometry, Instant, NamespaceId};

use crate::config::fault;
use crate::controller::Controller;
use crate::effects::{CloseReason, ConnectionId};
use crate::subsystems::prepare;
use crate::target::Target;
use crate::{HostAccess, NamespaceConfig, SubsystemConfig, TargetConfig, TargetConfigError};

/// What the device of a new namespace can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// See [`TargetConfig::write_protected`]; the same for all namespaces of the device.
    pub is_write_protected: bool,
    /// See [`TargetConfig::saved_reservations`]; `None`: the device cannot save reservations.
    pub saved_reservations: Option<Bytes>,
}

impl Target {
    /// What the target serves now.
    #[must_use]
    pub fn config(&self) -> &TargetConfig {
        self.subsystems.config()
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
        let index = self.subsystems.named(subsystem)?;
        let has_controllers = self.controllers.has_any_of(index);
        self.subsystems.check_namespace_addition(index, &namespace, &options, has_controllers)?;
        let prepared = prepare(subsystem, &namespace, options)?;
        let id = namespace.id;
        self.subsystems.add_namespace(index, namespace, prepared, has_controllers);
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
        let place = self.subsystems.namespace_named(subsystem, id)?;
        let index = self.subsystems.namespace(place).subsystem();
        let Some(geometry) = self.subsystems.check_resize(place, subsystem, id, geometry)? else { return Ok(()) };
        let zone_count = geometry.zone_count;
        self.subsystems.resize(place, geometry, self.controllers.has_any_of(index));
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
        subsystem.check_name(&self.subsystems.config().subsystems)?;
        subsystem.check()?;
        if let Some(id) = options.keys().find(|&&id| subsystem.namespaces.iter().all(|it| it.id != id)) {
            return fault(format!("subsystem {nqn}, options of namespace {id}"), "name no namespace: remove them");
        }
        let ids = subsystem.namespaces.iter().map(|namespace| namespace.id);
        let options: Vec<NamespaceOptions> = ids.map(|id| options.remove(&id).unwrap_or_default()).collect();
        self.subsystems.check_addition(&subsystem, &options)?;
        let mut prepared = Vec::new();
        for (namespace, options) in subsystem.namespaces.iter().zip(options) {
            prepared.push(prepare(&nqn, namespace, options)?);
        }
        let allow = subsystem.allow.clone();
        self.subsystems.add(subsystem, prepared);
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
        let index = self.subsystems.named(subsystem)?;
        allow.check(subsystem)?;
        let revoked = self.controllers.of(Some(index)).filter(|controller| allow.access(&controller.host).is_none());
        let admins: Vec<ConnectionId> = revoked.filter_map(Controller::admin_queue).collect();
        let before = self.subsystems.set_hosts(index, allow);
        for admin in admins {
            self.close(now, admin, &CloseReason::AccessRevoked);
        }
        let after = self.subsystems.config_of(index).allow.clone();
        self.note_discovery_change(|host| before.access(host).is_some() != after.access(host).is_some());
        self.resume(now);
        Ok(())
    }

    /// The namespace with the least identifier of the first subsystem.
    #[cfg(test)]
    pub(crate) fn first_namespace(&self) -> &crate::subsystems::Namespace {
        let first = self.subsystems.named(&self.config().subsystems[0].nqn).expect("a configured subsystem is served");
        self.subsystems.namespace(self.subsystems[first].namespaces().next().expect("it has a namespace"))
    }
}
