//! Blocks gather in stripes.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{CommandId, Duration, Instant, Payload};

use super::Volume;
use super::reuse::USES;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{BlockMeta, PADDING_LBA, Tombstone};
use crate::shape::Stream;
use crate::tables::{Address, SegmentIndex};

/// A stripe on its way: gathering, waiting for a segment, or being written.
#[derive(Debug)]
pub(super) struct Stripe {
    pub(super) stream: Stream,
    /// In the order of the data chunks; fewer than the stripe holds until it is padded.
    pub(super) blocks: Vec<Block>,
    /// Contents of consecutive blocks, in order; empty without contents.
    pub(super) pieces: Vec<Piece>,
    pub(super) opened_at: Instant,
    /// Where it is being written.
    pub(super) segment: Option<SegmentIndex>,
    /// Its number in the segment.
    pub(super) number: u32,
    /// Commands under way.
    pub(super) pending: u32,
    /// Members that have their chunk, and those whose chunk failed, as bits.
    pub(super) present: u32,
    pub(super) failed: u32,
    /// Slot on each member.
    pub(super) slots: Vec<u32>,
    pub(super) attempts: u8,
    /// Flushes that wait for it.
    pub(super) flushes: Vec<u32>,
    /// What the metadata of all its blocks says, chunk by chunk; empty without contents, and before it is written.
    pub(super) metas: Vec<BlockMeta>,
    /// What was computed for it, for each [`Use`](super::reuse::Use).
    pub(super) buffers: [Bytes; USES],
}

/// Contents of consecutive blocks of a stripe.
#[derive(Debug)]
pub(super) struct Piece {
    /// The first of them.
    pub(super) block: u32,
    pub(super) data: Bytes,
}

/// One block of a stripe.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) lba: u64,
    pub(super) timestamp: u64,
    pub(super) source: Source,
    /// Where the block was before; kept until this one is durable.
    pub(super) old: Address,
    /// A newer write of the block is durable already.
    pub(super) is_superseded: bool,
}

/// Why a block is written.
#[derive(Debug)]
pub(super) enum Source {
    /// A host wrote it.
    Host { request: u32 },
    /// It is moved from here.
    Moved {
        from: Address,
        /// Says that it has arrived.
        ticket: Ticket,
        /// The sequence of the segment it is moved out of: once that is gone, its address may come to mean another block.
        sequence: u64,
    },
    /// It holds tombstones of a host's trim.
    Trim {
        request: u32,
        tombstones: Vec<Tombstone>,
        /// Where the blocks trimmed were before, in the order of the ranges.
        olds: Vec<Address>,
    },
    /// It holds tombstones that are moved.
    MovedTombstones { from: SegmentIndex, tombstones: Vec<Tombstone>, ticket: Ticket },
}

/// In the place of a request that has ended.
pub(super) const NO_REQUEST: u32 = u32::MAX;

/// Who moves a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticket {
    Collector,
    /// Found damaged and written anew.
    Mend,
    Start,
}

/// So many times as long as blocks of hosts do blocks wait that are moved.
const RELOCATION_PATIENCE: u64 = 100;

impl Stripe {
    pub(super) fn new(stream: Stream, opened_at: Instant, capacity: usize, members: usize) -> Stripe {
        Stripe {
            stream,
            blocks: Vec::with_capacity(capacity),
            pieces: Vec::new(),
            opened_at,
            segment: None,
            number: 0,
            pending: 0,
            present: 0,
            failed: 0,
            slots: vec![0; members],
            attempts: 0,
            flushes: Vec::new(),
            metas: Vec::new(),
            buffers: [const { Bytes::new() }; USES],
        }
    }

    /// Forgets everything, but keeps the room for it.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.pieces.clear();
        self.flushes.clear();
        self.metas.clear();
        self.slots.fill(0);
    }

    /// Another stripe in the place of one that was cleared.
    pub(super) fn again(self, stream: Stream, opened_at: Instant) -> Stripe {
        let Stripe { blocks, pieces, slots, flushes, metas, .. } = self;
        Stripe { blocks, pieces, slots, flushes, metas, ..Stripe::new(stream, opened_at, 0, 0) }
    }

    /// Whether a host's flush has to wait for it.
    pub(super) fn waits_for_hosts(&self) -> bool {
        let is_of_host = |block: &Block| matches!(block.source, Source::Host { .. } | Source::Trim { .. });
        self.blocks.iter().any(|block| block.lba != PADDING_LBA && is_of_host(block))
    }

    /// Contents of one block.
    pub(super) fn contents(&self, block: u32, block_bytes: usize) -> Option<Bytes> {
        let at = self.pieces.partition_point(|piece| piece.block <= block).checked_sub(1)?;
        let piece = &self.pieces[at];
        let from = (block - piece.block) as usize * block_bytes;
        (from < piece.data.len()).then(|| piece.data.slice(from..from + block_bytes))
    }

    /// Contents of `count` blocks from `first`; what is behind the last block is zeros.
    pub(super) fn chunk(&self, first: u32, count: u32, block_bytes: usize, zeros: &Bytes) -> Bytes {
        let at = self.pieces.partition_point(|piece| piece.block <= first).saturating_sub(1);
        let bytes = count as usize * block_bytes;
        if let Some(piece) = self.pieces.get(at) {
            let from = (first.wrapping_sub(piece.block)) as usize * block_bytes;
            if first >= piece.block && from + bytes <= piece.data.len() {
                return piece.data.slice(from..from + bytes);
            }
        } else if count == 1 {
            return zeros.clone();
        }
        let mut gathered = BytesMut::with_capacity(bytes);
        for piece in &self.pieces[at.min(self.pieces.len())..] {
            let skip =
                (first + (gathered.len() / block_bytes) as u32).saturating_sub(piece.block) as usize * block_bytes;
            if skip < piece.data.len() {
                let wanted = bytes - gathered.len();
                let end = (skip + wanted).min(piece.data.len());
                gathered.extend_from_slice(&piece.data[skip..end]);
            }
            if gathered.len() == bytes {
                break;
            }
        }
        gathered.resize(bytes, 0);
        gathered.freeze()
    }
}

impl Volume {
    pub(super) fn accept_write(&mut self, id: CommandId, start: u64, blocks: u64, payload: Payload) {
        let is_large = self.spec.config.tuning.large_segments > 0
            && blocks >= u64::from(self.spec.config.tuning.large_from_blocks);
        let stream = if is_large { Stream::Large } else { Stream::Small };
        let request = self.requests.begin_write(id, blocks);
        let data = match payload {
            Payload::Bytes(buffer) => buffer.data,
            _ if self.spec.has_contents() && blocks == 1 => self.spec.zeros.clone(),
            _ if self.spec.has_contents() => Bytes::from(vec![0; blocks as usize * self.spec.shape.block_bytes]),
            _ => Bytes::new(),
        };
        self.buffered_blocks += blocks as usize;
        let capacity = self.spec.shape.stripe_blocks(stream) as u64;
        let mut at = 0;
        while at < blocks {
            let stripe = self.filling(stream);
            let entry = &mut self.stripes[stripe];
            let first = entry.blocks.len() as u64;
            let count = (capacity - first).min(blocks - at);
            if !data.is_empty() {
                let bytes = self.spec.shape.block_bytes;
                let piece = data.slice(at as usize * bytes..(at + count) as usize * bytes);
                entry.pieces.push(Piece { block: first as u32, data: piece });
            }
            for block in 0..count {
                let lba = start + at + block;
                let old =
                    std::mem::replace(&mut self.map[lba as usize], Address::buffered(stripe, (first + block) as u32));
                let old = if self.spec.has(SeededBug::EagerRetirement) { self.retire_early(lba, old) } else { old };
                let timestamp = self.next_timestamp;
                self.next_timestamp += 1;
                let source = Source::Host { request };
                self.stripes[stripe].blocks.push(Block { lba, timestamp, source, old, is_superseded: false });
            }
            at += count;
            self.close_if_full(stream);
        }
    }

    /// What [`SeededBug::EagerRetirement`] does.
    fn retire_early(&mut self, lba: u64, old: Address) -> Address {
        self.retire(lba, old);
        Address::NOWHERE
    }

    /// The stripe that takes the next block of a stream.
    pub(super) fn filling(&mut self, stream: Stream) -> u32 {
        if let Some(stripe) = self.stream(stream).filling {
            return stripe;
        }
        let (now, capacity, members) = (self.now, self.spec.shape.stripe_blocks(stream), self.spec.members());
        let stripe = match self.spare.stripe() {
            Some(stripe) => stripe.again(stream, now),
            None => Stripe::new(stream, now, capacity, members),
        };
        let stripe = self.stripes.insert(stripe);
        self.stream_mut(stream).filling = Some(stripe);
        stripe
    }

    /// Adds one block to a stream, and says where it is.
    pub(super) fn push_block(&mut self, stream: Stream, block: Block, data: Bytes) -> (u32, u32) {
        let stripe = self.filling(stream);
        let entry = &mut self.stripes[stripe];
        let at = entry.blocks.len() as u32;
        if !data.is_empty() {
            entry.pieces.push(Piece { block: at, data });
        }
        entry.blocks.push(block);
        self.close_if_full(stream);
        (stripe, at)
    }

    pub(super) fn close_if_full(&mut self, stream: Stream) {
        let capacity = self.spec.shape.stripe_blocks(stream);
        let state = &mut self.streams[stream as usize];
        if let Some(stripe) = state.filling
            && self.stripes[stripe].blocks.len() == capacity
        {
            state.filling = None;
            state.ready.push_back(stripe);
            self.wake();
        }
    }

    /// When the stripe that is filling must go, full or not. Nobody waits for blocks that are moved, so these have more time.
    pub(super) fn padding_due(&self, stream: Stream) -> Option<Instant> {
        let stripe = self.stream(stream).filling?;
        let patience = if stream == Stream::Relocation { RELOCATION_PATIENCE } else { 1 };
        Some(self.stripes[stripe].opened_at + Duration(self.spec.config.tuning.flush_interval.0 * patience))
    }

    pub(super) fn flush_late_stripes(&mut self) {
        for stream in Stream::ALL {
            if self.padding_due(stream).is_some_and(|due| due <= self.now) {
                self.pad(stream);
            }
        }
    }

    /// What is filling goes as it is.
    pub(super) fn pad_all(&mut self) {
        for stream in Stream::ALL {
            self.pad(stream);
        }
    }

    pub(super) fn pad(&mut self, stream: Stream) {
        let capacity = self.spec.shape.stripe_blocks(stream);
        if let Some(stripe) = self.stream_mut(stream).filling.take() {
            self.counters.padding_blocks += (capacity - self.stripes[stripe].blocks.len()) as u64;
            self.stream_mut(stream).ready.push_back(stripe);
        }
    }

    /// Which member holds a block of a stripe, and which block of its chunk it is.
    pub(super) fn holder(&self, stripe: &Stripe, block: u32) -> (MemberIndex, u32) {
        let payload = self.spec.shape.layout(stripe.stream).payload_blocks();
        (self.spec.shape.member_of((block / payload) as usize, stripe.number), block % payload)
    }
}
