//! The erase units of one die: which are free, which are filled, and which is collected next.

use std::collections::VecDeque;

use super::shape::Shape;
use crate::pending::CommandKey;

/// The content of a place on flash that holds no block.
pub(super) const NO_BLOCK: u32 = u32::MAX;

/// One die's erase units.
#[derive(Debug)]
pub(crate) struct FtlDie {
    pub(super) units: Vec<FtlUnit>,
    pub(super) free: VecDeque<u32>,
    pub(super) open_for_host: Option<Open>,
    pub(super) open_for_gc: Option<Open>,
    /// Host program units whose turn has come on this die, and that wait for a free erase unit.
    pub(crate) parked: VecDeque<Parked>,
    pub(crate) is_collecting: bool,
    /// Whether the last victim was chosen to level wear.
    has_leveled: bool,
}

/// Blocks that wait for space on a die.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) blocks: Vec<u32>,
    pub(crate) waiter: Option<CommandKey>,
}

/// An erase unit.
#[derive(Debug, Default)]
pub(super) struct FtlUnit {
    pub(super) valid_blocks: u32,
    pub(super) erases: u32,
    /// Programs in flight: the unit is neither read nor collected there.
    pub(super) on_the_way: Vec<u32>,
    /// What each of its blocks holds; absent while the unit is free.
    pub(super) contents: Option<Box<[u32]>>,
}

/// An erase unit that is being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) unit: u32,
    pub(super) next_program: u32,
}

impl Open {
    pub(super) fn after(self, shape: Shape) -> Option<Open> {
        let next_program = self.next_program + 1;
        (next_program < shape.unit_programs).then_some(Open { next_program, ..self })
    }
}

impl FtlDie {
    pub(super) fn new(units: u32) -> FtlDie {
        FtlDie {
            units: (0..units).map(|_| FtlUnit::default()).collect(),
            free: (0..units).collect(),
            open_for_host: None,
            open_for_gc: None,
            parked: VecDeque::new(),
            is_collecting: false,
            has_leveled: false,
        }
    }

    /// The next program unit for host data. An erase unit is opened only while `gc_low_units` are
    /// free: host data that used them up would lend the drive spare that it lacks at other times,
    /// and without the last one nothing could be freed.
    pub(super) fn take_for_host(&mut self, shape: Shape) -> Option<Open> {
        if self.open_for_host.is_none() && self.free.len() >= shape.gc_low_units {
            self.open_for_host = self.open_unit(shape, u64::from);
        }
        let open = self.open_for_host?;
        self.open_for_host = open.after(shape);
        Some(open)
    }

    /// The next program unit for data that the collector moves.
    pub(super) fn take_for_gc(&mut self, shape: Shape) -> Open {
        if self.open_for_gc.is_none() {
            self.open_for_gc = self.open_unit(shape, u64::from);
        }
        let open = self.open_for_gc.expect("the last free unit is reserved for the collector");
        self.open_for_gc = open.after(shape);
        open
    }

    /// An erase unit for the data of one that is too little worn: the most worn of the free ones, and
    /// nothing else is written to it. `None` if the victim is an ordinary one.
    pub(super) fn take_to_level(&mut self, shape: Shape) -> Option<Open> {
        if !self.has_leveled {
            return None;
        }
        self.open_unit(shape, |erases| u64::MAX - u64::from(erases))
    }

    /// Opens a free unit: the first, or with wear leveling the one of the lowest rank.
    fn open_unit(&mut self, shape: Shape, rank: impl Fn(u32) -> u64) -> Option<Open> {
        let place = match shape.leveling_erases {
            None => 0,
            Some(_) => {
                let erases = |unit: u32| self.units[unit as usize].erases;
                let ranked = self.free.iter().enumerate().min_by_key(|(place, unit)| (rank(erases(**unit)), *place));
                ranked?.0
            }
        };
        let unit = self.free.remove(place)?;
        self.units[unit as usize].contents = Some(vec![NO_BLOCK; shape.unit_blocks() as usize].into());
        Some(Open { unit, next_program: 0 })
    }

    /// Whether the die should collect now, if possible.
    pub(crate) fn wants_collection(&self, shape: Shape) -> bool {
        !self.is_collecting && (self.free.len() < shape.gc_low_units || !self.parked.is_empty())
    }

    /// Whether no host data can be placed here, and nothing in progress will change that.
    pub(super) fn is_stuck(&self, shape: Shape) -> bool {
        self.open_for_host.is_none()
            && self.free.len() < shape.gc_low_units
            && !self.is_collecting
            && self.parked.is_empty()
            && self.units.iter().all(|unit| unit.on_the_way.is_empty())
            && self.emptiest(shape).is_none()
    }

    /// The erase unit to collect: the one with the fewest valid blocks, or to level wear the one
    /// with the fewest erases.
    pub(super) fn choose_victim(&mut self, shape: Shape) -> Option<u32> {
        let to_level = if self.has_leveled || self.free.is_empty() { None } else { self.least_worn(shape) };
        self.has_leveled = to_level.is_some();
        to_level.or_else(|| self.emptiest(shape))
    }

    /// The unit to collect before more is placed here without time passing.
    pub(super) fn choose_victim_if_low(&mut self, shape: Shape) -> Option<u32> {
        if self.wants_collection(shape) { self.choose_victim(shape) } else { None }
    }

    /// Completes programs and erases in flight.
    pub(super) fn complete_in_flight(&mut self) {
        self.is_collecting = false;
        for unit in 0..self.units.len() as u32 {
            let place = &mut self.units[unit as usize];
            place.on_the_way.clear();
            let is_garbage = place.contents.is_some() && place.valid_blocks == 0;
            if is_garbage && !self.is_open(unit) {
                self.release(unit);
            }
        }
    }

    /// The closed unit with the fewest valid blocks, unless all are valid.
    fn emptiest(&self, shape: Shape) -> Option<u32> {
        let unit = self.closed().min_by_key(|unit| (self.units[*unit as usize].valid_blocks, *unit))?;
        (self.units[unit as usize].valid_blocks < shape.unit_blocks()).then_some(unit)
    }

    /// A closed unit that has been erased far less often than the units of the die on average. Its
    /// data hardly change: elsewhere they free it for others that do. As moving them frees no space,
    /// every second collection at most does this.
    fn least_worn(&self, shape: Shape) -> Option<u32> {
        let threshold = shape.leveling_erases?;
        let all: u64 = self.units.iter().map(|unit| u64::from(unit.erases)).sum();
        let mean = (all / self.units.len() as u64) as u32;
        let unit = self.closed().min_by_key(|unit| (self.units[*unit as usize].erases, *unit))?;
        (mean > self.units[unit as usize].erases + threshold).then_some(unit)
    }

    /// Units that are full and completely programmed.
    fn closed(&self) -> impl Iterator<Item = u32> {
        let is_closed = |unit: &u32| self.units[*unit as usize].is_programmed_completely() && !self.is_open(*unit);
        (0..self.units.len() as u32).filter(is_closed)
    }

    pub(super) fn is_open(&self, unit: u32) -> bool {
        [self.open_for_host, self.open_for_gc].iter().flatten().any(|open| open.unit == unit)
    }

    /// A unit without valid blocks can be filled again.
    pub(super) fn release(&mut self, unit: u32) {
        let erased = &mut self.units[unit as usize];
        assert!(erased.valid_blocks == 0, "an erased unit has no valid blocks");
        erased.contents = None;
        self.free.push_back(unit);
    }

    pub(super) fn check_invariants(&self) {
        for unit in &self.free {
            assert!(self.units[*unit as usize].contents.is_none(), "a free unit {unit} is empty");
        }
    }
}

impl FtlUnit {
    fn is_programmed_completely(&self) -> bool {
        self.contents.is_some() && self.on_the_way.is_empty()
    }
}
