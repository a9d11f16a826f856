//! Sizes of the translation layer, and how many erase units each die gets.

use crate::profile::Profile;

/// What is empty, on average, in the unit open for the host and the one open for the collector: half
/// of each.
const OPEN_UNITS: u64 = 1;

/// Sizes, in blocks and counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) page_blocks: u32,
    pub(crate) program_blocks: u32,
    pub(crate) stripe_units: u32,
    pub(crate) unit_programs: u32,
    /// Erase units of a die, at most.
    pub(crate) units_per_die: u32,
    /// Dies with one unit less than that.
    pub(crate) smaller_dies: u32,
    pub(crate) gc_low_units: usize,
    /// Erases behind the average from which a unit's data are moved.
    pub(crate) leveling_erases: Option<u32>,
}

impl Shape {
    pub(crate) fn new(profile: &Profile) -> Shape {
        let (flash, block, spec) = (&profile.flash, profile.geometry.block_size.0, &profile.conventional);
        let host_bytes = u64::from(profile.geometry.conventional_zones) * profile.geometry.zone_size.0;
        let percent = 100 + u64::from(spec.over_provisioning_percent);
        // A profile that does not fit is rejected by its check, which calls this for the number of
        // blocks.
        let as_count = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
        // Over-provisioning is space for data that are no longer valid. What a die must keep free or
        // open comes on top: it is nothing on a die of thousands of units, and much on one of a
        // hundred, where it would otherwise be most of the over-provisioning.
        let dies = u64::from(profile.dies());
        let data_units = (host_bytes / 100).saturating_mul(percent).div_ceil(flash.erase_unit.0);
        let reserved_units = u64::from(spec.gc_low_units) - 1 + OPEN_UNITS;
        // Units are spread over all dies, since rounding up on each could add as much as was asked
        // for.
        Shape {
            page_blocks: (flash.read_unit.0 / block) as u32,
            program_blocks: (flash.program_unit.0 / block) as u32,
            // Without early completion each command is programmed on arrival: a wide stripe would
            // only scatter it.
            stripe_units: if profile.write_buffer.early_completion { profile.zones.parallelism } else { 1 },
            unit_programs: (flash.erase_unit.0 / flash.program_unit.0) as u32,
            units_per_die: as_count(data_units.div_ceil(dies).saturating_add(reserved_units)),
            smaller_dies: as_count(data_units.next_multiple_of(dies) - data_units),
            gc_low_units: spec.gc_low_units as usize,
            leveling_erases: spec.wear_leveling_erases,
        }
    }

    pub(crate) fn unit_blocks(&self) -> u32 {
        self.program_blocks * self.unit_programs
    }

    /// Erase units of a die: the last dies have one less, if they do not divide evenly.
    pub(crate) fn units_of_die(&self, die: u32, dies: u32) -> u32 {
        self.units_per_die - u32::from(die >= dies - self.smaller_dies)
    }
}

/// Places of blocks that a profile's conventional zones need in the map.
pub(crate) fn physical_blocks(profile: &Profile) -> u64 {
    let shape = Shape::new(profile);
    u64::from(profile.dies()) * u64::from(shape.units_per_die) * u64::from(shape.unit_blocks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_provisioning_comes_beside_the_units_that_are_kept_free_or_open() {
        let mut profile = crate::profile::tests::tiny_conventional();
        // 24 MiB on 4 dies: 8 units of 768 KiB each.
        let mut units = |percent| {
            profile.conventional.over_provisioning_percent = percent;
            let shape = Shape::new(&profile);
            (0..4).map(|die| shape.units_of_die(die, 4)).collect::<Vec<_>>()
        };
        assert_eq!(units(0), [11; 4]);
        assert_eq!(units(7), [12, 12, 12, 11], "2.24 units, rounded up once");
        assert_eq!(units(25), [13; 4]);
        assert_eq!(units(100), [19; 4]);
    }
}
