//! Checks of a change before it takes effect.

use zonda_nvme::Nqn;
use zonda_zoned::{Geometry, NamespaceId};

use super::{NamespaceIndex, SubsystemIndex, Subsystems};
use crate::config::fault;
use crate::limits::{NAMESPACE_TABLE_MAX, SUBSYSTEMS_MAX};
use crate::{NamespaceConfig, NamespaceOptions, SubsystemConfig, TargetConfigError};

impl Subsystems {
    /// Checks a namespace that is to be added to a subsystem.
    pub(crate) fn check_namespace_addition(
        &self,
        index: SubsystemIndex,
        namespace: &NamespaceConfig,
        options: &NamespaceOptions,
        has_controllers: bool,
    ) -> Result<(), TargetConfigError> {
        let config = self.config_of(index);
        config.check_namespace(namespace, &config.namespaces)?;
        self.check_devices(&config.nqn, &[(namespace, options)])?;
        if has_controllers {
            let all = config.namespaces.iter().chain([namespace]);
            self.slots[index].check_limits(&all.map(|it| &it.geometry), self.limits())?;
        }
        self.check_table(1)
    }

    /// Checks a subsystem that is to be added, with the options of its namespaces.
    pub(crate) fn check_addition(
        &self,
        subsystem: &SubsystemConfig,
        options: &[NamespaceOptions],
    ) -> Result<(), TargetConfigError> {
        if self.slots.len() >= SUBSYSTEMS_MAX {
            let subject = format!("subsystem {}", subsystem.nqn);
            return fault(subject, "the table of 1024 subsystems is full: remove one first");
        }
        self.check_table(subsystem.namespaces.len())?;
        let pairs: Vec<_> = subsystem.namespaces.iter().zip(options).collect();
        self.check_devices(&subsystem.nqn, &pairs)
    }

    /// Checks a new geometry of a namespace, and completes it. `None`: it is the present one.
    pub(crate) fn check_resize(
        &self,
        place: NamespaceIndex,
        nqn: &Nqn,
        id: NamespaceId,
        geometry: Geometry,
    ) -> Result<Option<Geometry>, TargetConfigError> {
        let present = &self.namespaces[place].config;
        let old = &present.geometry;
        let conventional_zone_count = if old.conventional_zone_count == old.zone_count {
            geometry.zone_count
        } else {
            old.conventional_zone_count
        };
        if geometry != (Geometry { zone_count: geometry.zone_count, conventional_zone_count, ..old.clone() }) {
            fault(
                format!("subsystem {nqn}, namespace {id}, geometry"),
                "may differ in zone_count only: remove the namespace, and add one with the new geometry",
            )?;
        }
        let resized = NamespaceConfig { geometry, ..present.clone() };
        resized.check(&format!("subsystem {nqn}, namespace {id}"))?;
        Ok(Some(resized.geometry).filter(|geometry| geometry != old))
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
