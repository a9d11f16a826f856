//! Metadata of each block of a segment's zones. The footer of a filled zone has all of them; in
//! other zones the blocks have their own, up to the first unwritten one.

use std::collections::BTreeSet;
use std::ops::Range;

use zonda_zoned::{BlockBuffer, ZoneState};

use super::headers::FoundSegment;
use super::salvage::Salvage;
use super::superblocks::written_blocks;
use super::{Volume, block_of};
use crate::format::{
    BlockMeta, Place, PlaceSeed, RECORD_BYTES, crc, footer_entries_per_block, read_chunk_meta, read_footer_block,
};
use crate::limits::READ_ATTEMPTS_MAX;
use crate::machine::start::StartStep;
use crate::shape::{Layout, Stream};
use crate::{MemberIndex, VolumeError};

/// Bytes that are compared with zeros together.
const LINE_BYTES: usize = 64;

/// The segment that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) sequence: u64,
    pub(super) found: FoundSegment,
    pub(super) layout: Layout,
    pub(super) stream: Stream,
    /// For each present member with a zone.
    pub(super) zones: Vec<Option<ZoneReading>>,
}

/// A zone of the segment.
#[derive(Debug)]
pub(super) struct ZoneReading {
    pub(super) zone: u32,
    pub(super) state: ZoneState,
    pub(super) written: u32,
    /// The contents of each slot, as far as known.
    pub(super) slots: Vec<Option<SlotRead>>,
    phase: ReadPhase,
    /// Entries of the footer so far.
    entries: Vec<BlockMeta>,
    /// Damaged slots: they were written, or may have been, with unknown contents.
    noise: BTreeSet<u32>,
    /// Damaged blocks: of the footer, and of slots with unknown contents.
    damaged: BTreeSet<u32>,
    /// A block of the footer is damaged: the rest is read only to find other damaged blocks.
    is_footer_damaged: bool,
    /// Consecutive blank slots.
    blank: u32,
    /// Slots before this one are read one by one, because they could not be read together.
    single_until: u32,
    /// Failed attempts to read the current slot.
    failures: u8,
    /// The current slot, if it is read block by block.
    salvage: Option<Salvage>,
}

/// A chunk that was found.
#[derive(Clone, Debug)]
pub(super) struct SlotRead {
    pub(super) stripe: u32,
    /// Its payload blocks.
    pub(super) blocks: Box<[BlockRead]>,
}

/// One block of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRead {
    /// Its metadata, if these are intact.
    pub(super) meta: Option<BlockMeta>,
    /// Whether its contents match the metadata. A footer is trusted.
    pub(super) is_good: bool,
    /// Whether it was never written: its contents and metadata are zeros.
    pub(super) is_blank: bool,
    /// Whether it holds anything but zeros: an expected block of zeros is intact even if it was
    /// never written.
    is_written: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadPhase {
    /// Blocks of the footer from this one.
    Footer(u32),
    /// Slots from this one.
    Slots(u32),
    Done,
}

impl ZoneReading {
    /// Whether it has an intact footer.
    pub(super) fn has_footer(&self, layout: &Layout) -> bool {
        self.entries.len() == layout.entries() as usize
    }

    /// Damaged slots of a group: each may hold the chunk of any of its stripes.
    pub(super) fn noise_in(&self, group: &Range<u32>) -> u32 {
        let says_another = |slot: &u32| {
            let read = self.slots[*slot as usize].as_ref();
            read.is_some_and(|read| !group.contains(&read.stripe))
        };
        (self.noise.range(group.clone()).count() + group.clone().filter(says_another).count()) as u32
    }

    /// Whether a written block cannot be read.
    pub(super) fn is_damaged(&self) -> bool {
        let is_bad = |read: &SlotRead| read.blocks.iter().any(|block| !block.is_good && !block.is_blank);
        !self.noise.is_empty() || self.slots.iter().flatten().any(is_bad)
    }

    /// The end of the written slots.
    pub(super) fn end(&self) -> u32 {
        let known = self.slots.iter().rposition(Option::is_some).map(|slot| slot as u32);
        known.max(self.noise.last().copied()).map_or(0, |slot| slot + 1)
    }

    /// Whether the last slot that was read was never written, as far as is known, in a zone that
    /// was finished before it was full. Until it was finished its write pointer marked the end, and
    /// a mount read nothing behind that: blocks without metadata there may have existed then. If a
    /// written block follows, these slots are [holes](Self::find_holes).
    fn is_behind_end(&self) -> bool {
        !self.state.is_active() && self.blank > 0
    }

    /// Drives write whole blocks in sequence: a blank block in front of a written one has lost its
    /// contents.
    pub(super) fn find_holes(&mut self, layout: &Layout) {
        let end = self.end();
        for slot in 0..end {
            match &mut self.slots[slot as usize] {
                Some(read) => {
                    let blocks = read.blocks.len();
                    let last = read.blocks.iter().rposition(|block| block.is_written).unwrap_or(0);
                    let written = if slot + 1 < end { blocks } else { last };
                    read.blocks[..written].iter_mut().for_each(|block| block.is_blank = false);
                }
                None => {
                    if self.noise.insert(slot) {
                        let first = layout.slot_offset(slot);
                        self.damaged.extend(first..first + layout.unit_blocks);
                    }
                }
            }
        }
    }

    /// All damaged blocks. Blocks that a rebuild could not compute have a wrong checksum, and are
    /// known already.
    pub(super) fn damaged(&self, layout: &Layout, block_bytes: usize) -> Vec<u32> {
        let uncomputed = !crc(&vec![0; block_bytes]);
        let is_uncomputed = |block: &BlockRead| block.meta.is_some_and(|meta| meta.block_crc == uncomputed);
        let is_damaged = |block: &BlockRead| !block.is_good && !block.is_blank && !is_uncomputed(block);
        let mut damaged = self.damaged.clone();
        for (slot, read) in (0..).zip(&self.slots) {
            let blocks = (0..).zip(read.iter().flat_map(|read| &*read.blocks));
            let wrong = blocks.filter(|(_, block)| is_damaged(block));
            damaged.extend(wrong.map(|(block, _)| layout.offset_of(slot, block)));
        }
        damaged.into_iter().collect()
    }
}

impl Volume {
    /// Begins with the next segment; returns whether there is one.
    pub(super) fn read_next_segment(&mut self) -> bool {
        let Some((sequence, found)) = self.found().segments.pop_first() else { return false };
        self.read_segment(sequence, found);
        true
    }

    /// Begins to read a segment.
    pub(super) fn read_segment(&mut self, sequence: u64, found: FoundSegment) {
        let header = &found.header;
        let stream = Stream::ALL.into_iter().find(|&stream| stream as u8 == header.stream).unwrap_or(Stream::Small);
        let meta_blocks = u32::from(self.spec.shape.is_in_band);
        let per_block = footer_entries_per_block(self.spec.shape.block_bytes as u32) as u64;
        let payload = u64::from(header.unit_blocks.saturating_sub(meta_blocks));
        let layout = Layout {
            header_blocks: header.copies,
            unit_blocks: header.unit_blocks,
            meta_blocks,
            group_stripes: header.group_stripes,
            stripes: header.stripes,
            footer_blocks: (u64::from(header.stripes) * payload).div_ceil(per_block) as u32,
        };
        let around = u64::from(layout.footer_blocks) + u64::from(layout.header_blocks);
        let end = u64::from(layout.stripes) * u64::from(layout.unit_blocks) + around;
        let is_possible = payload > 0
            && layout.group_stripes > 0
            && layout.stripes > 0
            && found
                .zones
                .iter()
                .zip(self.members.iter())
                .all(|(zone, member)| zone.is_none() || end <= member.geometry().zone_capacity_blocks.0);
        if !is_possible {
            // Its checksum is right, so another program wrote it: the segment is not modified.
            let member = MemberIndex(found.header.member);
            let what = format!("segment {sequence} has another layout than the volume; use the program that wrote it");
            return self.fail(VolumeError::Member { member, what });
        }
        let mut zones = Vec::new();
        for (at, zone) in found.zones.iter().enumerate() {
            let descriptor = zone.map(|zone| self.start_mut().zones[at][zone as usize].clone());
            zones.push(zone.zip(descriptor).map(|(zone, descriptor)| ZoneReading {
                zone,
                state: descriptor.state,
                written: written_blocks(&descriptor),
                slots: vec![None; layout.stripes as usize],
                phase: if descriptor.state.is_active() { ReadPhase::Slots(0) } else { ReadPhase::Footer(0) },
                entries: Vec::new(),
                noise: BTreeSet::new(),
                damaged: BTreeSet::new(),
                is_footer_damaged: false,
                blank: 0,
                single_until: 0,
                failures: 0,
                salvage: None,
            }));
        }
        self.found().current = Some(Reading { sequence, found, layout, stream, zones });
        for member in self.members.present() {
            self.read_on(member);
        }
    }

    /// Reads the next blocks of a member's zone.
    fn read_on(&mut self, member: MemberIndex) {
        let transfer = self.spec.shape.transfer_blocks;
        let Some(reading) = &mut self.found().current else { return };
        let layout = reading.layout;
        let Some(zone) = reading.zones[member.as_usize()].as_mut() else { return };
        let number = zone.zone;
        let (offset, blocks) = match zone.phase {
            ReadPhase::Done => return,
            ReadPhase::Footer(next) => {
                let at_once = if next < zone.single_until { 1 } else { transfer };
                (layout.footer_offset() + next, (layout.footer_blocks - next).min(at_once))
            }
            ReadPhase::Slots(next) => {
                let offset = layout.slot_offset(next);
                // A partially written chunk counts: a zone that is finished later shows it as well.
                let slots_written = zone.written.saturating_sub(layout.header_blocks).div_ceil(layout.unit_blocks);
                let end = slots_written.min(layout.stripes);
                // Beyond the limit of the drive, or an empty group, there is nothing.
                if next >= end || zone.blank > layout.group_stripes.max(transfer / layout.unit_blocks) {
                    zone.phase = ReadPhase::Done;
                    return;
                }
                if let Some(salvage) = &zone.salvage {
                    let offset = offset + salvage.next();
                    return self.read_at_start(member, StartStep::Blocks { offset }, number, offset, 1);
                }
                let at_once = if next < zone.single_until { 1 } else { (transfer / layout.unit_blocks).max(1) };
                (offset, at_once.min(end - next) * layout.unit_blocks)
            }
        };
        self.read_at_start(member, StartStep::Blocks { offset }, number, offset, blocks);
    }

    pub(super) fn on_blocks_read(&mut self, member: MemberIndex, offset: u32, buffer: Option<BlockBuffer>) {
        let block_bytes = self.spec.shape.block_bytes;
        let metadata_bytes = usize::from(self.members[member].geometry().metadata_bytes);
        let (array, is_in_band, transfer) =
            (self.spec.array, self.spec.shape.is_in_band, self.spec.shape.transfer_blocks);
        let Some(reading) = &mut self.found().current else { return };
        let layout = reading.layout;
        let place = Place { array, segment: reading.sequence, member: member.0 };
        let Some(zone) = reading.zones[member.as_usize()].as_mut() else { return };
        match zone.phase {
            ReadPhase::Done => {}
            ReadPhase::Footer(next) => {
                let at_once = if next < zone.single_until { 1 } else { transfer };
                let requested = (layout.footer_blocks - next).min(at_once);
                zone.phase = zone.footer_read(&place, &layout, (next, requested), buffer.as_ref(), block_bytes);
            }
            ReadPhase::Slots(next) => {
                let salvaged = zone.salvage.as_ref().map_or(0, Salvage::next);
                assert_eq!(offset, layout.slot_offset(next) + salvaged, "the slots of a zone are read in their order");
                let buffer = match zone.salvage.take() {
                    None => buffer,
                    Some(mut salvage) => {
                        if buffer.is_none() {
                            zone.damaged.insert(layout.slot_offset(next) + salvage.next());
                        }
                        salvage.add(buffer, block_bytes, metadata_bytes);
                        if salvage.next() < layout.unit_blocks {
                            zone.salvage = Some(salvage);
                            return self.read_on(member);
                        }
                        Some(salvage.into_buffer())
                    }
                };
                match buffer {
                    None if next < zone.single_until || layout.unit_blocks >= transfer => {
                        zone.failures += 1;
                        if zone.failures == READ_ATTEMPTS_MAX {
                            zone.failures = 0;
                            zone.salvage = Some(Salvage::default());
                        }
                    }
                    None => zone.single_until = next + (transfer / layout.unit_blocks).max(1),
                    Some(buffer) => {
                        zone.failures = 0;
                        let count = (buffer.data.len() / block_bytes) as u32 / layout.unit_blocks;
                        let seed = place.seed();
                        for at in 0..count {
                            let metas = if is_in_band {
                                slot_in_band(&place, &buffer, at, &layout, block_bytes)
                            } else {
                                slot_out_of_band(seed, &buffer, at, &layout, block_bytes, metadata_bytes)
                            };
                            if metas.is_some() {
                                zone.blank = 0;
                            } else if is_slot_blank(&buffer, at, &layout, block_bytes, metadata_bytes)
                                || zone.is_behind_end()
                                    && has_no_metadata(&buffer, at, &layout, block_bytes, metadata_bytes)
                            {
                                zone.blank += 1;
                            } else {
                                zone.blank = 0;
                                zone.noise.insert(next + at);
                                let wrong = wrong_in_slot(&buffer, at, &layout, block_bytes, metadata_bytes);
                                zone.damaged.extend(wrong.map(|block| layout.slot_offset(next + at) + block));
                            }
                            zone.slots[(next + at) as usize] = metas;
                        }
                        zone.phase = ReadPhase::Slots(next + count.max(1));
                    }
                }
            }
        }
        self.read_on(member);
    }
}

impl ZoneReading {
    /// The footer is complete: it describes all blocks.
    fn take_footer(&mut self, layout: &Layout) -> ReadPhase {
        if !self.has_footer(layout) {
            return self.without_footer();
        }
        let payload = layout.payload_blocks() as usize;
        for (slot, metas) in self.slots.iter_mut().zip(self.entries.chunks(payload)) {
            let stripe = metas[0].stripe;
            let is_whole = stripe != u32::MAX && metas.iter().all(|meta| meta.stripe == stripe);
            let good = |&meta| BlockRead { meta: Some(meta), is_good: true, is_blank: false, is_written: true };
            let blocks = metas.iter().map(good);
            *slot = is_whole.then(|| SlotRead { stripe, blocks: blocks.collect() });
        }
        ReadPhase::Done
    }

    /// A read of blocks of the footer has ended. A damaged footer does not count, but its other
    /// damaged blocks do.
    fn footer_read(
        &mut self,
        place: &Place,
        layout: &Layout,
        (next, requested): (u32, u32),
        buffer: Option<&BlockBuffer>,
        block_bytes: usize,
    ) -> ReadPhase {
        let Some(buffer) = buffer else {
            self.failures += 1;
            if requested > 1 {
                // Each of them identifies itself.
                (self.failures, self.single_until) = (0, next + requested);
            } else if self.failures == READ_ATTEMPTS_MAX {
                self.failures = 0;
                self.is_footer_damaged = true;
                self.damaged.insert(layout.footer_offset() + next);
                return self.after_footer(layout, next + 1);
            }
            return ReadPhase::Footer(next);
        };
        self.failures = 0;
        if let Some((blocks, entries)) = footer_entries(place, buffer, self.entries.len(), block_bytes) {
            self.entries.extend(entries);
            return self.after_footer(layout, next + blocks);
        }
        for (at, block) in (next..).zip(buffer.data.chunks(block_bytes)) {
            if !is_zeros(Some(block)) && read_footer_block(place, block).is_none() {
                self.is_footer_damaged = true;
                self.damaged.insert(layout.footer_offset() + at);
            }
        }
        // A zone that was finished early has none.
        if self.is_footer_damaged { self.after_footer(layout, next + requested) } else { self.without_footer() }
    }

    fn after_footer(&mut self, layout: &Layout, next: u32) -> ReadPhase {
        match next {
            _ if next < layout.footer_blocks => ReadPhase::Footer(next),
            _ if self.is_footer_damaged => self.without_footer(),
            _ => self.take_footer(layout),
        }
    }

    fn without_footer(&mut self) -> ReadPhase {
        self.single_until = 0;
        self.entries = Vec::new();
        ReadPhase::Slots(0)
    }
}

/// The number of blocks read, and their entries; `None` if one is not the expected block.
fn footer_entries(
    place: &Place,
    buffer: &BlockBuffer,
    known: usize,
    block_bytes: usize,
) -> Option<(u32, Vec<BlockMeta>)> {
    let mut found: Vec<BlockMeta> = Vec::new();
    let mut blocks = 0;
    for block in buffer.data.chunks(block_bytes) {
        let (first, entries) = read_footer_block(place, block)?;
        if first as usize != known + found.len() {
            return None;
        }
        found.extend(entries);
        blocks += 1;
    }
    Some((blocks, found))
}

/// The chunk in a slot; `None` if no block identifies it. In an interrupted write only the first
/// blocks do.
fn slot_out_of_band(
    seed: PlaceSeed,
    buffer: &BlockBuffer,
    at: u32,
    layout: &Layout,
    block_bytes: usize,
    metadata_bytes: usize,
) -> Option<SlotRead> {
    let first = (at * layout.unit_blocks) as usize;
    let read = |block: usize| {
        let bytes = buffer.metadata.get(block * metadata_bytes..(block + 1) * metadata_bytes);
        let row = (block - first) as u32;
        let meta = bytes.and_then(|bytes| BlockMeta::read_oob(seed, row, bytes));
        let data = block_of(buffer, block, block_bytes);
        let is_good = meta.is_some_and(|meta| data.map(crc) == Some(meta.block_crc));
        // Metadata first: if they are not zeros the block need not be checked.
        let is_written = !is_zeros(bytes) || !is_zeros(data);
        BlockRead { meta, is_good, is_blank: !is_good && !is_written, is_written }
    };
    let mut blocks: Box<[BlockRead]> = (first..first + layout.unit_blocks as usize).map(read).collect();
    let stripe = blocks.iter().find_map(|block| block.meta)?.stripe;
    for block in &mut blocks {
        if block.meta.is_some_and(|meta| meta.stripe != stripe) {
            *block = BlockRead { meta: None, is_good: false, is_blank: false, is_written: true };
        }
    }
    Some(SlotRead { stripe, blocks })
}

/// Blocks of a slot with unknown contents that are not blank. With metadata in band the first one
/// describes all.
fn wrong_in_slot(
    buffer: &BlockBuffer,
    at: u32,
    layout: &Layout,
    block_bytes: usize,
    metadata_bytes: usize,
) -> impl Iterator<Item = u32> {
    let holds_something = move |block: &u32| {
        let block = (at * layout.unit_blocks + block) as usize;
        let metadata = buffer.metadata.get(block * metadata_bytes..(block + 1) * metadata_bytes);
        !is_zeros(block_of(buffer, block, block_bytes)) || !is_zeros(metadata)
    };
    let is_in_band = layout.meta_blocks > 0;
    (0..layout.unit_blocks).filter(move |block| if is_in_band { *block == 0 } else { holds_something(block) })
}

/// Whether the metadata of all blocks of a slot are zeros, whatever their contents. With metadata
/// in band they are its first block.
fn has_no_metadata(buffer: &BlockBuffer, at: u32, layout: &Layout, block_bytes: usize, metadata_bytes: usize) -> bool {
    let blocks = (at * layout.unit_blocks) as usize..((at + 1) * layout.unit_blocks) as usize;
    if layout.meta_blocks > 0 {
        return is_zeros(block_of(buffer, blocks.start, block_bytes));
    }
    is_zeros(buffer.metadata.get(blocks.start * metadata_bytes..blocks.end * metadata_bytes))
}

/// Whether nothing was written to a slot.
fn is_slot_blank(buffer: &BlockBuffer, at: u32, layout: &Layout, block_bytes: usize, metadata_bytes: usize) -> bool {
    let blocks = (at * layout.unit_blocks) as usize..((at + 1) * layout.unit_blocks) as usize;
    let metadata = buffer.metadata.get(blocks.start * metadata_bytes..blocks.end * metadata_bytes);
    is_zeros(buffer.data.get(blocks.start * block_bytes..blocks.end * block_bytes)) && is_zeros(metadata)
}

/// Whether these bytes, if there are any, are zeros. On drives that return something else for
/// unwritten blocks, these count as written.
fn is_zeros(bytes: Option<&[u8]>) -> bool {
    // A line at a time: checking each byte takes longer than the checksum.
    let is_line_zeros = |line: &[u8]| line.iter().fold(0, |all, byte| all | byte) == 0;
    bytes.is_none_or(|bytes| bytes.chunks(LINE_BYTES).all(is_line_zeros))
}

fn slot_in_band(place: &Place, buffer: &BlockBuffer, at: u32, layout: &Layout, block_bytes: usize) -> Option<SlotRead> {
    let first = (at * layout.unit_blocks) as usize;
    let chunk = read_chunk_meta(place, block_of(buffer, first, block_bytes)?)?;
    if chunk.entries.len() != layout.payload_blocks() as usize {
        return None;
    }
    let read = |(block, (record, block_crc)): (usize, ([u8; RECORD_BYTES], u32))| {
        let data = block_of(buffer, first + 1 + block, block_bytes);
        let meta = BlockMeta { record, block_crc, stripe: chunk.stripe };
        let (sum, is_written) = (data.map(crc), !is_zeros(data));
        let is_good = sum == Some(block_crc);
        // A rebuild that could not compute a block wrote zeros and a wrong checksum.
        let is_lost = sum.map(|sum| !sum) == Some(block_crc);
        BlockRead { meta: Some(meta), is_good, is_blank: !is_good && !is_lost && !is_written, is_written }
    };
    let blocks = chunk.entries.into_iter().enumerate().map(read).collect();
    Some(SlotRead { stripe: chunk.stripe, blocks })
}
