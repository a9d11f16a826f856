//! What was read is compared: each block with its metadata, and parity with the data.

use bytes::{Bytes, BytesMut};

use super::super::Volume;
use super::super::pieces::{Chunk, Piece};
use super::super::rebuild::Recoveries;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{RECORD_BYTES, Record, crc};
use crate::tables::Physical;

/// What the comparison of a run has brought.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) blocks: u64,
    /// Blocks that are wrong and are not of the volume's contents: parity, tombstones, versions that are not needed.
    pub(super) others: u64,
    /// Blocks that are needed, are wrong, and cannot be computed.
    pub(super) unreadable: Vec<Physical>,
    /// Those that can.
    pub(super) repairs: Vec<(Physical, Record, Bytes)>,
}

impl Found {
    pub(super) fn is_damaged(&self) -> bool {
        self.others > 0 || !self.unreadable.is_empty() || !self.repairs.is_empty()
    }
}

impl Volume {
    pub(super) fn compare(&self, piece: &Piece, stripe: u32, found: &mut Found) {
        let segment = &self.segments[piece.segment];
        let members = self.spec.member_indices();
        let unit = u64::from(segment.layout.unit_blocks);
        found.blocks += members.clone().filter(|&member| piece.chunk(stripe, member).is_some()).count() as u64 * unit;
        // A stripe that was never completed need not be right. But damage in it may look as if it had been, to a mount without the
        // member that says otherwise.
        let is_complete = members.clone().all(|member| segment.slots.slot_of(member, stripe).is_some());
        if !self.spec.has_contents() || !is_complete {
            let chunks = members.filter_map(|member| piece.chunk(stripe, member));
            found.others += chunks.map(|chunk| chunk.damaged_blocks(self.spec.shape.block_bytes)).sum::<u64>();
            return;
        }
        let mut recoveries = Recoveries::new();
        let wrong_parity = self.wrong_parity(piece, stripe);
        for member in members {
            let Some(chunk) = piece.chunk(stripe, member) else { continue };
            let slot = segment.slots.slot_of(member, stripe).expect("the stripe is complete");
            for (block, record) in chunk.records.iter().enumerate() {
                let is_wrong = record.is_none() || wrong_parity.contains(&(member, block));
                if !is_wrong {
                    continue;
                }
                let offset = segment.layout.offset_of(slot, block as u32);
                let place = Physical { segment: piece.segment, member, offset };
                if !segment.is_live(member, offset) {
                    found.others += 1;
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

    /// Blocks of parity that are whole, and not that of the data.
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
