//! `fixed`: the erase units of a zone never change.

use zonda_zoned::ZoneIndex;

use super::state::bytes_of_number_below;
use super::{
    AllocationFacts, AllocationKind, DieIndex, Element, ElementErase, ElementGrid, ElementState, ElementTable,
    ElementTableError, Stripe, UnitOfZone, ZoneAllocator,
};
use crate::counters::Wear;
use crate::layout::Layout;
use crate::profile::{Placement, Profile};

/// The policy of today's drives: each zone has fixed erase units, and FINISH pads to the zone's
/// capacity.
#[derive(Debug)]
pub struct FixedAllocator {
    /// One stripe for each group of dies.
    groups: Vec<Stripe>,
    placement: Placement,
    next_group: usize,
    grid: ElementGrid,
    layout: Layout,
    erase_unit_bytes: u64,
    /// Units of each zone, slot by slot; absent until the zone is first programmed.
    zones: Vec<Option<Box<[Element]>>>,
    /// Zones at the start that this policy does not allocate.
    conventional_zones: usize,
    allocations: u64,
}

impl FixedAllocator {
    /// The policy over a profile's zones and dies.
    #[must_use]
    pub fn new(profile: &Profile) -> FixedAllocator {
        let (dies, parallelism) = (profile.dies(), profile.zones.parallelism);
        let group = |first: u32| Stripe::uniform((first..first + parallelism).map(|die| DieIndex(die as u16)));
        FixedAllocator {
            groups: (0..dies).step_by(parallelism as usize).map(group).collect(),
            placement: profile.zones.placement,
            next_group: 0,
            grid: ElementGrid::new(profile),
            layout: Layout::new(profile),
            erase_unit_bytes: profile.flash.erase_unit.0,
            zones: (0..profile.geometry.zones).map(|_| None).collect(),
            conventional_zones: profile.geometry.conventional_zones as usize,
            allocations: 0,
        }
    }

    fn units_per_zone(&self) -> usize {
        self.grid.elements_per_zone() as usize
    }

    fn units(&mut self, zone: ZoneIndex) -> &mut [Element] {
        let count = self.units_per_zone();
        self.zones[zone.as_usize()].get_or_insert_with(|| vec![Element::default(); count].into())
    }

    /// The units of all zones that were ever programmed, and how many the others have.
    fn used_and_unused(&self) -> (impl Iterator<Item = Element>, u64) {
        let zones = &self.zones[self.conventional_zones..];
        let unused = zones.iter().filter(|units| units.is_none()).count() * self.units_per_zone();
        (zones.iter().flatten().flat_map(|units| units.iter().copied()), unused as u64)
    }
}

impl ZoneAllocator for FixedAllocator {
    fn allocate(&mut self, zone: ZoneIndex) -> Stripe {
        self.allocations += 1;
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

    fn program(&mut self, zone: ZoneIndex, unit: UnitOfZone) -> Option<ElementErase> {
        let index = usize::from(unit.slot) * self.grid.rows as usize + unit.row as usize;
        let element = &mut self.units(zone)[index];
        let must_erase = element.state == ElementState::Invalid;
        element.erases += u32::from(must_erase);
        element.state = ElementState::Written;
        must_erase.then_some(ElementErase { first_slot: unit.slot, slots: 1, units: 1 })
    }

    fn pad_ends(&self, _written_bytes: u64, ends_bytes: &mut [u64]) {
        ends_bytes.fill(self.layout.slot_capacity_bytes());
    }

    fn release_untouched(&mut self, _zone: ZoneIndex, _written_bytes: u64) {}

    fn reset(&mut self, zone: ZoneIndex) {
        let Some(units) = &mut self.zones[zone.as_usize()] else { return };
        for unit in units.iter_mut().filter(|unit| unit.state == ElementState::Written) {
            unit.state = ElementState::Invalid;
        }
    }

    fn retire(&mut self, zone: ZoneIndex) {
        for unit in self.units(zone) {
            unit.state = ElementState::Retired;
        }
    }

    fn prefill(&mut self, zone: ZoneIndex, written_bytes: u64) {
        let (layout, erase_unit, rows) = (self.layout, self.erase_unit_bytes, self.grid.rows as usize);
        let units = self.units(zone);
        for (slot, units) in units.chunks_mut(rows).enumerate() {
            let written = layout.bytes_on_slot(written_bytes, slot as u16).div_ceil(erase_unit) as usize;
            for unit in units.iter_mut().take(written).filter(|unit| unit.state != ElementState::Retired) {
                unit.state = ElementState::Written;
            }
        }
    }

    fn wear(&self) -> Wear {
        let (used, unused) = self.used_and_unused();
        let erases_min = if unused > 0 { 0 } else { u32::MAX };
        let mut wear = Wear { units: unused, erases_min, ..Wear::default() };
        for unit in used {
            wear.units += 1;
            wear.erases += u64::from(unit.erases);
            wear.erases_max = wear.erases_max.max(unit.erases);
            wear.erases_min = wear.erases_min.min(unit.erases);
        }
        wear
    }

    /// A zone is counted for the dies of its index, whatever dies round robin assigned last.
    fn erases_of_die(&self, die: DieIndex) -> Vec<u32> {
        let (slots, rows) = (usize::from(self.groups[0].slots()), self.grid.rows as usize);
        let (group, slot) = (usize::from(die.0) / slots, usize::from(die.0) % slots);
        let zones = self.zones.iter().enumerate().skip(self.conventional_zones);
        let zones = zones.filter(|(zone, _)| zone % self.groups.len() == group);
        let erases = zones.flat_map(|(_, units)| match units {
            Some(units) => units[slot * rows..(slot + 1) * rows].iter().map(|unit| unit.erases).collect(),
            None => vec![0; rows],
        });
        erases.collect()
    }

    fn facts(&self) -> AllocationFacts {
        let mut facts = AllocationFacts {
            policy: AllocationKind::Fixed.to_string(),
            elements_per_zone: self.grid.elements_per_zone(),
            element_bytes: self.erase_unit_bytes,
            mapping_bytes: u64::from(self.grid.zones) * bytes_of_number_below(u64::from(self.grid.zones)),
            allocations: self.allocations,
            ..AllocationFacts::default()
        };
        let (used, unused) = self.used_and_unused();
        facts.count(used);
        (facts.elements, facts.empty) = (facts.elements + unused, facts.empty + unused);
        facts
    }

    fn elements(&self) -> ElementTable {
        let zones = self.zones[self.conventional_zones..].iter();
        let units = zones.flat_map(|units| match units {
            Some(units) => units.to_vec(),
            None => vec![Element::default(); self.units_per_zone()],
        });
        ElementTable {
            policy: AllocationKind::Fixed,
            elements_per_zone: self.grid.elements_per_zone(),
            next_set: self.next_group as u32,
            elements: units.collect(),
            zones: vec![Vec::new(); self.grid.zones as usize],
        }
    }

    fn restore(&mut self, table: &ElementTable) -> Result<(), ElementTableError> {
        table.check_for(AllocationKind::Fixed, &self.grid)?;
        self.next_group = table.next_set as usize % self.groups.len();
        let zones = table.elements.chunks(self.units_per_zone());
        for (zone, units) in self.zones[self.conventional_zones..].iter_mut().zip(zones) {
            let is_unused = units.iter().all(|unit| *unit == Element::default());
            *zone = (!is_unused).then(|| units.into());
        }
        Ok(())
    }

    fn table_bytes(&self) -> u64 {
        let used = self.zones.iter().flatten().map(|units| size_of_val(&units[..])).sum::<usize>();
        (size_of_val(&self.zones[..]) + used) as u64
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
        assert_eq!(allocator.program(zone, unit), None, "a new unit is erased");
        assert_eq!(allocator.program(zone, unit), None, "and stays so until the zone is reset");
        allocator.reset(zone);
        let erase = ElementErase { first_slot: 1, slots: 1, units: 1 };
        assert_eq!(allocator.program(zone, unit), Some(erase));
        assert_eq!((allocator.wear().erases, allocator.wear().erases_max, allocator.wear().erases_min), (1, 1, 0));
    }

    #[test]
    fn finishing_pads_to_the_capacity_however_little_is_written() {
        for written_bytes in [0, 4_096, 1_536 << 10] {
            let mut ends = [0; 4];
            tiny().pad_ends(written_bytes, &mut ends);
            assert_eq!(ends, [384 << 10; 4]);
        }
    }

    #[test]
    fn round_robin_gives_each_allocation_the_next_group_of_dies() {
        let mut profile = crate::profile::tests::tiny();
        profile.zones.parallelism = 2;
        profile.zones.placement = Placement::RoundRobin;
        let mut allocator = FixedAllocator::new(&profile);
        let stripes = [5, 5, 0].map(|zone| {
            let stripe = allocator.allocate(ZoneIndex(zone));
            [0, 1].map(|slot| stripe.die(UnitOfZone { slot, row: 0 }).0)
        });
        assert_eq!(stripes, [[0, 1], [2, 3], [0, 1]]);
    }

    #[test]
    fn a_prefilled_zone_is_erased_where_it_was_filled() {
        let (mut allocator, zone) = (tiny(), ZoneIndex(0));
        allocator.prefill(zone, 32 << 10);
        allocator.reset(zone);
        let erases: Vec<bool> =
            (0..4).map(|slot| allocator.program(zone, UnitOfZone { slot, row: 0 }).is_some()).collect();
        assert_eq!(erases, [true, true, false, false], "32 KiB lie on the first two dies");
    }
}
