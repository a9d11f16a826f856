//! Trimmed ranges. A trim becomes durable like a write: its tombstones are part of stripes, each
//! with its timestamp, so that a mount distinguishes it from older contents of the same blocks.
//!
//! A trim takes effect when it is accepted: its blocks read as zeros from then on. The work is done
//! in portions, with a bounded number of blocks per iteration and in flight; the remaining ranges
//! are pending, and readers consult them. Before a write to a pending block its tombstone is
//! written. Trims complete in the order in which they were accepted: blocks that two of them name
//! are processed by the first one.

mod pending;

use std::collections::VecDeque;

use zonda_zoned::{CommandId, Duration, Instant, Status};

use super::super::address::{Address, Location};
use super::super::requests::{Answer, RequestKey, Requests};
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::super::stripes::{Block, Source, StripeKey, Stripes};
use super::{Map, Reach};
use crate::format::{Tombstone, tombstones_per_block};
use crate::limits::{TOMBSTONE_BLOCKS_MAX, TOMBSTONES_IN_FLIGHT_MAX, TRIM_ITERATIONS, TRIM_RANGES_MAX};
use crate::shape::Stream;
use pending::{Part, PendingTrims};

/// The trims that have not completed.
#[derive(Debug, Default)]
pub(in crate::machine::map) struct Trims {
    pending: PendingTrims,
    /// The oldest first.
    queue: VecDeque<Trim>,
    /// The number of the oldest.
    first: u64,
    /// Where the last iteration stopped.
    at: u64,
    blocks_in_flight: u64,
    tombstones_in_flight: usize,
    /// The next iteration is not before this time, so that other requests are processed.
    resume_at: Instant,
}

#[derive(Debug)]
struct Trim {
    request: RequestKey,
    /// Blocks that were not processed yet.
    pending_blocks: u64,
}

/// Tombstones for one block.
#[derive(Debug)]
struct Gathered {
    trim: u64,
    tombstones: Vec<Tombstone>,
    blocks: u64,
}

/// Pause between two iterations of a trim.
const PAUSE: Duration = Duration::from_micros(1);

impl Trims {
    /// Whether a block is to be trimmed, whatever its location in the map.
    pub(super) fn has(&self, lba: u64) -> bool {
        !self.pending.is_empty() && self.pending.contains(lba)
    }

    /// The end of the pending range that contains `lba`; otherwise the start of the next one.
    pub(super) fn has_until(&self, lba: u64) -> Result<u64, Option<u64>> {
        match self.pending.part_of(lba) {
            Some(part) => Ok(part.end),
            None => Err(self.pending.first_from(lba).map(|part| part.start)),
        }
    }

    /// Whether ranges are pending.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the ranges of another trim fit, each of which may fall into the gaps between all
    /// others, or a write, which may split one.
    pub(super) fn has_space(&self, ranges: usize) -> bool {
        2 * self.pending.len() + ranges < TRIM_RANGES_MAX
    }

    /// A block of tombstones is durable, or withdrawn.
    fn ended(&mut self, blocks: usize) {
        self.blocks_in_flight -= blocks as u64;
        self.tombstones_in_flight -= 1;
    }

    fn may_continue(&self, blocks_max: u64) -> bool {
        self.has_pending() && self.blocks_in_flight < blocks_max && self.tombstones_in_flight < TOMBSTONES_IN_FLIGHT_MAX
    }

    fn of(&mut self, part: &Part) -> &mut Trim {
        &mut self.queue[(part.trim - self.first) as usize]
    }
}

impl Map {
    /// Accepts a trim; it completes with [`next_ended_trim`](Map::next_ended_trim).
    pub(in crate::machine) fn begin_trim(&mut self, requests: &mut Requests, id: CommandId, ranges: &[(u64, u64)]) {
        // One part more than there are tombstones, until nothing is pending and all earlier trims
        // have completed.
        let request = requests.begin(id, 1, Answer::None);
        let number = self.trims.first + self.trims.queue.len() as u64;
        let insert = |&(start, blocks): &(u64, u64)| self.trims.pending.insert(start, start + blocks, number);
        let pending_blocks = ranges.iter().map(insert).sum();
        self.trims.queue.push_back(Trim { request, pending_blocks });
    }

    /// Before a write: processes the pending trims of its blocks.
    pub(in crate::machine) fn trim_before(&mut self, reach: &mut Reach<'_>, start: u64, blocks: u64) {
        if !self.trims.has_pending() {
            return;
        }
        let mut gathered = None;
        for part in self.trims.pending.cut(start, start + blocks) {
            self.trims.of(&part).pending_blocks -= part.blocks();
            for lba in part.start..part.end {
                self.trim_block(reach, &mut gathered, part.trim, lba);
            }
        }
        self.push_gathered(reach, &mut gathered);
    }

    /// Processes the next portion of trims.
    pub(in crate::machine) fn pump_trims(&mut self, reach: &mut Reach<'_>) {
        let most = reach.spec.config.tuning.trim_blocks;
        if self.trims.resume_at <= reach.now && self.trims.may_continue(most) {
            self.trim_some(reach, most);
        }
    }

    /// The request of a trim that only its last part keeps from completing.
    pub(in crate::machine) fn next_ended_trim(&mut self, requests: &Requests) -> Option<RequestKey> {
        let trim = self.trims.queue.front()?;
        if trim.pending_blocks > 0 || !requests.awaits_last_part(trim.request) {
            return None;
        }
        self.trims.first += 1;
        self.trims.queue.pop_front().map(|trim| trim.request)
    }

    /// A block of tombstones is durable, or withdrawn.
    pub(in crate::machine) fn tombstones_ended(&mut self, blocks: usize) {
        self.trims.ended(blocks);
    }

    /// Stops the trims in flight, which end with an error: later ones depend on earlier ones.
    pub(in crate::machine) fn fail_trims(&mut self, requests: &mut Requests, status: Status) {
        self.trims.pending = PendingTrims::default();
        for trim in &mut self.trims.queue {
            trim.pending_blocks = 0;
            requests.set_status(trim.request, status);
        }
    }

    /// The volume is lost: no trims are pending.
    pub(in crate::machine) fn forget_trims(&mut self) {
        self.trims = Trims::default();
    }

    /// Tombstones are not written: what they would have replaced stays.
    pub(in crate::machine) fn withdraw_trim(
        &mut self,
        stripes: &mut Stripes,
        (stripe, block): (StripeKey, u32),
        tombstones: &[Tombstone],
        olds: &[Address],
    ) {
        for (lba, &old) in tombstones.iter().flat_map(Tombstone::lbas).zip(olds) {
            if old != Address::SUPERSEDED {
                self.redirect(stripes, lba, Address::buffered(stripe, block), old);
            }
        }
        self.trims.ended(olds.len());
    }

    /// A block of a write is not written: what it would have replaced stays. Chunks of its stripe
    /// may be on members all the same.
    pub(in crate::machine) fn withdraw(
        &mut self,
        stripes: &mut Stripes,
        segments: &Segments,
        (stripe, block): (StripeKey, u32),
    ) {
        let lba = stripes[stripe].blocks[block as usize].lba;
        self.failed.note(segments, lba);
        if let Some(old) = stripes.take_old(stripe, block) {
            self.redirect(stripes, lba, Address::buffered(stripe, block), old);
        }
    }

    /// Moves tombstones of a host from an unwritten stripe to the stream of moved blocks.
    pub(in crate::machine) fn move_trim(
        &mut self,
        reach: &mut Reach<'_>,
        (stripe, at): (StripeKey, u32),
        (request, tombstones, olds): (RequestKey, Vec<Tombstone>, Vec<Address>),
    ) {
        let timestamp = reach.stripes[stripe].blocks[at as usize].timestamp;
        let data = reach.spec.tombstone_block(&tombstones, &[]);
        let lbas: Vec<u64> = tombstones.iter().flat_map(Tombstone::lbas).collect();
        let is_current: Vec<bool> = olds.iter().map(|&old| old != Address::SUPERSEDED).collect();
        let block = Block::tombstones(Source::Trim { request, tombstones, olds }, timestamp);
        let (to, block) = reach.stripes.push(reach.spec, reach.now, Stream::Relocation, block, data);
        for (lba, _) in lbas.into_iter().zip(is_current).filter(|(_, is_current)| *is_current) {
            self.redirect(reach.stripes, lba, Address::buffered(stripe, at), Address::buffered(to, block));
        }
    }

    /// Whether trims are pending.
    pub(in crate::machine) fn has_trims(&self) -> bool {
        self.trims.has_pending()
    }

    /// Whether the ranges of another trim fit, or a write, which may split one.
    pub(in crate::machine) fn has_space_for_trim(&self, ranges: usize) -> bool {
        self.trims.has_space(ranges)
    }

    /// When a trim continues that waits for nothing else.
    pub(in crate::machine) fn trims_due(&self, spec: &Spec) -> Option<Instant> {
        self.trims.may_continue(spec.config.tuning.trim_blocks).then_some(self.trims.resume_at)
    }

    /// One portion: from where the last one stopped to the end of the volume, then from its start.
    fn trim_some(&mut self, reach: &mut Reach<'_>, most: u64) {
        let mut looks = most.div_ceil(TRIM_ITERATIONS);
        let mut gathered = None;
        while looks > 0 && self.trims.may_continue(most) {
            let next = self.trims.pending.first_from(self.trims.at).or_else(|| self.trims.pending.first_from(0));
            let part = next.expect("something is left");
            let mut lba = part.start;
            while lba < part.end && looks > 0 && self.trims.may_continue(most) {
                self.trim_block(reach, &mut gathered, part.trim, lba);
                looks -= 1;
                lba += 1;
            }
            self.trims.pending.cut(part.start, lba);
            self.trims.of(&part).pending_blocks -= lba - part.start;
            self.trims.at = lba;
        }
        self.push_gathered(reach, &mut gathered);
        if self.trims.has_pending() {
            self.trims.resume_at = reach.now + PAUSE;
        }
    }

    /// Processes one block of a trim.
    fn trim_block(&mut self, reach: &mut Reach<'_>, gathered: &mut Option<Gathered>, trim: u64, lba: u64) {
        if !self.holds_contents(lba) && !self.failed.may_return(reach.segments, lba) {
            return;
        }
        if !reach.spec.has_contents() {
            return self.forget(reach.segments, lba);
        }
        let per_block = tombstones_per_block(reach.spec.shape.block_bytes as u32);
        let is_next = |tombstone: &Tombstone| tombstone.lbas().end == lba;
        let has_space = |other: &Gathered| {
            let follows = other.tombstones.last().is_some_and(is_next);
            other.trim == trim && other.blocks < TOMBSTONE_BLOCKS_MAX && (follows || other.tombstones.len() < per_block)
        };
        if !gathered.as_ref().is_some_and(has_space) {
            self.push_gathered(reach, gathered);
        }
        let gathered = gathered.get_or_insert_with(|| Gathered { trim, tombstones: Vec::new(), blocks: 0 });
        match gathered.tombstones.last_mut().filter(|last| is_next(last)) {
            Some(last) => last.blocks += 1,
            None => {
                let timestamp = self.take_timestamp();
                gathered.tombstones.push(Tombstone { lba, blocks: 1, timestamp, is_lost: false });
            }
        }
        gathered.blocks += 1;
        self.trims.blocks_in_flight += 1;
    }

    /// Whether a block may have contents after a crash. A trim whose tombstones are not durable
    /// does not count.
    fn holds_contents(&self, lba: u64) -> bool {
        match self.location(lba) {
            Location::Nowhere | Location::Trimmed { .. } => false,
            // Until a tombstone of the trim is durable, a mount treats a lost block as lost.
            Location::Media(_) | Location::Buffered { .. } | Location::Lost { .. } => true,
        }
    }

    fn push_gathered(&mut self, reach: &mut Reach<'_>, gathered: &mut Option<Gathered>) {
        let Some(Gathered { trim, tombstones, .. }) = gathered.take() else { return };
        let request = self.trims.queue[(trim - self.trims.first) as usize].request;
        reach.requests.add_parts(request, 1);
        reach.stripes.buffer(1);
        self.trims.tombstones_in_flight += 1;
        let data = reach.spec.tombstone_block(&tombstones, &[]);
        let timestamp = tombstones.last().map_or(0, |last| last.timestamp);
        let lbas: Vec<u64> = tombstones.iter().flat_map(Tombstone::lbas).collect();
        let olds = lbas.iter().map(|&lba| self.entries[lba as usize]).collect();
        let block = Block::tombstones(Source::Trim { request, tombstones, olds }, timestamp);
        let (stripe, block) = reach.stripes.push(reach.spec, reach.now, Stream::Small, block, data);
        for lba in lbas {
            self.entries[lba as usize] = Address::buffered(stripe, block);
        }
    }

    /// Without contents nothing has to survive.
    fn forget(&mut self, segments: &mut Segments, lba: u64) {
        if let Location::Media(place) = self.location(lba) {
            segments.set_dead(place);
            self.entries[lba as usize] = Address::NOWHERE;
        }
    }

    /// Checks the invariants of trims.
    pub(super) fn check_trims(&self, stripes: &Stripes) {
        let mut all_pending = vec![0; self.trims.queue.len()];
        for part in self.trims.pending.parts() {
            all_pending[(part.trim - self.trims.first) as usize] += part.blocks();
        }
        let expected: Vec<u64> = self.trims.queue.iter().map(|trim| trim.pending_blocks).collect();
        assert_eq!(all_pending, expected, "pending blocks of each trim");
        assert!(self.trims.pending.len() <= TRIM_RANGES_MAX, "the table of pending ranges is bounded");
        let in_flight = (self.trims.tombstones_in_flight, self.trims.blocks_in_flight);
        assert_eq!(in_flight, stripes.trims(), "trims in stripes");
    }
}
