//! Zone allocation over long runs: owner and cost of each element, wear leveling, and persistence
//! over restarts.

use crate::support::elements::{Rules, Shape, UNIT_KIB, least_wear_by_trying_all, profile_of};
use zonda_ssd::allocation::{
    Element, ElementErase, ElementState, ElementTable, FixedAllocator, FlexibleAllocator, Stripe, UnitOfZone,
    ZoneAllocator,
};
use zonda_ssd::profile::Profile;
use zonda_zoned::{Prng, ZoneIndex};

const UNIT: u64 = UNIT_KIB << 10;
const PAGE: u64 = 16 << 10;

/// Drives small enough to try every choice, with limits that are even, odd and impossible to keep.
fn drives() -> Vec<(Shape, &'static str)> {
    let wide = Shape { luns: 4, slots: 4, rows: 1, zones: 4 };
    let tall = Shape { luns: 2, slots: 2, rows: 2, zones: 4 };
    let pairs = Shape { luns: 4, slots: 2, rows: 2, zones: 4 };
    let odd = Shape { luns: 4, slots: 2, rows: 2, zones: 3 };
    let narrow = Shape { luns: 3, slots: 1, rows: 3, zones: 5 };
    vec![
        (wide, "allocation = \"superblock\""),
        (wide, "allocation = \"block\""),
        (wide, "allocation = \"vchunk-2\""),
        (wide, "allocation = \"block\"\nluns_min = 3"),
        (wide, "allocation = \"block\"\nluns_min = 1\nelements_per_lun_max = 3"),
        (tall, "allocation = \"superblock\""),
        (tall, "allocation = \"block\""),
        (tall, "allocation = \"hchunk-2\""),
        (tall, "allocation = \"vchunk-2\""),
        (tall, "allocation = \"block\"\nluns_min = 1\nelements_per_lun_max = 3"),
        (pairs, "allocation = \"block\"\nplacement = \"round-robin\""),
        (pairs, "allocation = \"vchunk-2\"\nplacement = \"round-robin\""),
        (pairs, "allocation = \"hchunk-2\""),
        (pairs, "allocation = \"block\"\nluns_eligible = 4"),
        (pairs, "allocation = \"block\"\nluns_eligible = 4\nluns_min = 4"),
        (pairs, "allocation = \"vchunk-2\"\nluns_eligible = 4\nluns_min = 2"),
        (pairs, "allocation = \"hchunk-2\"\nluns_eligible = 4\nluns_min = 1"),
        (odd, "allocation = \"block\"\nplacement = \"round-robin\""),
        (odd, "allocation = \"block\"\nplacement = \"round-robin\"\nluns_min = 1\nelements_per_lun_max = 3"),
        (narrow, "allocation = \"block\"\nplacement = \"round-robin\""),
        (narrow, "allocation = \"hchunk-3\"\nluns_eligible = 3"),
        (narrow, "allocation = \"block\"\nluns_eligible = 3\nluns_min = 2\nelements_per_lun_max = 2"),
    ]
}

/// Expected state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    Empty,
    /// With so many bytes.
    Written(u64),
    Finished,
    Offline,
}

/// An allocator, and the expected state of each of its zones.
struct Life {
    allocator: FlexibleAllocator,
    rules: Rules,
    slots: u16,
    rows: u32,
    capacity_bytes: u64,
    zones: Vec<Zone>,
    erases: u64,
}

impl Life {
    fn new(profile: &Profile) -> Life {
        let capacity_bytes = profile.geometry.zone_capacity.0;
        let slots = profile.zones.parallelism;
        Life {
            allocator: FlexibleAllocator::new(profile),
            rules: Rules::of(profile),
            slots: slots as u16,
            rows: (capacity_bytes / u64::from(slots) / UNIT) as u32,
            capacity_bytes,
            zones: vec![Zone::Empty; profile.geometry.zones as usize],
            erases: 0,
        }
    }

    /// Bytes of a slot when so many bytes of a zone are written, page by page.
    fn bytes_on_slot(&self, bytes: u64, slot: u16) -> u64 {
        (0..bytes.div_ceil(PAGE))
            .filter(|page| page % u64::from(self.slots) == u64::from(slot))
            .map(|page| PAGE.min(bytes - page * PAGE))
            .sum()
    }

    /// The positions of a zone's elements that hold a byte, in the order of the zone's list.
    fn touched(&self, bytes: u64) -> Vec<bool> {
        let height_units = self.rows as usize / self.rules.rows;
        let across = usize::from(self.slots) / self.rules.width;
        let holds = |row: usize, chunk: usize| {
            let slots = chunk * self.rules.width..(chunk + 1) * self.rules.width;
            let from = (row * height_units) as u64 * UNIT;
            slots.clone().any(|slot| self.bytes_on_slot(bytes, slot as u16) > from)
        };
        (0..self.rules.rows)
            .flat_map(|row| (0..across).map(move |chunk| (row, chunk)))
            .map(|(row, chunk)| holds(row, chunk))
            .collect()
    }

    /// The zone is allocated; the choice must be the cheapest.
    fn allocate(&mut self, zone: usize) {
        let before = self.allocator.elements();
        let facts = self.allocator.facts();
        let stripe = self.allocator.allocate(ZoneIndex(zone as u32));
        let after = self.allocator.elements();
        let chosen = &after.zones[zone];
        assert_eq!(chosen.len(), self.rules.elements);
        assert!(chosen.iter().all(|element| before.elements[*element as usize].state.is_free()));
        self.check_cost(&before, chosen, self.allocator.facts().relaxed_allocations > facts.relaxed_allocations);
        self.check_stripe(&stripe, &before, chosen);
        self.zones[zone] = Zone::Written(0);
    }

    fn check_cost(&self, before: &ElementTable, chosen: &[u32], is_relaxed: bool) {
        let rules = &self.rules;
        let wear: u64 = chosen.iter().map(|element| u64::from(before.elements[*element as usize].erases)).sum();
        let group_of = |element: u32| element as usize / rules.per_group(before);
        let trial = |set: usize| {
            let groups = rules.wear_in_set(before, set);
            least_wear_by_trying_all(&groups, rules.elements, rules.groups_min, rules.per_group_max)
        };
        if is_relaxed {
            assert!((0..rules.sets()).all(|set| trial(set).is_none()), "the limits are set aside only if they must be");
            let all = rules.wear_in_groups(before, 0..rules.luns / rules.width);
            assert_eq!(Some(wear), least_wear_by_trying_all(&all, rules.elements, 1, rules.elements));
        } else {
            let set = group_of(chosen[0]) / rules.groups;
            assert!(chosen.iter().all(|element| group_of(*element) / rules.groups == set), "{chosen:?} are of one set");
            assert_eq!(Some(wear), trial(set));
        }
    }

    /// Each unit lies where its element does, and a LUN that gives no more elements than there are
    /// rows is in no row twice.
    fn check_stripe(&self, stripe: &Stripe, table: &ElementTable, chosen: &[u32]) {
        let (width, across) = (self.rules.width, usize::from(self.slots) / self.rules.width);
        let group_of = |element: u32| element as usize / self.rules.per_group(table);
        let height = self.rows as usize / self.rules.rows;
        for row in 0..self.rows {
            for slot in 0..self.slots {
                let element = chosen[row as usize / height * across + usize::from(slot) / width];
                let die = stripe.die(UnitOfZone { slot, row }).0;
                assert_eq!(usize::from(die), group_of(element) * width + usize::from(slot) % width);
            }
        }
        for row in chosen.chunks(across) {
            for element in row {
                let group = group_of(*element);
                let of_group = chosen.iter().filter(|other| group_of(**other) == group).count();
                let in_row = row.iter().filter(|other| group_of(**other) == group).count();
                assert!(in_row == 1 || of_group > self.rules.rows, "{chosen:?}: LUN group {group} twice in a row");
            }
        }
    }

    /// Writes a zone on, unit by unit; each stale element is erased once, as a whole.
    fn write_to(&mut self, zone: usize, to: u64) {
        let before = self.allocator.elements();
        for row in 0..self.rows {
            for slot in 0..self.slots {
                if self.bytes_on_slot(to, slot) > u64::from(row) * UNIT {
                    let erase = self.allocator.program(ZoneIndex(zone as u32), UnitOfZone { slot, row });
                    self.check_erase(erase, slot);
                }
            }
        }
        let after = self.allocator.elements();
        for (element, touched) in before.zones[zone].iter().zip(self.touched(to)) {
            let (before, after) = (before.elements[*element as usize], after.elements[*element as usize]);
            let erases = u32::from(touched && before.state == ElementState::AllocatedInvalid);
            let state = if touched { ElementState::Written } else { before.state };
            assert_eq!(after, Element { erases: before.erases + erases, state }, "element {element}");
        }
        self.zones[zone] = Zone::Written(to);
    }

    fn check_erase(&mut self, erase: Option<ElementErase>, slot: u16) {
        let Some(erase) = erase else { return };
        let (width, height) = (self.rules.width as u16, self.rows / self.rules.rows as u32);
        let first_slot = slot / width * width;
        assert_eq!(erase, ElementErase { first_slot, slots: width, units: height });
        self.erases += u64::from(width) * u64::from(height);
    }

    /// A zone is finished: it keeps elements that hold a byte, and the others are as before the
    /// allocation.
    fn finish(&mut self, zone: usize, written: u64) {
        let before = self.allocator.elements();
        let mut ends = vec![0; usize::from(self.slots)];
        self.allocator.pad_ends(written, &mut ends);
        self.allocator.release_untouched(ZoneIndex(zone as u32), written);
        let after = self.allocator.elements();
        let touched = self.touched(written);
        let kept: Vec<u32> = before.zones[zone]
            .iter()
            .zip(&touched)
            .filter(|(_, touched)| **touched)
            .map(|(element, _)| *element)
            .collect();
        assert_eq!(after.zones[zone], kept);
        for (element, touched) in before.zones[zone].iter().zip(&touched) {
            if !touched {
                let state = freed(before.elements[*element as usize].state);
                assert_eq!(after.elements[*element as usize].state, state);
            }
        }
        let (across, height) = (usize::from(self.slots) / self.rules.width, self.rows as usize / self.rules.rows);
        for (slot, end) in ends.iter().enumerate() {
            let rows = (0..self.rules.rows).filter(|row| touched[row * across + slot / self.rules.width]).count();
            assert_eq!(*end, (rows * height) as u64 * UNIT, "slot {slot} is padded to the end of its last element");
        }
        self.zones[zone] = Zone::Finished;
    }

    fn reset(&mut self, zone: usize) {
        let before = self.allocator.elements();
        self.allocator.reset(ZoneIndex(zone as u32));
        let after = self.allocator.elements();
        assert!(after.zones[zone].is_empty());
        for element in &before.zones[zone] {
            let (before, after) = (before.elements[*element as usize], after.elements[*element as usize]);
            assert_eq!((after.state, after.erases), (freed(before.state), before.erases));
        }
        self.zones[zone] = Zone::Empty;
    }

    /// The zone goes offline: its elements are never allocated again.
    fn retire(&mut self, zone: usize) {
        let before = self.allocator.elements();
        self.allocator.retire(ZoneIndex(zone as u32));
        self.allocator.reset(ZoneIndex(zone as u32));
        let after = self.allocator.elements();
        assert_eq!(after.zones[zone], before.zones[zone]);
        let is_retired = |element: &u32| after.elements[*element as usize].state == ElementState::Retired;
        assert!(after.zones[zone].iter().all(is_retired));
        self.zones[zone] = Zone::Offline;
    }

    fn check(&self) {
        self.allocator.check_invariants();
        let (facts, wear) = (self.allocator.facts(), self.allocator.wear());
        let states = facts.empty + facts.allocated + facts.written + facts.invalid + facts.retired;
        assert_eq!(states, facts.elements);
        assert_eq!(wear.erases, self.erases);
        assert_eq!(wear.units, facts.elements * facts.element_bytes / UNIT);
        let by_die: u64 = (0..self.rules.luns)
            .flat_map(|die| self.allocator.erases_of_die(zonda_ssd::allocation::DieIndex(die as u16)))
            .map(u64::from)
            .sum();
        assert_eq!(by_die, wear.erases);
    }

    /// Applies one random step to one zone.
    fn step(&mut self, prng: &mut Prng) {
        let zone = prng.below(self.zones.len() as u64) as usize;
        match (self.zones[zone], prng.below(20)) {
            (Zone::Offline, _) => return,
            (Zone::Empty, 0) => {
                self.allocate(zone);
                let bytes = prng.below(self.capacity_bytes + 1);
                self.allocator.prefill(ZoneIndex(zone as u32), bytes);
                self.zones[zone] = Zone::Written(bytes);
            }
            (Zone::Empty, _) => self.allocate(zone),
            (Zone::Written(_), 0) if prng.chance(1, 10) => self.retire(zone),
            (Zone::Finished, _) | (Zone::Written(_), 0..5) => self.reset(zone),
            (Zone::Written(written), 5..9) => self.finish(zone, written),
            (Zone::Written(written), _) => {
                let to = written + PAGE * prng.below(12) + prng.below(PAGE);
                self.write_to(zone, to.min(self.capacity_bytes));
            }
        }
        self.check();
    }
}

/// State of an element after its zone released it.
fn freed(state: ElementState) -> ElementState {
    match state {
        ElementState::Allocated => ElementState::Empty,
        ElementState::AllocatedInvalid | ElementState::Written => ElementState::Invalid,
        state => panic!("a zone has an element that is {state:?}"),
    }
}

#[test]
fn elements_have_one_owner_each_and_every_choice_is_the_cheapest_over_long_runs() {
    let mut relaxed = 0;
    for (shape, zones) in drives() {
        let profile = profile_of(shape, zones);
        for seed in 0..4 {
            let mut prng = Prng::new(seed);
            let mut life = Life::new(&profile);
            for _ in 0..400 {
                life.step(&mut prng);
            }
            relaxed += life.allocator.facts().relaxed_allocations;
        }
    }
    assert!(relaxed > 20, "{relaxed} allocations had to set the limits aside: the drives are too easy");
}

#[test]
fn an_even_spread_never_has_to_exceed_its_limits() {
    for (shape, zones) in drives().into_iter().filter(|(_, zones)| !zones.contains("luns_")) {
        for placement in ["by-index", "round-robin"] {
            let mut profile = profile_of(shape, zones);
            profile.zones.placement = match placement {
                "by-index" => zonda_ssd::profile::Placement::ByIndex,
                _ => zonda_ssd::profile::Placement::RoundRobin,
            };
            let mut life = Life::new(&profile);
            let mut prng = Prng::new(7);
            for _ in 0..600 {
                life.step(&mut prng);
            }
            let facts = life.allocator.facts();
            assert_eq!(facts.relaxed_allocations, 0, "{shape:?} {zones} {placement}");
            assert!(facts.allocations > 50);
        }
    }
}

/// Writes a whole zone and resets it.
fn cycle(allocator: &mut dyn ZoneAllocator, shape: Shape, zone: u32) {
    allocator.allocate(ZoneIndex(zone));
    for row in 0..shape.rows {
        for slot in 0..shape.slots as u16 {
            allocator.program(ZoneIndex(zone), UnitOfZone { slot, row });
        }
    }
    allocator.reset(ZoneIndex(zone));
}

#[test]
fn one_zone_that_is_used_alone_wears_the_whole_drive_evenly_and_fixed_only_its_own_units() {
    let shape = Shape { luns: 8, slots: 4, rows: 2, zones: 20 };
    for kind in ["block", "vchunk-2", "vchunk-4", "hchunk-2"] {
        let profile = profile_of(shape, &format!("allocation = \"{kind}\"\nplacement = \"round-robin\""));
        let mut allocator = FlexibleAllocator::new(&profile);
        (0..1_000).for_each(|_| cycle(&mut allocator, shape, 3));
        let wear = allocator.wear();
        // A thousand zones of 8 units on 160 units: 50 programs of each, the first without an
        // erase.
        assert_eq!((wear.erases_min, wear.erases_max, wear.erases), (49, 49, 49 * 160), "{kind}");
    }
    let mut fixed = FixedAllocator::new(&profile_of(shape, "allocation = \"fixed\""));
    (0..1_000).for_each(|_| cycle(&mut fixed, shape, 3));
    assert_eq!((fixed.wear().erases_min, fixed.wear().erases_max, fixed.wear().erases), (0, 999, 999 * 8));
}

#[test]
fn zones_that_are_all_used_alike_wear_their_elements_alike() {
    let shape = Shape { luns: 8, slots: 4, rows: 2, zones: 16 };
    for kind in ["block", "vchunk-2", "hchunk-2"] {
        for placement in ["by-index", "round-robin"] {
            let profile = profile_of(shape, &format!("allocation = \"{kind}\"\nplacement = \"{placement}\""));
            let mut allocator = FlexibleAllocator::new(&profile);
            let mut prng = Prng::new(1);
            for round in 0..200 {
                let mut zones: Vec<u32> = (0..16).collect();
                while !zones.is_empty() {
                    let zone = zones.swap_remove(prng.below(zones.len() as u64) as usize);
                    allocator.reset(ZoneIndex(zone));
                    allocator.allocate(ZoneIndex(zone));
                    for unit in 0..8 {
                        allocator.program(ZoneIndex(zone), UnitOfZone { slot: unit % 4, row: u32::from(unit / 4) });
                    }
                }
                let wear = allocator.wear();
                let spread = wear.erases_max - wear.erases_min;
                // All zones are written: few elements are free but those that the zone released
                // itself.
                assert!(spread <= 8, "{kind}, {placement}: {spread} after {round} rounds");
            }
        }
    }
}

// Round robin of sets.

/// The dies of a zone's first segment.
fn first_dies(stripe: &Stripe) -> Vec<u16> {
    (0..stripe.slots()).map(|slot| stripe.die(UnitOfZone { slot, row: 0 }).0).collect()
}

#[test]
fn round_robin_takes_the_next_set_of_luns_each_time_and_by_index_the_zones_own() {
    let shape = Shape { luns: 6, slots: 2, rows: 1, zones: 9 };
    let taken = |placement: &str| {
        let profile = profile_of(shape, &format!("allocation = \"block\"\nplacement = \"{placement}\""));
        let mut allocator = FlexibleAllocator::new(&profile);
        [4, 4, 8, 0].map(|zone| {
            allocator.reset(ZoneIndex(zone));
            first_dies(&allocator.allocate(ZoneIndex(zone)))
        })
    };
    assert_eq!(taken("round-robin"), [[0, 1], [2, 3], [4, 5], [0, 1]]);
    assert_eq!(taken("by-index"), [[2, 3], [2, 3], [4, 5], [0, 1]]);
}

#[test]
fn a_set_of_luns_without_enough_elements_is_skipped() {
    let shape = Shape { luns: 4, slots: 2, rows: 1, zones: 4 };
    let mut allocator = FlexibleAllocator::new(&profile_of(shape, "allocation = \"block\""));
    for (zone, dies) in [(0, [0, 1]), (2, [0, 1]), (1, [2, 3])] {
        assert_eq!(first_dies(&allocator.allocate(ZoneIndex(zone))), dies);
    }
    allocator.reset(ZoneIndex(1));
    allocator.retire(ZoneIndex(0));
    let mut table = allocator.elements();
    table.zones[1] = table.zones[2].split_off(0);
    allocator.restore(&table).expect("the table is this drive's");
    assert_eq!(first_dies(&allocator.allocate(ZoneIndex(2))), [2, 3], "its own LUNs are taken by zones 0 and 1");
    assert_eq!(allocator.facts().relaxed_allocations, 0);
}

#[test]
fn round_robin_continues_after_the_set_that_served_even_if_another_was_next() {
    // Three sets of two LUNs, with elements for three zones each.
    let shape = Shape { luns: 6, slots: 2, rows: 1, zones: 9 };
    let profile = profile_of(shape, "allocation = \"block\"\nplacement = \"round-robin\"");
    let mut allocator = FlexibleAllocator::new(&profile);
    let allocate = |allocator: &mut FlexibleAllocator, zone| first_dies(&allocator.allocate(ZoneIndex(zone)))[0] / 2;
    for zone in 0..9 {
        assert_eq!(u32::from(allocate(&mut allocator, zone)), zone % 3);
    }
    // Zones 0, 3 and 6 keep all of the first set. Each time it is the next set, the second set
    // serves, and the third is next.
    for zone in [1, 2, 4, 5, 7, 8] {
        allocator.reset(ZoneIndex(zone));
    }
    let sets = [1, 2, 4, 5, 7, 8].map(|zone| allocate(&mut allocator, zone));
    assert_eq!(sets, [1, 2, 1, 2, 1, 2]);
    // Two sets are passed by: the third serves, and the first is next.
    allocator.reset(ZoneIndex(8));
    allocator.reset(ZoneIndex(0));
    assert_eq!(allocate(&mut allocator, 0), 0);
    assert_eq!(allocate(&mut allocator, 8), 2, "the second set has no elements left");
    allocator.reset(ZoneIndex(0));
    allocator.reset(ZoneIndex(1));
    assert_eq!([0, 1].map(|zone| allocate(&mut allocator, zone)), [0, 1]);
    assert_eq!(allocator.facts().relaxed_allocations, 0);
    allocator.check_invariants();
}

#[test]
fn the_next_set_is_kept_over_a_restart() {
    let shape = Shape { luns: 6, slots: 2, rows: 1, zones: 9 };
    let profile = profile_of(shape, "allocation = \"block\"\nplacement = \"round-robin\"");
    for allocated in 0..6 {
        let mut allocator = FlexibleAllocator::new(&profile);
        for zone in 0..allocated {
            allocator.allocate(ZoneIndex(zone));
        }
        let mut again = FlexibleAllocator::new(&profile);
        again.restore(&allocator.elements()).expect("the table is this drive's");
        let next = first_dies(&again.allocate(ZoneIndex(8)));
        assert_eq!(u32::from(next[0]) / 2, allocated % 3);
    }
}

// Restarts.

/// A used drive with vertical chunks of two LUNs.
pub(crate) fn drive_in_use(prng: &mut Prng) -> (Profile, FlexibleAllocator) {
    let shape = Shape { luns: 4, slots: 2, rows: 2, zones: 4 };
    let profile = profile_of(shape, "allocation = \"block\"\nplacement = \"round-robin\"");
    let mut life = Life::new(&profile);
    (0..50).for_each(|_| life.step(prng));
    (profile, life.allocator)
}

#[test]
fn a_table_is_serialized_and_restored_unchanged() {
    for seed in 0..50 {
        let (profile, allocator) = drive_in_use(&mut Prng::new(seed));
        let table = allocator.elements();
        assert_eq!(ElementTable::from_bytes(&table.to_bytes()), Ok(table.clone()));
        let mut again = FlexibleAllocator::new(&profile);
        again.restore(&table).expect("the table is this drive's");
        again.check_invariants();
        assert_eq!((again.elements(), again.wear()), (table, allocator.wear()));
    }
}

#[test]
fn the_table_of_a_fixed_drive_is_serialized_and_restored_unchanged() {
    let shape = Shape { luns: 4, slots: 2, rows: 2, zones: 4 };
    let profile = profile_of(shape, "allocation = \"fixed\"\nplacement = \"round-robin\"");
    let mut allocator = FixedAllocator::new(&profile);
    for zone in [1, 1, 3] {
        cycle(&mut allocator, shape, zone);
    }
    allocator.allocate(ZoneIndex(1));
    allocator.prefill(ZoneIndex(1), UNIT);
    let table = ElementTable::from_bytes(&allocator.elements().to_bytes()).expect("its own bytes");
    let mut again = FixedAllocator::new(&profile);
    again.restore(&table).expect("the table is this drive's");
    assert_eq!((again.elements(), again.wear(), again.facts().invalid), (table, allocator.wear(), 6));
    // Three pages of zone 1 lie on both its dies, in the first erase unit of each.
    for (zone, slot, row, erases) in
        [(1, 0, 0, false), (1, 1, 0, false), (1, 0, 1, true), (3, 0, 0, true), (0, 0, 0, false)]
    {
        let erase = again.program(ZoneIndex(zone), UnitOfZone { slot, row });
        assert_eq!(erase.is_some(), erases, "zone {zone}, slot {slot}, row {row}");
    }
}

#[test]
fn a_zone_that_was_finished_keeps_its_elements_over_a_restart_and_gets_those_it_lacks() {
    let shape = Shape { luns: 4, slots: 2, rows: 2, zones: 4 };
    let profile = profile_of(shape, "allocation = \"block\"");
    let mut allocator = FlexibleAllocator::new(&profile);
    allocator.allocate(ZoneIndex(1));
    allocator.program(ZoneIndex(1), UnitOfZone { slot: 0, row: 0 });
    allocator.release_untouched(ZoneIndex(1), PAGE);
    let table = allocator.elements();
    assert_eq!(table.zones[1].len(), 1);
    let mut again = FlexibleAllocator::new(&profile);
    again.restore(&table).expect("the table is this drive's");
    let stripe = again.allocate(ZoneIndex(1));
    again.prefill(ZoneIndex(1), PAGE);
    again.check_invariants();
    assert_eq!((again.elements().zones[1].len(), again.elements().zones[1][0]), (4, table.zones[1][0]));
    assert_eq!(stripe.die(UnitOfZone { slot: 0, row: 1 }), stripe.die(UnitOfZone { slot: 0, row: 0 }));
    again.release_untouched(ZoneIndex(1), PAGE);
    assert_eq!(again.elements().elements, table.elements, "and gives them up again as they were");
}
