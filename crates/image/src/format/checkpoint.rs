//! The checkpoint: the ledger of all zones at one moment, in two copies of equal contents.
//!
//! ```text
//! a copy, at 0 and at the next page behind the first:
//! byte 0..4     CRC-32C over bytes 4..4096
//!      4..8     CRC-32C over everything from byte 4096 on
//!      8..16    magic "zondchkp"
//!      16..24   sequence: the epoch of the journal that follows; 0 comes after the greatest
//!      24..40   UUID
//!      40       1: clean shutdown; nothing follows, and no tags need a scan
//!      41..48   0
//!      48..80   counters: blocks written by hosts, blocks padded, blocks read, erases
//!      80..84   bytes of saved reservations
//!      84..96   0
//!      96..     these bytes, at most 4000; zeros up to 4096
//!      4096..   an entry of 40 bytes for each zone (see entry.rs)
//!      then     a descriptor extension for each zone, zeros where there is none
//! ```
//! The first copy is written and synced, then the second, and only then is a record of the new
//! epoch written. So there is always a good copy, and a damaged one never matters.

use bytes::Bytes;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::ZoneIndex;

use crate::{Counters, ImageError, ImageFile};

use super::crc;
use super::entry::{ENTRY_BYTES, Entry, Ledger};
use super::layout::Layout;
use crate::limits::RESERVATIONS_BYTES_MAX;

/// Bytes before the entries.
pub(crate) const SLOT_HEADER_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"zondchkp";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    sum: U32,
    body_sum: U32,
    magic: [u8; 8],
    sequence: U64,
    uuid: [u8; 16],
    clean: u8,
    reserved: [u8; 7],
    host_written_blocks: U64,
    padding_blocks: U64,
    host_read_blocks: U64,
    erases: U64,
    reservations_bytes: U32,
    reserved_84: [u8; 12],
}

const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(HEADER_BYTES == 96);
const _: () = assert!(HEADER_BYTES + RESERVATIONS_BYTES_MAX == SLOT_HEADER_BYTES);

/// A decoded checkpoint.
pub(crate) struct Checkpoint {
    pub(crate) sequence: u64,
    pub(crate) clean: bool,
    pub(crate) ledger: Ledger,
}

/// The sequence after this one. It comes from a file, and with a limit a drive that is opened just
/// below the limit could not be opened again. So there is no limit, and sequences wrap around.
pub(crate) fn next_sequence(sequence: u64) -> u64 {
    sequence.wrapping_add(1)
}

/// Whether a sequence comes after another, by less than 2^63 steps.
pub(crate) fn is_later(sequence: u64, other: u64) -> bool {
    (sequence.wrapping_sub(other) as i64) > 0
}

/// Encodes one copy.
pub(crate) fn encode(layout: &Layout, uuid: &[u8; 16], sequence: u64, clean: bool, ledger: &Ledger) -> Bytes {
    let mut bytes = vec![0; layout.checkpoint_bytes() as usize];
    let extensions_from = SLOT_HEADER_BYTES + ledger.entries.len() * ENTRY_BYTES;
    for (entry, place) in ledger.entries.iter().zip(bytes[SLOT_HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES)) {
        place.copy_from_slice(&entry.encode());
    }
    for (&zone, extension) in &ledger.extensions {
        let from = extensions_from + zone.as_usize() * layout.extension_bytes as usize;
        bytes[from..from + extension.len()].copy_from_slice(extension);
    }
    let counters = &ledger.counters;
    let mut header = Header {
        sum: 0.into(),
        body_sum: crc(&bytes[SLOT_HEADER_BYTES..]).into(),
        magic: MAGIC,
        sequence: sequence.into(),
        uuid: *uuid,
        clean: u8::from(clean),
        reserved: [0; 7],
        host_written_blocks: counters.host_written_blocks.into(),
        padding_blocks: counters.padding_blocks.into(),
        host_read_blocks: counters.host_read_blocks.into(),
        erases: counters.erases.into(),
        reservations_bytes: (ledger.reservations.len() as u32).into(),
        reserved_84: [0; 12],
    };
    bytes[HEADER_BYTES..HEADER_BYTES + ledger.reservations.len()].copy_from_slice(&ledger.reservations);
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    header.sum = crc(&bytes[4..SLOT_HEADER_BYTES]).into();
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    bytes.into()
}

/// Reads one copy; `None` if it is damaged.
///
/// # Errors
/// [`ImageError::OtherImage`] for a good copy of another image.
pub(crate) fn decode(layout: &Layout, uuid: &[u8; 16], bytes: &[u8]) -> Result<Option<Checkpoint>, ImageError> {
    let Some(mut checkpoint) = decode_header(uuid, bytes)? else { return Ok(None) };
    let (header, _) = Header::read_from_prefix(bytes).expect("the header was read");
    if bytes.len() as u64 != layout.checkpoint_bytes() || crc(&bytes[SLOT_HEADER_BYTES..]) != header.body_sum.get() {
        return Ok(None);
    }
    let ledger = &mut checkpoint.ledger;
    let body = &bytes[SLOT_HEADER_BYTES..];
    let (entries, extensions) = body.split_at(layout.zones as usize * ENTRY_BYTES);
    for bytes in entries.chunks_exact(ENTRY_BYTES) {
        let Some(entry) = Entry::decode(bytes, layout.capacity) else { return Ok(None) };
        if entry.has_extension {
            let from = ledger.entries.len() * layout.extension_bytes as usize;
            let extension = &extensions[from..from + layout.extension_bytes as usize];
            ledger.extensions.insert(ZoneIndex(ledger.entries.len() as u32), extension.into());
        }
        ledger.entries.push(entry);
    }
    Ok(Some(checkpoint))
}

/// Reads the first page of a copy: everything except zones, so that the ledger has no zones. `None`
/// if it is damaged.
///
/// # Errors
/// [`ImageError::OtherImage`] for a good page of another image.
pub(crate) fn decode_header(uuid: &[u8; 16], bytes: &[u8]) -> Result<Option<Checkpoint>, ImageError> {
    let Ok((header, _)) = Header::read_from_prefix(bytes) else { return Ok(None) };
    if header.magic != MAGIC || bytes.len() < SLOT_HEADER_BYTES || crc(&bytes[4..SLOT_HEADER_BYTES]) != header.sum.get()
    {
        return Ok(None);
    }
    if header.uuid != *uuid {
        return Err(ImageError::OtherImage { file: ImageFile::State });
    }
    let kept = bytes[HEADER_BYTES..SLOT_HEADER_BYTES].get(..header.reservations_bytes.get() as usize);
    let Some(kept) = kept else { return Ok(None) };
    let mut ledger = Ledger::new(0);
    ledger.reservations = kept.into();
    ledger.counters = Counters {
        host_written_blocks: header.host_written_blocks.get(),
        padding_blocks: header.padding_blocks.get(),
        host_read_blocks: header.host_read_blocks.get(),
        erases: header.erases.get(),
    };
    Ok(Some(Checkpoint { sequence: header.sequence.get(), clean: header.clean == 1, ledger }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Generation;
    use crate::format::entry::RecordedState;
    use zonda_zoned::Geometry;

    #[test]
    fn every_sequence_is_followed_by_a_later_one() {
        for sequence in [0, 1, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
            let next = next_sequence(sequence);
            assert!(is_later(next, sequence) && !is_later(sequence, next) && !is_later(sequence, sequence));
        }
    }

    #[test]
    fn a_checkpoint_reads_back_as_it_was_written() {
        let layout = Layout::new(&Geometry::tiny(), 1 << 20);
        let mut ledger = Ledger::new(8);
        ledger.counters = Counters { host_written_blocks: 1, padding_blocks: 2, host_read_blocks: 3, erases: 4 };
        ledger.entries[3] = Entry {
            generation: Generation(9),
            wear: 8,
            state: RecordedState::ReadOnly,
            has_extension: true,
            had_zrwa: true,
            durable: 4,
            pointer: 5,
            written: 6,
            ..Entry::default()
        };
        ledger.extensions.insert(ZoneIndex(3), vec![0xab; 64].into());
        ledger.reservations = vec![0xcd; RESERVATIONS_BYTES_MAX].into();
        let bytes = encode(&layout, &[1; 16], 12, true, &ledger);
        let read = decode(&layout, &[1; 16], &bytes).unwrap().unwrap();
        assert_eq!((read.sequence, read.clean, read.ledger), (12, true, ledger));
        assert!(matches!(decode(&layout, &[2; 16], &bytes), Err(ImageError::OtherImage { .. })));
    }

    #[test]
    fn bytes_with_a_right_checksum_and_another_magic_are_no_checkpoint() {
        let layout = Layout::new(&Geometry::tiny(), 1 << 20);
        let mut bytes = encode(&layout, &[1; 16], 12, true, &Ledger::new(8)).to_vec();
        assert!(decode(&layout, &[1; 16], &bytes).unwrap().is_some());
        let (mut header, _) = Header::read_from_prefix(&bytes).unwrap();
        header.magic[0] ^= 1;
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let sum = crc(&bytes[4..SLOT_HEADER_BYTES]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        assert!(decode(&layout, &[1; 16], &bytes).unwrap().is_none());
    }

    #[test]
    fn a_checkpoint_that_ends_early_is_damaged() {
        let layout = Layout::new(&Geometry::tiny(), 1 << 20);
        let bytes = encode(&layout, &[1; 16], 12, true, &Ledger::new(8));
        for length in [0, HEADER_BYTES, SLOT_HEADER_BYTES - 1, SLOT_HEADER_BYTES, bytes.len() - 1] {
            assert!(decode(&layout, &[1; 16], &bytes[..length]).unwrap().is_none(), "{length} bytes");
        }
    }
}
