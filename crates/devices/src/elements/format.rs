//! The format of `elements.zonda`: two slots of the same length, of which the older one is
//! overwritten.
//!
//! All numbers are little-endian.
//!
//! ```text
//! byte  bytes  what
//!    0      8  "zondelem"
//!    8      4  version, 1
//!   12      4  CRC-32C of everything from byte 16 to the end of the table
//!   16      8  sequence: the later one of two slots is valid
//!   24     16  UUID of the image
//!   40      8  bytes that FINISH padded since the drive was created
//!   48      4  Z, zones that are not conventional
//!   52      4  0
//!   56      8  T, bytes of the table
//!   64    8 Z  of each zone: written bytes in bits 0 to 61; bits 62 and 63: 0 writable, 1 finished, 2 offline
//!    +      T  the table of elements, as docs/internals/zone-allocation.md has it
//! ```

use std::fmt;

use zonda_ring::Bytes;
use zonda_ssd::allocation::{
    ElementRecord, ElementTable, ElementTableError, ElementTracker, ZoneDisposition, ZoneUsage,
};

const MAGIC: &[u8; 8] = b"zondelem";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
/// Where the bytes begin that the checksum covers.
const SUM_FROM: usize = 16;
/// Where the disposition is in the number of a zone.
const DISPOSITION_SHIFT: u32 = 62;
/// Slots begin at a page, so that no write of one touches a page of the other.
const PAGE_BYTES: u64 = 4096;

const _: () = assert!(SUM_FROM + 8 + 16 + 8 + 4 + 4 + 8 == HEADER_BYTES);

/// Why a slot cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotFault {
    /// It was never written.
    Unwritten,
    /// It has another magic.
    NotElements,
    /// It has another version.
    Version {
        /// The version.
        found: u32,
    },
    /// It belongs to another image.
    OtherImage,
    /// It is truncated, or its checksum is wrong.
    Damaged,
    /// Its table is invalid.
    Table(ElementTableError),
    /// It cannot be read; the error of the system.
    Unreadable(String),
}

impl fmt::Display for SlotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotFault::Unwritten => f.write_str("it was never written"),
            SlotFault::NotElements => f.write_str("it is not a table of storage elements"),
            SlotFault::Version { found } => {
                write!(f, "it has version {found}, and this program supports version {VERSION}")
            }
            SlotFault::OtherImage => f.write_str("it belongs to another image"),
            SlotFault::Damaged => f.write_str("it is damaged"),
            SlotFault::Table(error) => write!(f, "{error}"),
            SlotFault::Unreadable(words) => write!(f, "it cannot be read: {words}"),
        }
    }
}

/// Bytes of a slot, enough for the longest record of a tracker.
pub(super) fn slot_bytes(tracker: &ElementTracker) -> u64 {
    let zones = tracker.record().zones.len() as u64;
    (HEADER_BYTES as u64 + 8 * zones + tracker.table_bytes_max()).next_multiple_of(PAGE_BYTES)
}

/// Whether a sequence number is later than another one. It may wrap around.
pub(super) fn is_later(sequence: u64, than: u64) -> bool {
    (sequence.wrapping_sub(than) as i64) > 0
}

/// Encodes a slot.
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
        let disposition = match zone.disposition {
            // A read-only zone keeps its elements.
            ZoneDisposition::Writable | ZoneDisposition::ReadOnly => 0_u64,
            ZoneDisposition::Finished => 1,
            ZoneDisposition::Offline => 2,
        };
        bytes.extend_from_slice(&(zone.written_bytes | disposition << DISPOSITION_SHIFT).to_le_bytes());
    }
    bytes.extend_from_slice(&table);
    let sum = crc_fast::crc32_iscsi(&bytes[SUM_FROM..]);
    bytes[SUM_FROM - 4..SUM_FROM].copy_from_slice(&sum.to_le_bytes());
    bytes.into()
}

/// Decodes the sequence number and the record of a slot. Bytes after the record are ignored.
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
    let zones = zones.iter().map(|zone| usage_of(u64::from_le_bytes(*zone)));
    let zones = zones.collect::<Option<Vec<_>>>().ok_or(SlotFault::Damaged)?;
    let table = ElementTable::from_bytes(&bytes[zones_end..]).map_err(SlotFault::Table)?;
    Ok((u64_at(16), ElementRecord { table, zones, padding_bytes: u64_at(40) }))
}

fn usage_of(number: u64) -> Option<ZoneUsage> {
    let disposition = match number >> DISPOSITION_SHIFT {
        0 => ZoneDisposition::Writable,
        1 => ZoneDisposition::Finished,
        2 => ZoneDisposition::Offline,
        _ => return None,
    };
    Some(ZoneUsage { written_bytes: number & ((1 << DISPOSITION_SHIFT) - 1), disposition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_profiles::builtin_text;
    use zonda_ssd::profile::{AllocationKind, Profile};
    use zonda_zoned::{Prng, ZoneIndex};

    const UUID: [u8; 16] = [7; 16];

    fn tracker() -> ElementTracker {
        let mut profile = Profile::parse(builtin_text("tiny").expect("it is built in")).expect("it is valid");
        profile.zones.allocation = AllocationKind::Block;
        let mut tracker = ElementTracker::new(&profile);
        tracker.written(ZoneIndex(1), 300 << 10);
        tracker.written(ZoneIndex(2), 1536 << 10);
        tracker.finished(ZoneIndex(1));
        tracker.written(ZoneIndex(5), 4 << 10);
        tracker.offline(ZoneIndex(5));
        tracker.reset(ZoneIndex(2));
        tracker
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_fits_its_slot() {
        let tracker = tracker();
        let bytes = encode(&tracker.record(), &UUID, 41);
        assert!(bytes.len() as u64 <= slot_bytes(&tracker) && slot_bytes(&tracker).is_multiple_of(PAGE_BYTES));
        let mut slot = bytes.to_vec();
        slot.resize(slot_bytes(&tracker) as usize, 0xa5);
        assert_eq!(decode(&slot, &UUID), Ok((41, tracker.record())), "bytes of an earlier record after it are ignored");
    }

    #[test]
    fn a_slot_that_is_not_a_record_of_this_image_reports_why() {
        let bytes = encode(&tracker().record(), &UUID, 1);
        assert_eq!(decode(&[], &UUID), Err(SlotFault::Unwritten));
        assert_eq!(decode(&[0; 4096], &UUID), Err(SlotFault::Unwritten));
        assert_eq!(decode(&[1; 4096], &UUID), Err(SlotFault::NotElements));
        assert_eq!(decode(&bytes, &[8; 16]), Err(SlotFault::OtherImage));
        let mut later = bytes.to_vec();
        later[8] = 2;
        assert_eq!(decode(&later, &UUID), Err(SlotFault::Version { found: 2 }));
    }

    #[test]
    fn every_altered_byte_and_every_truncation_is_detected() {
        let bytes = encode(&tracker().record(), &UUID, 1);
        for at in 0..bytes.len() {
            let mut altered = bytes.to_vec();
            altered[at] ^= 0x10;
            decode(&altered, &UUID).expect_err("a byte was altered");
            decode(&bytes[..at], &UUID).expect_err("the slot was truncated");
        }
    }

    #[test]
    fn contents_with_a_valid_checksum_are_validated() {
        let bytes = encode(&tracker().record(), &UUID, 1);
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
    fn the_later_of_two_sequences_is_found_after_a_wraparound() {
        assert!(is_later(2, 1) && !is_later(1, 2) && !is_later(1, 1) && is_later(0, u64::MAX));
    }
}
