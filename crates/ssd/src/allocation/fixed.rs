//! `fixed`: a zone's erase units are its own for ever.

use zonda_zoned::ZoneIndex;

use super::{DieIndex, Stripe, UnitOfZone, ZoneAllocator};
use crate::counters::Wear;
use crate::profile::{Placement, Profile};

/// The policy of today's drives: zone and flash are bound together, and FINISH pads to the zone's capacity.
#[derive(Debug)]
pub struct FixedAllocator {
    /// One stripe for each group of dies.
    groups: Vec<Stripe>,
    placement: Placement,
    next_group: usize,
    zone_capacity_bytes: u64,
    read_unit_bytes: u64,
    erase_unit_bytes: u64,
    units_per_die: u32,
    /// Units of each zone, slot by slot; absent until the zone is first programmed.
    zones: Vec<Option<Box<[Unit]>>>,
    /// Zones at the start that are not this policy's.
    conventional_zones: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unit {
    erases: u32,
    state: UnitState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UnitState {
    #[default]
    Erased,
    Written,
    Invalid,
}

impl FixedAllocator {
    /// The policy over a profile's zones and dies.
    #[must_use]
    pub fn new(profile: &Profile) -> FixedAllocator {
        let (dies, parallelism) = (profile.dies(), profile.zones.parallelism);
        let group = |group: u32| (0..parallelism).map(|slot| DieIndex((group * parallelism + slot) as u16)).collect();
        let zone_capacity_bytes = profile.geometry.zone_capacity.0;
        let bytes_per_die = zone_capacity_bytes / u64::from(parallelism);
        FixedAllocator {
            groups: (0..dies / parallelism).map(group).collect(),
            placement: profile.zones.placement,
            next_group: 0,
            zone_capacity_bytes,
            read_unit_bytes: profile.flash.read_unit.0,
            erase_unit_bytes: profile.flash.erase_unit.0,
            units_per_die: bytes_per_die.div_ceil(profile.flash.erase_unit.0) as u32,
            zones: (0..profile.geometry.zones).map(|_| None).collect(),
            conventional_zones: profile.geometry.conventional_zones as usize,
        }
    }

    fn units_per_zone(&self) -> usize {
        self.groups[0].len() * self.units_per_die as usize
    }

    fn units(&mut self, zone: ZoneIndex) -> &mut [Unit] {
        let count = self.units_per_zone();
        self.zones[zone.as_usize()].get_or_insert_with(|| vec![Unit::default(); count].into())
    }
}

impl ZoneAllocator for FixedAllocator {
    fn allocate(&mut self, zone: ZoneIndex) -> Stripe {
        let group = match self.placement {
            Placement::ByIndex => zone.as_usize() % self.groups.len(),
            Placement::RoundRobin => {
                let group = self.next_group;
                self.next_group = (group + 1) % self.groups.len();
                group
            }
        };
        self.groups[group].clone()
    }

    fn program(&mut self, zone: ZoneIndex, unit: UnitOfZone) -> bool {
        let index = usize::from(unit.slot) * self.units_per_die as usize + unit.row as usize;
        let unit = &mut self.units(zone)[index];
        let must_erase = unit.state == UnitState::Invalid;
        unit.erases += u32::from(must_erase);
        unit.state = UnitState::Written;
        must_erase
    }

    fn pad_until_bytes(&self, _zone: ZoneIndex, _written_bytes: u64) -> u64 {
        self.zone_capacity_bytes
    }

    fn reset(&mut self, zone: ZoneIndex) {
        let Some(units) = &mut self.zones[zone.as_usize()] else { return };
        for unit in units.iter_mut().filter(|unit| unit.state == UnitState::Written) {
            unit.state = UnitState::Invalid;
        }
    }

    fn prefill(&mut self, zone: ZoneIndex, written_bytes: u64) {
        let (slots, units_per_die) = (self.groups[0].len() as u64, self.units_per_die as usize);
        let (read_unit, erase_unit) = (self.read_unit_bytes, self.erase_unit_bytes);
        let pages = written_bytes.div_ceil(read_unit);
        let units = self.units(zone);
        for slot in 0..slots {
            let pages_here = (pages + slots - 1 - slot) / slots;
            let written = (pages_here * read_unit).div_ceil(erase_unit) as usize;
            let start = slot as usize * units_per_die;
            for unit in &mut units[start..start + written.min(units_per_die)] {
                unit.state = UnitState::Written;
            }
        }
    }

    fn wear(&self) -> Wear {
        let zones = &self.zones[self.conventional_zones..];
        let units = (zones.len() * self.units_per_zone()) as u64;
        let mut wear = Wear { units, erases_min: u32::MAX, ..Wear::default() };
        for zone in zones {
            let Some(units) = zone else {
                wear.erases_min = 0;
                continue;
            };
            for unit in units {
                wear.erases += u64::from(unit.erases);
                wear.erases_max = wear.erases_max.max(unit.erases);
                wear.erases_min = wear.erases_min.min(unit.erases);
            }
        }
        wear
    }

    fn check_invariants(&self) {
        for (zone, units) in self.zones.iter().enumerate() {
            let right = units.as_ref().is_none_or(|units| units.len() == self.units_per_zone());
            assert!(right, "zone {zone} has units for each of its dies");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> FixedAllocator {
        FixedAllocator::new(&crate::profile::tests::tiny())
    }

    #[test]
    fn a_unit_is_erased_once_it_was_written_and_reset_and_not_before() {
        let (mut allocator, zone) = (tiny(), ZoneIndex(3));
        let unit = UnitOfZone { slot: 1, row: 0 };
        assert!(!allocator.program(zone, unit), "a new unit is erased");
        assert!(!allocator.program(zone, unit), "and stays so until the zone is reset");
        allocator.reset(zone);
        assert!(allocator.program(zone, unit));
        assert_eq!((allocator.wear().erases, allocator.wear().erases_max, allocator.wear().erases_min), (1, 1, 0));
    }

    #[test]
    fn finishing_pads_to_the_capacity_however_little_is_written() {
        assert_eq!(tiny().pad_until_bytes(ZoneIndex(0), 4096), 1536 << 10);
    }

    #[test]
    fn round_robin_gives_each_allocation_the_next_group_of_dies() {
        let mut profile = crate::profile::tests::tiny();
        profile.zones.parallelism = 2;
        profile.zones.placement = Placement::RoundRobin;
        let mut allocator = FixedAllocator::new(&profile);
        let stripes: Vec<Vec<u16>> =
            [5, 5, 0].map(|zone| allocator.allocate(ZoneIndex(zone)).iter().map(|die| die.0).collect()).into();
        assert_eq!(stripes, [[0, 1], [2, 3], [0, 1]]);
    }

    #[test]
    fn a_prefilled_zone_is_erased_where_it_was_filled() {
        let (mut allocator, zone) = (tiny(), ZoneIndex(0));
        allocator.prefill(zone, 32 << 10);
        allocator.reset(zone);
        let erases: Vec<bool> = (0..4).map(|slot| allocator.program(zone, UnitOfZone { slot, row: 0 })).collect();
        assert_eq!(erases, [true, true, false, false], "32 KiB lie on the first two dies");
    }
}
