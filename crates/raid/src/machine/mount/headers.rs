//! Assigns zones to segments by their headers.

use std::collections::{BTreeMap, BTreeSet};

use zonda_zoned::{BlockBuffer, ZoneAction, ZoneDescriptor, ZoneState};

use super::superblocks::written_blocks;
use super::unclaimed::Unclaimed;
use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::format::{HEADER_COPIES, HeaderError, MemberState, SegmentHeader};
use crate::limits::{METADATA_ZONES, READ_ATTEMPTS_MAX};
use crate::machine::members::is_dead;
use crate::machine::rebuild::{Aside, AsideStep};
use crate::machine::start::StartStep;
use crate::shape::bits;
use crate::{MemberIndex, VolumeError};

/// A segment of which a header was found.
#[derive(Debug)]
pub(super) struct FoundSegment {
    pub(super) header: SegmentHeader,
    /// The zone on each present member.
    pub(super) zones: Vec<Option<u32>>,
    /// Zones that were not named when the segment was opened: those of a rebuild, which count if
    /// they were completed.
    pub(super) rebuilt: u32,
    /// Zones that a rebuild has written, completely or not, and those of which that is unknown:
    /// blocks that they lack need not have been missing before.
    pub(super) copied: u32,
    /// Zones that are offline, of members that took part.
    pub(super) offline: u32,
    /// Active members that took part and show that they have no zone of it, as bits. Each of them
    /// shows that it was never opened, or was being emptied, and that nothing in it is needed;
    /// unless the member is an older copy, which `leaving.rs` determines.
    pub(super) shown_without: u32,
    /// A header of one of its zones is damaged: the segment is to be moved to intact zones.
    pub(super) has_damaged_header: bool,
}

impl FoundSegment {
    /// Whether nothing in it is needed, according to a member.
    pub(super) fn is_leaving(&self) -> bool {
        self.shown_without != 0
    }
}

/// The owner of a zone that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A segment; the epoch in which the zone was taken for it; and whether a rebuild wrote it.
    Segment { sequence: u64, epoch: u64, is_rebuilt: bool },
    /// No segment: nothing of this volume was written to it.
    Unowned,
    /// Its headers cannot be read.
    Unknown,
}

/// Header reads of one member in flight.
const HEADERS_IN_FLIGHT: usize = 64;

impl Volume {
    /// Lists the zones whose headers are to be read.
    pub(super) fn list_headers(&mut self) {
        let zones = self.start_mut().zones.clone();
        let members = self.spec.members();
        self.found().unread = vec![Default::default(); members];
        for member in self.members.present() {
            for (zone, descriptor) in (0..).zip(&zones[member.as_usize()]).skip(METADATA_ZONES as usize) {
                let is_read_only = descriptor.state == ZoneState::ReadOnly;
                if is_read_only && self.found().known_read_only[member.as_usize()].contains(&zone) {
                    // As if it had been reset: its contents need not be readable.
                    self.found().owners[member.as_usize()].insert(zone, Owner::Unowned);
                    continue;
                }
                let entry = &mut self.members[member];
                match descriptor.state {
                    ZoneState::Offline => entry.retire_zone(zone),
                    ZoneState::Empty => entry.found_free_zone(zone),
                    _ => {
                        if descriptor.state.is_active() {
                            entry.found_active_zone();
                        }
                        if written_blocks(descriptor) > 0 {
                            self.found().unread[member.as_usize()].push_back(zone);
                        } else {
                            self.found().owners[member.as_usize()].insert(zone, Owner::Unowned);
                        }
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
                let transfer = self.spec.shape.transfer_blocks;
                let blocks = HEADER_COPIES.min(transfer).min(self.blocks_in(member, zone));
                self.read_header(member, zone, 0, blocks);
            }
        }
    }

    fn read_header(&mut self, member: MemberIndex, zone: u32, first: u32, blocks: u32) {
        self.read_at_start(member, StartStep::Header { zone, first, blocks }, zone, first, blocks);
    }

    fn state_of(&mut self, member: MemberIndex, zone: u32) -> ZoneState {
        self.start_mut().zones[member.as_usize()][zone as usize].state
    }

    /// Blocks of a zone that may be written.
    pub(super) fn blocks_in(&mut self, member: MemberIndex, zone: u32) -> u32 {
        written_blocks(&self.start_mut().zones[member.as_usize()][zone as usize])
    }

    /// A read of headers has ended: unreadable ones are read one by one, several times. The owner
    /// of a zone decides whether it is reset.
    pub(super) fn on_header_read(
        &mut self,
        member: MemberIndex,
        zone: u32,
        (first, blocks): (u32, u32),
        buffer: Option<&BlockBuffer>,
    ) {
        let Some(buffer) = buffer else {
            if blocks > 1 {
                return self.read_header(member, zone, first, 1);
            }
            let failures = self.found().unreadable.entry((member, zone)).or_default();
            *failures += 1;
            if *failures < READ_ATTEMPTS_MAX {
                return self.read_header(member, zone, first, 1);
            }
            self.note_damaged_header(member, zone, first);
            return self.read_next_header(member, zone, first + 1);
        };
        // It is not known how far a zone that cannot be written any more was written: not at all,
        // if its headers are zeros.
        let is_blank = |at: u32| {
            let block = block_of(buffer, at as usize, self.spec.shape.block_bytes);
            block.is_some_and(|block| SegmentHeader::read(block) == Err(HeaderError::Blank))
        };
        let are_blank = (0..blocks).all(is_blank);
        let end = first + blocks;
        let were_blank = first == 0 || self.found().blank_headers.remove(&(member, zone));
        if are_blank && were_blank {
            let are_all = end >= HEADER_COPIES.min(self.spec.shape.transfer_blocks);
            if are_all && self.state_of(member, zone) == ZoneState::ReadOnly {
                self.found().owners[member.as_usize()].insert(zone, Owner::Unowned);
                return;
            }
            self.found().blank_headers.insert((member, zone));
        }
        let mut damaged = first > 0;
        for at in 0..blocks {
            let Some(block) = block_of(buffer, at as usize, self.spec.shape.block_bytes) else { break };
            match SegmentHeader::read(block) {
                // In version 1 the second block is data, with arbitrary contents.
                Ok(header) if first + at > 0 && !is_second_header(&header, member, zone) => damaged = true,
                Ok(header) if self.is_misplaced(&header, member, zone) => {
                    damaged = true;
                    self.note_damaged_header(member, zone, first + at);
                }
                Ok(header) => {
                    let has_second = at + 1 < blocks && header.copies > first + at + 1;
                    let second = block_of(buffer, at as usize + 1, self.spec.shape.block_bytes);
                    let is_second_damaged = has_second && second != Some(block);
                    // An interrupted write of the header has no second copy.
                    if is_second_damaged && second.is_some_and(|second| second.iter().any(|&byte| byte != 0)) {
                        self.note_damaged_header(member, zone, 1);
                    }
                    let copies = header.copies;
                    self.take_header(member, zone, header, damaged || is_second_damaged);
                    let were_asked =
                        HEADER_COPIES.min(self.spec.shape.transfer_blocks).min(self.blocks_in(member, zone));
                    if (first + at, blocks) == (0, 1) && copies.min(were_asked) > 1 {
                        self.read_at_start(member, StartStep::SecondHeader { zone }, zone, 1, 1);
                    }
                    return;
                }
                Err(HeaderError::OtherVersion { found }) if first + at == 0 => {
                    return self.fail(VolumeError::Version { member, found });
                }
                Err(error) => {
                    damaged = true;
                    if error != HeaderError::Blank {
                        self.note_damaged_header(member, zone, first + at);
                    }
                }
            }
        }
        self.read_next_header(member, zone, first + blocks);
    }

    /// Whether a header on this member belongs to another zone: each names its own, so its write
    /// was misdirected.
    fn is_misplaced(&self, header: &SegmentHeader, member: MemberIndex, zone: u32) -> bool {
        let is_of_member = (header.array, header.member) == (self.spec.array, member.0);
        is_of_member && header.zones.get(member.as_usize()) != Some(&Some(zone))
    }

    fn note_damaged_header(&mut self, member: MemberIndex, zone: u32, offset: u32) {
        self.found().damaged_headers.entry((member, zone)).or_default().insert(offset);
    }

    /// A read of the second header of a zone has ended.
    pub(super) fn on_second_header_read(&mut self, member: MemberIndex, zone: u32, buffer: Option<&BlockBuffer>) {
        if buffer.is_none() {
            let failures = self.found().unreadable.entry((member, zone)).or_default();
            *failures += 1;
            if *failures < READ_ATTEMPTS_MAX {
                return self.read_at_start(member, StartStep::SecondHeader { zone }, zone, 1, 1);
            }
        }
        let block = buffer.and_then(|buffer| block_of(buffer, 0, self.spec.shape.block_bytes));
        if block.is_some_and(|block| matches!(SegmentHeader::read(block), Ok(_) | Err(HeaderError::Blank))) {
            return;
        }
        self.note_damaged_header(member, zone, 1);
        let found = self.found();
        if let Some(&Owner::Segment { sequence, .. }) = found.owners[member.as_usize()].get(&zone)
            && let Some(segment) = found.segments.get_mut(&sequence)
        {
            segment.has_damaged_header = true;
        }
    }

    /// The previous block is no header: reads the next one.
    fn read_next_header(&mut self, member: MemberIndex, zone: u32, next: u32) {
        self.found().unreadable.remove(&(member, zone));
        if next < HEADER_COPIES.min(self.blocks_in(member, zone)) {
            return self.read_header(member, zone, next, 1);
        }
        let resets = self.spec.has(SeededBug::UnreadableHeaderReset);
        self.found().owners[member.as_usize()].insert(zone, if resets { Owner::Unowned } else { Owner::Unknown });
    }

    fn take_header(&mut self, member: MemberIndex, zone: u32, header: SegmentHeader, has_damaged_header: bool) {
        let members = self.spec.members();
        let shape = &self.spec.shape;
        let is_ours = header.array == self.spec.array
            && header.member == member.0
            && header.zones.len() == members
            && header.is_in_band == shape.is_in_band
            && (header.data, header.parity) == (shape.scheme.data, shape.scheme.parity);
        if !is_ours {
            self.found().owners[member.as_usize()].insert(zone, Owner::Unowned);
            return;
        }
        if self.is_from_before(member, &header) {
            self.segments.saw_sequence(header.segment);
            self.put_header_aside(member, zone, header);
            return;
        }
        let found = self.found();
        let (sequence, epoch, is_rebuilt) = (header.segment, header.epoch, header.is_rebuilt);
        found.owners[member.as_usize()].insert(zone, Owner::Segment { sequence, epoch, is_rebuilt });
        let mut segment = FoundSegment {
            zones: vec![None; members],
            rebuilt: 0,
            copied: 0,
            offline: 0,
            shown_without: 0,
            header,
            has_damaged_header,
        };
        match found.segments.get_mut(&sequence) {
            // Of two headers, the older one belongs to the opening of the segment.
            Some(known) if known.header.epoch <= epoch => known.has_damaged_header |= has_damaged_header,
            known => {
                segment.has_damaged_header |= known.is_some_and(|known| known.has_damaged_header);
                found.segments.insert(sequence, segment);
            }
        }
    }

    /// Whether a member that is being rebuilt held a zone before it returned. Such a zone does not
    /// count: its segment may have been reset long ago, and its sequence number may be in use by
    /// another one.
    fn is_from_before(&self, member: MemberIndex, header: &SegmentHeader) -> bool {
        let member = &self.members[member];
        member.state() == MemberState::Rebuilding && header.epoch < member.since_epoch()
    }

    /// Sets such a zone aside until the volume is ready.
    fn put_header_aside(&mut self, member: MemberIndex, zone: u32, header: SegmentHeader) {
        let state = self.state_of(member, zone);
        if is_dead(state) {
            return self.members[member].retire_unused_zone(zone, state);
        }
        let (is_active, is_full) = (state.is_active(), state == ZoneState::Full);
        let header = is_full.then_some(header);
        self.put_aside(Aside { member, zone, is_active, header, step: AsideStep::Waiting });
    }

    /// The members are recorded: resets zones that were set aside and belong to no needed segment,
    /// so that the mount has as many free ones as members had before.
    pub(super) fn reset_aside_of_none(&mut self) {
        let sequences = self.segments.sequences();
        let is_needed = |aside: &Aside| aside.header.as_ref().is_some_and(|header| sequences.contains(&header.segment));
        for (member, zone) in self.take_aside(|aside| !is_needed(aside)) {
            self.reset_orphan(member, zone);
        }
    }

    /// All headers are read: assigns zones to their segments, and resets unassigned ones.
    pub(super) fn match_zones(&mut self) {
        let owners = std::mem::take(&mut self.found().owners);
        let mut segments = std::mem::take(&mut self.found().segments);
        let descriptors = self.start_mut().zones.clone();
        let claims = self.claim_zones(&owners, &descriptors, &mut segments);
        let (mut kept, mut leaving) = (BTreeMap::new(), BTreeMap::new());
        for (sequence, mut segment) in segments {
            self.segments.saw_sequence(sequence);
            self.map.saw_header(segment.header.timestamp);
            segment.shown_without = self.shown_without(&owners, &claims, &descriptors, &segment);
            if self.has_enough(&segment) || !segment.is_leaving() && !self.spec.has(SeededBug::DroppedSegment) {
                kept.insert(sequence, segment);
            } else {
                leaving.insert(sequence, segment);
            }
        }
        let accepts = self.found().options.accepts_losses;
        let offline = self.offline_since(&kept);
        // A zone that no header names, on a member that has all its headers, belongs to no needed
        // segment.
        self.found().unclaimed = Unclaimed::new(claims, offline);
        if let Some(error) = self.unidentified_zones().or_else(|| self.lacking(&kept)) {
            if !accepts {
                return self.fail(error);
            }
            self.found().losses.are_accepted = true;
        }
        let mut orphans = Vec::new();
        for member in self.members.present() {
            let at = member.as_usize();
            let used: BTreeSet<u32> = kept.values().filter_map(|segment| segment.zones[at]).collect();
            orphans.extend(owners[at].keys().filter(|zone| !used.contains(zone)).map(|&zone| (member, zone)));
        }
        let found = self.found();
        (found.orphans, found.leaving) = (orphans, leaving);
        (found.segments, found.owners) = (kept, owners);
    }

    /// Resets the zones that belong to no needed segment. Nothing is reset before everything is
    /// read: a segment that seems unnecessary may show that a member is an older copy.
    pub(super) fn reset_orphans(&mut self) {
        for (member, zone) in std::mem::take(&mut self.found().orphans) {
            if self.members[member].is_present() {
                self.reset_orphan(member, zone);
            }
        }
    }

    /// Assigns zones to each segment. Returns those of each member that certainly belong to no
    /// segment.
    fn claim_zones(
        &self,
        owners: &[BTreeMap<u32, Owner>],
        descriptors: &[Vec<ZoneDescriptor>],
        segments: &mut BTreeMap<u64, FoundSegment>,
    ) -> Vec<BTreeSet<u32>> {
        let mut unclaimed = Vec::new();
        for at in 0..self.spec.members() {
            let member = &self.members[MemberIndex(at as u8)];
            let is_rebuilding = member.state() == MemberState::Rebuilding;
            let mut claimed: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
            for (&zone, &owner) in &owners[at] {
                let Owner::Segment { sequence, epoch, is_rebuilt } = owner else { continue };
                let Some(segment) = segments.get(&sequence) else { continue };
                // A rebuild may have written to the very zone that was named; or only its headers
                // are left.
                let is_original =
                    segment.header.zones[at] == Some(zone) && segment.header.epoch == epoch && !is_rebuilt;
                // A repeated rebuild left two: the completed one counts.
                let is_full = descriptors[at][zone as usize].state == ZoneState::Full;
                if is_original || is_full || !claimed.contains_key(&sequence) {
                    claimed.insert(sequence, (zone, is_rebuilt || epoch > segment.header.epoch));
                }
            }
            // A zone whose headers cannot be read belongs to the last segment that was opened with
            // it.
            let mut unknown: BTreeSet<u32> = zones_that(&owners[at], |owner| owner == Owner::Unknown).collect();
            for (sequence, segment) in segments.iter_mut().rev() {
                let named = segment.header.zones[at];
                let claimed = claimed.get(sequence).copied();
                let is_same_device = member.since_epoch() <= segment.header.epoch;
                let by_name = named.filter(|zone| claimed.is_none() && is_same_device && unknown.remove(zone));
                segment.has_damaged_header |= by_name.is_some();
                let zone = claimed.map(|(zone, _)| zone).or(by_name);
                segment.zones[at] = zone;
                let is_offline =
                    |zone: u32| descriptors[at].get(zone as usize).is_some_and(|zone| zone.state == ZoneState::Offline);
                segment.offline |= u32::from(is_same_device && zone.is_none() && named.is_some_and(is_offline)) << at;
                let is_later = claimed.is_some_and(|(_, is_later)| is_later);
                let is_copy = zone.is_some() && (zone != named || is_later);
                segment.copied |= u32::from(is_copy || by_name.is_some()) << at;
                segment.rebuilt |= u32::from(is_copy && is_rebuilding) << at;
            }
            unclaimed.push(unknown);
        }
        unclaimed
    }

    /// Active members that took part in a segment and show that it was never opened, or was being
    /// emptied, as bits.
    fn shown_without(
        &self,
        owners: &[BTreeMap<u32, Owner>],
        unknown: &[BTreeSet<u32>],
        descriptors: &[Vec<ZoneDescriptor>],
        segment: &FoundSegment,
    ) -> u32 {
        let shows_none = |at: usize| {
            let member = &self.members[MemberIndex(at as u8)];
            if segment.zones[at].is_some() || member.state() != MemberState::Active || !unknown[at].is_empty() {
                return false;
            }
            let is_same_device = member.since_epoch() <= segment.header.epoch;
            match segment.header.zones[at] {
                Some(zone) if is_same_device => descriptors[at].get(zone as usize).is_some_and(|descriptor| {
                    descriptor.state != ZoneState::Offline
                        && (written_blocks(descriptor) == 0 || owners[at].contains_key(&zone))
                }),
                // It was rebuilt since, with all segments.
                _ if !is_same_device => descriptors[at].iter().all(|zone| zone.state != ZoneState::Offline),
                _ => false,
            }
        };
        bits((0..self.spec.members()).filter(|&at| shows_none(at)))
    }

    /// Whether all blocks of a segment can be computed from the zones that were found.
    pub(super) fn has_enough(&self, segment: &FoundSegment) -> bool {
        self.spec.are_enough(bits((0..segment.zones.len()).filter(|&at| segment.zones[at].is_some())))
    }

    /// A zone that belongs to no segment.
    pub(super) fn reset_orphan(&mut self, member: MemberIndex, zone: u32) {
        let descriptor = &self.start_mut().zones[member.as_usize()][zone as usize];
        let state = descriptor.state;
        let entry = &mut self.members[member];
        if state == ZoneState::ReadOnly {
            entry.retire_unused_zone(zone, state);
            return;
        }
        let reset = entry.manage(zone, ZoneAction::Reset);
        self.send_start(member, StartStep::ResetOrphan { zone }, reset);
    }
}

/// Whether a header in a zone's second block belongs to the zone, and is not data that look like a
/// header.
fn is_second_header(header: &SegmentHeader, member: MemberIndex, zone: u32) -> bool {
    header.copies == HEADER_COPIES && header.zones.get(member.as_usize()) == Some(&Some(zone))
}

fn zones_that(owners: &BTreeMap<u32, Owner>, is_meant: impl Fn(Owner) -> bool) -> impl Iterator<Item = u32> {
    owners.iter().filter(move |&(_, &owner)| is_meant(owner)).map(|(&zone, _)| zone)
}
