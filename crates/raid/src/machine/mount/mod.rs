//! Mounting: what is on the members becomes a volume again.
//!
//! ```text
//! superblocks.rs  who the members are, and which of them can be believed
//! headers.rs      which zones make which segments
//! zones.rs        what each block of a segment is: from footers, or from the blocks themselves
//! assemble.rs     stripes, and the newest version of each block
//! ```
//!
//! A stripe that lacks a chunk on a member that took part was never acknowledged. If it can be decoded all the same, its blocks
//! count, and are written anew before the volume is ready; if it cannot, they do not. Either way later mounts decide alike, since
//! members only ever lose chunks.

mod assemble;
mod headers;
mod superblocks;
mod zones;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, Geometry, Outcome, Payload, Status};

use super::caches::Waiter;
use super::start::{Kind, Start, StartStep, Step};
use super::write::Ticket;
use super::{Member, Phase, Volume};
use crate::config::{Level, Scheme, StreamShape, Tuning, VolumeConfig};
use crate::format::{ArrayId, Record, read_tombstones};
use crate::limits::MOUNT_ATTEMPTS_MAX;
use crate::shape::Stream;
use crate::tables::{Address, Location, Physical, SegmentIndex, SegmentState};
use crate::{MemberIndex, VolumeError};

use headers::FoundSegment;
use superblocks::Probe;
use zones::Reading;

/// What a mount has found out.
#[derive(Debug, Default)]
pub(super) struct Mount {
    expected: Option<ArrayId>,
    /// For each member, its two logs.
    probes: Vec<Vec<Probe>>,
    /// Zones whose headers have still to be read, for each member.
    unread: Vec<VecDeque<u32>>,
    /// Headers that could not be read, and how often.
    unreadable: BTreeMap<(MemberIndex, u32), u8>,
    /// The sequence and the epoch that a zone's own header names, for each member; `None` of a header that cannot be read.
    owners: Vec<BTreeMap<u32, Option<(u64, u64)>>>,
    segments: BTreeMap<u64, FoundSegment>,
    current: Option<Reading>,
    /// The newest timestamp of each logical block.
    stamps: Vec<u64>,
    tombstones: Vec<Physical>,
    /// Blocks of stripes that were not complete, and tombstones in such.
    torn: BTreeSet<Physical>,
    /// Segments that hold what such blocks replace; they stay until these are written anew.
    shadowed: BTreeSet<SegmentIndex>,
    /// Blocks that are being moved.
    moving: u64,
    is_asked: bool,
    /// How far what was moved is on its way out of the members' caches.
    flush: FlushAtMount,
    /// A block that was to be moved could not be read.
    has_failed: bool,
    /// How often the mount was begun anew.
    attempts: u32,
}

/// What a mount has written is durable before hosts see it: what they have read once stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlushAtMount {
    #[default]
    Wanted,
    UnderWay,
    Done,
}

impl Volume {
    /// The volume that is on these members, in their order; `None` for those that are absent. [`Event::Ready`](crate::Event::Ready)
    /// says when it takes commands, [`Event::Failed`](crate::Event::Failed) why it cannot.
    ///
    /// With `expected` members of any other volume are refused.
    ///
    /// # Errors
    /// When these members cannot make a volume at all, and what to change.
    pub fn mount(
        geometries: Vec<Option<Geometry>>,
        tuning: Tuning,
        expected: Option<ArrayId>,
    ) -> Result<Volume, VolumeError> {
        if !tuning.has_contents {
            return Err(VolumeError::Config("without contents there is nothing to mount: create a volume".to_owned()));
        }
        let members = geometries.into_iter().map(|geometry| Some(Member::new([0; 16], geometry?))).collect();
        Volume::begin_mount(members, tuning, expected, 0)
    }

    fn begin_mount(
        members: Vec<Option<Member>>,
        tuning: Tuning,
        expected: Option<ArrayId>,
        attempts: u32,
    ) -> Result<Volume, VolumeError> {
        // Until a superblock is read, this is all that is known.
        let count = u8::try_from(members.len()).unwrap_or(u8::MAX);
        let scheme = Scheme { level: Level::Raid0, data: count, parity: 0 };
        let mut config = VolumeConfig::new("", scheme);
        config.small = StreamShape { unit_blocks: 1, group_stripes: 1 };
        config.large = config.small;
        config.volume_blocks = Some(1);
        config.tuning = tuning;
        let is_absent: Vec<bool> = members.iter().map(Option::is_none).collect();
        let mut volume = Volume::new(config, [0; 16], members, Some(true))?;
        for (member, is_absent) in volume.members.iter_mut().zip(is_absent) {
            if is_absent {
                member.state = crate::format::MemberState::Failed;
            }
        }
        let members = volume.members.len();
        let mount = Mount { expected, attempts, owners: vec![BTreeMap::new(); members], ..Mount::default() };
        volume.phase = Phase::Starting(Box::new(Start::new(Kind::Mount(Box::new(mount)), members)));
        volume.flush_at_start();
        volume.report_zones();
        Ok(volume)
    }

    /// The mount under way.
    fn found(&mut self) -> &mut Mount {
        match &mut self.start_mut().kind {
            Kind::Mount(mount) => mount,
            Kind::Create { .. } => unreachable!("a mount is under way"),
        }
    }

    /// Everything that the step has asked for is there.
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
                    self.match_zones();
                    let blocks = self.map.len();
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
                let places = std::mem::take(&mut self.found().tombstones);
                if places.is_empty() {
                    self.found().stamps = Vec::new();
                    if self.members.iter().any(|member| member.recorded != Some(member.state)) {
                        self.begin_epoch();
                    }
                    return self.enter(Step::WriteSuperblocks);
                }
                for place in places {
                    self.start_mut().pending += 1;
                    self.fetch(place, 1, super::read::Purpose::Start);
                }
            }
            Step::WriteSuperblocks => {
                self.pump_superblocks();
                if self.epochs.is_durable() {
                    self.enter(Step::CloseSegments);
                    self.close_segments();
                }
            }
            Step::CloseSegments => {
                self.pump_superblocks();
                self.reset_empty();
                let is_moving = |state| !matches!(state, SegmentState::Sealed);
                if self.epochs.is_durable() && !self.segments.iter().any(|(_, segment)| is_moving(segment.state)) {
                    self.enter(Step::MoveTorn);
                }
            }
            Step::MoveTorn => self.move_torn(),
            Step::Wipe => unreachable!("not a step of a mount"),
        }
    }

    fn enter(&mut self, step: Step) {
        self.start_mut().step = step;
    }

    pub(super) fn on_mount_read(&mut self, member: MemberIndex, step: StartStep, status: Status, outcome: Outcome) {
        let buffer = match outcome {
            Outcome::Data(Payload::Bytes(buffer)) if status.is_success() => Some(*buffer),
            _ => None,
        };
        match step {
            StartStep::Superblock { zone, .. } => self.on_superblock_read(member, zone, buffer),
            StartStep::Header { zone } if buffer.is_none() && self.tries_again(member, zone) => {
                self.read_at_start(member, step, zone, 0, 1);
            }
            StartStep::Header { zone } => self.on_header_read(member, zone, buffer.as_ref()),
            StartStep::Blocks { offset } => self.on_blocks_read(member, offset, buffer),
            StartStep::Report | StartStep::Flush | StartStep::Wipe | StartStep::ResetOrphan { .. } => {
                unreachable!("handled before")
            }
        }
    }

    /// Segments that were open take no more; what nobody needs goes.
    fn close_segments(&mut self) {
        let indices: Vec<SegmentIndex> = self.segments.iter().map(|(index, _)| index).collect();
        for index in indices {
            let segment = &mut self.segments[index];
            let is_needed = segment.live_blocks > 0 || !segment.tombstones.is_empty() || segment.is_pinned;
            if segment.state == SegmentState::Open && !is_needed {
                // Resetting its zones says all that finishing them would.
                segment.state = SegmentState::Sealed;
            }
            self.close_if_done(index);
            self.collector.look_at(index);
        }
    }

    /// Blocks of stripes that were not complete are written anew.
    fn move_torn(&mut self) {
        self.pump_superblocks();
        if !std::mem::replace(&mut self.found().is_asked, true) {
            for place in std::mem::take(&mut self.found().torn) {
                // Where nothing was needed the segment is gone.
                let Some(segment) = self.segments.get(place.segment) else { continue };
                if segment.is_live(place.member, place.offset) || segment.tombstones.contains(&place) {
                    self.start_mut().pending += 1;
                    self.fetch(place, 1, super::read::Purpose::Start);
                }
            }
            if self.start_mut().pending > 0 {
                return;
            }
        }
        self.pad(Stream::Relocation);
        self.pump_stream(Stream::Relocation);
        if self.found().moving == 0 && self.epochs.is_durable() {
            if self.found().has_failed {
                return self.mount_again();
            }
            if self.found().flush == FlushAtMount::Wanted {
                self.found().flush = FlushAtMount::UnderWay;
                self.when_durable(Waiter::Mount);
            }
            if self.found().flush != FlushAtMount::Done {
                return;
            }
            for index in std::mem::take(&mut self.found().shadowed) {
                self.segments[index].is_pinned = false;
                self.collector.look_at(index);
            }
            self.become_ready();
            self.resume_rebuild();
        }
    }

    /// What could be decoded a moment ago cannot be any more. Then the version before it counts, which a new mount finds; nothing is
    /// under way, and nothing was reset that it needs.
    fn mount_again(&mut self) {
        let attempts = self.found().attempts + 1;
        let members: Vec<Option<Member>> = self.members.iter().map(Member::again).collect();
        let begun = if attempts < MOUNT_ATTEMPTS_MAX {
            Volume::begin_mount(members, self.config.tuning.clone(), Some(self.array), attempts)
        } else {
            let what = format!("the last stripes cannot be read, after {attempts} attempts: mount the volume again");
            Err(VolumeError::Config(what))
        };
        match begun {
            Ok(mut volume) => {
                std::mem::swap(&mut volume.engine, &mut self.engine);
                volume.bug = self.bug;
                volume.events = std::mem::take(&mut self.events);
                volume.completions = std::mem::take(&mut self.completions);
                volume.now = self.now;
                *self = volume;
            }
            Err(error) => self.fail(error),
        }
    }

    /// What the mount has written is durable.
    pub(super) fn flushed_at_mount(&mut self) {
        self.found().flush = FlushAtMount::Done;
    }

    pub(super) fn moved_at_start(&mut self) {
        if matches!(self.phase, Phase::Starting(_)) {
            self.found().moving -= 1;
        }
    }

    /// A tombstone block, or a torn block, has been read.
    pub(super) fn on_start_read(&mut self, place: Physical, mut found: Vec<Result<(Bytes, Record), Status>>) {
        if !matches!(self.phase, Phase::Starting(_)) {
            return;
        }
        self.start_mut().pending -= 1;
        let is_moving = self.start_mut().step == Step::MoveTorn;
        let Some(Ok((data, record))) = found.pop() else {
            if is_moving {
                self.found().has_failed = true;
                return;
            }
            self.counters.lost_blocks += 1;
            return;
        };
        if !is_moving {
            self.apply_tombstones(place, &data);
            return;
        }
        if record.lba == crate::format::TOMBSTONE_LBA {
            if let Some(tombstones) = read_tombstones(&data) {
                let moved = self.move_tombstones(place.segment, &tombstones, Ticket::Start);
                self.found().moving += moved;
            }
        } else if self.move_block(place, record, data, Ticket::Start) {
            self.found().moving += 1;
        }
    }

    fn apply_tombstones(&mut self, place: Physical, data: &[u8]) {
        let segment = place.segment;
        let is_torn = self.found().torn.contains(&place);
        let Some(tombstones) = read_tombstones(data) else {
            self.counters.lost_blocks += 1;
            return;
        };
        self.segments[segment].tombstone_ranges += tombstones.len() as u32;
        for range in tombstones {
            self.saw_timestamp(range.timestamp);
            let end = range.lbas().end.min(self.map.len() as u64);
            for lba in range.lba..end {
                // Of two tombstones of one trim the later one counts: the first may be about to go.
                if self.found().stamps[lba as usize] <= range.timestamp {
                    self.found().stamps[lba as usize] = range.timestamp;
                    if is_torn {
                        self.shadow(self.map[lba as usize].location());
                    }
                    self.point(lba, Address::trimmed(segment));
                }
            }
        }
    }

    /// The newest version so far of a block is here.
    fn point(&mut self, lba: u64, address: Address) {
        let old = std::mem::replace(&mut self.map[lba as usize], address);
        if let Location::Media(place) = old.location() {
            self.segments[place.segment].set_dead(place.member, place.offset);
        }
        if let Location::Media(place) = address.location() {
            self.segments[place.segment].set_live(place.member, place.offset);
        }
    }
}

/// One block of what was read.
fn block_of(buffer: &BlockBuffer, at: usize, block_bytes: usize) -> Option<&[u8]> {
    buffer.data.get(at * block_bytes..(at + 1) * block_bytes)
}
