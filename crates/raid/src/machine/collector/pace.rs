//! How fast garbage collection goes: hosts and collection are bound to each other, block by block.
//!
//! What hosts write while little is free makes a debt: as many blocks to be moved as reclaim what was written, and more or fewer by how
//! much is free. Collection works off the debt and does not run ahead of it; hosts wait when it is too large. So each write
//! meets about the same share of collection, and there is no moment at which either side stops for the other.

use zonda_zoned::{Duration, Instant};

use super::super::space::Space;
use super::super::spec::Spec;
use super::Urgency;
use crate::limits::{HOST_LEAD_STRIPES, MOVES_PER_BLOCK_MAX, RELOCATION_SEGMENTS};
use crate::shape::Stream;

/// What hosts and collection owe each other.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Blocks to be moved for what hosts have written, in units of 1 / [`ONE`].
    debt: i64,
    /// Blocks to be moved to reclaim one block, in the same units.
    price: i64,
    /// Blocks that the segment being collected reclaims.
    won_blocks: u64,
    /// It is to be emptied, whatever it reclaims.
    is_beside_hosts: bool,
    /// When hosts last wrote.
    paid_at: Instant,
}

/// One block.
const ONE: i64 = 1024;
/// Blocks moved out of a segment that only lacks footers for each block that hosts write while enough is free: one for eight.
const BESIDE_HOSTS: i64 = ONE / 8;
/// Hosts that have written nothing for so long are not in the way.
const ALONE_AFTER: Duration = Duration::from_millis(1);

impl Pace {
    /// A segment of `all` blocks, `live` of them needed, is being collected.
    pub(super) fn begin(&mut self, all: u64, live: u64, urgency: Urgency) {
        self.is_beside_hosts = urgency == Urgency::BesideHosts;
        self.won_blocks = all.saturating_sub(live);
        self.price = ((live * ONE as u64 / self.won_blocks.max(1)) as i64).min(MOVES_PER_BLOCK_MAX * ONE);
    }

    /// A block is where it was to be moved to, or need not be moved any more.
    pub(super) fn moved_one(&mut self) {
        // Collection that was ahead by itself has made room, which is in the next price; it is owed nothing.
        self.debt = (self.debt - ONE).max(0);
    }

    /// Nothing is to be collected.
    pub(super) fn rest(&mut self) {
        *self = Pace { paid_at: self.paid_at, ..Pace::default() };
    }

    /// Whether hosts are not too far ahead.
    pub(super) fn allows_hosts(&self, spec: &Spec) -> bool {
        self.debt < i64::from(HOST_LEAD_STRIPES) * spec.shape.stripe_blocks(Stream::Relocation) as i64 * ONE
    }

    /// A stripe is written.
    pub(super) fn pay(&mut self, space: Space<'_>, now: Instant, stream: Stream, is_idle: bool) {
        if stream != Stream::Relocation {
            self.paid_at = now;
        }
        if stream != Stream::Relocation && !is_idle {
            let blocks = space.spec().shape.stripe_blocks(stream) as i64;
            self.debt += match self.is_beside_hosts {
                true if space.is_low() => blocks * ONE,
                true => blocks * BESIDE_HOSTS,
                false => blocks * self.price * haste(space) / ONE,
            };
        }
    }

    /// Whether another block may be moved, with `in_flight` of them in flight.
    pub(super) fn may_move(&self, space: Space<'_>, buffered_blocks: usize, now: Instant, in_flight: u32) -> bool {
        let spec = space.spec();
        let is_owed = self.debt > i64::from(in_flight) * ONE;
        // Nobody writes: collection goes on by itself, a stripe at a time, so that whoever comes finds little in the way.
        let is_alone = (in_flight as usize) < spec.shape.stripe_blocks(Stream::Relocation)
            && self.may_go_alone(spec, buffered_blocks)
            && self.alone_at() <= now;
        // Nobody can write any more: everybody waits for it.
        is_owed || is_alone || space.free_segments() <= RELOCATION_SEGMENTS
    }

    /// When collection goes on although nobody writes, if that is what it waits for.
    pub(super) fn due(&self, spec: &Spec, buffered_blocks: usize, now: Instant) -> Option<Instant> {
        self.may_go_alone(spec, buffered_blocks).then(|| self.alone_at()).filter(|&at| at > now)
    }

    fn alone_at(&self) -> Instant {
        self.paid_at + ALONE_AFTER
    }

    /// What reclaims less than the padding of a stripe can cost would be moved to and fro for ever.
    fn may_go_alone(&self, spec: &Spec, buffered_blocks: usize) -> bool {
        let wins = self.is_beside_hosts || self.won_blocks >= spec.shape.stripe_blocks(Stream::Relocation) as u64;
        buffered_blocks == 0 && wins
    }
}

/// How much more is moved than reclaims what hosts write: nothing at the mark, as much where free segments are to stay, in
/// units of 1 / [`ONE`].
fn haste(space: Space<'_>) -> i64 {
    let (free, low) = (i64::from(space.free_segments()), i64::from(space.low_segments()));
    let settled = i64::from(RELOCATION_SEGMENTS + 1 + space.host_segments()).min(low - 1);
    if free >= settled { (low - free).max(0) * ONE / (low - settled) } else { (1 + settled - free) * ONE }
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
        pace.begin(20, 10, Urgency::ForRoom);
        let is_owed = |pace: &Pace, space: Space<'_>| pace.may_move(space, 1, now, 0);
        pace.pay(Space::new(&spec, &members, true), now, Stream::Small, false);
        assert!(!is_owed(&pace, Space::new(&spec, &members, true)), "enough is free");
        while !Space::new(&spec, &members, true).is_low() {
            members[MemberIndex(0)].take_zone().expect("the mark is above nothing");
        }
        let space = Space::new(&spec, &members, true);
        assert!(space.free_segments() > RELOCATION_SEGMENTS, "what is owed decides, not that nothing is free");
        let mut paid = 0;
        while pace.allows_hosts(&spec) {
            pace.pay(space, now, Stream::Small, false);
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
        pace.begin(20, 20, Urgency::BesideHosts);
        for _ in 0..8 {
            pace.pay(space, Instant(1), Stream::Small, false);
        }
        let owed = (0..).take_while(|&in_flight| pace.may_move(space, 1, Instant(1), in_flight)).count();
        assert_eq!(owed, stripe_blocks as usize, "eight stripes of hosts, one of moves");
        (0..stripe_blocks).for_each(|_| pace.moved_one());
        assert!(!pace.may_move(space, 0, Instant(1), 0), "hosts have written a moment ago");
        let later = Instant(1) + ALONE_AFTER;
        assert_eq!(pace.due(&spec, 0, Instant(1)), Some(later));
        assert!(pace.may_move(space, 0, later, 0), "nobody is in its way");
        pace.begin(20, 20, Urgency::ForRoom);
        assert!(!pace.may_move(space, 0, later, 0), "moving all of it for room would go on for ever");
    }
}
