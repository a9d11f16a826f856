//! What is on the members' media, compared with what the volume takes to be there: for checks, which look at the media themselves.
//!
//! As long as all members answer, hosts do not see whether a volume could lose as many as it tolerates. It can if each block that is
//! needed is in a stripe that is complete and right on all members that the volume takes to have it, if zones begin with their headers,
//! and if each member has the newest superblock twice.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{BlockBuffer, Lba};

use super::Volume;
use super::pieces::Chunk;
use crate::MemberIndex;
use crate::format::{RECORD_BYTES, Superblock};
use crate::limits::METADATA_ZONES;
use crate::tables::{Physical, Segment, SegmentState};

/// What a look at a block of a member has brought.
pub(crate) enum Look {
    /// Its data and its metadata.
    Block(Bytes, Bytes),
    /// It cannot be read.
    Unreadable,
    /// It does not count: what is wrong with it is not the volume's fault.
    Excused,
}

/// Looks at blocks.
pub(crate) type Looker<'a> = dyn FnMut(MemberIndex, Lba) -> Look + 'a;

/// Something on a member that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) member: MemberIndex,
    pub(crate) lba: Lba,
    /// What exactly, for a person.
    pub(crate) what: String,
}

/// A chunk on its member, as it was looked at.
enum Found {
    Chunk(Chunk),
    Wrong(Lba, &'static str),
    Excused,
}

impl Volume {
    /// What is wrong on the members; footers only where they are asked for, since a zone may do without.
    pub(crate) fn wrong_on_media(&self, with_footers: bool, look: &mut Looker<'_>) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        if !self.is_ready() || !self.spec.has_contents() {
            return wrong;
        }
        self.inspect_superblocks(look, &mut wrong);
        for (_, segment) in self.segments.iter().filter(|(_, segment)| is_needed(segment)) {
            self.inspect_described(segment, with_footers, look, &mut wrong);
            let stripes = (0..segment.next_stripe).filter(|&stripe| self.is_stripe_needed(segment, stripe));
            stripes.for_each(|stripe| self.inspect_stripe(segment, stripe, look, &mut wrong));
        }
        wrong
    }

    /// Each member has the newest superblock twice.
    fn inspect_superblocks(&self, look: &mut Looker<'_>, wrong: &mut Vec<Wrong>) {
        if !self.members.is_epoch_durable() {
            return;
        }
        let newest = (self.members.epoch(), self.members.superblock_sequence());
        for member in self.members.present() {
            let geometry = self.members[member].geometry();
            let (capacity, transfer) = (geometry.zone_capacity_blocks.0 as u32, geometry.max_transfer_blocks.0);
            let (mut copies, mut is_excused) = (0, transfer == 1);
            for (zone, offset) in (0..METADATA_ZONES).flat_map(|zone| (0..capacity).map(move |at| (zone, at))) {
                match look(member, self.members[member].lba(zone, offset)) {
                    Look::Block(data, _) => {
                        let found = Superblock::read(&data).map(|found| (found.epoch, found.sequence));
                        let is_newest = found.is_ok_and(|found| found == newest);
                        copies += u32::from(is_newest);
                        // After a write that was cut short there may be room for one.
                        is_excused |= is_newest && offset + 1 == capacity;
                    }
                    Look::Unreadable => {}
                    Look::Excused => is_excused = true,
                }
            }
            if copies < 2 && !is_excused {
                let what = format!("its newest superblock, of epoch {}, is there {copies} times", newest.0);
                wrong.push(Wrong { member, lba: self.members[member].lba(0, 0), what });
            }
        }
    }

    /// Members of which the volume takes the zone of a segment to be there.
    fn holders(&self, segment: &Segment) -> impl Iterator<Item = (MemberIndex, u32)> {
        let zone = |member: MemberIndex| segment.zones[member.as_usize()].filter(|_| segment.has(member));
        self.members.present().filter_map(move |member| Some((member, zone(member)?)))
    }

    fn inspect_described(&self, segment: &Segment, with_footers: bool, look: &mut Looker<'_>, wrong: &mut Vec<Wrong>) {
        let layout = &segment.layout;
        // A crash has left it without footers, and it is emptied beside hosts.
        let has_footers = with_footers && segment.state == SegmentState::Sealed && !segment.is_exposed;
        let footer = (layout.footer_offset()..layout.footer_offset() + layout.footer_blocks).filter(|_| has_footers);
        let described: Vec<u32> = (0..layout.header_blocks).chain(footer).collect();
        for (member, zone) in self.holders(segment) {
            for &offset in &described {
                let lba = self.members[member].lba(zone, offset);
                let is_footer = offset >= layout.header_blocks;
                let is_wrong = match look(member, lba) {
                    Look::Block(data, _) => !self.describes(segment.sequence, member, is_footer, &data),
                    Look::Unreadable => true,
                    Look::Excused => false,
                };
                if is_wrong {
                    let name = if is_footer { "footer" } else { "header" };
                    let what = format!("a {name} of segment {} is not right", segment.sequence);
                    wrong.push(Wrong { member, lba, what });
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

    /// All chunks of a stripe are there and right, and parity is that of the data.
    fn inspect_stripe(&self, segment: &Segment, stripe: u32, look: &mut Looker<'_>, wrong: &mut Vec<Wrong>) {
        let mut chunks: Vec<Option<Chunk>> = (0..self.spec.members()).map(|_| None).collect();
        for (member, zone) in self.holders(segment) {
            match self.look_at_chunk(segment, stripe, (member, zone), look) {
                Found::Chunk(chunk) => chunks[self.spec.shape.chunk_of(member, stripe)] = Some(chunk),
                Found::Wrong(lba, what) => {
                    let what = format!("its chunk of stripe {stripe} of segment {} {what}", segment.sequence);
                    wrong.push(Wrong { member, lba, what });
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
                let what = format!("parity of stripe {stripe} of segment {} is not that of its data", segment.sequence);
                wrong.push(Wrong { member, lba, what });
            }
        }
    }

    fn look_at_chunk(
        &self,
        segment: &Segment,
        stripe: u32,
        (member, zone): (MemberIndex, u32),
        look: &mut Looker<'_>,
    ) -> Found {
        let slot = segment.slots.slot_of(member, stripe).expect("the stripe is complete");
        let first = segment.layout.slot_offset(slot);
        let start = self.members[member].lba(zone, first);
        let (mut data, mut metadata) = (BytesMut::new(), BytesMut::new());
        let mut unreadable = None;
        for offset in first..first + segment.layout.unit_blocks {
            let lba = self.members[member].lba(zone, offset);
            match look(member, lba) {
                Look::Block(block, of_block) => {
                    data.extend_from_slice(&block);
                    metadata.extend_from_slice(&of_block);
                }
                Look::Unreadable => unreadable = Some(lba),
                Look::Excused => return Found::Excused,
            }
        }
        if let Some(lba) = unreadable {
            return Found::Wrong(lba, "cannot be read");
        }
        let buffer = BlockBuffer { data: data.freeze(), metadata: metadata.freeze() };
        match self.found_chunk(segment, member, (slot, stripe), &buffer, 0, &[]) {
            Some((chunk, _)) if chunk.is_whole() => Found::Chunk(chunk),
            _ if self.may_be_elsewhere(segment, stripe, (member, zone), look) => Found::Excused,
            _ => Found::Wrong(start, "is not there, or is not right"),
        }
    }

    /// Whether a chunk may be in another slot than the table says: a mount that finds damaged slots in the last group of a segment cannot
    /// know which stripes they hold. Such a segment is emptied.
    fn may_be_elsewhere(
        &self,
        segment: &Segment,
        stripe: u32,
        (member, zone): (MemberIndex, u32),
        look: &mut Looker<'_>,
    ) -> bool {
        let layout = &segment.layout;
        let blocks = layout.group_range(stripe).flat_map(|slot| {
            let first = layout.slot_offset(slot);
            first..first + layout.unit_blocks
        });
        let mut blocks = blocks.map(|offset| self.members[member].lba(zone, offset));
        segment.is_exposed && segment.is_suspect && blocks.any(|lba| matches!(look(member, lba), Look::Excused))
    }
}

/// Whether something in a segment is needed.
fn is_needed(segment: &Segment) -> bool {
    let is_there = matches!(segment.state, SegmentState::Open | SegmentState::Closing | SegmentState::Sealed);
    is_there && (segment.live_blocks > 0 || !segment.tombstones.is_empty())
}

fn records_of(chunk: &Chunk) -> Vec<u8> {
    chunk.records.iter().flatten().flatten().copied().collect()
}
