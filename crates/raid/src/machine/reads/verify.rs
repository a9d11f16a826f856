//! Verification of blocks by their metadata.

use zonda_zoned::BlockBuffer;

use super::super::members::Members;
use super::super::segments::Segments;
use super::super::spec::Spec;
use crate::bug::SeededBug;
use crate::format::{BlockMeta, Place, Record, crc, read_chunk_meta};
use crate::tables::Physical;

/// The state that verification needs, read only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verifier<'a> {
    pub(super) spec: &'a Spec,
    pub(super) members: &'a Members,
    pub(super) segments: &'a Segments,
}

impl Verifier<'_> {
    /// A block's record, if the block is intact. `at` is the block's index behind `skip` in the
    /// buffer.
    #[inline]
    pub(super) fn verify(
        self,
        block: Physical,
        buffer: &BlockBuffer,
        skip: usize,
        at: usize,
        expected: Option<u64>,
    ) -> Option<Record> {
        let block_bytes = self.spec.shape.block_bytes;
        let data = &buffer.data[(skip + at) * block_bytes..(skip + at + 1) * block_bytes];
        let segment = &self.segments[block.segment];
        if self.spec.shape.is_in_band {
            let sum = crc(data);
            let entry = segment.layout.entry_of(block.offset) as usize;
            if segment.sums[block.member.as_usize()][entry] != sum && !self.spec.has(SeededBug::UnverifiedRead) {
                return None;
            }
            if skip == 0 {
                // Only hosts read without metadata, and have an expected block.
                return Some(Record { lba: expected?, timestamp: 0, data_crc: sum });
            }
        }
        let meta = self.metadata_of(block, buffer, at)?;
        let record = Record::from_bytes(&meta.record);
        let is_expected = expected.is_none_or(|lba| record.lba == lba);
        let is_whole = crc(data) == meta.block_crc || self.spec.has(SeededBug::UnverifiedRead);
        (is_expected && is_whole).then_some(record)
    }

    /// Whether a block that could not be verified is damaged: not if only its description is, nor
    /// if it was never written, or a rebuild could not compute it.
    pub(super) fn is_damaged(self, block: Physical, data: &[u8], buffer: &BlockBuffer, at: usize) -> bool {
        let segment = &self.segments[block.segment];
        let sum = crc(data);
        let expected = if self.spec.shape.is_in_band {
            match segment.sums[block.member.as_usize()][segment.layout.entry_of(block.offset) as usize] {
                // A mount could not read it.
                0 => return false,
                expected => Some(expected),
            }
        } else {
            self.metadata_of(block, buffer, at).map(|meta| meta.block_crc)
        };
        let (slot, _) = segment.layout.place_of(block.offset);
        let was_written = slot < segment.slots.complete_stripes() || data.iter().any(|&byte| byte != 0);
        was_written && expected.is_none_or(|expected| sum != expected && sum != !expected)
    }

    /// Whether the first block of a buffer, which should describe the chunk of a place, is damaged,
    /// although it was written.
    pub(super) fn is_metadata_damaged(self, place: Physical, buffer: &BlockBuffer) -> bool {
        let segment = &self.segments[place.segment];
        let (slot, _) = segment.layout.place_of(place.offset);
        let mut first = buffer.data.iter().take(self.spec.shape.block_bytes);
        let was_written = slot < segment.slots.complete_stripes() || first.any(|&byte| byte != 0);
        was_written && self.metadata_of(place, buffer, 0).is_none()
    }

    /// Whether the checksums in memory, if any, prove that a block is intact.
    pub(super) fn is_proven(self, block: Physical, data: &[u8]) -> bool {
        let segment = &self.segments[block.segment];
        let sums = segment.sums.get(block.member.as_usize());
        sums.is_some_and(|sums| sums[segment.layout.entry_of(block.offset) as usize] == crc(data))
    }

    /// Metadata of a block, if it is of this place. In band it is in the first block of the buffer,
    /// which is the first of the chunk.
    #[inline]
    pub(super) fn metadata_of(self, block: Physical, buffer: &BlockBuffer, at: usize) -> Option<BlockMeta> {
        let segment = &self.segments[block.segment];
        let (slot, in_chunk) = segment.layout.place_of(block.offset);
        let meta = if self.spec.shape.is_in_band {
            let place = Place { array: self.spec.array, segment: segment.sequence, member: block.member.0 };
            let chunk = read_chunk_meta(&place, buffer.data.get(..self.spec.shape.block_bytes)?)?;
            let &(record, block_crc) = chunk.entries.get(in_chunk as usize)?;
            BlockMeta { record, block_crc, stripe: chunk.stripe }
        } else {
            let bytes = usize::from(self.members[block.member].geometry().metadata_bytes);
            let metadata = buffer.metadata.get(at * bytes..(at + 1) * bytes)?;
            BlockMeta::read_oob(segment.seeds[block.member.as_usize()], in_chunk, metadata)?
        };
        (segment.slots.stripe_at(block.member, slot) == Some(meta.stripe)).then_some(meta)
    }
}

/// Without contents the records are in memory.
pub(in crate::machine) fn record_in_memory(segments: &Segments, place: Physical) -> Record {
    let segment = &segments[place.segment];
    let lba = segment.lbas[place.member.as_usize()][segment.layout.entry_of(place.offset) as usize];
    Record { lba, timestamp: 0, data_crc: 0 }
}
