//! Determines the members, and which of them are up to date.
//!
//! Of each member the newest intact superblock of both its metadata zones counts. Damaged blocks
//! behind it may be a newer one, unless the other zone has that, or they are too few: a superblock
//! that counts is written twice. It is hidden if every member that may have recorded it is missing
//! or damaged, and if these are enough members to have continued with. Then the mount is refused.
//! [`Agreement`] compares the superblocks of the members.

use std::ops::Range;

use zonda_zoned::{BlockBuffer, Geometry, ZoneDescriptor, ZoneState};

use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::config::{Level, Scheme, VolumeConfig};
use crate::event::{Event, FailReason};
use crate::format::{EPOCH_MAX, HeaderError, MemberState, Superblock, VERSION};
use crate::limits::{METADATA_ZONES, READ_ATTEMPTS_MAX};
use crate::machine::members::{Member, MetadataLog, is_dead, is_mirrored};
use crate::machine::start::{StartStep, usable_blocks};
use crate::shape::{Known, bits};
use crate::{Agreement, MemberIndex, Membership, VolumeError};

/// A superblock log, read from its end.
#[derive(Debug)]
pub(super) struct Probe {
    state: ZoneState,
    /// Blocks that may be written.
    written: u32,
    capacity: u64,
    /// For a zone with an unknown write pointer, or one that was finished early: the range in which
    /// the first blank block is, or behind it.
    end: Option<Range<u32>>,
    /// The next block to read.
    next: Option<u32>,
    /// Failed attempts to read it.
    failures: u8,
    /// The last intact superblock, and its offset.
    found: Option<(u32, Superblock)>,
    /// The previous block: if a superblock was written twice to one zone, it is the first copy.
    before: PreviousBlock,
    /// An intact block of an unknown version.
    other_version: Option<u16>,
}

/// The state of the block before the last superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreviousBlock {
    Unread,
    Reading,
    Whole,
    Damaged,
}

/// The superblock found on a member.
#[derive(Debug)]
struct Own {
    superblock: Superblock,
    log: MetadataLog,
    /// The member may have recorded a superblock of this sequence, and is assumed to have where
    /// that is the worse case.
    sequence_at_least: u64,
    /// It may have recorded one of this sequence, and lost it with the zone that held it.
    sequence_at_most: u64,
    /// Every zone that should have the superblock has it.
    is_complete: bool,
}

/// Blocks at the end of a log that may be damaged.
const BLOCKS_BACK_MAX: u32 = 16;

/// Blocks of a zone that may be written.
pub(super) fn written_blocks(zone: &ZoneDescriptor) -> u32 {
    match zone.state {
        ZoneState::Empty | ZoneState::Offline => 0,
        _ => zone.write_pointer.map_or(zone.capacity_blocks.0, |pointer| pointer.0 - zone.start.0) as u32,
    }
}

impl Volume {
    pub(super) fn probe_superblocks(&mut self) {
        let zones = self.start_mut().zones.clone();
        let probe = |zone: &ZoneDescriptor| {
            let written = written_blocks(zone);
            Probe {
                state: zone.state,
                written,
                capacity: zone.capacity_blocks.0,
                end: (zone.state == ZoneState::ReadOnly && written > 0).then_some(0..written),
                next: if zone.state == ZoneState::ReadOnly { middle(&(0..written)) } else { written.checked_sub(1) },
                failures: 0,
                found: None,
                before: PreviousBlock::Unread,
                other_version: None,
            }
        };
        self.found().probes =
            zones.iter().map(|zones| zones.iter().take(METADATA_ZONES as usize).map(probe).collect()).collect();
        self.probe_on();
    }

    /// Reads the next block of each log without a superblock so far. Returns whether there was any.
    pub(super) fn probe_on(&mut self) -> bool {
        let mut reads = Vec::new();
        for member in self.members.present() {
            for (zone, probe) in (0..).zip(&mut self.found().probes[member.as_usize()]) {
                match (&probe.found, probe.next.take()) {
                    (None, Some(offset)) => reads.push((member, zone, offset)),
                    (&Some((offset, _)), _) if offset > 0 && probe.before == PreviousBlock::Unread => {
                        probe.before = PreviousBlock::Reading;
                        reads.push((member, zone, offset - 1));
                    }
                    _ => {}
                }
            }
        }
        for &(member, zone, offset) in &reads {
            self.read_at_start(member, StartStep::Superblock { zone, offset }, zone, offset, 1);
        }
        for (member, zone, offset) in reads.iter().copied() {
            let probe = &mut self.found().probes[member.as_usize()][zone as usize];
            let has_more = probe.end.is_none() && offset > 0 && probe.written - offset < BLOCKS_BACK_MAX;
            probe.next = has_more.then(|| offset - 1);
        }
        !reads.is_empty()
    }

    pub(super) fn on_superblock_read(
        &mut self,
        member: MemberIndex,
        (zone, offset): (u32, u32),
        buffer: Option<BlockBuffer>,
    ) {
        let block_bytes = self.spec.shape.block_bytes;
        let probe = &mut self.found().probes[member.as_usize()][zone as usize];
        if probe.before == PreviousBlock::Reading {
            let is_whole = buffer.is_some_and(|buffer| {
                block_of(&buffer, 0, block_bytes).is_some_and(|block| Superblock::read(block).is_ok())
            });
            probe.before = if is_whole { PreviousBlock::Whole } else { PreviousBlock::Damaged };
            return;
        }
        let Some(buffer) = buffer else {
            probe.failures += 1;
            if probe.failures < READ_ATTEMPTS_MAX {
                probe.next = Some(offset);
            } else {
                probe.failures = 0;
                probe.narrow_end(offset, false);
            }
            return;
        };
        probe.failures = 0;
        let read = block_of(&buffer, 0, block_bytes).map_or(Err(HeaderError::Damaged), Superblock::read);
        let is_blank = read == Err(HeaderError::Blank);
        if is_blank && probe.state == ZoneState::Full && offset + 1 == probe.written {
            // It was finished before it was full.
            probe.end = Some(0..probe.written);
        }
        if probe.end.is_some() {
            return probe.narrow_end(offset, is_blank);
        }
        match read {
            Ok(superblock) => probe.found = Some((offset, superblock)),
            Err(HeaderError::OtherVersion { found }) => probe.other_version = Some(found),
            Err(_) => {}
        }
    }

    /// Adopts the newest superblock, and evicts the members whose state contradicts it.
    pub(super) fn choose_superblock(&mut self) -> Result<(), VolumeError> {
        let mut own: Vec<Option<Own>> = Vec::new();
        for (member, probes) in (0..).map(MemberIndex).zip(std::mem::take(&mut self.found().probes)) {
            if let Some(found) = probes.iter().find_map(|probe| probe.other_version) {
                return Err(VolumeError::Version { member, found });
            }
            own.push(Own::of(&self.members[member], &probes));
        }
        let present: Vec<MemberIndex> = self.members.present().collect();
        let array = match self.found().options.expected {
            Some(array) => array,
            None => match own.iter().flatten().next() {
                Some(own) => own.superblock.array,
                None => {
                    return Err(VolumeError::NoVolume { member: present.first().copied().unwrap_or(MemberIndex(0)) });
                }
            },
        };
        for (member, entry) in (0..).map(MemberIndex).zip(&own) {
            let Some(Own { superblock, .. }) = entry else { continue };
            if superblock.array != array {
                return Err(VolumeError::Foreign { member, volume: superblock.name.clone() });
            }
            if superblock.member != member.0 {
                let what = format!(
                    "it is member {} of the volume \"{}\"; list it at that position",
                    superblock.member, superblock.name
                );
                return Err(VolumeError::Member { member, what });
            }
        }
        let options = self.found().options;
        let said: Vec<Membership> = own.iter().flatten().map(|own| Membership::of(&own.superblock)).collect();
        let all: Vec<&Membership> = said.iter().collect();
        let agreement = match Agreement::of(&all, options.accepts_side, options.newest_epoch) {
            Err(VolumeError::SplitBrain { .. }) if self.spec.has(SeededBug::UndetectedSplit) => Agreement::unseen(&all),
            agreement => agreement?,
        };
        let best = agreement.as_ref().and_then(|agreement| own.get(usize::from(agreement.newest.member))?.as_ref());
        let (Some(best), Some(agreement)) = (best.map(|own| own.superblock.clone()), &agreement) else {
            return Err(VolumeError::NoVolume { member: present.first().copied().unwrap_or(MemberIndex(0)) });
        };
        let rejected = &agreement.rejected;
        let is_chosen = !rejected.is_empty();
        // The epochs of a rejected side are known, too.
        let reached = said.iter().map(|one| one.epoch).max().filter(|_| is_chosen).unwrap_or(best.epoch);
        let known = options.newest_epoch.unwrap_or(0);
        let seen = options.seen_epoch.unwrap_or(0).max(known);
        if reached < seen && !options.accepts_older && !self.spec.has(SeededBug::OlderEpoch) {
            return Err(VolumeError::OlderThanKnown { found: best.epoch, known: seen });
        }
        let reached = reached.max(known);
        if reached >= EPOCH_MAX {
            return Err(VolumeError::Config(format!(
                "the known epoch {reached} of the volume is invalid; check the file that it was read from"
            )));
        }
        self.adopt(&best)?;
        if is_chosen || reached > best.epoch {
            // New superblocks are newer than all others.
            self.members.skip_epochs(reached);
            self.found().is_behind = true;
        }
        if let Some(member) = self.hides_newer(&own, &best).filter(|_| !options.accepts_losses) {
            let what =
                "its newest superblock cannot be read, and no other member has it; reconnect the missing members, or \
                        accept losses"
                    .to_owned();
            return Err(VolumeError::Member { member, what });
        }
        let is_careless = self.spec.has(SeededBug::BelievedStaleMember);
        let is_member = |member: MemberIndex, own: &Own| {
            let at = member.as_usize();
            own.superblock.members.get(at).is_some_and(|own| own.id == best.members[at].id) && present.contains(&member)
        };
        let is_older_copy = |member: MemberIndex, own: &Own| {
            let own = (own.superblock.epoch, own.sequence_at_most);
            agreement.is_older_copy(member, own, options.newest_epoch)
        };
        let is_current = |member: &MemberIndex| {
            let at = member.as_usize();
            let own = own[at].as_ref().filter(|_| best.members[at].state == MemberState::Active);
            own.is_some_and(|own| is_member(*member, own) && !is_older_copy(*member, own))
        };
        let current = bits(self.spec.member_indices().filter(is_current).map(MemberIndex::as_usize));
        let takes_older = options.accepts_older && !self.spec.are_enough(current);
        let mut reached_by_all = best.epoch;
        for (member, entry) in (0..).map(MemberIndex).zip(own) {
            let known = best.members[member.as_usize()];
            let is_older_copy = entry.as_ref().is_some_and(|own| is_older_copy(member, own)) && !takes_older;
            let is_stale = known.state == MemberState::Failed || rejected.contains(&member) || is_older_copy;
            let entry = entry.filter(|own| is_member(member, own) && (!is_stale || is_careless));
            let is_present = entry.is_some();
            let state = match known.state {
                _ if !is_present => MemberState::Failed,
                MemberState::Failed => MemberState::Active,
                known => known,
            };
            self.members[member].adopt(&known, state);
            if rejected.contains(&member) {
                self.members[member].reject();
            }
            if let Some(own) = entry {
                // A change of members was interrupted, or a block is damaged: the next mount may
                // not be able to read the newest superblock.
                self.found().is_behind |= !own.superblock.has_same_contents(&best) || !own.is_complete;
                self.found().known_offline[member.as_usize()] = own.superblock.offline_zones;
                self.found().known_read_only[member.as_usize()] = own.superblock.read_only_zones;
                if state == MemberState::Active {
                    reached_by_all = reached_by_all.min(own.superblock.epoch);
                }
                if state == MemberState::Rebuilding && own.superblock.epoch < best.epoch {
                    // It returned when the previous mount or program was interrupted.
                    self.members[member].set_behind();
                }
                self.members[member].resume_log(own.log);
            } else if known.state != MemberState::Failed {
                self.events.push_back(Event::MemberFailed { member, reason: FailReason::Missing });
            }
        }
        self.members.have_reached(reached_by_all);
        self.found().is_behind |= best.version < VERSION;
        if !self.members.are_enough(&self.spec) {
            return Err(VolumeError::TooManyMissing {
                tolerates: self.spec.code.tolerates(),
                missing: self.members.missing(),
                rebuilding: self.members.rebuilding(),
            });
        }
        Ok(())
    }

    /// A member that may have recorded a newer superblock than the newest one found, if that may
    /// have counted: it did once all members that it named as present had it, and these were
    /// enough. So a superblock that some member certainly lacks, which the others need, never
    /// counted.
    fn hides_newer(&self, own: &[Option<Own>], best: &Superblock) -> Option<MemberIndex> {
        let may_hide = |member: MemberIndex| {
            let own = own[member.as_usize()].as_ref();
            // An intact superblock other than the best one never counted.
            own.is_some_and(|own| own.sequence_at_least > best.sequence.max(own.superblock.sequence))
        };
        let may_know = |at: &usize| {
            let member = MemberIndex(*at as u8);
            let is_known = best.members[*at].state != MemberState::Failed;
            is_known && (own[*at].is_none() || !self.members[member].is_present() || may_hide(member))
        };
        let hiding = self.spec.member_indices().find(|&member| may_hide(member))?;
        self.spec.are_enough(bits((0..own.len()).filter(may_know))).then_some(hiding)
    }

    /// Configures the volume according to a superblock.
    fn adopt(&mut self, best: &Superblock) -> Result<(), VolumeError> {
        let what = |what: &str| VolumeError::Member { member: MemberIndex(best.member), what: what.to_owned() };
        let level = Level::of_code(best.level).ok_or_else(|| what("its superblock has an unknown level"))?;
        if best.members.len() != self.spec.members() {
            return Err(VolumeError::Config(format!(
                "the volume \"{}\" has {} members, not {}",
                best.name,
                best.members.len(),
                self.spec.members()
            )));
        }
        if best.block_size_bytes as usize != self.spec.shape.block_bytes {
            return Err(what("its block size differs from that when the volume was created"));
        }
        let config = VolumeConfig {
            name: best.name.clone(),
            scheme: Scheme { level, data: best.data, parity: best.parity },
            volume_blocks: Some(best.volume_blocks),
            small: best.small,
            large: best.large,
            tuning: self.spec.config.tuning.clone(),
        };
        // Existing contents stay as they are if the volume cannot be created.
        let members = self.members.iter().map(Member::again).collect();
        let mut known = Known { is_in_band: best.is_in_band, has_single_headers: best.has_single_headers };
        let mut volume = Volume::new(config.clone(), best.array, members, Some(known))?;
        let geometries: Vec<_> = self.members.iter().map(|member| member.geometry().clone()).collect();
        if best.version == 1 && best.volume_blocks > usable_blocks(&config, &volume.spec.shape, &geometries) {
            // The second header of each zone takes blocks that it needs.
            known.has_single_headers = true;
            let members = self.members.iter().map(Member::again).collect();
            volume = Volume::new(config, best.array, members, Some(known))?;
        }
        volume.members.resume(best, &mut self.members);
        volume.members.set_accepted_segment(best.accepted_segment);
        std::mem::swap(&mut volume.phase, &mut self.phase);
        std::mem::swap(&mut volume.spec.engine, &mut self.spec.engine);
        volume.spec.seeded = self.spec.seeded;
        volume.events = std::mem::take(&mut self.events);
        volume.requests.resume(&mut self.requests);
        volume.now = self.now;
        *self = volume;
        Ok(())
    }
}

impl Own {
    /// The result of the logs of a member; `None` if there is no superblock in them.
    fn of(member: &Member, probes: &[Probe]) -> Option<Own> {
        let [first, second] = probes else { return None };
        let key = |probe: &Probe| probe.found.as_ref().map(|(_, found)| (found.epoch, found.sequence));
        let current = usize::from(key(second) > key(first));
        let superblock = probes[current].found.as_ref()?.1.clone();
        let geometry = member.geometry();
        let at_least = |probe: &Probe, other: &Probe| probe.sequence_at_least(other, geometry);
        let sequence_at_least = at_least(first, second).max(at_least(second, first));
        let is_zone_lost =
            |probe: &Probe| probe.found.is_none() && (probe.written > 0 || probe.state == ZoneState::Offline);
        let loses_newest = !is_mirrored(geometry) && probes.iter().any(is_zone_lost);
        let sequence_at_most = if loses_newest { u64::MAX } else { sequence_at_least };
        let has_newest = |probe: &Probe| key(probe) == key(&probes[current]) && probe.is_undamaged();
        let is_mirrored = is_mirrored(member.geometry());
        let is_missed = |probe: &Probe| !has_newest(probe) && !is_dead(probe.state);
        let is_complete = has_newest(&probes[current]) && !(is_mirrored && probes.iter().any(is_missed));
        let zones = [first, second].map(|probe| (probe.next_block(), is_dead(probe.state)));
        let active = [first, second].map(|probe| probe.state.is_active());
        let log = MetadataLog::found(member.geometry(), zones, current as u32, active);
        Some(Own { superblock, log, sequence_at_least, sequence_at_most, is_complete })
    }
}

impl Probe {
    /// Whether the last block is a superblock with all its copies, and the previous one, too, if
    /// there is one.
    fn is_undamaged(&self) -> bool {
        let is_last = |(offset, found): &(u32, Superblock)| offset + 1 == self.written && found.copies_behind == 0;
        self.before != PreviousBlock::Damaged && self.found.as_ref().is_some_and(is_last)
    }

    /// A superblock of this sequence, at most, was recorded in the zone, as far as it can be
    /// determined: the one behind the last intact one, if as many blocks behind that are damaged as
    /// a superblock has that counts. An interrupted write has fewer.
    fn sequence_at_least(&self, other: &Probe, geometry: &Geometry) -> u64 {
        match (&self.found, &other.found) {
            (Some((offset, found)), _) => {
                let newer = self.newer_blocks();
                let space = (self.capacity - u64::from(offset + 1)).saturating_sub(u64::from(found.copies_behind));
                let copies = if found.version == 1 { 1 } else { copies_in(space, geometry) };
                // A zone has one copy if the other zone has the superblock, too.
                let is_mirrored = is_mirrored(geometry) && other.newer_blocks() > 0;
                found.sequence + u64::from(newer > 0 && (is_mirrored || u64::from(newer) >= copies))
            }
            // Zones are filled one after the other, or both are equally full.
            (None, Some((_, found))) => {
                let copies = copies_in(self.capacity, geometry);
                let is_next = u64::from(other.written) >= other.capacity && u64::from(self.written) >= copies;
                found.sequence + u64::from(is_next)
            }
            (None, None) => 0,
        }
    }

    /// The offset of the next superblock.
    fn next_block(&self) -> u32 {
        if self.state == ZoneState::Full { self.capacity as u32 } else { self.written }
    }

    /// Damaged blocks behind the last intact superblock and its copies.
    fn newer_blocks(&self) -> u32 {
        let Some((offset, found)) = &self.found else { return self.written };
        (self.written - 1 - offset).saturating_sub(u32::from(found.copies_behind))
    }

    /// Narrows the end of a zone with an unknown write pointer after a block was read.
    fn narrow_end(&mut self, offset: u32, is_blank: bool) {
        let Some(end) = &mut self.end else { return };
        if is_blank {
            end.end = offset;
        } else {
            end.start = offset + 1;
        }
        self.next = middle(end);
        if end.start == end.end {
            self.written = end.start;
            self.next = self.written.checked_sub(1);
            self.end = None;
        }
    }
}

fn middle(blocks: &Range<u32>) -> Option<u32> {
    (blocks.start < blocks.end).then(|| blocks.start.midpoint(blocks.end))
}

/// Minimum of copies of a superblock that counts in a zone that had this much space, if the other
/// zone does not have it.
fn copies_in(space: u64, geometry: &Geometry) -> u64 {
    space.min(2).min(geometry.max_transfer_blocks.0)
}
