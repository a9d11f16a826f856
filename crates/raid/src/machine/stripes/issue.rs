//! Writing of stripes: one command to each member.

use zonda_zoned::{Blocks, Class, Instant, Operation};

use super::super::members::{Members, Work};
use super::super::requests::RequestKey;
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::{Source, StripeKey, Stripes};
use crate::MemberIndex;
use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::shape::Stream;
use crate::tables::SegmentIndex;

impl Stripes {
    /// Writes a stripe to a segment.
    pub(in crate::machine) fn issue(
        &mut self,
        spec: &Spec,
        members: &mut Members,
        segments: &mut Segments,
        now: Instant,
        key: StripeKey,
        segment_index: SegmentIndex,
    ) {
        let number = segments.begin_stripe(segment_index, now);
        let layout = segments[segment_index].layout;
        let is_moved = segments[segment_index].stream == Stream::Relocation;
        let class = if is_moved { Class::Background } else { Class::Foreground };
        let stripe = &mut self.slab[key];
        assert!(stripe.segment.is_none() && stripe.pending == 0, "a stripe is written to one segment at a time");
        stripe.segment = Some(segment_index);
        stripe.number = number;
        stripe.present = 0;
        stripe.failed = 0;
        stripe.attempts += 1;
        let chunks = self.chunks(spec, members, segments, key, segment_index);
        let mut pending = 0;
        for (member, payload) in spec.member_indices().zip(chunks) {
            let entry = &members[member];
            let zone = segments[segment_index].zones[member.as_usize()];
            let (Some(zone), true) = (zone, entry.is_present()) else { continue };
            let blocks = Blocks(u64::from(layout.unit_blocks));
            let operation = if layout.group_stripes > 1 {
                Operation::Append { zone_start: entry.lba(zone, 0), blocks, payload }
            } else {
                Operation::Write { start: entry.lba(zone, layout.slot_offset(number)), blocks, payload }
            };
            pending += 1;
            members.count_written(blocks.0);
            members.send_as(class, member, Work::Chunk { stripe: key }, operation);
        }
        self.slab[key].pending = pending;
        assert!(pending > 0, "a volume that is ready has members");
    }

    /// The write of a member's chunk has ended, in this slot if successful.
    #[inline]
    pub(in crate::machine) fn chunk_ended(&mut self, key: StripeKey, member: MemberIndex, slot: Option<u32>) {
        let stripe = &mut self.slab[key];
        let has_ended = (stripe.present | stripe.failed) >> member.0 & 1 == 1;
        assert!(!has_ended, "the write of a member's chunk ends once");
        stripe.pending -= 1;
        match slot {
            Some(slot) => {
                stripe.slots[member.as_usize()] = slot;
                stripe.present |= 1 << member.0;
            }
            None => {
                stripe.failed |= 1 << member.0;
                self.has_progress = true;
            }
        }
    }

    /// Assigns slots to chunks of a stripe that are on no medium.
    #[inline]
    pub(in crate::machine) fn place_absent(&mut self, spec: &Spec, segments: &mut Segments, key: StripeKey) {
        let stripe = &mut self.slab[key];
        let segment = stripe.segment.expect("it was written somewhere");
        for member in spec.member_indices() {
            if stripe.present >> member.0 & 1 == 0 {
                stripe.slots[member.as_usize()] = segments.place_absent(member, segment, stripe.number);
            }
        }
    }

    /// A stripe has to be written to another segment. Returns its former segment, and whether it
    /// was written to so many that the zones are not the cause.
    pub(in crate::machine) fn take_back(&mut self, key: StripeKey) -> (SegmentIndex, bool) {
        let stripe = &mut self.slab[key];
        let segment = stripe.segment.take().expect("it was written somewhere");
        let is_often = stripe.attempts >= WRITE_ATTEMPTS_MAX;
        if is_often {
            stripe.attempts = 0;
        }
        (segment, is_often)
    }

    /// It is the first to be rewritten.
    pub(in crate::machine) fn write_again(&mut self, key: StripeKey) {
        let stream = self.slab[key].stream;
        self.queues[stream as usize].ready.push_front(key);
    }

    /// Requests of the blocks of a stripe, which end before it does: the effect of
    /// [`SeededBug::HastyAcknowledgement`].
    ///
    /// [`SeededBug::HastyAcknowledgement`]: crate::bug::SeededBug::HastyAcknowledgement
    pub(in crate::machine) fn take_requests(&mut self, key: StripeKey) -> Vec<RequestKey> {
        let mut taken = Vec::new();
        for block in &mut self.slab[key].blocks {
            if let Source::Host { request } = &mut block.source {
                taken.extend(request.take());
            }
        }
        taken
    }
}
