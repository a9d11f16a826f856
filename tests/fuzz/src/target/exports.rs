//! The exports in tests of the target and of the initiator.

use bytes::Bytes;
use zonda_chap::Secret;
use zonda_nvme::identify::NamespaceIdentity;
use zonda_target::{DeviceKey, HostAccess, HostEntry, Limits, NamespaceConfig, Portal, SubsystemConfig, TargetConfig};
use zonda_zoned::{Duration, Geometry, NamespaceId};

use super::name;
use crate::shapes;

/// A subsystem open to any host, one that requires authentication, the discovery service, and one
/// that does not exist.
pub(crate) const SUBSYSTEMS: [&str; 4] = [
    "nqn.2024-01.org.example:open",
    "nqn.2024-01.org.example:secret",
    "nqn.2014-08.org.nvmexpress.discovery",
    "nqn.2024-01.org.example:nowhere",
];
/// A host that the second subsystem allows, and one that it does not.
pub(crate) const HOSTS: [&str; 2] = ["nqn.2024-01.org.example:host", "nqn.2024-01.org.example:unlisted"];
/// Bytes of the longest transfer.
pub(crate) const TRANSFER_BYTES: u32 = 16 << 10;
/// Unsent bytes for a host above which its commands wait.
pub(crate) const OUTGOING_BYTES: usize = 64 << 10;

/// The secret of a host, or of the controller.
pub(crate) fn secret(byte: u8) -> Secret {
    Secret::new(None, &[byte; 32]).expect("a valid length")
}

/// The geometries of the devices.
pub(crate) fn geometries() -> [Geometry; 4] {
    [shapes::zoned(), shapes::conventional(), shapes::with_areas(), shapes::conventional()]
}

/// The device that saves reservations: its only namespace is the fourth of the first subsystem.
pub(crate) const PERSISTENT_DEVICE: DeviceKey = DeviceKey(3);

pub(crate) fn config(auth_seed: [u8; 32]) -> TargetConfig {
    let entry = HostEntry { nqn: name(HOSTS[0]), secret: Some(secret(1)), controller_secret: Some(secret(2)) };
    let subsystems = vec![
        subsystem(SUBSYSTEMS[0], &[0, 1, 2, PERSISTENT_DEVICE.0], HostAccess::Any),
        subsystem(SUBSYSTEMS[1], &[0, 1, 2], HostAccess::Hosts(vec![entry])),
    ];
    let portal = Portal { address: "192.0.2.1".to_owned(), service: "4420".to_owned() };
    let limits = Limits {
        connections: 8,
        half_open: 3,
        half_open_per_address: 3,
        discovery_controllers: 2,
        auth_steps: 1,
        controllers: 3,
        io_queues: 4,
        queue_entries: 32,
        transfer_bytes: TRANSFER_BYTES,
        in_capsule_bytes: 4096,
        outgoing_bytes: OUTGOING_BYTES,
        receive_bytes: 64 << 10,
        handshake: Duration::from_secs(20),
    };
    let mut config = TargetConfig { limits, ..TargetConfig::new(subsystems, vec![portal], auth_seed) };
    config.saved_reservations.insert(PERSISTENT_DEVICE, Bytes::new());
    config
}

fn subsystem(nqn: &str, devices: &[u32], allow: HostAccess) -> SubsystemConfig {
    let namespaces = (1..).zip(devices).map(|(id, &device)| NamespaceConfig {
        id: NamespaceId(id),
        device: DeviceKey(device),
        device_namespace: NamespaceId::FIRST,
        geometry: geometries()[device as usize].clone(),
        identity: NamespaceIdentity { uuid: Some([id as u8; 16]), ..NamespaceIdentity::default() },
        volatile_write_cache: true,
    });
    SubsystemConfig {
        nqn: name(nqn),
        serial: "1".to_owned(),
        model: "zonda".to_owned(),
        firmware: "1.0".to_owned(),
        namespaces: namespaces.collect(),
        allow,
    }
}
