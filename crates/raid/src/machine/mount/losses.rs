//! Acknowledged blocks that are lost.
//!
//! Where a block cannot be read, and its record is known, it is the newest version of its logical block all the same: reads of that
//! fail. Where the record is lost as well, any logical block may have an older version than the one that was acknowledged, and
//! nothing says which: the mount is refused, unless its caller accepts that. What was accepted is written to the superblocks, as the
//! newest segment that there was: a later mount does not refuse for segments up to that one.
//!
//! A place that a marker names is no such loss (see `lost_places.rs`). Tombstones are read when all segments are: until then losses of
//! which the place is known are kept as places, and those that markers name do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::Volume;
use super::zones::Reading;
use crate::bug::SeededBug;
use crate::format::LostPlace;
use crate::limits::{READ_ATTEMPTS_MAX, UNIDENTIFIED_PLACES_MAX};
use crate::tables::Physical;
use crate::{MemberIndex, VolumeError};

/// Blocks that may have been acknowledged, and of which it is not known which they are.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// A member that holds some of them, and their segment.
    first: Option<(MemberIndex, u64)>,
    /// How many there are, at most, but for those of which the place is known.
    blocks: u64,
    /// Those of which the place is known, and a member that is damaged. Markers that are read later may name some.
    places: BTreeMap<LostPlace, MemberIndex>,
    /// Blocks of tombstones that could not be read, and how often.
    unread: BTreeMap<Physical, u8>,
    /// Blocks of tombstones in stripes that were never complete.
    pub(super) cut: BTreeSet<Physical>,
    /// The caller has accepted zones that nobody knows, or segments that lack zones: what they held is not counted.
    pub(super) are_accepted: bool,
}

impl Volume {
    /// Blocks of a segment are lost, and it is not known which they are.
    pub(super) fn lose_unidentified(&mut self, member: MemberIndex, sequence: u64, blocks: u64) {
        self.counters.lost_blocks += blocks;
        if sequence <= self.members.accepted_segment() {
            return;
        }
        let losses = &mut self.found().losses;
        if losses.first.is_none_or(|(_, first)| sequence < first) {
            losses.first = Some((member, sequence));
        }
        losses.blocks += blocks;
    }

    /// The same of one block at a place that is known: it counts if no marker names it.
    pub(super) fn lose_unidentified_at(&mut self, member: MemberIndex, place: LostPlace) {
        let places = &mut self.found().losses.places;
        if places.len() < UNIDENTIFIED_PLACES_MAX {
            places.insert(place, member);
        } else {
            self.lose_unidentified(member, place.segment, 1);
        }
    }

    /// Whether a block of tombstones that could not be read is read once more.
    pub(super) fn tries_tombstones_again(&mut self, place: Physical) -> bool {
        let failures = self.found().losses.unread.entry(place).or_default();
        *failures += 1;
        *failures < READ_ATTEMPTS_MAX
    }

    /// The contents of a block of tombstones are lost: what it says is trimmed may be what it was before, unless it was never
    /// acknowledged.
    pub(super) fn lose_tombstones(&mut self, place: Physical) {
        if !self.found().losses.cut.contains(&place) && !self.spec.has(SeededBug::IgnoredTombstones) {
            match self.segments.lost_place(place) {
                Some(named) => self.lose_unidentified_at(place.member, named),
                None => self.lose_unidentified(place.member, self.segments[place.segment].sequence, 1),
            }
        }
        self.segments.drop_tombstones(place);
        self.found().torn.remove(&place);
    }

    /// All is read: if there are losses of which it is not known what they are, the mount goes on only where they are accepted. Says
    /// whether that is to be written to the superblocks.
    pub(super) fn accept_losses(&mut self) -> Result<bool, VolumeError> {
        for (place, member) in std::mem::take(&mut self.found().losses.places) {
            if !self.lost_places.is_named(place) {
                self.lose_unidentified(member, place.segment, 1);
            }
        }
        let Losses { first, blocks, are_accepted, .. } = self.found().losses;
        match first {
            Some((member, segment))
                if !self.found().options.accepts_losses && !self.spec.has(SeededBug::UnrefusedLosses) =>
            {
                return Err(VolumeError::UnidentifiedLosses { member, segment, blocks });
            }
            None if !are_accepted => return Ok(false),
            _ => {}
        }
        let newest = self.segments.next_sequence() - 1;
        if !self.spec.has(SeededBug::ForgottenAcceptance) {
            self.members.set_accepted_segment(newest);
        }
        Ok(true)
    }
}

impl Reading {
    /// A member whose zone is damaged; the first that took part if what is lost was on others.
    pub(super) fn damaged_member(&self) -> MemberIndex {
        let zones = || (0..).map(MemberIndex).zip(&self.zones);
        let with_zone = zones().filter_map(|(member, zone)| Some((member, zone.as_ref()?)));
        let damaged = with_zone.filter(|(_, zone)| zone.is_damaged()).map(|(member, _)| member);
        let first = zones().find(|(_, zone)| zone.is_some()).map(|(member, _)| member);
        damaged.chain(first).next().unwrap_or(MemberIndex(self.found.header.member))
    }
}
