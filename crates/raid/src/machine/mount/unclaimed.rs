//! Zones with unreadable headers and without a known segment.
//!
//! If an active member has all its headers, such zones hold nothing that is needed: they were about
//! to be reset, or were never part of a segment. Unless that member is an older copy, or its drive
//! has lost writes after a flush: then nothing else may be left of their segments. So they are read
//! like segments that were about to be reset (see `leaving.rs`) before they are reset. Chunk
//! metadata and footers identify their owner, and metadata beside blocks are confirmed by the
//! contents. If one block in a complete group is newer than all other versions, no member has all
//! headers: the mount is refused.

use std::collections::BTreeSet;

use zonda_zoned::BlockBuffer;

use super::leaving::LeavingRecord;
use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::format::{
    BlockMeta, HEADER_COPIES, MemberState, Place, Record, crc, read_footer_place, read_placed_chunk_meta,
};
use crate::limits::READ_ATTEMPTS_MAX;
use crate::machine::start::StartStep;
use crate::shape::Stream;
use crate::{MemberIndex, VolumeError};

/// The state of such zones.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// Those of each member.
    zones: Vec<BTreeSet<u32>>,
    /// For each member the number of zones that went offline since its last superblock.
    offline: Vec<u32>,
    /// Those that are still to be read, once they are listed.
    unread: Option<Vec<(MemberIndex, u32)>>,
    current: Option<UnclaimedReading>,
}

/// The zone that is being read.
#[derive(Debug)]
struct UnclaimedReading {
    member: MemberIndex,
    zone: u32,
    /// The next block, and the end.
    next: u32,
    end: u32,
    /// Blocks before this offset are read one by one, because they could not be read together.
    single_until: u32,
    /// Failed attempts to read the next block.
    failures: u8,
    contents: Contents,
}

/// The contents of its blocks.
#[derive(Debug, Default)]
struct Contents {
    /// It has a footer.
    is_filled: bool,
    /// The last stripe with a block in it.
    last_stripe: u32,
    /// The first stripe with a block that is newer than all other versions.
    needed: Option<u32>,
    /// Blocks of tombstones: their stripes, and where they are.
    tombstones: Vec<(u32, u32)>,
}

impl Unclaimed {
    pub(super) fn new(zones: Vec<BTreeSet<u32>>, offline: Vec<u32>) -> Unclaimed {
        Unclaimed { zones, offline, ..Unclaimed::default() }
    }

    pub(super) fn zones(&self, member: MemberIndex) -> &BTreeSet<u32> {
        &self.zones[member.as_usize()]
    }

    /// Whether some are still to be read.
    pub(super) fn is_unread(&self) -> bool {
        self.current.is_some() || self.unread.as_ref().is_some_and(|unread| !unread.is_empty())
    }

    pub(super) fn offline(&self, member: MemberIndex) -> u32 {
        self.offline[member.as_usize()]
    }
}

impl Volume {
    /// Continues to read such zones. Returns whether more is to be read.
    pub(super) fn read_unclaimed(&mut self) -> bool {
        if self.found().unclaimed.unread.is_none() {
            let unread = self.unclaimed_to_be_read();
            self.found().unclaimed.unread = Some(unread);
        }
        loop {
            let Some(reading) = self.found().unclaimed.current.take() else {
                let Some((member, zone)) = self.found().unclaimed.unread.as_mut().and_then(Vec::pop) else {
                    return false;
                };
                let reading = UnclaimedReading {
                    member,
                    zone,
                    // In version 1 there is one header.
                    next: HEADER_COPIES - 1,
                    end: self.blocks_in(member, zone),
                    single_until: 0,
                    failures: 0,
                    contents: Contents::default(),
                };
                self.found().unclaimed.current = Some(reading);
                continue;
            };
            let (member, zone, offset) = (reading.member, reading.zone, reading.next);
            if !self.members[member].is_present() {
                continue;
            }
            if offset < reading.end {
                let at_once = if offset < reading.single_until { 1 } else { self.spec.shape.transfer_blocks };
                let blocks = at_once.min(reading.end - offset);
                self.found().unclaimed.current = Some(reading);
                self.read_at_start(member, StartStep::Unclaimed { offset, blocks }, zone, offset, blocks);
                return true;
            }
            self.check_unclaimed(&reading);
            if self.start_mut().pending > 0 {
                return true;
            }
        }
    }

    /// Where losses are accepted nothing is needed, and zones of a member that is being rebuilt are
    /// copies.
    fn unclaimed_to_be_read(&mut self) -> Vec<(MemberIndex, u32)> {
        if self.found().options.accepts_losses || self.spec.has(SeededBug::DroppedSegment) {
            return Vec::new();
        }
        let active = self.members.present().filter(|&member| self.members[member].state() == MemberState::Active);
        let mut zones = Vec::new();
        for member in active.collect::<Vec<_>>() {
            zones.extend(self.found().unclaimed.zones(member).iter().map(|&zone| (member, zone)));
        }
        zones.retain(|&(member, zone)| self.may_hold(member, zone));
        zones
    }

    /// A read of blocks of such a zone has ended: unreadable ones are read one by one, several
    /// times.
    pub(super) fn on_unclaimed_read(&mut self, (offset, blocks): (u32, u32), buffer: Option<&BlockBuffer>) {
        let Some(mut reading) = self.found().unclaimed.current.take() else { return };
        match buffer {
            None if blocks > 1 => reading.single_until = offset + blocks,
            None => {
                reading.failures += 1;
                if reading.failures == READ_ATTEMPTS_MAX {
                    (reading.failures, reading.next) = (0, offset + 1);
                }
            }
            Some(buffer) => {
                (reading.failures, reading.next) = (0, offset + blocks);
                for at in 0..blocks {
                    self.check_unclaimed_block(&mut reading, offset + at, buffer, at as usize);
                }
            }
        }
        self.found().unclaimed.current = Some(reading);
    }

    fn check_unclaimed_block(&mut self, reading: &mut UnclaimedReading, offset: u32, buffer: &BlockBuffer, at: usize) {
        let (array, member) = (self.spec.array, reading.member);
        let accepted = self.members.accepted_segment();
        let Some(block) = block_of(buffer, at, self.spec.shape.block_bytes) else { return };
        let is_ours = |place: &Place| (place.array, place.member) == (array, member.0) && place.segment > accepted;
        if let Some(place) = read_footer_place(block) {
            reading.contents.is_filled |= is_ours(&place);
            return;
        }
        if self.spec.shape.is_in_band {
            let Some((_, chunk)) = read_placed_chunk_meta(block).filter(|(place, _)| is_ours(place)) else { return };
            for (block, (record, _)) in (offset + 1..).zip(&chunk.entries) {
                self.check_unclaimed_record(reading, block, chunk.stripe, &Record::from_bytes(record));
            }
            return;
        }
        // They do not identify their segment: it may be one of those accepted as lost.
        if accepted > 0 {
            return;
        }
        let metadata_bytes = usize::from(self.members[member].geometry().metadata_bytes);
        let metadata = buffer.metadata.get(at * metadata_bytes..(at + 1) * metadata_bytes);
        let meta = metadata.and_then(BlockMeta::read_unsealed).filter(|meta| meta.block_crc == crc(block));
        if let Some(meta) = meta {
            self.check_unclaimed_record(reading, offset, meta.stripe, &Record::from_bytes(&meta.record));
        }
    }

    fn check_unclaimed_record(&mut self, reading: &mut UnclaimedReading, offset: u32, stripe: u32, record: &Record) {
        let relevance = self.classify_record(reading.member, stripe, record);
        let contents = &mut reading.contents;
        contents.last_stripe = contents.last_stripe.max(stripe);
        match relevance {
            LeavingRecord::Nothing => {}
            LeavingRecord::Newer => contents.needed = Some(contents.needed.map_or(stripe, |needed| needed.min(stripe))),
            LeavingRecord::Tombstones => contents.tombstones.push((stripe, offset)),
        }
    }

    /// All of a zone was read: checks whether anything in it is needed.
    fn check_unclaimed(&mut self, reading: &UnclaimedReading) {
        let contents = &reading.contents;
        // A group that is followed by another one, or by a footer, was complete. The stream of the
        // segment is unknown.
        let starts =
            Stream::ALL.iter().map(|&stream| self.spec.shape.layout(stream).group_range(contents.last_stripe).start);
        let end = if contents.is_filled { u32::MAX } else { starts.min().unwrap_or(0) };
        let shown_without = self.showing_all();
        if contents.needed.is_some_and(|stripe| stripe < end) {
            self.found().older_copies |= shown_without;
            return;
        }
        for &(_, offset) in contents.tombstones.iter().filter(|&&(stripe, _)| stripe < end) {
            let step = StartStep::Leaving { shown_without };
            self.read_at_start(reading.member, step, reading.zone, offset, 1);
        }
    }

    /// Why the volume cannot be mounted, if older copies of members have made zones look
    /// unnecessary.
    pub(super) fn too_few_show_all(&mut self) -> Option<VolumeError> {
        if self.found().options.accepts_losses {
            return None;
        }
        self.unidentified_zones()
    }
}
