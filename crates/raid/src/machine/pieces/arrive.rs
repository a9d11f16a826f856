//! Chunks of a piece arrive: each block is compared with its metadata.

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, Outcome, Payload, Status};

use super::super::Volume;
use super::{Chunk, PieceKey};
use crate::MemberIndex;
use crate::format::{BlockMeta, Place, RECORD_BYTES, crc, read_chunk_meta};
use crate::tables::Segment;

impl Volume {
    pub(in super::super) fn on_slots(
        &mut self,
        member: MemberIndex,
        key: PieceKey,
        slot: u32,
        count: u32,
        status: Status,
        outcome: Outcome,
    ) {
        if !self.pieces[key].is_abandoned {
            if status.is_success() {
                let buffer = match outcome {
                    Outcome::Data(Payload::Bytes(buffer)) => *buffer,
                    _ => BlockBuffer::default(),
                };
                self.take_slots(member, key, slot, count, &buffer, &[]);
            } else {
                self.slots_failed(member, key, slot, count, status);
            }
        }
        self.piece_step(key);
    }

    /// Slots could not be read.
    fn slots_failed(&mut self, member: MemberIndex, key: PieceKey, slot: u32, count: u32, status: Status) {
        let segment_index = self.pieces[key].segment;
        if !self.members[member].is_present() {
            return;
        }
        if status != Status::UnrecoveredReadError {
            self.suspect(member, segment_index);
            let piece = &mut self.pieces[key];
            if piece.retries > 0 {
                piece.retries -= 1;
                self.read_slots(key, member, slot, count);
            } else {
                piece.failed.push((member, slot, count));
            }
            return;
        }
        if count > 1 {
            // Each of them identifies itself.
            return (slot..slot + count).for_each(|slot| self.read_slots(key, member, slot, 1));
        }
        let segment = &self.segments[segment_index];
        if self.spec.has_contents() && segment.layout.unit_blocks > 1 {
            return self.read_slot_singly(key, member, slot);
        }
        let first = segment.layout.slot_offset(slot);
        if let Some(stripe) = segment.slots.stripe_at(member, slot) {
            let payload = segment.layout.payload_blocks() as usize;
            let data =
                if self.spec.has_contents() { vec![0; payload * self.spec.shape.block_bytes] } else { Vec::new() };
            let chunk = Chunk { data: data.into(), records: vec![None; payload] };
            self.pieces[key].chunks.insert((stripe, member.0), chunk);
            self.found_damaged_at(segment_index, member, &[first]);
        }
    }

    /// A block of a slot that could not be read as a whole.
    pub(in super::super) fn on_slot_block(
        &mut self,
        member: MemberIndex,
        (key, slot, at): (PieceKey, u32, u32),
        status: Status,
        outcome: Outcome,
    ) {
        let block_bytes = self.spec.shape.block_bytes;
        let chunk = (member.0, slot);
        let piece = &mut self.pieces[key];
        let singly = piece.singly.get_mut(&chunk).expect("its blocks are read one by one");
        if singly.add(at, status, outcome, block_bytes)
            && let Some(singly) = piece.singly.remove(&chunk)
            && !piece.is_abandoned
        {
            let metadata_bytes = usize::from(self.members[member].geometry().metadata_bytes);
            let (buffer, failed) = singly.into_buffer(block_bytes, metadata_bytes);
            self.take_slots(member, key, slot, 1, &buffer, &failed);
        }
        self.piece_step(key);
    }

    /// Slots have arrived; `failed` has the status of unreadable blocks; none if it is empty.
    fn take_slots(
        &mut self,
        member: MemberIndex,
        key: PieceKey,
        slot: u32,
        count: u32,
        buffer: &BlockBuffer,
        failed: &[Option<Status>],
    ) {
        let segment_index = self.pieces[key].segment;
        let unit = self.segments[segment_index].layout.unit_blocks as usize;
        for at in 0..count {
            let segment = &self.segments[segment_index];
            let Some(stripe) = segment.slots.stripe_at(member, slot + at) else { continue };
            let chunk = if self.spec.has_contents() {
                self.found_chunk(segment, member, (slot + at, stripe), buffer, at as usize * unit, failed)
            } else {
                Some((Chunk { data: Bytes::new(), records: Vec::new() }, Vec::new()))
            };
            if let Some((chunk, damaged)) = chunk {
                self.pieces[key].chunks.insert((stripe, member.0), chunk);
                self.found_damaged_at(segment_index, member, &damaged);
            }
        }
    }

    /// The chunk at an offset of a buffer, and its damaged blocks; `None` if the buffer is too
    /// short.
    pub(in super::super) fn found_chunk(
        &self,
        segment: &Segment,
        member: MemberIndex,
        (slot, stripe): (u32, u32),
        buffer: &BlockBuffer,
        from: usize,
        failed: &[Option<Status>],
    ) -> Option<(Chunk, Vec<u32>)> {
        let block_bytes = self.spec.shape.block_bytes;
        let (unit, payload) = (segment.layout.unit_blocks as usize, segment.layout.payload_blocks() as usize);
        let whole = buffer.data.get(from * block_bytes..(from + unit) * block_bytes)?;
        let first = from + (unit - payload);
        let data = buffer.data.slice(first * block_bytes..(from + unit) * block_bytes);
        let has_failed = |block: usize| failed.get(block).is_some_and(Option::is_some);
        let is_on_medium = |block: usize| failed.get(block).copied().flatten() == Some(Status::UnrecoveredReadError);
        let was_written = |block: usize| {
            let bytes = &buffer.data[block * block_bytes..(block + 1) * block_bytes];
            slot < segment.slots.complete_stripes() || bytes.iter().any(|&byte| byte != 0)
        };
        let mut damaged = Vec::new();
        let mut note = |at: usize| damaged.push(segment.layout.slot_offset(slot) + at as u32);
        let mut has_metadata = true;
        let sums: Vec<Option<([u8; RECORD_BYTES], u32)>> = if self.spec.shape.is_in_band {
            let place = Place { array: self.spec.array, segment: segment.sequence, member: member.0 };
            let meta = read_chunk_meta(&place, &whole[..block_bytes]).filter(|meta| meta.stripe == stripe);
            has_metadata = meta.is_some() && !has_failed(from);
            if is_on_medium(from) || !has_failed(from) && meta.is_none() && was_written(from) {
                note(0);
            }
            let entries = meta.map(|meta| meta.entries).unwrap_or_default();
            (0..payload).map(|block| entries.get(block).copied()).collect()
        } else {
            let bytes = usize::from(self.members[member].geometry().metadata_bytes);
            let seed = segment.seeds[member.as_usize()];
            let meta = |block: usize| {
                let row = (block - first) as u32;
                let meta = BlockMeta::read_oob(seed, row, buffer.metadata.get(block * bytes..(block + 1) * bytes)?)?;
                (meta.stripe == stripe).then_some((meta.record, meta.block_crc))
            };
            (first..from + unit).map(meta).collect()
        };
        let in_memory = segment.sums.get(member.as_usize());
        let mut records = Vec::with_capacity(payload);
        for (at, (sum, block)) in sums.into_iter().zip(data.chunks(block_bytes)).enumerate() {
            let found = crc(block);
            let has_failed = has_failed(first + at);
            let record = sum.filter(|sum| !has_failed && found == sum.1).map(|sum| sum.0);
            if record.is_none() {
                let expected = match in_memory {
                    // Its description is damaged, and a mount could not read that either.
                    Some(sums) if !has_metadata => Some(sums[slot as usize * payload + at]).filter(|&sum| sum != 0),
                    _ => sum.map(|sum| sum.1),
                };
                // Blocks that a rebuild could not compute have a checksum that is wrong in a
                // specific way.
                let is_wrong = match expected {
                    Some(expected) => found != expected && found != !expected,
                    None => has_metadata,
                };
                if is_on_medium(first + at) || !has_failed && is_wrong && was_written(first + at) {
                    note(unit - payload + at);
                }
            }
            records.push(record);
        }
        Some((Chunk { data, records }, damaged))
    }
}
