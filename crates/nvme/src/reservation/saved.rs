//! Registrations and a reservation in a format to be saved through power loss. NVMe leaves the
//! format to the controller.
//!
//! ```text
//! byte 0..8    magic "zondresv"                     16..20  generation (GEN)
//!      8..12   version, 1                           20      type (RTYPE); 0: no reservation       21..24  0
//!      12..16  CRC-32C of everything from 16 on     24..28  registrants
//!                                                   28..32  index of the holder among them; FFFFFFFFh: none, or all
//!                                                   32..    24 bytes for each registrant: 0 HOSTID | 16 RKEY
//! ```
//! All numbers are little-endian. Without Persist Through Power Loss nothing is saved, so that the
//! state itself needs no byte.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ReservationKey, ReservationType};
use crate::HostId;
use crate::tcp::crc32c;

/// Registrants that can be saved.
pub const SAVED_REGISTRANTS_MAX: usize = 160;
/// The longest result of [`SavedReservations::to_bytes`].
pub const SAVED_RESERVATIONS_BYTES_MAX: usize = HEADER_BYTES + SAVED_REGISTRANTS_MAX * REGISTRANT_BYTES;

const MAGIC: [u8; 8] = *b"zondresv";
const VERSION: u32 = 1;
const SUM_FROM: usize = 16;
const NO_HOLDER: u32 = u32::MAX;
const HEADER_BYTES: usize = size_of::<WireHeader>();
const REGISTRANT_BYTES: usize = size_of::<WireRegistrant>();
const _: () = assert!(HEADER_BYTES == 32);
const _: () = assert!(REGISTRANT_BYTES == 24);

/// The saved reservations of a namespace whose Persist Through Power Loss state is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedReservations {
    /// GEN.
    pub generation: u32,
    /// Hosts with their keys, in the order in which they registered; at most
    /// [`SAVED_REGISTRANTS_MAX`].
    pub registrants: Vec<(HostId, ReservationKey)>,
    /// The reservation, and its holder; `None` if every registrant is a holder.
    pub held: Option<(ReservationType, Option<HostId>)>,
}

/// Why bytes are not those of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedReservationsError {
    /// A later program has written them.
    Version(u32),
    /// The checksum is wrong, or the data is too short.
    Damaged,
    /// The checksum is correct, but the contents are invalid; the reason.
    Invalid(&'static str),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WireHeader {
    magic: [u8; 8],
    version: U32,
    sum: U32,
    generation: U32,
    kind: u8,
    _reserved_21: [u8; 3],
    registrants: U32,
    holder: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct WireRegistrant {
    host: [u8; 16],
    key: U64,
}

impl SavedReservations {
    /// The bytes to save.
    ///
    /// # Panics
    /// For invalid reservations: see [`SavedReservationsError::Invalid`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        if let Some(why) = self.fault() {
            panic!("invalid reservations to save: {why}");
        }
        let place = |holder| self.registrants.iter().position(|&(host, _)| host == holder);
        let holder = self.held.and_then(|(_, holder)| place(holder?)).map_or(NO_HOLDER, |place| place as u32);
        let header = WireHeader {
            magic: MAGIC,
            version: VERSION.into(),
            sum: 0.into(),
            generation: self.generation.into(),
            kind: self.held.map_or(0, |(kind, _)| kind.code()),
            _reserved_21: [0; 3],
            registrants: (self.registrants.len() as u32).into(),
            holder: holder.into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        for &(host, key) in &self.registrants {
            bytes.extend_from_slice(WireRegistrant { host: host.0, key: key.0.into() }.as_bytes());
        }
        let sum = crc32c(&bytes[SUM_FROM..]);
        bytes[12..SUM_FROM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses saved bytes.
    ///
    /// # Errors
    /// If they are not a result of [`to_bytes`](SavedReservations::to_bytes). Serving the namespace
    /// without its reservations would admit hosts that are excluded.
    pub fn read(bytes: &[u8]) -> Result<SavedReservations, SavedReservationsError> {
        let damaged = SavedReservationsError::Damaged;
        let (header, rest) = WireHeader::read_from_prefix(bytes).map_err(|_| damaged)?;
        if header.magic != MAGIC {
            return Err(damaged);
        }
        if header.version.get() != VERSION {
            return Err(SavedReservationsError::Version(header.version.get()));
        }
        let count = header.registrants.get() as usize;
        if count > SAVED_REGISTRANTS_MAX
            || rest.len() != count * REGISTRANT_BYTES
            || crc32c(&bytes[SUM_FROM..]) != header.sum.get()
        {
            return Err(damaged);
        }
        let registrants: Vec<_> = rest.chunks_exact(REGISTRANT_BYTES).map(registrant).collect();
        let invalid = SavedReservationsError::Invalid;
        let holder = match header.holder.get() {
            NO_HOLDER => None,
            place => Some(registrants.get(place as usize).ok_or(invalid("a holder that is not registered"))?.0),
        };
        let held = match header.kind {
            0 if holder.is_some() => return Err(invalid("a holder without a reservation")),
            0 => None,
            code => Some((ReservationType::from_code(code).ok_or(invalid("a reserved type"))?, holder)),
        };
        let saved = SavedReservations { generation: header.generation.get(), registrants, held };
        match saved.fault() {
            Some(why) => Err(invalid(why)),
            None => Ok(saved),
        }
    }

    /// The violation of the rules of reservations, if any.
    fn fault(&self) -> Option<&'static str> {
        let registrants = &self.registrants;
        let is_registered = |host: HostId| registrants.iter().any(|&(other, _)| other == host);
        if registrants.len() > SAVED_REGISTRANTS_MAX {
            return Some("too many registrants");
        }
        for (i, &(host, key)) in registrants.iter().enumerate() {
            if host.is_zero() || key == ReservationKey(0) {
                return Some("a registrant without an identifier or a key");
            }
            if registrants[..i].iter().any(|&(other, _)| other == host) {
                return Some("a host that is registered twice");
            }
        }
        match self.held {
            Some((kind, holder)) if kind.is_held_by_all() != holder.is_none() => {
                Some("a holder that does not match the type")
            }
            Some((_, Some(holder))) if !is_registered(holder) => Some("a holder that is not registered"),
            Some((_, None)) if registrants.is_empty() => Some("a reservation of all registrants without registrants"),
            _ => None,
        }
    }
}

fn registrant(bytes: &[u8]) -> (HostId, ReservationKey) {
    let wire = WireRegistrant::read_from_bytes(bytes).expect("the chunk has the structure's size");
    (HostId(wire.host), ReservationKey(wire.key.get()))
}

impl fmt::Display for SavedReservationsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedReservationsError::Version(found) => {
                write!(f, "unsupported format version {found}, this program supports version {VERSION}")
            }
            SavedReservationsError::Damaged => f.write_str("the data is damaged: wrong checksum or length"),
            SavedReservationsError::Invalid(what) => write!(f, "invalid contents: {what}"),
        }
    }
}

impl std::error::Error for SavedReservationsError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::{Page, assert_layout};

    impl Page for WireHeader {
        const NAME: &'static str = "saved reservations";
    }

    fn host(number: u8) -> HostId {
        HostId([number; 16])
    }

    fn example() -> SavedReservations {
        SavedReservations {
            generation: 0x0102_0304,
            registrants: vec![(host(1), ReservationKey(0xabcd)), (host(2), ReservationKey(u64::MAX))],
            held: Some((ReservationType::ExclusiveAccess, Some(host(2)))),
        }
    }

    /// The bytes with the right checksum.
    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = crc32c(&bytes[SUM_FROM..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn every_field_has_the_offset_of_the_table() {
        assert_layout!(WireHeader {
            magic: 0..=7,
            version: 8..=11,
            sum: 12..=15,
            generation: 16..=19,
            kind: 20..=20,
            registrants: 24..=27,
            holder: 28..=31,
        });
        let bytes = example().to_bytes();
        assert_eq!((bytes.len(), &bytes[..12]), (80, &b"zondresv\x01\0\0\0"[..]));
        assert_eq!(bytes[16..32], [4, 3, 2, 1, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!((&bytes[32..48], &bytes[48..56]), (&[1; 16][..], &[0xcd, 0xab, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(bytes[12..16], crc32c(&bytes[16..]).to_le_bytes());
    }

    #[test]
    fn an_altered_or_missing_byte_is_an_error() {
        let bytes = example().to_bytes();
        for byte in 0..bytes.len() {
            for bit in 0..8 {
                let mut altered = bytes.clone();
                altered[byte] ^= 1 << bit;
                assert!(SavedReservations::read(&altered).is_err(), "bit {bit} of byte {byte}");
            }
            assert_eq!(SavedReservations::read(&bytes[..byte]), Err(SavedReservationsError::Damaged));
        }
        assert_eq!(SavedReservations::read(&[&bytes[..], &[0]].concat()), Err(SavedReservationsError::Damaged));
        let mut later = bytes;
        later[8] = 2;
        assert_eq!(SavedReservations::read(&later), Err(SavedReservationsError::Version(2)));
    }

    #[test]
    fn invalid_contents_are_an_error_even_with_the_right_checksum() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = example().to_bytes();
            change(&mut bytes);
            SavedReservations::read(&summed(bytes))
        };
        let invalid = |why| Err(SavedReservationsError::Invalid(why));
        assert_eq!(with(&|_| {}), Ok(example()));
        assert_eq!(with(&|bytes| bytes[20] = 7), invalid("a reserved type"));
        assert_eq!(with(&|bytes| bytes[20] = 0), invalid("a holder without a reservation"));
        assert_eq!(with(&|bytes| bytes[20] = 5), invalid("a holder that does not match the type"));
        assert_eq!(with(&|bytes| bytes[28..32].fill(0xff)), invalid("a holder that does not match the type"));
        assert_eq!(with(&|bytes| bytes[28] = 2), invalid("a holder that is not registered"));
        assert_eq!(with(&|bytes| bytes[56..72].fill(1)), invalid("a host that is registered twice"));
        assert_eq!(with(&|bytes| bytes[32..48].fill(0)), invalid("a registrant without an identifier or a key"));
        assert_eq!(with(&|bytes| bytes[48..56].fill(0)), invalid("a registrant without an identifier or a key"));
        let of_none = |bytes: &mut Vec<u8>| {
            bytes.truncate(32);
            (bytes[20], bytes[24]) = (5, 0);
            bytes[28..32].fill(0xff);
        };
        assert_eq!(with(&of_none), invalid("a reservation of all registrants without registrants"));
        // A count that the bytes do not have must not be believed.
        assert_eq!(with(&|bytes| bytes[24..28].fill(0xff)), Err(SavedReservationsError::Damaged));
    }

    #[test]
    fn the_maximum_of_registrants_can_be_saved() {
        let registrants = (1..=SAVED_REGISTRANTS_MAX as u8).map(|i| (host(i), ReservationKey(7))).collect();
        let held = Some((ReservationType::WriteExclusiveAllRegistrants, None));
        let saved = SavedReservations { registrants, held, ..SavedReservations::default() };
        let bytes = saved.to_bytes();
        assert_eq!(bytes.len(), SAVED_RESERVATIONS_BYTES_MAX);
        assert_eq!(SavedReservations::read(&bytes), Ok(saved));
    }

    proptest! {
        #[test]
        fn parsed_reservations_are_saved_to_the_same_bytes(
            generation: u32,
            kind in 0_u8..8,
            holder in 0_u32..6,
            registrants in proptest::collection::vec((0_u8..9, 0_u64..4), 0..5),
        ) {
            let mut bytes = SavedReservations { generation, ..SavedReservations::default() }.to_bytes();
            bytes[20] = kind;
            bytes[24] = registrants.len() as u8;
            bytes[28..32].copy_from_slice(&if holder == 5 { NO_HOLDER } else { holder }.to_le_bytes());
            for (number, key) in registrants {
                bytes.extend([number; 16]);
                bytes.extend(key.to_le_bytes());
            }
            let bytes = summed(bytes);
            if let Ok(saved) = SavedReservations::read(&bytes) {
                prop_assert_eq!(saved.to_bytes(), bytes);
            }
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120), has_head: bool) {
            let mut bytes = bytes;
            if has_head && bytes.len() >= 32 {
                bytes[..12].copy_from_slice(b"zondresv\x01\0\0\0");
                bytes = summed(bytes);
            }
            let _ = SavedReservations::read(&bytes);
        }
    }
}
