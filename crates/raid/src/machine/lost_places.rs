//! Places named by durable markers: the block there is lost, and its logical block is known.
//!
//! A mount that finds a block damaged together with its metadata cannot know which logical block it
//! held: any may be older than the acknowledged version. If a marker names the place, it is known:
//! that block is lost, or was written or trimmed since. So a place stays named, whatever becomes of
//! its logical block, until its segment is reset: collection moves the entries of places from one
//! block of tombstones to another.

use std::collections::{BTreeMap, BTreeSet};

use super::segments::Segments;
use crate::format::LostPlace;
use crate::tables::{Physical, SegmentIndex};

/// Owns the places that durable markers name.
#[derive(Debug, Default)]
pub(super) struct LostPlaces {
    /// The segment whose tombstones name each place. Places whose own segment was reset are removed
    /// when others are added or moved.
    holders: BTreeMap<LostPlace, SegmentIndex>,
}

impl LostPlaces {
    /// Whether a marker names a place.
    pub(super) fn is_named(&self, place: LostPlace) -> bool {
        self.holders.contains_key(&place)
    }

    /// The tombstones of the segment `holder` name a place.
    pub(super) fn name(&mut self, place: LostPlace, holder: SegmentIndex) {
        self.holders.insert(place, holder);
    }

    /// An entry that was moved is durable in the segment `to`.
    pub(super) fn moved(&mut self, place: LostPlace, from: SegmentIndex, to: SegmentIndex) {
        if let Some(holder) = self.holders.get_mut(&place).filter(|holder| **holder == from) {
            *holder = to;
        }
    }

    /// The places that the tombstones of a segment name, of segments that exist.
    pub(super) fn held_by(&mut self, holder: SegmentIndex, segments: &Segments) -> Vec<LostPlace> {
        self.forget_reset(segments);
        self.holders.iter().filter(|(_, other)| **other == holder).map(|(place, _)| *place).collect()
    }

    /// Forgets places whose segments were reset.
    pub(super) fn forget_reset(&mut self, segments: &Segments) {
        if !self.holders.is_empty() {
            let sequences = segments.sequences();
            self.holders.retain(|place, _| sequences.contains(&place.segment));
        }
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self, segments: &Segments) {
        let sequences = segments.sequences();
        for (place, holder) in self.holders.iter().filter(|(place, _)| sequences.contains(&place.segment)) {
            let holder = segments.get(*holder);
            let is_held = holder.is_some_and(|segment| !segment.tombstones.is_empty());
            // Collection names places of tombstones that it cannot read. If it abandons their
            // segment, and can read them the next time, the segment is reset with the names.
            let goes_too = holder.is_some_and(|segment| segment.sequence == place.segment && segment.is_resetting());
            assert!(is_held || goes_too, "{place:?} is named by tombstones of a segment that exists");
        }
    }
}

impl Segments {
    /// The sequences of all segments.
    pub(super) fn sequences(&self) -> BTreeSet<u64> {
        self.iter().map(|(_, segment)| segment.sequence).collect()
    }

    /// The place as a marker names it.
    pub(super) fn lost_place(&self, place: Physical) -> Option<LostPlace> {
        let segment = self.get(place.segment)?;
        let (slot, block) = segment.layout.place_of(place.offset);
        let stripe = segment.slots.stripe_at(place.member, slot)?;
        Some(LostPlace { segment: segment.sequence, stripe, member: place.member.0, block: block as u16 })
    }
}
