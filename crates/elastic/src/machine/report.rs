//! The state of a pool for operators: what each physical zone is used for, and the widths of stripe
//! groups that can be written.

use std::collections::BTreeMap;

use zonda_zoned::{NamespaceId, ZoneIndex};

use super::Pool;
use crate::group::Group;
use crate::zones::ZoneUse;

/// What a physical zone is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneRole {
    /// Empty.
    Free,
    /// Reserved for the next stripe groups by its first block.
    Reserved,
    /// In a stripe group of this namespace.
    Group(NamespaceId),
    /// To be reset.
    Resetting,
    /// Of the log of the pool.
    Log,
    /// Not used: it has failed, holds something that is not the pool's, or could not be read.
    Unusable,
}

impl Pool {
    /// What a physical zone is used for; `None` for one that the drive does not have.
    #[must_use]
    pub fn zone_role(&self, zone: ZoneIndex) -> Option<ZoneRole> {
        (zone.0 < self.drive.zone_count).then(|| match self.zones.zone_use(zone.0) {
            ZoneUse::Free => ZoneRole::Free,
            ZoneUse::Reserved => ZoneRole::Reserved,
            ZoneUse::Group { namespace, .. } => ZoneRole::Group(NamespaceId(namespace)),
            ZoneUse::Leaving | ZoneUse::Resetting => ZoneRole::Resetting,
            ZoneUse::Log => ZoneRole::Log,
            ZoneUse::Retired | ZoneUse::SetAside => ZoneRole::Unusable,
        })
    }

    /// Widths of the stripe groups of a v-zone, in order.
    #[must_use]
    pub fn group_widths(&self, namespace: NamespaceId, zone: ZoneIndex) -> Vec<u32> {
        let vzone = self.namespaces.get(&namespace.0).and_then(|found| found.vzones.get(zone.as_usize()));
        vzone.map_or_else(Vec::new, |vzone| vzone.groups.iter().map(Group::width).collect())
    }

    /// The physical zones of a v-zone, group by group.
    #[must_use]
    pub fn physical_zones(&self, namespace: NamespaceId, zone: ZoneIndex) -> Vec<ZoneIndex> {
        let vzone = self.namespaces.get(&namespace.0).and_then(|found| found.vzones.get(zone.as_usize()));
        let groups = vzone.map_or(&[][..], |vzone| &vzone.groups);
        groups.iter().flat_map(|group| group.zones().iter().copied().map(ZoneIndex)).collect()
    }

    /// The memory of the v-zone of a namespace that takes most, in bytes: its place in the table, its
    /// stripe groups and queues; 0 for a namespace that does not exist. The paper has at most 1 KiB
    /// (Section 5.4).
    #[must_use]
    pub fn vzone_memory_max_bytes(&self, namespace: NamespaceId) -> usize {
        let vzones = self.namespaces.get(&namespace.0).map_or(&[][..], |found| &found.vzones);
        vzones.iter().map(crate::vzone::VZone::memory_bytes).max().unwrap_or(0)
    }

    /// The stripe groups of a namespace that can be written, by their width: how many of each.
    #[must_use]
    pub fn writable_groups(&self, namespace: NamespaceId) -> BTreeMap<u32, u32> {
        let mut groups = BTreeMap::new();
        let vzones = self.namespaces.get(&namespace.0).map_or(&[][..], |found| &found.vzones);
        for vzone in vzones {
            for held in vzone.grants.iter().filter(|held| !held.is_draining) {
                *groups.entry(vzone.groups[held.group].width()).or_default() += 1;
            }
        }
        groups
    }
}
