//! The journal: two marks, then records since the checkpoint.
//!
//! ```text
//! byte 0..4096      a mark      } written alternately; the one with the higher sequence is valid
//!      4096..8192   a mark      }
//!      8192..       records, each a multiple of 8 bytes
//!
//! a mark:                                             a record:
//! byte 0..4   CRC-32C over bytes 4..40                byte 0..4   CRC-32C over bytes 4..72
//!      4..8   magic "ZMRK"                                 4..8   CRC-32C over the payload
//!      8..16  epoch                                        8..12  bytes, this header and the padding included
//!      16..24 records up to this one are synced           12..16  bytes of payload
//!      24..40 UUID                                         16..24  epoch
//!                                                          24..32  sequence, 1 for the first record of an epoch
//!                                                          32      kind
//!                                                          33..36  batches that failed in this epoch before
//!                                                          36..40  zone
//!                                                          40..44  generation
//!                                                          44..48  checksum of the record before, 0 for the first
//!                                                          48..56  a   }
//!                                                          56..64  b   } by kind
//!                                                          64..72  c   }
//!                                                          72..    payload, then zeros
//!
//! kind            a                 b                c                payload
//! 1 reset         blocks written
//! 2 finish        write pointer     written up to    blocks padded
//! 3 read only     write pointer     written up to
//! 4 offline       blocks written
//! 5 extension     1: with ZRWA                                        the extension
//! 6 ZRWA
//! 7 commit        write pointer     written up to
//! 8 flush         blocks over-      blocks read      intents but      zone u32, generation u32, write pointer u64, ...
//!                 written                            in the c records
//!                                                    before end
//! 9 intent        first region      regions                          (of 256 blocks; only in versions 1 and 2)
//! 10 contents     first block       blocks                            tags, then data
//! 11 zeros        first block       blocks
//! 12 reservations                                                     saved reservations; empty: none
//! 13 overwrite    first LBA         blocks           0 anything       of each block the tag before and the one after;
//!                                                    1 zeros          all ff: anything
//!                                                    2 tags
//! 14 persisted    blocks
//! ```
//! The epoch is the sequence number of the checkpoint that the records follow. The journal has its
//! full length from the start and is overwritten from its beginning after each checkpoint; records
//! of another epoch are stale. So are those of a failed batch: the next batch begins at the same
//! offset, and stale records do not follow from its records.

use bytes::{Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::ZoneIndex;

use super::Generation;
use super::crc;

/// Bytes of the two marks; the records begin there.
pub(crate) const MARKS_BYTES: u64 = 8192;
/// Bytes from one mark to the other.
pub(crate) const MARK_STRIDE: u64 = 4096;
/// Bytes of a record without its payload.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>();
/// Bytes of one write pointer in a flush record.
pub(crate) const POINTER_BYTES: usize = size_of::<RawPointer>();

const MARK_MAGIC: [u8; 4] = *b"ZMRK";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    sum: U32,
    payload_sum: U32,
    length: U32,
    payload_length: U32,
    epoch: U64,
    sequence: U64,
    kind: u8,
    failed_batches: [u8; 3],
    zone: U32,
    generation: U32,
    previous: U32,
    a: U64,
    b: U64,
    c: U64,
}

const _: () = assert!(HEADER_BYTES == 72);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawMark {
    sum: U32,
    magic: [u8; 4],
    epoch: U64,
    synced: U64,
    uuid: [u8; 16],
}

const _: () = assert!(size_of::<RawMark>() == 40);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawPointer {
    zone: U32,
    generation: U32,
    pointer: U64,
}

const _: () = assert!(POINTER_BYTES == 16);

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reset = 1,
    Finish = 2,
    ReadOnly = 3,
    Offline = 4,
    Extension = 5,
    Zrwa = 6,
    Commit = 7,
    Flush = 8,
    RegionIntent = 9,
    Contents = 10,
    Zeros = 11,
    Reservations = 12,
    Overwrite = 13,
    Persisted = 14,
}

/// What the record of an overwrite contains for its blocks: nothing, so that any contents are
/// accepted (as in records of version 3 without tags); that they become zeros; or the tag of each
/// block before and after the overwrite.
pub(crate) const OVERWRITE_ANYTHING: u64 = 0;
pub(crate) const OVERWRITE_ZEROS: u64 = 1;
pub(crate) const OVERWRITE_TAGS: u64 = 2;

/// One record. The fields mean what the table above says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) zone: ZoneIndex,
    pub(crate) generation: Generation,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
    /// Two parts, one after the other.
    pub(crate) payload: [&'a [u8]; 2],
}

/// The position of a record in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    /// Checksum of the record before; 0 for the first of an epoch.
    pub(crate) previous: u32,
    /// In this epoch so far.
    pub(crate) failed_batches: u32,
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) place: Place,
    pub(crate) sum: u32,
    /// Bytes to the next record.
    pub(crate) length: usize,
}

/// An encoded record: `head`, then the second part of the payload, then `padding` zeros. So a long
/// second part is not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) head: Bytes,
    pub(crate) padding: usize,
    pub(crate) sum: u32,
}

/// A decoded mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) epoch: u64,
    /// Records of this epoch up to this one are synced.
    pub(crate) synced: u64,
}

/// A write pointer in a flush record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushedPointer {
    pub(crate) zone: ZoneIndex,
    pub(crate) generation: Generation,
    pub(crate) pointer: u64,
}

impl<'a> Record<'a> {
    #[cfg(test)]
    fn new(kind: Kind, zone: ZoneIndex, generation: Generation) -> Record<'a> {
        Record { kind, zone, generation, a: 0, b: 0, c: 0, payload: [&[], &[]] }
    }

    /// Bytes that the record takes in the journal.
    pub(crate) fn length(&self) -> usize {
        length_of(self.payload[0].len() + self.payload[1].len())
    }

    pub(crate) fn encode(&self, place: Place) -> Encoded {
        let payload_length = self.payload[0].len() + self.payload[1].len();
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        self.payload.iter().for_each(|part| digest.update(part));
        let failed = place.failed_batches.to_le_bytes();
        let mut header = Header {
            sum: 0.into(),
            payload_sum: (digest.finalize() as u32).into(),
            length: (self.length() as u32).into(),
            payload_length: (payload_length as u32).into(),
            epoch: place.epoch.into(),
            sequence: place.sequence.into(),
            kind: self.kind as u8,
            failed_batches: [failed[0], failed[1], failed[2]],
            zone: self.zone.0.into(),
            generation: self.generation.0.into(),
            previous: place.previous.into(),
            a: self.a.into(),
            b: self.b.into(),
            c: self.c.into(),
        };
        header.sum = crc(&header.as_bytes()[4..]).into();
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.payload[0].len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(self.payload[0]);
        Encoded { head: bytes.freeze(), padding: self.length() - HEADER_BYTES - payload_length, sum: header.sum.get() }
    }

    /// Reads the record at the start of `bytes`, if there is one of this epoch.
    pub(crate) fn decode(bytes: &'a [u8], epoch: u64) -> Option<Decoded<'a>> {
        let (header, rest) = Header::read_from_prefix(bytes).ok()?;
        let kind = match header.kind {
            1 => Kind::Reset,
            2 => Kind::Finish,
            3 => Kind::ReadOnly,
            4 => Kind::Offline,
            5 => Kind::Extension,
            6 => Kind::Zrwa,
            7 => Kind::Commit,
            8 => Kind::Flush,
            9 => Kind::RegionIntent,
            10 => Kind::Contents,
            11 => Kind::Zeros,
            12 => Kind::Reservations,
            13 => Kind::Overwrite,
            14 => Kind::Persisted,
            _ => return None,
        };
        if header.epoch.get() != epoch || !header.is_good() {
            return None;
        }
        let payload_length = header.payload_length.get() as usize;
        let length = header.length.get() as usize;
        let payload = rest.get(..payload_length)?;
        if length != length_of(payload_length) || length > bytes.len() || crc(payload) != header.payload_sum.get() {
            return None;
        }
        let record = Record {
            kind,
            zone: ZoneIndex(header.zone.get()),
            generation: Generation(header.generation.get()),
            a: header.a.get(),
            b: header.b.get(),
            c: header.c.get(),
            payload: [payload, &[]],
        };
        let [a, b, c] = header.failed_batches;
        let place = Place {
            epoch,
            sequence: header.sequence.get(),
            previous: header.previous.get(),
            failed_batches: u32::from_le_bytes([a, b, c, 0]),
        };
        Some(Decoded { record, place, sum: header.sum.get(), length })
    }

    /// The epoch of the record at the start of `bytes`, whatever its other fields are.
    pub(crate) fn epoch_of(bytes: &[u8]) -> Option<u64> {
        let (header, _) = Header::read_from_prefix(bytes).ok()?;
        header.is_good().then(|| header.epoch.get())
    }

    /// The write pointers of a flush record.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = FlushedPointer> {
        self.payload[0].chunks_exact(POINTER_BYTES).filter_map(|bytes| {
            let raw = RawPointer::read_from_bytes(bytes).ok()?;
            let (zone, generation) = (ZoneIndex(raw.zone.get()), Generation(raw.generation.get()));
            Some(FlushedPointer { zone, generation, pointer: raw.pointer.get() })
        })
    }
}

impl Header {
    fn is_good(&self) -> bool {
        crc(&self.as_bytes()[4..]) == self.sum.get()
    }
}

impl FlushedPointer {
    pub(crate) fn encode(self, into: &mut Vec<u8>) {
        let raw =
            RawPointer { zone: self.zone.0.into(), generation: self.generation.0.into(), pointer: self.pointer.into() };
        into.extend_from_slice(raw.as_bytes());
    }
}

fn length_of(payload_length: usize) -> usize {
    (HEADER_BYTES + payload_length).next_multiple_of(8)
}

/// A mark: up to which record the journal is known to be synced.
pub(crate) fn encode_mark(uuid: &[u8; 16], epoch: u64, synced: u64) -> Bytes {
    let mut mark =
        RawMark { sum: 0.into(), magic: MARK_MAGIC, epoch: epoch.into(), synced: synced.into(), uuid: *uuid };
    mark.sum = crc(&mark.as_bytes()[4..]).into();
    Bytes::copy_from_slice(mark.as_bytes())
}

/// Reads a mark, if it is a good one of this image.
pub(crate) fn decode_mark(bytes: &[u8], uuid: &[u8; 16]) -> Option<Mark> {
    let (mark, _) = RawMark::read_from_prefix(bytes).ok()?;
    let good = mark.magic == MARK_MAGIC && crc(&mark.as_bytes()[4..]) == mark.sum.get();
    (good && mark.uuid == *uuid).then(|| Mark { epoch: mark.epoch.get(), synced: mark.synced.get() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_it_was_written_and_not_with_any_byte_altered() {
        let payload: Vec<u8> = (0..21).collect();
        let record = Record {
            a: 1,
            b: 2,
            c: u64::MAX,
            payload: [&payload, &[]],
            ..Record::new(Kind::Extension, ZoneIndex(7), Generation(9))
        };
        let place = Place { epoch: 3, sequence: 44, previous: 0xfeed, failed_batches: 70_000 };
        let Encoded { head, padding, sum } = record.encode(place);
        let mut bytes = head.to_vec();
        bytes.extend(vec![0; padding]);
        assert_eq!(bytes.len(), record.length());
        assert_eq!(Record::decode(&bytes, 3), Some(Decoded { record, place, sum, length: bytes.len() }));
        assert_eq!(Record::decode(&bytes, 4), None);
        assert_eq!((Record::epoch_of(&bytes), Record::epoch_of(&[0; HEADER_BYTES])), (Some(3), None));
        for byte in 0..HEADER_BYTES + payload.len() {
            let mut bytes = bytes.clone();
            bytes[byte] ^= 0x10;
            assert_eq!(Record::decode(&bytes, 3), None, "byte {byte}");
        }
    }

    #[test]
    fn a_payload_in_two_parts_is_one_payload() {
        let record =
            Record { payload: [&[1, 2, 3], &[4; 13]], ..Record::new(Kind::Contents, ZoneIndex(0), Generation(0)) };
        let Encoded { head, padding, .. } =
            record.encode(Place { epoch: 1, sequence: 1, previous: 0, failed_batches: 0 });
        let bytes = [&head[..], &[4; 13], &vec![0; padding]].concat();
        let read = Record::decode(&bytes, 1).unwrap();
        assert_eq!(read.record.payload[0], [&[1, 2, 3][..], &[4; 13]].concat());
        assert_eq!(read.length % 8, 0);
    }

    #[test]
    fn a_mark_reads_back_as_it_was_written_and_only_for_its_own_image() {
        let mark = encode_mark(&[5; 16], 8, 31);
        assert_eq!(decode_mark(&mark, &[5; 16]), Some(Mark { epoch: 8, synced: 31 }));
        assert_eq!(decode_mark(&mark, &[6; 16]), None);
        assert_eq!(decode_mark(&[0; 4096], &[5; 16]), None);
        for byte in 0..mark.len() {
            let mut mark = mark.to_vec();
            mark[byte] ^= 1;
            assert_eq!(decode_mark(&mark, &[5; 16]), None, "byte {byte}");
        }
    }
}
