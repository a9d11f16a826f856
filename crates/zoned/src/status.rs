//! Outcomes of commands, with their NVMe codes.

use std::fmt;

/// The status of a completed command. The number is status code type and status code, `0xTCC`, as
/// in the completion queue entry (NVMe Base Specification 2.0, Figures 94 to 98; Zoned Namespace
/// Command Set 1.1, Figure 24 and 3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Status {
    /// 0/00h: successful completion.
    Success = 0x000,
    /// 0/02h: a field of the command has a value that this command does not allow.
    InvalidField = 0x002,
    /// 0/04h: the payload could not be transferred, or does not match the command.
    DataTransferError = 0x004,
    /// 0/05h: power was lost before the command ended.
    AbortedPowerLoss = 0x005,
    /// 0/06h: an internal error of the device.
    InternalError = 0x006,
    /// 0/07h: the submitter requested to abort the command.
    AbortRequested = 0x007,
    /// 0/0Bh: the namespace does not exist.
    InvalidNamespace = 0x00b,
    /// 0/20h: the namespace is write protected, as one that is served read-only.
    NamespaceWriteProtected = 0x020,
    /// 0/80h: a block beyond the end of the namespace.
    LbaOutOfRange = 0x080,
    /// 0/81h: no space left for the write, below the namespace's size: Linux reports ENOSPC.
    CapacityExceeded = 0x081,
    /// 0/82h: the namespace can't serve the command now; try again.
    NamespaceNotReady = 0x082,
    /// 0/83h: another host has reserved the namespace.
    ReservationConflict = 0x083,
    /// 1/B6h: the zone operation is not valid here (ZRWA requested for a zone that is not empty,
    /// append to a ZRWA zone, ...).
    InvalidZoneOperation = 0x1b6,
    /// 1/B7h: all Zone Random Write Areas are in use.
    ZrwaResourcesUnavailable = 0x1b7,
    /// 1/B8h: the blocks cross a zone's end, or its capacity.
    ZoneBoundaryError = 0x1b8,
    /// 1/B9h: the zone is full.
    ZoneIsFull = 0x1b9,
    /// 1/BAh: the zone is read only.
    ZoneIsReadOnly = 0x1ba,
    /// 1/BBh: the zone is offline.
    ZoneIsOffline = 0x1bb,
    /// 1/BCh: a write that does not start at the write pointer.
    ZoneInvalidWrite = 0x1bc,
    /// 1/BDh: all active resources are in use.
    TooManyActiveZones = 0x1bd,
    /// 1/BEh: all open resources are in use, by zones that the host opened.
    TooManyOpenZones = 0x1be,
    /// 1/BFh: the requested transition is not valid from the zone's state.
    InvalidZoneStateTransition = 0x1bf,
    /// 2/80h: the medium refused the write.
    WriteFault = 0x280,
    /// 2/81h: the data cannot be read from the medium.
    UnrecoveredReadError = 0x281,
}

impl Status {
    /// Every status except success, in the order of the codes.
    pub const ERRORS: [Status; 23] = [
        Status::InvalidField,
        Status::DataTransferError,
        Status::AbortedPowerLoss,
        Status::InternalError,
        Status::AbortRequested,
        Status::InvalidNamespace,
        Status::NamespaceWriteProtected,
        Status::LbaOutOfRange,
        Status::CapacityExceeded,
        Status::NamespaceNotReady,
        Status::ReservationConflict,
        Status::InvalidZoneOperation,
        Status::ZrwaResourcesUnavailable,
        Status::ZoneBoundaryError,
        Status::ZoneIsFull,
        Status::ZoneIsReadOnly,
        Status::ZoneIsOffline,
        Status::ZoneInvalidWrite,
        Status::TooManyActiveZones,
        Status::TooManyOpenZones,
        Status::InvalidZoneStateTransition,
        Status::WriteFault,
        Status::UnrecoveredReadError,
    ];

    /// Whether the command was successful.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Status::Success
    }

    /// Status Code Type: 0 generic, 1 command specific, 2 media and data integrity.
    #[must_use]
    pub fn code_type(self) -> u8 {
        (self as u16 >> 8) as u8
    }

    /// Status Code within its type.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u16 as u8
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Status::Success => "success",
            Status::InvalidField => "invalid field in command",
            Status::DataTransferError => "data transfer error",
            Status::AbortedPowerLoss => "aborted by power loss",
            Status::InternalError => "internal error",
            Status::AbortRequested => "abort requested",
            Status::InvalidNamespace => "invalid namespace",
            Status::NamespaceWriteProtected => "namespace is write protected",
            Status::LbaOutOfRange => "LBA out of range",
            Status::CapacityExceeded => "capacity exceeded",
            Status::NamespaceNotReady => "namespace not ready",
            Status::ReservationConflict => "reservation conflict",
            Status::InvalidZoneOperation => "invalid zone operation",
            Status::ZrwaResourcesUnavailable => "ZRWA resources unavailable",
            Status::ZoneBoundaryError => "zone boundary error",
            Status::ZoneIsFull => "zone is full",
            Status::ZoneIsReadOnly => "zone is read only",
            Status::ZoneIsOffline => "zone is offline",
            Status::ZoneInvalidWrite => "zone invalid write",
            Status::TooManyActiveZones => "too many active zones",
            Status::TooManyOpenZones => "too many open zones",
            Status::InvalidZoneStateTransition => "invalid zone state transition",
            Status::WriteFault => "write fault",
            Status::UnrecoveredReadError => "unrecovered read error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_errors_have_the_codes_of_the_specification() {
        let codes: Vec<(u8, u8)> = [
            Status::ZoneBoundaryError,
            Status::ZoneIsFull,
            Status::ZoneIsReadOnly,
            Status::ZoneIsOffline,
            Status::ZoneInvalidWrite,
            Status::TooManyActiveZones,
            Status::TooManyOpenZones,
            Status::InvalidZoneStateTransition,
        ]
        .map(|status| (status.code_type(), status.code()))
        .into();
        assert_eq!(codes, (0xb8..=0xbf).map(|code| (1, code)).collect::<Vec<_>>());
    }
    #[test]
    fn every_error_has_the_code_of_the_specification() {
        let codes = Status::ERRORS.map(|status| (status.code_type(), status.code()));
        let generic = [0x02, 0x04, 0x05, 0x06, 0x07, 0x0b, 0x20, 0x80, 0x81, 0x82, 0x83].map(|code| (0, code));
        assert_eq!(codes[..11], generic);
        assert_eq!(codes[11..21].to_vec(), (0xb6..=0xbf).map(|code| (1, code)).collect::<Vec<_>>());
        assert_eq!(codes[21..], [(2, 0x80), (2, 0x81)]);
        assert_eq!((Status::Success.code_type(), Status::Success.code()), (0, 0));
    }
}
