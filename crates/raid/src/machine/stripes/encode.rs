//! Contents of a stripe for each member: its chunk, and the metadata of the chunk's blocks.

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, Payload};

use super::super::members::Members;
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::spare::Use;
use super::{Stripe, StripeKey, Stripes};
use crate::MemberIndex;
use crate::format::{BlockMeta, PADDING_LBA, Place, RECORD_BYTES, Record, crc, write_chunk_meta};
use crate::limits::MEMBERS_MAX;
use crate::tables::{Segment, SegmentIndex};

impl Stripes {
    /// The contents of a stripe's chunk for each member; empty without contents.
    pub(super) fn chunks(
        &mut self,
        spec: &Spec,
        members: &Members,
        segments: &Segments,
        key: StripeKey,
        segment_index: SegmentIndex,
    ) -> [Payload; MEMBERS_MAX] {
        let mut payloads = [const { Payload::None }; MEMBERS_MAX];
        if !spec.has_contents() {
            return payloads;
        }
        let stream = self.slab[key].stream;
        let payload_blocks = segments[segment_index].layout.payload_blocks() as usize;
        let chunk_bytes = payload_blocks * spec.shape.block_bytes;
        let (data, parity) = (spec.code.data(), spec.code.parity());
        let mut chunks = std::mem::take(&mut self.spare.chunks);
        let stripe = &self.slab[key];
        chunks.extend((0..data).map(|chunk| {
            let first = (chunk * payload_blocks) as u32;
            stripe.chunk(first, payload_blocks as u32, spec.shape.block_bytes, &spec.zeros)
        }));
        if parity > 0 {
            let mut bytes = self.spare.buffer(stream, Use::Parity, parity * chunk_bytes);
            spec.encode(chunks.iter().map(|chunk| &chunk[..]), &mut bytes);
            let bytes = bytes.freeze();
            chunks.extend((0..parity).map(|at| bytes.slice(at * chunk_bytes..(at + 1) * chunk_bytes)));
            self.slab[key].buffers[Use::Parity as usize] = bytes;
        }
        self.describe_chunks(spec, key, payload_blocks, &chunks);
        if spec.shape.is_in_band {
            self.put_metadata_in_band(spec, key, &segments[segment_index], &mut chunks);
        }
        let metadata = self.metadata_beside(spec, members, key, &segments[segment_index]);
        let number = self.slab[key].number;
        let mut from = 0;
        for (at, payload) in payloads.iter_mut().enumerate().take(spec.members()) {
            let member = MemberIndex(at as u8);
            let bytes = metadata_bytes(members, member, &segments[segment_index]);
            let buffer = BlockBuffer {
                data: std::mem::take(&mut chunks[spec.shape.chunk_of(member, number)]),
                metadata: metadata.slice(from..from + bytes),
            };
            *payload = Payload::Bytes(Box::new(buffer));
            from += bytes;
        }
        self.slab[key].buffers[Use::Metadata as usize] = metadata;
        chunks.clear();
        self.spare.chunks = chunks;
        payloads
    }

    /// Computes the metadata of all blocks of a stripe.
    fn describe_chunks(&mut self, spec: &Spec, key: StripeKey, payload_blocks: usize, chunks: &[Bytes]) {
        let block_bytes = spec.shape.block_bytes;
        let mut records = std::mem::take(&mut self.spare.records);
        records.resize(chunks.len() * payload_blocks * RECORD_BYTES, 0);
        let stripe = &mut self.slab[key];
        stripe.metas.clear();
        for block in chunks.iter().flat_map(|chunk| chunk.chunks_exact(block_bytes)) {
            stripe.metas.push(BlockMeta { block_crc: crc(block), stripe: stripe.number, ..BlockMeta::BLANK });
        }
        let data_blocks = spec.code.data() * payload_blocks;
        for (at, bytes) in records.chunks_exact_mut(RECORD_BYTES).enumerate().take(data_blocks) {
            let data_crc = stripe.metas[at].block_crc;
            let record = match stripe.blocks.get(at) {
                Some(block) => Record { lba: block.lba, timestamp: block.timestamp, data_crc },
                None => Record { lba: PADDING_LBA, timestamp: 0, data_crc },
            };
            bytes.copy_from_slice(&record.to_bytes());
        }
        if spec.code.parity() > 0 {
            let (inputs, outputs) = records.split_at_mut(data_blocks * RECORD_BYTES);
            spec.encode(inputs.chunks_exact(payload_blocks * RECORD_BYTES), outputs);
        }
        for (meta, record) in self.slab[key].metas.iter_mut().zip(records.chunks_exact(RECORD_BYTES)) {
            meta.record.copy_from_slice(record);
        }
        self.spare.records = records;
    }

    /// Inserts the metadata block before the blocks of each chunk.
    fn put_metadata_in_band(&mut self, spec: &Spec, key: StripeKey, segment: &Segment, chunks: &mut [Bytes]) {
        let stripe = &self.slab[key];
        let block_bytes = spec.shape.block_bytes;
        let payload_blocks = segment.layout.payload_blocks() as usize;
        let slot_bytes = (1 + payload_blocks) * block_bytes;
        let mut whole = self.spare.buffer(stripe.stream, Use::Slots, chunks.len() * slot_bytes);
        for (at, slot) in whole.chunks_exact_mut(slot_bytes).enumerate() {
            let member = spec.shape.member_of(at, stripe.number).0;
            let place = Place { array: spec.array, segment: segment.sequence, member };
            let metas = &stripe.metas[at * payload_blocks..(at + 1) * payload_blocks];
            let entries: Vec<([u8; RECORD_BYTES], u32)> =
                metas.iter().map(|meta| (meta.record, meta.block_crc)).collect();
            let (described, payload) = slot.split_at_mut(block_bytes);
            write_chunk_meta(&place, stripe.number, &entries, described);
            payload.copy_from_slice(&chunks[at]);
        }
        let whole = whole.freeze();
        for (at, chunk) in chunks.iter_mut().enumerate() {
            *chunk = whole.slice(at * slot_bytes..(at + 1) * slot_bytes);
        }
        self.slab[key].buffers[Use::Slots as usize] = whole;
    }

    /// The metadata bytes of all members' chunks, one behind the other. With metadata in band they
    /// are zeros.
    fn metadata_beside(&mut self, spec: &Spec, members: &Members, key: StripeKey, segment: &Segment) -> Bytes {
        let all: usize = (0..spec.members() as u8).map(|at| metadata_bytes(members, MemberIndex(at), segment)).sum();
        let Stripe { stream, number, .. } = self.slab[key];
        let mut metadata = self.spare.buffer(stream, Use::Metadata, all);
        if spec.shape.is_in_band {
            return metadata.freeze();
        }
        let stripe = &self.slab[key];
        let payload_blocks = segment.layout.payload_blocks() as usize;
        let mut rest = &mut metadata[..];
        for (at, member) in members.iter().enumerate() {
            let bytes = usize::from(member.geometry().metadata_bytes);
            let (now, later) = rest.split_at_mut(bytes * payload_blocks);
            let first = spec.shape.chunk_of(MemberIndex(at as u8), number) * payload_blocks;
            for ((row, meta), out) in (0..).zip(&stripe.metas[first..]).zip(now.chunks_exact_mut(bytes)) {
                meta.write_oob(segment.seeds[at], row, out);
            }
            rest = later;
        }
        metadata.freeze()
    }
}

/// Metadata bytes of one member's chunk.
fn metadata_bytes(members: &Members, member: MemberIndex, segment: &Segment) -> usize {
    usize::from(members[member].geometry().metadata_bytes) * segment.layout.unit_blocks as usize
}
