//! Chunks of a piece arrive: each block is compared with what its metadata says of it.

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, Outcome, Payload, Status};

use super::super::Volume;
use super::Chunk;
use crate::MemberIndex;
use crate::format::{BlockMeta, Place, RECORD_BYTES, crc, read_chunk_meta};
use crate::tables::Segment;

impl Volume {
    pub(in super::super) fn on_slots(
        &mut self,
        member: MemberIndex,
        index: u32,
        slot: u32,
        count: u32,
        status: Status,
        outcome: Outcome,
    ) {
        if !self.pieces[index].is_abandoned {
            if status.is_success() {
                self.take_slots(member, index, slot, count, outcome);
            } else {
                self.slots_failed(member, index, slot, count, status);
            }
        }
        self.piece_step(index);
    }

    /// Slots could not be read.
    fn slots_failed(&mut self, member: MemberIndex, index: u32, slot: u32, count: u32, status: Status) {
        let segment_index = self.pieces[index].segment;
        if !self.members[member].is_present() {
            return;
        }
        if status != Status::UnrecoveredReadError {
            self.suspect(member, segment_index);
            let piece = &mut self.pieces[index];
            if piece.retries > 0 {
                piece.retries -= 1;
                self.read_slots(index, member, slot, count);
            } else {
                piece.failed.push((member, slot, count));
            }
            return;
        }
        if count > 1 {
            // Which of them it is, each one says.
            return (slot..slot + count).for_each(|slot| self.read_slots(index, member, slot, 1));
        }
        let segment = &self.segments[segment_index];
        if let Some(stripe) = segment.slots.stripe_at(member, slot) {
            let payload = segment.layout.payload_blocks() as usize;
            let data =
                if self.spec.has_contents() { vec![0; payload * self.spec.shape.block_bytes] } else { Vec::new() };
            let chunk = Chunk { data: data.into(), records: vec![None; payload] };
            self.pieces[index].chunks.insert((stripe, member.0), chunk);
        }
    }

    fn take_slots(&mut self, member: MemberIndex, index: u32, slot: u32, count: u32, outcome: Outcome) {
        let segment_index = self.pieces[index].segment;
        let unit = self.segments[segment_index].layout.unit_blocks as usize;
        let buffer = match outcome {
            Outcome::Data(Payload::Bytes(buffer)) => Some(*buffer),
            _ => None,
        };
        for at in 0..count {
            let segment = &self.segments[segment_index];
            let Some(stripe) = segment.slots.stripe_at(member, slot + at) else { continue };
            let chunk = if self.spec.has_contents() {
                let Some(buffer) = &buffer else { return };
                self.found_chunk(segment, member, stripe, buffer, at as usize * unit)
            } else {
                Some(Chunk { data: Bytes::new(), records: Vec::new() })
            };
            if let Some(chunk) = chunk {
                self.pieces[index].chunks.insert((stripe, member.0), chunk);
            }
        }
    }

    /// The chunk that begins at a block of a buffer; `None` of a buffer that is too short.
    pub(in super::super) fn found_chunk(
        &self,
        segment: &Segment,
        member: MemberIndex,
        stripe: u32,
        buffer: &BlockBuffer,
        from: usize,
    ) -> Option<Chunk> {
        let block_bytes = self.spec.shape.block_bytes;
        let (unit, payload) = (segment.layout.unit_blocks as usize, segment.layout.payload_blocks() as usize);
        let whole = buffer.data.get(from * block_bytes..(from + unit) * block_bytes)?;
        let first = from + (unit - payload);
        let data = buffer.data.slice(first * block_bytes..(from + unit) * block_bytes);
        let sums: Vec<Option<([u8; RECORD_BYTES], u32)>> = if self.spec.shape.is_in_band {
            let place = Place { array: self.spec.array, segment: segment.sequence, member: member.0 };
            let meta = read_chunk_meta(&place, &whole[..block_bytes]).filter(|meta| meta.stripe == stripe);
            let entries = meta.map(|meta| meta.entries).unwrap_or_default();
            (0..payload).map(|block| entries.get(block).copied()).collect()
        } else {
            let bytes = usize::from(self.members[member].geometry().metadata_bytes);
            let seed = segment.seeds[member.as_usize()];
            let meta = |block: usize| {
                let meta = BlockMeta::read_oob(seed, buffer.metadata.get(block * bytes..(block + 1) * bytes)?)?;
                (meta.stripe == stripe).then_some((meta.record, meta.block_crc))
            };
            (first..from + unit).map(meta).collect()
        };
        let blocks = data.chunks(block_bytes);
        let records =
            sums.into_iter().zip(blocks).map(|(sum, block)| sum.filter(|sum| crc(block) == sum.1).map(|sum| sum.0));
        let records = records.collect();
        Some(Chunk { data, records })
    }
}
