//! The bytes of `elements.zonda`: two slots of the same length, of which the older one is written over.
//!
//! All numbers are little-endian.
//!
//! ```text
//! byte  bytes  what
//!    0      8  "zondelem"
//!    8      4  version, 1
//!   12      4  CRC-32C of everything from byte 16 to the end of the table
//!   16      8  sequence: of two slots the later one counts
//!   24     16  UUID of the image
//!   40      8  bytes that FINISH padded since the drive was made
//!   48      4  Z, zones that are not conventional
//!   52      4  0
//!   56      8  T, bytes of the table
//!   64    8 Z  of each zone: written bytes in bits 0 to 61; bits 62 and 63: 0 writable, 1 finished, 2 offline
//!    +      T  the table of elements, as docs/internals/zone-allocation.md has it
//! ```

use std::fmt;

use zonda_ring::Bytes;
use zonda_ssd::allocation::{ElementBook, ElementRecord, ElementTable, ElementTableError, ZoneFate, ZoneStanding};

const MAGIC: &[u8; 8] = b"zondelem";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
/// Where what the checksum covers begins.
const SUM_FROM: usize = 16;
/// Where the fate stands in a zone's number.
const FATE_SHIFT: u32 = 62;
/// Slots begin at a page, so that no write of one touches a page of the other.
const PAGE_BYTES: u64 = 4096;

const _: () = assert!(SUM_FROM + 8 + 16 + 8 + 4 + 4 + 8 == HEADER_BYTES);

/// Why a slot says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotFault {
    /// It was never written.
    Unwritten,
    /// It holds something else.
    NotElements,
    /// It is of another version.
    Version {
        /// Which.
        found: u32,
    },
    /// It is of another image.
    OtherImage,
    /// It was cut, or does not have its checksum.
    Damaged,
    /// Its table cannot be used.
    Table(ElementTableError),
    /// The system could not read it; what it said.
    Unreadable(String),
}

impl fmt::Display for SlotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotFault::Unwritten => f.write_str("it was never written"),
            SlotFault::NotElements => f.write_str("it holds something else"),
            SlotFault::Version { found } => {
                write!(f, "it is of version {found}, and this program knows version {VERSION}")
            }
            SlotFault::OtherImage => f.write_str("it belongs to another image"),
            SlotFault::Damaged => f.write_str("it is damaged"),
            SlotFault::Table(error) => write!(f, "{error}"),
            SlotFault::Unreadable(words) => write!(f, "it cannot be read: {words}"),
        }
    }
}

/// Bytes from one slot to the next, enough for whatever a book has to say.
pub(super) fn slot_bytes(book: &ElementBook) -> u64 {
    let zones = book.record().zones.len() as u64;
    (HEADER_BYTES as u64 + 8 * zones + book.table_bytes_max()).next_multiple_of(PAGE_BYTES)
}

/// Whether a sequence is later than another one. It may go round.
pub(super) fn is_later(sequence: u64, than: u64) -> bool {
    (sequence.wrapping_sub(than) as i64) > 0
}

/// What a slot is to hold.
pub(super) fn encode(record: &ElementRecord, uuid: &[u8; 16], sequence: u64) -> Bytes {
    let table = record.table.to_bytes();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 8 * record.zones.len() + table.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(uuid);
    bytes.extend_from_slice(&record.padding_bytes.to_le_bytes());
    bytes.extend_from_slice(&(record.zones.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(table.len() as u64).to_le_bytes());
    for zone in &record.zones {
        let fate = match zone.fate {
            // What cannot be written any more has the elements that it has.
            ZoneFate::Writable | ZoneFate::ReadOnly => 0_u64,
            ZoneFate::Finished => 1,
            ZoneFate::Offline => 2,
        };
        bytes.extend_from_slice(&(zone.written_bytes | fate << FATE_SHIFT).to_le_bytes());
    }
    bytes.extend_from_slice(&table);
    let sum = crc_fast::crc32_iscsi(&bytes[SUM_FROM..]);
    bytes[SUM_FROM - 4..SUM_FROM].copy_from_slice(&sum.to_le_bytes());
    bytes.into()
}

/// The sequence and the record that a slot holds. What lies behind the record is not looked at.
pub(super) fn decode(bytes: &[u8], uuid: &[u8; 16]) -> Result<(u64, ElementRecord), SlotFault> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(if bytes.is_empty() { SlotFault::Unwritten } else { SlotFault::Damaged });
    };
    if !header.starts_with(MAGIC) {
        let is_unwritten = header.iter().all(|byte| *byte == 0);
        return Err(if is_unwritten { SlotFault::Unwritten } else { SlotFault::NotElements });
    }
    let u32_at = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("it is within the header"));
    let u64_at = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("it is within the header"));
    if u32_at(8) != VERSION {
        return Err(SlotFault::Version { found: u32_at(8) });
    }
    let zones_end = HEADER_BYTES + 8 * u32_at(48) as usize;
    let end = usize::try_from(u64_at(56)).ok().and_then(|table_bytes| zones_end.checked_add(table_bytes));
    let Some(bytes) = end.and_then(|end| bytes.get(..end)) else { return Err(SlotFault::Damaged) };
    if crc_fast::crc32_iscsi(&bytes[SUM_FROM..]) != u32_at(SUM_FROM - 4) {
        return Err(SlotFault::Damaged);
    }
    if header[24..40] != uuid[..] {
        return Err(SlotFault::OtherImage);
    }
    let (zones, _) = bytes[HEADER_BYTES..zones_end].as_chunks();
    let zones = zones.iter().map(|zone| standing_of(u64::from_le_bytes(*zone)));
    let zones = zones.collect::<Option<Vec<_>>>().ok_or(SlotFault::Damaged)?;
    let table = ElementTable::from_bytes(&bytes[zones_end..]).map_err(SlotFault::Table)?;
    Ok((u64_at(16), ElementRecord { table, zones, padding_bytes: u64_at(40) }))
}

fn standing_of(number: u64) -> Option<ZoneStanding> {
    let fate = match number >> FATE_SHIFT {
        0 => ZoneFate::Writable,
        1 => ZoneFate::Finished,
        2 => ZoneFate::Offline,
        _ => return None,
    };
    Some(ZoneStanding { written_bytes: number & ((1 << FATE_SHIFT) - 1), fate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiles::builtin_text;
    use zonda_ssd::profile::{AllocationKind, Profile};
    use zonda_zoned::{Prng, ZoneIndex};

    const UUID: [u8; 16] = [7; 16];

    fn book() -> ElementBook {
        let mut profile = Profile::parse(builtin_text("tiny").expect("it is built in")).expect("it is right");
        profile.zones.allocation = AllocationKind::Block;
        let mut book = ElementBook::new(&profile);
        book.written(ZoneIndex(1), 300 << 10);
        book.written(ZoneIndex(2), 1536 << 10);
        book.finished(ZoneIndex(1));
        book.written(ZoneIndex(5), 4 << 10);
        book.offline(ZoneIndex(5));
        book.reset(ZoneIndex(2));
        book
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_fits_its_slot() {
        let book = book();
        let bytes = encode(&book.record(), &UUID, 41);
        assert!(bytes.len() as u64 <= slot_bytes(&book) && slot_bytes(&book).is_multiple_of(PAGE_BYTES));
        let mut slot = bytes.to_vec();
        slot.resize(slot_bytes(&book) as usize, 0xa5);
        assert_eq!(decode(&slot, &UUID), Ok((41, book.record())), "whatever an earlier record has left behind it");
    }

    #[test]
    fn a_slot_that_holds_something_else_says_what_is_wrong() {
        let bytes = encode(&book().record(), &UUID, 1);
        assert_eq!(decode(&[], &UUID), Err(SlotFault::Unwritten));
        assert_eq!(decode(&[0; 4096], &UUID), Err(SlotFault::Unwritten));
        assert_eq!(decode(&[1; 4096], &UUID), Err(SlotFault::NotElements));
        assert_eq!(decode(&bytes, &[8; 16]), Err(SlotFault::OtherImage));
        let mut later = bytes.to_vec();
        later[8] = 2;
        assert_eq!(decode(&later, &UUID), Err(SlotFault::Version { found: 2 }));
    }

    #[test]
    fn no_altered_byte_and_no_cut_goes_unseen() {
        let bytes = encode(&book().record(), &UUID, 1);
        for at in 0..bytes.len() {
            let mut altered = bytes.to_vec();
            altered[at] ^= 0x10;
            decode(&altered, &UUID).expect_err("a byte was altered");
            decode(&bytes[..at], &UUID).expect_err("the slot was cut");
        }
    }

    #[test]
    fn bytes_with_a_right_checksum_are_checked_all_the_same() {
        let bytes = encode(&book().record(), &UUID, 1);
        let mut prng = Prng::new(3);
        let mut refused = 0;
        for _ in 0..5_000 {
            let mut altered = bytes.to_vec();
            let at = SUM_FROM + prng.below((bytes.len() - SUM_FROM) as u64) as usize;
            altered[at] = prng.below(256) as u8;
            let sum = crc_fast::crc32_iscsi(&altered[SUM_FROM..]);
            altered[SUM_FROM - 4..SUM_FROM].copy_from_slice(&sum.to_le_bytes());
            refused += usize::from(decode(&altered, &UUID).is_err());
        }
        assert!(refused > 1_000, "{refused}");
    }

    #[test]
    fn the_later_of_two_sequences_is_found_where_they_go_round_too() {
        assert!(is_later(2, 1) && !is_later(1, 2) && !is_later(1, 1) && is_later(0, u64::MAX));
    }
}
