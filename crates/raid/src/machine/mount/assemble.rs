//! Assembles stripes from the blocks read from the zones of a segment.

use zonda_zoned::ZoneState;

use super::Volume;
use super::versions::CopyState;
use super::zones::{BlockRead, Reading, ZoneReading};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::{BlockMeta, LostPlace, PADDING_LBA, RECORD_BYTES, Record, crc};
use crate::shape::bits;
use crate::tables::{Physical, Segment, SegmentIndex, SegmentState};

/// A stripe of which something was found.
pub(super) struct FoundStripe {
    number: u32,
    /// Members that have their chunk, as bits.
    present: u32,
    /// All present members have their chunks, and these are intact.
    pub(super) is_whole: bool,
    /// It may never have been complete.
    pub(super) is_torn: bool,
    /// A present member was never sent all of its chunk.
    pub(super) is_cut: bool,
    /// For each row of its blocks whether too few of them are intact to compute the others; empty
    /// if that holds for none.
    lost_rows: Box<[bool]>,
}

impl Volume {
    /// Adds the segment that was read to the volume.
    pub(super) fn assemble(&mut self) {
        let mut reading = self.found().current.take().expect("a segment was read");
        self.drop_unfinished(&mut reading);
        let layout = reading.layout;
        for (at, zone) in reading.zones.iter_mut().enumerate() {
            let is_copy = reading.found.copied >> at & 1 == 1;
            zone.iter_mut()
                .filter(|zone| !is_copy && !zone.has_footer(&layout))
                .for_each(|zone| zone.find_holes(&layout));
        }
        let zones: Vec<Option<u32>> = reading.zones.iter().map(|zone| zone.as_ref().map(|zone| zone.zone)).collect();
        let mut segment = Segment::with_layout(
            reading.sequence,
            reading.stream,
            layout,
            &self.spec.shape,
            zones,
            self.spec.array,
            true,
        );
        segment.opened = (reading.found.header.epoch, reading.found.header.timestamp);
        segment.footers = None;
        segment.offline = reading.found.offline;
        for (at, zone) in reading.zones.iter().enumerate() {
            if zone.as_ref().is_some_and(|zone| zone.state.is_active()) {
                segment.active |= 1 << at;
            }
        }
        segment.state = if segment.active == 0 { SegmentState::Sealed } else { SegmentState::Open };
        // An open segment receives no more stripes: its last group may lack anything.
        segment.is_broken = true;
        let is_filled = reading.zones.iter().flatten().any(|zone| zone.has_footer(&layout));
        let last = reading.zones.iter().flatten().map(ZoneReading::end).max().unwrap_or(0);
        self.find_older_copies(&reading);
        let mut stripes = Vec::new();
        let mut unseen = 0;
        let mut first = 0;
        while first < last {
            let group = layout.group_range(first);
            // A group that is followed by another one, or by a footer, was complete.
            let was_complete = is_filled || last > group.end;
            let is_complete = self.place_group(&mut segment, &reading, group.clone(), was_complete, &mut stripes);
            if !was_complete && !self.spec.has(SeededBug::UncountedStripes) {
                unseen = self.unseen_stripes(&reading, &group);
            }
            if !is_complete {
                break;
            }
            segment.slots.seal_group();
            first = group.end;
        }
        segment.next_stripe = first.max(stripes.last().map_or(0, |stripe: &FoundStripe| stripe.number + 1));
        for (at, zone) in reading.zones.iter().enumerate() {
            let (Some(sums), Some(zone)) = (segment.sums.get_mut(at), zone) else { continue };
            for (slot, read) in zone.slots.iter().enumerate() {
                for (block, meta) in read.iter().flat_map(|read| &*read.blocks).map(|block| block.meta).enumerate() {
                    if let Some(meta) = meta {
                        sums[slot * layout.payload_blocks() as usize + block] = meta.block_crc;
                    }
                }
            }
        }
        assert!(segment.next_stripe <= layout.stripes, "only the stripes of a segment are found in it");
        self.count_timestamps(&reading);
        let index = self.segments.insert_found(segment);
        if reading.found.has_damaged_header {
            self.segments.set_damaged(index);
        }
        self.count_damaged(index, &reading);
        for stripe in &stripes {
            let copy_state = self.copy_state(index, stripe, is_filled);
            self.take_stripe(index, &reading, stripe, copy_state);
        }
        if reading.found.is_leaving() {
            // The blocks that they trimmed are trimmed by other tombstones.
            let tombstones = self.segments[index].tombstones.clone();
            self.found().losses.cut.extend(tombstones);
        }
        if !reading.found.is_leaving() {
            self.lose_unseen(&reading, unseen, first);
        }
        let mut without_footer = reading.zones.iter().flatten().filter(|zone| !zone.has_footer(&layout)).peekable();
        if without_footer.peek().is_some() {
            self.segments.set_exposed(index);
        }
        if without_footer.any(ZoneReading::is_damaged) {
            self.segments.set_damaged(index);
        }
        self.segments.add_candidate(index);
    }

    /// Counts the damaged blocks of a segment, those of its headers, too.
    fn count_damaged(&mut self, index: SegmentIndex, reading: &Reading) {
        for (member, zone) in (0..).map(MemberIndex).zip(&reading.zones) {
            let Some(zone) = zone else { continue };
            let headers = self.found().damaged_headers.get(&(member, zone.zone)).cloned().unwrap_or_default();
            let mut damaged = zone.damaged(&reading.layout, self.spec.shape.block_bytes);
            damaged.extend(headers.into_iter().filter(|&offset| offset < reading.layout.header_blocks));
            self.found_damaged_at(index, member, &damaged);
        }
    }

    /// Drops zones that a rebuild did not complete.
    fn drop_unfinished(&mut self, reading: &mut Reading) {
        for member in 0..self.spec.members() {
            let index = MemberIndex(member as u8);
            let is_present = self.members[index].is_present();
            let Some(zone) = &reading.zones[member] else { continue };
            // The last step of a rebuild is to make the zone full.
            let is_full = zone.state == ZoneState::Full || self.spec.has(SeededBug::HalfRebuiltZone);
            let is_unfinished = reading.found.rebuilt >> member & 1 == 1 && !is_full;
            if is_unfinished || !is_present {
                let number = zone.zone;
                reading.zones[member] = None;
                if is_present {
                    self.reset_orphan(index, number);
                }
            }
        }
    }

    /// Assigns the chunks of a group to their slots. Returns whether the group is complete.
    fn place_group(
        &self,
        segment: &mut Segment,
        reading: &Reading,
        group: std::ops::Range<u32>,
        was_complete: bool,
        stripes: &mut Vec<FoundStripe>,
    ) -> bool {
        let members = self.spec.members();
        let rows = reading.layout.payload_blocks() as usize;
        // For each stripe the members whose chunk was found, and for each of its rows those whose
        // block is intact.
        let mut present = vec![0u32; group.len()];
        let mut good = vec![0u32; group.len() * rows];
        for (at, zone) in reading.zones.iter().enumerate() {
            let Some(zone) = zone else { continue };
            for slot in group.clone() {
                let Some(read) = &zone.slots[slot as usize] else { continue };
                if !group.contains(&read.stripe) {
                    continue;
                }
                let stripe = (read.stripe - group.start) as usize;
                // No chunk is written twice; the first one found counts.
                if present[stripe] >> at & 1 == 1 {
                    continue;
                }
                present[stripe] |= 1 << at;
                segment.slots.set(MemberIndex(at as u8), slot, read.stripe);
                for (row, block) in read.blocks.iter().enumerate() {
                    good[stripe * rows + row] |= u32::from(block.is_good) << at;
                }
            }
        }
        let with_zone = bits((0..members).filter(|&at| reading.zones[at].is_some()));
        let mut is_complete = true;
        for (stripe, number) in group.clone().enumerate() {
            let rows = &good[stripe * rows..(stripe + 1) * rows];
            let is_row_decodable = |row: u32| self.spec.is_stripe_decodable(row, number);
            let lacks_nothing = rows.iter().all(|&row| row == with_zone);
            // One result serves all rows that lack nothing.
            let is_decodable = match lacks_nothing {
                true => is_row_decodable(with_zone),
                false => rows.iter().all(|&row| is_row_decodable(row)),
            };
            let is_whole = is_decodable && lacks_nothing;
            is_complete &= is_whole;
            // In a stripe that was complete, or may have been, each block counts: a lost one is not
            // replaced by an older version.
            let may_be_torn = !is_whole && !was_complete;
            if may_be_torn && present[stripe] == 0 {
                continue;
            }
            let takes_damage = self.spec.has(SeededBug::DamageTakenForCut);
            let is_cut = may_be_torn && (takes_damage || (0..members).any(|at| is_cut(reading, at, number, &group)));
            // In a segment that was being reset, the zone of the member that showed an interrupted
            // write may be reset already; complete stripes are elsewhere, too.
            if !is_decodable && (is_cut || may_be_torn && reading.found.is_leaving()) {
                continue;
            }
            let is_torn = may_be_torn && !self.spec.has(SeededBug::TornStripeKept);
            let is_cut = is_cut && is_torn;
            let lost_rows = match is_decodable {
                true => Box::default(),
                false => rows.iter().map(|&row| !is_row_decodable(row)).collect(),
            };
            stripes.push(FoundStripe { number, present: present[stripe], is_whole, is_torn, is_cut, lost_rows });
            for member in (0..members).filter(|member| present[stripe] >> member & 1 == 0) {
                segment.slots.set_virtual(MemberIndex(member as u8), number);
            }
        }
        is_complete || was_complete
    }

    /// No timestamp is reused, not even that of a stripe that does not count.
    fn count_timestamps(&mut self, reading: &Reading) {
        for (member, zone) in (0..).map(MemberIndex).zip(&reading.zones) {
            for read in zone.iter().flat_map(|zone| zone.slots.iter().flatten()) {
                if self.spec.shape.chunk_of(member, read.stripe) >= self.spec.shape.data() {
                    continue;
                }
                for meta in read.blocks.iter().filter_map(|block| block.meta) {
                    let record = Record::from_bytes(&meta.record);
                    if record.lba != PADDING_LBA {
                        self.map.saw_timestamp(&self.spec, record.timestamp);
                    }
                }
            }
        }
    }

    /// The number of stripes of the last group that may have been complete and of which nothing is
    /// known: each has a damaged slot on every member that took part.
    fn unseen_stripes(&self, reading: &Reading, group: &std::ops::Range<u32>) -> u32 {
        reading.zones.iter().flatten().map(|zone| zone.noise_in(group)).min().unwrap_or(0)
    }

    /// This many stripes of the last group may have been complete, and nothing is known of them. In
    /// a group of one stripe at least its number is known: markers may name its blocks.
    fn lose_unseen(&mut self, reading: &Reading, unseen: u32, first: u32) {
        if unseen == 0 {
            return;
        }
        let (layout, data) = (reading.layout, self.spec.shape.data());
        let member = reading.damaged_member();
        if unseen == 1 && layout.group_range(first).len() == 1 {
            for (chunk, block) in
                (0..data).flat_map(|chunk| (0..layout.payload_blocks()).map(move |block| (chunk, block)))
            {
                let holder = self.spec.shape.member_of(chunk, first).0;
                let (segment, block) = (reading.sequence, block as u16);
                self.lose_unidentified_at(member, LostPlace { segment, stripe: first, member: holder, block });
            }
        } else {
            let blocks = u64::from(unseen * layout.payload_blocks()) * data as u64;
            self.lose_unidentified(member, reading.sequence, blocks);
        }
    }

    /// Takes the blocks of a stripe where they are the newest; or records unidentified losses,
    /// where their logical blocks are unknown.
    fn take_stripe(&mut self, index: SegmentIndex, reading: &Reading, stripe: &FoundStripe, copy_state: CopyState) {
        for chunk in 0..self.spec.shape.data() {
            let member = self.spec.shape.member_of(chunk, stripe.number);
            let slot = self.segments[index].slots.slot_of(member, stripe.number);
            let slot = slot.expect("each member has a slot for each stripe that counts");
            let is_present = stripe.present >> member.0 & 1 == 1;
            let zone = reading.zones[member.as_usize()].as_ref().filter(|_| is_present);
            let own = zone.and_then(|zone| zone.slots[slot as usize].as_ref());
            for row in 0..reading.layout.payload_blocks() {
                let own = own.map(|own| &own.blocks[row as usize]).filter(|own| own.is_good);
                let record = match own.and_then(|own| own.meta) {
                    Some(meta) => Some(Record::from_bytes(&meta.record)),
                    None => self.record_of(reading, index, stripe, chunk, row as usize),
                };
                let Some(record) = record else {
                    let (segment, stripe, block) = (reading.sequence, stripe.number, row as u16);
                    let place = LostPlace { segment, stripe, member: member.0, block };
                    if !reading.found.is_leaving() {
                        self.lose_unidentified_at(reading.damaged_member(), place);
                    }
                    continue;
                };
                let is_lost = own.is_none() && stripe.lost_rows.get(row as usize) == Some(&true);
                let offset = reading.layout.offset_of(slot, row);
                self.take_block(Physical { segment: index, member, offset }, record, stripe, copy_state, is_lost);
            }
        }
    }

    /// The result of reading a block of a stripe.
    fn block_read(
        &self,
        reading: &Reading,
        index: SegmentIndex,
        stripe: &FoundStripe,
        chunk: usize,
        row: usize,
    ) -> Option<BlockRead> {
        let member = self.spec.shape.member_of(chunk, stripe.number);
        if stripe.present >> member.0 & 1 == 0 {
            return None;
        }
        let slot = self.segments[index].slots.slot_of(member, stripe.number)?;
        let read = reading.zones[member.as_usize()].as_ref()?.slots[slot as usize].as_ref()?;
        Some(read.blocks[row])
    }

    /// The record of a block of a data chunk: its own, or computed from those of the others in its
    /// row. `None` if too few are present.
    fn record_of(
        &self,
        reading: &Reading,
        index: SegmentIndex,
        stripe: &FoundStripe,
        chunk: usize,
        row: usize,
    ) -> Option<Record> {
        // Metadata have a checksum of their own: they are right where the contents are damaged. But
        // a rebuild that could not compute a block wrote padding with a wrong checksum.
        let record = |chunk: usize| -> Option<[u8; RECORD_BYTES]> {
            let read = self.block_read(reading, index, stripe, chunk, row)?;
            let meta = read.meta?;
            let is_right = read.is_good || !is_uncomputed(&meta, self.spec.shape.block_bytes);
            is_right.then_some(meta.record)
        };
        if let Some(own) = record(chunk) {
            return Some(Record::from_bytes(&own));
        }
        let chunks = self.spec.members();
        let there = bits((0..chunks).filter(|&chunk| record(chunk).is_some()));
        let recovery = self.spec.code.recover(there, &[chunk])?;
        let sources: Vec<[u8; RECORD_BYTES]> = recovery.sources.iter().filter_map(|&source| record(source)).collect();
        let sources: Vec<&[u8]> = sources.iter().map(|source| &source[..]).collect();
        let mut computed = [0; RECORD_BYTES];
        recovery.apply(&*self.spec.engine, &sources, &mut [&mut computed]);
        Some(Record::from_bytes(&computed))
    }
}

/// Whether a rebuild wrote a block that it could not compute.
fn is_uncomputed(meta: &BlockMeta, block_bytes: usize) -> bool {
    Record::from_bytes(&meta.record).lba == PADDING_LBA && meta.block_crc == !crc(&vec![0; block_bytes])
}

/// Whether a member lacks a part of its chunk because it was never written: unreadable blocks do
/// not count.
fn is_cut(reading: &Reading, at: usize, stripe: u32, group: &std::ops::Range<u32>) -> bool {
    let Some(zone) = &reading.zones[at] else { return false };
    let of_stripe = zone.slots[group.start as usize..group.end as usize].iter().flatten();
    match of_stripe.into_iter().find(|read| read.stripe == stripe) {
        Some(read) => read.blocks.iter().any(|block| block.is_blank),
        None => zone.noise_in(group) == 0,
    }
}
