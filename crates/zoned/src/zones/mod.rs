//! The rules of zones, implemented efficiently: the zone table of every device.
//!
//! The table decides whether a command is valid and which blocks it writes. It stores no contents
//! and has no notion of time. Its rules, with the order of their checks, are in
//! `docs/internals/zone-semantics.md`. A refused command changes nothing.
//!
//! What is absent: the check of the namespace, and the payloads themselves. The caller passes
//! whether a payload fits, because that check has its place in the order of checks.
//!
//! `write`, `append` and `check_read` take constant time and allocate no memory. A zone takes 32
//! bytes; data of only a few zones (descriptor extensions, the Changed Zone List) are stored
//! separately.

mod invariants;
mod manage;
mod power;
mod read;
mod report;
mod resources;
mod write;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::{Blocks, Geometry, Lba, ZoneAttributes, ZoneIndex, ZoneState, ZoneType};

use resources::{Links, OpeningOrder};

/// States, write pointers and resources of all zones of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneTable {
    geometry: Geometry,
    /// Set when the zone size is a power of two, so that no division is needed to find a block's
    /// zone.
    zone_size_shift: Option<u32>,
    namespace_blocks: u64,
    max_active: u32,
    max_open: u32,
    zrwa_resources: u32,
    active: u32,
    open: u32,
    zrwa_in_use: u32,
    /// Zones read only or offline: while there are none, reads and deallocations need not look at
    /// the zones that they touch.
    degraded: u32,
    zones: Box<[Zone]>,
    implicitly_opened: OpeningOrder,
    extensions: BTreeMap<ZoneIndex, Box<[u8]>>,
    changed: BTreeSet<ZoneIndex>,
}

/// One zone. Offsets are in blocks from the zone's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zone {
    write_pointer: u64,
    written: u64,
    /// Its neighbours in the order of implicitly opened zones.
    links: Links,
    state: ZoneState,
    has_zrwa: bool,
    /// It has, or has had since it was last empty, a ZRWA.
    had_zrwa: bool,
    has_extension: bool,
    finished_by_host: bool,
    finished_by_controller: bool,
}

const _: () = assert!(size_of::<Zone>() <= 32, "a zone takes at most 32 bytes");

/// The blocks that a write or an append may write, and its effects on the zones. The table is
/// already updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteGrant {
    /// The zone written, or the first of them where a write reaches over several conventional
    /// zones.
    pub zone: ZoneIndex,
    /// The first block written; for an append, the block that the table chose.
    pub start: Lba,
    /// `start` within its zone.
    pub offset_blocks: Blocks,
    /// The zone that the controller closed to free an open resource.
    pub closed: Option<ZoneIndex>,
    /// This write opened the zone.
    pub opened: bool,
    /// The zone is now full.
    pub filled: bool,
    /// The blocks may replace earlier ones: the zone is conventional or has a ZRWA.
    pub overwrites: bool,
}

/// A change by a management action. A zone that was already in the requested state has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneEffect {
    /// The zone was opened: by Open (also if it was implicitly opened before), or implicitly by
    /// FlushZrwa.
    Opened {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The zone was closed, by the host or by the controller to free an open resource.
    Closed {
        /// The zone.
        zone: ZoneIndex,
    },
    /// Finish made the zone full.
    Finished {
        /// The zone.
        zone: ZoneIndex,
        /// High-water mark of the host's writes.
        written_blocks: Blocks,
    },
    /// The zone is empty now, and was not.
    Reset {
        /// The zone.
        zone: ZoneIndex,
        /// High-water mark of the host's writes before the reset.
        written_blocks: Blocks,
        /// The state before was full.
        was_full: bool,
        /// It was full through Finish rather than by being written.
        finished_by_host: bool,
    },
    /// The zone went from read only to offline.
    Offlined {
        /// The zone.
        zone: ZoneIndex,
    },
    /// The zone has a descriptor extension now and is closed, with a ZRWA if requested.
    ExtensionSet {
        /// The zone.
        zone: ZoneIndex,
    },
    /// FlushZrwa moved the write pointer. At the capacity this made the zone full, which is not a
    /// separate effect.
    Committed {
        /// The zone.
        zone: ZoneIndex,
    },
}

impl ZoneEffect {
    /// The zone that changed.
    #[must_use]
    pub fn zone(&self) -> ZoneIndex {
        match self {
            ZoneEffect::Opened { zone }
            | ZoneEffect::Closed { zone }
            | ZoneEffect::Finished { zone, .. }
            | ZoneEffect::Reset { zone, .. }
            | ZoneEffect::Offlined { zone }
            | ZoneEffect::ExtensionSet { zone }
            | ZoneEffect::Committed { zone } => *zone,
        }
    }
}

/// The current state of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneView {
    /// Conventional or sequential.
    pub zone_type: ZoneType,
    /// The state.
    pub state: ZoneState,
    /// Offset of the write pointer. For a full, read only or offline zone, where it stood before; 0
    /// for a conventional zone.
    pub write_pointer_blocks: Blocks,
    /// High-water mark of host writes, ZRWA included, as an offset; kept through every state until
    /// the zone is empty.
    pub written_blocks: Blocks,
    /// Whether it has a ZRWA and a descriptor extension.
    pub attributes: ZoneAttributes,
}

/// A snapshot of one zone, including its descriptor extension. See [`ZoneTable::restore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneSnapshot {
    zone: Zone,
    extension: Option<Box<[u8]>>,
}

impl ZoneTable {
    /// A table of empty zones, and of conventional ones at the start if the geometry has them.
    ///
    /// # Panics
    /// When the geometry is not valid ([`Geometry::validate`]).
    #[must_use]
    pub fn new(geometry: Geometry) -> ZoneTable {
        if let Err(error) = geometry.validate() {
            panic!("a zone table needs a valid geometry: {error}");
        }
        let zone_size = geometry.zone_size_blocks.0;
        let zones = (0..geometry.zone_count)
            .map(|index| Zone::new(geometry.zone_type(ZoneIndex(index))))
            .collect::<Vec<Zone>>()
            .into_boxed_slice();
        ZoneTable {
            zone_size_shift: zone_size.is_power_of_two().then(|| zone_size.trailing_zeros()),
            namespace_blocks: geometry.namespace_blocks().0,
            max_active: geometry.max_active_zones.unwrap_or(u32::MAX),
            max_open: geometry.max_open_zones.unwrap_or(u32::MAX),
            zrwa_resources: geometry.zrwa.map_or(0, |zrwa| zrwa.resources),
            active: 0,
            open: 0,
            zrwa_in_use: 0,
            degraded: 0,
            zones,
            implicitly_opened: OpeningOrder::EMPTY,
            extensions: BTreeMap::new(),
            changed: BTreeSet::new(),
            geometry,
        }
    }

    /// The geometry of the namespace.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The current state of one zone.
    ///
    /// # Panics
    /// If the zone does not exist.
    #[must_use]
    pub fn zone(&self, zone: ZoneIndex) -> ZoneView {
        let entry = self.entry(zone);
        ZoneView {
            zone_type: self.geometry.zone_type(zone),
            state: entry.state,
            write_pointer_blocks: Blocks(entry.write_pointer),
            written_blocks: Blocks(entry.written),
            attributes: entry.attributes(),
        }
    }

    /// The offset in a zone from which on every block reads as zeros: the high-water mark of its
    /// writes, and 0 when it is offline.
    ///
    /// # Panics
    /// If the zone does not exist.
    #[must_use]
    pub fn readable_blocks(&self, zone: ZoneIndex) -> Blocks {
        let entry = self.entry(zone);
        Blocks(if entry.state == ZoneState::Offline { 0 } else { entry.written })
    }

    /// Zones that hold an active resource.
    #[must_use]
    pub fn active_zones(&self) -> u32 {
        self.active
    }

    /// Zones that hold an open resource.
    #[must_use]
    pub fn open_zones(&self) -> u32 {
        self.open
    }

    /// Zones that have a ZRWA.
    #[must_use]
    pub fn zrwa_in_use(&self) -> u32 {
        self.zrwa_in_use
    }

    /// The zone that holds a block of the namespace, and the block's offset in it.
    #[inline]
    fn locate(&self, lba: u64) -> (ZoneIndex, u64) {
        assert!(lba < self.namespace_blocks, "the caller has checked the range");
        match self.zone_size_shift {
            Some(shift) => (ZoneIndex((lba >> shift) as u32), lba & ((1 << shift) - 1)),
            None => {
                let size = self.geometry.zone_size_blocks.0;
                (ZoneIndex((lba / size) as u32), lba % size)
            }
        }
    }

    /// The end of a range of blocks, if the namespace holds all of it.
    #[inline]
    fn range_end(&self, start: Lba, blocks: Blocks) -> Option<u64> {
        start.0.checked_add(blocks.0).filter(|&end| end <= self.namespace_blocks)
    }

    #[inline]
    fn is_conventional(&self, zone: ZoneIndex) -> bool {
        zone.0 < self.geometry.conventional_zone_count
    }

    #[inline]
    fn entry(&self, zone: ZoneIndex) -> &Zone {
        &self.zones[zone.as_usize()]
    }

    #[inline]
    fn entry_mut(&mut self, zone: ZoneIndex) -> &mut Zone {
        &mut self.zones[zone.as_usize()]
    }
}

impl Zone {
    fn new(zone_type: ZoneType) -> Zone {
        Zone {
            write_pointer: 0,
            written: 0,
            links: Links::NONE,
            state: match zone_type {
                ZoneType::Conventional => ZoneState::NotWritePointer,
                ZoneType::SequentialWriteRequired => ZoneState::Empty,
            },
            has_zrwa: false,
            had_zrwa: false,
            has_extension: false,
            finished_by_host: false,
            finished_by_controller: false,
        }
    }

    fn attributes(&self) -> ZoneAttributes {
        ZoneAttributes {
            finished_by_controller: self.finished_by_controller && self.state == ZoneState::Full,
            zrwa_valid: self.has_zrwa,
            extension_valid: self.has_extension,
        }
    }
}
