//! Configuration of a target.

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
use crate::limits::{Limits, NAMESPACE_TABLE_MAX, NAMESPACES_MAX, TRANSFER_BYTES_MIN};

/// Everything that one server loop exports.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Subsystems, with unique names.
    pub subsystems: Vec<SubsystemConfig>,
    /// Addresses at which hosts reach the subsystems, as the discovery service reports them. Every
    /// portal offers every subsystem.
    pub portals: Vec<Portal>,
    /// Limits.
    pub limits: Limits,
    /// Memory for the data of all connections together.
    pub budget: Budget,
    /// Digests that hosts may enable. A host that does not request a digest gets none.
    pub digests: Digests,
    /// Hashes and Diffie-Hellman groups with which hosts may authenticate.
    pub auth_policy: Policy,
    /// Random bytes from the operating system, from which challenges are generated.
    pub auth_seed: [u8; 32],
    /// The devices that can persist reservations through power loss, and the bytes that each saved
    /// last ([`crate::Effect::SaveReservations`]); empty if it has saved none. Such a device
    /// belongs to one namespace.
    pub saved_reservations: BTreeMap<DeviceKey, Bytes>,
    /// Devices that are write protected: commands that would change them fail with Namespace is
    /// Write Protected (NVMe Base 2.0, section 8.12), and Identify reports the protection.
    /// Reservations are restored from such a device; later changes of them are lost with the
    /// target.
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
    /// Namespaces, with unique identifiers.
    pub namespaces: Vec<NamespaceConfig>,
    /// Hosts that may connect.
    pub allow: HostAccess,
}

/// One namespace.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// Its identifier in the subsystem, from 1.
    pub id: NamespaceId,
    /// The device that its commands go to.
    pub device: DeviceKey,
    /// Identifier of the namespace on the device.
    pub device_namespace: NamespaceId,
    /// The device's geometry.
    pub geometry: Geometry,
    /// Identifiers that hosts recognise it by; at least one.
    pub identity: NamespaceIdentity,
    /// Whether writes are volatile until the next flush.
    pub volatile_write_cache: bool,
}

/// Which hosts may connect.
#[derive(Clone, Debug)]
pub enum HostAccess {
    /// Any host, without authentication.
    Any,
    /// The hosts of this list.
    Hosts(Vec<HostEntry>),
}

/// A host that may connect.
#[derive(Clone, Debug)]
pub struct HostEntry {
    /// Its name.
    pub nqn: Nqn,
    /// The secret with which the host must authenticate; `None` if it need not authenticate.
    pub secret: Option<Secret>,
    /// The secret with which the controller authenticates when the host requests it. Requires
    /// `secret`.
    pub controller_secret: Option<Secret>,
}

/// An address that the server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// IPv4 or IPv6 address, as hosts reach it.
    pub address: String,
    /// TCP port.
    pub service: String,
}

/// The caller's identifier of one of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub u32);

/// An invalid configuration, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfigError {
    /// What is invalid: a limit, or a field of a subsystem or namespace.
    pub subject: String,
    /// What the value must be.
    pub remedy: String,
}

impl TargetConfig {
    /// A configuration with default limits for each connection and none for all together, all
    /// digests allowed, and Diffie-Hellman groups of at most 3072 bits.
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
            saved_reservations: BTreeMap::new(),
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
                "is too small for the longest compare: raise it, or lower transfer_bytes",
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
            subsystem.check_name(&self.subsystems[..i])?;
            subsystem.check()?;
        }
        if self.subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum::<usize>() > NAMESPACE_TABLE_MAX {
            return fault("namespaces".to_owned(), "there must be at most 4096, of all subsystems together");
        }
        for &device in self.saved_reservations.keys() {
            let namespaces = self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
            if namespaces.filter(|namespace| namespace.device == device).count() != 1 {
                return fault(
                    format!("saved_reservations, device {}", device.0),
                    "must belong to exactly one namespace: hosts of another namespace would share its reservations",
                );
            }
        }
        Ok(())
    }
}

impl SubsystemConfig {
    /// Whether a host may connect, and how.
    pub(crate) fn access(&self, host: &Nqn) -> Option<Access<'_>> {
        self.allow.access(host)
    }

    /// Checks the name against those of other subsystems.
    pub(crate) fn check_name(&self, others: &[SubsystemConfig]) -> Result<(), TargetConfigError> {
        let named = &self.nqn;
        if named.is_discovery() {
            return fault(format!("subsystem {named}"), "the discovery NQN is reserved: choose another NQN");
        }
        if others.iter().any(|other| other.nqn == *named) {
            return fault(format!("subsystem {named}"), "is configured twice: choose another NQN");
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<(), TargetConfigError> {
        let subject = |field: &str| format!("subsystem {}, {field}", self.nqn);
        assert!(self.nqn.as_str().len() <= NQN_BYTES_MAX, "an NQN is checked when it is made");
        for (field, text, bytes_max) in
            [("serial", &self.serial, 20), ("model", &self.model, 40), ("firmware", &self.firmware, 8)]
        {
            if text.is_empty() || text.len() > bytes_max || !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
                return fault(subject(field), &format!("must be 1 to {bytes_max} printable ASCII characters"));
            }
        }
        self.allow.check(&self.nqn)?;
        for (i, namespace) in self.namespaces.iter().enumerate() {
            self.check_namespace(namespace, &self.namespaces[..i])?;
        }
        Ok(())
    }

    /// Checks a namespace of the subsystem against others.
    pub(crate) fn check_namespace(
        &self,
        namespace: &NamespaceConfig,
        others: &[NamespaceConfig],
    ) -> Result<(), TargetConfigError> {
        let subject = format!("subsystem {}, namespace {}", self.nqn, namespace.id);
        if !(1..=NAMESPACES_MAX).contains(&namespace.id.0) {
            return fault(subject, "identifier must be 1 to 1024");
        }
        if others.iter().any(|other| other.id == namespace.id) {
            return fault(subject, "is configured twice: choose another identifier");
        }
        namespace.check(&subject)
    }
}

impl HostAccess {
    /// Whether a host may connect, and how.
    pub(crate) fn access(&self, host: &Nqn) -> Option<Access<'_>> {
        match self {
            HostAccess::Any => Some(Access { secret: None, controller_secret: None }),
            HostAccess::Hosts(hosts) => hosts.iter().find(|entry| entry.nqn == *host).map(|entry| Access {
                secret: entry.secret.as_ref(),
                controller_secret: entry.controller_secret.as_ref(),
            }),
        }
    }

    /// Checks the list of a subsystem.
    pub(crate) fn check(&self, subsystem: &Nqn) -> Result<(), TargetConfigError> {
        let HostAccess::Hosts(hosts) = self else { return Ok(()) };
        for (i, host) in hosts.iter().enumerate() {
            let subject = || format!("subsystem {subsystem}, host {}", host.nqn);
            if hosts[..i].iter().any(|other| other.nqn == host.nqn) {
                return fault(subject(), "is configured twice: remove one entry");
            }
            if host.secret.is_none() && host.controller_secret.is_some() {
                return fault(
                    subject(),
                    "has a controller secret only: add a host secret, which authentication begins with",
                );
            }
            if host.secret.is_some() && host.secret == host.controller_secret {
                return fault(
                    subject(),
                    "has the same secret for host and controller: generate two, or responses can be reflected",
                );
            }
        }
        Ok(())
    }
}

impl NamespaceConfig {
    pub(crate) fn check(&self, subject: &str) -> Result<(), TargetConfigError> {
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
                "must be at least 8192 bytes: NVMe cannot express a smaller limit",
            );
        }
        let append = geometry.max_append_blocks.bytes(geometry.block_size_bytes);
        if geometry.conventional_zone_count == 0 && append < u64::from(TRANSFER_BYTES_MIN) {
            return fault(
                format!("{subject}, geometry.max_append_blocks"),
                "must be at least 8192 bytes: NVMe cannot express a smaller limit",
            );
        }
        let identity = &self.identity;
        if identity.uuid.is_none() && identity.nguid.is_none() && identity.eui64.is_none() {
            return fault(
                format!("{subject}, identity"),
                "must have a UUID, an NGUID or an EUI64: hosts identify namespaces by it",
            );
        }
        Ok(())
    }
}

/// The secrets that a host and its controller authenticate with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) secret: Option<&'a Secret>,
    pub(crate) controller_secret: Option<&'a Secret>,
}

pub(crate) fn fault(subject: String, remedy: &str) -> Result<(), TargetConfigError> {
    Err(TargetConfigError { subject, remedy: remedy.to_owned() })
}

impl fmt::Display for TargetConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.remedy)
    }
}

impl std::error::Error for TargetConfigError {}
