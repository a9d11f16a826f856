//! [`Shape`]: the numbers of a pool that follow from its drive.

use zonda_zoned::{Blocks, Geometry};

use crate::format::PoolRecord;
use crate::limits::{
    BASE_STRIPE_BYTES, BLOCK_BYTES_MIN, HEADER_BLOCKS, JUMPS_MAX, LOG_ZONES, PHYSICAL_ZONES_MAX, RESERVE_DIVISOR,
    SLACK_DIVISOR, ZONES_MAX,
};

/// Active zones of the log: one for each copy, and one while a copy begins a zone.
const LOG_ACTIVE_ZONES: u32 = 3;
/// Active zones of a drive without a limit.
const ACTIVE_WITHOUT_LIMIT: u32 = 256;

/// Choices of whoever creates a pool; what is absent follows from the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// Physical zones of a v-zone, a power of two.
    pub zones_per_vzone: Option<u32>,
    /// Active zones that suffice for the drive's write bandwidth.
    pub essential_zones: Option<u32>,
    /// The widest stripe group, a power of two. 1 where each zone is on all dies.
    pub width_max: Option<u32>,
}

/// The numbers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Physical zones of a v-zone.
    pub zones_per_vzone: u32,
    /// Active zones that suffice for the drive's write bandwidth.
    pub essential_zones: u32,
    /// Active zones beyond.
    pub spare_zones: u32,
    /// The widest stripe group.
    pub width_max: u32,
    /// Blocks of a stripe at the minimum width.
    pub base_stripe_blocks: u64,
    /// Blocks of data in a physical zone.
    pub blocks_per_zone: u64,
    /// Blocks at its end for rows that a power loss tore.
    pub slack_blocks: u64,
    /// Physical zones that are not of the log.
    pub data_zones: u32,
    /// Of these, how many are not promised to namespaces.
    pub reserve_zones: u32,
}

impl Shape {
    /// The numbers for a drive.
    ///
    /// # Errors
    /// What the drive lacks for a pool.
    pub fn of_drive(drive: &Geometry, options: PoolOptions) -> Result<Shape, String> {
        if drive.conventional_zone_count > 0 {
            return Err("a pool needs a drive without conventional zones".to_owned());
        }
        if drive.block_size_bytes < BLOCK_BYTES_MIN || drive.zone_count > ZONES_MAX {
            return Err(format!(
                "a pool needs blocks of at least {BLOCK_BYTES_MIN} bytes and at most {ZONES_MAX} zones"
            ));
        }
        if drive.max_transfer_blocks.0 < HEADER_BLOCKS {
            return Err(format!("a pool needs a drive that transfers {HEADER_BLOCKS} blocks at once"));
        }
        let active = drive.max_active_zones.unwrap_or(ACTIVE_WITHOUT_LIMIT).min(drive.zone_count);
        let groups_active = active.saturating_sub(LOG_ACTIVE_ZONES);
        if groups_active == 0 || drive.zone_count <= LOG_ZONES {
            return Err(format!(
                "a pool needs at least {} active zones and {} zones: the drive has {active} and {}",
                LOG_ACTIVE_ZONES + 1,
                LOG_ZONES + 1,
                drive.zone_count
            ));
        }
        // Half of what the drive allows: the drive of the paper has 256, and 128 dies.
        let essential_zones = options.essential_zones.unwrap_or((groups_active.next_power_of_two() / 2).max(1));
        // Drives whose zones are on all dies allow few active zones, and there is nothing to stripe over.
        let width_max = options.width_max.unwrap_or_else(|| (active / PHYSICAL_ZONES_MAX).clamp(1, PHYSICAL_ZONES_MAX));
        let width_max = options.width_max.unwrap_or(1 << width_max.ilog2());
        let zones_per_vzone = options.zones_per_vzone.unwrap_or(width_max);
        for (what, value) in
            [("a v-zone's number of physical zones", zones_per_vzone), ("the widest stripe group", width_max)]
        {
            if !value.is_power_of_two() || value > PHYSICAL_ZONES_MAX {
                return Err(format!("{what} must be a power of two up to {PHYSICAL_ZONES_MAX}"));
            }
        }
        if width_max > zones_per_vzone {
            return Err("a stripe group cannot be wider than its v-zone".to_owned());
        }
        if !(1..=groups_active).contains(&essential_zones) {
            return Err(format!(
                "essential zones must be 1 to {groups_active}: the drive allows {active} active zones"
            ));
        }
        let mut base_stripe_blocks = (BASE_STRIPE_BYTES / u64::from(drive.block_size_bytes)).max(1);
        let capacity = drive.zone_capacity_blocks.0;
        let for_jumps = |stripe: u64| 2 * stripe * JUMPS_MAX as u64;
        while for_jumps(base_stripe_blocks) > capacity / 4 && base_stripe_blocks > 1 {
            base_stripe_blocks /= 2;
        }
        let slack_blocks = (capacity / SLACK_DIVISOR).max(for_jumps(base_stripe_blocks)).min(capacity / 3);
        let usable = capacity.saturating_sub(HEADER_BLOCKS + slack_blocks);
        let blocks_per_zone = usable / base_stripe_blocks * base_stripe_blocks;
        if blocks_per_zone == 0 {
            return Err(format!("zones of {capacity} blocks are too small for a pool"));
        }
        let data_zones = drive.zone_count - LOG_ZONES;
        let shape = Shape {
            zones_per_vzone,
            essential_zones,
            spare_zones: groups_active - essential_zones,
            width_max,
            base_stripe_blocks,
            blocks_per_zone,
            slack_blocks,
            data_zones,
            reserve_zones: (data_zones / RESERVE_DIVISOR).max(width_max).min(data_zones),
        };
        Ok(shape)
    }

    /// The numbers of a pool that exists.
    pub(crate) fn of_record(drive: &Geometry, record: &PoolRecord) -> Result<Shape, String> {
        let options = PoolOptions {
            zones_per_vzone: Some(record.zones_per_vzone.into()),
            essential_zones: Some(record.essential_zones),
            width_max: Some(record.width_max.into()),
        };
        let shape = Shape::of_drive(drive, options)?;
        let is_same = u64::from(record.slack_blocks) == shape.slack_blocks
            && u64::from(record.base_stripe_blocks) == shape.base_stripe_blocks;
        if is_same {
            Ok(shape)
        } else {
            Err("the drive has another geometry than when the pool was created".to_owned())
        }
    }

    pub(crate) fn record(&self, epoch: u64, next_reservation: u64) -> PoolRecord {
        PoolRecord {
            epoch,
            zones_per_vzone: self.zones_per_vzone as u8,
            slack_blocks: self.slack_blocks as u32,
            base_stripe_blocks: self.base_stripe_blocks as u32,
            essential_zones: self.essential_zones,
            width_max: self.width_max as u8,
            next_reservation,
        }
    }

    /// Active zones that groups and reservations may have.
    pub(crate) fn active_max(&self) -> u32 {
        self.essential_zones + self.spare_zones
    }

    /// Blocks of a stripe of a group of this width: the base at the minimum width, half for each
    /// doubling, down to one (eZNS, section 4.4.2).
    pub(crate) fn stripe_blocks(&self, width: u32, width_min: u32) -> u64 {
        (self.base_stripe_blocks / u64::from((width / width_min.min(width)).max(1))).max(1)
    }

    /// Rows that may be in flight in a group, so that a power loss costs few enough of its zones.
    pub(crate) fn rows_in_flight(&self, stripe_blocks: u64) -> u64 {
        (self.slack_blocks / JUMPS_MAX as u64 / stripe_blocks).saturating_sub(1).max(1)
    }

    /// Losses of power, kills and lacks of space that a group survives writable, one after the other: each may
    /// leave zones two stripes further on than others. Fewer than [`JUMPS_MAX`] where zones are too small.
    #[must_use]
    pub fn tears_max(&self) -> u32 {
        (self.slack_blocks / (2 * self.base_stripe_blocks)).min(JUMPS_MAX as u64) as u32
    }

    /// The most blocks that a v-zone can hold.
    #[must_use]
    pub fn vzone_capacity_blocks(&self) -> Blocks {
        Blocks(self.blocks_per_zone * u64::from(self.zones_per_vzone))
    }

    /// Physical zones of a v-zone of this capacity.
    pub(crate) fn zones_of(&self, capacity: Blocks) -> u32 {
        capacity.0.div_ceil(self.blocks_per_zone) as u32
    }

    /// Physical zones that namespaces can be promised.
    #[must_use]
    pub fn promised_max(&self) -> u32 {
        self.data_zones - self.reserve_zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(zone_count: u32, zone_mib: u64, active: u32) -> Geometry {
        let blocks = Blocks(zone_mib * 256);
        Geometry {
            block_size_bytes: 4096,
            zone_size_blocks: blocks,
            zone_capacity_blocks: blocks,
            zone_count,
            max_active_zones: Some(active),
            max_open_zones: Some(active),
            ..Geometry::tiny()
        }
    }

    #[test]
    fn the_drive_of_the_paper_has_128_essentials_and_groups_of_up_to_16_zones() {
        let shape = Shape::of_drive(&drive(40_704, 96, 256), PoolOptions::default()).unwrap();
        assert_eq!((shape.essential_zones, shape.spare_zones), (128, 125), "three are for the log");
        assert_eq!((shape.width_max, shape.zones_per_vzone, shape.base_stripe_blocks), (16, 16, 8));
        let widths = [2, 4, 8, 16].map(|width| shape.stripe_blocks(width, 2));
        assert_eq!(widths, [8, 4, 2, 1], "32 KiB at a width of 2, 4 KiB at 16");
        assert!(shape.vzone_capacity_blocks().0 > 16 * 24_576 * 98 / 100, "the slack is small");
    }

    #[test]
    fn a_drive_whose_zones_are_on_all_dies_is_not_striped() {
        let shape = Shape::of_drive(&drive(904, 1077, 14), PoolOptions::default()).unwrap();
        assert_eq!((shape.essential_zones, shape.spare_zones, shape.width_max, shape.zones_per_vzone), (8, 3, 1, 1));
    }

    #[test]
    fn a_group_survives_eight_tears_unless_a_third_of_its_zones_is_too_small_for_them() {
        let tears = |capacity| {
            let drive = Geometry { zone_capacity_blocks: Blocks(capacity), ..drive(64, 4, 14) };
            Shape::of_drive(&drive, PoolOptions::default()).unwrap().tears_max()
        };
        assert_eq!([16, 32, 47, 48, 1024].map(tears), [2, 5, 7, 8, 8]);
    }

    #[test]
    fn every_number_of_active_zones_from_four_on_makes_a_pool() {
        for active in [4, 5, 14, 32, 256, 4096] {
            let shape = Shape::of_drive(&drive(5000, 4, active), PoolOptions::default()).unwrap();
            assert_eq!(shape.active_max(), active - 3, "{active}");
        }
        let refused = Shape::of_drive(&drive(5000, 4, 3), PoolOptions::default()).unwrap_err();
        assert_eq!(refused, "a pool needs at least 4 active zones and 7 zones: the drive has 3 and 5000");
    }
}
