//! The discovery log page: which subsystems a host may connect to, and where.

use std::net::IpAddr;

use zonda_nvme::Nqn;
use zonda_nvme::discovery::{AddressFamily, DiscoveryEntry, SubsystemKind, TcpAddress, write_log};

use crate::limits::QUEUE_ENTRIES_MAX;
use crate::target::Target;

/// The page changes only with the configuration, which stays.
const GENERATION: u64 = 1;

impl Target {
    /// The page for a host: the portal it came through first.
    pub(crate) fn discovery_page(&self, host: &Nqn, portal: usize) -> Vec<u8> {
        let places = std::iter::once(portal).chain((0..self.config.portals.len()).filter(|&other| other != portal));
        let mut entries = Vec::new();
        for place in places {
            let portal = &self.config.portals[place];
            // An address that is no IPv6 address may be a name; hosts resolve it.
            let family = match portal.address.parse() {
                Ok(IpAddr::V6(_)) => AddressFamily::Ipv6,
                _ => AddressFamily::Ipv4,
            };
            let at = TcpAddress { family, address: &portal.address, service: &portal.service };
            for subsystem in self.config.subsystems.iter().filter(|subsystem| subsystem.access(host).is_some()) {
                let nqn = subsystem.nqn.as_str();
                let entry = DiscoveryEntry::tcp(SubsystemKind::Nvm, place as u16, nqn, &at, QUEUE_ENTRIES_MAX);
                entries.extend(entry);
            }
        }
        write_log(GENERATION, &entries)
    }
}
