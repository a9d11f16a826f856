//! Which zones make which segments.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::{BlockBuffer, ZoneAction, ZoneDescriptor, ZoneState};

use super::superblocks::written_blocks;
use super::{Volume, block_of};
use crate::MemberIndex;
use crate::format::{HeaderError, MemberState, SegmentHeader};
use crate::limits::{METADATA_ZONES, READ_ATTEMPTS_MAX};
use crate::machine::start::StartStep;
use crate::shape::bits;

/// A segment of which a header was found.
#[derive(Debug)]
pub(super) struct FoundSegment {
    pub(super) header: SegmentHeader,
    /// The zone on each member that is there.
    pub(super) zones: Vec<Option<u32>>,
    /// Zones that were not named when the segment was opened: a rebuild's, which count if they were completed.
    pub(super) rebuilt: u32,
    /// Zones that a rebuild has written, finished or not, and those of which it is not known: what they lack need not have been
    /// missing before.
    pub(super) copied: u32,
}

/// Headers of one member on their way.
const HEADERS_IN_FLIGHT: usize = 64;

impl Volume {
    /// Which zones have a header to be read.
    pub(super) fn list_headers(&mut self) {
        let zones = self.start_mut().zones.clone();
        let members = self.spec.members();
        self.found().unread = vec![Default::default(); members];
        for member in self.members.present() {
            for (zone, descriptor) in (0..).zip(&zones[member.as_usize()]).skip(METADATA_ZONES as usize) {
                let entry = &mut self.members[member];
                match descriptor.state {
                    ZoneState::Offline => entry.retire_zone(zone),
                    ZoneState::Empty => entry.found_free_zone(zone),
                    _ => {
                        if descriptor.state.is_active() {
                            entry.found_active_zone();
                        }
                        self.found().unread[member.as_usize()].push_back(zone);
                    }
                }
            }
        }
        self.read_headers();
    }

    pub(super) fn read_headers(&mut self) {
        for member in self.members.present() {
            for _ in 0..HEADERS_IN_FLIGHT {
                let Some(zone) = self.found().unread[member.as_usize()].pop_front() else { break };
                self.read_at_start(member, StartStep::Header { zone }, zone, 0, 1);
            }
        }
    }

    /// Whether a header that could not be read is read once more: whose zone it is decides whether it is reset.
    pub(super) fn tries_again(&mut self, member: MemberIndex, zone: u32) -> bool {
        let failures = self.found().unreadable.entry((member, zone)).or_default();
        *failures += 1;
        *failures < READ_ATTEMPTS_MAX
    }

    pub(super) fn on_header_read(&mut self, member: MemberIndex, zone: u32, buffer: Option<&BlockBuffer>) {
        let (block_bytes, array, is_in_band) =
            (self.spec.shape.block_bytes, self.spec.array, self.spec.shape.is_in_band);
        let (members, data, parity) = (self.spec.members(), self.spec.shape.scheme.data, self.spec.shape.scheme.parity);
        let found = self.found();
        let header = buffer.and_then(|buffer| block_of(buffer, 0, block_bytes)).map(SegmentHeader::read);
        let owner = match header {
            Some(Ok(header)) => {
                let is_ours = header.array == array
                    && header.member == member.0
                    && header.zones.len() == members
                    && header.is_in_band == is_in_band
                    && (header.data, header.parity) == (data, parity);
                if !is_ours {
                    found.owners[member.as_usize()].insert(zone, Some((0, 0)));
                    return;
                }
                let (sequence, epoch) = (header.segment, header.epoch);
                let segment = FoundSegment { zones: vec![None; members], rebuilt: 0, copied: 0, header };
                match found.segments.get_mut(&sequence) {
                    // Of two headers the older one is of those that opened the segment.
                    Some(known) if known.header.epoch <= segment.header.epoch => {}
                    _ => drop(found.segments.insert(sequence, segment)),
                }
                Some((sequence, epoch))
            }
            Some(Err(HeaderError::Blank | HeaderError::NotOurs | HeaderError::OtherVersion { .. })) => Some((0, 0)),
            // It may be any segment's.
            Some(Err(HeaderError::Damaged)) | None => None,
        };
        found.owners[member.as_usize()].insert(zone, owner);
    }

    /// All headers are read: zones go to their segments, and those of none are reset.
    pub(super) fn match_zones(&mut self) {
        let owners = std::mem::take(&mut self.found().owners);
        let descriptors = self.start_mut().zones.clone();
        let mut segments = std::mem::take(&mut self.found().segments);
        for member in self.members.present() {
            let at = member.as_usize();
            let is_rebuilding = self.members[member].state() == MemberState::Rebuilding;
            let mut claimed: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
            for (&zone, &owner) in &owners[at] {
                let Some((sequence, epoch)) = owner else { continue };
                let Some(segment) = segments.get(&sequence) else { continue };
                // A rebuild may have come to the very zone that was named.
                let is_original = segment.header.zones[at] == Some(zone) && segment.header.epoch == epoch;
                // A rebuild that began twice left two: the one that was finished counts.
                let is_full = descriptors[at][zone as usize].state == ZoneState::Full;
                if is_original || is_full || !claimed.contains_key(&sequence) {
                    claimed.insert(sequence, (zone, epoch));
                }
            }
            // A zone whose header cannot be read is that of the last segment that was opened with it.
            let mut unreadable: BTreeSet<u32> =
                owners[at].iter().filter(|(_, owner)| owner.is_none()).map(|(&zone, _)| zone).collect();
            for (sequence, segment) in segments.iter_mut().rev() {
                let named = segment.header.zones[at];
                let unreadable = named.filter(|zone| unreadable.remove(zone));
                let claimed = claimed.get(sequence).copied();
                let zone = claimed.map(|(zone, _)| zone).or(unreadable);
                segment.zones[at] = zone;
                let is_later = claimed.is_none_or(|(_, epoch)| epoch > segment.header.epoch);
                if zone.is_some() && (zone != named || is_later) {
                    segment.copied |= 1 << at;
                    if is_rebuilding {
                        segment.rebuilt |= 1 << at;
                    }
                }
            }
        }
        let mut kept = BTreeMap::new();
        for (sequence, segment) in segments {
            self.segments.saw_sequence(sequence);
            self.map.saw_header(segment.header.timestamp);
            // What was not opened everywhere holds nothing that was acknowledged, what is reset nothing that is needed.
            let zones = bits((0..segment.zones.len()).filter(|&at| segment.zones[at].is_some()));
            let has_enough = self.spec.are_enough(zones);
            if has_enough || !self.shows_no_zone(&segment, &owners, &descriptors) {
                kept.insert(sequence, segment);
            }
        }
        for member in self.members.present() {
            let at = member.as_usize();
            for &zone in owners[at].keys() {
                if !kept.values().any(|segment| segment.zones[at] == Some(zone)) {
                    self.reset_orphan(member, zone);
                }
            }
        }
        self.found().segments = kept;
    }

    /// Whether a member that took part in a segment has no zone of it: it can be read, and the zone that is named is empty or another
    /// segment's.
    fn shows_no_zone(
        &self,
        segment: &FoundSegment,
        owners: &[BTreeMap<u32, Option<(u64, u64)>>],
        descriptors: &[Vec<ZoneDescriptor>],
    ) -> bool {
        self.members.present().any(|member| {
            let at = member.as_usize();
            let is_active = self.members[member].state() == MemberState::Active;
            let lacks = segment.zones[at].is_none() && owners[at].values().all(Option::is_some);
            let is_others = |zone: u32| {
                let state = descriptors[at][zone as usize].state;
                state == ZoneState::Empty || owners[at].contains_key(&zone)
            };
            is_active && lacks && segment.header.zones[at].is_some_and(is_others)
        })
    }

    /// A zone that belongs to no segment.
    pub(super) fn reset_orphan(&mut self, member: MemberIndex, zone: u32) {
        let descriptor = &self.start_mut().zones[member.as_usize()][zone as usize];
        let (state, _) = (descriptor.state, written_blocks(descriptor));
        let entry = &mut self.members[member];
        if state == ZoneState::ReadOnly {
            entry.retire_zone(zone);
            return;
        }
        let reset = entry.manage(zone, ZoneAction::Reset);
        self.send_start(member, StartStep::ResetOrphan { zone }, reset);
    }
}
