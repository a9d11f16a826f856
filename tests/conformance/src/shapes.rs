//! The geometries that checks need.

use zonda_zoned::{Blocks, Geometry, ZrwaGeometry};

/// What a check needs besides plain sequential zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Limits on active and open zones, a gap after the capacity, descriptor extensions, reads
    /// across zones.
    Full,
    /// Metadata with each block, and all of the above.
    Metadata,
    /// No reads across zones, no descriptor extensions, no ZRWA, no limits.
    Bare,
    /// Three conventional zones before the sequential ones; no reads across zones.
    Conventional,
    /// Conventional zones only, at least two.
    ConventionalOnly,
    /// A single zone, which is conventional.
    OneConventionalZone,
    /// ZRWAs with explicit commits: two for three active zones.
    Zrwa,
    /// ZRWAs that the host cannot commit.
    ZrwaWithoutFlush,
}

impl Shape {
    /// Whether the checks of this shape can run on a namespace of this geometry, as real drives have
    /// them: without metadata and descriptor extensions, and with reads across zones.
    pub(crate) fn is_of(self, geometry: &Geometry) -> bool {
        let limits = (geometry.max_active_zones, geometry.max_open_zones);
        let has_gap = geometry.zone_capacity_blocks < geometry.zone_size_blocks;
        let is_sequential = geometry.conventional_zone_count == 0;
        let is_plain = geometry.zrwa.is_none() && geometry.zone_count >= 8;
        is_plain
            && match self {
                Shape::Full => is_sequential && has_gap && limits == (Some(3), Some(2)),
                Shape::Bare => is_sequential && limits == (None, None),
                Shape::Conventional => {
                    geometry.conventional_zone_count == 3 && matches!(limits, (Some(3), Some(2)) | (None, None))
                }
                _ => false,
            }
    }

    /// Whether such a namespace has no sequential zone.
    pub(crate) fn has_only_conventional_zones(self) -> bool {
        matches!(self, Shape::ConventionalOnly | Shape::OneConventionalZone)
    }
}

/// The geometries of a shape, starting with those that test the most.
pub(crate) fn of(shape: Shape) -> Vec<Geometry> {
    let tiny = Geometry::tiny();
    let large = Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(1024),
        zone_capacity_blocks: Blocks(768),
        zone_count: 16,
        max_transfer_blocks: Blocks(64),
        max_append_blocks: Blocks(32),
        ..tiny.clone()
    };
    let bases = [
        tiny.clone(),
        Geometry { metadata_bytes: 0, ..tiny.clone() },
        Geometry { block_size_bytes: 4096, ..tiny.clone() },
        Geometry { block_size_bytes: 4096, metadata_bytes: 0, ..tiny },
        large,
    ];
    let plain = bases.iter().map(|base| with(shape, base.clone()));
    let geometries = plain.chain(if shape.has_only_conventional_zones() { of_volumes(shape) } else { Vec::new() });
    geometries.filter(|geometry| shape != Shape::Metadata || geometry.metadata_bytes > 0).collect()
}

/// Namespaces as volumes have them: zones of 65,536 blocks, or a single smaller one; no metadata and
/// no limits but that of a transfer.
fn of_volumes(shape: Shape) -> Vec<Geometry> {
    const ZONE_BLOCKS: u64 = 65_536;
    let (zone_blocks, zone_count) = if shape == Shape::OneConventionalZone { (1000, 1) } else { (ZONE_BLOCKS, 2) };
    let of = |block_size_bytes| volume_geometry(block_size_bytes, zone_blocks, zone_count);
    vec![of(512), of(4096)]
}

/// The geometry of a volume.
pub(crate) fn volume_geometry(block_size_bytes: u32, zone_blocks: u64, zone_count: u32) -> Geometry {
    let geometry = Geometry {
        block_size_bytes,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(zone_blocks),
        zone_capacity_blocks: Blocks(zone_blocks),
        zone_count,
        conventional_zone_count: zone_count,
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks: Blocks(256),
        max_append_blocks: Blocks(256),
        zrwa: None,
        read_across_zones: true,
        descriptor_extension_bytes: 0,
    };
    assert_eq!(geometry.validate(), Ok(()), "the geometries of the checks are valid");
    geometry
}

fn with(shape: Shape, base: Geometry) -> Geometry {
    let capacity = base.zone_capacity_blocks;
    // A third of the capacity, committed in halves of that.
    let zrwa = |explicit_flush| ZrwaGeometry {
        size_blocks: Blocks(capacity.0 / 3),
        flush_granularity_blocks: Blocks(capacity.0 / 6),
        resources: 2,
        explicit_flush,
    };
    let geometry = match shape {
        Shape::Full | Shape::Metadata => base,
        Shape::Bare => Geometry {
            read_across_zones: false,
            descriptor_extension_bytes: 0,
            max_active_zones: None,
            max_open_zones: None,
            ..base
        },
        Shape::Conventional => Geometry {
            conventional_zone_count: 3,
            zone_capacity_blocks: base.zone_size_blocks,
            read_across_zones: false,
            ..base
        },
        Shape::ConventionalOnly | Shape::OneConventionalZone => {
            let zone_count = if shape == Shape::OneConventionalZone { 1 } else { base.zone_count };
            Geometry {
                zone_count,
                conventional_zone_count: zone_count,
                zone_capacity_blocks: base.zone_size_blocks,
                max_active_zones: None,
                max_open_zones: None,
                descriptor_extension_bytes: 0,
                ..base
            }
        }
        Shape::Zrwa => Geometry { zrwa: Some(zrwa(true)), ..base },
        Shape::ZrwaWithoutFlush => Geometry { zrwa: Some(zrwa(false)), ..base },
    };
    assert_eq!(geometry.validate(), Ok(()), "the geometries of the checks are valid");
    geometry
}
