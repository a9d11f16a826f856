//! Zone types and zone states (Zoned Namespace Command Set 1.1, sections 2.1.1.2 and 2.1.1.3).

use std::fmt;

/// The type of a zone, which determines its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneType {
    /// Conventional: written anywhere, in any order. Not in the NVMe specification; as in ZBC, with
    /// its code.
    Conventional = 0x1,
    /// Written at the write pointer only (Zone Type 2h).
    SequentialWriteRequired = 0x2,
}

/// The state of a zone, with the code it has in a Zone Descriptor (field ZS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneState {
    /// A conventional zone, which has no write pointer and no states. Not in NVMe; as in ZBC.
    NotWritePointer = 0x0,
    /// ZSE: nothing written, no resources held.
    Empty = 0x1,
    /// ZSIO: opened by a write; the controller may close it to free an open resource.
    ImplicitlyOpened = 0x2,
    /// ZSEO: opened by the host; the controller does not close it.
    ExplicitlyOpened = 0x3,
    /// ZSC: holds an active resource, but no open one.
    Closed = 0x4,
    /// ZSRO: can be read, and never written again.
    ReadOnly = 0xd,
    /// ZSF: written to its capacity, or finished.
    Full = 0xe,
    /// ZSO: neither read nor written again.
    Offline = 0xf,
}

impl ZoneState {
    /// The seven states of a sequential write required zone, in the order of their codes.
    pub const SEQUENTIAL: [ZoneState; 7] = [
        ZoneState::Empty,
        ZoneState::ImplicitlyOpened,
        ZoneState::ExplicitlyOpened,
        ZoneState::Closed,
        ZoneState::ReadOnly,
        ZoneState::Full,
        ZoneState::Offline,
    ];

    /// Whether the zone holds an open resource.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened)
    }

    /// Whether the zone holds an active resource.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneState::Closed
    }

    /// The code in a Zone Descriptor, as the upper or lower nibble that the specification gives it.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for ZoneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ZoneState::NotWritePointer => "conventional",
            ZoneState::Empty => "empty",
            ZoneState::ImplicitlyOpened => "implicitly opened",
            ZoneState::ExplicitlyOpened => "explicitly opened",
            ZoneState::Closed => "closed",
            ZoneState::ReadOnly => "read only",
            ZoneState::Full => "full",
            ZoneState::Offline => "offline",
        })
    }
}
