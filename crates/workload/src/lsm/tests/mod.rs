//! Whole runs: on a stand-in for the file store, and on drives.

mod amplification;
mod big;
mod on_device;
mod random;
mod stand_in;
mod workloads;

use zonda_config::unplaced;
use zonda_zoned::{Blocks, Geometry};

use super::plan::TreeOptions;
use super::{StorePlan, StoreSpec, StoreWorkload};

/// A drive with zones of 4 MiB.
pub(super) fn geometry() -> Geometry {
    Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(1024),
        zone_capacity_blocks: Blocks(1024),
        zone_count: 256,
        max_active_zones: Some(14),
        max_open_zones: Some(14),
        max_transfer_blocks: Blocks(64),
        max_append_blocks: Blocks(64),
        ..Geometry::tiny()
    }
}

pub(super) fn plan(spec: StoreSpec) -> StorePlan {
    StorePlan::new(&unplaced(spec), &geometry()).expect("the drive is large enough for the store")
}

pub(super) fn tree_options() -> TreeOptions {
    plan(StoreSpec::new(StoreWorkload::Fillrandom)).tree
}
