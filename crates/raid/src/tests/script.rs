//! A volume on members whose commands a test holds back and releases: the test decides what takes
//! effect, in which order, and what a crash drops.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, Duration, Geometry, Instant, Lba, LbaRange, NamespaceId,
    Operation, Outcome, Payload, PayloadKind, QueueFull, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
};

use super::basics::contents;
use super::failures::geometry;
use crate::format::{HEADER_COPIES, SegmentHeader};
use crate::limits::METADATA_ZONES;
use crate::machine::{Inconsistency, MediaRead};
use crate::{Event, MemberIndex, MountOptions, Scheme, StreamShape, Volume, VolumeConfig};

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Superblock,
    Header,
    /// The chunk of a stripe.
    Chunk,
    Footer,
    Read,
    Reset,
    Finish,
    Flush,
    Report,
}

/// A command that was sent to a member.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) member: usize,
    pub(super) kind: Kind,
    /// The sequence number of the segment of its zone; 0 if there is none.
    pub(super) segment: u64,
    /// Whether that segment receives moved blocks.
    pub(super) is_relocation: bool,
    /// From the start of the zone.
    pub(super) offset: u32,
}

impl Sent {
    /// The stripe of a chunk, in segments whose groups have one stripe of one block a member.
    pub(super) fn stripe(&self) -> u32 {
        self.offset - HEADER_COPIES
    }
}

/// Selects commands.
type SentFilter = Box<dyn Fn(&Sent) -> bool>;

/// The time step: less than any timeout of a member.
const SOON: Duration = Duration::from_secs(1);

/// More commands than a volume that quiesces sends.
const COMMANDS_MAX: usize = 100_000;

pub(super) struct Script {
    pub(super) volume: Volume,
    pub(super) config: VolumeConfig,
    /// All commands sent to members, in that order.
    pub(super) sent: Vec<Sent>,
    pub(super) events: Vec<Event>,
    /// Inconsistencies on the members when it last became ready.
    pub(super) inconsistencies_when_ready: Vec<Inconsistency>,
    /// Blocks of members that cannot be read.
    pub(super) unreadable: BTreeSet<(usize, u64)>,
    devices: Vec<ReferenceDevice>,
    geometry: Geometry,
    holds: SentFilter,
    /// Selected commands fail, without effect.
    fails: SentFilter,
    /// Selected commands fail for lack of space, without effect.
    lacks_space: SentFilter,
    held: Vec<(Sent, Command)>,
    /// The segment of each zone, from its header: sequence number, stream, and the first block
    /// behind its stripes.
    segments: BTreeMap<(usize, u32), (u64, u8, u32)>,
    /// Zones at their member's last flush, if they have changed since.
    unflushed: BTreeMap<(usize, u32), ZoneImage>,
    answers: BTreeMap<CommandId, Completion>,
    next_id: u64,
    now: Instant,
}

/// Stripes of one block per member, groups of one stripe, and one open segment for all host
/// requests.
pub(super) fn plain_config(scheme: Scheme) -> VolumeConfig {
    let mut config = VolumeConfig::new("script", scheme);
    config.small = StreamShape { unit_blocks: 1, group_stripes: 1 };
    config.large = config.small;
    config.tuning.large_segments = 0;
    config.tuning.reserve_percent = 40;
    config
}

impl Script {
    pub(super) fn create(config: VolumeConfig) -> Script {
        Script::on(config, geometry(64))
    }

    pub(super) fn on(config: VolumeConfig, geometry: Geometry) -> Script {
        let members = config.scheme.members();
        let ids: Vec<[u8; 16]> = (0..members as u8).map(|at| [at + 1; 16]).collect();
        let volume = Volume::create(config.clone(), vec![geometry.clone(); members], [9; 16], &ids, false);
        let mut script = Script {
            volume: volume.expect("a valid configuration"),
            config,
            sent: Vec::new(),
            events: Vec::new(),
            inconsistencies_when_ready: Vec::new(),
            unreadable: BTreeSet::new(),
            devices: vec![ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes); members],
            geometry,
            holds: Box::new(|_| false),
            fails: Box::new(|_| false),
            lacks_space: Box::new(|_| false),
            held: Vec::new(),
            segments: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            answers: BTreeMap::new(),
            next_id: 0,
            now: Instant::ZERO,
        };
        script.run();
        assert_eq!(script.events, [Event::Ready]);
        script.sent.clear();
        script
    }

    /// From now on the selected commands are held back.
    pub(super) fn hold(&mut self, holds: impl Fn(&Sent) -> bool + 'static) {
        self.holds = Box::new(holds);
    }

    /// From now on the selected commands fail.
    pub(super) fn fail(&mut self, fails: impl Fn(&Sent) -> bool + 'static) {
        self.fails = Box::new(fails);
    }

    /// From now on the selected commands fail for lack of space.
    pub(super) fn fill(&mut self, lacks_space: impl Fn(&Sent) -> bool + 'static) {
        self.lacks_space = Box::new(lacks_space);
    }

    /// Nothing is held back any more; held commands take effect and complete.
    pub(super) fn release(&mut self) {
        self.hold(|_| false);
        self.release_those(|_| true);
    }

    /// Of the held commands the selected ones take effect and complete.
    pub(super) fn release_those(&mut self, meant: impl Fn(&Sent) -> bool) {
        let released: Vec<_> = self.held.extract_if(.., |(sent, _)| meant(sent)).collect();
        for (sent, command) in released {
            self.execute(&sent, &command);
        }
        self.run();
    }

    /// The first selected held command takes effect and completes. Returns whether there is one.
    pub(super) fn release_first(&mut self, meant: impl Fn(&Sent) -> bool) -> bool {
        let Some(at) = self.held.iter().position(|(sent, _)| meant(sent)) else { return false };
        let (sent, command) = self.held.remove(at);
        self.execute(&sent, &command);
        self.run();
        true
    }

    /// The number of held commands.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Everything that can happen happens, and time passes.
    pub(super) fn run(&mut self) {
        let from = self.now;
        let most = self.sent.len() + COMMANDS_MAX;
        loop {
            let mut moves = false;
            assert!(self.sent.len() < most, "the volume quiesces: {:?}", self.sent.last());
            for member in 0..self.devices.len() {
                while let Some(command) = self.volume.poll_command(self.now, MemberIndex(member as u8)) {
                    moves = true;
                    let sent = self.describe(member, &command.operation);
                    self.sent.push(sent.clone());
                    if (self.holds)(&sent) {
                        self.held.push((sent, command));
                    } else {
                        self.execute(&sent, &command);
                    }
                }
            }
            let events: Vec<Event> = std::iter::from_fn(|| self.volume.poll_event()).collect();
            if events.contains(&Event::Ready) {
                self.inconsistencies_when_ready = self.inconsistencies_on_media();
            }
            self.events.extend(events);
            while let Some(completion) = self.volume.poll_completion() {
                assert!(self.answers.insert(completion.id, completion).is_none(), "a command ends once");
            }
            if moves {
                continue;
            }
            let Some(due) = self.volume.next_timeout().filter(|&due| due < from + SOON) else { break };
            self.now = self.now.max(due);
            self.volume.on_timeout(self.now);
        }
        self.volume.check_invariants();
    }

    fn execute(&mut self, sent: &Sent, command: &Command) {
        let zone = self.zone_of(&command.operation);
        let is_change = !matches!(command.operation, Operation::Read { .. } | Operation::ReportZones { .. });
        if let (true, Some(zone)) = (is_change, zone) {
            let image = self.devices[sent.member].image(ZoneIndex(zone));
            self.unflushed.entry((sent.member, zone)).or_insert(image);
        }
        if let (Kind::Reset, Some(zone)) = (sent.kind, zone) {
            // Blocks that cannot be read were written before a reset: a reset zone is intact.
            let start = self.geometry.zone_start(ZoneIndex(zone)).0;
            let blocks = start..start + self.geometry.zone_size_blocks.0;
            self.unreadable.retain(|(at, lba)| *at != sent.member || !blocks.contains(lba));
        }
        if sent.kind == Kind::Flush {
            self.unflushed.retain(|&(member, _), _| member != sent.member);
        }
        let is_unreadable = match &command.operation {
            Operation::Read { start, blocks } => {
                let blocks = (sent.member, start.0)..(sent.member, start.0 + blocks.0);
                self.unreadable.range(blocks).next().is_some()
            }
            _ => false,
        };
        let completion = if (self.lacks_space)(sent) {
            Completion::of(command.id, Status::CapacityExceeded)
        } else if (self.fails)(sent) {
            Completion::of(command.id, Status::WriteFault)
        } else if is_unreadable {
            Completion::of(command.id, Status::UnrecoveredReadError)
        } else {
            self.devices[sent.member].execute(command)
        };
        self.volume.on_completion(self.now, MemberIndex(sent.member as u8), completion);
    }

    fn zone_of(&self, operation: &Operation) -> Option<u32> {
        let lba = match operation {
            Operation::Read { start, .. } | Operation::Write { start, .. } => *start,
            Operation::Append { zone_start, .. } => *zone_start,
            Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => *start,
            _ => return None,
        };
        self.geometry.zone_of(lba).map(|zone| zone.0)
    }

    fn describe(&mut self, member: usize, operation: &Operation) -> Sent {
        let zone = self.zone_of(operation).unwrap_or(0);
        let start = self.geometry.zone_start(ZoneIndex(zone));
        let offset = match operation {
            Operation::Read { start: lba, .. } | Operation::Write { start: lba, .. } => (lba.0 - start.0) as u32,
            _ => 0,
        };
        if let (true, Operation::Write { payload: Payload::Bytes(buffer), .. }) = (zone >= METADATA_ZONES, operation)
            && let Ok(header) = SegmentHeader::read(&buffer.data[..self.geometry.block_size_bytes as usize])
        {
            let end = header.copies + header.stripes * header.unit_blocks;
            self.segments.insert((member, zone), (header.segment, header.stream, end));
        }
        let (segment, stream, end) = self.segments.get(&(member, zone)).copied().unwrap_or((0, 0, u32::MAX));
        let kind = match operation {
            Operation::Read { .. } => Kind::Read,
            Operation::Write { .. } if zone < METADATA_ZONES => Kind::Superblock,
            Operation::Write { .. } if offset == 0 => Kind::Header,
            Operation::Write { .. } if offset >= end => Kind::Footer,
            Operation::Write { .. } | Operation::Append { .. } => Kind::Chunk,
            Operation::ManageZones { action: ZoneAction::Reset, .. } => Kind::Reset,
            Operation::ManageZones { .. } => Kind::Finish,
            Operation::Flush => Kind::Flush,
            _ => Kind::Report,
        };
        Sent { member, kind, segment, is_relocation: stream == crate::shape::Stream::Relocation as u8, offset }
    }

    /// Commands of a kind to a segment since [`sent`](Script::sent) was cleared.
    pub(super) fn count(&self, kind: Kind, segment: u64) -> usize {
        self.sent.iter().filter(|sent| (sent.kind, sent.segment) == (kind, segment)).count()
    }

    /// The first block of a member's zone of a segment.
    pub(super) fn zone_start(&self, member: usize, segment: u64) -> u64 {
        let zone = self.segments.iter().find(|((at, _), (sequence, ..))| (*at, *sequence) == (member, segment));
        let ((_, zone), _) = zone.expect("the segment has a zone on the member");
        self.geometry.zone_start(ZoneIndex(*zone)).0
    }

    /// The sequence of the newest segment for requests of hosts.
    pub(super) fn host_segment(&self) -> u64 {
        let is_host = |stream: u8| stream != crate::shape::Stream::Relocation as u8;
        self.segments
            .values()
            .filter(|(_, stream, _)| is_host(*stream))
            .map(|(sequence, ..)| *sequence)
            .max()
            .unwrap_or(0)
    }

    pub(super) fn try_submit(&mut self, operation: Operation) -> Result<CommandId, QueueFull> {
        let id = CommandId(self.next_id + 1);
        self.volume.submit(self.now, Command::new(id, NamespaceId::FIRST, operation))?;
        self.next_id += 1;
        Ok(id)
    }

    pub(super) fn submit(&mut self, operation: Operation) -> CommandId {
        let id = self.try_submit(operation).expect("the volume accepts the command");
        self.run();
        id
    }

    /// Writes blocks, each with this version of its contents.
    pub(super) fn write(&mut self, start: u64, blocks: u64, version: u64) -> CommandId {
        self.submit(write(start, blocks, version))
    }

    pub(super) fn trim(&mut self, start: u64, blocks: u64) -> CommandId {
        self.submit(Operation::Deallocate { ranges: [LbaRange { start: Lba(start), blocks: Blocks(blocks) }].into() })
    }

    pub(super) fn read(&mut self, start: u64) -> CommandId {
        self.submit(Operation::Read { start: Lba(start), blocks: Blocks(1) })
    }

    /// Time passes without events.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// The status of a completed command.
    pub(super) fn status(&self, id: CommandId) -> Option<Status> {
        self.answers.get(&id).map(|answer| answer.status)
    }

    /// Whether a command has completed; then it has succeeded.
    pub(super) fn has_ended(&self, id: CommandId) -> bool {
        let Some(answer) = self.answers.get(&id) else { return false };
        assert_eq!(answer.status, Status::Success, "command {}", id.0);
        true
    }

    /// The version that a read has returned, 0 for zeros.
    pub(super) fn version_of(&self, id: CommandId, lba: u64) -> u64 {
        assert!(self.has_ended(id), "the read of block {lba} ends");
        let Outcome::Data(Payload::Bytes(found)) = &self.answers[&id].outcome else { panic!("a read brings data") };
        let version = u64::from_le_bytes(found.data[8..16].try_into().expect("eight bytes"));
        let right = if version == 0 { vec![0; 512] } else { contents(lba, version) };
        assert!(found.data == right, "block {lba} holds one of its versions");
        version
    }

    /// The current version of a block.
    pub(super) fn version(&mut self, lba: u64) -> u64 {
        let id = self.read(lba);
        self.version_of(id, lba)
    }

    /// A member fails, and is replaced by an empty device.
    pub(super) fn replace(&mut self, member: usize) {
        self.volume.fail_member(self.now, MemberIndex(member as u8));
        self.run();
        self.devices[member] = ReferenceDevice::new(self.geometry.clone(), PayloadKind::Bytes);
        self.segments.retain(|(at, _), _| *at != member);
        self.unreadable.retain(|(at, _)| *at != member);
        let (geometry, id) = (self.geometry.clone(), [100 + member as u8; 16]);
        self.volume.replace_member(self.now, MemberIndex(member as u8), geometry, id).expect("a suitable device");
        self.run();
    }

    /// A zone of a member is erased.
    pub(super) fn erase(&mut self, member: usize, zone: u32) {
        let empty = ReferenceDevice::new(self.geometry.clone(), PayloadKind::Bytes).image(ZoneIndex(zone));
        self.devices[member].set_zone(ZoneIndex(zone), empty);
    }

    /// A zone of a member fails.
    pub(super) fn degrade(&mut self, member: usize, zone: u32, to: ZoneState) {
        let image = self.devices[member].image(ZoneIndex(zone));
        self.devices[member].set_zone(ZoneIndex(zone), ZoneImage { state: to, ..image });
    }

    /// The last blocks of a member's zone are lost with its cache: it is active again.
    pub(super) fn lose_end(&mut self, member: usize, segment: u64, blocks: u64) {
        let zone = ZoneIndex((self.zone_start(member, segment) / self.geometry.zone_size_blocks.0) as u32);
        let mut image = self.devices[member].image(zone);
        image.state = ZoneState::Closed;
        image.write_pointer_blocks.0 -= blocks;
        self.devices[member].set_zone(zone, image);
    }

    /// The inconsistencies on the members.
    fn inconsistencies_on_media(&mut self) -> Vec<Inconsistency> {
        let Script { volume, devices, .. } = self;
        volume.inconsistencies_on_media(false, &mut |member, start| {
            let operation = Operation::Read { start, blocks: Blocks(1) };
            let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
            match devices[member.as_usize()].execute(&command).outcome {
                Outcome::Data(Payload::Bytes(buffer)) => MediaRead::Block(buffer.data, buffer.metadata),
                _ => MediaRead::Unreadable,
            }
        })
    }

    /// A member fails, as if it had been removed; its held commands take effect, or never do.
    pub(super) fn fail_member(&mut self, member: usize) {
        self.volume.fail_member(self.now, MemberIndex(member as u8));
        self.run();
    }

    /// The last zone that a member has.
    pub(super) fn last_zone(&self) -> u32 {
        self.geometry.zone_count - 1
    }

    /// Blocks of a member's zone that were written.
    pub(super) fn written(&self, member: usize, zone: u32) -> u64 {
        self.devices[member].image(ZoneIndex(zone)).write_pointer_blocks.0
    }

    /// Later mounts see that members may have this many active zones.
    pub(super) fn set_max_active_zones(&mut self, zones: u32) {
        self.geometry.max_active_zones = Some(zones);
        self.geometry.max_open_zones = Some(zones);
    }

    /// Full zones of a member without contents.
    pub(super) fn full_blank_zones(&mut self, member: usize) -> usize {
        let zones = METADATA_ZONES..self.geometry.zone_count;
        let starts = zones.filter(|&zone| self.devices[member].image(ZoneIndex(zone)).state == ZoneState::Full);
        let starts: Vec<Lba> = starts.map(|zone| self.geometry.zone_start(ZoneIndex(zone))).collect();
        let is_blank = |start: &Lba| {
            let operation = Operation::Read { start: *start, blocks: Blocks(1) };
            let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
            match self.devices[member].execute(&command).outcome {
                Outcome::Data(Payload::Bytes(buffer)) => buffer.data.iter().all(|&byte| byte == 0),
                _ => false,
            }
        };
        starts.into_iter().filter(is_blank).count()
    }

    /// A power loss: held commands never take effect, and these members lose what they have not
    /// flushed.
    pub(super) fn crash(&mut self, losing_caches: &[usize]) {
        self.held.clear();
        self.answers.clear();
        for ((member, zone), image) in std::mem::take(&mut self.unflushed) {
            if losing_caches.contains(&member) {
                self.devices[member].set_zone(ZoneIndex(zone), image);
            }
        }
        self.devices.iter_mut().for_each(ReferenceDevice::power_cycle);
    }

    /// Mounts the members except these, as far as that is possible while commands are held back.
    pub(super) fn mount(&mut self, without: &[usize]) {
        self.mount_with(without, MountOptions::default());
    }

    pub(super) fn mount_with(&mut self, without: &[usize], options: MountOptions) {
        let there = |at| (!without.contains(&at)).then(|| self.geometry.clone());
        let geometries = (0..self.devices.len()).map(there).collect();
        self.volume = Volume::mount(geometries, self.config.tuning.clone(), options).expect("a mount begins");
        self.now = Instant::ZERO;
        self.sent.clear();
        self.events.clear();
        self.run();
    }
}

pub(super) fn write(start: u64, blocks: u64, version: u64) -> Operation {
    let data: Vec<u8> = (start..start + blocks).flat_map(|lba| contents(lba, version)).collect();
    let buffer = BlockBuffer { data: data.into(), metadata: Bytes::new() };
    Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload: Payload::Bytes(Box::new(buffer)) }
}
