//! Conversion between the geometry of a profile, in bytes, and that of a drive, in blocks.

use zonda_config::ByteSize;
use zonda_zoned::{Blocks, Geometry, ZrwaGeometry};

use super::{GeometrySpec, Profile, ZrwaSpec};

impl Profile {
    /// The namespace's geometry.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let spec = &self.geometry;
        let blocks = |size: ByteSize| Blocks(size.0 / spec.block_size.0.max(1));
        Geometry {
            block_size_bytes: spec.block_size.0 as u32,
            metadata_bytes: spec.metadata_bytes,
            zone_size_blocks: blocks(spec.zone_size),
            zone_capacity_blocks: blocks(spec.zone_capacity),
            zone_count: spec.zones,
            conventional_zone_count: spec.conventional_zones,
            max_active_zones: spec.max_active_zones,
            max_open_zones: spec.max_open_zones,
            max_transfer_blocks: blocks(spec.max_transfer),
            max_append_blocks: blocks(spec.max_append),
            zrwa: spec.zrwa.as_ref().map(|zrwa| ZrwaGeometry {
                size_blocks: blocks(zrwa.size),
                flush_granularity_blocks: blocks(zrwa.flush_granularity),
                resources: zrwa.resources,
                explicit_flush: zrwa.explicit_flush,
            }),
            read_across_zones: spec.read_across_zones,
            descriptor_extension_bytes: spec.descriptor_extension_bytes,
        }
    }
}

impl From<&Geometry> for GeometrySpec {
    fn from(geometry: &Geometry) -> GeometrySpec {
        let bytes = |blocks: Blocks| ByteSize(blocks.bytes(geometry.block_size_bytes));
        GeometrySpec {
            block_size: bytes(Blocks(1)),
            metadata_bytes: geometry.metadata_bytes,
            zone_size: bytes(geometry.zone_size_blocks),
            zone_capacity: bytes(geometry.zone_capacity_blocks),
            zones: geometry.zone_count,
            conventional_zones: geometry.conventional_zone_count,
            max_active_zones: geometry.max_active_zones,
            max_open_zones: geometry.max_open_zones,
            max_transfer: bytes(geometry.max_transfer_blocks),
            max_append: bytes(geometry.max_append_blocks),
            read_across_zones: geometry.read_across_zones,
            descriptor_extension_bytes: geometry.descriptor_extension_bytes,
            zrwa: geometry.zrwa.map(|zrwa| ZrwaSpec {
                size: bytes(zrwa.size_blocks),
                flush_granularity: bytes(zrwa.flush_granularity_blocks),
                resources: zrwa.resources,
                explicit_flush: zrwa.explicit_flush,
            }),
        }
    }
}
