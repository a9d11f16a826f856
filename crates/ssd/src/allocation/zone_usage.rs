//! Zone usage as an element tracker records it.

use zonda_zoned::zones::ZoneView;
use zonda_zoned::{Geometry, ZoneState};

use super::ElementTable;

/// What a zone holds, as far as its elements are concerned. The default is an empty zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneUsage {
    /// From the zone's start up to the end of what the host has written, in bytes; what waits in a
    /// ZRWA included.
    pub written_bytes: u64,
    /// What may happen to it before its next reset.
    pub disposition: ZoneDisposition,
}

/// What may happen to a zone before its next reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneDisposition {
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

/// The persistent state of an element tracker, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRecord {
    /// Wear, state and owner of each element.
    pub table: ElementTable,
    /// Each zone that is not conventional, at the time of the record; none is read only, which
    /// changes nothing of its elements.
    pub zones: Vec<ZoneUsage>,
    /// What FINISH has padded since the drive was made, in bytes.
    pub padding_bytes: u64,
}

impl ZoneUsage {
    /// A zone of a table, which is not conventional.
    #[must_use]
    pub fn of(zone: &ZoneView, geometry: &Geometry) -> ZoneUsage {
        let written = zone.written_blocks.max(zone.write_pointer_blocks);
        let disposition = match zone.state {
            ZoneState::Full if written < geometry.zone_capacity_blocks => ZoneDisposition::Finished,
            ZoneState::ReadOnly => ZoneDisposition::ReadOnly,
            ZoneState::Offline => ZoneDisposition::Offline,
            _ => ZoneDisposition::Writable,
        };
        ZoneUsage { written_bytes: written.bytes(geometry.block_size_bytes), disposition }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written_bytes == 0 && self.disposition == ZoneDisposition::Writable
    }

    pub(super) fn is_offline(&self) -> bool {
        self.disposition == ZoneDisposition::Offline
    }
}
