//! The data of a Reservation Report (NVMe Base 2.0, section 7.4).
//!
//! ```text
//!  0 generation (GEN) | 4 type (RTYPE), 0 none | 5 registered controllers (REGCTL) | 9 PTPL state (PTPLS)
//! 24 with host identifiers of 64 bits, 24 bytes each:    0 CNTLID | 2 status (RCSTS), bit 0 holder | 8 HOSTID | 16 RKEY
//! 64 with host identifiers of 128 bits, 64 bytes each:   0 CNTLID | 2 status (RCSTS), bit 0 holder | 8 RKEY | 16 HOSTID
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ReservationKey, ReservationType};
use crate::HostId;
use crate::page::{Page, PageError};

/// CNTLID of a registrant that has no controller at the moment.
pub const CONTROLLER_ID_NONE: u16 = 0xffff;

/// The registrants and the reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationStatus {
    /// GEN: how often registrations have changed.
    pub generation: u32,
    /// RTYPE, if there is a reservation.
    pub kind: Option<ReservationType>,
    /// PTPLS: registrations and the reservation persist through power loss.
    pub persists: bool,
    /// One for each controller of a registrant.
    pub controllers: Vec<RegisteredController>,
}

/// A controller whose host is a registrant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredController {
    /// CNTLID, or [`CONTROLLER_ID_NONE`].
    pub controller_id: u16,
    /// The host. The short form has its first eight bytes, and zeros in the others when it is read.
    pub host: HostId,
    /// Its key.
    pub key: ReservationKey,
    /// Whether it holds the reservation.
    pub is_holder: bool,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WireHeader {
    generation: U32,
    kind: u8,
    controllers: U16,
    _reserved_7: [u8; 2],
    persists: u8,
    _reserved_10: [u8; 14],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WireController {
    controller_id: U16,
    status: u8,
    _reserved_3: [u8; 5],
    host: [u8; 8],
    key: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WireExtendedController {
    controller_id: U16,
    status: u8,
    _reserved_3: [u8; 5],
    key: U64,
    host: [u8; 16],
    _reserved_32: [u8; 32],
}

impl Page for WireHeader {
    const NAME: &'static str = "Reservation Status";
}

impl Page for WireController {
    const NAME: &'static str = "Registered Controller";
}

impl Page for WireExtendedController {
    const NAME: &'static str = "Registered Controller Extended";
}

const HEADER_BYTES: usize = size_of::<WireHeader>();
const EXTENDED_HEADER_BYTES: usize = 64;
const _: () = assert!(HEADER_BYTES == 24);
const _: () = assert!(size_of::<WireController>() == 24);
const _: () = assert!(size_of::<WireExtendedController>() == 64);
/// RCSTS: the host holds the reservation.
const HOLDER: u8 = 1;

impl ReservationStatus {
    /// The structure as it travels; with `extended` host identifiers have 128 bits.
    ///
    /// # Panics
    /// For more than 65,535 controllers: a subsystem cannot have so many.
    #[must_use]
    pub fn to_bytes(&self, extended: bool) -> Vec<u8> {
        let count = u16::try_from(self.controllers.len()).expect("controller identifiers have 16 bits");
        let header = WireHeader {
            generation: self.generation.into(),
            kind: self.kind.map_or(0, ReservationType::code),
            controllers: count.into(),
            _reserved_7: [0; 2],
            persists: u8::from(self.persists),
            _reserved_10: [0; 14],
        };
        let mut bytes = header.bytes().to_vec();
        if extended {
            bytes.resize(EXTENDED_HEADER_BYTES, 0);
        }
        for controller in &self.controllers {
            let (controller_id, status) = (controller.controller_id.into(), u8::from(controller.is_holder) * HOLDER);
            let (key, host) = (controller.key.0.into(), controller.host.0);
            if extended {
                let wire = WireExtendedController {
                    controller_id,
                    status,
                    _reserved_3: [0; 5],
                    key,
                    host,
                    _reserved_32: [0; 32],
                };
                bytes.extend_from_slice(wire.bytes());
            } else {
                let host = host[..8].try_into().expect("the slice has eight bytes");
                let wire = WireController { controller_id, status, _reserved_3: [0; 5], host, key };
                bytes.extend_from_slice(wire.bytes());
            }
        }
        bytes
    }

    /// Reads the structure. A report that exceeds the host's buffer contains the controllers that
    /// fit.
    ///
    /// # Errors
    /// [`PageError`] for bytes that end before the header does, and for a type that is reserved.
    pub fn read(bytes: &[u8], extended: bool) -> Result<ReservationStatus, PageError> {
        const PAGE: &str = WireHeader::NAME;
        let short = |needed_bytes| PageError::Short { page: PAGE, needed_bytes, found_bytes: bytes.len() };
        let needed_bytes = if extended { EXTENDED_HEADER_BYTES } else { HEADER_BYTES };
        let rest = bytes.get(needed_bytes..).ok_or_else(|| short(needed_bytes))?;
        let header = WireHeader::parse(bytes)?;
        let kind = match header.kind {
            0 => None,
            code => Some(ReservationType::from_code(code).ok_or(PageError::Value {
                page: PAGE,
                field: "type (RTYPE)",
                value: code.into(),
                remedy: "must be 0 to 6",
            })?),
        };
        let count = usize::from(header.controllers.get());
        let controllers = if extended {
            rest.chunks_exact(size_of::<WireExtendedController>()).take(count).map(extended_controller).collect()
        } else {
            rest.chunks_exact(size_of::<WireController>()).take(count).map(short_controller).collect()
        };
        let generation = header.generation.get();
        Ok(ReservationStatus { generation, kind, persists: header.persists != 0, controllers })
    }
}

fn extended_controller(bytes: &[u8]) -> RegisteredController {
    let wire = WireExtendedController::read_from_bytes(bytes).expect("the chunk has the structure's size");
    RegisteredController {
        controller_id: wire.controller_id.get(),
        host: HostId(wire.host),
        key: ReservationKey(wire.key.get()),
        is_holder: wire.status & HOLDER != 0,
    }
}

fn short_controller(bytes: &[u8]) -> RegisteredController {
    let wire = WireController::read_from_bytes(bytes).expect("the chunk has the structure's size");
    let mut host = [0; 16];
    host[..8].copy_from_slice(&wire.host);
    RegisteredController {
        controller_id: wire.controller_id.get(),
        host: HostId(host),
        key: ReservationKey(wire.key.get()),
        is_holder: wire.status & HOLDER != 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::assert_layout;

    fn example() -> ReservationStatus {
        let host = HostId(std::array::from_fn(|i| i as u8 + 1));
        ReservationStatus {
            generation: 0x0102_0304,
            kind: Some(ReservationType::WriteExclusive),
            persists: true,
            controllers: vec![
                RegisteredController { controller_id: 7, host, key: ReservationKey(0xabcd), is_holder: true },
                RegisteredController {
                    controller_id: CONTROLLER_ID_NONE,
                    host: HostId([9; 16]),
                    key: ReservationKey(1),
                    is_holder: false,
                },
            ],
        }
    }

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(WireHeader { generation: 0..=3, kind: 4..=4, controllers: 5..=6, persists: 9..=9 });
        assert_layout!(WireController { controller_id: 0..=1, status: 2..=2, host: 8..=15, key: 16..=23 });
        assert_layout!(WireExtendedController { controller_id: 0..=1, status: 2..=2, key: 8..=15, host: 16..=31 });
    }

    #[test]
    fn a_report_survives_its_bytes_and_the_short_form_has_64_bits_of_a_host_identifier() {
        let status = example();
        let bytes = status.to_bytes(true);
        assert_eq!(bytes.len(), 64 + 2 * 64);
        assert_eq!(ReservationStatus::read(&bytes, true), Ok(status.clone()));
        let bytes = status.to_bytes(false);
        assert_eq!(bytes.len(), 24 + 2 * 24);
        let short = ReservationStatus::read(&bytes, false).unwrap();
        assert_eq!(short.controllers[0].host.0[..8], status.controllers[0].host.0[..8]);
        assert_eq!(short.controllers[0].host.0[8..], [0; 8]);
    }

    #[test]
    fn a_truncated_report_has_the_controllers_that_fit() {
        let bytes = example().to_bytes(true);
        assert_eq!(ReservationStatus::read(&bytes[..130], true).unwrap().controllers.len(), 1);
        assert!(ReservationStatus::read(&bytes[..63], true).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), extended: bool) {
            let _ = ReservationStatus::read(&bytes, extended);
        }
    }
}
