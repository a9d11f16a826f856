//! Compares blocks with their metadata, and parity with the data.

use bytes::{Bytes, BytesMut};

use super::super::Volume;
use super::super::pieces::{Chunk, Piece};
use super::super::rebuild::Recoveries;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{RECORD_BYTES, Record, crc};
use crate::tables::Physical;

/// The result of comparing a run.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) blocks: u64,
    /// A block of the run is damaged: a needed one, or parity, tombstones, versions that are not
    /// needed.
    pub(super) is_damaged: bool,
    /// Damaged blocks whose own checksums match: parity. Other damage was counted when the block
    /// arrived.
    pub(super) damaged: Vec<Physical>,
    /// Needed blocks that are damaged or on a missing member, and cannot be computed.
    pub(super) unreadable: Vec<Physical>,
    /// Needed blocks that are damaged and can be computed.
    pub(super) repairs: Vec<(Physical, Record, Bytes)>,
}

impl Volume {
    pub(super) fn compare(&self, piece: &Piece, stripe: u32, found: &mut Found) {
        let segment = &self.segments[piece.segment];
        let members = self.spec.member_indices();
        let unit = u64::from(segment.layout.unit_blocks);
        found.blocks += members.clone().filter(|&member| piece.chunk(stripe, member).is_some()).count() as u64 * unit;
        // A stripe that was never complete need not be intact. But damage in it may make it look
        // complete, to a mount without the member that shows otherwise.
        let is_complete = members.clone().all(|member| segment.slots.slot_of(member, stripe).is_some());
        if !self.spec.has_contents() || !is_complete {
            let mut chunks = members.filter_map(|member| piece.chunk(stripe, member));
            found.is_damaged |= chunks.any(|chunk| chunk.has_damage(self.spec.shape.block_bytes));
            return;
        }
        let mut recoveries = Recoveries::new();
        let wrong_parity = self.wrong_parity(piece, stripe);
        for member in members {
            let slot = segment.slots.slot_of(member, stripe).expect("the stripe is complete");
            let Some(chunk) = piece.chunk(stripe, member) else {
                self.compute_absent(piece, stripe, (member, slot), &mut recoveries, found);
                continue;
            };
            for (block, record) in chunk.records.iter().enumerate() {
                let is_wrong = record.is_none() || wrong_parity.contains(&(member, block));
                if !is_wrong {
                    continue;
                }
                let offset = segment.layout.offset_of(slot, block as u32);
                let place = Physical { segment: piece.segment, member, offset };
                found.is_damaged = true;
                if record.is_some() {
                    found.damaged.push(place);
                }
                if !segment.is_live(member, offset) {
                    continue;
                }
                let mut data = BytesMut::zeroed(self.spec.shape.block_bytes);
                let record = self.compute_block(piece, stripe, member, block, &mut data, &mut recoveries);
                let record = record.map(|record| Record::from_bytes(&record));
                let believes_rot = self.spec.has(SeededBug::ScrubBelievesRot);
                if believes_rot {
                    data.copy_from_slice(chunk.block(block, self.spec.shape.block_bytes));
                }
                match record.filter(|record| believes_rot || record.data_crc == crc(&data)) {
                    Some(record) => found.repairs.push((place, record, data.freeze())),
                    None => found.unreadable.push(place),
                }
            }
        }
    }

    /// Computes the chunk of a missing member, or of a lost zone: reports needed blocks that cannot
    /// be computed.
    fn compute_absent(
        &self,
        piece: &Piece,
        stripe: u32,
        (member, slot): (MemberIndex, u32),
        recoveries: &mut Recoveries,
        found: &mut Found,
    ) {
        let segment = &self.segments[piece.segment];
        let block_bytes = self.spec.shape.block_bytes;
        let payload = segment.layout.payload_blocks();
        let is_live = |block: &u32| segment.is_live(member, segment.layout.offset_of(slot, *block));
        if !(0..payload).any(|block| is_live(&block)) {
            return;
        }
        let mut data = vec![0; payload as usize * block_bytes];
        let records = self.compute_chunk(piece, stripe, member, &mut data, recoveries);
        for block in (0..payload).filter(is_live) {
            let at = block as usize;
            let sum = crc(&data[at * block_bytes..(at + 1) * block_bytes]);
            if records[at].is_none_or(|record| Record::from_bytes(&record).data_crc != sum) {
                let offset = segment.layout.offset_of(slot, block);
                found.unreadable.push(Physical { segment: piece.segment, member, offset });
            }
        }
    }

    /// Undamaged blocks of parity that do not match the data.
    fn wrong_parity(&self, piece: &Piece, stripe: u32) -> Vec<(MemberIndex, usize)> {
        let (data, parity) = (self.spec.code.data(), self.spec.code.parity());
        let holder = |chunk: usize| self.spec.shape.member_of(chunk, stripe);
        let chunks: Option<Vec<&Chunk>> =
            (0..data).map(|chunk| piece.chunk(stripe, holder(chunk)).filter(|chunk| chunk.is_whole())).collect();
        let Some(chunks) = chunks.filter(|_| parity > 0) else { return Vec::new() };
        let payload = chunks[0].records.len();
        let contents: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk.data[..]).collect();
        let coded = self.coded(&contents, payload * self.spec.shape.block_bytes);
        let records: Vec<Vec<u8>> =
            chunks.iter().map(|chunk| chunk.records.iter().flatten().flatten().copied().collect()).collect();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let coded_records = self.coded(&records, payload * RECORD_BYTES);
        let mut wrong = Vec::new();
        for at in 0..parity {
            let member = holder(data + at);
            let Some(chunk) = piece.chunk(stripe, member) else { continue };
            let expected = coded[at].chunks(self.spec.shape.block_bytes).zip(coded_records[at].chunks(RECORD_BYTES));
            for (block, (contents, record)) in expected.enumerate() {
                let is_right = chunk.block(block, self.spec.shape.block_bytes) == contents
                    && chunk.records[block].is_some_and(|found| found[..] == *record);
                if chunk.records[block].is_some() && !is_right {
                    wrong.push((member, block));
                }
            }
        }
        wrong
    }

    pub(in super::super) fn coded(&self, data: &[&[u8]], bytes: usize) -> Vec<Vec<u8>> {
        let mut parity = vec![vec![0; bytes]; self.spec.code.parity()];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        self.spec.code.encode(&*self.spec.engine, data, &mut outputs);
        parity
    }
}
