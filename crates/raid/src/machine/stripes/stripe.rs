//! One stripe in memory: its blocks, their contents, and the state of its chunks.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{Instant, Key};

use super::super::address::Address;
use super::super::requests::RequestKey;
use super::spare::USES;
use crate::format::{BlockMeta, LostPlace, PADDING_LBA, TOMBSTONE_LBA, Tombstone, Tombstones};
use crate::shape::Stream;
use crate::tables::{Physical, SegmentIndex};

/// A stripe in memory: gathering, waiting for a segment, or being written.
#[derive(Debug)]
pub(in crate::machine) struct Stripe {
    pub(in crate::machine) stream: Stream,
    /// In the order of the data chunks; fewer than the stripe holds until it is padded.
    pub(in crate::machine) blocks: Vec<Block>,
    /// Contents of consecutive blocks, in order; empty without contents.
    pub(in crate::machine) pieces: Vec<Piece>,
    pub(in crate::machine) opened_at: Instant,
    /// The segment that it is being written to.
    pub(in crate::machine) segment: Option<SegmentIndex>,
    /// Its number in the segment.
    pub(in crate::machine) number: u32,
    /// Commands in flight.
    pub(in crate::machine) pending: u32,
    /// Members that have their chunk, and those whose chunk failed, as bits.
    pub(in crate::machine) present: u32,
    pub(in crate::machine) failed: u32,
    /// Slot on each member.
    pub(in crate::machine) slots: Vec<u32>,
    pub(in crate::machine) attempts: u8,
    /// Flushes that wait for it.
    pub(in crate::machine) flushes: Vec<RequestKey>,
    /// The metadata of all its blocks, chunk by chunk; empty without contents, and before it is
    /// written.
    pub(in crate::machine) metas: Vec<BlockMeta>,
    /// Buffers that were computed for it, for each [`Use`](super::spare::Use).
    pub(in crate::machine) buffers: [Bytes; USES],
}

/// A stripe in memory.
pub(in crate::machine) type StripeKey = Key<Stripe>;

/// Contents of consecutive blocks of a stripe.
#[derive(Debug)]
pub(in crate::machine) struct Piece {
    /// The first of them.
    pub(in crate::machine) block: u32,
    pub(in crate::machine) data: Bytes,
}

/// One block of a stripe.
#[derive(Debug)]
pub(in crate::machine) struct Block {
    pub(in crate::machine) lba: u64,
    pub(in crate::machine) timestamp: u64,
    pub(in crate::machine) source: Source,
    /// The previous location of the block; kept until this one is durable.
    pub(in crate::machine) old: Address,
    /// A newer write of the block is durable already.
    pub(in crate::machine) is_superseded: bool,
}

/// The source of a block.
#[derive(Debug)]
pub(in crate::machine) enum Source {
    /// A host wrote it. Its request may have ended before.
    Host { request: Option<RequestKey> },
    /// It is moved from here.
    Moved {
        from: Address,
        /// The operation that waits until it is durable.
        mover: Mover,
        /// The sequence number of the segment it is moved out of: once that is reset, its address
        /// may be reused.
        sequence: u64,
    },
    /// Tombstones of a host's trim.
    Trim {
        request: RequestKey,
        tombstones: Vec<Tombstone>,
        /// The previous locations of the trimmed blocks, in the order of the ranges.
        olds: Vec<Address>,
    },
    /// Tombstones that are moved.
    MovedTombstones { from: SegmentIndex, tombstones: Tombstones, mover: Mover },
    /// Markers of lost blocks: the place of each of them, and how the marker names it.
    Lost { tombstones: Vec<Tombstone>, from: Vec<(Physical, LostPlace)> },
}

/// The operation that moves a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Mover {
    Collector,
    /// A read or a scrub has found it damaged.
    Repair,
    /// A mount has found its stripe torn.
    Mount,
}

impl Stripe {
    pub(in crate::machine) fn new(stream: Stream, opened_at: Instant, capacity: usize, members: usize) -> Stripe {
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

    /// Clears the stripe, but keeps the memory.
    pub(in crate::machine) fn clear(&mut self) {
        self.blocks.clear();
        self.pieces.clear();
        self.flushes.clear();
        self.metas.clear();
        self.slots.fill(0);
    }

    /// Reuses a cleared stripe.
    pub(in crate::machine) fn again(self, stream: Stream, opened_at: Instant) -> Stripe {
        let Stripe { blocks, pieces, slots, flushes, metas, .. } = self;
        Stripe { blocks, pieces, slots, flushes, metas, ..Stripe::new(stream, opened_at, 0, 0) }
    }

    /// Whether a host's flush has to wait for it.
    pub(in crate::machine) fn waits_for_hosts(&self) -> bool {
        let is_of_host = |block: &Block| matches!(block.source, Source::Host { .. } | Source::Trim { .. });
        self.blocks.iter().any(|block| block.lba != PADDING_LBA && is_of_host(block))
    }

    /// Contents of one block.
    pub(in crate::machine) fn contents(&self, block: u32, block_bytes: usize) -> Option<Bytes> {
        let at = self.pieces.partition_point(|piece| piece.block <= block).checked_sub(1)?;
        let piece = &self.pieces[at];
        let from = (block - piece.block) as usize * block_bytes;
        (from < piece.data.len()).then(|| piece.data.slice(from..from + block_bytes))
    }

    /// Contents of `count` blocks from `first`; zeros behind the last block.
    pub(in crate::machine) fn chunk(&self, first: u32, count: u32, block_bytes: usize, zeros: &Bytes) -> Bytes {
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

impl Block {
    /// A host wrote it.
    #[inline]
    pub(in crate::machine) fn of_host(lba: u64, timestamp: u64, request: RequestKey, old: Address) -> Block {
        Block { lba, timestamp, source: Source::Host { request: Some(request) }, old, is_superseded: false }
    }

    /// A block that is moved.
    pub(in crate::machine) fn moved(lba: u64, timestamp: u64, from: Address, sequence: u64, mover: Mover) -> Block {
        let source = Source::Moved { from, sequence, mover };
        Block { lba, timestamp, source, old: Address::NOWHERE, is_superseded: false }
    }

    pub(in crate::machine) fn tombstones(source: Source, timestamp: u64) -> Block {
        Block { lba: TOMBSTONE_LBA, timestamp, source, old: Address::NOWHERE, is_superseded: false }
    }

    /// The location that a version of `lba` in this block replaces.
    #[inline]
    pub(super) fn old_of(&mut self, lba: u64) -> &mut Address {
        match &mut self.source {
            Source::Trim { tombstones, olds, .. } => {
                let mut before = 0;
                for range in tombstones.iter() {
                    if range.lbas().contains(&lba) {
                        return &mut olds[before + (lba - range.lba) as usize];
                    }
                    before += range.blocks as usize;
                }
                unreachable!("a trim in a stripe covers the blocks that refer to it")
            }
            _ => &mut self.old,
        }
    }

    /// The timestamp of the version of `lba` in this block.
    pub(super) fn timestamp_of(&self, lba: u64) -> u64 {
        match &self.source {
            Source::Trim { tombstones, .. } => {
                let range = tombstones.iter().find(|range| range.lbas().contains(&lba));
                range.expect("a trim in a stripe covers the blocks that refer to it").timestamp
            }
            _ => self.timestamp,
        }
    }

    /// Turns the block into padding. Returns its source.
    pub(super) fn pad(&mut self) -> Source {
        (self.lba, self.timestamp, self.is_superseded) = (PADDING_LBA, 0, true);
        std::mem::replace(&mut self.source, Source::Host { request: None })
    }
}
