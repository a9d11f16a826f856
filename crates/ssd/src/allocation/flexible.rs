//! `superblock`, `block`, `vchunk-N`, `hchunk-N`: a zone gets the least worn elements at its first
//! write.

use zonda_zoned::ZoneIndex;

use super::element::ElementGrid;
use super::pool::{Demand, NONE, Pool};
use super::state::{ElementState, bytes_of_number_below};
use super::{
    AllocationFacts, AllocationKind, DieIndex, ElementErase, ElementTable, ElementTableError, Stripe, UnitOfZone,
    ZoneAllocator,
};
use crate::counters::Wear;
use crate::layout::Layout;
use crate::profile::{Placement, Profile};

/// Flexible zone allocation, after SilentZNS: zones are composed of elements at run time.
#[derive(Debug)]
pub struct FlexibleAllocator {
    kind: AllocationKind,
    grid: ElementGrid,
    layout: Layout,
    erase_unit_bytes: u64,
    placement: Placement,
    pool: Pool,
    /// The first element of each zone; the others are linked to it, segment after segment, slot
    /// after slot.
    zones: Vec<u32>,
    /// Zones at the start that this policy does not allocate.
    conventional_zones: u32,
    /// The dies of each run of as many LUNs as a zone has.
    stripes: Vec<Stripe>,
    /// The next set of eligible LUNs.
    next_set: u32,
    allocations: u64,
    relaxed_allocations: u64,
    /// The elements that an allocation chose, and those of a zone in the order of its links; kept
    /// to reuse their memory.
    chosen: Vec<u32>,
    cells: Vec<u32>,
}

impl FlexibleAllocator {
    /// The policy over a profile's zones and dies: all elements empty.
    #[must_use]
    pub fn new(profile: &Profile) -> FlexibleAllocator {
        let grid = ElementGrid::new(profile);
        let stripe = |first: u32| Stripe::uniform((first..first + grid.slots).map(|die| DieIndex(die as u16)));
        FlexibleAllocator {
            kind: profile.zones.allocation,
            grid,
            layout: Layout::new(profile),
            erase_unit_bytes: profile.flash.erase_unit.0,
            placement: profile.zones.placement,
            pool: Pool::new(grid.groups(), grid.elements_per_group() as u32),
            zones: vec![NONE; profile.geometry.zones as usize],
            conventional_zones: profile.geometry.conventional_zones,
            stripes: (0..grid.luns).step_by(grid.slots as usize).map(stripe).collect(),
            next_set: 0,
            allocations: 0,
            relaxed_allocations: 0,
            chosen: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// Sets of LUNs that are used round robin.
    fn sets(&self) -> u32 {
        self.grid.groups() / self.grid.groups_eligible
    }

    fn demand(&self, set: u32) -> Demand {
        let grid = &self.grid;
        Demand {
            groups: set * grid.groups_eligible..(set + 1) * grid.groups_eligible,
            elements: grid.elements_per_zone(),
            groups_min: grid.groups_min,
            per_group_max: grid.per_group_max,
        }
    }

    /// Chooses a zone's elements: from the next set, or the first one after it that has enough.
    /// Where none has, the limits on LUNs are set aside, because a drive never rejects a write
    /// because of its allocation policy.
    fn choose(&mut self, zone: ZoneIndex) {
        self.allocations += 1;
        let sets = self.sets();
        let first = match self.placement {
            Placement::ByIndex => zone.0 % sets,
            Placement::RoundRobin => self.next_set,
        };
        for set in (first..sets).chain(0..first) {
            let demand = self.demand(set);
            if self.pool.choose(&demand, &mut self.chosen) {
                self.next_set = (set + 1) % sets;
                return;
            }
        }
        self.relaxed_allocations += 1;
        self.next_set = (first + 1) % sets;
        let elements = self.grid.elements_per_zone();
        let anything = Demand { groups: 0..self.grid.groups(), elements, groups_min: 1, per_group_max: elements };
        // Each zone owns at most `elements_per_zone` elements, and the drive has that many for each
        // zone.
        assert!(self.pool.choose(&anything, &mut self.chosen), "the drive has elements for all zones");
    }

    /// Arranges the chosen elements on the zone's grid: down the first slot, then down the next
    /// one. So a LUN with as many elements as there are rows, or fewer, is never used twice in a
    /// row.
    fn lay_out(&mut self) {
        let (slots, rows) = (self.grid.element_slots(), self.grid.element_rows());
        self.cells.clear();
        for row in 0..rows {
            self.cells.extend((0..slots).map(|slot| self.chosen[(slot * rows + row) as usize]));
        }
    }

    /// The elements of a zone, in the order of its links.
    fn collect(&mut self, zone: ZoneIndex) {
        self.cells.clear();
        let mut element = self.zones[zone.as_usize()];
        while element != NONE {
            self.cells.push(element);
            element = self.pool.next(element);
        }
    }

    fn link(&mut self, zone: ZoneIndex) {
        let mut next = NONE;
        for element in self.cells.iter().rev() {
            self.pool.set_next(*element, next);
            next = *element;
        }
        self.zones[zone.as_usize()] = next;
    }

    /// Completes the cells of a zone that released its untouched ones before: in its own LUNs as
    /// far as these have free elements.
    fn top_up(&mut self) {
        let slots = self.grid.element_slots() as usize;
        for place in self.cells.len()..self.grid.elements_per_zone() as usize {
            let own = place.checked_sub(slots).map(|above| self.pool.group_of(self.cells[above]));
            let cheapest = || {
                let costs = (0..self.grid.groups()).filter_map(|group| Some((self.pool.least_cost(group)?, group)));
                costs.min().map(|(_, group)| group)
            };
            let group = own.filter(|group| self.pool.free_in(*group) > 0).or_else(cheapest);
            let group = group.expect("the drive has elements for all zones");
            self.cells.push(self.pool.take_cheapest(group).expect("the group has a free element"));
        }
    }

    /// The dies of the cells.
    fn stripe(&self) -> Stripe {
        let (slots, width) = (self.grid.element_slots() as usize, self.grid.width);
        let group = |cell: usize| self.pool.group_of(self.cells[cell]);
        let is_uniform = (slots..self.cells.len()).all(|cell| group(cell) == group(cell % slots));
        let die = |row: usize, slot: u32| {
            DieIndex((group(row * slots + (slot / width) as usize) * width + slot % width) as u16)
        };
        if is_uniform {
            let first = group(0);
            let is_a_run = (first * width).is_multiple_of(self.grid.slots)
                && (1..slots).all(|slot| group(slot) == first + slot as u32);
            if is_a_run {
                return self.stripes[(first * width / self.grid.slots) as usize].clone();
            }
            return Stripe::uniform((0..self.grid.slots).map(|slot| die(0, slot)));
        }
        let rows = (0..self.grid.rows).map(|row| (row / self.grid.height) as usize);
        let dies = rows.flat_map(|row| (0..self.grid.slots).map(move |slot| (row, slot)));
        Stripe::by_segment(self.grid.slots as u16, dies.map(|(row, slot)| die(row, slot)))
    }

    /// Bytes of a slot that an element covers.
    fn element_bytes_on_slot(&self) -> u64 {
        self.erase_unit_bytes * u64::from(self.grid.height)
    }

    /// Elements of a zone that hold a byte of its first `bytes`. They are the first of its links,
    /// as data fill a row of the grid from the left, and leave it only when its every slot holds
    /// some.
    fn touched(&self, bytes: u64) -> usize {
        let element_bytes = self.element_bytes_on_slot();
        let slots = (0..self.grid.slots as u16).step_by(self.grid.width as usize);
        slots.map(|slot| self.layout.bytes_on_slot(bytes, slot).div_ceil(element_bytes) as usize).sum()
    }

    /// Frees elements from this one on to the end of its zone.
    fn release_from(&mut self, mut element: u32) {
        while element != NONE {
            let next = self.pool.next(element);
            self.pool.release(element);
            element = next;
        }
    }

    fn is_retired(&self, zone: ZoneIndex) -> bool {
        let first = self.zones[zone.as_usize()];
        first != NONE && self.pool.state(first) == ElementState::Retired
    }
}

impl ZoneAllocator for FlexibleAllocator {
    fn allocate(&mut self, zone: ZoneIndex) -> Stripe {
        if self.zones[zone.as_usize()] == NONE {
            self.choose(zone);
            self.lay_out();
            self.link(zone);
        } else {
            self.collect(zone);
            if self.cells.len() < self.grid.elements_per_zone() as usize {
                self.top_up();
                self.link(zone);
            }
        }
        self.stripe()
    }

    fn program(&mut self, zone: ZoneIndex, unit: UnitOfZone) -> Option<ElementErase> {
        let (width, height) = (self.grid.width, self.grid.height);
        let (slot, row) = (u32::from(unit.slot) / width, unit.row / height);
        let mut element = self.zones[zone.as_usize()];
        for _ in 0..row * self.grid.element_slots() + slot {
            element = self.pool.next(element);
        }
        match self.pool.state(element) {
            // Retired: an external table may have it for a zone that can still be written.
            ElementState::Written | ElementState::Retired => None,
            ElementState::Allocated => {
                self.pool.set_state(element, ElementState::Written);
                None
            }
            ElementState::AllocatedInvalid => {
                self.pool.set_state(element, ElementState::Written);
                self.pool.count_erase(element);
                Some(ElementErase { first_slot: (slot * width) as u16, slots: width as u16, units: height })
            }
            state => unreachable!("an element that is programmed is its zone's, not {state:?}"),
        }
    }

    fn pad_ends(&self, written_bytes: u64, ends_bytes: &mut [u64]) {
        let element_bytes = self.element_bytes_on_slot();
        let width = self.grid.width as usize;
        for (chunk, ends) in ends_bytes.chunks_mut(width).enumerate() {
            // The first slot of an element holds the most of it.
            let bytes = self.layout.bytes_on_slot(written_bytes, (chunk * width) as u16);
            ends.fill((bytes.div_ceil(element_bytes) * element_bytes).min(self.layout.slot_capacity_bytes()));
        }
    }

    fn release_untouched(&mut self, zone: ZoneIndex, written_bytes: u64) {
        let mut last = NONE;
        let mut element = self.zones[zone.as_usize()];
        if self.is_retired(zone) {
            return;
        }
        for _ in 0..self.touched(written_bytes) {
            assert!(element != NONE, "zone {zone} has an element for all written data");
            (last, element) = (element, self.pool.next(element));
        }
        if last == NONE {
            self.zones[zone.as_usize()] = NONE;
        } else {
            self.pool.set_next(last, NONE);
        }
        self.release_from(element);
    }

    fn reset(&mut self, zone: ZoneIndex) {
        if !self.is_retired(zone) {
            let first = std::mem::replace(&mut self.zones[zone.as_usize()], NONE);
            self.release_from(first);
        }
    }

    fn retire(&mut self, zone: ZoneIndex) {
        let mut element = self.zones[zone.as_usize()];
        while element != NONE {
            self.pool.set_state(element, ElementState::Retired);
            element = self.pool.next(element);
        }
    }

    fn prefill(&mut self, zone: ZoneIndex, written_bytes: u64) {
        if self.is_retired(zone) {
            return;
        }
        let mut element = self.zones[zone.as_usize()];
        for _ in 0..self.touched(written_bytes) {
            assert!(element != NONE, "zone {zone} has an element for all written data");
            self.pool.set_state(element, ElementState::Written);
            element = self.pool.next(element);
        }
    }

    fn wear(&self) -> Wear {
        let units = u64::from(self.grid.units_per_element());
        let mut wear = Wear { erases_min: u32::MAX, ..Wear::default() };
        for element in self.pool.elements() {
            wear.units += units;
            wear.erases += u64::from(element.erases) * units;
            wear.erases_max = wear.erases_max.max(element.erases);
            wear.erases_min = wear.erases_min.min(element.erases);
        }
        wear
    }

    fn erases_of_die(&self, die: DieIndex) -> Vec<u32> {
        let per_group = self.grid.elements_per_group() as u32;
        let first = u32::from(die.0) / self.grid.width * per_group;
        let erases = (first..first + per_group).map(|element| self.pool.get(element).erases);
        erases.flat_map(|erases| std::iter::repeat_n(erases, self.grid.height as usize)).collect()
    }

    fn facts(&self) -> AllocationFacts {
        let per_zone = self.grid.elements_per_zone();
        let number_bytes = bytes_of_number_below(u64::from(self.pool.len()));
        let mut facts = AllocationFacts {
            policy: self.kind.to_string(),
            elements_per_zone: per_zone,
            element_bytes: self.erase_unit_bytes * u64::from(self.grid.units_per_element()),
            mapping_bytes: u64::from(self.grid.zones) * u64::from(per_zone) * number_bytes,
            allocations: self.allocations,
            relaxed_allocations: self.relaxed_allocations,
            ..AllocationFacts::default()
        };
        facts.count(self.pool.elements());
        facts
    }

    fn elements(&self) -> ElementTable {
        let of_zone = |first: &u32| {
            let next = |element: &u32| Some(self.pool.next(*element)).filter(|next| *next != NONE);
            std::iter::successors(Some(*first).filter(|first| *first != NONE), next).collect()
        };
        ElementTable {
            policy: self.kind,
            elements_per_zone: self.grid.elements_per_zone(),
            next_set: self.next_set,
            elements: self.pool.elements().collect(),
            zones: self.zones[self.conventional_zones as usize..].iter().map(of_zone).collect(),
        }
    }

    fn restore(&mut self, table: &ElementTable) -> Result<(), ElementTableError> {
        table.check_for(self.kind, &self.grid)?;
        self.pool.set(table.elements.iter().copied());
        self.next_set = table.next_set % self.sets();
        for (zone, elements) in (self.conventional_zones..).zip(&table.zones) {
            self.cells.clear();
            self.cells.extend(elements);
            self.link(ZoneIndex(zone));
        }
        Ok(())
    }

    fn table_bytes(&self) -> u64 {
        (size_of_val(&self.zones[..]) + self.pool.table_bytes()) as u64
    }

    fn check_invariants(&self) {
        let mut is_owned = vec![false; self.pool.len() as usize];
        let mut owned = 0;
        for (zone, first) in self.zones.iter().enumerate() {
            let (mut element, mut count) = (*first, 0);
            while element != NONE {
                let was_owned = std::mem::replace(&mut is_owned[element as usize], true);
                assert!(!was_owned, "element {element} has two owners, one of which is zone {zone}");
                assert!(!self.pool.state(element).is_free(), "an element of zone {zone} is not free");
                count += 1;
                element = self.pool.next(element);
            }
            assert!(count <= self.grid.elements_per_zone(), "zone {zone} has {count} elements");
            owned += count;
        }
        assert!(owned + self.pool.check_invariants() == self.pool.len(), "an element is free or has an owner");
    }
}
