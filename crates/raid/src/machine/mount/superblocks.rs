//! Who the members are, and which of them can be believed.

use zonda_zoned::{BlockBuffer, ZoneDescriptor, ZoneState};

use super::{Volume, block_of};
use crate::bug::SeededBug;
use crate::config::{Level, Scheme, VolumeConfig};
use crate::event::{Event, FailReason};
use crate::format::{HeaderError, MemberState, Superblock};
use crate::limits::METADATA_ZONES;
use crate::machine::members::{Member, MetadataLog};
use crate::machine::start::StartStep;
use crate::{MemberIndex, VolumeError};

/// One log of superblocks, read from its end.
#[derive(Debug)]
pub(super) struct Probe {
    written: u32,
    /// The block that is looked at next.
    next: Option<u32>,
    found: Option<Superblock>,
    /// A block that is ours and cannot be read.
    other_version: Option<u16>,
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
            Probe { written, next: written.checked_sub(1), found: None, other_version: None }
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
                if let (None, Some(offset)) = (&probe.found, probe.next.take()) {
                    reads.push((member, zone, offset));
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

    pub(super) fn on_superblock_read(&mut self, member: MemberIndex, zone: u32, buffer: Option<BlockBuffer>) {
        let block_bytes = self.spec.shape.block_bytes;
        let probe = &mut self.found().probes[member.as_usize()][zone as usize];
        let Some(buffer) = buffer else { return };
        match block_of(&buffer, 0, block_bytes).map_or(Err(HeaderError::Damaged), Superblock::read) {
            Ok(superblock) => probe.found = Some(superblock),
            Err(HeaderError::OtherVersion { found }) => probe.other_version = Some(found),
            Err(_) => {}
        }
    }

    /// Takes what the newest superblock says, and evicts the members that it does not know as they are.
    pub(super) fn choose_superblock(&mut self) -> Result<(), VolumeError> {
        let mut own: Vec<Option<(Superblock, MetadataLog)>> = Vec::new();
        for (member, probes) in (0..).map(MemberIndex).zip(std::mem::take(&mut self.found().probes)) {
            let version = probes.iter().find_map(|probe| probe.other_version);
            let found = (0..).zip(probes).filter_map(|(zone, probe)| {
                let log = MetadataLog::new(zone, probe.written);
                Some((probe.found?, log))
            });
            let newest = found.max_by_key(|(superblock, _)| (superblock.epoch, superblock.sequence));
            if let (None, Some(found)) = (&newest, version) {
                return Err(VolumeError::Version { member, found });
            }
            own.push(newest);
        }
        let present: Vec<MemberIndex> = self.members.present().collect();
        let array = match self.found().options.expected {
            Some(array) => array,
            None => match own.iter().flatten().next() {
                Some((superblock, _)) => superblock.array,
                None => {
                    return Err(VolumeError::NoVolume { member: present.first().copied().unwrap_or(MemberIndex(0)) });
                }
            },
        };
        for (member, entry) in (0..).map(MemberIndex).zip(&own) {
            let Some((superblock, _)) = entry else { continue };
            if superblock.array != array {
                return Err(VolumeError::Foreign { member, volume: superblock.name.clone() });
            }
            if superblock.member != member.0 {
                let what =
                    format!("it is member {} of the volume \"{}\": put it there", superblock.member, superblock.name);
                return Err(VolumeError::Member { member, what });
            }
        }
        let newest =
            own.iter().flatten().map(|(superblock, _)| superblock).max_by_key(|best| (best.epoch, best.sequence));
        let Some(best) = newest.cloned() else {
            return Err(VolumeError::NoVolume { member: present.first().copied().unwrap_or(MemberIndex(0)) });
        };
        self.adopt(&best)?;
        let is_careless = self.spec.has(SeededBug::BelievedStaleMember);
        for (member, entry) in (0..).map(MemberIndex).zip(own) {
            let known = best.members[member.as_usize()];
            let is_believed = entry.as_ref().is_some_and(|(superblock, _)| {
                superblock.members.get(member.as_usize()).is_some_and(|own| own.id == known.id)
            });
            let is_stale = known.state == MemberState::Failed;
            let is_there = present.contains(&member) && is_believed && (!is_stale || is_careless);
            let state = match known.state {
                _ if !is_there => MemberState::Failed,
                MemberState::Failed => MemberState::Active,
                known => known,
            };
            self.members[member].adopt(&known, state);
            if is_there {
                let (own, log) = entry.expect("what is believed was read");
                // The mount before was cut short: the next one may not be able to read the newest.
                self.found().is_behind |= own.epoch < best.epoch;
                self.members[member].resume_log(log);
            } else if known.state != MemberState::Failed {
                self.events.push_back(Event::MemberFailed { member, reason: FailReason::Absent });
            }
        }
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
        let mut volume = Volume::new(config, best.array, members, Some(best.is_in_band))?;
        volume.members.resume(best.epoch, best.sequence, &mut self.members);
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
