//! Conventional zones: a page-mapped translation layer with garbage collection, on the same dies.
//!
//! Host blocks are gathered into a stripe of program units, page by page over its units, as in a
//! zone; units that are full go to the dies in turn. Each die fills one erase unit after the other.
//! A die with few free erase units collects: the unit with the fewest valid blocks is read, its
//! valid blocks are programmed again, and it is erased. Moved blocks that do not fill a program
//! unit wait in the controller's memory for those of the next collection, on any die: padding them
//! would take space from what is over-provisioned.
//!
//! This file has the map and its rules; operations that take time are in `conventional_io.rs`.

mod die;
mod gathering;
mod map_cache;
mod shape;

use crate::map::BlockMap;
use crate::profile::Profile;

pub(crate) use die::{FtlDie, Parked};
use die::{NO_BLOCK, Open};
use gathering::Gathering;
pub(crate) use map_cache::{Lookup, MapCache};
use shape::Shape;
pub(crate) use shape::physical_blocks;

/// All conventional data count under one group of the write buffer.
pub(crate) const CONVENTIONAL_GROUP: u32 = 0;

/// Place of a block: unmapped.
const UNMAPPED: u32 = u32::MAX;
/// Place of a block: in the memory of the controller, without a place on flash yet.
const GATHERED: u32 = u32::MAX - 1;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockPlace {
    /// Never written: reads as zeros.
    Unmapped,
    /// In the memory of the controller.
    Buffered,
    /// On flash: the die, and the page of the drive's read unit.
    Flash { die: u16, page: u32 },
}

/// A program unit of gathered blocks that was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) die: u16,
    pub(crate) unit: u32,
    pub(crate) program: u32,
}

/// Map and flash of the conventional zones.
#[derive(Debug)]
pub(crate) struct Conventional {
    shape: Shape,
    map: BlockMap,
    pub(crate) dies: Vec<FtlDie>,
    gathering: Gathering,
    /// Blocks that were collected, and wait for others that fill their program unit.
    carried: Vec<u32>,
    /// The part of the map in memory; absent where all of it is.
    pub(crate) map_cache: Option<MapCache>,
    /// Map pages that have changed since they were last taken.
    changed_pages: Vec<u32>,
    next_die: usize,
    next_map_die: usize,
}

impl Conventional {
    /// `None` where the profile has no conventional zones.
    pub(crate) fn new(profile: &Profile) -> Option<Conventional> {
        if profile.geometry.conventional_zones == 0 {
            return None;
        }
        let shape = Shape::new(profile);
        let flash = &profile.flash;
        let cache = |size: zonda_config::ByteSize| MapCache::new(size.0, flash.read_unit.0, flash.program_unit.0);
        let dies = profile.dies();
        Some(Conventional {
            shape,
            map: BlockMap::new(UNMAPPED),
            dies: (0..dies).map(|die| FtlDie::new(shape.units_of_die(die, dies))).collect(),
            gathering: Gathering::new(shape),
            carried: Vec::new(),
            map_cache: profile.conventional.map_cache.map(cache),
            changed_pages: Vec::new(),
            next_die: 0,
            next_map_die: 0,
        })
    }

    /// Where a block is read from.
    pub(crate) fn place(&self, lba: u64) -> BlockPlace {
        match self.map.get(lba) {
            UNMAPPED => BlockPlace::Unmapped,
            GATHERED => BlockPlace::Buffered,
            at => {
                let (die, unit, block) = self.split(at);
                let program = block / self.shape.program_blocks;
                if self.dies[die].units[unit].on_the_way.contains(&program) {
                    BlockPlace::Buffered
                } else {
                    BlockPlace::Flash { die: die as u16, page: at / self.shape.page_blocks }
                }
            }
        }
    }

    /// A host block has arrived in the buffer; returns a program unit of blocks once one is full.
    pub(crate) fn gather(&mut self, lba: u64) -> Option<Vec<u32>> {
        self.invalidate(lba);
        self.map.set(lba, GATHERED);
        self.gathering.add(lba as u32, self.shape)
    }

    /// Removes all gathered blocks, in units that are not full.
    pub(crate) fn take_gathered(&mut self) -> Vec<Vec<u32>> {
        self.gathering.take()
    }

    /// The die whose turn it is to take host data.
    ///
    /// A unit waits for its die while that collects, rather than go to another: what is written
    /// together stays on different dies, and dies fill alike.
    pub(crate) fn next_die(&mut self) -> usize {
        for _ in 0..self.dies.len() {
            let die = self.next_die;
            self.next_die = (die + 1) % self.dies.len();
            if !self.dies[die].is_stuck(self.shape) {
                return die;
            }
        }
        unreachable!("the dies have more flash than all valid data and the units kept free need");
    }

    /// Whether a die can neither take host data nor collect.
    pub(crate) fn is_stuck(&self, die: usize) -> bool {
        self.dies[die].is_stuck(self.shape)
    }

    /// Places host blocks on a die; `None` if it has to collect first.
    pub(crate) fn place_for_host(&mut self, die: usize, blocks: &[u32]) -> Option<Placed> {
        let open = self.dies[die].take_for_host(self.shape)?;
        Some(self.fill(die, open, blocks))
    }

    /// Whether a die should collect now, if possible.
    pub(crate) fn wants_collection(&self, die: usize) -> bool {
        self.dies[die].wants_collection(self.shape)
    }

    /// The erase unit of a die that is collected next, and the number of its pages that hold valid
    /// blocks. `None` if that would free nothing.
    pub(crate) fn choose_victim(&mut self, die: usize) -> Option<(u32, u32)> {
        let victim = self.dies[die].choose_victim(self.shape)?;
        let pages = self.valid(die, victim).map(|(block, _)| block / self.shape.page_blocks);
        let mut pages: Vec<u32> = pages.collect();
        pages.dedup();
        Some((victim, pages.len() as u32))
    }

    /// Moves the valid blocks of a victim, with those carried from other victims, to new places on
    /// its die: one entry for each full program unit. The rest is carried on.
    pub(crate) fn move_valid(&mut self, die: usize, victim: u32) -> Vec<Placed> {
        // Some of the carried ones were written again or deallocated since.
        let carried = std::mem::take(&mut self.carried);
        let carried: Vec<u32> = carried.into_iter().filter(|lba| self.map.get(u64::from(*lba)) == GATHERED).collect();
        let valid: Vec<u32> = self.valid(die, victim).map(|(_, lba)| lba).collect();
        for lba in &valid {
            self.invalidate(u64::from(*lba));
            self.map.set(u64::from(*lba), GATHERED);
        }
        assert!(self.dies[die].units[victim as usize].valid_blocks == 0, "a collected unit has no valid blocks");
        let mut placed = Vec::new();
        if let Some(open) = self.dies[die].take_to_level(self.shape) {
            // Among data that change, they would soon be moved again: they stay together.
            for (unit, next_program) in valid.chunks(self.shape.program_blocks as usize).zip(0..) {
                placed.push(self.fill(die, Open { next_program, ..open }, unit));
            }
            self.carried = carried;
            return placed;
        }
        let blocks = [carried, valid].concat();
        let units = blocks.chunks_exact(self.shape.program_blocks as usize);
        self.carried = units.remainder().to_vec();
        for unit in units {
            let open = self.dies[die].take_for_gc(self.shape);
            placed.push(self.fill(die, open, unit));
        }
        placed
    }

    /// A collected unit has been erased.
    pub(crate) fn free(&mut self, die: usize, unit: u32) {
        self.dies[die].units[unit as usize].erases += 1;
        self.dies[die].release(unit);
    }

    /// Removes the list of map pages that have changed.
    pub(crate) fn take_changed_pages(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.changed_pages)
    }

    pub(crate) fn is_programmed(&mut self, die: usize, unit: u32, program: u32) {
        let on_the_way = &mut self.dies[die].units[unit as usize].on_the_way;
        let place = on_the_way.iter().position(|known| *known == program);
        on_the_way.swap_remove(place.expect("a completed program was in flight"));
    }

    pub(crate) fn deallocate(&mut self, lbas: std::ops::Range<u64>) {
        for lba in lbas {
            if !matches!(self.map.get(lba), UNMAPPED) {
                self.invalidate(lba);
                self.map.set(lba, UNMAPPED);
            }
        }
    }

    /// The die for a program unit of changed map pages, once enough were evicted.
    pub(crate) fn take_map_program(&mut self) -> Option<usize> {
        let cache = self.map_cache.as_mut()?;
        let is_full = cache.take_program();
        if is_full {
            self.next_map_die = (self.next_map_die + 1) % self.dies.len();
        }
        is_full.then_some(self.next_map_die)
    }

    /// Writes blocks without time passing, collecting as needed.
    pub(crate) fn prefill(&mut self, lbas: impl Iterator<Item = u64>) {
        for lba in lbas {
            if let Some(blocks) = self.gather(lba) {
                self.place_at_once(&blocks);
            }
        }
        self.take_gathered().iter().for_each(|blocks| self.place_at_once(blocks));
        self.forget_map_changes();
    }

    fn place_at_once(&mut self, blocks: &[u32]) {
        loop {
            let die = self.next_die();
            while let Some(victim) = self.dies[die].choose_victim_if_low(self.shape) {
                for placed in self.move_valid(die, victim) {
                    self.is_programmed(die, placed.unit, placed.program);
                }
                self.dies[die].release(victim);
            }
            if let Some(placed) = self.place_for_host(die, blocks) {
                return self.is_programmed(die, placed.unit, placed.program);
            }
        }
    }

    /// What is written without time passing finds its map on flash later.
    fn forget_map_changes(&mut self) {
        let pages = self.take_changed_pages();
        if let Some(cache) = &mut self.map_cache {
            pages.into_iter().for_each(|page| cache.set_written(page));
        }
    }

    /// Completes programs in flight at power loss. Blocks in memory are placed at once, from the
    /// power reserve of the drive.
    pub(crate) fn complete_in_flight(&mut self) {
        let mut in_memory = vec![std::mem::take(&mut self.carried)];
        for die in &mut self.dies {
            die.complete_in_flight();
            in_memory.extend(die.parked.drain(..).map(|parked| parked.blocks));
        }
        in_memory.retain(|blocks| !blocks.is_empty());
        in_memory.iter().for_each(|blocks| self.place_at_once(blocks));
        self.prefill(std::iter::empty());
        if let Some(cache) = &mut self.map_cache {
            cache.clear();
        }
    }

    /// Erases of the units of a die.
    pub(crate) fn erases_of_die(&self, die: usize) -> impl Iterator<Item = u32> {
        self.dies[die].units.iter().map(|unit| unit.erases)
    }

    /// Wear of the erase units of all dies.
    pub(crate) fn wear(&self) -> crate::counters::Wear {
        let erases = || self.dies.iter().flat_map(|die| die.units.iter().map(|unit| unit.erases));
        crate::counters::Wear {
            units: erases().count() as u64,
            erases: erases().map(u64::from).sum(),
            erases_max: erases().max().unwrap_or(0),
            erases_min: erases().min().unwrap_or(0),
        }
    }

    pub(crate) fn check_invariants(&self) {
        self.dies.iter().for_each(FtlDie::check_invariants);
        assert!(self.carried.len() < self.shape.program_blocks as usize, "a full program unit is programmed");
        if let Some(cache) = &self.map_cache {
            cache.check_invariants();
        }
    }

    /// Writes a block without time passing, but counts erases.
    #[cfg(test)]
    fn overwrite_and_erase(&mut self, lba: u64) {
        let Some(blocks) = self.gather(lba) else { return };
        let die = self.next_die();
        while let Some(victim) = self.dies[die].choose_victim_if_low(self.shape) {
            for placed in self.move_valid(die, victim) {
                self.is_programmed(die, placed.unit, placed.program);
            }
            self.free(die, victim);
        }
        let placed = self.place_for_host(die, &blocks).expect("the die is not stuck");
        self.is_programmed(die, placed.unit, placed.program);
    }

    /// Counts every valid block from the map: slow, for tests.
    #[cfg(test)]
    fn check_map(&self, lbas: u64) {
        let mut valid: Vec<Vec<u32>> = self.dies.iter().map(|die| vec![0; die.units.len()]).collect();
        for lba in 0..lbas {
            let at = self.map.get(lba);
            if at < GATHERED {
                let (die, unit, block) = self.split(at);
                valid[die][unit] += 1;
                let contents = self.dies[die].units[unit].contents.as_ref().expect("a mapped unit has contents");
                assert_eq!(contents[block as usize], lba as u32);
            }
        }
        for (die, valid) in self.dies.iter().zip(valid) {
            let counted: Vec<u32> = die.units.iter().map(|unit| unit.valid_blocks).collect();
            assert_eq!(counted, valid);
        }
    }

    /// Valid blocks of a unit: position in it, and block address.
    fn valid(&self, die: usize, unit: u32) -> impl Iterator<Item = (u32, u32)> {
        let contents = self.dies[die].units[unit as usize].contents.iter().flat_map(|contents| contents.iter());
        contents.enumerate().map(|(block, lba)| (block as u32, *lba)).filter(move |(block, lba)| {
            *lba != NO_BLOCK && self.map.get(u64::from(*lba)) == self.join(die, unit, *block)
        })
    }

    /// Writes blocks in memory to a program unit.
    fn fill(&mut self, die: usize, open: Open, blocks: &[u32]) -> Placed {
        let first = open.next_program * self.shape.program_blocks;
        for (i, lba) in blocks.iter().enumerate() {
            if self.map.get(u64::from(*lba)) != GATHERED {
                // Deallocated since, or in memory twice and placed with the unit that was full
                // first: one valid place suffices, as contents are stored by address.
                continue;
            }
            let block = first + i as u32;
            self.map.set(u64::from(*lba), self.join(die, open.unit, block));
            let unit = &mut self.dies[die].units[open.unit as usize];
            unit.valid_blocks += 1;
            unit.contents.as_mut().expect("an open unit has contents")[block as usize] = *lba;
            if let Some(cache) = &self.map_cache {
                let page = cache.page_of(u64::from(*lba));
                if self.changed_pages.last() != Some(&page) {
                    self.changed_pages.push(page);
                }
            }
        }
        self.dies[die].units[open.unit as usize].on_the_way.push(open.next_program);
        Placed { die: die as u16, unit: open.unit, program: open.next_program }
    }

    fn invalidate(&mut self, lba: u64) {
        let at = self.map.get(lba);
        if at < GATHERED {
            let (die, unit, _) = self.split(at);
            self.dies[die].units[unit].valid_blocks -= 1;
        }
    }

    fn join(&self, die: usize, unit: u32, block: u32) -> u32 {
        (die as u32 * self.shape.units_per_die + unit) * self.shape.unit_blocks() + block
    }

    fn split(&self, at: u32) -> (usize, usize, u32) {
        let (unit, block) = (at / self.shape.unit_blocks(), at % self.shape.unit_blocks());
        ((unit / self.shape.units_per_die) as usize, (unit % self.shape.units_per_die) as usize, block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;

    fn conventional() -> (Conventional, u64) {
        let profile = crate::profile::tests::tiny_conventional();
        let blocks = profile.geometry().namespace_blocks().0;
        (Conventional::new(&profile).unwrap(), blocks)
    }

    #[test]
    fn random_overwriting_of_a_full_drive_collects_and_keeps_the_map_right() {
        let (mut ftl, blocks) = conventional();
        ftl.prefill(0..blocks);
        ftl.check_map(blocks);
        let mut prng = Prng::new(1);
        for _ in 0..20 {
            ftl.prefill((0..blocks / 4).map(|_| prng.below(blocks)));
            ftl.check_map(blocks);
            ftl.check_invariants();
        }
        let physical_blocks = ftl.dies.len() as u32 * ftl.shape.units_per_die * ftl.shape.unit_blocks();
        assert!(6 * blocks > u64::from(physical_blocks), "more was written than there is flash: units were used again");
        let in_memory = (0..blocks).filter(|lba| ftl.place(*lba) == BlockPlace::Buffered).count();
        assert!(in_memory < ftl.shape.program_blocks as usize, "only what does not fill a program unit waits");
        assert!((0..blocks).all(|lba| ftl.place(lba) != BlockPlace::Unmapped));
    }

    #[test]
    fn neighbouring_pages_come_to_lie_on_different_dies() {
        let (mut ftl, _) = conventional();
        let page_blocks = u64::from(ftl.shape.page_blocks);
        let stripe_blocks = u64::from(ftl.shape.stripe_units * ftl.shape.program_blocks);
        ftl.prefill(0..stripe_blocks);
        let die_of = |lba: u64| match ftl.place(lba) {
            BlockPlace::Flash { die, .. } => die,
            other => panic!("block {lba} is {other:?}"),
        };
        let dies: Vec<u16> = (0..4).map(|page| die_of(page * page_blocks)).collect();
        assert_eq!(dies, [0, 1, 2, 3]);
        assert_eq!(die_of(0), die_of(page_blocks - 1), "the blocks of a page stay together");
    }

    #[test]
    fn a_deallocated_block_is_nowhere_even_if_it_was_gathered() {
        let (mut ftl, blocks) = conventional();
        ftl.gather(5);
        assert_eq!(ftl.place(5), BlockPlace::Buffered);
        ftl.deallocate(5..6);
        ftl.prefill(std::iter::empty());
        assert_eq!(ftl.place(5), BlockPlace::Unmapped);
        ftl.check_map(blocks);
    }

    #[test]
    fn a_block_gathered_twice_is_valid_once() {
        let (mut ftl, blocks) = conventional();
        ftl.prefill([3, 3, 3, 4].into_iter());
        ftl.check_map(blocks);
    }

    #[test]
    fn what_is_written_together_waits_for_its_dies_instead_of_sharing_the_one_that_is_free() {
        let (mut ftl, blocks) = conventional();
        ftl.prefill(0..blocks);
        ftl.dies[1].is_collecting = true;
        while ftl.place_for_host(1, &[]).is_some() {}
        let dies: Vec<usize> = (0..8).map(|_| ftl.next_die()).collect();
        assert_eq!(dies[..4].iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{dies:?}");
        assert_eq!(dies[..4], dies[4..]);
        ftl.dies[1].is_collecting = false;
        ftl.complete_in_flight();
    }

    #[test]
    fn a_cold_half_does_not_keep_the_hot_half_wearing_the_same_units() {
        let spread_of = |wear_leveling_erases| {
            let mut profile = crate::profile::tests::tiny_conventional();
            profile.flash.erase_unit = zonda_config::ByteSize(96 << 10);
            profile.conventional.wear_leveling_erases = wear_leveling_erases;
            let blocks = profile.geometry().namespace_blocks().0;
            let mut ftl = Conventional::new(&profile).unwrap();
            ftl.prefill(0..blocks);
            let mut prng = Prng::new(1);
            for _ in 0..40 * blocks {
                ftl.overwrite_and_erase(prng.below(blocks / 2));
            }
            ftl.check_map(blocks);
            ftl.wear()
        };
        let (off, on) = (spread_of(None), spread_of(Some(8)));
        assert_eq!(off.erases_min, 0, "the cold half stays where it is");
        assert!(off.erases_max > 50, "{off:?}");
        let mean = (on.erases / on.units) as u32;
        assert!(mean - on.erases_min < 2 * 8, "{on:?}");
        assert!(on.erases_max < off.erases_max * 3 / 4, "{on:?}, {off:?}");
        assert!(on.erases < off.erases * 5 / 4, "moving the cold half costs little: {on:?}, {off:?}");
    }
}
