//! Consistency check of the members' media against the state that the volume assumes; for tests,
//! which read the media directly.
//!
//! As long as all members answer, hosts cannot see whether a volume could lose as many as it
//! tolerates. It can if each needed block is in a stripe that is complete and intact on all members
//! that should have it, if zones begin with their headers, and if each member has two copies of the
//! newest superblock.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{BlockBuffer, Lba};

use super::Volume;
use super::pieces::Chunk;
use crate::MemberIndex;
use crate::format::{RECORD_BYTES, Superblock};
use crate::limits::METADATA_ZONES;
use crate::tables::{Physical, Segment, SegmentState};

/// The result of reading a block of a member.
pub(crate) enum MediaRead {
    /// Its data and its metadata.
    Block(Bytes, Bytes),
    /// It cannot be read.
    Unreadable,
    /// The block does not count: its damage was injected.
    Excused,
}

/// Reads blocks of members.
pub(crate) type MediaReader<'a> = dyn FnMut(MemberIndex, Lba) -> MediaRead + 'a;

/// An inconsistency on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inconsistency {
    pub(crate) member: MemberIndex,
    pub(crate) lba: Lba,
    /// A human-readable description.
    pub(crate) what: String,
}

/// A chunk on its member, as it was read.
enum Found {
    Chunk(Chunk),
    Inconsistency(Lba, &'static str),
    Excused,
}

impl Volume {
    /// The inconsistencies on the members; missing footers count only if `with_footers`, since a
    /// zone may have none.
    pub(crate) fn inconsistencies_on_media(
        &self,
        with_footers: bool,
        read_block: &mut MediaReader<'_>,
    ) -> Vec<Inconsistency> {
        let mut inconsistencies = Vec::new();
        if !self.is_ready() || !self.spec.has_contents() {
            return inconsistencies;
        }
        self.inspect_superblocks(read_block, &mut inconsistencies);
        for (_, segment) in self.segments.iter().filter(|(_, segment)| is_needed(segment)) {
            self.inspect_described(segment, with_footers, read_block, &mut inconsistencies);
            let stripes = (0..segment.next_stripe).filter(|&stripe| self.is_stripe_needed(segment, stripe));
            stripes.for_each(|stripe| self.inspect_stripe(segment, stripe, read_block, &mut inconsistencies));
        }
        inconsistencies
    }

    /// Each member has two copies of the newest superblock.
    fn inspect_superblocks(&self, read_block: &mut MediaReader<'_>, inconsistencies: &mut Vec<Inconsistency>) {
        if !self.members.is_epoch_durable() {
            return;
        }
        let newest = (self.members.epoch(), self.members.superblock_sequence());
        for member in self.members.present() {
            let geometry = self.members[member].geometry();
            let (capacity, transfer) = (geometry.zone_capacity_blocks.0 as u32, geometry.max_transfer_blocks.0);
            let (mut copies, mut is_excused) = (0, transfer == 1);
            for (zone, offset) in (0..METADATA_ZONES).flat_map(|zone| (0..capacity).map(move |at| (zone, at))) {
                match read_block(member, self.members[member].lba(zone, offset)) {
                    MediaRead::Block(data, _) => {
                        let found = Superblock::read(&data).map(|found| (found.epoch, found.sequence));
                        let is_newest = found.is_ok_and(|found| found == newest);
                        copies += u32::from(is_newest);
                        // After an interrupted write there may be space for one.
                        is_excused |= is_newest && offset + 1 == capacity;
                    }
                    MediaRead::Unreadable => {}
                    MediaRead::Excused => is_excused = true,
                }
            }
            if copies < 2 && !is_excused {
                let what = format!("copies of its newest superblock, of epoch {}: {copies}", newest.0);
                inconsistencies.push(Inconsistency { member, lba: self.members[member].lba(0, 0), what });
            }
        }
    }

    /// Members that should have the zone of a segment.
    fn holders(&self, segment: &Segment) -> impl Iterator<Item = (MemberIndex, u32)> {
        let zone = |member: MemberIndex| segment.zones[member.as_usize()].filter(|_| segment.has(member));
        self.members.present().filter_map(move |member| Some((member, zone(member)?)))
    }

    fn inspect_described(
        &self,
        segment: &Segment,
        with_footers: bool,
        read_block: &mut MediaReader<'_>,
        inconsistencies: &mut Vec<Inconsistency>,
    ) {
        let layout = &segment.layout;
        // A crash has left it without footers, and it is emptied in the background.
        let has_footers = with_footers && segment.state == SegmentState::Sealed && !segment.is_exposed;
        let footer = (layout.footer_offset()..layout.footer_offset() + layout.footer_blocks).filter(|_| has_footers);
        let described: Vec<u32> = (0..layout.header_blocks).chain(footer).collect();
        for (member, zone) in self.holders(segment) {
            for &offset in &described {
                let lba = self.members[member].lba(zone, offset);
                let is_footer = offset >= layout.header_blocks;
                let is_wrong = match read_block(member, lba) {
                    MediaRead::Block(data, _) => !self.describes(segment.sequence, member, is_footer, &data),
                    MediaRead::Unreadable => true,
                    MediaRead::Excused => false,
                };
                if is_wrong {
                    let name = if is_footer { "footer" } else { "header" };
                    let what = format!("a {name} of segment {} is damaged", segment.sequence);
                    inconsistencies.push(Inconsistency { member, lba, what });
                }
            }
        }
    }

    /// Whether a stripe is complete, and a block of it is needed.
    fn is_stripe_needed(&self, segment: &Segment, stripe: u32) -> bool {
        let is_complete = self.spec.member_indices().all(|member| segment.slots.slot_of(member, stripe).is_some());
        is_complete
            && (0..self.spec.shape.data()).any(|chunk| {
                let member = self.spec.shape.member_of(chunk, stripe);
                let slot = segment.slots.slot_of(member, stripe).expect("the stripe is complete");
                let has_tombstones = |offset: u32| {
                    let is_here = |place: &Physical| (place.member, place.offset) == (member, offset);
                    segment.tombstones.iter().any(is_here)
                };
                (0..segment.layout.payload_blocks()).any(|row| {
                    let offset = segment.layout.offset_of(slot, row);
                    segment.is_live(member, offset) || has_tombstones(offset)
                })
            })
    }

    /// All chunks of a stripe are present and intact, and parity matches the data.
    fn inspect_stripe(
        &self,
        segment: &Segment,
        stripe: u32,
        read_block: &mut MediaReader<'_>,
        inconsistencies: &mut Vec<Inconsistency>,
    ) {
        let mut chunks: Vec<Option<Chunk>> = (0..self.spec.members()).map(|_| None).collect();
        for (member, zone) in self.holders(segment) {
            match self.read_chunk(segment, stripe, (member, zone), read_block) {
                Found::Chunk(chunk) => chunks[self.spec.shape.chunk_of(member, stripe)] = Some(chunk),
                Found::Inconsistency(lba, what) => {
                    let what = format!("its chunk of stripe {stripe} of segment {} {what}", segment.sequence);
                    inconsistencies.push(Inconsistency { member, lba, what });
                }
                Found::Excused => {}
            }
        }
        let (data, parity) = chunks.split_at(self.spec.shape.data());
        let Some(data) = data.iter().map(Option::as_ref).collect::<Option<Vec<&Chunk>>>() else { return };
        let contents: Vec<&[u8]> = data.iter().map(|chunk| &chunk.data[..]).collect();
        let records: Vec<Vec<u8>> = data.iter().map(|chunk| records_of(chunk)).collect();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let coded = self.coded(&contents, contents[0].len()).into_iter();
        let coded = coded.zip(self.coded(&records, data[0].records.len() * RECORD_BYTES));
        for (at, (chunk, expected)) in parity.iter().zip(coded).enumerate() {
            let is_wrong = |chunk: &Chunk| chunk.data[..] != expected.0[..] || records_of(chunk) != expected.1;
            if chunk.as_ref().is_some_and(is_wrong) {
                let member = self.spec.shape.member_of(self.spec.shape.data() + at, stripe);
                let zone = segment.zones[member.as_usize()].unwrap_or(0);
                let slot = segment.slots.slot_of(member, stripe).expect("the stripe is complete");
                let lba = self.members[member].lba(zone, segment.layout.slot_offset(slot));
                let what = format!("parity mismatch in stripe {stripe} of segment {}", segment.sequence);
                inconsistencies.push(Inconsistency { member, lba, what });
            }
        }
    }

    fn read_chunk(
        &self,
        segment: &Segment,
        stripe: u32,
        (member, zone): (MemberIndex, u32),
        read_block: &mut MediaReader<'_>,
    ) -> Found {
        let slot = segment.slots.slot_of(member, stripe).expect("the stripe is complete");
        let first = segment.layout.slot_offset(slot);
        let start = self.members[member].lba(zone, first);
        let (mut data, mut metadata) = (BytesMut::new(), BytesMut::new());
        let mut unreadable = None;
        for offset in first..first + segment.layout.unit_blocks {
            let lba = self.members[member].lba(zone, offset);
            match read_block(member, lba) {
                MediaRead::Block(block, of_block) => {
                    data.extend_from_slice(&block);
                    metadata.extend_from_slice(&of_block);
                }
                MediaRead::Unreadable => unreadable = Some(lba),
                MediaRead::Excused => return Found::Excused,
            }
        }
        if let Some(lba) = unreadable {
            return Found::Inconsistency(lba, "cannot be read");
        }
        let buffer = BlockBuffer { data: data.freeze(), metadata: metadata.freeze() };
        match self.found_chunk(segment, member, (slot, stripe), &buffer, 0, &[]) {
            Some((chunk, _)) if chunk.is_whole() => Found::Chunk(chunk),
            _ if self.may_be_elsewhere(segment, stripe, (member, zone), read_block) => Found::Excused,
            _ => Found::Inconsistency(start, "is missing or damaged"),
        }
    }

    /// Whether a chunk may be in another slot than the table records: a mount that finds damaged
    /// slots in the last group of a segment cannot know which stripes they hold. Such a segment is
    /// emptied.
    fn may_be_elsewhere(
        &self,
        segment: &Segment,
        stripe: u32,
        (member, zone): (MemberIndex, u32),
        read_block: &mut MediaReader<'_>,
    ) -> bool {
        let layout = &segment.layout;
        let blocks = layout.group_range(stripe).flat_map(|slot| {
            let first = layout.slot_offset(slot);
            first..first + layout.unit_blocks
        });
        let mut blocks = blocks.map(|offset| self.members[member].lba(zone, offset));
        segment.is_exposed
            && segment.is_suspect
            && blocks.any(|lba| matches!(read_block(member, lba), MediaRead::Excused))
    }
}

/// Whether something in a segment is needed.
fn is_needed(segment: &Segment) -> bool {
    let is_present = matches!(segment.state, SegmentState::Open | SegmentState::Closing | SegmentState::Sealed);
    is_present && (segment.live_blocks > 0 || !segment.tombstones.is_empty())
}

fn records_of(chunk: &Chunk) -> Vec<u8> {
    chunk.records.iter().flatten().flatten().copied().collect()
}
