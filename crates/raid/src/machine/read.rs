//! Blocks by their addresses. What a read returns is fixed when it is taken: the segments it reads from stay until it has ended.

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, Blocks, CommandId, Operation, Outcome, Payload, Status};

use super::Volume;
use super::members::Work;
use super::requests::Answer;
use super::stripes::Mover;
use crate::bug::SeededBug;
use crate::format::{BlockMeta, Place, Record, crc, read_chunk_meta};
use crate::limits::MENDED_STRIPES_MAX;
use crate::shape::Stream;
use crate::tables::{Location, Physical};

/// Consecutive blocks of one slot or more of a zone, on their way in.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) place: Physical,
    pub(super) blocks: u32,
    pub(super) purpose: Purpose,
    /// What each block is; filled in where blocks come out of the rest of their stripe.
    found: Vec<Option<Result<(Bytes, Record), Status>>>,
    /// Blocks that are being computed.
    repairing: u32,
    /// The member was asked, and did not bring them all; not so where it is known to lack them.
    is_damaged: bool,
}

/// Who wants the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A host: these are blocks of its request from `at`, and logical blocks from `lba`.
    Host {
        request: u32,
        at: u32,
        lba: u64,
    },
    Move,
    MoveTombstones,
    /// A mount moves what was torn, or reads tombstones.
    Start,
}

impl Volume {
    pub(super) fn accept_read(&mut self, id: CommandId, start: u64, blocks: u64) {
        let has_contents = self.spec.has_contents();
        let bytes = blocks as usize * self.spec.shape.block_bytes;
        let answer = if has_contents { Answer::Pieces { bytes, pieces: Vec::new() } } else { Answer::NoContents };
        let request = self.requests.begin(id, 1, answer);
        let block_bytes = self.spec.shape.block_bytes;
        let mut at = 0;
        while at < blocks {
            let location = self.map.location_for_hosts(start + at);
            let mut count = 1;
            match location {
                Location::Media(place) => {
                    let most = u64::from(self.spec.shape.transfer_blocks).min(blocks - at);
                    while count < most && self.follows(place, count, start + at + count) {
                        count += 1;
                    }
                    self.requests.add_parts(request, 1);
                    self.fetch(place, count as u32, Purpose::Host { request, at: at as u32, lba: start + at });
                }
                Location::Buffered { stripe, block } if has_contents => {
                    let entry = &self.stripes[stripe];
                    let is_data = entry.blocks[block as usize].lba == start + at;
                    let data = is_data.then(|| entry.contents(block, block_bytes)).flatten();
                    if let Some(data) = data {
                        self.requests.give(request, at as u32, data);
                    }
                }
                _ => {}
            }
            at += count;
        }
        self.end_part(request, 1, Status::Success);
    }

    /// Whether a logical block lies `count` blocks behind a place, in the same run of blocks.
    fn follows(&self, place: Physical, count: u64, lba: u64) -> bool {
        let next = Physical { offset: place.offset + count as u32, ..place };
        self.map.location_for_hosts(lba) == Location::Media(next)
    }

    /// Reads blocks that follow each other on a member, none of them metadata of a chunk.
    pub(super) fn fetch(&mut self, place: Physical, blocks: u32, purpose: Purpose) {
        self.segments.add_reader(place.segment);
        let index =
            self.fetches.insert(Fetch { place, blocks, purpose, found: Vec::new(), repairing: 0, is_damaged: false });
        let segment = &self.segments[place.segment];
        let zone = segment.zones[place.member.as_usize()];
        let member = &self.members[place.member];
        let (Some(zone), true) = (zone, member.is_present() && segment.has(place.member)) else {
            return self.repair_all(index);
        };
        let (offset, blocks) = self.fetched_range(place, blocks, purpose);
        let start = member.lba(zone, offset);
        let read = Operation::Read { start, blocks: Blocks(u64::from(blocks)) };
        self.members.send(place.member, Work::Fetch { fetch: index }, read);
    }

    /// What is read for some blocks: with metadata in band their chunk's metadata too, where somebody wants to know it.
    fn fetched_range(&self, place: Physical, blocks: u32, purpose: Purpose) -> (u32, u32) {
        if !self.spec.shape.is_in_band || matches!(purpose, Purpose::Host { .. }) {
            return (place.offset, blocks);
        }
        let layout = self.segments[place.segment].layout;
        let (slot, _) = layout.place_of(place.offset);
        let first = layout.slot_offset(slot);
        (first, place.offset + blocks - first)
    }

    pub(super) fn on_fetch(&mut self, index: u32, status: Status, outcome: Outcome) {
        let Fetch { place, blocks, purpose, .. } = self.fetches[index];
        self.fetches[index].is_damaged = self.members[place.member].is_present();
        if !status.is_success() {
            let is_latent = status == Status::UnrecoveredReadError;
            if self.members[place.member].is_present() && !is_latent {
                self.suspect(place.member, place.segment);
            }
            return self.repair_all(index);
        }
        if !self.spec.has_contents() {
            return self.end_fetch(index, Vec::new());
        }
        let Outcome::Data(Payload::Bytes(buffer)) = outcome else { return self.repair_all(index) };
        let (from, _) = self.fetched_range(place, blocks, purpose);
        let block_bytes = self.spec.shape.block_bytes;
        let skip = (place.offset - from) as usize;
        if buffer.data.len() != (skip + blocks as usize) * block_bytes {
            return self.repair_all(index);
        }
        let expected = match purpose {
            Purpose::Host { lba, .. } => Some(lba),
            _ => None,
        };
        let record = |at: u32| {
            let block = Physical { offset: place.offset + at, ..place };
            self.verify(block, &buffer, skip, at as usize, expected.map(|lba| lba + u64::from(at)))
        };
        if let Purpose::Host { request, at, .. } = purpose
            && (0..blocks).all(|at| record(at).is_some())
        {
            // Verified.
            self.requests.give_all(request, at, buffer);
            return self.end_fetch(index, Vec::new());
        }
        let block = |at: u32| {
            let from = (skip + at as usize) * block_bytes;
            record(at).map(|record| Ok((buffer.data.slice(from..from + block_bytes), record)))
        };
        let found: Vec<_> = (0..blocks).map(block).collect();
        if found.iter().all(Option::is_some) {
            return self.end_fetch(index, found.into_iter().flatten().collect());
        }
        self.fetches[index].found = found;
        self.repair_missing(index);
    }

    /// What a block's metadata says of it, if it is what was written there. `at` is the block's place behind `skip` in the buffer.
    pub(super) fn verify(
        &self,
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
                // Only the host reads without metadata, and knows what it reads.
                return Some(Record { lba: expected?, timestamp: 0, data_crc: sum });
            }
        }
        let meta = self.metadata_of(block, buffer, at)?;
        let record = Record::from_bytes(&meta.record);
        let is_expected = expected.is_none_or(|lba| record.lba == lba);
        let is_whole = crc(data) == meta.block_crc || self.spec.has(SeededBug::UnverifiedRead);
        (is_expected && is_whole).then_some(record)
    }

    /// Metadata of a block, if it is of this place. In band it is in the first block of the buffer, which is the first of the chunk.
    pub(super) fn metadata_of(&self, block: Physical, buffer: &BlockBuffer, at: usize) -> Option<BlockMeta> {
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
            BlockMeta::read_oob(segment.seeds[block.member.as_usize()], metadata)?
        };
        (segment.slots.stripe_at(block.member, slot) == Some(meta.stripe)).then_some(meta)
    }

    fn repair_all(&mut self, index: u32) {
        let blocks = self.fetches[index].blocks as usize;
        self.fetches[index].found = vec![None; blocks];
        self.repair_missing(index);
    }

    /// Starts to compute the blocks that were not found.
    fn repair_missing(&mut self, index: u32) {
        let missing: Vec<u32> =
            (0..).zip(&self.fetches[index].found).filter(|(_, found)| found.is_none()).map(|(at, _)| at).collect();
        self.fetches[index].repairing = missing.len() as u32;
        for at in missing {
            let place = self.fetches[index].place;
            self.repair(index, at, Physical { offset: place.offset + at, ..place });
        }
    }

    /// A block came out of the rest of its stripe, or could not.
    pub(super) fn repaired(&mut self, index: u32, at: u32, block: Result<(Bytes, Record), Status>) {
        let fetch = &mut self.fetches[index];
        let (place, purpose, is_damaged) = (fetch.place, fetch.purpose, fetch.is_damaged);
        if let (Ok((data, record)), Purpose::Host { .. }) = (&block, purpose) {
            let target = Physical { offset: place.offset + at, ..place };
            let is_readable = self.members[place.member].is_present() && self.segments[place.segment].has(place.member);
            // What a member lacks a rebuild or collection brings; what it has and should not have is written anew.
            if is_readable && is_damaged {
                let has_room =
                    !self.space().is_low() && self.stripes.ready(Stream::Relocation).len() < MENDED_STRIPES_MAX;
                if has_room {
                    self.move_block(target, *record, data.clone(), Mover::Repair);
                } else {
                    // Collection will come to it, and win back more than it takes.
                    self.segments.set_damaged(place.segment);
                }
            }
        }
        let fetch = &mut self.fetches[index];
        fetch.found[at as usize] = Some(block);
        fetch.repairing -= 1;
        if fetch.repairing > 0 {
            return;
        }
        let found: Vec<_> = std::mem::take(&mut fetch.found).into_iter().flatten().collect();
        if let Purpose::Host { request, at, lba } = purpose {
            let mut status = Status::Success;
            for (number, block) in (0..).zip(&found) {
                match block {
                    Ok(_) if !self.spec.has_contents() => {}
                    Ok((data, record)) if record.lba == lba + u64::from(number) => {
                        self.requests.give(request, at + number, data.clone());
                    }
                    Ok(_) => status = Status::UnrecoveredReadError,
                    Err(error) => {
                        self.counters.lost_blocks += 1;
                        status = *error;
                    }
                }
            }
            self.requests.worsen(request, status);
        }
        self.end_fetch(index, found);
    }

    fn end_fetch(&mut self, index: u32, found: Vec<Result<(Bytes, Record), Status>>) {
        let Fetch { place, blocks, purpose, .. } = self.fetches.remove(index);
        self.has_progress |= !matches!(purpose, Purpose::Host { .. });
        self.segments.reader_left(place.segment);
        match purpose {
            Purpose::Host { request, .. } => self.end_part(request, 1, Status::Success),
            Purpose::Move => {
                let found = if self.spec.has_contents() { found } else { self.records_in_memory(place, blocks) };
                self.on_moved_read(place, found);
            }
            Purpose::MoveTombstones => {
                let data = found.into_iter().next().unwrap_or(Err(Status::InternalError)).map(|(data, _)| data);
                self.on_moved_tombstones(place, data);
            }
            Purpose::Start => self.on_start_read(place, found),
        }
    }

    /// Without contents the records are in memory.
    fn records_in_memory(&self, place: Physical, blocks: u32) -> Vec<Result<(Bytes, Record), Status>> {
        let record = |at| self.record_in_memory(Physical { offset: place.offset + at, ..place });
        (0..blocks).map(|at| Ok((Bytes::new(), record(at)))).collect()
    }

    pub(super) fn record_in_memory(&self, place: Physical) -> Record {
        let segment = &self.segments[place.segment];
        let lba = segment.lbas[place.member.as_usize()][segment.layout.entry_of(place.offset) as usize];
        Record { lba, timestamp: 0, data_crc: 0 }
    }
}
