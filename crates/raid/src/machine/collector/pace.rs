//! The pace of garbage collection: host writes and collection are coupled, block by block.
//!
//! Host writes while little space is free create a debt: as many blocks to be moved as reclaim what
//! was written, scaled by the amount of free space. Collection works off the debt and does not run
//! ahead of it; hosts wait when it is too large. So each write is accompanied by about the same
//! share of collection, and neither side ever stops for the other.

use zonda_zoned::{Duration, Instant};

use super::super::space::Space;
use super::super::spec::Spec;
use super::Urgency;
use crate::limits::{HOST_LEAD_STRIPES, MOVES_PER_BLOCK_MAX, RELOCATION_SEGMENTS};
use crate::shape::Stream;

/// The debt of hosts to collection.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Blocks to be moved for what hosts have written, in units of 1 / [`ONE`].
    debt: i64,
    /// Blocks to be moved to reclaim one block, in the same units.
    price: i64,
    /// Blocks that collecting the current segment reclaims.
    reclaimed_blocks: u64,
    /// The segment is to be emptied, whatever it reclaims.
    is_background: bool,
    /// Time of the last host write.
    charged_at: Instant,
}

/// One block.
const ONE: i64 = 1024;
/// Blocks moved out of a segment that only lacks footers per host block while enough space is free:
/// one for eight.
const BACKGROUND_SHARE: i64 = ONE / 8;
/// Hosts that have not written for this long count as idle.
const IDLE_AFTER: Duration = Duration::from_millis(1);

impl Pace {
    /// A segment of `all` blocks, `live` of them needed, is being collected.
    pub(super) fn begin(&mut self, all: u64, live: u64, urgency: Urgency) {
        self.is_background = urgency == Urgency::Background;
        self.reclaimed_blocks = all.saturating_sub(live);
        self.price = ((live * ONE as u64 / self.reclaimed_blocks.max(1)) as i64).min(MOVES_PER_BLOCK_MAX * ONE);
    }

    /// A block is durable in its new place, or does not need to be moved any more.
    pub(super) fn moved_one(&mut self) {
        // Collection that ran ahead has freed space, which is part of the next price; it gets no
        // credit.
        self.debt = (self.debt - ONE).max(0);
    }

    /// There is nothing to collect.
    pub(super) fn set_idle(&mut self) {
        *self = Pace { charged_at: self.charged_at, ..Pace::default() };
    }

    /// Whether hosts are not too far ahead.
    pub(super) fn allows_hosts(&self, spec: &Spec) -> bool {
        self.debt < i64::from(HOST_LEAD_STRIPES) * spec.shape.stripe_blocks(Stream::Relocation) as i64 * ONE
    }

    /// A stripe was written.
    pub(super) fn charge(&mut self, space: Space<'_>, now: Instant, stream: Stream, is_idle: bool) {
        if stream != Stream::Relocation {
            self.charged_at = now;
        }
        if stream != Stream::Relocation && !is_idle {
            let blocks = space.spec().shape.stripe_blocks(stream) as i64;
            self.debt += match self.is_background {
                true if space.is_low() => blocks * ONE,
                true => blocks * BACKGROUND_SHARE,
                false => blocks * self.price * surcharge(space) / ONE,
            };
        }
    }

    /// Whether another block may be moved, with `in_flight` of them in flight.
    pub(super) fn may_move(&self, space: Space<'_>, buffered_blocks: usize, now: Instant, in_flight: u32) -> bool {
        let spec = space.spec();
        let is_owed = self.debt > i64::from(in_flight) * ONE;
        // Hosts are idle: collection continues one stripe at a time, so that new requests are
        // hardly delayed.
        let is_alone = (in_flight as usize) < spec.shape.stripe_blocks(Stream::Relocation)
            && self.may_run_idle(spec, buffered_blocks)
            && self.idle_at() <= now;
        // Nothing can be written any more: everything waits for it.
        is_owed || is_alone || space.free_segments() <= RELOCATION_SEGMENTS
    }

    /// When collection continues without host writes, if that is what it waits for.
    pub(super) fn due(&self, spec: &Spec, buffered_blocks: usize, now: Instant) -> Option<Instant> {
        self.may_run_idle(spec, buffered_blocks).then(|| self.idle_at()).filter(|&at| at > now)
    }

    fn idle_at(&self) -> Instant {
        self.charged_at + IDLE_AFTER
    }

    /// A segment that reclaims less than the padding of a stripe costs would be moved back and
    /// forth for ever.
    fn may_run_idle(&self, spec: &Spec, buffered_blocks: usize) -> bool {
        let reclaims_enough =
            self.is_background || self.reclaimed_blocks >= spec.shape.stripe_blocks(Stream::Relocation) as u64;
        buffered_blocks == 0 && reclaims_enough
    }
}

/// How many times as many blocks are moved as are needed to reclaim what hosts write, in units of 1
/// / [`ONE`]: 0 at the upper threshold of free segments, growing towards the reserve.
fn surcharge(space: Space<'_>) -> i64 {
    let (free, low) = (i64::from(space.free_segments()), i64::from(space.low_segments()));
    let target = i64::from(RELOCATION_SEGMENTS + 1 + space.host_segments()).min(low - 1);
    if free >= target { (low - free).max(0) * ONE / (low - target) } else { (1 + target - free) * ONE }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::{members, spec};
    use super::*;
    use crate::MemberIndex;

    #[test]
    fn hosts_that_write_while_little_is_free_owe_moves_and_wait_when_they_owe_too_many() {
        let spec = spec(1, false);
        let mut members = members(&spec);
        let (mut pace, now) = (Pace::default(), Instant(1));
        pace.begin(20, 10, Urgency::ForSpace);
        let is_owed = |pace: &Pace, space: Space<'_>| pace.may_move(space, 1, now, 0);
        pace.charge(Space::new(&spec, &members, true), now, Stream::Small, false);
        assert!(!is_owed(&pace, Space::new(&spec, &members, true)), "enough is free");
        while !Space::new(&spec, &members, true).is_low() {
            members[MemberIndex(0)].take_zone().expect("the threshold is above 0");
        }
        let space = Space::new(&spec, &members, true);
        assert!(space.free_segments() > RELOCATION_SEGMENTS, "the debt decides, not a lack of free segments");
        let mut paid = 0;
        while pace.allows_hosts(&spec) {
            pace.charge(space, now, Stream::Small, false);
            paid += 1;
            assert!(paid < 1000, "hosts come to owe too much");
        }
        assert!(is_owed(&pace, space));
        (0..paid * 100).for_each(|_| pace.moved_one());
        assert!(pace.allows_hosts(&spec) && !is_owed(&pace, space), "the debt is worked off");
    }

    #[test]
    fn a_segment_that_only_lacks_footers_is_emptied_by_an_eighth_of_what_hosts_write_and_when_they_write_nothing() {
        let spec = spec(1, false);
        let members = members(&spec);
        let space = Space::new(&spec, &members, true);
        let stripe_blocks = spec.shape.stripe_blocks(Stream::Small) as u32;
        let mut pace = Pace::default();
        // All of it is live: it reclaims nothing.
        pace.begin(20, 20, Urgency::Background);
        for _ in 0..8 {
            pace.charge(space, Instant(1), Stream::Small, false);
        }
        let owed = (0..).take_while(|&in_flight| pace.may_move(space, 1, Instant(1), in_flight)).count();
        assert_eq!(owed, stripe_blocks as usize, "eight stripes of hosts, one of moves");
        (0..stripe_blocks).for_each(|_| pace.moved_one());
        assert!(!pace.may_move(space, 0, Instant(1), 0), "hosts have written a moment ago");
        let later = Instant(1) + IDLE_AFTER;
        assert_eq!(pace.due(&spec, 0, Instant(1)), Some(later));
        assert!(pace.may_move(space, 0, later, 0), "hosts are idle");
        pace.begin(20, 20, Urgency::ForSpace);
        assert!(!pace.may_move(space, 0, later, 0), "moving all of it for space would continue for ever");
    }
}
