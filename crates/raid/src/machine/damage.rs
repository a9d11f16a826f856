//! Damaged blocks of segments: each counts once, no matter whether a mount, a read, collection, a
//! scrub or a rebuild finds it.
//!
//! A block is damaged when its own contents show it: the medium cannot read it, or it contradicts a
//! checksum or the parity of its stripe. It is repaired when its contents are durable elsewhere, or
//! when nothing in its segment is needed any more and the zones are reset. A block that is needed
//! and cannot be computed while a member is missing is unreadable, even if it is the missing
//! member's own; a block is lost when its marker is durable. Places are tracked until their segment
//! is reset, so that none is counted twice.

use std::collections::BTreeMap;

use super::Volume;
use crate::MemberIndex;
use crate::limits::DAMAGED_PLACES_MAX;
use crate::tables::{Physical, SegmentIndex};

/// Damaged blocks of members that were found since the volume was mounted, including the mount,
/// headers and footers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageCounts {
    /// Their contents are intact in another place, or not needed any more.
    pub repaired: u64,
    /// They can be repaired, and are not yet: their segments are to be emptied.
    pub damaged: u64,
    /// They are needed, and cannot be computed while a member is missing.
    pub unreadable: u64,
    /// They are recorded as lost.
    pub lost: u64,
}

/// Owns the places of damaged blocks, and their states.
#[derive(Debug, Default)]
pub(super) struct Damage {
    places: BTreeMap<Place, Found>,
    counts: DamageCounts,
}

/// A block of a member's zone. Segment indices are reused, sequence numbers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    sequence: u64,
    member: MemberIndex,
    /// From the start of the zone.
    offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Damaged,
    Unreadable,
    Repaired,
    Lost,
}

impl Damage {
    /// A block is damaged.
    fn found(&mut self, place: Place) {
        self.change(place, Found::Damaged, |known| known.is_none());
    }

    /// The state of a block is determined now, if it was not before.
    fn change(&mut self, place: Place, to: Found, may_change: impl Fn(Option<Found>) -> bool) {
        let known = self.places.get(&place).copied();
        if !may_change(known) {
            return;
        }
        if known.is_none() && self.places.len() >= DAMAGED_PLACES_MAX {
            // It is not tracked, so it counts in the most frequent state.
            self.counts.repaired += 1;
            return;
        }
        if let Some(known) = known {
            *self.count_mut(known) -= 1;
        }
        *self.count_mut(to) += 1;
        self.places.insert(place, to);
    }

    fn count_mut(&mut self, found: Found) -> &mut u64 {
        match found {
            Found::Damaged => &mut self.counts.damaged,
            Found::Unreadable => &mut self.counts.unreadable,
            Found::Repaired => &mut self.counts.repaired,
            Found::Lost => &mut self.counts.lost,
        }
    }

    /// An earlier marker names the place: it is not counted again.
    fn known_lost(&mut self, place: Place) {
        if self.places.len() < DAMAGED_PLACES_MAX && !self.places.contains_key(&place) {
            self.places.insert(place, Found::Lost);
        }
    }

    /// The zones of a segment were reset: its damaged blocks are not needed any more.
    fn on_segment_reset(&mut self, sequence: u64) {
        let from = |sequence| Place { sequence, member: MemberIndex(0), offset: 0 };
        let gone: Vec<Place> = self.places.range(from(sequence)..from(sequence + 1)).map(|(place, _)| *place).collect();
        for place in gone {
            self.change(place, Found::Repaired, is_open);
            self.places.remove(&place);
        }
    }

    /// Unreadable blocks are checked again: they count again if they are found again.
    pub(super) fn forget_unreadable(&mut self) {
        self.places.retain(|_, found| *found != Found::Unreadable);
        self.counts.unreadable = 0;
    }

    pub(super) fn counts(&self) -> DamageCounts {
        self.counts
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self) {
        let count = |wanted| self.places.values().filter(|found| **found == wanted).count() as u64;
        let known = (count(Found::Damaged), count(Found::Unreadable));
        assert_eq!(known, (self.counts.damaged, self.counts.unreadable), "open ones are tracked");
        assert!(count(Found::Repaired) <= self.counts.repaired, "repaired blocks were counted");
    }
}

/// Whether the final state of a damaged block is still open.
fn is_open(known: Option<Found>) -> bool {
    matches!(known, Some(Found::Damaged | Found::Unreadable))
}

impl Volume {
    /// Damaged blocks of members that were found since the volume was mounted, including the mount.
    #[must_use]
    pub fn damage(&self) -> DamageCounts {
        self.damage.counts()
    }

    /// A block of a member's zone of a segment is damaged.
    pub(super) fn found_damaged(&mut self, place: Physical) {
        let Some(key) = self.place_of_damage(place) else { return };
        let segment = &self.segments[place.segment];
        let is_payload = segment.layout.is_payload(place.offset);
        let named = if is_payload { self.segments.lost_place(place) } else { None };
        if named.is_some_and(|named| self.lost_places.is_named(named)) {
            self.damage.known_lost(key);
        } else {
            self.damage.found(key);
        }
    }

    /// A block is needed, and cannot be read while a member is missing.
    pub(super) fn damage_is_unreadable(&mut self, place: Physical) {
        if let Some(key) = self.place_of_damage(place) {
            self.damage.change(key, Found::Unreadable, |known| known.is_none_or(|known| known == Found::Damaged));
        }
    }

    /// The contents of a block are durable elsewhere.
    pub(super) fn damage_is_repaired(&mut self, place: Physical) {
        if let Some(key) = self.place_of_damage(place) {
            self.damage.change(key, Found::Repaired, is_open);
        }
    }

    /// A block is recorded as lost.
    pub(super) fn damage_is_lost(&mut self, place: Physical) {
        if let Some(key) = self.place_of_damage(place) {
            self.damage.change(key, Found::Lost, |known| known != Some(Found::Lost));
        }
    }

    /// Segments were reset since the last call: nothing in them is needed.
    pub(super) fn count_repaired_by_resets(&mut self) {
        for sequence in self.segments.take_reset_sequences() {
            self.damage.on_segment_reset(sequence);
        }
    }

    fn place_of_damage(&self, Physical { segment, member, offset }: Physical) -> Option<Place> {
        let sequence = self.segments.get(segment)?.sequence;
        Some(Place { sequence, member, offset })
    }

    /// Damaged blocks of a segment that reads have found.
    pub(super) fn count_found_by_reads(&mut self) {
        while let Some(place) = self.reads.next_damaged() {
            self.found_damaged(place);
        }
    }

    /// Blocks of a member's zone of a segment are damaged.
    pub(super) fn found_damaged_at(&mut self, segment: SegmentIndex, member: MemberIndex, offsets: &[u32]) {
        offsets.iter().for_each(|&offset| self.found_damaged(Physical { segment, member, offset }));
    }
}
