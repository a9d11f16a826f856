//! Computes chunks from the others of their stripes.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use zonda_erasure::Recovery;

use super::super::Volume;
use super::super::pieces::{Chunk, Piece, PieceKey};
use super::job::{Part, Ready};
use crate::MemberIndex;
use crate::format::{BlockMeta, PADDING_LBA, Place, RECORD_BYTES, Record, TOMBSTONE_LBA, crc, write_chunk_meta};
use crate::shape::bits;
use crate::tables::{Physical, SegmentIndex};

/// Recoveries, each computed once per piece.
pub(in super::super) type Recoveries = BTreeMap<(u32, usize), Option<Recovery>>;

impl Volume {
    /// The members to read first, as bits: no more than needed without errors.
    pub(super) fn sources(&self, index: SegmentIndex, target: MemberIndex) -> u32 {
        let readable = self.readable(index) & !(1 << target.0);
        if !self.spec.shape.scheme.is_rotated() {
            // Here chunks are those of member indices.
            let recovery = self.spec.code.recover(readable, &[target.as_usize()]);
            return recovery.map_or(readable, |recovery| bits(recovery.sources));
        }
        bits((0..self.spec.members()).filter(|member| readable >> member & 1 == 1).take(self.spec.shape.data()))
    }

    /// The chunks of a run have arrived.
    pub(in super::super) fn on_rebuild_piece(&mut self, key: PieceKey) {
        let piece = &self.pieces[key];
        let super::super::pieces::Owner::Rebuild(target) = piece.owner else { unreachable!("a rebuild's piece") };
        let more = self.readable(piece.segment) & !piece.requested & !(1 << target.0);
        if more != 0 && !self.suffices(piece, target) {
            return self.read_more_from(key, more);
        }
        if self.may_be_readable(key) && !self.suffices(&self.pieces[key], target) {
            // A block that is temporarily unreadable is not lost.
            return self.retry_later(key);
        }
        let piece = self.end_piece(key);
        let (ready, metas) = self.compute_piece(&piece, target);
        let payload = self.segments[piece.segment].layout.payload_blocks();
        let job = self.rebuild.job.as_mut().expect("an unneeded piece is abandoned");
        let from = (piece.run.first * payload) as usize;
        if !metas.is_empty() {
            job.entries[from..from + metas.len()].copy_from_slice(&metas);
        }
        let part = job.parts.iter_mut().find(|part| matches!(part, Part::Piece(other) if *other == key));
        *part.expect("a piece in progress is a part of the zone") = Part::Ready(ready);
    }

    /// Whether each chunk of a run can be computed from the available ones.
    fn suffices(&self, piece: &Piece, target: MemberIndex) -> bool {
        let mut recoveries = Recoveries::new();
        piece.stripes().iter().all(|&stripe| {
            let whole = self.chunks_where(piece, stripe, target, Chunk::is_whole);
            let wanted = self.spec.shape.chunk_of(target, stripe);
            recoveries.entry((whole, wanted)).or_insert_with(|| self.spec.code.recover(whole, &[wanted])).is_some()
        })
    }

    /// The intact chunks of a stripe, as bits; that of `target` is ignored.
    pub(in super::super) fn chunks_where(
        &self,
        piece: &Piece,
        stripe: u32,
        target: MemberIndex,
        is_right: impl Fn(&Chunk) -> bool,
    ) -> u32 {
        let members = self.spec.member_indices();
        let others = members.filter(|&member| member != target && piece.chunk(stripe, member).is_some_and(&is_right));
        bits(others.map(|member| self.spec.shape.chunk_of(member, stripe)))
    }

    /// The slots of a run for the target, and their metadata.
    fn compute_piece(&mut self, piece: &Piece, target: MemberIndex) -> (Ready, Vec<BlockMeta>) {
        let spare = self.rebuild.spare.take();
        let segment = &self.segments[piece.segment];
        let layout = segment.layout;
        // Nothing is written behind the last used slot: it would look like a stripe if it were
        // damaged.
        let end_slot = self.rebuild.job.as_ref().map_or(piece.run.end(), |job| piece.run.end().min(job.end_slot));
        let slots = end_slot - piece.run.first;
        let blocks = slots * layout.unit_blocks;
        if !self.spec.has_contents() {
            return (Ready { blocks, data: Bytes::new(), metadata: Bytes::new() }, Vec::new());
        }
        let block_bytes = self.spec.shape.block_bytes;
        let metadata_bytes = usize::from(self.members[target].geometry().metadata_bytes);
        let (unit, payload) = (layout.unit_blocks as usize, layout.payload_blocks() as usize);
        let mut data = spare.unwrap_or_default();
        data.resize(blocks as usize * block_bytes, 0);
        let mut metadata = BytesMut::zeroed(blocks as usize * metadata_bytes);
        let mut metas = vec![BlockMeta::BLANK; slots as usize * payload];
        let mut recoveries = Recoveries::new();
        let mut unreadable: Vec<(Physical, usize)> = Vec::new();
        let mut is_whole = true;
        let seal = Place { array: self.spec.array, segment: segment.sequence, member: target.0 };
        for (at, slot) in (piece.run.first..end_slot).enumerate() {
            let chunk = &mut data[at * unit * block_bytes..(at + 1) * unit * block_bytes];
            // A stripe of which some member never got its chunk does not count, and must not look
            // as if it might.
            let is_complete = |stripe: &u32| {
                self.spec.member_indices().all(|member| segment.slots.slot_of(member, *stripe).is_some())
            };
            let Some(stripe) = segment.slots.stripe_at(target, slot).filter(is_complete) else {
                // An unused slot is blank.
                chunk.fill(0);
                continue;
            };
            let (meta_block, contents) = chunk.split_at_mut((unit - payload) * block_bytes);
            let records = self.compute_chunk(piece, stripe, target, contents, &mut recoveries);
            let is_data = self.spec.shape.chunk_of(target, stripe) < self.spec.code.data();
            for (block, record) in records.into_iter().enumerate() {
                let bytes = &mut contents[block * block_bytes..(block + 1) * block_bytes];
                let sum = crc(bytes);
                // Computed data are verified by their checksum.
                let record = record.filter(|record| !is_data || Record::from_bytes(record).data_crc == sum);
                let meta = &mut metas[at * payload + block];
                *meta = if let Some(record) = record {
                    BlockMeta { record, block_crc: sum, stripe }
                } else {
                    // The checksum does not match the contents: readers detect that. No block is
                    // left blank, not even parity: a mount would treat its stripe as an interrupted
                    // write.
                    bytes.fill(0);
                    let record = Record { lba: PADDING_LBA, timestamp: 0, data_crc: !crc(bytes) };
                    BlockMeta { record: record.to_bytes(), block_crc: record.data_crc, stripe }
                };
                if !self.spec.shape.is_in_band && metadata_bytes > 0 {
                    let from = (at * unit + block) * metadata_bytes;
                    let seed = segment.seeds[target.as_usize()];
                    meta.write_oob(seed, block as u32, &mut metadata[from..from + metadata_bytes]);
                }
                if record.is_none() {
                    is_whole = false;
                    let offset = layout.offset_of(slot, block as u32);
                    let place = Physical { segment: piece.segment, member: target, offset };
                    if segment.is_live(target, offset) || segment.tombstones.contains(&place) {
                        unreadable.push((place, at * payload + block));
                    }
                }
            }
            if self.spec.shape.is_in_band {
                write_chunk_meta(&seal, stripe, &sums_of(&metas[at * payload..(at + 1) * payload]), meta_block);
            }
        }
        self.name_unreadable(&unreadable, &mut metas);
        for &(place, entry) in &unreadable {
            let (at, block) = (entry / payload, entry % payload);
            let segment = &self.segments[piece.segment];
            if self.spec.shape.is_in_band {
                let from = at * unit * block_bytes;
                let out = &mut data[from..from + (unit - payload) * block_bytes];
                let metas = &metas[at * payload..(at + 1) * payload];
                write_chunk_meta(&seal, metas[block].stripe, &sums_of(metas), out);
            } else if metadata_bytes > 0 {
                let from = (at * unit + block) * metadata_bytes;
                let seed = segment.seeds[target.as_usize()];
                metas[entry].write_oob(seed, block as u32, &mut metadata[from..from + metadata_bytes]);
            }
            // Collection rewrites tombstones: the map has their contents.
            if !segment.tombstones.contains(&place) {
                self.found_unreadable(place, None);
            }
        }
        if !unreadable.is_empty() || piece.is_damaged() {
            self.segments.set_damaged(piece.segment);
        }
        if !is_whole {
            // Footers are trusted: a zone with replaced blocks has none.
            self.job().is_complete = false;
        }
        (Ready { blocks, data: data.freeze(), metadata: metadata.freeze() }, metas)
    }

    /// Records the logical blocks of needed blocks that cannot be computed, and timestamps that are
    /// not too old: a mount must not take an older version for the newest one. Nor must it miss
    /// tombstones. Their checksums stay wrong.
    fn name_unreadable(&mut self, unreadable: &[(Physical, usize)], metas: &mut [BlockMeta]) {
        if unreadable.is_empty() {
            return;
        }
        let lbas = self.map.blocks_at(&self.stripes, &unreadable.iter().map(|(place, _)| *place).collect());
        for (place, entry) in unreadable {
            if self.segments[place.segment].tombstones.contains(place) {
                let padding = Record::from_bytes(&metas[*entry].record);
                metas[*entry].record = Record { lba: TOMBSTONE_LBA, ..padding }.to_bytes();
                continue;
            }
            let Some(&lba) = lbas.get(place) else { continue };
            let Some(timestamp) = self.map.timestamp_bound(&self.stripes, lba, *place) else { continue };
            let meta = &mut metas[*entry];
            meta.record = Record { lba, timestamp, ..Record::from_bytes(&meta.record) }.to_bytes();
        }
    }

    /// Computes the blocks of a chunk into `out`, and their records; `None` for those that cannot
    /// be computed.
    pub(in super::super) fn compute_chunk(
        &self,
        piece: &Piece,
        stripe: u32,
        target: MemberIndex,
        out: &mut [u8],
        recoveries: &mut Recoveries,
    ) -> Vec<Option<[u8; RECORD_BYTES]>> {
        let wanted = self.spec.shape.chunk_of(target, stripe);
        let whole = self.chunks_where(piece, stripe, target, Chunk::is_whole);
        let blocks = out.len() / self.spec.shape.block_bytes;
        if let Some(recovery) = self.recovery(whole, wanted, recoveries) {
            let chunks = self.recovery_chunks(piece, stripe, recovery);
            let contents: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk.data[..]).collect();
            recovery.apply(&*self.spec.engine, &contents, &mut [out]);
            let records: Vec<Vec<u8>> =
                chunks.iter().map(|chunk| chunk.records.iter().flatten().flatten().copied().collect()).collect();
            let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
            let mut bytes = vec![0; blocks * RECORD_BYTES];
            recovery.apply(&*self.spec.engine, &records, &mut [&mut bytes]);
            let record = |bytes: &[u8]| Some(bytes.try_into().expect("a record has its length"));
            return bytes.chunks(RECORD_BYTES).map(record).collect();
        }
        let block_bytes = self.spec.shape.block_bytes;
        (0..blocks)
            .zip(out.chunks_mut(block_bytes))
            .map(|(block, out)| self.compute_block(piece, stripe, target, block, out, recoveries))
            .collect()
    }

    /// Computes one block of a chunk, and its record.
    pub(in super::super) fn compute_block(
        &self,
        piece: &Piece,
        stripe: u32,
        target: MemberIndex,
        block: usize,
        out: &mut [u8],
        recoveries: &mut Recoveries,
    ) -> Option<[u8; RECORD_BYTES]> {
        let wanted = self.spec.shape.chunk_of(target, stripe);
        let present = self.chunks_where(piece, stripe, target, |chunk| chunk.records[block].is_some());
        let recovery = self.recovery(present, wanted, recoveries)?;
        let chunks = self.recovery_chunks(piece, stripe, recovery);
        let contents: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.block(block, self.spec.shape.block_bytes)).collect();
        recovery.apply(&*self.spec.engine, &contents, &mut [out]);
        let records: Vec<&[u8]> =
            chunks.iter().filter_map(|chunk| chunk.records[block].as_ref()).map(|record| &record[..]).collect();
        let mut record = [0; RECORD_BYTES];
        recovery.apply(&*self.spec.engine, &records, &mut [&mut record]);
        Some(record)
    }

    fn recovery<'a>(&self, present: u32, wanted: usize, recoveries: &'a mut Recoveries) -> Option<&'a Recovery> {
        recoveries.entry((present, wanted)).or_insert_with(|| self.spec.code.recover(present, &[wanted])).as_ref()
    }

    fn recovery_chunks<'a>(&self, piece: &'a Piece, stripe: u32, recovery: &Recovery) -> Vec<&'a Chunk> {
        let chunk = |&chunk: &usize| {
            piece
                .chunk(stripe, self.spec.shape.member_of(chunk, stripe))
                .expect("sources are among the available chunks")
        };
        recovery.sources.iter().map(chunk).collect()
    }
}

/// Records and checksums in the metadata of a chunk in band.
fn sums_of(metas: &[BlockMeta]) -> Vec<([u8; RECORD_BYTES], u32)> {
    metas.iter().map(|meta| (meta.record, meta.block_crc)).collect()
}
