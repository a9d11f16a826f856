//! Stripes are issued to segments, and then count or are rewritten.

use zonda_zoned::{Outcome, Status};

use super::Volume;
use super::stripes::StripeKey;
use crate::MemberIndex;
use crate::bug::SeededBug;
use crate::event::{Event, FailReason};
use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::shape::Stream;

impl Volume {
    /// Issues all stripes that can be issued.
    pub(super) fn pump_stream(&mut self, stream: Stream) {
        self.segments.tidy(&self.spec, &mut self.members, stream);
        if stream == Stream::Relocation && self.stripes.has_ready(stream) {
            self.keep_last_segments();
        }
        while self.stripes.has_ready(stream) && self.may_write(stream) && self.members.may_write(self.now) {
            let (is_ready, now) = (self.is_ready(), self.now);
            let Volume { spec, members, segments, stripes, map, .. } = self;
            segments.open_wanted(spec, members, is_ready, stream, map.next_timestamp());
            let Some(segment) = segments.next_for(spec, stream) else { return };
            let stripe = stripes.next_ready(stream).expect("one waits");
            self.charge(stream);
            let Volume { spec, members, segments, stripes, .. } = self;
            stripes.issue(spec, members, segments, now, stripe, segment);
            segments.tidy(spec, members, stream);
        }
    }

    pub(super) fn on_chunk(&mut self, member: MemberIndex, key: StripeKey, status: Status, outcome: &Outcome) {
        let number = self.stripes[key].number;
        let segment = self.stripes[key].segment.expect("a stripe that is being written has a segment");
        let slot = if status.is_success() {
            self.segments.place_chunk(&self.members, member, segment, number, outcome)
        } else {
            None
        };
        self.stripes.chunk_ended(key, member, slot);
        if slot.is_some() {
            self.members[member].forgive_failures();
        } else if self.members[member].is_present() {
            self.write_failed(member, segment);
        }
        if self.spec.has(SeededBug::HastyAcknowledgement) && self.stripes[key].present.is_power_of_two() {
            for request in self.stripes.take_requests(key) {
                self.end_part(request, 1, Status::Success);
            }
        }
        if self.stripes[key].pending == 0 {
            self.stripe_ended(key);
        }
    }

    /// All commands of a stripe have ended.
    pub(super) fn stripe_ended(&mut self, key: StripeKey) {
        self.wake();
        let stripe = &self.stripes[key];
        let present = self.members.present_bits();
        let segment = stripe.segment.expect("it was written somewhere");
        let has_failed = stripe.failed & present != 0 && !self.spec.has(SeededBug::IgnoredChunkError);
        if has_failed || !self.spec.is_stripe_decodable(stripe.present & present, stripe.number) {
            return self.write_again(key);
        }
        if !self.members.is_epoch_durable() {
            // Without its failed members a stripe counts only once the others have recorded their
            // failure.
            self.members.wait_for_epoch(key);
            return;
        }
        if self.members.space_found(self.now) {
            self.events.push_back(Event::SpaceAvailable);
        }
        self.commit(key, segment);
    }

    fn write_again(&mut self, key: StripeKey) {
        let (segment, is_often) = self.stripes.take_back(key);
        self.segments.stripe_failed(&self.spec, &mut self.members, segment);
        if is_often && !self.members.is_full(self.now) {
            // One member at a time, the one with the most errors: another may have failed just this
            // once.
            let failed = self.stripes[key].failed;
            let errors = |member: &MemberIndex| (self.members[*member].errors(), std::cmp::Reverse(member.0));
            let worst = self.members.present().filter(|member| failed >> member.0 & 1 == 1).max_by_key(errors);
            // A member that the volume needs is blamed only if its zones are intact.
            let is_to_blame = |&member: &MemberIndex| {
                let failures = self.members[member].failures();
                self.members.can_spare(&self.spec, member) || failures >= u32::from(WRITE_ATTEMPTS_MAX)
            };
            if let Some(worst) = worst.filter(is_to_blame) {
                self.evict(worst, FailReason::Errors);
            }
        }
        self.stripes.write_again(key);
    }
}
