//! Ranges that read as zeros. A trim is durable like a write: its tombstones travel in stripes, each with its timestamp, so that a
//! mount tells it from older contents of the same blocks.

use zonda_zoned::{CommandId, Status};

use super::Volume;
use super::host::{Answer, Request};
use super::write::{Block, Source};
use crate::format::{Tombstone, tombstones_per_block};
use crate::limits::TOMBSTONE_BLOCKS_MAX;
use crate::shape::Stream;
use crate::tables::{Address, Location};

impl Volume {
    pub(super) fn accept_trim(&mut self, id: CommandId, ranges: &[(u64, u64)]) {
        let request = Request { id, pending: 1, status: Status::Success, answer: Answer::None };
        let request = self.requests.insert(request);
        let mut tombstones: Vec<Tombstone> = Vec::new();
        let mut blocks = 0;
        for (start, count) in merged(ranges) {
            for lba in start..start + count {
                if !self.holds_contents(lba) {
                    continue;
                }
                if !self.has_contents() {
                    self.forget(lba);
                    continue;
                }
                let is_full = blocks == TOMBSTONE_BLOCKS_MAX
                    || tombstones.len() == tombstones_per_block(self.shape.block_bytes as u32);
                match tombstones.last_mut() {
                    Some(last) if last.lbas().end == lba && blocks < TOMBSTONE_BLOCKS_MAX => {
                        last.blocks += 1;
                    }
                    _ => {
                        if is_full {
                            self.push_tombstones(request, std::mem::take(&mut tombstones));
                            blocks = 0;
                        }
                        let timestamp = self.next_timestamp;
                        self.next_timestamp += 1;
                        tombstones.push(Tombstone { lba, blocks: 1, timestamp });
                    }
                }
                blocks += 1;
            }
        }
        if !tombstones.is_empty() {
            self.push_tombstones(request, tombstones);
        }
        self.end_part(request, 1, Status::Success);
    }

    /// Whether a block may hold something after a crash. A trim that is on its way is none that one can rely on yet.
    fn holds_contents(&self, lba: u64) -> bool {
        match self.map[lba as usize].location() {
            Location::Nowhere | Location::Trimmed { .. } => false,
            Location::Media(_) | Location::Buffered { .. } => true,
        }
    }

    fn push_tombstones(&mut self, request: u32, tombstones: Vec<Tombstone>) {
        self.requests[request].pending += 1;
        self.buffered_blocks += 1;
        let data = self.tombstone_block(&tombstones);
        let timestamp = tombstones.last().map_or(0, |last| last.timestamp);
        let lbas: Vec<u64> = tombstones.iter().flat_map(Tombstone::lbas).collect();
        let olds = lbas.iter().map(|&lba| self.map[lba as usize]).collect();
        let source = Source::Trim { request, tombstones, olds };
        let (stripe, block) = self.push_block(Stream::Small, Block::tombstones(source, timestamp), data);
        for lba in lbas {
            self.map[lba as usize] = Address::buffered(stripe, block);
        }
    }

    /// Without contents nothing has to survive.
    fn forget(&mut self, lba: u64) {
        if let Location::Media(place) = self.map[lba as usize].location() {
            self.segments[place.segment].set_dead(place.member, place.offset);
            self.collector.look_at(place.segment);
            self.map[lba as usize] = Address::NOWHERE;
        }
    }
}

/// The same blocks, each in one range.
fn merged(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, blocks) in ranges {
        match merged.last_mut() {
            Some((first, count)) if start <= *first + *count => *count = (*count).max(start + blocks - *first),
            _ => merged.push((start, blocks)),
        }
    }
    merged
}
