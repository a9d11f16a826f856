//! The persistent state of a drive.

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Geometry, PayloadKind};

use crate::allocation::{ZoneAllocator, allocator_of};
use crate::bug::Seeded;
use crate::conventional::Conventional;
use crate::counters::Counters;
use crate::layout::Layout;
use crate::profile::Profile;
use crate::store::PayloadStore;
use crate::zone_map::ZoneMap;

/// Zone states and pointers, contents, places and wear: everything that persists without power.
#[derive(Debug)]
pub struct Media {
    pub(crate) zones: ZoneTable,
    pub(crate) zone_map: ZoneMap,
    pub(crate) allocator: Box<dyn ZoneAllocator>,
    pub(crate) conventional: Option<Conventional>,
    pub(crate) store: PayloadStore,
    pub(crate) counters: Counters,
    /// A seeded bug, which persists.
    pub(crate) bug: Seeded,
}

impl Media {
    /// Media of a new drive.
    #[must_use]
    pub fn new(profile: &Profile, keeps: PayloadKind) -> Media {
        let geometry: Geometry = profile.geometry();
        Media {
            zone_map: ZoneMap::new(Layout::new(profile), geometry.zone_count),
            allocator: allocator_of(profile),
            conventional: Conventional::new(profile),
            store: PayloadStore::new(keeps, geometry.block_size_bytes, geometry.metadata_bytes, geometry.zone_count),
            zones: ZoneTable::new(geometry),
            counters: Counters::default(),
            bug: Seeded::default(),
        }
    }
}
