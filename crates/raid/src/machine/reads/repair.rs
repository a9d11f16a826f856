//! Reconstruction of a block from the rest of its stripe.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use zonda_erasure::Recovery;
use zonda_zoned::{Blocks, Operation, Outcome, Payload, Status};

use super::super::members::{Members, Work};
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::singly::Singly;
use super::verify::{Verifier, record_in_memory};
use super::{BlockRead, Computed, FetchKey, Reads, RepairKey};
use crate::bug::SeededBug;
use crate::format::{RECORD_BYTES, Record, crc};
use crate::limits::MEMBERS_MAX;
use crate::shape::bits;
use crate::tables::Physical;

/// A block that is being computed.
#[derive(Debug)]
pub(in crate::machine) struct Repair {
    target: Physical,
    /// The fetch, and its block.
    fetch: FetchKey,
    at: u32,
    /// Chunks of the stripe that cannot be read, as bits.
    bad: u32,
    /// Chunks on present members that were not found bad, as bits.
    readable: u32,
    /// Bad ones that failed for another reason than their medium: they may be intact.
    unknown: u32,
    /// None while the block itself is read.
    recovery: Option<Recovery>,
    /// The block itself was read: its member may hold it by now.
    has_read_own: bool,
    /// The place of each source, and its contents.
    sources: Vec<(Physical, Option<SourceBlock>)>,
    /// Sources whose metadata and contents are read separately.
    singly: BTreeMap<u8, Singly>,
    pending: u32,
}

/// Contents and record of a block of a stripe.
type SourceBlock = (Bytes, [u8; RECORD_BYTES]);

impl Reads {
    /// Computes a block of a fetch. Returns it if it is known at once that it cannot be computed.
    pub(super) fn repair(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &Segments,
        (fetch, at): (FetchKey, u32),
        target: Physical,
    ) -> Option<Computed> {
        let repair = Repair {
            target,
            fetch,
            at,
            bad: 0,
            readable: 0,
            unknown: 0,
            recovery: None,
            has_read_own: false,
            sources: Vec::new(),
            singly: BTreeMap::new(),
            pending: 0,
        };
        let key = self.repairs.insert(repair);
        self.read_sources(spec, members, segments, key)
    }

    /// The member of a source has answered. Returns the place if it is to be suspected because of
    /// the answer.
    pub(in crate::machine) fn on_source_answer(
        &self,
        members: &Members,
        key: RepairKey,
        source: u8,
        status: Status,
    ) -> Option<Physical> {
        let place = self.repairs[key].sources[usize::from(source)].0;
        let is_fault = !status.is_success() && status != Status::UnrecoveredReadError;
        (is_fault && members[place.member].is_present()).then_some(place)
    }

    /// A read of a source has ended. Returns the block if it is computed, or cannot be.
    #[expect(clippy::too_many_arguments, reason = "the owners that a read reaches, and what has come")]
    pub(in crate::machine) fn on_source(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &Segments,
        key: RepairKey,
        source: u8,
        status: Status,
        outcome: &Outcome,
    ) -> Option<Computed> {
        let place = self.repairs[key].sources[usize::from(source)].0;
        let is_medium = status == Status::UnrecoveredReadError && members[place.member].is_present();
        if is_medium && spec.has_contents() && self.read_source_singly(spec, members, segments, key, source) {
            return None;
        }
        if is_medium && !spec.shape.is_in_band {
            self.damaged.push(place);
        }
        let found = if !status.is_success() {
            None
        } else if spec.has_contents() {
            let found = source_block(Verifier { spec, members, segments }, place, outcome);
            if found.is_none() {
                self.note_damaged_source(Verifier { spec, members, segments }, place, outcome, &[]);
            }
            found
        } else {
            Some((Bytes::new(), [0; RECORD_BYTES]))
        };
        self.source_ended(spec, members, segments, (key, source), found, status)
    }

    /// Metadata and contents of a source, or a block between them, could not be read in one
    /// command: reads them separately. Returns whether that is possible.
    fn read_source_singly(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &Segments,
        key: RepairKey,
        source: u8,
    ) -> bool {
        let repair = &mut self.repairs[key];
        let place = repair.sources[usize::from(source)].0;
        let zone = segments[place.segment].zones[place.member.as_usize()];
        let (Some(zone), true) = (zone, spec.shape.is_in_band) else { return false };
        repair.singly.insert(source, Singly::of(2, 2));
        let layout = segments[place.segment].layout;
        let metadata = layout.slot_offset(layout.place_of(place.offset).0);
        for (at, offset) in [(0, metadata), (1, place.offset)] {
            let start = members[place.member].lba(zone, offset);
            let read = Operation::Read { start, blocks: Blocks(1) };
            members.send(place.member, Work::SourceBlock { repair: key, source, at }, read);
        }
        true
    }

    /// One of these reads has ended. Returns the block if it is computed, or cannot be.
    pub(in crate::machine) fn on_source_block(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &Segments,
        (key, source, at): (RepairKey, u8, u32),
        status: Status,
        outcome: Outcome,
    ) -> Option<Computed> {
        let repair = &mut self.repairs[key];
        let place = repair.sources[usize::from(source)].0;
        let singly = repair.singly.get_mut(&source).expect("it is read separately");
        if !singly.add(at, status, outcome, spec.shape.block_bytes) {
            return None;
        }
        let singly = repair.singly.remove(&source)?;
        let metadata_bytes = usize::from(members[place.member].geometry().metadata_bytes);
        let (buffer, failed) = singly.into_buffer(spec.shape.block_bytes, metadata_bytes);
        let outcome = Outcome::Data(Payload::Bytes(Box::new(buffer)));
        let verifier = Verifier { spec, members, segments };
        let found = if failed.iter().all(Option::is_none) { source_block(verifier, place, &outcome) } else { None };
        if found.is_none() {
            self.note_damaged_source(verifier, place, &outcome, &failed);
        }
        let is_other = |status: &&Status| **status != Status::UnrecoveredReadError;
        let status = failed.iter().flatten().find(is_other).copied().unwrap_or(Status::UnrecoveredReadError);
        self.source_ended(spec, members, segments, (key, source), found, status)
    }

    /// A source is damaged: determines which part.
    fn note_damaged_source(
        &mut self,
        verifier: Verifier<'_>,
        place: Physical,
        outcome: &Outcome,
        failed: &[Option<Status>],
    ) {
        let Outcome::Data(Payload::Bytes(buffer)) = outcome else { return };
        let block_bytes = verifier.spec.shape.block_bytes;
        let failure = |at: usize| failed.get(at).copied().flatten();
        let is_medium = |status| status == Status::UnrecoveredReadError;
        let Some(skip) = buffer.data.len().checked_sub(block_bytes) else { return };
        let data = &buffer.data[skip..];
        if failure(1).map_or_else(|| verifier.is_damaged(place, data, buffer, 0), is_medium) {
            self.damaged.push(place);
        }
        let is_metadata_damaged = || verifier.is_metadata_damaged(place, buffer);
        if verifier.spec.shape.is_in_band && failure(0).map_or_else(is_metadata_damaged, is_medium) {
            let layout = verifier.segments[place.segment].layout;
            let offset = layout.slot_offset(layout.place_of(place.offset).0);
            self.damaged.push(Physical { offset, ..place });
        }
    }

    /// The result for a source is known.
    fn source_ended(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &Segments,
        (key, source): (RepairKey, u8),
        found: Option<SourceBlock>,
        status: Status,
    ) -> Option<Computed> {
        let repair = &mut self.repairs[key];
        repair.pending -= 1;
        match found {
            Some(found) => {
                let before = repair.sources[usize::from(source)].1.replace(found);
                assert!(before.is_none(), "a source is read once");
            }
            None => {
                let Some(recovery) = &repair.recovery else {
                    return self.read_sources(spec, members, segments, key);
                };
                let chunk = 1 << recovery.sources[usize::from(source)];
                repair.bad |= chunk;
                let is_medium = status.is_success() || status == Status::UnrecoveredReadError;
                if !is_medium {
                    repair.unknown |= chunk;
                }
            }
        }
        if repair.pending > 0 {
            return None;
        }
        if repair.sources.iter().any(|(_, found)| found.is_none()) {
            // Others may suffice.
            return self.read_sources(spec, members, segments, key);
        }
        self.reconstructed_blocks += u64::from(repair.recovery.is_some());
        let block = compute(spec, segments, &self.repairs[key]);
        // If more chunks can be read than are needed, others of them may suffice.
        let repair = &self.repairs[key];
        let is_hopeless = block.is_err()
            && repair.readable.count_ones() as usize <= spec.code.data()
            && repair.unknown == 0
            && members.present().count() == spec.members();
        Some(self.end_repair(key, block, is_hopeless))
    }

    fn read_sources(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &Segments,
        key: RepairKey,
    ) -> Option<Computed> {
        let Repair { target, bad, .. } = self.repairs[key];
        let segment = &segments[target.segment];
        let layout = segment.layout;
        let (slot, block) = layout.place_of(target.offset);
        let Some(stripe) = segment.slots.stripe_at(target.member, slot) else {
            return Some(self.end_repair(key, Err(Status::UnrecoveredReadError), true));
        };
        let wanted = spec.shape.chunk_of(target.member, stripe);
        let mut places = [None; MEMBERS_MAX];
        let mut present = 0u32;
        for member in spec.member_indices() {
            let chunk = spec.shape.chunk_of(member, stripe);
            let is_readable = member != target.member
                && bad >> chunk & 1 == 0
                && segment.has(member)
                && segment.zones[member.as_usize()].is_some()
                && members[member].is_present();
            let of_stripe = segment.slots.slot_of(member, stripe);
            let found = if spec.has(SeededBug::WrongChunk) { of_stripe.and(Some(slot)) } else { of_stripe };
            if let (true, Some(slot)) = (is_readable, found) {
                places[chunk] =
                    Some(Physical { segment: target.segment, member, offset: layout.offset_of(slot, block) });
                present |= 1 << chunk;
            }
        }
        self.repairs[key].readable = present;
        let Some(recovery) = spec.code.recover(present, &[wanted]) else {
            if self.read_own(spec, members, segments, key) {
                return None;
            }
            let is_hopeless = self.is_hopeless(spec, members, segments, key);
            return Some(self.end_repair(key, Err(Status::UnrecoveredReadError), is_hopeless));
        };
        let place_of = |&chunk: &usize| places[chunk].expect("sources are among the chunks that are present");
        let sources: Vec<Physical> = recovery.sources.iter().map(place_of).collect();
        let repair = &mut self.repairs[key];
        repair.sources = sources.iter().map(|&place| (place, None)).collect();
        repair.pending = sources.len() as u32;
        repair.recovery = Some(recovery);
        for (number, place) in (0..).zip(sources) {
            // With metadata in band a chunk's records are read with its first block.
            let skip = if spec.shape.is_in_band { block + 1 } else { 0 };
            let zone = segment.zones[place.member.as_usize()].expect("its zone can be read");
            let start = members[place.member].lba(zone, place.offset - skip);
            let read = Operation::Read { start, blocks: Blocks(u64::from(skip + 1)) };
            members.send(place.member, Work::Source { repair: key, source: number }, read);
        }
        None
    }

    /// The member of a block lacked it when the block was requested. If it was rebuilt since, it
    /// has the block, and may be needed: members that were read instead may have failed. Returns
    /// whether the block is being read there.
    fn read_own(&mut self, spec: &Spec, members: &mut Members, segments: &Segments, key: RepairKey) -> bool {
        let repair = &mut self.repairs[key];
        let (target, was_read) = (repair.target, self.fetches[repair.fetch].is_damaged);
        let segment = &segments[target.segment];
        let holds = segment.has(target.member) && members[target.member].is_present();
        let (Some(zone), true) = (segment.zones[target.member.as_usize()], holds && !was_read && !repair.has_read_own)
        else {
            return false;
        };
        (repair.has_read_own, repair.recovery) = (true, None);
        (repair.sources, repair.pending) = (vec![(target, None)], 1);
        let skip = if spec.shape.is_in_band { segment.layout.place_of(target.offset).1 + 1 } else { 0 };
        let start = members[target.member].lba(zone, target.offset - skip);
        let read = Operation::Read { start, blocks: Blocks(u64::from(skip + 1)) };
        members.send(target.member, Work::Source { repair: key, source: 0 }, read);
        true
    }

    /// Whether a block can never be computed: not even if every chunk were intact that is on
    /// missing members which took part in the segment, or that failed for another reason than its
    /// medium.
    fn is_hopeless(&self, spec: &Spec, members: &Members, segments: &Segments, key: RepairKey) -> bool {
        let Repair { target, readable, unknown, .. } = self.repairs[key];
        let segment = &segments[target.segment];
        let (slot, _) = segment.layout.place_of(target.offset);
        let Some(stripe) = segment.slots.stripe_at(target.member, slot) else { return true };
        let away = spec.member_indices().filter(|&member| member != target.member && members.may_hold(member, segment));
        let away = bits(away.map(|member| spec.shape.chunk_of(member, stripe)));
        spec.code.recover(readable | unknown | away, &[spec.shape.chunk_of(target.member, stripe)]).is_none()
    }

    fn end_repair(&mut self, key: RepairKey, block: BlockRead, is_hopeless: bool) -> Computed {
        let Repair { fetch, at, .. } = self.repairs.remove(key);
        Computed { fetch, at, block, is_hopeless }
    }
}

/// Contents and record of a block, if they are intact.
fn source_block(verifier: Verifier<'_>, place: Physical, outcome: &Outcome) -> Option<SourceBlock> {
    let Outcome::Data(Payload::Bytes(buffer)) = outcome else { return None };
    let skip = buffer.data.len().checked_sub(verifier.spec.shape.block_bytes)?;
    let data = buffer.data.slice(skip..);
    let meta = verifier.metadata_of(place, buffer, 0)?;
    (crc(&data) == meta.block_crc).then_some((data, meta.record))
}

fn compute(spec: &Spec, segments: &Segments, repair: &Repair) -> BlockRead {
    if !spec.has_contents() {
        return Ok((Bytes::new(), record_in_memory(segments, repair.target)));
    }
    let sources: Vec<&SourceBlock> = repair.sources.iter().filter_map(|(_, found)| found.as_ref()).collect();
    let Some(recovery) = &repair.recovery else {
        // It was read at its own place.
        let own = sources.first().map(|(data, record)| (data.clone(), Record::from_bytes(record)));
        return own.ok_or(Status::UnrecoveredReadError);
    };
    let contents: Vec<&[u8]> = sources.iter().map(|(data, _)| &data[..]).collect();
    let records: Vec<&[u8]> = sources.iter().map(|(_, record)| &record[..]).collect();
    let mut data = BytesMut::zeroed(spec.shape.block_bytes);
    let mut record = [0; RECORD_BYTES];
    recovery.apply(&*spec.engine, &contents, &mut [&mut data]);
    recovery.apply(&*spec.engine, &records, &mut [&mut record]);
    let record = Record::from_bytes(&record);
    // A computed block is verified by the checksum of its record.
    if crc(&data) != record.data_crc {
        return Err(Status::UnrecoveredReadError);
    }
    Ok((data.freeze(), record))
}
