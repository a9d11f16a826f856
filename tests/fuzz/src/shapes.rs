//! Namespaces that inputs choose from: small, and of every kind.

use zonda_zoned::{Blocks, Geometry, ZrwaGeometry};

/// Eight zones of 64 blocks of 512 bytes, 48 of them writable; the smallest whose limits NVMe can
/// express.
pub(crate) fn zoned() -> Geometry {
    Geometry {
        metadata_bytes: 0,
        zone_size_blocks: Blocks(64),
        zone_capacity_blocks: Blocks(48),
        max_transfer_blocks: Blocks(32),
        max_append_blocks: Blocks(16),
        ..Geometry::tiny()
    }
}

/// The same with metadata, ZRWAs and a hard read boundary.
pub(crate) fn with_areas() -> Geometry {
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(16),
        flush_granularity_blocks: Blocks(4),
        resources: 2,
        explicit_flush: true,
    };
    Geometry { metadata_bytes: 8, zrwa: Some(zrwa), read_across_zones: false, ..zoned() }
}

/// The same as a conventional namespace.
pub(crate) fn conventional() -> Geometry {
    Geometry { conventional_zone_count: 8, zone_capacity_blocks: Blocks(64), ..zoned() }
}

/// Blocks of 4 KiB, no limits, no extensions.
pub(crate) fn large_blocks() -> Geometry {
    Geometry {
        block_size_bytes: 4096,
        max_active_zones: None,
        max_open_zones: None,
        descriptor_extension_bytes: 0,
        ..zoned()
    }
}

/// All namespaces.
pub(crate) fn all() -> [Geometry; 4] {
    [zoned(), with_areas(), conventional(), large_blocks()]
}
