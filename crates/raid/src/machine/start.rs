//! Creation of volumes; common parts of creating and mounting.

use std::collections::VecDeque;

use zonda_zoned::{
    Blocks, Geometry, Instant, Operation, Outcome, Status, ZoneAction, ZoneDescriptor, ZoneState, ZoneTarget,
};

use super::map::Map;
use super::members::{Member, Members, Work, is_dead, is_mirrored};
use super::mount::Mount;
use super::pieces::Pieces;
use super::reads::Reads;
use super::requests::Requests;
use super::segments::Segments;
use super::space::Space;
use super::spec::Spec;
use super::stripes::Stripes;
use super::{Counters, Phase, Volume};
use crate::config::VolumeConfig;
use crate::event::{Event, FailReason};
use crate::format::ArrayId;
use crate::limits::{METADATA_ZONES, REPORT_ZONES_MAX, REQUEST_BLOCKS_MAX};
use crate::shape::{Known, Shape, too_few_zones, usable_segments};
use crate::tables::SegmentIndex;
use crate::{MemberIndex, VolumeError};

/// The state of a volume that is starting.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) kind: Kind,
    pub(super) step: Step,
    /// Commands in flight.
    pub(super) pending: u32,
    /// The zone reports of the members.
    pub(super) zones: Vec<Vec<ZoneDescriptor>>,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// Whether members may have contents, which are then erased.
    Create {
        may_wipe: bool,
    },
    Mount(Box<Mount>),
}

/// The steps of a start, in their order; errors name the step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    ReportZones,
    Wipe,
    ReadSuperblocks,
    ReadHeaders,
    ReadSegments,
    ReadTombstones,
    ReadLeaving,
    WriteSuperblocks,
    CloseSegments,
    Reclaim,
    MoveTorn,
}

/// The purpose of a command of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartStep {
    Report,
    /// Blocks that are read later are to be on the medium.
    Flush,
    Wipe,
    Superblock {
        zone: u32,
        offset: u32,
    },
    /// Blocks at the start of a zone of a segment.
    Header {
        zone: u32,
        first: u32,
        blocks: u32,
    },
    /// The second header of a zone, read alone, if both could not be read together and the first
    /// one can.
    SecondHeader {
        zone: u32,
    },
    /// A block of a zone with unreadable headers.
    Identify {
        zone: u32,
        offset: u32,
    },
    /// Blocks of the zone of the current segment.
    Blocks {
        offset: u32,
    },
    /// A block of tombstones of a segment that was about to be reset; the members that show that
    /// they have no zone of it, as bits.
    Leaving {
        shown_without: u32,
    },
    /// Blocks of a zone without a known segment.
    Unclaimed {
        offset: u32,
        blocks: u32,
    },
    ResetOrphan {
        zone: u32,
    },
    /// The zone of a segment is finished, so that one of superblocks may be active.
    FinishForLog {
        segment: SegmentIndex,
    },
}

impl VolumeConfig {
    /// The geometry of a new volume on these members, and how many of them it tolerates to lose.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn preview(&self, members: &[Geometry]) -> Result<(Geometry, usize), VolumeError> {
        let spec = Spec::new(self.clone(), [0; 16], members, None)?;
        Ok((spec.geometry, spec.code.tolerates()))
    }
}

impl Volume {
    /// Creates a volume on these members. Its first commands reset them; [`Event::Ready`] reports
    /// that it accepts commands.
    ///
    /// `may_wipe` allows to erase the contents of the members; without it, members that are not
    /// empty are refused. `ids` are the unique ids of the members.
    ///
    /// # Errors
    /// If configuration and members do not suit each other, with a remedy.
    pub fn create(
        config: VolumeConfig,
        geometries: Vec<Geometry>,
        array: ArrayId,
        ids: &[[u8; 16]],
        may_wipe: bool,
    ) -> Result<Volume, VolumeError> {
        Volume::create_as(config, geometries, array, ids, may_wipe, None)
    }

    /// Creates a volume with the layout of version 1; superblocks are of version 2 nevertheless.
    #[cfg(test)]
    pub(crate) fn create_with_single_headers(
        config: VolumeConfig,
        geometries: Vec<Geometry>,
        array: ArrayId,
        ids: &[[u8; 16]],
    ) -> Result<Volume, VolumeError> {
        let is_in_band =
            geometries.iter().any(|geometry| usize::from(geometry.metadata_bytes) < crate::format::OOB_BYTES);
        let known = Known { is_in_band, has_single_headers: true };
        Volume::create_as(config, geometries, array, ids, false, Some(known))
    }

    fn create_as(
        config: VolumeConfig,
        geometries: Vec<Geometry>,
        array: ArrayId,
        ids: &[[u8; 16]],
        may_wipe: bool,
        known: Option<Known>,
    ) -> Result<Volume, VolumeError> {
        let members = geometries.into_iter().zip(ids).map(|(geometry, &id)| Some(Member::new(id, geometry))).collect();
        let mut volume = Volume::new(config, array, members, known)?;
        volume.phase = Phase::Starting(Box::new(Start::new(Kind::Create { may_wipe }, volume.spec.members())));
        volume.report_zones();
        Ok(volume)
    }

    pub(super) fn new(
        config: VolumeConfig,
        array: ArrayId,
        members: Vec<Option<Member>>,
        known: Option<Known>,
    ) -> Result<Volume, VolumeError> {
        // Missing members are assumed to be like the present ones.
        let some = members.iter().flatten().next().map(|member| member.geometry().clone());
        let Some(some) = some else { return Err(VolumeError::Config("a volume needs members".to_owned())) };
        let members: Vec<Member> =
            members.into_iter().map(|member| member.unwrap_or_else(|| Member::new([0; 16], some.clone()))).collect();
        let geometries: Vec<Geometry> = members.iter().map(|member| member.geometry().clone()).collect();
        let spec = Spec::new(config, array, &geometries, known)?;
        let map = Map::new(&spec);
        Ok(Volume {
            spec,
            phase: Phase::Failed(VolumeError::Config("the volume was not started".to_owned())),
            members: Members::new(members),
            map,
            segments: Segments::new(),
            stripes: Stripes::new(),
            requests: Requests::default(),
            reads: Reads::default(),
            collector: super::Collector::default(),
            pieces: Pieces::new(),
            rebuild: super::rebuild::Rebuild::default(),
            scrub: None,
            losses: super::losses::Losses::default(),
            lost_places: super::lost_places::LostPlaces::default(),
            damage: super::damage::Damage::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            now: Instant::ZERO,
            has_progress: false,
        })
    }

    /// Whether the volume knows how many members it tolerates to lose.
    pub(super) fn knows_its_scheme(&self) -> bool {
        match &self.phase {
            Phase::Starting(start) => matches!(start.kind, Kind::Create { .. }) || start.step > Step::ReadSuperblocks,
            _ => true,
        }
    }

    /// Whether a change of members is recorded at once: a mount records it when it has read
    /// everything.
    pub(super) fn writes_epochs(&self) -> bool {
        match &self.phase {
            Phase::Starting(start) => start.step >= Step::WriteSuperblocks,
            _ => true,
        }
    }

    pub(super) fn start_mut(&mut self) -> &mut Start {
        match &mut self.phase {
            Phase::Starting(start) => start,
            _ => unreachable!("the volume is starting"),
        }
    }

    pub(super) fn send_start(&mut self, member: MemberIndex, step: StartStep, operation: Operation) {
        self.start_mut().pending += 1;
        self.members.send(member, Work::Start(step), operation);
    }

    pub(super) fn read_at_start(&mut self, member: MemberIndex, step: StartStep, zone: u32, offset: u32, blocks: u32) {
        let start = self.members[member].lba(zone, offset);
        let read = Operation::Read { start, blocks: Blocks(u64::from(blocks)) };
        self.send_start(member, step, read);
    }

    /// Everything that a mount reads is to survive the next crash.
    pub(super) fn flush_at_start(&mut self) {
        if self.spec.is_cache_volatile() {
            for member in self.members.present() {
                self.send_start(member, StartStep::Flush, Operation::Flush);
            }
        }
    }

    pub(super) fn report_zones(&mut self) {
        for member in self.members.present() {
            self.report_from(member, 0);
        }
    }

    fn report_from(&mut self, member: MemberIndex, zone: u32) {
        let report = self.members[member].report(zone, REPORT_ZONES_MAX);
        self.send_start(member, StartStep::Report, report);
    }

    pub(super) fn on_start(&mut self, member: MemberIndex, step: StartStep, status: Status, outcome: Outcome) {
        let Phase::Starting(start) = &mut self.phase else { return };
        start.pending -= 1;
        if !self.members[member].is_present() {
            return;
        }
        match step {
            StartStep::Report => match outcome {
                Outcome::Report(report) if status.is_success() && !report.zones.is_empty() => {
                    let start = self.start_mut();
                    let zones = &mut start.zones[member.as_usize()];
                    zones.extend(report.zones);
                    let known = zones.len() as u32;
                    if known < self.members[member].geometry().zone_count {
                        self.report_from(member, known);
                    }
                }
                _ => self.lose_at_start(member),
            },
            StartStep::Wipe | StartStep::Flush => {
                if !status.is_success() {
                    self.lose_at_start(member);
                }
            }
            StartStep::ResetOrphan { zone } => {
                let was_active = start.zones[member.as_usize()][zone as usize].state.is_active();
                let entry = &mut self.members[member];
                entry.zone_reset_ended(zone, was_active, status);
                if was_active && !status.is_success() {
                    let verdict = Space::is_out_of_zones(&self.spec, &self.members, member);
                    self.apply_verdict(member, verdict);
                }
            }
            StartStep::FinishForLog { segment } => self.on_finished_for_log(member, segment, status),
            _ => self.on_mount_read(member, step, status, outcome),
        }
    }

    /// A member fails while the volume starts: a new volume needs all of them, an existing one
    /// continues without it if possible.
    pub(super) fn lose_at_start(&mut self, member: MemberIndex) {
        let Phase::Starting(start) = &self.phase else { return };
        if let Kind::Create { .. } = start.kind {
            let what = format!("a command failed while {}", step_name(start.step));
            return self.fail(VolumeError::Member { member, what });
        }
        self.evict(member, FailReason::Errors);
    }

    /// Continues the start.
    pub(super) fn continue_start(&mut self) {
        loop {
            let Phase::Starting(start) = &self.phase else { return };
            if start.pending > 0 {
                return;
            }
            let step = start.step;
            match start.kind {
                Kind::Create { may_wipe } => self.create_step(step, may_wipe),
                Kind::Mount(_) => self.mount_step(step),
            }
            let Phase::Starting(start) = &self.phase else { return };
            // For some segments nothing has to be read, and some reads end at once: then no
            // completion will come.
            let reads_on =
                matches!(step, Step::ReadSegments | Step::ReadTombstones | Step::ReadLeaving) && start.pending == 0;
            if start.step == step && !reads_on {
                return;
            }
        }
    }

    fn create_step(&mut self, step: Step, may_wipe: bool) {
        match step {
            Step::ReportZones => {
                let is_used = |zone: &ZoneDescriptor| {
                    !matches!(zone.state, ZoneState::Empty | ZoneState::Offline | ZoneState::ReadOnly)
                };
                for member in self.members.present() {
                    let zones = &self.start_mut().zones[member.as_usize()];
                    if !may_wipe && zones.iter().any(is_used) {
                        let what =
                            "it is not empty; allow its contents to be erased, or choose another device".to_owned();
                        return self.fail(VolumeError::Member { member, what });
                    }
                    if zones.iter().take(METADATA_ZONES as usize).any(|zone| is_dead(zone.state)) {
                        let what = "its first zones, which hold the superblocks, cannot be written".to_owned();
                        return self.fail(VolumeError::Member { member, what });
                    }
                }
                self.start_mut().step = Step::Wipe;
                for member in self.members.present() {
                    let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
                    self.send_start(member, StartStep::Wipe, reset);
                }
            }
            Step::Wipe => {
                for member in self.members.present() {
                    let zones = std::mem::take(&mut self.start_mut().zones[member.as_usize()]);
                    self.members[member].begin(&zones);
                }
                self.members.begin_epoch(&self.spec);
                self.start_mut().step = Step::WriteSuperblocks;
                self.pump_superblocks();
            }
            Step::WriteSuperblocks => {
                self.pump_superblocks();
                if self.is_lost() {
                    return;
                }
                if self.members.is_epoch_durable() {
                    self.become_ready();
                }
            }
            _ => unreachable!("a new volume has nothing to read"),
        }
    }

    pub(super) fn become_ready(&mut self) {
        assert_eq!(self.start_mut().pending, 0, "a volume is ready when its start waits for nothing");
        self.phase = Phase::Ready;
        self.events.push_back(Event::Ready);
    }
}

impl Start {
    pub(super) fn new(kind: Kind, members: usize) -> Start {
        Start { kind, step: Step::ReportZones, pending: 0, zones: vec![Vec::new(); members] }
    }

    /// A start continues when everything that it waits for has ended: no command of it is
    /// forgotten.
    ///
    /// # Panics
    /// If that does not hold.
    pub(super) fn check_invariants(&self, members: &Members) {
        let commands = members.in_flight().filter(|work| matches!(work, Work::Start(_))).count() as u32;
        assert!(self.pending >= commands, "{commands} commands of a start that waits for {}", self.pending);
        let is_of_start =
            matches!(self.step, Step::ReportZones | Step::Wipe | Step::ReadSuperblocks | Step::ReadHeaders);
        // Later steps wait for reads of blocks as well, and for stripes.
        assert!(!is_of_start || self.pending == commands, "step {:?} waits for {}", self.step, self.pending);
        if let Kind::Mount(mount) = &self.kind {
            mount.check_invariants(self.step);
        }
    }
}

fn step_name(step: Step) -> &'static str {
    match step {
        Step::ReportZones => "its zones were being reported",
        Step::Wipe => "its zones were being reset",
        Step::ReadSuperblocks => "superblocks were being read",
        Step::ReadHeaders => "segment headers were being read",
        Step::ReadSegments => "segments were being read",
        Step::ReadTombstones => "tombstones were being read",
        Step::ReadLeaving => "segments pending reset were being read",
        Step::CloseSegments => "open segments were being closed",
        Step::WriteSuperblocks => "superblocks were being written",
        Step::Reclaim => "free segments were being reclaimed",
        Step::MoveTorn => "incomplete stripes were being moved",
    }
}

/// Limits the open segments to the members' active zones: one or two are those of superblocks, one
/// is that of relocation.
pub(super) fn fit_streams(config: &mut VolumeConfig, members: &[Geometry]) {
    let left = |member: &Geometry| Some(member.max_active_zones?.saturating_sub(2 + u32::from(is_mirrored(member))));
    let for_hosts = members.iter().filter_map(left).min().unwrap_or(u32::MAX).max(1);
    let tuning = &mut config.tuning;
    while u32::from(tuning.small_segments) + u32::from(tuning.large_segments) > for_hosts {
        if tuning.large_segments > 0 && tuning.large_segments >= tuning.small_segments {
            tuning.large_segments -= 1;
        } else {
            tuning.small_segments -= 1;
        }
    }
}

/// Maximum capacity of a new volume, without overprovisioning.
pub(super) fn usable_blocks(config: &VolumeConfig, shape: &Shape, members: &[Geometry]) -> u64 {
    let zones = members.iter().map(|member| member.zone_count).min().unwrap_or(0);
    u64::from(usable_segments(&config.tuning, zones)) * shape.segment_blocks()
}

/// The geometry that hosts see.
pub(super) fn volume_geometry(
    config: &VolumeConfig,
    shape: &Shape,
    members: &[Geometry],
    is_new: bool,
) -> Result<Geometry, VolumeError> {
    let zones = members.iter().map(|member| member.zone_count - METADATA_ZONES).min().unwrap_or(0);
    let usable_blocks = usable_blocks(config, shape, members);
    let most = usable_blocks * u64::from(100 - config.tuning.reserve_percent.min(100)) / 100;
    let wanted = config.volume_blocks.unwrap_or(most);
    if is_new && usable_blocks == 0 {
        return Err(too_few_zones(&config.tuning, zones + METADATA_ZONES));
    }
    if is_new && wanted == 0 {
        return Err(VolumeError::Config(match config.volume_blocks {
            Some(_) => format!("a volume has at least 1 block of {} bytes; choose a larger size", shape.block_bytes),
            None => {
                format!("a reserve of {}% leaves no space; choose a smaller reserve", config.tuning.reserve_percent)
            }
        }));
    }
    if (is_new && wanted > usable_blocks) || wanted == 0 {
        return Err(VolumeError::Config(format!(
            "the members hold at most {usable_blocks} blocks ({most} with a reserve of {}%), but {wanted} were \
             requested",
            config.tuning.reserve_percent
        )));
    }
    let most_of_all = u64::from(zones) * u64::from(shape.zone_capacity_blocks) * shape.data() as u64;
    if wanted > most_of_all {
        return Err(VolumeError::Config(format!(
            "the superblock has {wanted} blocks, but the members hold at most {most_of_all}: it belongs to other \
             members, or is damaged"
        )));
    }
    // One zone for hosts, or many of a size that divides: conventional zones have no capacity of
    // their own.
    const ZONE_BLOCKS: u64 = 65_536;
    let (zone_blocks, zone_count) =
        if wanted <= ZONE_BLOCKS { (wanted, 1) } else { (ZONE_BLOCKS, wanted / ZONE_BLOCKS) };
    Ok(Geometry {
        block_size_bytes: shape.block_bytes as u32,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(zone_blocks),
        zone_capacity_blocks: Blocks(zone_blocks),
        zone_count: u32::try_from(zone_count).unwrap_or(u32::MAX),
        conventional_zone_count: u32::try_from(zone_count).unwrap_or(u32::MAX),
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks: Blocks(REQUEST_BLOCKS_MAX),
        max_append_blocks: Blocks(REQUEST_BLOCKS_MAX),
        zrwa: None,
        read_across_zones: true,
        descriptor_extension_bytes: 0,
    })
}
