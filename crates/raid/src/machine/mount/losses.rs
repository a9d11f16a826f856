//! Acknowledged blocks that are lost.
//!
//! A block that cannot be read, but whose record is known, is still the newest version of its
//! logical block: reads of it fail. If the record is lost as well, any logical block may be older
//! than the acknowledged version, and it is not known which: the mount is refused, unless its
//! caller accepts that. Accepted losses are recorded in the superblocks, by the newest segment of
//! that time: later mounts do not refuse losses in segments up to that one.
//!
//! A place that a marker names is no such loss (see `lost_places.rs`). Tombstones are read after
//! all segments: until then losses with known places are kept as places, and those that markers
//! name do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::Volume;
use super::zones::Reading;
use crate::bug::SeededBug;
use crate::format::LostPlace;
use crate::limits::{READ_ATTEMPTS_MAX, UNIDENTIFIED_PLACES_MAX};
use crate::tables::Physical;
use crate::{Event, MemberIndex, VolumeError};

/// Unidentified losses: blocks that may have been acknowledged, and whose logical blocks are
/// unknown.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// A member that holds some of them, and their segment.
    first: Option<(MemberIndex, u64)>,
    /// Upper bound of those without a known place.
    blocks: u64,
    /// Those with a known place, and a damaged member. Markers that are read later may name some.
    places: BTreeMap<LostPlace, MemberIndex>,
    /// Unreadable blocks of tombstones, and the number of attempts.
    unread: BTreeMap<Physical, u8>,
    /// Blocks of tombstones in stripes that were never complete.
    pub(super) cut: BTreeSet<Physical>,
    /// The caller has accepted unidentified zones, or segments that lack zones: their contents are
    /// not counted.
    pub(super) are_accepted: bool,
}

impl Volume {
    /// Unidentified blocks of a segment are lost.
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

    /// The same for one block at a known place: it counts if no marker names it.
    pub(super) fn lose_unidentified_at(&mut self, member: MemberIndex, place: LostPlace) {
        let places = &mut self.found().losses.places;
        if places.len() < UNIDENTIFIED_PLACES_MAX {
            places.insert(place, member);
        } else {
            self.lose_unidentified(member, place.segment, 1);
        }
    }

    /// Whether an unreadable block of tombstones is to be read again.
    pub(super) fn tries_tombstones_again(&mut self, place: Physical) -> bool {
        let failures = self.found().losses.unread.entry(place).or_default();
        *failures += 1;
        *failures < READ_ATTEMPTS_MAX
    }

    /// The contents of a block of tombstones are lost: blocks that it trims may show their former
    /// contents, unless it was never acknowledged.
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

    /// Everything is read: if there are unidentified losses, the mount continues only if they are
    /// accepted. Returns whether that is to be recorded in the superblocks.
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
        if self.found().options.accepts_losses {
            self.events.push_back(Event::LossesAccepted { blocks });
        }
        let newest = self.segments.next_sequence() - 1;
        if !self.spec.has(SeededBug::ForgottenAcceptance) {
            self.members.set_accepted_segment(newest);
        }
        Ok(true)
    }
}

impl Reading {
    /// A member whose zone is damaged; the first that took part if the loss was on others.
    pub(super) fn damaged_member(&self) -> MemberIndex {
        let zones = || (0..).map(MemberIndex).zip(&self.zones);
        let with_zone = zones().filter_map(|(member, zone)| Some((member, zone.as_ref()?)));
        let damaged = with_zone.filter(|(_, zone)| zone.is_damaged()).map(|(member, _)| member);
        let first = zones().find(|(_, zone)| zone.is_some()).map(|(member, _)| member);
        damaged.chain(first).next().unwrap_or(MemberIndex(self.found.header.member))
    }
}
