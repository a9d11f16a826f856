//! Stripes go to segments: one command to each member.

use zonda_zoned::{Blocks, Operation, Outcome, Status};

use super::Volume;
use super::members::Work;
use super::write::{NO_REQUEST, Source};
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::event::FailReason;
use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::shape::Stream;
use crate::tables::SegmentIndex;

impl Volume {
    /// Issues what can be issued.
    pub(super) fn pump_stream(&mut self, stream: Stream) {
        self.segments.tidy(&self.spec, &mut self.members, stream);
        while !self.stream(stream).ready.is_empty() {
            if !self.may_write(stream) {
                return;
            }
            let (is_ready, timestamp) = (self.is_ready(), self.next_timestamp);
            self.segments.open_wanted(&self.spec, &mut self.members, is_ready, stream, timestamp);
            let Some(segment) = self.segments.next_for(&self.spec, stream) else { return };
            let stripe = self.stream_mut(stream).ready.pop_front().expect("one waits");
            self.pay(stream);
            self.issue(stripe, segment);
            self.segments.tidy(&self.spec, &mut self.members, stream);
        }
    }

    fn issue(&mut self, index: u32, segment_index: SegmentIndex) {
        let number = self.segments.begin_stripe(segment_index, self.now);
        let layout = self.segments[segment_index].layout;
        let stripe = &mut self.stripes[index];
        stripe.segment = Some(segment_index);
        stripe.number = number;
        stripe.present = 0;
        stripe.failed = 0;
        stripe.attempts += 1;
        let chunks = self.chunks(index, segment_index);
        let mut pending = 0;
        for (at, payload) in chunks.into_iter().enumerate().take(self.spec.members()) {
            let member = MemberIndex(at as u8);
            let segment = &self.segments[segment_index];
            let (Some(zone), true) = (segment.zones[at], self.members[member].is_present()) else { continue };
            let blocks = Blocks(u64::from(layout.unit_blocks));
            let operation = if layout.group_stripes > 1 {
                Operation::Append { zone_start: self.members[member].lba(zone, 0), blocks, payload }
            } else {
                Operation::Write { start: self.members[member].lba(zone, layout.slot_offset(number)), blocks, payload }
            };
            pending += 1;
            self.members.count_written(blocks.0);
            self.members.send(member, Work::Chunk { stripe: index }, operation);
        }
        self.stripes[index].pending = pending;
        assert!(pending > 0, "a volume that is ready has members");
    }

    pub(super) fn on_chunk(&mut self, member: MemberIndex, index: u32, status: Status, outcome: &Outcome) {
        let stripe = &mut self.stripes[index];
        let segment_index = stripe.segment.expect("a stripe that is being written has a segment");
        stripe.pending -= 1;
        let slot = if status.is_success() {
            self.segments.place_chunk(&self.members, member, segment_index, stripe.number, outcome)
        } else {
            None
        };
        match slot {
            Some(slot) => {
                self.members[member].forgive_failures();
                stripe.slots[member.as_usize()] = slot;
                stripe.present |= 1 << member.0;
            }
            None => {
                self.has_progress = true;
                stripe.failed |= 1 << member.0;
                if self.members[member].is_present() {
                    self.suspect(member, segment_index);
                }
            }
        }
        if self.spec.has(SeededBug::HastyAcknowledgement) && self.stripes[index].present.is_power_of_two() {
            self.acknowledge_early(index);
        }
        if self.stripes[index].pending == 0 {
            self.stripe_ended(index);
        }
    }

    /// What [`SeededBug::HastyAcknowledgement`] does.
    fn acknowledge_early(&mut self, index: u32) {
        let mut ended = Vec::new();
        for block in &mut self.stripes[index].blocks {
            if let Source::Host { request } = &mut block.source
                && *request != NO_REQUEST
            {
                ended.push(std::mem::replace(request, NO_REQUEST));
            }
        }
        for request in ended {
            self.end_part(request, 1, Status::Success);
        }
    }

    /// All commands of a stripe have ended.
    pub(super) fn stripe_ended(&mut self, index: u32) {
        self.wake();
        let stripe = &self.stripes[index];
        let there = self.members.present_bits();
        let segment_index = stripe.segment.expect("it was written somewhere");
        let has_failed = stripe.failed & there != 0 && !self.spec.has(SeededBug::IgnoredChunkError);
        if has_failed || !self.spec.is_stripe_decodable(stripe.present & there, stripe.number) {
            return self.write_again(index);
        }
        if !self.members.is_epoch_durable() {
            // Without its failed members a stripe counts only once the others know that these failed.
            self.members.wait_for_epoch(index);
            return;
        }
        self.commit(index, segment_index);
    }

    fn write_again(&mut self, index: u32) {
        let stripe = &mut self.stripes[index];
        let segment = stripe.segment.take().expect("it was written somewhere");
        let stream = stripe.stream;
        self.segments.stripe_failed(&self.spec, &mut self.members, segment);
        if self.stripes[index].attempts >= WRITE_ATTEMPTS_MAX {
            // So many segments in a row: it is not the zones.
            // One member at a time, that with the most errors: another may have failed this once.
            let failed = self.stripes[index].failed;
            let errors = |member: &MemberIndex| (self.members[*member].errors(), std::cmp::Reverse(member.0));
            let worst = self.members.present().filter(|member| failed >> member.0 & 1 == 1).max_by_key(errors);
            // Whoever is needed gets the blame only if its zones are well.
            let is_to_blame = |&member: &MemberIndex| {
                let failures = self.members[member].failures();
                self.members.can_spare(&self.spec, member) || failures >= u32::from(WRITE_ATTEMPTS_MAX)
            };
            if let Some(worst) = worst.filter(is_to_blame) {
                self.evict(worst, FailReason::Errors);
            }
            self.stripes[index].attempts = 0;
        }
        self.streams[stream as usize].ready.push_front(index);
    }
}
