//! Conventional zones: a page-mapped translation layer with garbage collection, on the same dies.
//!
//! Host blocks are gathered into a stripe of program units, page by page over its units, as in a
//! zone; units that are full go to the next dies in turn. Each die fills one erase unit after the
//! other. A die with few free erase units collects: the unit with the fewest valid blocks is read,
//! its valid blocks are programmed again elsewhere on the die, and it is erased. This file has the
//! map and its rules; operations that take time are in `conventional_io.rs`.

use std::collections::VecDeque;

use crate::map::BlockMap;
use crate::pending::CommandKey;
use crate::profile::Profile;

/// All conventional data count under one group of the write buffer.
pub(crate) const CONVENTIONAL_GROUP: u32 = 0;

/// Place of a block: unmapped.
const UNMAPPED: u32 = u32::MAX;
/// Place of a block: in the write buffer, without a place on flash yet.
const GATHERED: u32 = u32::MAX - 1;
/// The content of a place on flash that holds no block.
const NO_BLOCK: u32 = u32::MAX;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockPlace {
    /// Never written: reads as zeros.
    Unmapped,
    /// In the write buffer.
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
    /// Host program units that wait for space on a die.
    pub(crate) parked: VecDeque<Parked>,
    next_die: usize,
}

/// Blocks in the write buffer that wait for their program unit to fill.
#[derive(Debug)]
struct Gathering {
    /// The program units of the stripe that is being filled.
    units: Vec<Vec<u32>>,
    /// Blocks of the stripe that have arrived.
    filled_blocks: u32,
}

/// Sizes, in blocks and counts.
#[derive(Clone, Copy, Debug)]
struct Shape {
    page_blocks: u32,
    program_blocks: u32,
    stripe_units: u32,
    unit_programs: u32,
    units_per_die: u32,
    gc_low_units: usize,
}

/// One die's erase units.
#[derive(Debug)]
pub(crate) struct FtlDie {
    units: Vec<FtlUnit>,
    free: VecDeque<u32>,
    open_for_host: Option<Open>,
    open_for_gc: Option<Open>,
    pub(crate) is_collecting: bool,
}

/// Blocks that wait for space on a die.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) blocks: Vec<u32>,
    pub(crate) waiter: Option<CommandKey>,
}

/// An erase unit.
#[derive(Debug, Default)]
struct FtlUnit {
    valid_blocks: u32,
    erases: u32,
    /// Programs in flight: the unit is neither read nor collected there.
    on_the_way: Vec<u32>,
    /// What each of its blocks holds; absent while the unit is free.
    contents: Option<Box<[u32]>>,
}

/// An erase unit that is being filled.
#[derive(Clone, Copy, Debug)]
struct Open {
    unit: u32,
    next_program: u32,
}

fn shape(profile: &Profile) -> Shape {
    let (flash, block) = (&profile.flash, profile.geometry.block_size.0);
    let host_bytes = u64::from(profile.geometry.conventional_zones) * profile.geometry.zone_size.0;
    let percent = 100 + u64::from(profile.conventional.over_provisioning_percent);
    // A profile that does not fit is rejected by its check, which calls this for the number of
    // blocks.
    let as_count = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
    let bytes_per_die = |percent: u64| ((host_bytes / 100).saturating_mul(percent)).div_ceil(u64::from(profile.dies()));
    // A unit is collected only if that frees at least one program unit: so much of each unit may be
    // lost to data that are no longer valid, and the collector needs units of its own. Usually
    // over-provisioning covers both.
    let useful_unit_bytes = flash.erase_unit.0 - flash.program_unit.0;
    let spare_units = profile.conventional.gc_low_units + 2;
    let needed_units = as_count(bytes_per_die(100).div_ceil(useful_unit_bytes.max(1))).saturating_add(spare_units);
    let provided_units = as_count(bytes_per_die(percent).div_ceil(flash.erase_unit.0));
    Shape {
        page_blocks: (flash.read_unit.0 / block) as u32,
        program_blocks: (flash.program_unit.0 / block) as u32,
        // Without early completion each command is programmed on arrival: a wide stripe would only
        // scatter it.
        stripe_units: if profile.write_buffer.early_completion { profile.zones.parallelism } else { 1 },
        unit_programs: (flash.erase_unit.0 / flash.program_unit.0) as u32,
        units_per_die: needed_units.max(provided_units),
        gc_low_units: profile.conventional.gc_low_units as usize,
    }
}

/// Blocks of flash that a profile's conventional zones take.
pub(crate) fn physical_blocks(profile: &Profile) -> u64 {
    let shape = shape(profile);
    u64::from(profile.dies()) * u64::from(shape.units_per_die) * u64::from(shape.unit_blocks())
}

impl Shape {
    fn unit_blocks(&self) -> u32 {
        self.program_blocks * self.unit_programs
    }
}

impl Conventional {
    /// `None` where the profile has no conventional zones.
    pub(crate) fn new(profile: &Profile) -> Option<Conventional> {
        if profile.geometry.conventional_zones == 0 {
            return None;
        }
        let shape = shape(profile);
        let die = |_| FtlDie {
            units: (0..shape.units_per_die).map(|_| FtlUnit::default()).collect(),
            free: (0..shape.units_per_die).collect(),
            open_for_host: None,
            open_for_gc: None,
            is_collecting: false,
        };
        Some(Conventional {
            shape,
            map: BlockMap::new(UNMAPPED),
            dies: (0..profile.dies()).map(die).collect(),
            gathering: Gathering { units: vec![Vec::new(); shape.stripe_units as usize], filled_blocks: 0 },
            parked: VecDeque::new(),
            next_die: 0,
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
        self.gathering.filled_blocks = 0;
        let units = self.gathering.units.iter_mut().map(std::mem::take);
        units.filter(|blocks| !blocks.is_empty()).collect()
    }

    /// Places host blocks on the next die with free space; `None` if one has to collect first.
    pub(crate) fn place_for_host(&mut self, blocks: &[u32]) -> Option<Placed> {
        for _ in 0..self.dies.len() {
            let die = self.next_die;
            self.next_die = (die + 1) % self.dies.len();
            // The last free unit is reserved for the collector: without it nothing could be freed.
            if self.dies[die].open_for_host.is_none() && self.dies[die].free.len() > 1 {
                self.dies[die].open_for_host = self.dies[die].open_unit(self.shape);
            }
            if let Some(open) = self.dies[die].open_for_host {
                self.dies[die].open_for_host = self.after(open);
                return Some(self.fill(die, open, blocks, false));
            }
        }
        None
    }

    /// Whether a die should collect now, if possible.
    pub(crate) fn wants_collection(&self, die: usize) -> bool {
        let place = &self.dies[die];
        !place.is_collecting && (place.free.len() < self.shape.gc_low_units || !self.parked.is_empty())
    }

    /// The erase unit of a die with the fewest valid blocks, and the number of its pages that hold
    /// valid blocks. `None` if collecting none would free as much as one program unit: valid blocks
    /// are moved in program units.
    pub(crate) fn victim(&self, die: usize) -> Option<(u32, u32)> {
        let place = &self.dies[die];
        let is_open =
            |unit: u32| [place.open_for_host, place.open_for_gc].iter().flatten().any(|open| open.unit == unit);
        let closed =
            place.units.iter().enumerate().filter(|(index, unit)| {
                unit.contents.is_some() && unit.on_the_way.is_empty() && !is_open(*index as u32)
            });
        let (index, unit) = closed.min_by_key(|(index, unit)| (unit.valid_blocks, *index))?;
        if unit.valid_blocks.div_ceil(self.shape.program_blocks) >= self.shape.unit_programs {
            return None;
        }
        let pages = self.valid(die, index as u32).map(|(block, _)| block / self.shape.page_blocks);
        let mut pages: Vec<u32> = pages.collect();
        pages.dedup();
        Some((index as u32, pages.len() as u32))
    }

    /// Moves the valid blocks of a victim to new places on its die: one entry for each program
    /// unit.
    pub(crate) fn move_valid(&mut self, die: usize, victim: u32) -> Vec<Placed> {
        let blocks: Vec<u32> = self.valid(die, victim).map(|(_, lba)| lba).collect();
        let shape = self.shape;
        let mut placed = Vec::new();
        for chunk in blocks.chunks(shape.program_blocks as usize) {
            if self.dies[die].open_for_gc.is_none() {
                self.dies[die].open_for_gc = self.dies[die].open_unit(shape);
            }
            let open = self.dies[die].open_for_gc.expect("the last free unit is reserved for the collector");
            self.dies[die].open_for_gc = self.after(open);
            placed.push(self.fill(die, open, chunk, true));
        }
        assert!(self.dies[die].units[victim as usize].valid_blocks == 0, "a collected unit has no valid blocks");
        placed
    }

    /// A collected unit has been erased.
    pub(crate) fn free(&mut self, die: usize, unit: u32) {
        self.dies[die].units[unit as usize].erases += 1;
        self.release(die, unit);
    }

    /// A unit without valid blocks can be filled again.
    fn release(&mut self, die: usize, unit: u32) {
        let place = &mut self.dies[die];
        let erased = &mut place.units[unit as usize];
        assert!(erased.valid_blocks == 0, "an erased unit has no valid blocks");
        erased.contents = None;
        place.free.push_back(unit);
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

    /// Writes blocks without time passing, collecting as needed.
    pub(crate) fn prefill(&mut self, lbas: impl Iterator<Item = u64>) {
        for lba in lbas {
            if let Some(blocks) = self.gather(lba) {
                self.place_at_once(&blocks);
            }
        }
        self.take_gathered().iter().for_each(|blocks| self.place_at_once(blocks));
    }

    fn place_at_once(&mut self, blocks: &[u32]) {
        loop {
            if let Some(placed) = self.place_for_host(blocks) {
                self.is_programmed(usize::from(placed.die), placed.unit, placed.program);
                return;
            }
            let victims = (0..self.dies.len()).filter_map(|die| Some((die, self.victim(die)?.0)));
            let (die, victim) = victims
                .min_by_key(|(die, unit)| self.dies[*die].units[*unit as usize].valid_blocks)
                .expect("over-provisioning leaves something to collect");
            for placed in self.move_valid(die, victim) {
                self.is_programmed(die, placed.unit, placed.program);
            }
            self.release(die, victim);
        }
    }

    /// Completes programs in flight at power loss. Gathered blocks are placed at once, from the
    /// power reserve of the drive.
    pub(crate) fn complete_in_flight(&mut self) {
        for die in 0..self.dies.len() {
            self.dies[die].is_collecting = false;
            for unit in 0..self.dies[die].units.len() {
                self.dies[die].units[unit].on_the_way.clear();
                let place = &self.dies[die];
                let is_open =
                    [place.open_for_host, place.open_for_gc].iter().flatten().any(|open| open.unit == unit as u32);
                let is_garbage = place.units[unit].contents.is_some() && place.units[unit].valid_blocks == 0;
                if is_garbage && !is_open {
                    self.release(die, unit as u32);
                }
            }
        }
        let parked = std::mem::take(&mut self.parked);
        parked.iter().for_each(|parked| self.place_at_once(&parked.blocks));
        self.prefill(std::iter::empty());
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
        for (index, die) in self.dies.iter().enumerate() {
            for unit in &die.free {
                assert!(die.units[*unit as usize].contents.is_none(), "die {index}: a free unit {unit} is empty");
            }
        }
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

    /// Writes blocks to the next program unit: gathered ones, or (`is_moved`) ones that a
    /// collection moves here.
    fn fill(&mut self, die: usize, open: Open, blocks: &[u32], is_moved: bool) -> Placed {
        let first = open.next_program * self.shape.program_blocks;
        for (i, lba) in blocks.iter().enumerate() {
            let at = self.map.get(u64::from(*lba));
            if is_moved || at == GATHERED {
                self.invalidate(u64::from(*lba));
            } else {
                // Deallocated since, or gathered twice and placed with the unit that was full
                // first: one valid place suffices, as contents are stored by address.
                continue;
            }
            let block = first + i as u32;
            self.map.set(u64::from(*lba), self.join(die, open.unit, block));
            let unit = &mut self.dies[die].units[open.unit as usize];
            unit.valid_blocks += 1;
            unit.contents.as_mut().expect("an open unit has contents")[block as usize] = *lba;
        }
        self.dies[die].units[open.unit as usize].on_the_way.push(open.next_program);
        Placed { die: die as u16, unit: open.unit, program: open.next_program }
    }

    fn after(&self, open: Open) -> Option<Open> {
        let next_program = open.next_program + 1;
        (next_program < self.shape.unit_programs).then_some(Open { next_program, ..open })
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

impl Gathering {
    /// Adds a block; returns the program unit that it fills, if it does.
    fn add(&mut self, lba: u32, shape: Shape) -> Option<Vec<u32>> {
        let page = self.filled_blocks / shape.page_blocks;
        let (round, unit) = (page / shape.stripe_units, (page % shape.stripe_units) as usize);
        self.units[unit].push(lba);
        self.filled_blocks += 1;
        let ends_page = self.filled_blocks.is_multiple_of(shape.page_blocks);
        let is_last_round = (round + 1) * shape.page_blocks == shape.program_blocks;
        if self.filled_blocks == shape.stripe_units * shape.program_blocks {
            self.filled_blocks = 0;
        }
        (ends_page && is_last_round).then(|| std::mem::take(&mut self.units[unit]))
    }
}

impl FtlDie {
    fn open_unit(&mut self, shape: Shape) -> Option<Open> {
        let unit = self.free.pop_front()?;
        self.units[unit as usize].contents = Some(vec![NO_BLOCK; shape.unit_blocks() as usize].into());
        Some(Open { unit, next_program: 0 })
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
        assert!((0..blocks).all(|lba| matches!(ftl.place(lba), BlockPlace::Flash { .. })));
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
}
