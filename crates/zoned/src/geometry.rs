//! The shape of a namespace, and its limits.

use std::fmt;

use crate::limits::{COMMAND_BLOCKS_MAX, DESCRIPTOR_EXTENSION_UNIT_BYTES, METADATA_BYTES_MAX};
use crate::{Blocks, Lba, ZoneIndex, ZoneType};

/// The properties of a zoned namespace in Identify data structures (Zoned Namespace Command Set
/// 1.1, section 4.1.5), in blocks and counts.
///
/// A namespace of conventional zones only (`conventional_zone_count == zone_count`) is a
/// conventional drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a logical block: a power of two from 512 to 65,536.
    pub block_size_bytes: u32,
    /// Bytes of metadata with each block, 0 to 64.
    pub metadata_bytes: u16,
    /// Blocks from one zone's start to the next (ZSZE).
    pub zone_size_blocks: Blocks,
    /// Writable blocks of a zone (ZCAP), at most its size.
    pub zone_capacity_blocks: Blocks,
    /// Zones in the namespace, conventional ones included.
    pub zone_count: u32,
    /// Conventional zones at the start of the namespace.
    pub conventional_zone_count: u32,
    /// Maximum Active Resources (MAR); `None` is no limit.
    pub max_active_zones: Option<u32>,
    /// Maximum Open Resources (MOR), at most the active ones; `None` is no limit.
    pub max_open_zones: Option<u32>,
    /// Blocks of one read or write (MDTS).
    pub max_transfer_blocks: Blocks,
    /// Blocks of one append (ZASL), at most `max_transfer_blocks`.
    pub max_append_blocks: Blocks,
    /// Zone Random Write Areas, if supported.
    pub zrwa: Option<ZrwaGeometry>,
    /// Whether a read may cross zone boundaries (OZCS bit 0).
    pub read_across_zones: bool,
    /// Bytes of each zone's descriptor extension, a multiple of 64; 0 is none.
    pub descriptor_extension_bytes: u32,
}

/// Zone Random Write Areas (Zoned Namespace Command Set 1.1, section 5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZrwaGeometry {
    /// Blocks of one area (ZRWASZ), a multiple of the flush granularity.
    pub size_blocks: Blocks,
    /// Blocks in which an area is committed (ZRWAFG); divides the zone capacity.
    pub flush_granularity_blocks: Blocks,
    /// Maximum number of zones with an area at a time (NUMZRWA).
    pub resources: u32,
    /// Whether the host may commit with [`crate::ZoneAction::FlushZrwa`] (ZRWACAP bit 0).
    pub explicit_flush: bool,
}

/// An invalid geometry, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeometryError {
    /// The invalid field, by its name in [`Geometry`].
    pub field: &'static str,
    /// What it must be.
    pub remedy: String,
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.remedy)
    }
}

impl std::error::Error for GeometryError {}

impl Geometry {
    /// Eight zones of sixteen blocks, twelve of them writable, three active and two open: small, so
    /// that tests reach every boundary.
    #[must_use]
    pub fn tiny() -> Geometry {
        Geometry {
            block_size_bytes: 512,
            metadata_bytes: 8,
            zone_size_blocks: Blocks(16),
            zone_capacity_blocks: Blocks(12),
            zone_count: 8,
            conventional_zone_count: 0,
            max_active_zones: Some(3),
            max_open_zones: Some(2),
            max_transfer_blocks: Blocks(8),
            max_append_blocks: Blocks(4),
            zrwa: None,
            read_across_zones: true,
            descriptor_extension_bytes: 64,
        }
    }

    /// Checks that the geometry is valid.
    ///
    /// # Errors
    /// The first field that contradicts the specification or another field, and what it must be.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let require = |holds: bool, field: &'static str, remedy: &str| {
            if holds { Ok(()) } else { Err(GeometryError { field, remedy: remedy.to_owned() }) }
        };
        require(
            self.block_size_bytes.is_power_of_two() && (512..=65_536).contains(&self.block_size_bytes),
            "block_size_bytes",
            "must be a power of two from 512 to 65536",
        )?;
        require(self.metadata_bytes <= METADATA_BYTES_MAX, "metadata_bytes", "must be at most 64")?;
        require(self.zone_count > 0, "zone_count", "must be at least 1")?;
        require(self.zone_capacity_blocks.0 > 0, "zone_capacity_blocks", "must be at least 1")?;
        require(
            self.zone_capacity_blocks <= self.zone_size_blocks,
            "zone_capacity_blocks",
            "must be at most zone_size_blocks",
        )?;
        let namespace_blocks = self.zone_size_blocks.0.checked_mul(u64::from(self.zone_count));
        require(
            namespace_blocks.and_then(|blocks| blocks.checked_mul(u64::from(self.block_size_bytes))).is_some(),
            "zone_size_blocks",
            "times zone_count is more than 2^64 bytes: reduce one of them",
        )?;
        require(
            self.conventional_zone_count <= self.zone_count,
            "conventional_zone_count",
            "must be at most zone_count",
        )?;
        require(
            self.conventional_zone_count == 0 || self.zone_capacity_blocks == self.zone_size_blocks,
            "conventional_zone_count",
            "must be 0 unless zone_capacity_blocks equals zone_size_blocks: a conventional zone has no gap at its end",
        )?;
        require(self.max_active_zones != Some(0), "max_active_zones", "must be at least 1, or absent for no limit")?;
        require(self.max_open_zones != Some(0), "max_open_zones", "must be at least 1, or absent for no limit")?;
        require(
            match (self.max_open_zones, self.max_active_zones) {
                (Some(open), Some(active)) => open <= active,
                (None, Some(_)) => false,
                _ => true,
            },
            "max_open_zones",
            "must be at most max_active_zones: an open zone is active",
        )?;
        require(
            (1..=COMMAND_BLOCKS_MAX).contains(&self.max_transfer_blocks.0),
            "max_transfer_blocks",
            "must be 1 to 65536",
        )?;
        require(
            (1..=self.max_transfer_blocks.0).contains(&self.max_append_blocks.0),
            "max_append_blocks",
            "must be 1 to max_transfer_blocks",
        )?;
        require(
            self.descriptor_extension_bytes.is_multiple_of(DESCRIPTOR_EXTENSION_UNIT_BYTES),
            "descriptor_extension_bytes",
            "must be a multiple of 64",
        )?;
        let Some(zrwa) = &self.zrwa else { return Ok(()) };
        require(zrwa.resources > 0, "zrwa.resources", "must be at least 1; remove the whole zrwa for none")?;
        require(
            zrwa.flush_granularity_blocks.0 > 0
                && self.zone_capacity_blocks.0.is_multiple_of(zrwa.flush_granularity_blocks.0),
            "zrwa.flush_granularity_blocks",
            "must divide zone_capacity_blocks",
        )?;
        require(
            zrwa.size_blocks.0 > 0
                && zrwa.size_blocks.0.is_multiple_of(zrwa.flush_granularity_blocks.0)
                && zrwa.size_blocks <= self.zone_capacity_blocks,
            "zrwa.size_blocks",
            "must be a multiple of zrwa.flush_granularity_blocks, and at most zone_capacity_blocks",
        )
    }

    /// Blocks in the namespace, including those beyond the zones' capacities (NSZE).
    #[must_use]
    pub fn namespace_blocks(&self) -> Blocks {
        Blocks(self.zone_size_blocks.0 * u64::from(self.zone_count))
    }

    /// The zone that holds a block, or `None` beyond the namespace.
    #[must_use]
    pub fn zone_of(&self, lba: Lba) -> Option<ZoneIndex> {
        let zone = lba.0 / self.zone_size_blocks.0;
        (zone < u64::from(self.zone_count)).then_some(ZoneIndex(zone as u32))
    }

    /// A zone's first block.
    #[must_use]
    pub fn zone_start(&self, zone: ZoneIndex) -> Lba {
        Lba(self.zone_size_blocks.0 * u64::from(zone.0))
    }

    /// The type of a zone.
    #[must_use]
    pub fn zone_type(&self, zone: ZoneIndex) -> ZoneType {
        if zone.0 < self.conventional_zone_count { ZoneType::Conventional } else { ZoneType::SequentialWriteRequired }
    }

    /// Capacity of one zone in bytes.
    #[must_use]
    pub fn zone_capacity_bytes(&self) -> u64 {
        self.zone_capacity_blocks.bytes(self.block_size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tiny_geometry_is_valid() {
        Geometry::tiny().validate().unwrap();
    }

    #[test]
    fn each_contradiction_is_reported_with_its_field() {
        type Spoil = fn(&mut Geometry);
        let spoil: [(&str, Spoil); 11] = [
            ("block_size_bytes", |g| g.block_size_bytes = 520),
            ("metadata_bytes", |g| g.metadata_bytes = 65),
            ("zone_count", |g| g.zone_count = 0),
            ("zone_capacity_blocks", |g| g.zone_capacity_blocks = Blocks(17)),
            ("zone_size_blocks", |g| g.zone_size_blocks = Blocks(1 << 60)),
            ("conventional_zone_count", |g| g.conventional_zone_count = 1),
            ("max_open_zones", |g| g.max_open_zones = Some(4)),
            ("max_open_zones", |g| g.max_open_zones = None),
            ("max_append_blocks", |g| g.max_append_blocks = Blocks(9)),
            ("descriptor_extension_bytes", |g| g.descriptor_extension_bytes = 65),
            ("zrwa.flush_granularity_blocks", |g| {
                let blocks = Blocks(5);
                g.zrwa = Some(ZrwaGeometry {
                    size_blocks: blocks,
                    flush_granularity_blocks: blocks,
                    resources: 1,
                    explicit_flush: true,
                });
            }),
        ];
        for (field, spoil) in spoil {
            let mut geometry = Geometry::tiny();
            spoil(&mut geometry);
            assert_eq!(geometry.validate().expect_err(field).field, field);
        }
    }
}
