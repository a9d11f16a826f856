//! The map of logical blocks to locations.
//!
//! ```text
//! versions.rs  versions of a block, in stripes and on media: which is the newest, and which is durable
//! trim/        ranges that read as zeros
//! lost.rs      blocks that can never be read again
//! failed.rs    blocks of which a write has failed, and may be there after a crash
//! extent.rs    which blocks hold something
//! ```

mod extent;
mod failed;
mod lost;
mod trim;
mod versions;

use std::collections::BTreeSet;

use bytes::Bytes;
use zonda_zoned::Instant;

use super::address::{Address, Location};
use super::requests::{RequestKey, Requests};
use super::segments::Segments;
use super::spec::Spec;
use super::stripes::{Block, Stripes};
use crate::bug::SeededBug;
use crate::shape::Stream;

pub use extent::Extent;
use failed::FailedWrites;
use trim::Trims;

/// Owns the location of each logical block, pending trims, and the timestamps of versions.
///
/// Operations: [`write`](Map::write) when a write is accepted, [`publish`](Map::publish) when its
/// stripe counts; for trims [`begin_trim`](Map::begin_trim), [`pump_trims`](Map::pump_trims) and
/// [`next_ended_trim`](Map::next_ended_trim); for moved blocks
/// [`publish_moved`](Map::publish_moved). A mount [points](Map::point) blocks to the newest
/// versions that it finds.
#[derive(Debug)]
pub(super) struct Map {
    entries: Vec<Address>,
    trims: Trims,
    /// Blocks whose newest durable version is lost.
    lost: BTreeSet<u64>,
    failed: FailedWrites,
    next_timestamp: u64,
    /// Since the last count some tombstones became unnecessary, or were written although they were
    /// unnecessary.
    has_stale_tombstones: bool,
}

/// The other owners that a write or a trim needs: the stripes that receive new versions, the
/// segments that hold old ones, the requests that wait for them.
#[derive(Debug)]
pub(super) struct Reach<'a> {
    pub(super) spec: &'a Spec,
    pub(super) segments: &'a mut Segments,
    pub(super) stripes: &'a mut Stripes,
    pub(super) requests: &'a mut Requests,
    pub(super) now: Instant,
}

impl Map {
    pub(super) fn new(spec: &Spec) -> Map {
        Map {
            entries: vec![Address::NOWHERE; spec.volume_blocks() as usize],
            trims: Trims::default(),
            lost: BTreeSet::new(),
            failed: FailedWrites::default(),
            next_timestamp: 1,
            has_stale_tombstones: true,
        }
    }

    /// Adds blocks of a host request to stripes of a stream; from then on these are their
    /// locations.
    pub(super) fn write(
        &mut self,
        reach: &mut Reach<'_>,
        stream: Stream,
        request: RequestKey,
        (start, blocks): (u64, u64),
        data: &Bytes,
    ) {
        let Reach { spec, segments, stripes, now, .. } = reach;
        stripes.buffer(blocks as usize);
        let bytes = spec.shape.block_bytes;
        let mut at = 0;
        while at < blocks {
            let (stripe, first, count) = stripes.run(spec, *now, stream, blocks - at);
            if !data.is_empty() {
                let piece = data.slice(at as usize * bytes..(at + count) as usize * bytes);
                stripes.add_contents(stripe, first, piece);
            }
            for block in 0..count {
                let lba = start + at + block;
                let address = Address::buffered(stripe, first + block as u32);
                let mut old = std::mem::replace(&mut self.entries[lba as usize], address);
                if spec.has(SeededBug::EagerRetirement) {
                    let _ = stripes.retire(segments, lba, std::mem::take(&mut old));
                }
                let timestamp = self.take_timestamp();
                stripes.add(stripe, Block::of_host(lba, timestamp, request, old));
            }
            at += count;
            stripes.close_if_full(spec, stream);
        }
    }

    /// Where the newest version of a block is.
    #[inline]
    pub(super) fn location(&self, lba: u64) -> Location {
        self.entries[lba as usize].location()
    }

    /// The location of a block for readers: a trim counts before its tombstones are written.
    #[inline]
    pub(super) fn location_for_hosts(&self, lba: u64) -> Location {
        if self.trims.has(lba) { Location::Nowhere } else { self.location(lba) }
    }

    /// Blocks of the volume.
    pub(super) fn blocks(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Of the next version.
    pub(super) fn next_timestamp(&self) -> u64 {
        self.next_timestamp
    }

    /// Checks the invariants between events. Returns for each segment how many of its blocks are
    /// live.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self, stripes: &Stripes, segments: &Segments) -> Vec<u32> {
        let mut live = vec![0u32; segments.iter().map(|(index, _)| index.as_usize() + 1).max().unwrap_or(0)];
        let mut lost = BTreeSet::new();
        for (lba, &entry) in (0..).zip(&self.entries) {
            let mut entry = entry;
            loop {
                match entry.location() {
                    Location::Nowhere => break,
                    Location::Trimmed { segment } | Location::Lost { segment } => {
                        lost.extend(matches!(entry.location(), Location::Lost { .. }).then_some(lba));
                        let segment = segments.get(segment).expect("a tombstone's segment exists");
                        assert!(!segment.tombstones.is_empty(), "block {lba}: a trimmed block has a tombstone");
                        break;
                    }
                    Location::Media(place) => {
                        let segment = segments.get(place.segment).expect("a block's segment exists");
                        assert!(
                            segment.is_live(place.member, place.offset),
                            "block {lba} is live at its location in the map"
                        );
                        assert!(!segment.is_resetting(), "block {lba} is in a segment that is reset");
                        live[place.segment.as_usize()] += 1;
                        break;
                    }
                    Location::Buffered { stripe, block } => entry = stripes.replaced_by(lba, (stripe, block)),
                }
            }
        }
        assert!(lost == self.lost, "blocks that are lost are listed");
        self.check_trims(stripes);
        live
    }

    fn take_timestamp(&mut self) -> u64 {
        self.next_timestamp += 1;
        self.next_timestamp - 1
    }
}
