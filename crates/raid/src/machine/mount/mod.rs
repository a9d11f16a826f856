//! Mounting: reconstructs a volume from its members.
//!
//! ```text
//! superblocks.rs   the states of the members, and which of them are up to date
//! headers.rs       assignment of zones to segments
//! identify.rs      zones whose headers cannot be read
//! unidentified.rs  zones that are offline or unidentified, and segments that lack zones
//! zones.rs         metadata of each block of a segment, from footers or from the blocks
//! salvage.rs       slots with unreadable blocks
//! assemble.rs      stripes
//! versions.rs      the newest version of each block, and which of its copies counts
//! losses.rs        acknowledged blocks that are lost
//! log.rs           a member that has no active zone left for its superblocks
//! leaving.rs       segments that were about to be reset; members that are older copies
//! unclaimed.rs     zones without a known segment, and whether their contents are needed
//! torn.rs          blocks of incomplete stripes are rewritten
//! reclaim.rs       free segments are reclaimed before the volume is ready
//! ```
//!
//! A stripe that lacks a chunk on a member that took part was never acknowledged. If it can be
//! decoded nevertheless, its blocks count, and are rewritten before the volume is ready; otherwise
//! they do not count. Either way later mounts decide in the same way, since members only ever lose
//! chunks.
//!
//! An interrupted mount, however often, leaves the next one no less free space than it had: see
//! `reclaim.rs`.

mod assemble;
mod headers;
mod identify;
mod invariants;
mod leaving;
mod log;
mod losses;
mod reclaim;
mod salvage;
mod superblocks;
mod torn;
mod unclaimed;
mod unidentified;
mod versions;
mod zones;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_zoned::{BlockBuffer, Geometry, Outcome, Payload, Status};

use super::members::Member;
use super::start::{Kind, Start, StartStep, Step};
use super::{Phase, Volume};
use crate::bug::SeededBug;
use crate::config::{Level, MountOptions, Scheme, StreamShape, Tuning, VolumeConfig};
use crate::limits::MOUNT_ATTEMPTS_MAX;
use crate::shape::Known;
use crate::tables::{Physical, SegmentIndex, SegmentState};
use crate::{MemberIndex, VolumeError};

use headers::{FoundSegment, Owner};
use losses::Losses;
use reclaim::ReclaimEstimate;
use superblocks::Probe;
use unclaimed::Unclaimed;
use versions::CopyState;
use zones::Reading;

/// The state of a mount.
#[derive(Debug, Default)]
pub(super) struct Mount {
    options: MountOptions,
    /// Not all active members have recorded the newest superblock.
    is_behind: bool,
    /// The number of offline zones that each member's superblock records.
    known_offline: Vec<Option<u32>>,
    /// Zones of each member that are read only and not needed, according to its superblock.
    known_read_only: Vec<Vec<u32>>,
    /// For each member, its two logs.
    probes: Vec<Vec<Probe>>,
    /// Zones whose headers have still to be read, for each member.
    unread: Vec<VecDeque<u32>>,
    /// Blocks of zones with unreadable headers have been requested.
    is_identified: bool,
    /// Unreadable headers, and the number of attempts.
    unreadable: BTreeMap<(MemberIndex, u32), u8>,
    /// Damaged header blocks of each zone.
    damaged_headers: BTreeMap<(MemberIndex, u32), BTreeSet<u32>>,
    /// Zones that are blank as far as they were read, headers first.
    blank_headers: BTreeSet<(MemberIndex, u32)>,
    /// The owner of each zone by its own headers, for each member.
    owners: Vec<BTreeMap<u32, Owner>>,
    segments: BTreeMap<u64, FoundSegment>,
    /// Segments that are not needed according to a member, and that too few zones are left of to
    /// read them.
    leaving: BTreeMap<u64, FoundSegment>,
    /// Zones that belong to no needed segment.
    orphans: Vec<(MemberIndex, u32)>,
    /// Members that are older copies, as bits.
    older_copies: u32,
    /// Zones without a known segment.
    unclaimed: Unclaimed,
    current: Option<Reading>,
    /// The newest timestamp of each logical block.
    stamps: Vec<u64>,
    /// Tombstones that are still to be read, by the state of their copies.
    tombstones: BTreeMap<CopyState, Vec<Physical>>,
    /// The state of the copies that are being read.
    copy_state: Option<CopyState>,
    /// Copies that are lost according to a marker: the logical block, and the segment of the
    /// marker.
    doubted: BTreeMap<Physical, (u64, SegmentIndex)>,
    /// Those of them that are being read.
    doubting: BTreeMap<Physical, (u64, SegmentIndex)>,
    /// Blocks of incomplete stripes, and tombstones in such.
    unsound: BTreeSet<Physical>,
    /// Those of them whose stripes may never have been complete.
    torn: BTreeSet<Physical>,
    /// Identified blocks that cannot be read: reads of them fail.
    lost: BTreeSet<Physical>,
    /// Unidentified losses.
    losses: Losses,
    /// Members with a zone that was finished so that a superblock can be written, as bits.
    finished_for_log: u32,
    /// For each segment with torn blocks the segments with the versions that these replace; they
    /// stay until the blocks are rewritten.
    shadowed: BTreeMap<SegmentIndex, BTreeSet<SegmentIndex>>,
    /// Torn blocks that are being moved.
    moving: u64,
    /// Torn blocks of tombstones whose needed contents are being moved.
    moved_tombstones: Vec<Physical>,
    /// Whether the torn blocks of a segment are being read.
    is_reading_torn: bool,
    /// Whether moved blocks have left the members' caches.
    flush: FlushAtMount,
    /// A block that was to be moved could not be read.
    has_failed: bool,
    /// How often the mount was restarted.
    attempts: u32,
    /// Estimates whether emptying segments gains any.
    estimate: ReclaimEstimate,
}

/// Blocks that a mount has written are durable before hosts see them: a version that was read once
/// stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlushAtMount {
    #[default]
    Wanted,
    InFlight,
    Done,
}

impl Volume {
    /// Mounts the volume on these members, in their order; `None` for missing ones.
    /// [`Event::Ready`](crate::Event::Ready) reports that it accepts commands,
    /// [`Event::Failed`](crate::Event::Failed) why it cannot be mounted.
    ///
    /// # Errors
    /// If these members cannot form a volume at all, and what to change.
    pub fn mount(
        geometries: Vec<Option<Geometry>>,
        tuning: Tuning,
        options: MountOptions,
    ) -> Result<Volume, VolumeError> {
        if !tuning.has_contents {
            return Err(VolumeError::Config(
                "a volume without contents cannot be assembled; create a volume".to_owned(),
            ));
        }
        let members = geometries.into_iter().map(|geometry| Some(Member::new([0; 16], geometry?))).collect();
        Volume::begin_mount(members, tuning, options, 0)
    }

    fn begin_mount(
        members: Vec<Option<Member>>,
        tuning: Tuning,
        options: MountOptions,
        attempts: u32,
    ) -> Result<Volume, VolumeError> {
        // Until a superblock is read, nothing else is known.
        let count = u8::try_from(members.len()).unwrap_or(u8::MAX);
        let scheme = Scheme { level: Level::Raid0, data: count, parity: 0 };
        let mut config = VolumeConfig::new("", scheme);
        config.small = StreamShape { unit_blocks: 1, group_stripes: 1 };
        config.large = config.small;
        config.volume_blocks = Some(1);
        config.tuning = tuning;
        let is_absent: Vec<bool> = members.iter().map(Option::is_none).collect();
        let mut volume =
            Volume::new(config, [0; 16], members, Some(Known { is_in_band: true, has_single_headers: true }))?;
        for (member, is_absent) in (0..).map(MemberIndex).zip(is_absent) {
            if is_absent {
                volume.members[member].set_absent();
            }
        }
        let members = volume.spec.members();
        let mount = Mount {
            options,
            attempts,
            owners: vec![BTreeMap::new(); members],
            known_offline: vec![None; members],
            known_read_only: vec![Vec::new(); members],
            ..Mount::default()
        };
        volume.phase = Phase::Starting(Box::new(Start::new(Kind::Mount(Box::new(mount)), members)));
        volume.flush_at_start();
        volume.report_zones();
        Ok(volume)
    }

    /// The mount in progress.
    fn found(&mut self) -> &mut Mount {
        match &mut self.start_mut().kind {
            Kind::Mount(mount) => mount,
            Kind::Create { .. } => unreachable!("a mount is in progress"),
        }
    }

    /// All reads of the step have completed.
    pub(super) fn mount_step(&mut self, step: Step) {
        match step {
            Step::ReportZones => {
                self.probe_superblocks();
                self.enter(Step::ReadSuperblocks);
            }
            Step::ReadSuperblocks => {
                if self.probe_on() {
                    return;
                }
                if let Err(error) = self.choose_superblock() {
                    return self.fail(error);
                }
                self.list_headers();
                self.enter(Step::ReadHeaders);
            }
            Step::ReadHeaders => {
                self.read_headers();
                if self.start_mut().pending == 0 {
                    if self.identify_zones() {
                        return;
                    }
                    self.match_zones();
                    if self.is_lost() {
                        return;
                    }
                    let blocks = self.map.blocks() as usize;
                    self.found().stamps = vec![0; blocks];
                    self.enter(Step::ReadSegments);
                }
            }
            Step::ReadSegments => {
                if self.found().current.is_some() {
                    self.assemble();
                }
                if !self.read_next_segment() {
                    self.enter(Step::ReadTombstones);
                }
            }
            Step::ReadTombstones => {
                let next = self.found().tombstones.pop_first();
                self.found().copy_state = next.as_ref().map(|(copy_state, _)| *copy_state);
                let Some((_, places)) = next else {
                    if self.read_doubted() {
                        return;
                    }
                    self.enter(Step::ReadLeaving);
                    return;
                };
                for place in places {
                    self.start_mut().pending += 1;
                    self.fetch(place, 1, super::reads::Purpose::Mount);
                }
            }
            Step::ReadLeaving => {
                if self.found().current.is_some() {
                    self.verify_leaving();
                    return;
                }
                if !self.read_next_leaving() && !self.read_unclaimed() {
                    if let Some(error) = self.too_many_older().or_else(|| self.too_few_show_all()) {
                        return self.fail(error);
                    }
                    let accepts = match self.accept_losses() {
                        Ok(accepts) => accepts,
                        Err(error) => return self.fail(error),
                    };
                    let is_behind = self.found().is_behind;
                    if is_behind || accepts || self.members.iter().any(Member::has_unrecorded_state) {
                        self.members.begin_epoch(&self.spec);
                    } else if !self.spec.has(SeededBug::UncountedMount) {
                        self.members.begin_epoch_of_mount(&self.spec);
                    }
                    self.reset_orphans();
                    self.enter(Step::WriteSuperblocks);
                }
            }
            Step::WriteSuperblocks => {
                if self.finish_for_logs() {
                    return;
                }
                self.pump_superblocks();
                if self.is_lost() {
                    return;
                }
                if self.members.is_epoch_durable() {
                    self.enter(Step::CloseSegments);
                    self.reset_aside_of_none();
                    self.forget_superseded();
                    self.segments.close_found(&self.spec, &mut self.members);
                }
            }
            Step::CloseSegments => {
                self.pump_superblocks();
                if self.is_lost() {
                    return;
                }
                self.segments.reset_empty(&self.spec, &mut self.members);
                let is_moving = |state| !matches!(state, SegmentState::Sealed);
                if self.members.is_epoch_durable() && !self.segments.iter().any(|(_, segment)| is_moving(segment.state))
                {
                    self.members.complete_logs();
                    self.enter(Step::Reclaim);
                }
            }
            Step::Reclaim => self.reclaim(),
            Step::MoveTorn => self.move_torn(),
            Step::Wipe => unreachable!("not a step of a mount"),
        }
    }

    fn enter(&mut self, step: Step) {
        let start = self.start_mut();
        let frees_space = (start.step, step) == (Step::MoveTorn, Step::Reclaim);
        assert!(step > start.step || frees_space, "a mount decides what {step:?} decides once");
        start.step = step;
        let found = self.found();
        let has_read = found.current.is_none() && found.tombstones.is_empty() && found.doubting.is_empty();
        assert!(has_read || step < Step::WriteSuperblocks, "a mount has read everything before it changes the media");
    }

    pub(super) fn on_mount_read(&mut self, member: MemberIndex, step: StartStep, status: Status, outcome: Outcome) {
        let buffer = match outcome {
            Outcome::Data(Payload::Bytes(buffer)) if status.is_success() => Some(*buffer),
            _ => None,
        };
        match step {
            StartStep::Superblock { zone, offset } => self.on_superblock_read(member, (zone, offset), buffer),
            StartStep::Header { zone, first, blocks } => {
                self.on_header_read(member, zone, (first, blocks), buffer.as_ref());
            }
            StartStep::SecondHeader { zone } => self.on_second_header_read(member, zone, buffer.as_ref()),
            StartStep::Identify { zone, offset } => self.on_identify_read(member, (zone, offset), buffer.as_ref()),
            StartStep::Blocks { offset } => self.on_blocks_read(member, offset, buffer),
            StartStep::Leaving { shown_without } => self.on_leaving_read(shown_without, buffer.as_ref()),
            StartStep::Unclaimed { offset, blocks } => self.on_unclaimed_read((offset, blocks), buffer.as_ref()),
            StartStep::Report
            | StartStep::Flush
            | StartStep::Wipe
            | StartStep::ResetOrphan { .. }
            | StartStep::FinishForLog { .. } => unreachable!("handled before"),
        }
    }

    /// Restarts the mount, since the media have changed. Nothing is in flight, and nothing was
    /// reset that it needs. `why` is the error, with its remedy, if that happens too often.
    fn mount_again(&mut self, why: &str) {
        let attempts = self.found().attempts + 1;
        let members: Vec<Option<Member>> = self.members.iter().map(Member::again).collect();
        let options = MountOptions { expected: Some(self.spec.array), ..self.found().options };
        let begun = if attempts < MOUNT_ATTEMPTS_MAX {
            Volume::begin_mount(members, self.spec.config.tuning.clone(), options, attempts)
        } else {
            Err(VolumeError::Config(format!("{why} (after {attempts} attempts)")))
        };
        match begun {
            Ok(mut volume) => {
                std::mem::swap(&mut volume.spec.engine, &mut self.spec.engine);
                volume.spec.seeded = self.spec.seeded;
                volume.events = std::mem::take(&mut self.events);
                volume.damage = std::mem::take(&mut self.damage);
                volume.requests.resume(&mut self.requests);
                volume.now = self.now;
                *self = volume;
            }
            Err(error) => self.fail(error),
        }
    }
}

/// A block of a buffer.
fn block_of(buffer: &BlockBuffer, at: usize, block_bytes: usize) -> Option<&[u8]> {
    buffer.data.get(at * block_bytes..(at + 1) * block_bytes)
}
