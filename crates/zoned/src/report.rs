//! The data of Zone Management Receive and of the Changed Zone List log page.

use crate::{Blocks, Lba, ZoneIndex, ZoneState, ZoneType};

/// Zone Receive Action Specific Field: which zones a report lists (Zoned Namespace Command Set 1.1,
/// Figure 33).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFilter {
    /// 00h: all zones.
    #[default]
    All,
    /// 01h to 07h: zones in one state. [`ZoneState::NotWritePointer`] matches nothing.
    State(ZoneState),
}

/// One Zone Descriptor (Figure 37), with its extension in an extended report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// Zone Type.
    pub zone_type: ZoneType,
    /// Zone State.
    pub state: ZoneState,
    /// Zone Attributes.
    pub attributes: ZoneAttributes,
    /// Zone Capacity: writable blocks.
    pub capacity_blocks: Blocks,
    /// Zone Start Logical Block Address.
    pub start: Lba,
    /// Write Pointer; `None` if the state has no valid one (full, read only, offline,
    /// conventional). On the wire all ones.
    pub write_pointer: Option<Lba>,
    /// Zone Descriptor Extension; zeros if none was set. `None` in a report that is not extended.
    pub extension: Option<Box<[u8]>>,
}

/// Zone Attributes (Figure 37, byte 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneAttributes {
    /// ZFC: the controller made the zone full, and not its host.
    pub finished_by_controller: bool,
    /// ZRWAV: the zone has a Zone Random Write Area.
    pub zrwa_valid: bool,
    /// ZDEV: a descriptor extension was set.
    pub extension_valid: bool,
}

/// Report Zones and Extended Report Zones (Figures 36 and 38).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneReport {
    /// Number of Zones: with the Partial Report bit those in `zones`; without, all matching zones
    /// from the start.
    pub matching_zones: u64,
    /// The descriptors, in the order of their zones.
    pub zones: Vec<ZoneDescriptor>,
}

/// Changed Zone List log page (BFh): zones that became read only, offline or full by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedZoneList {
    /// More zones changed than the page can hold; `zones` is then empty, and the host reports all
    /// zones.
    pub overflowed: bool,
    /// The zones, in the order of their indices.
    pub zones: Vec<ZoneIndex>,
}

impl ZoneAttributes {
    /// The attribute byte: ZFC is bit 0, ZRWAV is bit 3, ZDEV is bit 7.
    #[must_use]
    pub fn code(self) -> u8 {
        u8::from(self.finished_by_controller) | u8::from(self.zrwa_valid) << 3 | u8::from(self.extension_valid) << 7
    }
}
