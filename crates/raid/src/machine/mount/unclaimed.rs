//! Zones whose headers cannot be read, and that are of no segment that is known.
//!
//! Where an active member shows all headers that there were such zones hold nothing that is needed: they were about to be reset, or were
//! never part of a segment. Unless that member is an older copy of itself, or its drive has lost what it had said was flushed: then
//! nothing else may be left of their segments. So they are read as what is about to go is (see `leaving.rs`) before they are reset. Chunk
//! metadata and footers say whose they are, and metadata beside blocks prove themselves by their contents. One block in a complete group
//! that is newer than all other versions says that no member shows all: the mount is refused.

use std::collections::BTreeSet;

use zonda_zoned::BlockBuffer;

use super::leaving::Said;
use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::format::{
    BlockMeta, HEADER_COPIES, MemberState, Place, Record, crc, read_footer_place, read_placed_chunk_meta,
};
use crate::limits::READ_ATTEMPTS_MAX;
use crate::machine::start::StartStep;
use crate::shape::Stream;
use crate::{MemberIndex, VolumeError};

/// What is known of such zones.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// Those of each member.
    zones: Vec<BTreeSet<u32>>,
    /// For each member how many zones are offline since its last superblock.
    offline: Vec<u32>,
    /// Those that are still to be read, once they are listed.
    unread: Option<Vec<(MemberIndex, u32)>>,
    current: Option<UnclaimedReading>,
}

/// One that is being read.
#[derive(Debug)]
struct UnclaimedReading {
    member: MemberIndex,
    zone: u32,
    /// The next block, and the one behind the last.
    next: u32,
    end: u32,
    /// Where single blocks are read, because they could not be read together, until here.
    single_until: u32,
    /// Times that the next block could not be.
    failures: u8,
    contents: Contents,
}

/// What its blocks say.
#[derive(Debug, Default)]
struct Contents {
    /// It has a footer.
    is_filled: bool,
    /// The last stripe of which it holds something.
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
    /// Goes on reading such zones. Says whether there is more to be read.
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
            self.judge_unclaimed(&reading);
            if self.start_mut().pending > 0 {
                return true;
            }
        }
    }

    /// Where losses are accepted nothing is needed, and zones of a member that is being rebuilt are copies.
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

    /// Blocks of such a zone were read, or could not be: then one after the other is, several times.
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
                    self.look_at_unclaimed(&mut reading, offset + at, buffer, at as usize);
                }
            }
        }
        self.found().unclaimed.current = Some(reading);
    }

    fn look_at_unclaimed(&mut self, reading: &mut UnclaimedReading, offset: u32, buffer: &BlockBuffer, at: usize) {
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
                self.look_at_record(reading, block, chunk.stripe, &Record::from_bytes(record));
            }
            return;
        }
        // They do not say of which segment they are: it may be one of those that were accepted as lost.
        if accepted > 0 {
            return;
        }
        let metadata_bytes = usize::from(self.members[member].geometry().metadata_bytes);
        let metadata = buffer.metadata.get(at * metadata_bytes..(at + 1) * metadata_bytes);
        let meta = metadata.and_then(BlockMeta::read_unsealed).filter(|meta| meta.block_crc == crc(block));
        if let Some(meta) = meta {
            self.look_at_record(reading, offset, meta.stripe, &Record::from_bytes(&meta.record));
        }
    }

    fn look_at_record(&mut self, reading: &mut UnclaimedReading, offset: u32, stripe: u32, record: &Record) {
        let said = self.said(reading.member, stripe, record);
        let contents = &mut reading.contents;
        contents.last_stripe = contents.last_stripe.max(stripe);
        match said {
            Said::Nothing => {}
            Said::Newer => contents.needed = Some(contents.needed.map_or(stripe, |needed| needed.min(stripe))),
            Said::Tombstones => contents.tombstones.push((stripe, offset)),
        }
    }

    /// All of a zone was read: is anything in it needed?
    fn judge_unclaimed(&mut self, reading: &UnclaimedReading) {
        let contents = &reading.contents;
        // A group that another one follows, or a footer, was complete. Whose stream it is is not known.
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

    /// Why the volume cannot be mounted, if older copies of members have shown that zones hold nothing.
    pub(super) fn too_few_show_all(&mut self) -> Option<VolumeError> {
        if self.found().options.accepts_losses {
            return None;
        }
        self.unidentified_zones()
    }
}
