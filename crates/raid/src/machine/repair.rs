//! Blocks out of the rest of their stripe.

use bytes::{Bytes, BytesMut};
use zonda_erasure::Recovery;
use zonda_zoned::{Blocks, Operation, Outcome, Payload, Status};

use super::Volume;
use super::members::Work;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{RECORD_BYTES, Record, crc};
use crate::tables::Physical;

/// One block that is being computed.
#[derive(Debug)]
pub(super) struct Repair {
    target: Physical,
    /// Which block of which fetch it is.
    fetch: u32,
    at: u32,
    /// Chunks of the stripe that cannot be read, as bits.
    bad: u32,
    recovery: Option<Recovery>,
    /// Where each source is, and what it holds.
    sources: Vec<(Physical, Option<SourceBlock>)>,
    pending: u32,
}

/// Contents and record of a block of a stripe.
type SourceBlock = (Bytes, [u8; RECORD_BYTES]);

impl Volume {
    /// Computes one block of a fetch.
    pub(super) fn repair(&mut self, fetch: u32, at: u32, target: Physical) {
        let repair = Repair { target, fetch, at, bad: 0, recovery: None, sources: Vec::new(), pending: 0 };
        let index = self.repairs.insert(repair);
        self.read_sources(index);
    }

    fn read_sources(&mut self, index: u32) {
        let Repair { target, bad, .. } = self.repairs[index];
        let segment = &self.segments[target.segment];
        let layout = segment.layout;
        let (slot, block) = layout.place_of(target.offset);
        let Some(stripe) = segment.slots.stripe_at(target.member, slot) else {
            return self.end_repair(index, Err(Status::UnrecoveredReadError));
        };
        let wanted = self.spec.shape.chunk_of(target.member, stripe);
        let mut places = [None; crate::limits::MEMBERS_MAX];
        let mut present = 0u32;
        for at in 0..self.spec.members() as u8 {
            let member = MemberIndex(at);
            let chunk = self.spec.shape.chunk_of(member, stripe);
            let is_readable = member != target.member
                && bad >> chunk & 1 == 0
                && segment.has(member)
                && segment.zones[member.as_usize()].is_some()
                && self.members[member].is_present();
            let of_stripe = segment.slots.slot_of(member, stripe);
            let found = if self.spec.has(SeededBug::WrongChunk) { of_stripe.and(Some(slot)) } else { of_stripe };
            if let (true, Some(slot)) = (is_readable, found) {
                places[chunk] =
                    Some(Physical { segment: target.segment, member, offset: layout.offset_of(slot, block) });
                present |= 1 << chunk;
            }
        }
        let Some(recovery) = self.spec.code.recover(present, &[wanted]) else {
            return self.end_repair(index, Err(Status::UnrecoveredReadError));
        };
        let sources: Vec<Physical> = recovery
            .sources
            .iter()
            .map(|&chunk| places[chunk].expect("sources are among the chunks that are there"))
            .collect();
        let repair = &mut self.repairs[index];
        repair.sources = sources.iter().map(|&place| (place, None)).collect();
        repair.pending = sources.len() as u32;
        repair.recovery = Some(recovery);
        for (number, place) in (0..).zip(sources) {
            // With metadata in band a chunk's records come with its first block.
            let skip = if self.spec.shape.is_in_band { block + 1 } else { 0 };
            let segment = &self.segments[place.segment];
            let zone = segment.zones[place.member.as_usize()].expect("it was just there");
            let start = self.members[place.member].lba(zone, place.offset - skip);
            let read = Operation::Read { start, blocks: Blocks(u64::from(skip + 1)) };
            self.members.send(place.member, Work::Source { repair: index, source: number }, read);
        }
    }

    pub(super) fn on_source(&mut self, index: u32, source: u8, status: Status, outcome: &Outcome) {
        let place = self.repairs[index].sources[usize::from(source)].0;
        let found = if !status.is_success() {
            if status != Status::UnrecoveredReadError && self.members[place.member].is_present() {
                self.suspect(place.member, place.segment);
            }
            None
        } else if self.spec.has_contents() {
            self.source_block(place, outcome)
        } else {
            Some((Bytes::new(), [0; RECORD_BYTES]))
        };
        let repair = &mut self.repairs[index];
        repair.pending -= 1;
        match found {
            Some(found) => repair.sources[usize::from(source)].1 = Some(found),
            None => {
                let recovery = repair.recovery.as_ref().expect("sources are read for a recovery");
                repair.bad |= 1 << recovery.sources[usize::from(source)];
            }
        }
        if repair.pending > 0 {
            return;
        }
        if repair.sources.iter().any(|(_, found)| found.is_none()) {
            // Others may do.
            return self.read_sources(index);
        }
        let result = self.compute(index);
        self.end_repair(index, result);
    }

    /// Contents and record of a block, if they are what was written there.
    fn source_block(&self, place: Physical, outcome: &Outcome) -> Option<SourceBlock> {
        let Outcome::Data(Payload::Bytes(buffer)) = outcome else { return None };
        let block_bytes = self.spec.shape.block_bytes;
        let skip = buffer.data.len().checked_sub(block_bytes)?;
        let data = buffer.data.slice(skip..);
        let meta = self.metadata_of(place, buffer, 0)?;
        (crc(&data) == meta.block_crc).then_some((data, meta.record))
    }

    fn compute(&mut self, index: u32) -> Result<(Bytes, Record), Status> {
        self.counters.reconstructed_blocks += 1;
        if !self.spec.has_contents() {
            return Ok((Bytes::new(), self.record_in_memory(self.repairs[index].target)));
        }
        let repair = &self.repairs[index];
        let recovery = repair.recovery.as_ref().expect("sources are read for a recovery");
        let sources: Vec<&SourceBlock> = repair.sources.iter().filter_map(|(_, found)| found.as_ref()).collect();
        let contents: Vec<&[u8]> = sources.iter().map(|(data, _)| &data[..]).collect();
        let records: Vec<&[u8]> = sources.iter().map(|(_, record)| &record[..]).collect();
        let mut data = BytesMut::zeroed(self.spec.shape.block_bytes);
        let mut record = [0; RECORD_BYTES];
        recovery.apply(&*self.spec.engine, &contents, &mut [&mut data]);
        recovery.apply(&*self.spec.engine, &records, &mut [&mut record]);
        let record = Record::from_bytes(&record);
        // What was computed proves itself: its record has a checksum of its own.
        if crc(&data) != record.data_crc {
            return Err(Status::UnrecoveredReadError);
        }
        Ok((data.freeze(), record))
    }

    fn end_repair(&mut self, index: u32, result: Result<(Bytes, Record), Status>) {
        let Repair { fetch, at, .. } = self.repairs.remove(index);
        self.repaired(fetch, at, result);
    }
}
