//! Zones as a book of elements knows them, and what it remembers.

use zonda_zoned::zones::ZoneView;
use zonda_zoned::{Geometry, ZoneState};

use super::ElementTable;

/// What a zone holds, as far as its elements are concerned. The default is an empty zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneStanding {
    /// From the zone's start up to the end of what the host has written, in bytes; what waits in a ZRWA included.
    pub written_bytes: u64,
    /// What may come.
    pub fate: ZoneFate,
}

/// What may come of a zone before its next reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneFate {
    /// It can be written, or was written to its capacity.
    #[default]
    Writable,
    /// FINISH has made it full.
    Finished,
    /// It is read only; it may have been finished before.
    ReadOnly,
    /// It is offline, for good.
    Offline,
}

/// All that a book remembers, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRecord {
    /// Wear, state and owner of each element.
    pub table: ElementTable,
    /// Each zone that is not conventional, as it stood; none is read only, which changes nothing of its elements.
    pub zones: Vec<ZoneStanding>,
    /// What FINISH has padded since the drive was made, in bytes.
    pub padding_bytes: u64,
}

impl ZoneStanding {
    /// A zone of a table, which is not conventional.
    #[must_use]
    pub fn of(zone: &ZoneView, geometry: &Geometry) -> ZoneStanding {
        let written = zone.written_blocks.max(zone.write_pointer_blocks);
        let fate = match zone.state {
            ZoneState::Full if written < geometry.zone_capacity_blocks => ZoneFate::Finished,
            ZoneState::ReadOnly => ZoneFate::ReadOnly,
            ZoneState::Offline => ZoneFate::Offline,
            _ => ZoneFate::Writable,
        };
        ZoneStanding { written_bytes: written.bytes(geometry.block_size_bytes), fate }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written_bytes == 0 && self.fate == ZoneFate::Writable
    }

    pub(super) fn is_offline(&self) -> bool {
        self.fate == ZoneFate::Offline
    }
}
