//! Unidentified zones, which are offline or have unreadable headers, and segments that lack zones:
//! if these may hold acknowledged blocks, the mount is refused.

use std::collections::BTreeMap;

use zonda_zoned::ZoneState;

use super::Volume;
use super::headers::FoundSegment;
use crate::bug::SeededBug;
use crate::format::MemberState;
use crate::limits::METADATA_ZONES;
use crate::shape::bits;
use crate::{MemberIndex, VolumeError};

impl Volume {
    /// Counts the offline zones without a known segment. Returns for each member how many of them
    /// went offline since the last superblock: those may have held something.
    pub(super) fn offline_since(&mut self, kept: &BTreeMap<u64, FoundSegment>) -> Vec<u32> {
        let mut news = vec![0; self.spec.members()];
        for member in self.members.present() {
            let at = member.as_usize();
            let zones = self.start_mut().zones[at].iter().skip(METADATA_ZONES as usize);
            let offline = zones.filter(|zone| zone.state == ZoneState::Offline).count();
            let named = kept.values().filter(|segment| segment.offline >> at & 1 == 1).count();
            let counted = offline.saturating_sub(named) as u32;
            let is_careless = self.spec.has(SeededBug::UncountedZone);
            let known = self.found().known_offline[at].filter(|_| !is_careless).unwrap_or(counted);
            news[at] = counted.saturating_sub(known);
            self.found().is_behind |= counted != known;
            self.members[member].lost_offline(counted);
        }
        news
    }

    /// Why the volume cannot be mounted, if zones may hold a segment of which nothing else is left:
    /// their headers cannot be read, or they are offline. None do where an active member has all
    /// its headers.
    pub(super) fn unidentified_zones(&mut self) -> Option<VolumeError> {
        if self.showing_all() != 0 {
            return None;
        }
        for member in self.members.present() {
            let capacity = self.members[member].geometry().zone_capacity_blocks.0;
            let offline = u64::from(self.found().unclaimed.offline(member));
            let blocks = match self.first_that_may_hold(member) {
                Some(zone) => u64::from(self.blocks_in(member, zone)) - 1,
                None if offline > 0 => offline * (capacity - 1),
                None => continue,
            };
            return Some(VolumeError::UnidentifiedLosses { member, segment: 0, blocks });
        }
        None
    }

    /// Active members that have all their headers, as bits. Older copies do not count.
    pub(super) fn showing_all(&mut self) -> u32 {
        let older = self.found().older_copies;
        let members = self.spec.member_indices();
        let showing = members.filter(|&member| {
            older >> member.0 & 1 == 0
                && self.members[member].state() == MemberState::Active
                && self.found().unclaimed.offline(member) == 0
                && self.first_that_may_hold(member).is_none()
        });
        bits(showing.map(MemberIndex::as_usize))
    }

    fn first_that_may_hold(&mut self, member: MemberIndex) -> Option<u32> {
        let zones = self.found().unclaimed.zones(member).clone();
        zones.into_iter().find(|&zone| self.may_hold(member, zone))
    }

    /// Whether such a zone may hold more than a header, or the remains of one whose write was
    /// interrupted: no stripe counts in a segment before all its headers are durable.
    pub(super) fn may_hold(&mut self, member: MemberIndex, zone: u32) -> bool {
        // The first block is a header. A zone that was finished before anything was written to it
        // is blank.
        self.blocks_in(member, zone) > 1 && !self.found().blank_headers.contains(&(member, zone))
    }

    /// Segments that may hold acknowledged blocks, and lack the zones of missing members.
    pub(super) fn lacking(&mut self, kept: &BTreeMap<u64, FoundSegment>) -> Option<VolumeError> {
        let accepted = self.members.accepted_segment();
        let mut lacking = kept
            .iter()
            .skip_while(|&(&sequence, _)| sequence <= accepted)
            .filter(|(_, segment)| !self.has_enough(segment));
        lacking.find_map(|(_, segment)| {
            let lacks = |member: &MemberIndex| segment.zones[member.as_usize()].is_none();
            let is = |state| {
                let members = self.spec.member_indices().filter(lacks);
                members.filter(|&at| self.members[at].state() == state).collect::<Vec<_>>()
            };
            let (missing, rebuilding) = (is(MemberState::Failed), is(MemberState::Rebuilding));
            // If all are present, unreadable blocks are counted when the segment is read.
            let is_counted = missing.is_empty() && rebuilding.is_empty();
            let tolerates = self.spec.code.tolerates();
            (!is_counted).then_some(VolumeError::TooManyMissing { tolerates, missing, rebuilding })
        })
    }
}
