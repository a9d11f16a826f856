//! What a target is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use zonda_chap::{Policy, Secret};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::Digests;
use zonda_nvme::{NQN_BYTES_MAX, Nqn};
use zonda_zoned::{Geometry, NamespaceId};

use crate::budget::Budget;
use crate::connection::host_data_bytes_max;
use crate::limits::{Limits, NAMESPACES_MAX, TRANSFER_BYTES_MIN};

/// All that one server loop offers.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Subsystems, with names of their own.
    pub subsystems: Vec<SubsystemConfig>,
    /// Where hosts reach them: what the discovery service tells. Every portal offers every subsystem.
    pub portals: Vec<Portal>,
    /// Bounds.
    pub limits: Limits,
    /// Memory for the data of all connections together.
    pub budget: Budget,
    /// Digests that hosts may turn on. A host that does not ask gets none.
    pub digests: Digests,
    /// Hashes and groups with which hosts may prove who they are.
    pub auth_policy: Policy,
    /// Fresh from the operating system: challenges are drawn from it.
    pub auth_seed: [u8; 32],
    /// The devices that can keep reservations through a loss of power, and what each was last asked to keep
    /// ([`crate::Effect::KeepReservations`]); empty for nothing. Such a device is that of one namespace.
    pub kept_reservations: BTreeMap<DeviceKey, Bytes>,
    /// Devices that nothing may change: commands of hosts that would end with Namespace is Write Protected (NVMe Base 2.0, section
    /// 8.12), and Identify says so. Reservations start as such a device has kept them; changes of them end with the target.
    pub write_protected: BTreeSet<DeviceKey>,
}

/// One subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// At most 20 printable ASCII characters.
    pub serial: String,
    /// At most 40 printable ASCII characters.
    pub model: String,
    /// At most 8 printable ASCII characters.
    pub firmware: String,
    /// Namespaces, with identifiers of their own.
    pub namespaces: Vec<NamespaceConfig>,
    /// Who may connect.
    pub allow: HostAccess,
}

/// One namespace.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// Its identifier in the subsystem, from 1.
    pub id: NamespaceId,
    /// The device that its commands go to.
    pub device: DeviceKey,
    /// What the device calls the namespace.
    pub device_namespace: NamespaceId,
    /// The device's geometry.
    pub geometry: Geometry,
    /// What hosts know it by; at least one identifier.
    pub identity: NamespaceIdentity,
    /// Whether the device completes writes that a loss of power takes back until the next flush.
    pub volatile_write_cache: bool,
}

/// Which hosts may connect.
#[derive(Clone, Debug)]
pub enum HostAccess {
    /// Any host, without authentication.
    Any,
    /// These.
    Hosts(Vec<HostEntry>),
}

/// A host that may connect.
#[derive(Clone, Debug)]
pub struct HostEntry {
    /// Its name.
    pub nqn: Nqn,
    /// What it must prove to know; without, it need not authenticate.
    pub secret: Option<Secret>,
    /// What the controller proves to know, when the host asks for that. Needs `secret`.
    pub controller_secret: Option<Secret>,
}

/// An address that the server listens at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// IPv4 or IPv6 address, as hosts reach it.
    pub address: String,
    /// TCP port.
    pub service: String,
}

/// What the caller calls one of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub u32);

/// A configuration that cannot be served, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfigError {
    /// What is at fault: a limit, or a subsystem or namespace and its field.
    pub subject: String,
    /// What it must be.
    pub remedy: String,
}

impl TargetConfig {
    /// A configuration with default limits for each connection and none for all together, all digests allowed, and Diffie-Hellman groups of at most 3072 bits.
    #[must_use]
    pub fn new(subsystems: Vec<SubsystemConfig>, portals: Vec<Portal>, auth_seed: [u8; 32]) -> TargetConfig {
        TargetConfig {
            subsystems,
            portals,
            limits: Limits::default(),
            budget: Budget::unlimited(),
            digests: Digests::BOTH,
            auth_policy: Policy::modest(),
            auth_seed,
            kept_reservations: BTreeMap::new(),
            write_protected: BTreeSet::new(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), TargetConfigError> {
        if let Some((field, remedy)) = self.limits.fault() {
            return fault(format!("limits.{field}"), remedy);
        }
        // A compare holds its data twice.
        if self.budget.request_bytes_max() < 2 * host_data_bytes_max(&self.limits) as usize {
            return fault(
                "budget".to_owned(),
                "must have room for the longest compare: raise it, or lower transfer_bytes",
            );
        }
        for portal in &self.portals {
            if portal.address.is_empty() || portal.address.len() > 256 || portal.service.len() > 32 {
                return fault(
                    format!("portal {}:{}", portal.address, portal.service),
                    "address must have 1 to 256 characters, port at most 32",
                );
            }
        }
        for (i, subsystem) in self.subsystems.iter().enumerate() {
            let named = &subsystem.nqn;
            if named.is_discovery() {
                return fault(format!("subsystem {named}"), "the discovery name is taken: choose a name of its own");
            }
            if self.subsystems[..i].iter().any(|other| other.nqn == *named) {
                return fault(format!("subsystem {named}"), "is there twice: choose another name");
            }
            subsystem.check()?;
        }
        for &device in self.kept_reservations.keys() {
            let namespaces = self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
            if namespaces.filter(|namespace| namespace.device == device).count() != 1 {
                return fault(
                    format!("kept_reservations, device {}", device.0),
                    "must be the device of one namespace: hosts of another would share its reservations",
                );
            }
        }
        Ok(())
    }
}

impl SubsystemConfig {
    /// Whether a host may connect, and how.
    pub(crate) fn access(&self, host: &Nqn) -> Option<Access<'_>> {
        match &self.allow {
            HostAccess::Any => Some(Access { secret: None, controller_secret: None }),
            HostAccess::Hosts(hosts) => hosts.iter().find(|entry| entry.nqn == *host).map(|entry| Access {
                secret: entry.secret.as_ref(),
                controller_secret: entry.controller_secret.as_ref(),
            }),
        }
    }

    fn check(&self) -> Result<(), TargetConfigError> {
        let subject = |field: &str| format!("subsystem {}, {field}", self.nqn);
        debug_assert!(self.nqn.as_str().len() <= NQN_BYTES_MAX);
        for (field, text, room) in
            [("serial", &self.serial, 20), ("model", &self.model, 40), ("firmware", &self.firmware, 8)]
        {
            if text.is_empty() || text.len() > room || !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
                return fault(subject(field), &format!("must be 1 to {room} printable ASCII characters"));
            }
        }
        if let HostAccess::Hosts(hosts) = &self.allow {
            for (i, host) in hosts.iter().enumerate() {
                if hosts[..i].iter().any(|other| other.nqn == host.nqn) {
                    return fault(subject(&format!("host {}", host.nqn)), "is there twice: keep one");
                }
                if host.secret.is_none() && host.controller_secret.is_some() {
                    return fault(
                        subject(&format!("host {}", host.nqn)),
                        "has a controller secret alone: add a host secret, which authentication begins with",
                    );
                }
                if host.secret.is_some() && host.secret == host.controller_secret {
                    return fault(
                        subject(&format!("host {}", host.nqn)),
                        "has one secret for both sides: make two, or one side's answers are the other's",
                    );
                }
            }
        }
        for (i, namespace) in self.namespaces.iter().enumerate() {
            let subject = subject(&format!("namespace {}", namespace.id));
            if !(1..=NAMESPACES_MAX).contains(&namespace.id.0) {
                return fault(subject, "identifier must be 1 to 1024");
            }
            if self.namespaces[..i].iter().any(|other| other.id == namespace.id) {
                return fault(subject, "is there twice: choose another identifier");
            }
            namespace.check(&subject)?;
        }
        Ok(())
    }
}

impl NamespaceConfig {
    fn check(&self, subject: &str) -> Result<(), TargetConfigError> {
        let geometry = &self.geometry;
        if let Err(error) = geometry.validate() {
            return Err(TargetConfigError {
                subject: format!("{subject}, geometry.{}", error.field),
                remedy: error.remedy,
            });
        }
        if geometry.conventional_zone_count > 0 && geometry.conventional_zone_count < geometry.zone_count {
            return fault(
                format!("{subject}, geometry.conventional_zone_count"),
                "NVMe has no namespace with both kinds of zones: set it to 0 (all sequential) or to zone_count (a \
                 conventional namespace), or make two namespaces of the drive",
            );
        }
        let least = geometry.max_transfer_blocks.bytes(geometry.block_size_bytes);
        if least < u64::from(TRANSFER_BYTES_MIN) {
            return fault(
                format!("{subject}, geometry.max_transfer_blocks"),
                "must be at least 8192 bytes: NVMe can't tell a smaller limit",
            );
        }
        let append = geometry.max_append_blocks.bytes(geometry.block_size_bytes);
        if geometry.conventional_zone_count == 0 && append < u64::from(TRANSFER_BYTES_MIN) {
            return fault(
                format!("{subject}, geometry.max_append_blocks"),
                "must be at least 8192 bytes: NVMe can't tell a smaller limit",
            );
        }
        let identity = &self.identity;
        if identity.uuid.is_none() && identity.nguid.is_none() && identity.eui64.is_none() {
            return fault(format!("{subject}, identity"), "must have a UUID, an NGUID or an EUI64: hosts need one");
        }
        Ok(())
    }
}

/// What a host needs to prove.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) secret: Option<&'a Secret>,
    pub(crate) controller_secret: Option<&'a Secret>,
}

fn fault(subject: String, remedy: &str) -> Result<(), TargetConfigError> {
    Err(TargetConfigError { subject, remedy: remedy.to_owned() })
}

impl fmt::Display for TargetConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.remedy)
    }
}

impl std::error::Error for TargetConfigError {}
