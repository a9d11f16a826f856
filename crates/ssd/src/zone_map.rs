//! The zone map: where the data of each zone are.
//!
//! A read of a full zone needs its entry and nothing else of the zone, if the zone lies on
//! neighboring dies. Eight entries share a cache line, so that those of 40,000 zones stay in the
//! second-level cache.

use zonda_zoned::ZoneIndex;

use crate::layout::Layout;
use crate::zone_run::ZoneRun;

/// The first die of an entry whose zone is empty, or does not lie on neighboring dies.
const NO_DIE: u16 = u16::MAX;

const _: () = assert!(crate::limits::DIES_MAX <= NO_DIE as u32, "no die has this number");

/// All zones of the namespace. Conventional ones have no run here.
#[derive(Debug)]
pub(crate) struct ZoneMap {
    entries: Vec<ZoneEntry>,
    /// Absent while the zone is empty.
    runs: Vec<Option<Box<ZoneRun>>>,
    /// Counts every change of a zone; only writes and power losses need it.
    changes: Vec<u32>,
    layout: Layout,
}

/// One zone.
#[derive(Clone, Copy, Debug)]
struct ZoneEntry {
    /// Counts resets: data in flight from before one are discarded.
    generation: u32,
    /// The first die, if slot `s` is die `first_die + s` in the whole zone.
    first_die: u16,
    /// All of the zone's capacity is on flash. This ends with a reset only, as nothing is written
    /// to a full zone.
    is_on_flash: bool,
}

const _: () = assert!(size_of::<ZoneEntry>() == 8, "eight entries in a cache line");

impl ZoneMap {
    /// Empty zones.
    pub(crate) fn new(layout: Layout, zones: u32) -> ZoneMap {
        let zones = zones as usize;
        ZoneMap {
            entries: vec![ZoneEntry { generation: 0, first_die: NO_DIE, is_on_flash: false }; zones],
            runs: (0..zones).map(|_| None).collect(),
            changes: vec![0; zones],
            layout,
        }
    }

    /// The counts begin again, as no command is in flight.
    pub(crate) fn power_cycle(&mut self) {
        self.changes.fill(0);
        self.entries.iter_mut().for_each(|entry| entry.generation = 0);
    }

    /// The generation of a zone's contents.
    #[inline]
    pub(crate) fn generation(&self, zone: ZoneIndex) -> u32 {
        self.entries[zone.as_usize()].generation
    }

    /// The contents of a zone were discarded.
    pub(crate) fn begin_generation(&mut self, zone: ZoneIndex) {
        self.entries[zone.as_usize()].generation += 1;
    }

    /// The contents of a zone belong to no command in flight.
    pub(crate) fn end_generations(&mut self, zone: ZoneIndex) {
        self.entries[zone.as_usize()].generation = u32::MAX;
    }

    /// How often a zone has changed.
    pub(crate) fn changes(&self, zone: ZoneIndex) -> u32 {
        self.changes[zone.as_usize()]
    }

    #[inline]
    pub(crate) fn count_change(&mut self, zone: ZoneIndex) {
        self.changes[zone.as_usize()] += 1;
    }

    /// The run of a zone, if it is not empty.
    #[inline]
    pub(crate) fn get(&self, zone: ZoneIndex) -> Option<&ZoneRun> {
        self.runs[zone.as_usize()].as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, zone: ZoneIndex) -> Option<&mut ZoneRun> {
        self.runs[zone.as_usize()].as_deref_mut()
    }

    /// The run of a zone that is not empty.
    #[inline]
    pub(crate) fn run(&self, zone: ZoneIndex) -> &ZoneRun {
        self.get(zone).expect("a zone with data has its run")
    }

    #[inline]
    pub(crate) fn run_mut(&mut self, zone: ZoneIndex) -> &mut ZoneRun {
        self.get_mut(zone).expect("a zone with data has its run")
    }

    /// The runs of all zones that are not empty.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (ZoneIndex, &ZoneRun)> {
        let runs = self.runs.iter().enumerate();
        runs.filter_map(|(zone, run)| Some((ZoneIndex(zone as u32), run.as_deref()?)))
    }

    /// The zones with data that wait for their program unit to fill.
    pub(crate) fn zones_that_hold(&self) -> Vec<ZoneIndex> {
        let is_not_whole = |zone: &(ZoneIndex, &ZoneRun)| !self.entries[zone.0.as_usize()].is_on_flash;
        let runs = self.runs().filter(is_not_whole);
        runs.filter(|(_, run)| run.held_bytes() > 0).map(|(zone, _)| zone).collect()
    }

    /// A zone gets its run.
    pub(crate) fn insert(&mut self, zone: ZoneIndex, run: ZoneRun) {
        let entry = &mut self.entries[zone.as_usize()];
        entry.first_die = first_die(&run);
        entry.is_on_flash = run.is_complete(&self.layout);
        self.runs[zone.as_usize()] = Some(Box::new(run));
    }

    /// Takes the run of a zone that is empty now.
    pub(crate) fn remove(&mut self, zone: ZoneIndex) -> Option<Box<ZoneRun>> {
        let entry = &mut self.entries[zone.as_usize()];
        entry.first_die = NO_DIE;
        entry.is_on_flash = false;
        self.runs[zone.as_usize()].take()
    }

    /// A unit of a zone has been programmed: it may have been the last.
    #[inline]
    pub(crate) fn note_progress(&mut self, zone: ZoneIndex) {
        self.entries[zone.as_usize()].is_on_flash = self.run(zone).is_complete(&self.layout);
    }

    /// Bytes of a zone that have arrived from the host, if it is not empty.
    #[inline]
    pub(crate) fn arrived_bytes(&self, zone: ZoneIndex) -> Option<u64> {
        if self.entries[zone.as_usize()].is_on_flash {
            return Some(self.layout.zone_capacity_bytes());
        }
        self.get(zone).map(|run| run.arrived_bytes)
    }

    /// Whether a page has to be sensed; otherwise it is in the buffer.
    #[inline]
    pub(crate) fn is_on_flash(&self, zone: ZoneIndex, page: u64) -> bool {
        self.entries[zone.as_usize()].is_on_flash || self.run(zone).is_on_flash(&self.layout, page)
    }

    /// The die of a page.
    #[inline]
    pub(crate) fn die_of_page(&self, zone: ZoneIndex, page: u64) -> u16 {
        match self.entries[zone.as_usize()].first_die {
            NO_DIE => self.run(zone).die_of_page(&self.layout, page),
            first_die => first_die + self.layout.slot_of_page(page),
        }
    }

    pub(crate) fn check_invariants(&self) {
        for ((entry, run), zone) in self.entries.iter().zip(&self.runs).zip(0..) {
            let Some(run) = run else {
                assert!(!entry.is_on_flash && entry.first_die == NO_DIE, "zone {zone} is empty, and has no place");
                continue;
            };
            run.check_invariants();
            assert_eq!(entry.is_on_flash, run.is_complete(&self.layout), "zone {zone}: all of it is on flash");
            assert_eq!(entry.first_die, first_die(run), "zone {zone}: its dies");
        }
    }
}

/// The first die of a run, if its dies are neighbors.
fn first_die(run: &ZoneRun) -> u16 {
    if run.stripe.is_of_neighbors() { run.first_die().0 } else { NO_DIE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::{DieIndex, Stripe};
    use crate::profile::Profile;

    const ZONE: ZoneIndex = ZoneIndex(1);

    fn map() -> ZoneMap {
        let text = zonda_profiles::builtin_text("tiny").expect("a built-in profile");
        ZoneMap::new(Layout::new(&Profile::parse(text).expect("which is valid")), 2)
    }

    #[test]
    fn a_zone_is_on_flash_as_a_whole_from_its_last_program_until_its_reset() {
        let mut map = map();
        map.insert(ZONE, ZoneRun::new(Stripe::uniform((0..4).map(DieIndex))));
        let capacity = map.layout.zone_capacity_bytes();
        let run = map.run_mut(ZONE);
        run.arrived_bytes = capacity;
        run.unit_is_on_its_way(2, 7);
        run.unit_is_on_its_way(3, 7);
        for (slot, is_last) in [(2, false), (3, true)] {
            map.run_mut(ZONE).unit_arrived(slot, 7);
            map.note_progress(ZONE);
            assert_eq!(map.entries[1].is_on_flash, is_last);
        }
        assert_eq!(map.arrived_bytes(ZONE), Some(capacity));
        map.remove(ZONE);
        assert_eq!((map.entries[1].is_on_flash, map.arrived_bytes(ZONE)), (false, None));
        map.check_invariants();
    }

    #[test]
    fn a_page_is_on_the_same_die_by_its_entry_and_by_its_run() {
        for dies in [[4, 5, 6, 7], [4, 6, 5, 7]] {
            let mut map = map();
            map.insert(ZONE, ZoneRun::new(Stripe::uniform(dies.into_iter().map(DieIndex))));
            let by_entry: Vec<u16> = (0..8).map(|page| map.die_of_page(ZONE, page)).collect();
            assert_eq!(by_entry, [dies, dies].concat());
            let by_run: Vec<u16> = (0..8).map(|page| map.run(ZONE).die_of_page(&map.layout, page)).collect();
            assert_eq!(by_entry, by_run);
        }
    }
}
