//! I/O Command Set Independent Identify Namespace (NVMe Base 2.0, section 5.17.2.8).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::page::Page;

/// Namespace data that is independent of the command set. Newer Linux reads it first.
///
/// ```text
/// 0 NSFEAT | 1 NMIC | 2 RESCAP | 3 FPI | 4 ANAGRPID | 8 NSATTR | 10 NVMSETID | 12 ENDGID | 14 NSTAT
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndependentNamespace {
    /// Common Namespace Features (NSFEAT).
    pub features: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC): bit 0 shared between
    /// controllers.
    pub sharing: u8,
    /// Reservation Capabilities (RESCAP).
    pub reservations: u8,
    /// Format Progress Indicator (FPI).
    pub format_progress: u8,
    /// ANA Group Identifier (ANAGRPID).
    pub ana_group: U32,
    /// Namespace Attributes (NSATTR): bit 0 write protected.
    pub attributes: u8,
    _reserved_9: u8,
    /// NVM Set Identifier (NVMSETID).
    pub nvm_set: U16,
    /// Endurance Group Identifier (ENDGID).
    pub endurance_group: U16,
    /// Namespace Status (NSTAT): bit 0 ready (NRDY).
    pub status: u8,
    _reserved_15: [u8; 4081],
}

const _: () = assert!(size_of::<IndependentNamespace>() == super::IDENTIFY_BYTES);

impl Page for IndependentNamespace {
    const NAME: &'static str = "I/O Command Set Independent Identify Namespace";
}

impl IndependentNamespace {
    /// A namespace shared between controllers.
    #[must_use]
    pub fn new(ready: bool, write_protected: bool) -> IndependentNamespace {
        let mut page = IndependentNamespace::empty();
        page.sharing = 1;
        page.reservations = super::RESERVATION_CAPABILITIES;
        page.attributes = u8::from(write_protected);
        page.status = u8::from(ready);
        page
    }

    /// Sets support of Persist Through Power Loss (RESCAP bit 0).
    pub fn set_reservations_can_persist(&mut self) {
        self.reservations |= super::RESERVATIONS_CAN_PERSIST;
    }

    /// Whether the namespace can serve commands (NSTAT bit 0). Linux ignores one that is not ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(IndependentNamespace {
            features: 0..=0,
            sharing: 1..=1,
            reservations: 2..=2,
            format_progress: 3..=3,
            ana_group: 4..=7,
            attributes: 8..=8,
            nvm_set: 10..=11,
            endurance_group: 12..=13,
            status: 14..=14,
        });
    }

    #[test]
    fn reservations_persist_through_power_loss_only_if_the_namespace_supports_it() {
        let mut page = IndependentNamespace::new(true, false);
        assert_eq!(page.bytes()[2], 0xfe);
        page.set_reservations_can_persist();
        assert_eq!(page.bytes()[2], 0xff);
    }

    #[test]
    fn readiness_and_write_protection_are_separate_bits() {
        for (ready, write_protected) in [(false, false), (true, false), (false, true), (true, true)] {
            let page = IndependentNamespace::parse(IndependentNamespace::new(ready, write_protected).bytes()).unwrap();
            assert_eq!((page.is_ready(), page.attributes == 1), (ready, write_protected));
        }
    }
}
