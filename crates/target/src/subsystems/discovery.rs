//! The discovery log page: the subsystems that a host may connect to, and their addresses.

use std::net::IpAddr;

use zonda_nvme::Nqn;
use zonda_nvme::discovery::{AddressFamily, DiscoveryEntry, SubsystemKind, TcpAddress, write_log};

use super::Subsystems;
use crate::limits::QUEUE_ENTRIES_MAX;

impl Subsystems {
    /// The discovery log page has changed.
    pub(crate) fn note_discovery_change(&mut self) {
        self.discovery_generation += 1;
    }

    /// The page for a host, with the portal that it is connected to first. A portal that listens on
    /// every address (0.0.0.0 or ::) is reported with the address that the host has connected to.
    pub(crate) fn discovery_page(&self, host: &Nqn, portal: usize, reached_at: Option<&str>) -> Vec<u8> {
        let places = std::iter::once(portal).chain((0..self.config.portals.len()).filter(|&other| other != portal));
        let mut entries = Vec::new();
        for place in places {
            let portal = &self.config.portals[place];
            let listens_everywhere = portal.address.parse().is_ok_and(|address: IpAddr| address.is_unspecified());
            let address = reached_at.filter(|_| listens_everywhere).unwrap_or(&portal.address);
            // An address that is no IPv6 address may be a name; hosts resolve it.
            let family = match address.parse() {
                Ok(IpAddr::V6(_)) => AddressFamily::Ipv6,
                _ => AddressFamily::Ipv4,
            };
            let at = TcpAddress { family, address, service: &portal.service };
            for subsystem in self.config.subsystems.iter().filter(|subsystem| subsystem.access(host).is_some()) {
                let nqn = subsystem.nqn.as_str();
                let entry = DiscoveryEntry::tcp(SubsystemKind::Nvm, place as u16, nqn, &at, QUEUE_ENTRIES_MAX);
                entries.extend(entry);
            }
        }
        write_log(self.discovery_generation, &entries)
    }
}
