//! Ranges that read as zeros. A trim is durable like a write: its tombstones travel in stripes, each with its timestamp, so that a
//! mount tells it from older contents of the same blocks.
//!
//! A trim takes effect when it is taken: its blocks read as zeros from then on. What it takes is done in portions, with a bounded
//! number of blocks looked at in a turn and on their way at once; the rest is ranges that readers ask. A write to such a block has
//! the block's tombstone go ahead of it. Trims end in the order in which they came: of blocks that two of them name, the first has
//! taken care.

mod rest;

use std::collections::VecDeque;

use zonda_zoned::{CommandId, Duration, Instant, Status};

use super::Volume;
use super::requests::Answer;
use super::write::{Block, Source};
use crate::format::{Tombstone, tombstones_per_block};
use crate::limits::{TOMBSTONE_BLOCKS_MAX, TOMBSTONES_UNDER_WAY_MAX, TRIM_RANGES_MAX, TRIM_TURNS};
use crate::shape::Stream;
use crate::tables::{Address, Location};
use rest::{Part, Rest};

/// Trims that have not ended.
#[derive(Debug, Default)]
pub(super) struct Trims {
    rest: Rest,
    /// The oldest first.
    queue: VecDeque<Trim>,
    /// The number of the oldest.
    first: u64,
    /// Where the last turn has stopped.
    at: u64,
    blocks_under_way: u64,
    tombstones_under_way: usize,
    /// Others have their turn before the next one.
    resume_at: Instant,
}

#[derive(Debug)]
struct Trim {
    request: u32,
    /// Blocks that were not looked at.
    rest_blocks: u64,
}

/// Tombstones that are to go in one block.
#[derive(Debug)]
struct Gathered {
    trim: u64,
    tombstones: Vec<Tombstone>,
    blocks: u64,
}

/// Between two turns of a trim that could go on.
const PAUSE: Duration = Duration::from_micros(1);

impl Trims {
    /// Whether a block is to be trimmed, whatever the map says of it.
    pub(super) fn has(&self, lba: u64) -> bool {
        !self.rest.is_empty() && self.rest.contains(lba)
    }

    /// How far the blocks from `lba` on are to be trimmed; else where the next ones are that are.
    pub(super) fn has_until(&self, lba: u64) -> Result<u64, Option<u64>> {
        match self.rest.part_of(lba) {
            Some(part) => Ok(part.end),
            None => Err(self.rest.first_from(lba).map(|part| part.start)),
        }
    }

    /// Whether something is left to be looked at.
    pub(super) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether there is room for the ranges of another trim, each of which may fall in the gaps between all others, or for a write,
    /// which may split one.
    pub(super) fn has_room(&self, ranges: usize) -> bool {
        2 * self.rest.len() + ranges < TRIM_RANGES_MAX
    }

    /// A block of tombstones is durable.
    pub(super) fn arrived(&mut self, blocks: usize) {
        self.blocks_under_way -= blocks as u64;
        self.tombstones_under_way -= 1;
    }

    fn may_go_on(&self, blocks_max: u64) -> bool {
        self.has_rest() && self.blocks_under_way < blocks_max && self.tombstones_under_way < TOMBSTONES_UNDER_WAY_MAX
    }

    fn of(&mut self, part: &Part) -> &mut Trim {
        &mut self.queue[(part.trim - self.first) as usize]
    }
}

impl Volume {
    pub(super) fn accept_trim(&mut self, id: CommandId, ranges: &[(u64, u64)]) {
        // One part more than there are tombstones, until nothing is left and all trims before have ended.
        let request = self.requests.begin(id, 1, Answer::None);
        let number = self.trims.first + self.trims.queue.len() as u64;
        let insert = |&(start, blocks): &(u64, u64)| self.trims.rest.insert(start, start + blocks, number);
        let rest_blocks = ranges.iter().map(insert).sum();
        self.trims.queue.push_back(Trim { request, rest_blocks });
    }

    /// A write is to be taken: what trims have left of its blocks comes before it.
    pub(super) fn trim_before(&mut self, start: u64, blocks: u64) {
        if !self.trims.has_rest() {
            return;
        }
        let mut gathered = None;
        for part in self.trims.rest.cut(start, start + blocks) {
            self.trims.of(&part).rest_blocks -= part.blocks();
            for lba in part.start..part.end {
                self.trim_block(&mut gathered, part.trim, lba);
            }
        }
        self.push_gathered(&mut gathered);
    }

    /// Where a block is, for whoever reads it: a trim counts before its turn comes.
    pub(super) fn location_for_hosts(&self, lba: u64) -> Location {
        if self.trims.has(lba) { Location::Nowhere } else { self.map[lba as usize].location() }
    }

    /// Does the next portion, if there is one, and ends trims.
    pub(super) fn pump_trims(&mut self) {
        if self.trims.resume_at <= self.now && self.trims.may_go_on(self.spec.config.tuning.trim_blocks) {
            self.trim_some();
        }
        while let Some(trim) = self.trims.queue.front()
            && trim.rest_blocks == 0
            && self.requests.awaits_last_part(trim.request)
        {
            let request = trim.request;
            self.trims.queue.pop_front();
            self.trims.first += 1;
            self.end_part(request, 1, Status::Success);
        }
    }

    /// Nothing more is begun of the trims under way, and they end with an error: later ones rely on earlier ones.
    pub(super) fn give_up_trims(&mut self, status: Status) {
        self.trims.rest = Rest::default();
        for trim in &mut self.trims.queue {
            trim.rest_blocks = 0;
            self.requests.set_status(trim.request, status);
        }
    }

    /// When a trim goes on that waits for nothing else.
    pub(super) fn trims_due(&self) -> Option<Instant> {
        self.trims.may_go_on(self.spec.config.tuning.trim_blocks).then_some(self.trims.resume_at)
    }

    /// One portion: from where the last one stopped to the end of the volume, then from its start.
    fn trim_some(&mut self) {
        let most = self.spec.config.tuning.trim_blocks;
        let mut looks = most.div_ceil(TRIM_TURNS);
        let mut gathered = None;
        while looks > 0 && self.trims.may_go_on(most) {
            let next = self.trims.rest.first_from(self.trims.at).or_else(|| self.trims.rest.first_from(0));
            let part = next.expect("something is left");
            let mut lba = part.start;
            while lba < part.end && looks > 0 && self.trims.may_go_on(most) {
                self.trim_block(&mut gathered, part.trim, lba);
                looks -= 1;
                lba += 1;
            }
            self.trims.rest.cut(part.start, lba);
            self.trims.of(&part).rest_blocks -= lba - part.start;
            self.trims.at = lba;
        }
        self.push_gathered(&mut gathered);
        if self.trims.has_rest() {
            self.trims.resume_at = self.now + PAUSE;
        }
    }

    /// Sees to one block of a trim.
    fn trim_block(&mut self, gathered: &mut Option<Gathered>, trim: u64, lba: u64) {
        if !self.holds_contents(lba) {
            return;
        }
        if !self.spec.has_contents() {
            return self.forget(lba);
        }
        let per_block = tombstones_per_block(self.spec.shape.block_bytes as u32);
        let is_next = |tombstone: &Tombstone| tombstone.lbas().end == lba;
        let has_room = |other: &Gathered| {
            let follows = other.tombstones.last().is_some_and(is_next);
            other.trim == trim && other.blocks < TOMBSTONE_BLOCKS_MAX && (follows || other.tombstones.len() < per_block)
        };
        if !gathered.as_ref().is_some_and(has_room) {
            self.push_gathered(gathered);
        }
        let gathered = gathered.get_or_insert_with(|| Gathered { trim, tombstones: Vec::new(), blocks: 0 });
        match gathered.tombstones.last_mut().filter(|last| is_next(last)) {
            Some(last) => last.blocks += 1,
            None => {
                let timestamp = self.next_timestamp;
                self.next_timestamp += 1;
                gathered.tombstones.push(Tombstone { lba, blocks: 1, timestamp });
            }
        }
        gathered.blocks += 1;
        self.trims.blocks_under_way += 1;
    }

    /// Whether a block may hold something after a crash. A trim that is on its way is none that one can rely on yet.
    fn holds_contents(&self, lba: u64) -> bool {
        match self.map[lba as usize].location() {
            Location::Nowhere | Location::Trimmed { .. } => false,
            Location::Media(_) | Location::Buffered { .. } => true,
        }
    }

    fn push_gathered(&mut self, gathered: &mut Option<Gathered>) {
        let Some(Gathered { trim, tombstones, .. }) = gathered.take() else { return };
        let request = self.trims.queue[(trim - self.trims.first) as usize].request;
        self.requests.add_parts(request, 1);
        self.buffered_blocks += 1;
        self.trims.tombstones_under_way += 1;
        let data = self.spec.tombstone_block(&tombstones);
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
            self.segments.set_dead(place);
            self.map[lba as usize] = Address::NOWHERE;
        }
    }

    /// What must hold of trims between events.
    pub(super) fn check_trims(&self) {
        let mut rests = vec![0; self.trims.queue.len()];
        for part in self.trims.rest.parts() {
            rests[(part.trim - self.trims.first) as usize] += part.blocks();
        }
        let expected: Vec<u64> = self.trims.queue.iter().map(|trim| trim.rest_blocks).collect();
        assert_eq!(rests, expected, "what is left of each trim");
        assert!(self.trims.rest.len() <= TRIM_RANGES_MAX, "the table of what is left is bounded");
        let trims =
            self.stripes.iter().flat_map(|(_, stripe)| &stripe.blocks).filter_map(|block| match &block.source {
                Source::Trim { olds, .. } => Some(olds.len() as u64),
                _ => None,
            });
        let (tombstones, blocks) = trims.fold((0, 0), |(count, sum), blocks| (count + 1, sum + blocks));
        assert_eq!(
            (self.trims.tombstones_under_way, self.trims.blocks_under_way),
            (tombstones, blocks),
            "trims on their way"
        );
    }
}
