//! Stripes in memory: blocks gather in them, and they wait for a segment, are written, and end.
//!
//! ```text
//! stripe.rs  one stripe
//! issue.rs   one command to each member
//! encode.rs  what each member is given
//! spare.rs   memory that is used again
//! ```

mod encode;
mod issue;
mod spare;
mod stripe;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Index;

use bytes::Bytes;
use zonda_zoned::{Duration, Instant, Slab};

use super::segments::Segments;
use super::spec::Spec;
use crate::format::{PADDING_LBA, Tombstone};
use crate::shape::Stream;
use crate::tables::{Address, Location, Physical, SegmentIndex};

use spare::Spare;
pub(super) use stripe::{Block, Mover, NO_REQUEST, Piece, Source, Stripe};

/// Owns the stripes in memory, from the first block that they gather until they count or are withdrawn.
///
/// A stripe's way: [`push`](Stripes::push) or [`run`](Stripes::run) and [`add`](Stripes::add) until it is full, or
/// [`pad`](Stripes::pad); [`next_ready`](Stripes::next_ready), [`issue`](Stripes::issue), [`chunk_ended`](Stripes::chunk_ended) for
/// each member; then [`finish`](Stripes::finish), or [`write_again`](Stripes::write_again). The versions of a block that are in
/// stripes form a chain: each remembers what it [replaces](Stripes::old_of) until a newer one [retires](Stripes::retire) it.
#[derive(Debug)]
pub(super) struct Stripes {
    slab: Slab<Stripe>,
    /// For each [`Stream`].
    queues: [Queue; 3],
    /// Blocks of hosts that wait in stripes.
    buffered_blocks: usize,
    spare: Spare,
    /// Blocks of padding in stripes that were not full in time.
    padding_blocks: u64,
    /// Something has changed that others may wait for.
    has_progress: bool,
}

/// Stripes of one stream that are not being written.
#[derive(Debug, Default)]
struct Queue {
    /// A stripe that is not full.
    filling: Option<u32>,
    /// Stripes that wait for a segment.
    ready: VecDeque<u32>,
}

/// Blocks that are moved wait so many times as long for others as blocks of hosts.
const RELOCATION_WAIT: u64 = 100;

impl Stripes {
    pub(super) fn new() -> Stripes {
        Stripes {
            slab: Slab::new(),
            queues: std::array::from_fn(|_| Queue::default()),
            buffered_blocks: 0,
            spare: Spare::default(),
            padding_blocks: 0,
            has_progress: false,
        }
    }

    /// Adds one block to a stream, and says where it is.
    pub(super) fn push(&mut self, spec: &Spec, now: Instant, stream: Stream, block: Block, data: Bytes) -> (u32, u32) {
        let stripe = self.filling(spec, now, stream);
        let entry = &mut self.slab[stripe];
        let at = entry.blocks.len() as u32;
        if !data.is_empty() {
            entry.pieces.push(Piece { block: at, data });
        }
        entry.blocks.push(block);
        self.close_if_full(spec, stream);
        (stripe, at)
    }

    /// Where the next blocks of a stream go: stripe, first block, and how many of `wanted` fit. Each is to be [added](Stripes::add).
    #[inline]
    pub(super) fn run(&mut self, spec: &Spec, now: Instant, stream: Stream, wanted: u64) -> (u32, u32, u64) {
        let stripe = self.filling(spec, now, stream);
        let first = self.slab[stripe].blocks.len() as u64;
        let count = (spec.shape.stripe_blocks(stream) as u64 - first).min(wanted);
        (stripe, first as u32, count)
    }

    /// Contents of the blocks that are added next.
    #[inline]
    pub(super) fn add_contents(&mut self, stripe: u32, first: u32, data: Bytes) {
        self.slab[stripe].pieces.push(Piece { block: first, data });
    }

    /// A block of a run.
    #[inline]
    pub(super) fn add(&mut self, stripe: u32, block: Block) {
        self.slab[stripe].blocks.push(block);
    }

    /// A stripe that is full waits for a segment.
    #[inline]
    pub(super) fn close_if_full(&mut self, spec: &Spec, stream: Stream) {
        let queue = &mut self.queues[stream as usize];
        if let Some(stripe) = queue.filling
            && self.slab[stripe].blocks.len() == spec.shape.stripe_blocks(stream)
        {
            queue.filling = None;
            queue.ready.push_back(stripe);
            self.has_progress = true;
        }
    }

    /// Stripes that have waited for blocks too long go as they are.
    pub(super) fn pad_late(&mut self, spec: &Spec, now: Instant) {
        for stream in Stream::ALL {
            if self.padding_due(spec, stream).is_some_and(|due| due <= now) {
                self.pad(spec, stream);
            }
        }
    }

    /// What is filling goes as it is.
    pub(super) fn pad_all(&mut self, spec: &Spec) {
        for stream in Stream::ALL {
            self.pad(spec, stream);
        }
    }

    /// The same for one stream.
    pub(super) fn pad(&mut self, spec: &Spec, stream: Stream) {
        let queue = &mut self.queues[stream as usize];
        if let Some(stripe) = queue.filling.take() {
            self.padding_blocks += (spec.shape.stripe_blocks(stream) - self.slab[stripe].blocks.len()) as u64;
            queue.ready.push_back(stripe);
        }
    }

    /// Takes the stripe that has waited longest for a segment.
    #[inline]
    pub(super) fn next_ready(&mut self, stream: Stream) -> Option<u32> {
        self.queues[stream as usize].ready.pop_front()
    }

    /// A flush waits for all blocks of hosts that are in stripes. Returns for how many stripes.
    pub(super) fn add_flush(&mut self, request: u32) -> u64 {
        let mut stripes = 0;
        for stripe in self.slab.values_mut() {
            if stripe.waits_for_hosts() {
                stripe.flushes.push(request);
                stripes += 1;
            }
        }
        stripes
    }

    /// Blocks of hosts are in stripes.
    #[inline]
    pub(super) fn buffer(&mut self, blocks: usize) {
        self.buffered_blocks += blocks;
    }

    /// A block of a host is not in a stripe any more.
    #[inline]
    pub(super) fn unbuffer_one(&mut self) {
        self.buffered_blocks -= 1;
    }

    /// Takes the reason out for which a block was written. The stripe stays in its place while its blocks are published: older versions
    /// refer to it.
    #[inline]
    pub(super) fn take_source(&mut self, stripe: u32, at: u32) -> (u64, Source) {
        let block = &mut self.slab[stripe].blocks[at as usize];
        (block.lba, std::mem::replace(&mut block.source, Source::Host { request: NO_REQUEST }))
    }

    /// Puts back what a trim replaces while its blocks are published.
    pub(super) fn put_trim(&mut self, stripe: u32, at: u32, request: u32, olds: Vec<Address>) {
        self.slab[stripe].blocks[at as usize].source = Source::Trim { request, tombstones: Vec::new(), olds };
    }

    /// What a block replaces, which it does now; `None` if a newer version has.
    #[inline]
    pub(super) fn take_old(&mut self, stripe: u32, at: u32) -> Option<Address> {
        let block = &mut self.slab[stripe].blocks[at as usize];
        (!block.is_superseded).then(|| std::mem::take(&mut block.old))
    }

    /// The same of a block of a trim, by its place in what the trim replaces.
    pub(super) fn take_trimmed(&mut self, stripe: u32, at: u32, place: usize) -> Option<Address> {
        let Source::Trim { olds, .. } = &mut self.slab[stripe].blocks[at as usize].source else {
            unreachable!("the block holds tombstones")
        };
        let old = std::mem::replace(&mut olds[place], Address::SUPERSEDED);
        (old != Address::SUPERSEDED).then_some(old)
    }

    /// What a version in a stripe replaces.
    #[inline]
    pub(super) fn old_of(&mut self, lba: u64, (stripe, block): (u32, u32)) -> &mut Address {
        self.slab[stripe].blocks[block as usize].old_of(lba)
    }

    /// A version is not needed any more: a newer one is durable. So are those that it replaces. Returns where the oldest was.
    #[inline]
    pub(super) fn retire(&mut self, segments: &mut Segments, lba: u64, old: Address) -> Location {
        let mut old = old;
        loop {
            match old.location() {
                Location::Media(place) => {
                    segments.set_dead(place);
                    return Location::Media(place);
                }
                Location::Buffered { stripe, block } => {
                    let block = &mut self.slab[stripe].blocks[block as usize];
                    let is_trim = matches!(block.source, Source::Trim { .. });
                    let superseded = if is_trim { Address::SUPERSEDED } else { Address::NOWHERE };
                    old = std::mem::replace(block.old_of(lba), superseded);
                    block.is_superseded |= !is_trim;
                }
                oldest => return oldest,
            }
        }
    }

    /// A block that is not written becomes padding, if it holds tombstones of a host. Returns what it was.
    pub(super) fn pad_trim(&mut self, stripe: u32, at: u32) -> Option<Source> {
        let block = &mut self.slab[stripe].blocks[at as usize];
        matches!(block.source, Source::Trim { .. }).then(|| block.pad())
    }

    /// Flushes that wait for a stripe do so no more.
    pub(super) fn take_flushes(&mut self, stripe: u32) -> Vec<u32> {
        std::mem::take(&mut self.slab[stripe].flushes)
    }

    /// A stripe ends without being written.
    pub(super) fn withdraw(&mut self, stripe: u32) -> Stripe {
        self.slab.remove(stripe)
    }

    /// A stripe counts, and all its blocks are published. Adds the flushes that waited for it to `ended`.
    #[inline]
    pub(super) fn finish(&mut self, stripe: u32, ended: &mut Vec<(u32, u64)>) {
        let mut stripe = self.slab.remove(stripe);
        ended.extend(stripe.flushes.drain(..).map(|request| (request, 1)));
        self.spare.reuse(stripe);
    }

    /// An empty list of requests and parts, to be [given back](Stripes::give_back).
    #[inline]
    pub(super) fn take_list(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.spare.ended)
    }

    #[inline]
    pub(super) fn give_back(&mut self, list: Vec<(u32, u64)>) {
        self.spare.ended = list;
    }

    /// Where a block is going to be, once its stripe has a number and slots.
    #[inline]
    pub(super) fn place_of(&self, spec: &Spec, segments: &Segments, index: u32, block: u32) -> Physical {
        let stripe = &self.slab[index];
        let segment = stripe.segment.expect("it was written somewhere");
        let payload = spec.shape.layout(stripe.stream).payload_blocks();
        let member = spec.shape.member_of((block / payload) as usize, stripe.number);
        let offset = segments[segment].layout.offset_of(stripe.slots[member.as_usize()], block % payload);
        Physical { segment, member, offset }
    }

    /// Markers of lost blocks that wait for a segment come before what is moved. Says whether there are any.
    pub(super) fn put_markers_first(&mut self) -> bool {
        let Stripes { slab, queues, .. } = self;
        let holds_markers =
            |stripe: &u32| slab[*stripe].blocks.iter().any(|block| matches!(block.source, Source::Lost { .. }));
        let ready = &mut queues[Stream::Relocation as usize].ready;
        if !ready.iter().any(holds_markers) {
            return false;
        }
        ready.make_contiguous().sort_by_key(|stripe| !holds_markers(stripe));
        true
    }

    /// What collection moves out of a segment, and what is not being written yet, stays where it is. Returns how many blocks that are.
    pub(super) fn withdraw_moves(&mut self, index: SegmentIndex) -> u32 {
        let Stripes { slab, queues, .. } = self;
        let Queue { ready, filling } = &mut queues[Stream::Relocation as usize];
        let mut withdrawn = 0;
        for &stripe in ready.iter().chain(filling.iter()) {
            for block in &mut slab[stripe].blocks {
                let is_meant = match &block.source {
                    Source::Moved { from, mover: Mover::Collector, .. } => {
                        matches!(from.location(), Location::Media(place) if place.segment == index)
                    }
                    Source::MovedTombstones { from, mover: Mover::Collector, .. } => *from == index,
                    _ => false,
                };
                if is_meant {
                    drop(block.pad());
                    withdrawn += 1;
                }
            }
        }
        let is_needed = |stripe: &u32| {
            let stripe = &slab[*stripe];
            !stripe.flushes.is_empty() || stripe.blocks.iter().any(|block| block.lba != PADDING_LBA)
        };
        let unneeded: Vec<u32> = ready.iter().copied().filter(|stripe| !is_needed(stripe)).collect();
        ready.retain(is_needed);
        // Padding counts as blocks of hosts until its stripe ends.
        self.buffered_blocks += withdrawn as usize;
        for stripe in unneeded {
            self.buffered_blocks -= self.withdraw(stripe).blocks.len();
        }
        withdrawn
    }

    /// Whether stripes of a stream wait for a segment.
    #[inline]
    pub(super) fn has_ready(&self, stream: Stream) -> bool {
        !self.queues[stream as usize].ready.is_empty()
    }

    /// Stripes of a stream that wait for a segment.
    pub(super) fn ready(&self, stream: Stream) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.queues[stream as usize].ready.iter().copied()
    }

    /// A stripe of a stream that is not full.
    pub(super) fn is_filling(&self, stream: Stream) -> Option<u32> {
        self.queues[stream as usize].filling
    }

    /// Blocks of it.
    pub(super) fn filling_blocks(&self, stream: Stream) -> usize {
        self.is_filling(stream).map_or(0, |stripe| self.slab[stripe].blocks.len())
    }

    /// When the stripe that is filled must go, full or not. Nobody waits for blocks that are moved, so these have more time.
    pub(super) fn padding_due(&self, spec: &Spec, stream: Stream) -> Option<Instant> {
        let stripe = self.is_filling(stream)?;
        let wait = if stream == Stream::Relocation { RELOCATION_WAIT } else { 1 };
        Some(self.slab[stripe].opened_at + Duration(spec.config.tuning.flush_interval.0 * wait))
    }

    /// Blocks of hosts that wait in stripes.
    #[inline]
    pub(super) fn buffered_blocks(&self) -> usize {
        self.buffered_blocks
    }

    pub(super) fn padding_blocks(&self) -> u64 {
        self.padding_blocks
    }

    pub(super) fn has_progress(&self) -> bool {
        self.has_progress
    }

    pub(super) fn clear_progress(&mut self) {
        self.has_progress = false;
    }

    /// Whether a stripe holds tombstones of hosts.
    pub(super) fn holds_trim(&self, stripe: u32) -> bool {
        self.slab[stripe].blocks.iter().any(|block| matches!(block.source, Source::Trim { .. }))
    }

    /// Blocks of tombstones of hosts that are in stripes, and blocks that they trim.
    pub(super) fn trims(&self) -> (usize, u64) {
        let trims = self.slab.iter().flat_map(|(_, stripe)| &stripe.blocks).filter_map(|block| match &block.source {
            Source::Trim { olds, .. } => Some(olds.len() as u64),
            _ => None,
        });
        trims.fold((0, 0), |(count, sum), blocks| (count + 1, sum + blocks))
    }

    /// What a version of a block replaces, for checks.
    ///
    /// # Panics
    /// When the block does not know it.
    pub(super) fn replaced_by(&self, lba: u64, (stripe, block): (u32, u32)) -> Address {
        let block = &self.slab[stripe].blocks[block as usize];
        assert!(!block.is_superseded, "block {lba}: what is superseded is in no chain");
        if let Source::Trim { tombstones, olds, .. } = &block.source {
            let at = tombstones.iter().flat_map(Tombstone::lbas).position(|other| other == lba);
            return olds[at.expect("a trim covers the blocks that refer to it")];
        }
        assert_eq!(block.lba, lba, "a block in a stripe knows its address");
        block.old
    }

    /// The timestamp of a version in a stripe.
    pub(super) fn timestamp_of(&self, lba: u64, (stripe, block): (u32, u32)) -> u64 {
        self.slab[stripe].blocks[block as usize].timestamp_of(lba)
    }

    /// Whether a block is on its way from a place to another one. Takes a look at every stripe: for what is rare.
    pub(super) fn is_moving(&self, place: Physical) -> bool {
        let from = Address::media(place);
        self.slab
            .iter()
            .flat_map(|(_, stripe)| &stripe.blocks)
            .any(|block| matches!(block.source, Source::Moved { from: other, .. } if other == from))
    }

    /// The segment that each repaired block in a stripe was read from, for checks.
    pub(super) fn repaired(&self) -> impl Iterator<Item = SegmentIndex> + '_ {
        self.slab.iter().flat_map(|(_, stripe)| &stripe.blocks).filter_map(|block| match block.source {
            Source::Moved { from, mover: Mover::Repair, .. } => match from.location() {
                Location::Media(place) => Some(place.segment),
                _ => None,
            },
            _ => None,
        })
    }

    /// What holds between events.
    ///
    /// # Panics
    /// When it does not.
    pub(super) fn check_invariants(&self, spec: &Spec) {
        for stream in Stream::ALL {
            let capacity = spec.shape.stripe_blocks(stream);
            assert!(self.is_filling(stream).is_none() || self.filling_blocks(stream) < capacity, "a full stripe goes");
            for stripe in self.ready(stream).map(|stripe| &self.slab[stripe]) {
                assert!(stripe.segment.is_none() && stripe.stream == stream, "what waits for a segment has none");
            }
        }
        let is_buffered = |block: &&Block| matches!(block.source, Source::Host { .. } | Source::Trim { .. });
        let blocks = self.slab.iter().flat_map(|(_, stripe)| &stripe.blocks);
        let buffered = blocks.filter(is_buffered).count();
        assert_eq!(self.buffered_blocks, buffered, "blocks of hosts in stripes");
    }

    /// The stripe that takes the next block of a stream.
    #[inline]
    fn filling(&mut self, spec: &Spec, now: Instant, stream: Stream) -> u32 {
        if let Some(stripe) = self.queues[stream as usize].filling {
            return stripe;
        }
        let stripe = match self.spare.stripe() {
            Some(stripe) => stripe.again(stream, now),
            None => Stripe::new(stream, now, spec.shape.stripe_blocks(stream), spec.members()),
        };
        let stripe = self.slab.insert(stripe);
        self.queues[stream as usize].filling = Some(stripe);
        stripe
    }
}

impl Index<u32> for Stripes {
    type Output = Stripe;

    #[inline]
    fn index(&self, index: u32) -> &Stripe {
        &self.slab[index]
    }
}
