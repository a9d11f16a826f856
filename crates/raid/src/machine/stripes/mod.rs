//! Stripes in memory: they gather blocks, wait for a segment, are written, and end.
//!
//! ```text
//! stripe.rs  one stripe
//! issue.rs   one command to each member
//! encode.rs  the contents for each member
//! spare.rs   memory for reuse
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

use super::address::{Address, Location};
use super::requests::RequestKey;
use super::segments::Segments;
use super::spec::Spec;
use crate::format::{PADDING_LBA, Tombstone};
use crate::shape::Stream;
use crate::tables::{Physical, SegmentIndex};

use spare::Spare;
pub(super) use stripe::{Block, Mover, Piece, Source, Stripe, StripeKey};

/// Owns the stripes in memory, from their first block until they count or are withdrawn.
///
/// The life of a stripe: [`push`](Stripes::push) or [`run`](Stripes::run) and [`add`](Stripes::add)
/// until it is full, or [`pad`](Stripes::pad); [`next_ready`](Stripes::next_ready),
/// [`issue`](Stripes::issue), [`chunk_ended`](Stripes::chunk_ended) for each member; then
/// [`finish`](Stripes::finish), or [`write_again`](Stripes::write_again). The versions of a block
/// that are in stripes form a chain: each remembers what it [replaces](Stripes::old_of) until a
/// newer one [retires](Stripes::retire) it.
#[derive(Debug)]
pub(super) struct Stripes {
    slab: Slab<Stripe>,
    /// For each [`Stream`].
    queues: [Queue; 3],
    /// Host blocks that wait in stripes.
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
    filling: Option<StripeKey>,
    /// Stripes that wait for a segment.
    ready: VecDeque<StripeKey>,
}

/// Moved blocks wait this many times as long for others as host blocks.
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

    /// Adds one block to a stream, and returns its location.
    pub(super) fn push(
        &mut self,
        spec: &Spec,
        now: Instant,
        stream: Stream,
        block: Block,
        data: Bytes,
    ) -> (StripeKey, u32) {
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

    /// The location of the next blocks of a stream: stripe, first block, and how many of `wanted`
    /// fit. Each is to be [added](Stripes::add).
    #[inline]
    pub(super) fn run(&mut self, spec: &Spec, now: Instant, stream: Stream, wanted: u64) -> (StripeKey, u32, u64) {
        let stripe = self.filling(spec, now, stream);
        let first = self.slab[stripe].blocks.len() as u64;
        let count = (spec.shape.stripe_blocks(stream) as u64 - first).min(wanted);
        (stripe, first as u32, count)
    }

    /// Contents of the blocks that are added next.
    #[inline]
    pub(super) fn add_contents(&mut self, stripe: StripeKey, first: u32, data: Bytes) {
        self.slab[stripe].pieces.push(Piece { block: first, data });
    }

    /// A block of a run.
    #[inline]
    pub(super) fn add(&mut self, stripe: StripeKey, block: Block) {
        self.slab[stripe].blocks.push(block);
    }

    /// A full stripe waits for a segment.
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

    /// Pads stripes that have waited too long for blocks.
    pub(super) fn pad_late(&mut self, spec: &Spec, now: Instant) {
        for stream in Stream::ALL {
            if self.padding_due(spec, stream).is_some_and(|due| due <= now) {
                self.pad(spec, stream);
            }
        }
    }

    /// Pads all incomplete stripes.
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
    pub(super) fn next_ready(&mut self, stream: Stream) -> Option<StripeKey> {
        self.queues[stream as usize].ready.pop_front()
    }

    /// A flush waits for all host blocks in stripes. Returns the number of stripes.
    pub(super) fn add_flush(&mut self, request: RequestKey) -> u64 {
        let mut stripes = 0;
        for stripe in self.slab.values_mut() {
            if stripe.waits_for_hosts() {
                stripe.flushes.push(request);
                stripes += 1;
            }
        }
        stripes
    }

    /// Counts host blocks that were added to stripes.
    #[inline]
    pub(super) fn buffer(&mut self, blocks: usize) {
        self.buffered_blocks += blocks;
    }

    /// A host block is not in a stripe any more.
    #[inline]
    pub(super) fn unbuffer_one(&mut self) {
        self.buffered_blocks -= 1;
    }

    /// Takes the source of a block. The stripe stays while its blocks are published: older versions
    /// refer to it.
    #[inline]
    pub(super) fn take_source(&mut self, stripe: StripeKey, at: u32) -> (u64, Source) {
        let block = &mut self.slab[stripe].blocks[at as usize];
        (block.lba, std::mem::replace(&mut block.source, Source::Host { request: None }))
    }

    /// Restores the replaced locations of a trim while its blocks are published.
    pub(super) fn put_trim(&mut self, stripe: StripeKey, at: u32, request: RequestKey, olds: Vec<Address>) {
        self.slab[stripe].blocks[at as usize].source = Source::Trim { request, tombstones: Vec::new(), olds };
    }

    /// The location that a block replaces, now that it is durable; `None` if a newer version has.
    #[inline]
    pub(super) fn take_old(&mut self, stripe: StripeKey, at: u32) -> Option<Address> {
        let block = &mut self.slab[stripe].blocks[at as usize];
        (!block.is_superseded).then(|| std::mem::take(&mut block.old))
    }

    /// The same for a block of a trim, by its index in the trim.
    pub(super) fn take_trimmed(&mut self, stripe: StripeKey, at: u32, place: usize) -> Option<Address> {
        let Source::Trim { olds, .. } = &mut self.slab[stripe].blocks[at as usize].source else {
            unreachable!("the block holds tombstones")
        };
        let old = std::mem::replace(&mut olds[place], Address::SUPERSEDED);
        (old != Address::SUPERSEDED).then_some(old)
    }

    /// The location that a version in a stripe replaces.
    #[inline]
    pub(super) fn old_of(&mut self, lba: u64, (stripe, block): (StripeKey, u32)) -> &mut Address {
        self.slab[stripe].blocks[block as usize].old_of(lba)
    }

    /// Releases a version, since a newer one is durable, and the versions that it replaces. Returns
    /// the location of the oldest.
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

    /// Turns a block that is not written into padding, if it holds tombstones of a host. Returns
    /// its source.
    pub(super) fn pad_trim(&mut self, stripe: StripeKey, at: u32) -> Option<Source> {
        let block = &mut self.slab[stripe].blocks[at as usize];
        matches!(block.source, Source::Trim { .. }).then(|| block.pad())
    }

    /// Flushes do not wait for a stripe any more.
    pub(super) fn take_flushes(&mut self, stripe: StripeKey) -> Vec<RequestKey> {
        std::mem::take(&mut self.slab[stripe].flushes)
    }

    /// A stripe ends without being written.
    pub(super) fn withdraw(&mut self, stripe: StripeKey) -> Stripe {
        let stripe = self.slab.remove(stripe);
        assert!(stripe.segment.is_none(), "a stripe that is being written is not withdrawn");
        stripe
    }

    /// A stripe counts, and all its blocks are published. Adds the flushes that waited for it to
    /// `ended`.
    #[inline]
    pub(super) fn finish(&mut self, stripe: StripeKey, ended: &mut Vec<(RequestKey, u64)>) {
        let mut stripe = self.slab.remove(stripe);
        assert!(stripe.segment.is_some() && stripe.pending == 0, "a stripe counts when all of it was written");
        ended.extend(stripe.flushes.drain(..).map(|request| (request, 1)));
        self.spare.reuse(stripe);
    }

    /// An empty list of requests and parts, to be [returned](Stripes::return_list).
    #[inline]
    pub(super) fn take_list(&mut self) -> Vec<(RequestKey, u64)> {
        std::mem::take(&mut self.spare.ended)
    }

    #[inline]
    pub(super) fn return_list(&mut self, list: Vec<(RequestKey, u64)>) {
        self.spare.ended = list;
    }

    /// The future place of a block, once its stripe has a number and slots.
    #[inline]
    pub(super) fn place_of(&self, spec: &Spec, segments: &Segments, stripe: StripeKey, block: u32) -> Physical {
        let stripe = &self.slab[stripe];
        let segment = stripe.segment.expect("it was written somewhere");
        let payload = spec.shape.layout(stripe.stream).payload_blocks();
        let member = spec.shape.member_of((block / payload) as usize, stripe.number);
        let offset = segments[segment].layout.offset_of(stripe.slots[member.as_usize()], block % payload);
        Physical { segment, member, offset }
    }

    /// Moves markers of lost blocks that wait for a segment before moved blocks. Returns whether
    /// there are any.
    pub(super) fn put_markers_first(&mut self) -> bool {
        let Stripes { slab, queues, .. } = self;
        let holds_markers =
            |stripe: &StripeKey| slab[*stripe].blocks.iter().any(|block| matches!(block.source, Source::Lost { .. }));
        let ready = &mut queues[Stream::Relocation as usize].ready;
        if !ready.iter().any(holds_markers) {
            return false;
        }
        ready.make_contiguous().sort_by_key(|stripe| !holds_markers(stripe));
        true
    }

    /// Withdraws blocks of a segment that collection moves and that are not being written yet.
    /// Returns their number.
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
        let is_needed = |stripe: &StripeKey| {
            let stripe = &slab[*stripe];
            !stripe.flushes.is_empty() || stripe.blocks.iter().any(|block| block.lba != PADDING_LBA)
        };
        let unneeded: Vec<StripeKey> = ready.iter().copied().filter(|stripe| !is_needed(stripe)).collect();
        ready.retain(is_needed);
        // Padding counts as host blocks until its stripe ends.
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
    pub(super) fn ready(&self, stream: Stream) -> impl ExactSizeIterator<Item = StripeKey> + '_ {
        self.queues[stream as usize].ready.iter().copied()
    }

    /// An incomplete stripe of a stream.
    pub(super) fn is_filling(&self, stream: Stream) -> Option<StripeKey> {
        self.queues[stream as usize].filling
    }

    /// Blocks of it.
    pub(super) fn filling_blocks(&self, stream: Stream) -> usize {
        self.is_filling(stream).map_or(0, |stripe| self.slab[stripe].blocks.len())
    }

    /// When the incomplete stripe is padded. Nothing waits for moved blocks, so these have more
    /// time.
    pub(super) fn padding_due(&self, spec: &Spec, stream: Stream) -> Option<Instant> {
        let stripe = self.is_filling(stream)?;
        let wait = if stream == Stream::Relocation { RELOCATION_WAIT } else { 1 };
        Some(self.slab[stripe].opened_at + Duration(spec.config.tuning.flush_interval.0 * wait))
    }

    /// Host blocks that wait in stripes.
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
    pub(super) fn holds_trim(&self, stripe: StripeKey) -> bool {
        self.slab[stripe].blocks.iter().any(|block| matches!(block.source, Source::Trim { .. }))
    }

    /// Blocks of tombstones of hosts that are in stripes, and the blocks that they trim.
    pub(super) fn trims(&self) -> (usize, u64) {
        let trims = self.slab.iter().flat_map(|(_, stripe)| &stripe.blocks).filter_map(|block| match &block.source {
            Source::Trim { olds, .. } => Some(olds.len() as u64),
            _ => None,
        });
        trims.fold((0, 0), |(count, sum), blocks| (count + 1, sum + blocks))
    }

    /// The location that a version of a block replaces, for checks.
    ///
    /// # Panics
    /// If the block does not have it.
    pub(super) fn replaced_by(&self, lba: u64, (stripe, block): (StripeKey, u32)) -> Address {
        let block = &self.slab[stripe].blocks[block as usize];
        assert!(!block.is_superseded, "block {lba}: a superseded version is in no chain");
        if let Source::Trim { tombstones, olds, .. } = &block.source {
            let at = tombstones.iter().flat_map(Tombstone::lbas).position(|other| other == lba);
            return olds[at.expect("a trim covers the blocks that refer to it")];
        }
        assert_eq!(block.lba, lba, "a block in a stripe knows its address");
        block.old
    }

    /// The timestamp of a version in a stripe.
    pub(super) fn timestamp_of(&self, lba: u64, (stripe, block): (StripeKey, u32)) -> u64 {
        self.slab[stripe].blocks[block as usize].timestamp_of(lba)
    }

    /// Whether a block is being moved from a place. Examines every stripe: for rare cases.
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

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
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

    /// The stripe that receives the next block of a stream.
    #[inline]
    fn filling(&mut self, spec: &Spec, now: Instant, stream: Stream) -> StripeKey {
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

impl Index<StripeKey> for Stripes {
    type Output = Stripe;

    #[inline]
    fn index(&self, key: StripeKey) -> &Stripe {
        &self.slab[key]
    }
}
