//! Zone allocation by itself, for benchmarks.

use zonda_zoned::{Prng, ZoneIndex};

use super::element::ElementGrid;
use super::{AllocationFacts, UnitOfZone, ZoneAllocator, allocator_of};
use crate::profile::Profile;

/// One in so many zones is hot.
const ZONES_A_HOT_ZONE: u64 = 16;
/// One in so many zones is reset as soon as it is written, so that there are elements of all wears
/// to choose from.
const ZONES_AN_EMPTY_ZONE: u32 = 4;

/// A drive's zone allocator that has seen much use, some zones far more than others. One zone is
/// kept empty, to be allocated and released. It has no clock: the caller measures the time.
///
/// ```
/// use zonda_ssd::allocation::AllocationTrial;
/// use zonda_profiles::builtin_text;
/// use zonda_ssd::profile::{AllocationKind, Profile};
/// use zonda_zoned::Prng;
///
/// let mut profile = Profile::parse(builtin_text("tiny").expect("a built-in profile")).expect("which is valid");
/// profile.zones.allocation = AllocationKind::Block;
/// let mut trial = AllocationTrial::new(&profile, 100, Prng::new(1));
/// trial.allocate_one();
/// assert_eq!(trial.facts().allocated, 4, "an erase unit on each of four dies");
/// trial.release();
/// assert_eq!(trial.facts().allocated, 0);
/// ```
#[derive(Debug)]
pub struct AllocationTrial {
    allocator: Box<dyn ZoneAllocator>,
    grid: ElementGrid,
    zone_capacity_bytes: u64,
    first_zone: u32,
    prng: Prng,
    allocated: bool,
}

impl AllocationTrial {
    /// The allocator of a profile after so many cycles of allocation, use and reset: three in four
    /// of them of one zone in sixteen, so that wear is uneven. Three quarters of the zones stay
    /// written.
    ///
    /// # Panics
    /// When the profile has fewer than two zones that are not conventional.
    #[must_use]
    pub fn new(profile: &Profile, cycles: u32, prng: Prng) -> AllocationTrial {
        let grid = ElementGrid::new(profile);
        assert!(grid.zones >= 2, "one zone is measured, another one is used");
        let mut trial = AllocationTrial {
            allocator: allocator_of(profile),
            grid,
            zone_capacity_bytes: profile.geometry.zone_capacity.0,
            first_zone: profile.geometry.conventional_zones,
            prng,
            allocated: false,
        };
        for _ in 0..cycles {
            trial.cycle();
        }
        trial
    }

    /// Allocates the measured zone.
    ///
    /// # Panics
    /// When it has one already.
    pub fn allocate_one(&mut self) {
        assert!(!std::mem::replace(&mut self.allocated, true), "the zone is released before it is allocated again");
        std::hint::black_box(self.allocator.allocate(ZoneIndex(self.first_zone)));
    }

    /// The zone that is measured is written and reset, so that its elements have one erase more in
    /// the end; then some other zone is used, so that no two allocations start from the same state.
    ///
    /// # Panics
    /// When the zone has not been allocated.
    pub fn release(&mut self) {
        assert!(std::mem::take(&mut self.allocated), "the zone was allocated");
        self.fill(ZoneIndex(self.first_zone));
        self.allocator.reset(ZoneIndex(self.first_zone));
        self.cycle();
    }

    /// Statistics of the elements.
    #[must_use]
    pub fn facts(&self) -> AllocationFacts {
        self.allocator.facts()
    }

    /// Memory of the allocator's tables, in bytes.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.allocator.table_bytes()
    }

    /// One of the other zones is reset, and written whole again; one in four is reset once more.
    fn cycle(&mut self) {
        let others = u64::from(self.grid.zones) - 1;
        let hot = others.div_ceil(ZONES_A_HOT_ZONE);
        let among = if self.prng.chance(3, 4) { hot } else { others };
        let zone = ZoneIndex(self.first_zone + 1 + self.prng.below(among) as u32);
        self.allocator.reset(zone);
        self.allocator.allocate(zone);
        self.fill(zone);
        if zone.0.is_multiple_of(ZONES_AN_EMPTY_ZONE) {
            self.allocator.reset(zone);
        }
    }

    /// Every erase unit of a zone is programmed.
    fn fill(&mut self, zone: ZoneIndex) {
        for row in 0..self.grid.rows {
            for slot in 0..self.grid.slots as u16 {
                self.allocator.program(zone, UnitOfZone { slot, row });
            }
        }
        self.allocator.release_untouched(zone, self.zone_capacity_bytes);
    }
}
