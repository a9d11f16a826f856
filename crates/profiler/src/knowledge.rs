//! [`Knowledge`]: what is known of the drive so far: zones, groups, and the latencies that tell them
//! apart.

use std::collections::BTreeMap;

use zonda_zoned::{Blocks, Geometry, Prng, ZoneDescriptor, ZoneIndex, ZoneState};

use crate::limits::{ERRORS_MAX, READS_OF_ZONE_MIN};
use crate::probe::{Probe, ProbeError, Shape};
use crate::samples::References;
use crate::{GroupId, UnknownReason, ZoneEntry};

/// Shared by all stages of a measurement.
#[derive(Debug)]
pub(crate) struct Knowledge {
    pub(crate) geometry: Geometry,
    pub(crate) zones: Vec<ZoneRecord>,
    /// Zones with enough data, in their order.
    pub(crate) eligible: Vec<ZoneIndex>,
    pub(crate) groups: Vec<Group>,
    /// The group of each zone.
    pub(crate) known: Vec<Option<GroupId>>,
    pub(crate) shape: Shape,
    /// Latencies of zones alone, and of zones that load themselves.
    pub(crate) alone: References,
    /// By how much reads of a zone delay other reads of the zone, as a logarithm.
    pub(crate) own_gap: f64,
    /// Latencies beside this number of loaded zones.
    pub(crate) beside: BTreeMap<u32, Beside>,
    pub(crate) prng: Prng,
}

/// Loaded zones of a number that was calibrated.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    pub(crate) references: References,
    /// Outstanding reads of each.
    pub(crate) load_depth: u32,
}

/// A zone.
#[derive(Clone, Debug)]
pub(crate) struct ZoneRecord {
    /// Blocks from the start of the zone that have data.
    pub(crate) written: Blocks,
    pub(crate) entry: ZoneEntry,
    errors: u32,
}

/// A group that was found.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The zone that others are compared with; `None` if none of the group can be read any more.
    pub(crate) baseline: Option<ZoneIndex>,
    pub(crate) members: Vec<ZoneIndex>,
}

impl Knowledge {
    pub(crate) fn new(geometry: Geometry, prng: Prng) -> Knowledge {
        let shape = Shape { blocks: Blocks(1), target_reads: 1, target_depth: 1, load_depth: 1 };
        Knowledge {
            known: vec![None; geometry.zone_count as usize],
            geometry,
            zones: Vec::new(),
            eligible: Vec::new(),
            groups: Vec::new(),
            shape,
            alone: References::default(),
            own_gap: 0.0,
            beside: BTreeMap::new(),
            prng,
        }
    }

    /// Adds zones as the drive reports them.
    pub(crate) fn add_zones(&mut self, descriptors: &[ZoneDescriptor]) {
        for descriptor in descriptors {
            let written = match descriptor.state {
                ZoneState::Empty | ZoneState::Offline => Blocks::ZERO,
                _ => descriptor.write_pointer.map_or(descriptor.capacity_blocks, |lba| lba - descriptor.start),
            };
            let reason = match descriptor.state {
                ZoneState::Offline => UnknownReason::Offline,
                _ if written == Blocks::ZERO => UnknownReason::Empty,
                _ => UnknownReason::NotMeasured,
            };
            self.zones.push(ZoneRecord { written, entry: ZoneEntry::Unknown(reason), errors: 0 });
        }
    }

    /// Chooses the size of reads, and with it the zones that have enough data.
    pub(crate) fn choose_size(&mut self, blocks: Blocks) {
        self.shape.blocks = blocks;
        self.eligible.clear();
        for (zone, record) in self.zones.iter_mut().enumerate() {
            if record.entry != ZoneEntry::Unknown(UnknownReason::NotMeasured) {
                continue;
            }
            if record.written.0 >= blocks.0 * READS_OF_ZONE_MIN {
                self.eligible.push(ZoneIndex(zone as u32));
            } else {
                record.entry = ZoneEntry::Unknown(UnknownReason::TooLittleData);
            }
        }
    }

    pub(crate) fn written(&self, zone: ZoneIndex) -> Blocks {
        self.zones[zone.as_usize()].written
    }

    /// Whether the zone can be read as far as is known.
    pub(crate) fn is_readable(&self, zone: ZoneIndex) -> bool {
        let entry = self.zones[zone.as_usize()].entry;
        !matches!(entry, ZoneEntry::Unknown(UnknownReason::Failed(_) | UnknownReason::TimedOut))
    }

    /// A random zone that can be read.
    pub(crate) fn any_zone(&mut self) -> Option<ZoneIndex> {
        // A bounded number of attempts, because most zones may have failed.
        (0..64).find_map(|_| {
            let zone = *self.prng.pick(&self.eligible)?;
            self.is_readable(zone).then_some(zone)
        })
    }

    /// A random member of a group, another than the baseline if there is one.
    pub(crate) fn any_member(&mut self, group: GroupId) -> Option<ZoneIndex> {
        let members = &self.groups[group.0 as usize].members;
        if members.len() > 1 { self.prng.pick(&members[1..]).copied() } else { members.first().copied() }
    }

    /// Groups that have a baseline.
    pub(crate) fn live_groups(&self) -> Vec<GroupId> {
        let groups = self.groups.iter().enumerate();
        groups.filter(|(_, group)| group.baseline.is_some()).map(|(id, _)| GroupId(id as u32)).collect()
    }

    /// Groups that have a baseline and other zones.
    pub(crate) fn groups_of_several(&self) -> Vec<GroupId> {
        let mut groups = self.live_groups();
        groups.retain(|group| self.groups[group.0 as usize].members.len() > 1);
        groups
    }

    /// The baselines of groups.
    pub(crate) fn baselines(&self, groups: &[GroupId]) -> Vec<ZoneIndex> {
        groups.iter().filter_map(|group| self.groups[group.0 as usize].baseline).collect()
    }

    /// As many random groups, in random order.
    pub(crate) fn random_groups(&mut self, mut groups: Vec<GroupId>, count: usize) -> Vec<GroupId> {
        for at in 0..count.min(groups.len()) {
            let other = at + self.prng.below((groups.len() - at) as u64) as usize;
            groups.swap(at, other);
        }
        groups.truncate(count);
        groups
    }

    /// The largest number of zones that can be loaded at once so that latencies still show groups.
    pub(crate) fn largest_set(&self) -> u32 {
        self.beside.last_key_value().map_or(1, |(count, _)| *count)
    }

    /// The latencies beside this number of loaded zones.
    pub(crate) fn references(&self, loaded: usize) -> &References {
        match loaded {
            0 => &self.alone,
            _ => &self.beside_of(loaded).references,
        }
    }

    fn beside_of(&self, loaded: usize) -> &Beside {
        self.beside.get(&(loaded as u32)).expect("only calibrated numbers of zones are loaded")
    }

    /// A probe that can be compared with the references.
    pub(crate) fn probe(&self, target: ZoneIndex, load: Vec<ZoneIndex>) -> Probe {
        let load_depth = if load.is_empty() { 0 } else { self.beside_of(load.len()).load_depth };
        Probe { target, load, shape: Shape { load_depth, ..self.shape } }
    }

    /// The zone is the first of a new group.
    pub(crate) fn add_group(&mut self) -> GroupId {
        self.groups.push(Group { baseline: None, members: Vec::new() });
        GroupId(self.groups.len() as u32 - 1)
    }

    /// The result for a zone.
    pub(crate) fn set_entry(&mut self, zone: ZoneIndex, entry: ZoneEntry) {
        self.zones[zone.as_usize()].entry = entry;
        if let ZoneEntry::Known { group, .. } = entry {
            self.known[zone.as_usize()] = Some(group);
            let group = &mut self.groups[group.0 as usize];
            group.baseline.get_or_insert(zone);
            group.members.push(zone);
        }
    }

    /// Groups with at most half as many zones as others: their zones may belong to one of these.
    pub(crate) fn small_groups(&self) -> Vec<GroupId> {
        let mut sizes: Vec<usize> = self.groups.iter().map(|group| group.members.len()).collect();
        sizes.sort_unstable();
        let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
        let is_small = |(_, group): &(usize, &Group)| group.members.len() * 2 <= median;
        self.groups.iter().enumerate().filter(is_small).map(|(id, _)| GroupId(id as u32)).collect()
    }

    /// The zones of this group have no group again.
    pub(crate) fn dissolve(&mut self, group: GroupId) {
        let group = &mut self.groups[group.0 as usize];
        group.baseline = None;
        for zone in std::mem::take(&mut group.members) {
            self.known[zone.as_usize()] = None;
            self.zones[zone.as_usize()].entry = ZoneEntry::Unknown(UnknownReason::Contradiction);
        }
    }

    /// A command to a zone has failed. Returns whether the zone is unknown from now on.
    pub(crate) fn on_error(&mut self, error: ProbeError) -> bool {
        let record = &mut self.zones[error.zone.as_usize()];
        record.errors += 1;
        let reason = match error.status {
            Some(status) if record.errors >= ERRORS_MAX => UnknownReason::Failed(status),
            Some(_) => return false,
            // Another attempt would take as long.
            None => UnknownReason::TimedOut,
        };
        record.entry = ZoneEntry::Unknown(reason);
        if let Some(group) = self.known[error.zone.as_usize()].take() {
            let group = &mut self.groups[group.0 as usize];
            group.members.retain(|member| *member != error.zone);
            if group.baseline == Some(error.zone) {
                group.baseline = group.members.first().copied();
            }
        }
        true
    }
}
