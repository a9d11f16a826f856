//! Who the members are, and which of them can be believed.
//!
//! Of a member the newest whole superblock of both its metadata zones counts; a damaged one behind it is a newer one, unless the other
//! zone has that. Which members' superblocks agree is for `sides.rs` to say.

use zonda_zoned::{BlockBuffer, ZoneDescriptor, ZoneState};

use super::sides::{newest_side, split_brain};
use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::config::{Level, Scheme, VolumeConfig};
use crate::event::{Event, FailReason};
use crate::format::{HeaderError, MemberState, Superblock, VERSION};
use crate::limits::{METADATA_ZONES, READ_ATTEMPTS_MAX};
use crate::machine::members::{Member, MetadataLog, is_dead, is_mirrored};
use crate::machine::start::{StartStep, usable_blocks};
use crate::shape::Known;
use crate::{MemberIndex, VolumeError};

/// One log of superblocks, read from its end.
#[derive(Debug)]
pub(super) struct Probe {
    state: ZoneState,
    written: u32,
    capacity: u64,
    /// The block that is looked at next.
    next: Option<u32>,
    /// Times that it could not be read.
    failures: u8,
    /// The last whole superblock, and where it is.
    found: Option<(u32, Superblock)>,
    /// The block before that: of a superblock that was written twice to one zone it is the first copy.
    before: Before,
    /// A whole block of a version that is not known.
    other_version: Option<u16>,
}

/// What is known of the block before the last superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Unread,
    Reading,
    Whole,
    Damaged,
}

/// What was found of one member.
#[derive(Debug)]
struct Own {
    superblock: Superblock,
    log: MetadataLog,
    /// The member has written a superblock of this sequence, or of a later one.
    sequence_at_least: u64,
    /// Every zone that should have the superblock has it.
    is_complete: bool,
}

/// Blocks at the end of a log that may be damaged.
const BLOCKS_BACK_MAX: u32 = 16;

/// Blocks of a zone that may hold something.
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
                next: written.checked_sub(1),
                failures: 0,
                found: None,
                before: Before::Unread,
                other_version: None,
            }
        };
        self.found().probes =
            zones.iter().map(|zones| zones.iter().take(METADATA_ZONES as usize).map(probe).collect()).collect();
        self.probe_on();
    }

    /// Reads the next block of each log in which no superblock was found. Says whether there was any.
    pub(super) fn probe_on(&mut self) -> bool {
        let mut reads = Vec::new();
        for member in self.members.present() {
            for (zone, probe) in (0..).zip(&mut self.found().probes[member.as_usize()]) {
                match (&probe.found, probe.next.take()) {
                    (None, Some(offset)) => reads.push((member, zone, offset)),
                    (&Some((offset, _)), _) if offset > 0 && probe.before == Before::Unread => {
                        probe.before = Before::Reading;
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
            let has_more = offset > 0 && probe.written - offset < BLOCKS_BACK_MAX;
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
        if probe.before == Before::Reading {
            let is_whole = buffer.is_some_and(|buffer| {
                block_of(&buffer, 0, block_bytes).is_some_and(|block| Superblock::read(block).is_ok())
            });
            probe.before = if is_whole { Before::Whole } else { Before::Damaged };
            return;
        }
        let Some(buffer) = buffer else {
            probe.failures += 1;
            if probe.failures < READ_ATTEMPTS_MAX {
                probe.next = Some(offset);
            } else {
                probe.failures = 0;
            }
            return;
        };
        probe.failures = 0;
        match block_of(&buffer, 0, block_bytes).map_or(Err(HeaderError::Damaged), Superblock::read) {
            Ok(superblock) => probe.found = Some((offset, superblock)),
            Err(HeaderError::OtherVersion { found }) => probe.other_version = Some(found),
            Err(_) => {}
        }
    }

    /// Takes what the newest superblock says, and evicts the members that it does not know as they are.
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
                let what =
                    format!("it is member {} of the volume \"{}\": put it there", superblock.member, superblock.name);
                return Err(VolumeError::Member { member, what });
            }
        }
        let superblocks: Vec<Option<&Superblock>> =
            own.iter().map(|own| own.as_ref().map(|own| &own.superblock)).collect();
        let Some(best) = newest_side(&superblocks).cloned() else {
            return Err(VolumeError::NoVolume { member: present.first().copied().unwrap_or(MemberIndex(0)) });
        };
        if let Some(error) = split_brain(&superblocks) {
            return Err(error);
        }
        let options = self.found().options;
        if let Some(known) = options.newest_epoch.filter(|&known| best.epoch < known) {
            return Err(VolumeError::OlderThanKnown { found: best.epoch, known });
        }
        self.adopt(&best)?;
        let is_careless = self.spec.has(SeededBug::BelievedStaleMember);
        for (member, entry) in (0..).map(MemberIndex).zip(own) {
            let known = best.members[member.as_usize()];
            let is_believed = entry
                .as_ref()
                .is_some_and(|own| own.superblock.members.get(member.as_usize()).is_some_and(|own| own.id == known.id));
            let is_stale = known.state == MemberState::Failed;
            let is_there = present.contains(&member) && is_believed && (!is_stale || is_careless);
            let state = match known.state {
                _ if !is_there => MemberState::Failed,
                MemberState::Failed => MemberState::Active,
                known => known,
            };
            self.members[member].adopt(&known, state);
            if is_there {
                let own = entry.expect("what is believed was read");
                self.found().known_offline[member.as_usize()] = own.superblock.offline_zones;
                if own.sequence_at_least > best.sequence && !options.accepts_losses {
                    let what = "its newest superblock cannot be read, and no other member has it: bring back the members that \
                                are missing, or accept losses"
                        .to_owned();
                    return Err(VolumeError::Member { member, what });
                }
                let is_newest = (own.superblock.epoch, own.superblock.sequence) == (best.epoch, best.sequence);
                // The mount before was cut short, or a block is damaged: the next one may not be able to read the newest.
                self.found().is_behind |= !is_newest || !own.is_complete;
                if state == MemberState::Rebuilding && own.superblock.epoch < best.epoch {
                    // It came back when the mount or the program before was cut short.
                    self.members[member].set_behind();
                }
                self.members[member].resume_log(own.log);
            } else if known.state != MemberState::Failed {
                self.events.push_back(Event::MemberFailed { member, reason: FailReason::Absent });
            }
        }
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

    /// The volume becomes what a superblock says.
    fn adopt(&mut self, best: &Superblock) -> Result<(), VolumeError> {
        let what = |what: &str| VolumeError::Member { member: MemberIndex(best.member), what: what.to_owned() };
        let level =
            Level::of_code(best.level).ok_or_else(|| what("its superblock names a level that does not exist"))?;
        if best.members.len() != self.spec.members() {
            return Err(VolumeError::Config(format!(
                "the volume \"{}\" has {} members, {} were named",
                best.name,
                best.members.len(),
                self.spec.members()
            )));
        }
        if best.block_size_bytes as usize != self.spec.shape.block_bytes {
            return Err(what("its blocks have another size than when the volume was created"));
        }
        let config = VolumeConfig {
            name: best.name.clone(),
            scheme: Scheme { level, data: best.data, parity: best.parity },
            volume_blocks: Some(best.volume_blocks),
            small: best.small,
            large: best.large,
            tuning: self.spec.config.tuning.clone(),
        };
        // What is there stays as it is if the volume cannot be made.
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
        volume.spec.bug = self.spec.bug;
        volume.events = std::mem::take(&mut self.events);
        volume.requests.resume(&mut self.requests);
        volume.now = self.now;
        *self = volume;
        Ok(())
    }
}

impl Own {
    /// What the logs of a member say; `None` if there is no superblock in them.
    fn of(member: &Member, probes: &[Probe]) -> Option<Own> {
        let [first, second] = probes else { return None };
        let key = |probe: &Probe| probe.found.as_ref().map(|(_, found)| (found.epoch, found.sequence));
        let current = usize::from(key(second) > key(first));
        let superblock = probes[current].found.as_ref()?.1.clone();
        let sequence_at_least = first.sequence_at_least(second).max(second.sequence_at_least(first));
        let has_newest = |probe: &Probe| key(probe) == key(&probes[current]) && probe.is_undamaged();
        let is_mirrored = is_mirrored(member.geometry());
        let is_missed = |probe: &Probe| !has_newest(probe) && !is_dead(probe.state);
        let is_complete = has_newest(&probes[current]) && !(is_mirrored && probes.iter().any(is_missed));
        let zones = [first, second].map(|probe| (probe.written, is_dead(probe.state)));
        let is_mirror_open = is_mirrored && first.state.is_active() && second.state.is_active();
        let log = MetadataLog::found(member.geometry(), zones, current as u32, is_mirror_open);
        Some(Own { superblock, log, sequence_at_least, is_complete })
    }
}

impl Probe {
    /// Whether the last block is a superblock, and the one before it, too, if there is one.
    fn is_undamaged(&self) -> bool {
        self.before != Before::Damaged && self.found.as_ref().is_some_and(|(offset, _)| offset + 1 == self.written)
    }

    /// The zone holds, or held, a superblock of at least this sequence.
    fn sequence_at_least(&self, other: &Probe) -> u64 {
        match (&self.found, &other.found) {
            (Some((offset, found)), _) => {
                let damaged = self.written - 1 - offset;
                found.sequence + u64::from(damaged > u32::from(found.copies_behind))
            }
            // Zones are filled one after the other, or both are as full.
            (None, Some((_, found))) => {
                found.sequence + u64::from(self.written > 0 && u64::from(other.written) >= other.capacity)
            }
            (None, None) => 0,
        }
    }
}
