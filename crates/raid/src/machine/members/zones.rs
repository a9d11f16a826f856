//! Zones of one member without a segment, and the number of active zones.
//!
//! A zone is found free or [`retire`](Zones::retire)d, [`take`](Zones::take)n for a segment,
//! [`close`](Zones::close_one)d when it needs no active resource any more, and free again, or
//! retired, when its reset has [ended](Zones::reset_ended).

use std::collections::{BTreeSet, VecDeque};

use zonda_zoned::{Geometry, Status, ZoneState};

use crate::limits::METADATA_ZONES;

/// Owns the free zones of a member, those that cannot be written any more, and the count of active
/// ones.
#[derive(Debug, Default)]
pub(super) struct Zones {
    free: VecDeque<u32>,
    /// Zones that cannot be written any more.
    retired: BTreeSet<u32>,
    /// Those of them that are read only: their contents are not needed, and cannot be erased.
    /// Superblocks name them.
    read_only: BTreeSet<u32>,
    /// Zones with an active resource, that of superblocks included.
    active: u32,
    /// Those of them that no segment uses: their resets failed, and they may stay active.
    stuck: u32,
    /// Offline zones without needed contents: superblocks record their number, so that a mount
    /// detects a zone that went offline since.
    offline: u32,
}

impl Zones {
    /// The superblock log holds this many active zones.
    pub(super) fn open_log(&mut self, active: u32) {
        self.active = active;
    }

    /// The superblock log takes its second zone.
    pub(super) fn open_log_mirror(&mut self) {
        self.active += 1;
    }

    /// A mount found a free zone.
    pub(super) fn found_free(&mut self, zone: u32) {
        self.free.push_back(zone);
    }

    /// A mount found an active zone.
    pub(super) fn found_active(&mut self) {
        self.active += 1;
    }

    /// This many more zones without needed contents are offline.
    pub(super) fn lost_offline(&mut self, zones: u32) {
        self.offline += zones;
    }

    pub(super) fn offline_count(&self) -> u32 {
        self.offline
    }

    /// A zone cannot be written any more.
    pub(super) fn retire(&mut self, zone: u32) {
        self.retired.insert(zone);
    }

    /// A zone without needed contents is in this state, in which it cannot be written any more.
    pub(super) fn retire_unused(&mut self, zone: u32, state: ZoneState) {
        self.retired.insert(zone);
        self.note_state(zone, state);
    }

    /// Records the reported state of a retired zone.
    fn note_state(&mut self, zone: u32, state: ZoneState) {
        if state == ZoneState::ReadOnly && self.retired.contains(&zone) {
            self.read_only.insert(zone);
        } else {
            self.read_only.remove(&zone);
        }
    }

    /// Retired zones that are read only.
    pub(super) fn read_only(&self) -> impl Iterator<Item = u32> + '_ {
        self.read_only.iter().copied()
    }

    /// A zone is in this state, in which it cannot be written any more: it is not free any more.
    pub(super) fn retire_free(&mut self, zone: u32, state: ZoneState) {
        let free = self.free.len();
        self.free.retain(|&other| other != zone);
        if self.free.len() < free {
            self.retired.insert(zone);
        }
        self.note_state(zone, state);
    }

    /// A free zone, which becomes active.
    pub(super) fn take(&mut self) -> Option<u32> {
        let zone = self.free.pop_front()?;
        self.active += 1;
        Some(zone)
    }

    /// A zone needs no active resource any more.
    pub(super) fn close_one(&mut self) {
        self.active -= 1;
    }

    /// The reset of a zone has ended: it is free, or retired, and then keeps its active resource
    /// unless its medium has failed.
    pub(super) fn reset_ended(&mut self, zone: u32, was_active: bool, status: Status) {
        if status.is_success() {
            assert!(!self.free.contains(&zone), "a zone is freed once");
            self.active -= u32::from(was_active);
            self.free.push_back(zone);
            return;
        }
        self.retired.insert(zone);
        if status == Status::ZoneIsReadOnly {
            self.read_only.insert(zone);
        }
        let is_dead = matches!(status, Status::ZoneIsReadOnly | Status::ZoneIsOffline);
        self.active -= u32::from(was_active && is_dead);
        self.stuck += u32::from(was_active && !is_dead);
    }

    pub(super) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    pub(super) fn retired_count(&self) -> u32 {
        self.retired.len() as u32
    }

    pub(super) fn active(&self) -> u32 {
        self.active
    }

    pub(super) fn stuck(&self) -> u32 {
        self.stuck
    }

    pub(super) fn free(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.iter().copied()
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self, geometry: &Geometry, is_log_idle: bool) {
        let mut free = BTreeSet::new();
        for &zone in &self.free {
            assert!(free.insert(zone), "zone {zone} is free once");
            assert!((METADATA_ZONES..geometry.zone_count).contains(&zone), "zone {zone} is for segments");
            assert!(!self.retired.contains(&zone), "zone {zone} is free or retired");
        }
        assert!(self.read_only.is_subset(&self.retired), "read-only zones that are named are retired");
        assert!(self.stuck < self.active || self.stuck == 0, "stuck zones are active, and so is the log's");
        // One is counted for a log that has none: a power loss may leave all others active.
        let active = self.active.saturating_sub(u32::from(is_log_idle));
        assert!(geometry.max_active_zones.is_none_or(|max| active <= max), "no more zones are active than may be");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_one_taken() -> Zones {
        let mut zones = Zones::default();
        zones.open_log(1);
        zones.found_free(7);
        assert_eq!(zones.take(), Some(7));
        assert_eq!((zones.free_count(), zones.active()), (0, 2));
        zones
    }

    #[test]
    fn all_active_zones_may_be_of_segments_while_none_of_the_log_is_active() {
        let mut zones = Zones::default();
        zones.open_log(1);
        let geometry = Geometry { max_active_zones: Some(2), ..Geometry::tiny() };
        (0..2).for_each(|_| zones.found_active());
        zones.check_invariants(&geometry, true);
        let checked = std::panic::catch_unwind(|| zones.check_invariants(&geometry, false));
        assert!(checked.is_err(), "the log holds one, and only two may be active");
    }

    #[test]
    fn a_zone_that_was_reset_is_free_and_not_active() {
        let mut zones = with_one_taken();
        zones.reset_ended(7, true, Status::Success);
        assert_eq!((zones.free_count(), zones.active(), zones.stuck()), (1, 1, 0));
    }

    #[test]
    fn a_closed_zone_releases_its_active_resource_once() {
        let mut zones = with_one_taken();
        zones.close_one();
        zones.reset_ended(7, false, Status::Success);
        assert_eq!((zones.free_count(), zones.active()), (1, 1));
    }

    #[test]
    fn an_active_zone_that_cannot_be_reset_stays_active_unless_its_medium_has_failed() {
        let mut zones = with_one_taken();
        zones.reset_ended(7, true, Status::InternalError);
        assert_eq!((zones.retired_count(), zones.active(), zones.stuck()), (1, 2, 1));
        let mut zones = with_one_taken();
        zones.reset_ended(7, true, Status::ZoneIsReadOnly);
        assert_eq!((zones.retired_count(), zones.active(), zones.stuck()), (1, 1, 0));
    }
}
