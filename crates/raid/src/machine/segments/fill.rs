//! Filling of segments: stripes begin and end, and their chunks get slots.

use zonda_zoned::{Instant, Outcome};

use super::super::members::Members;
use super::super::spec::Spec;
use super::super::stripes::Stripe;
use super::{Open, Segments};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::format::PADDING_LBA;
use crate::shape::Stream;
use crate::tables::{Segment, SegmentIndex, SegmentState};

impl Segments {
    /// The open segment of a stream for its next stripe, round robin.
    #[inline]
    pub(in crate::machine) fn next_for(&mut self, spec: &Spec, stream: Stream) -> Option<SegmentIndex> {
        let Segments { open, table, .. } = self;
        let Open { segments, last } = &mut open[stream as usize];
        let count = segments.len();
        let can_issue =
            |segment: &Segment| segment.can_issue() || spec.has(SeededBug::SkippedBarrier) && segment.takes_more();
        let found = (0..count).map(|step| (*last + 1 + step) % count).find(|&at| can_issue(&table[segments[at]]))?;
        *last = found;
        Some(segments[found])
    }

    /// The next stripe is written. Returns its number.
    #[inline]
    pub(in crate::machine) fn begin_stripe(&mut self, index: SegmentIndex, now: Instant) -> u32 {
        let segment = &mut self.table[index];
        assert!(segment.takes_more(), "a stripe is written to an open segment with space for it");
        let number = segment.next_stripe;
        segment.next_stripe += 1;
        segment.in_flight += 1;
        segment.filled_at = now;
        number
    }

    /// A chunk of a stripe was written. Returns its slot; `None` if it may not be in that slot.
    #[inline]
    pub(in crate::machine) fn place_chunk(
        &mut self,
        members: &Members,
        member: MemberIndex,
        index: SegmentIndex,
        number: u32,
        outcome: &Outcome,
    ) -> Option<u32> {
        let segment = &mut self.table[index];
        let slot = placed(segment, members, member, number, outcome)?;
        segment.slots.set(member, slot, number);
        Some(slot)
    }

    /// Assigns a slot to a chunk that is on no medium.
    #[inline]
    pub(in crate::machine) fn place_absent(&mut self, member: MemberIndex, index: SegmentIndex, number: u32) -> u32 {
        self.table[index].slots.set_virtual(member, number)
    }

    /// Records the footer contents of a stripe, and what reads need.
    pub(in crate::machine) fn note_metadata(&mut self, spec: &Spec, index: SegmentIndex, stripe: &Stripe) {
        let segment = &mut self.table[index];
        let layout = segment.layout;
        let payload_blocks = layout.payload_blocks() as usize;
        if !segment.lbas.is_empty() {
            for chunk in 0..spec.code.data() {
                let member = spec.shape.member_of(chunk, stripe.number).as_usize();
                let from = stripe.slots[member] as usize * payload_blocks;
                for block in 0..payload_blocks {
                    let lba = stripe.blocks.get(chunk * payload_blocks + block).map_or(PADDING_LBA, |block| block.lba);
                    segment.lbas[member][from + block] = lba;
                }
            }
        }
        if stripe.metas.is_empty() {
            return;
        }
        for member in 0..spec.members() {
            let chunk = spec.shape.chunk_of(MemberIndex(member as u8), stripe.number);
            let from = stripe.slots[member] as usize * payload_blocks;
            let is_wrong = spec.has(SeededBug::FooterWrongSlot);
            let footer_from = if is_wrong { stripe.number as usize * payload_blocks } else { from };
            for block in 0..payload_blocks {
                let meta = &stripe.metas[chunk * payload_blocks + block];
                if let Some(sums) = segment.sums.get_mut(member) {
                    sums[from + block] = meta.block_crc;
                }
                if let Some(footers) = segment.footers.as_mut() {
                    footers.entries[member][footer_from + block] = *meta;
                }
            }
        }
    }

    /// A stripe is complete: it counts.
    pub(in crate::machine) fn stripe_complete(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        index: SegmentIndex,
        number: u32,
    ) {
        let segment = &mut self.table[index];
        assert_eq!(segment.state, SegmentState::Open, "a segment closes after its last stripe");
        segment.in_flight -= 1;
        segment.complete_in_group += 1;
        let group = segment.layout.group_range(number);
        if segment.complete_in_group == group.len() as u32 {
            segment.complete_in_group = 0;
            segment.slots.seal_group();
            self.barrier(spec, members, index);
        }
        self.close_if_done(spec, members, index);
    }

    /// A stripe is written elsewhere: nothing follows it here.
    pub(in crate::machine) fn stripe_failed(&mut self, spec: &Spec, members: &mut Members, index: SegmentIndex) {
        let segment = &mut self.table[index];
        assert_eq!(segment.state, SegmentState::Open, "a segment closes after its last stripe");
        segment.in_flight -= 1;
        self.break_off(spec, members, index);
    }

    /// Streams forget segments that receive no more stripes, and those that lack a member which is
    /// present again.
    pub(in crate::machine) fn tidy(&mut self, spec: &Spec, members: &mut Members, stream: Stream) {
        let present = members.present_bits();
        let lacks = |index: &&SegmentIndex| self.table[**index].lost & present != 0;
        if let Some(index) = self.open(stream).iter().find(lacks).copied() {
            self.table[index].is_broken = true;
            self.close_if_done(spec, members, index);
        }
        let Segments { open, table, .. } = self;
        let takes_more = |index: &SegmentIndex| {
            let segment = &table[*index];
            matches!(segment.state, SegmentState::Opening | SegmentState::Open)
                && !segment.is_broken
                && segment.next_stripe < segment.layout.stripes
        };
        let Open { segments, last } = &mut open[stream as usize];
        segments.retain(takes_more);
        *last = (*last).min(segments.len().saturating_sub(1));
    }
}

fn placed(segment: &Segment, members: &Members, member: MemberIndex, number: u32, outcome: &Outcome) -> Option<u32> {
    let layout = &segment.layout;
    if layout.group_stripes == 1 {
        return Some(number);
    }
    let Outcome::Appended(lba) = outcome else { return None };
    let zone = segment.zones[member.as_usize()]?;
    let start = members[member].lba(zone, 0);
    let offset = u32::try_from(lba.0.checked_sub(start.0)?).ok()?.checked_sub(layout.header_blocks)?;
    let slot = offset / layout.unit_blocks;
    (offset % layout.unit_blocks == 0 && segment.slots.is_free(member, slot)).then_some(slot)
}
