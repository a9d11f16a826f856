//! Host reads, and dispatch of blocks that were read.

use bytes::Bytes;
use zonda_zoned::{CommandId, Outcome, Status};

use super::Volume;
use super::address::Location;
use super::reads::{Computed, Ended, FetchKey, Purpose, RepairKey, record_in_memory};
use super::requests::Answer;
use super::stripes::Mover;
use crate::limits::REPAIRED_STRIPES_MAX;
use crate::shape::Stream;
use crate::tables::Physical;

impl Volume {
    /// The result of a read is fixed when it is accepted: the segments it reads from stay until it
    /// has ended.
    #[inline]
    pub(super) fn accept_read(&mut self, id: CommandId, start: u64, blocks: u64) {
        let has_contents = self.spec.has_contents();
        let block_bytes = self.spec.shape.block_bytes;
        let bytes = blocks as usize * block_bytes;
        let answer = if has_contents { Answer::Pieces { bytes, pieces: Vec::new() } } else { Answer::NoContents };
        let request = self.requests.begin(id, 1, answer);
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
                        self.requests.add_data(request, at as u32, data);
                    }
                }
                Location::Lost { .. } => self.requests.set_error(request, Status::UnrecoveredReadError),
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

    /// Reads consecutive blocks of a member.
    #[inline]
    pub(super) fn fetch(&mut self, place: Physical, blocks: u32, purpose: Purpose) {
        let Volume { spec, members, segments, requests, reads, .. } = self;
        let ended = reads.fetch(spec, members, segments, requests, place, blocks, purpose);
        self.fetch_ended(ended);
    }

    #[inline]
    pub(super) fn on_fetch(&mut self, key: FetchKey, status: Status, outcome: Outcome) {
        if let Some(place) = self.reads.on_answer(&self.members, key, status) {
            self.suspect(place.member, place.segment);
        }
        let Volume { spec, members, segments, requests, reads, .. } = self;
        let ended = reads.on_fetch(spec, members, segments, requests, key, status, outcome);
        self.count_found_by_reads();
        self.fetch_ended(ended);
    }

    pub(super) fn on_fetch_block(&mut self, key: FetchKey, at: u32, status: Status, outcome: Outcome) {
        if let Some(place) = self.reads.on_answer(&self.members, key, status) {
            self.suspect(place.member, place.segment);
        }
        let Volume { spec, members, segments, requests, reads, .. } = self;
        let ended = reads.on_fetch_block(spec, members, segments, requests, (key, at), status, outcome);
        self.count_found_by_reads();
        self.fetch_ended(ended);
    }

    pub(super) fn on_source(&mut self, key: RepairKey, source: u8, status: Status, outcome: &Outcome) {
        if let Some(place) = self.reads.on_source_answer(&self.members, key, source, status) {
            self.suspect(place.member, place.segment);
        }
        let Volume { spec, members, segments, reads, .. } = self;
        let computed = reads.on_source(spec, members, segments, key, source, status, outcome);
        self.count_found_by_reads();
        if let Some(computed) = computed {
            self.on_computed(computed);
        }
    }

    pub(super) fn on_source_block(
        &mut self,
        (key, source, at): (RepairKey, u8, u32),
        status: Status,
        outcome: Outcome,
    ) {
        if let Some(place) = self.reads.on_source_answer(&self.members, key, source, status) {
            self.suspect(place.member, place.segment);
        }
        let Volume { spec, members, segments, reads, .. } = self;
        let computed = reads.on_source_block(spec, members, segments, (key, source, at), status, outcome);
        self.count_found_by_reads();
        if let Some(computed) = computed {
            self.on_computed(computed);
        }
    }

    /// A block was computed, or could not be. Blocks missing on their member are rewritten.
    fn on_computed(&mut self, computed: Computed) {
        if let Some((target, record, data)) = self.reads.wants_repair(&self.members, &self.segments, &computed) {
            let has_space =
                !self.space().is_low() && self.stripes.ready(Stream::Relocation).len() < REPAIRED_STRIPES_MAX;
            if has_space {
                self.move_block(target, record, data, Mover::Repair);
            } else {
                // Collection will process it, and reclaim more than it takes.
                self.segments.set_damaged(target.segment);
            }
        }
        let ended = self.reads.computed(&self.spec, &mut self.segments, &mut self.requests, computed);
        self.fetch_ended(ended);
    }

    #[inline]
    fn fetch_ended(&mut self, ended: Option<Ended>) {
        let Some(Ended { place, blocks, purpose, found, unreadable }) = ended else { return };
        match purpose {
            Purpose::Host { request, lba, .. } => {
                // Nothing was found where all blocks were intact.
                for at in (0..).zip(&found).filter(|(_, block)| block.is_err()).map(|(at, _)| at) {
                    self.found_unreadable(Physical { offset: place.offset + at, ..place }, Some(lba + u64::from(at)));
                }
                self.end_part(request, 1, Status::Success);
            }
            Purpose::Move => {
                let in_memory = |at| record_in_memory(&self.segments, Physical { offset: place.offset + at, ..place });
                let found = if self.spec.has_contents() {
                    found
                } else {
                    (0..blocks).map(|at| Ok((Bytes::new(), in_memory(at)))).collect()
                };
                self.on_moved_read(place, found);
            }
            Purpose::MoveTombstones => {
                let data = found.into_iter().next().unwrap_or(Err(Status::InternalError)).map(|(data, _)| data);
                self.on_moved_tombstones(place, data);
            }
            Purpose::Confirm => {
                let block = found.into_iter().next().unwrap_or(Err(Status::InternalError));
                self.on_confirmed(place, block, *unreadable.unwrap_or_default());
            }
            Purpose::Mount => self.on_start_read(place, found),
        }
    }
}
