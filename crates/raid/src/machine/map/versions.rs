//! Versions of a block: which is the newest, and which is durable.
//!
//! Until a version is durable, the contents it replaces stay: a crash must find them. A block may
//! be written again while a version of it is in a stripe, so each version records what it replaces,
//! and whichever becomes durable first continues from there.

use super::super::address::{Address, Location};
use super::super::segments::Segments;
use super::super::spec::Spec;
use super::super::stripes::{StripeKey, Stripes};
use super::Map;
use crate::bug::SeededBug;
use crate::tables::{Physical, SegmentIndex};

impl Map {
    /// A host's block is durable at `place`.
    #[inline]
    pub(in crate::machine) fn publish(
        &mut self,
        stripes: &mut Stripes,
        segments: &mut Segments,
        lba: u64,
        (stripe, block): (StripeKey, u32),
        place: Physical,
    ) {
        let Some(old) = stripes.take_old(stripe, block) else { return };
        self.retire(stripes, segments, lba, old);
        self.redirect(stripes, lba, Address::buffered(stripe, block), Address::media(place));
        segments.set_live(place);
    }

    /// A trimmed block is durably trimmed; `at` is its index in the blocks that the trim replaces.
    pub(in crate::machine) fn publish_trimmed(
        &mut self,
        stripes: &mut Stripes,
        segments: &mut Segments,
        lba: u64,
        (stripe, block, at): (StripeKey, u32, usize),
        segment: SegmentIndex,
    ) {
        let Some(old) = stripes.take_trimmed(stripe, block, at) else {
            // A newer version was durable before.
            self.has_stale_tombstones = true;
            return;
        };
        self.retire(stripes, segments, lba, old);
        self.redirect(stripes, lba, Address::buffered(stripe, block), Address::trimmed(segment));
    }

    /// A moved block is durable in its new place. If a newer version is in a stripe, that one
    /// replaces the new place.
    pub(in crate::machine) fn publish_moved(
        &mut self,
        spec: &Spec,
        stripes: &mut Stripes,
        segments: &mut Segments,
        lba: u64,
        (from, sequence): (Address, u64),
        place: Physical,
    ) {
        let exists = match from.location() {
            Location::Media(source) => segments.get(source.segment).is_some_and(|found| found.sequence == sequence),
            _ => true,
        };
        if exists && self.replace(stripes, lba, from, Address::media(place)) {
            if let Location::Media(source) = from.location() {
                // An index may be reused, and then the address may be that of a newer version of
                // the same block.
                assert_eq!(
                    segments[source.segment].sequence, sequence,
                    "a moved block replaces the version that was read, and no newer one"
                );
                segments.set_dead(source);
            }
            segments.set_live(place);
        } else if spec.has(SeededBug::StaleRelocation) {
            let newer = std::mem::replace(&mut self.entries[lba as usize], Address::media(place));
            self.retire(stripes, segments, lba, newer);
            segments.set_live(place);
        }
    }

    /// A tombstone is durable in another segment, behind newer versions too, since these may be
    /// withdrawn.
    pub(in crate::machine) fn publish_moved_tombstone(
        &mut self,
        stripes: &mut Stripes,
        (lba, is_lost): (u64, bool),
        from: SegmentIndex,
        to: SegmentIndex,
    ) {
        let (old, new) = match is_lost {
            true => (Address::lost(from), Address::lost(to)),
            false => (Address::trimmed(from), Address::trimmed(to)),
        };
        // A newer version may have become durable while the tombstone was moved.
        self.has_stale_tombstones |= !self.replace(stripes, lba, old, new);
    }

    /// Replaces `me` by `address` in the map, or in the next version in a stripe.
    #[inline]
    pub(super) fn redirect(&mut self, stripes: &mut Stripes, lba: u64, me: Address, address: Address) {
        assert!(
            self.replace(stripes, lba, me, address),
            "a version that was not superseded is in the chain of its block"
        );
    }

    /// Whether a place holds a version of this block, as far as is known.
    pub(in crate::machine) fn refers_to(&mut self, stripes: &mut Stripes, lba: u64, place: Address) -> bool {
        lba < self.blocks() && self.reference_to(stripes, lba, place).is_some()
    }

    /// A mount has found the newest version of a block so far.
    pub(in crate::machine) fn point(&mut self, segments: &mut Segments, lba: u64, address: Address) {
        let old = std::mem::replace(&mut self.entries[lba as usize], address);
        if let Location::Media(place) = old.location() {
            segments.set_dead(place);
        }
        if let Location::Media(place) = address.location() {
            segments.set_live(place);
        }
        self.note_lost(lba, address);
    }

    /// A mount has found the timestamp of a version: new ones continue from the highest.
    pub(in crate::machine) fn saw_timestamp(&mut self, spec: &Spec, timestamp: u64) {
        if !spec.has(SeededBug::StaleTimestamps) {
            self.next_timestamp = self.next_timestamp.max(timestamp + 1);
        }
    }

    /// A mount has found that this was the next timestamp when a segment was opened.
    pub(in crate::machine) fn saw_header(&mut self, next_timestamp: u64) {
        self.next_timestamp = self.next_timestamp.max(next_timestamp);
    }

    /// Releases a version: a newer one is durable.
    #[inline]
    fn retire(&mut self, stripes: &mut Stripes, segments: &mut Segments, lba: u64, old: Address) {
        match stripes.retire(segments, lba, old) {
            Location::Trimmed { .. } => self.has_stale_tombstones = true,
            Location::Lost { .. } => {
                self.lost.remove(&lba);
                self.has_stale_tombstones = true;
            }
            Location::Nowhere | Location::Media(_) | Location::Buffered { .. } => {}
        }
    }

    /// Replaces `me` by `address` in the chain of a block's versions, if it is in it.
    #[inline]
    pub(super) fn replace(&mut self, stripes: &mut Stripes, lba: u64, me: Address, address: Address) -> bool {
        self.reference_to(stripes, lba, me).map(|reference| *reference = address).is_some()
    }

    /// The reference to `me` in the chain of a block's versions, if it is in it.
    #[inline]
    fn reference_to<'a>(&'a mut self, stripes: &'a mut Stripes, lba: u64, me: Address) -> Option<&'a mut Address> {
        let mut entry = self.entries[lba as usize];
        if entry == me {
            return Some(&mut self.entries[lba as usize]);
        }
        while let Location::Buffered { stripe, block } = entry.location() {
            let old = *stripes.old_of(lba, (stripe, block));
            if old == me {
                return Some(stripes.old_of(lba, (stripe, block)));
            }
            entry = old;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use zonda_zoned::Instant;

    use super::super::super::fixtures::{members, spec};
    use super::super::super::members::Members;
    use super::super::super::requests::Requests;
    use super::super::Reach;
    use super::*;
    use crate::shape::Stream;

    const LBA: u64 = 5;

    /// The owners that a version involves, and an open segment.
    struct Parts {
        spec: Spec,
        members: Members,
        segments: Segments,
        stripes: Stripes,
        requests: Requests,
        map: Map,
    }

    impl Parts {
        fn new() -> Parts {
            let spec = spec(1, false);
            let (mut members, mut segments) = (members(&spec), Segments::new());
            segments.open_wanted(&spec, &mut members, true, Stream::Small, 1);
            let map = Map::new(&spec);
            Parts { spec, members, segments, stripes: Stripes::new(), requests: Requests::default(), map }
        }

        /// Writes the block, in a stripe of its own.
        fn write(&mut self) -> (StripeKey, u32) {
            let Parts { spec, segments, stripes, requests, map, .. } = self;
            let request = requests.begin_write(zonda_zoned::CommandId(1), 1);
            let mut reach = Reach { spec, segments, stripes, requests, now: Instant::ZERO };
            map.write(&mut reach, Stream::Small, request, (LBA, 1), &Bytes::new());
            stripes.pad(spec, Stream::Small);
            let Location::Buffered { stripe, block } = map.location(LBA) else { panic!("it is in a stripe") };
            (stripe, block)
        }

        /// Its stripe counts: the block is durable in this slot of member 0.
        fn publish(&mut self, version: (StripeKey, u32), slot: u32) -> Physical {
            let segment = self.segments.open(Stream::Small)[0];
            let offset = self.segments[segment].layout.slot_offset(slot);
            let place = Physical { segment, member: crate::MemberIndex(0), offset };
            self.map.publish(&mut self.stripes, &mut self.segments, LBA, version, place);
            place
        }

        fn check(&self) -> u32 {
            self.members.check_invariants();
            self.map.check_invariants(&self.stripes, &self.segments).iter().sum()
        }
    }

    #[test]
    fn what_a_write_replaces_is_live_until_the_write_is_durable() {
        let mut parts = Parts::new();
        let first = parts.write();
        let old = parts.publish(first, 0);
        let second = parts.write();
        assert!(parts.segments[old.segment].is_live(old.member, old.offset), "a crash must find it");
        assert_eq!(parts.check(), 1);
        let new = parts.publish(second, 1);
        assert!(!parts.segments[old.segment].is_live(old.member, old.offset));
        assert_eq!((parts.map.location(LBA), parts.check()), (Location::Media(new), 1));
    }

    #[test]
    fn a_tombstone_is_needed_until_a_newer_version_is_durable_whatever_else_is_in_flight() {
        let mut parts = Parts::new();
        let segment = parts.segments.open(Stream::Small)[0];
        let recount = |parts: &mut Parts| parts.map.recount_tombstones(&parts.stripes);
        parts.map.point(&mut parts.segments, LBA, Address::trimmed(segment));
        assert_eq!(recount(&mut parts), Some(BTreeMap::from([(segment, 1)])));
        let (first, second) = (parts.write(), parts.write());
        let durable = |parts: &Parts| parts.map.durable_location(&parts.stripes, LBA);
        assert_eq!(durable(&parts), Some(Location::Trimmed { segment }), "a crash needs it");
        assert_eq!(recount(&mut parts), None, "none was replaced since");
        let place = parts.publish(first, 0);
        assert_eq!(durable(&parts), Some(Location::Media(place)), "although a newer version is not durable yet");
        assert_eq!(recount(&mut parts), Some(BTreeMap::new()));
        parts.map.publish_moved_tombstone(&mut parts.stripes, (LBA, false), segment, SegmentIndex(7));
        assert_eq!(
            recount(&mut parts),
            Some(BTreeMap::new()),
            "a tombstone that a newer version overtook while it was moved is not needed"
        );
        parts.publish(second, 1);
        assert_eq!(recount(&mut parts), None);
        assert_eq!(durable(&parts), Some(parts.map.location(LBA)));
    }

    #[test]
    fn tombstones_that_are_durable_later_than_a_newer_version_are_counted_as_not_needed() {
        let mut parts = Parts::new();
        let first = parts.write();
        parts.publish(first, 0);
        let Parts { spec, segments, stripes, requests, map, .. } = &mut parts;
        map.begin_trim(requests, zonda_zoned::CommandId(2), &[(LBA, 1)]);
        map.pump_trims(&mut Reach { spec, segments, stripes, requests, now: Instant::ZERO });
        let Location::Buffered { stripe, block } = map.location(LBA) else { panic!("its tombstone is in a stripe") };
        stripes.pad(spec, Stream::Small);
        let newer = parts.write();
        parts.publish(newer, 1);
        assert!(parts.map.recount_tombstones(&parts.stripes).is_some(), "nothing was counted before");
        let segment = parts.segments.open(Stream::Small)[0];
        parts.map.publish_trimmed(&mut parts.stripes, &mut parts.segments, LBA, (stripe, block, 0), segment);
        assert_eq!(parts.map.recount_tombstones(&parts.stripes), Some(BTreeMap::new()));
    }

    #[test]
    fn of_two_versions_in_stripes_the_newer_counts_whichever_is_durable_first() {
        for newer_first in [false, true] {
            let mut parts = Parts::new();
            let (first, second) = (parts.write(), parts.write());
            let (newer, older) = if newer_first {
                let newer = parts.publish(second, 1);
                (newer, parts.publish(first, 0))
            } else {
                let older = parts.publish(first, 0);
                assert_eq!(parts.check(), 1, "the older one is what a crash finds");
                (parts.publish(second, 1), older)
            };
            assert_eq!(parts.map.location(LBA), Location::Media(newer));
            assert!(!parts.segments[older.segment].is_live(older.member, older.offset));
            assert_eq!(parts.check(), 1);
        }
    }

    #[test]
    fn a_block_that_is_moved_while_it_is_written_again_is_what_the_write_replaces() {
        let mut parts = Parts::new();
        let first = parts.write();
        let from = parts.publish(first, 0);
        let second = parts.write();
        let (to, sequence) = (Physical { offset: from.offset + 2, ..from }, parts.segments[from.segment].sequence);
        let Parts { spec, segments, stripes, map, .. } = &mut parts;
        assert!(map.refers_to(stripes, LBA, Address::media(from)));
        map.publish_moved(spec, stripes, segments, LBA, (Address::media(from), sequence), to);
        assert_eq!(map.location(LBA), Location::Buffered { stripe: second.0, block: second.1 });
        assert!(segments[to.segment].is_live(to.member, to.offset), "a crash finds it in its new place");
        assert_eq!(parts.check(), 1);
        parts.publish(second, 1);
        assert!(!parts.segments[to.segment].is_live(to.member, to.offset));
    }
}
