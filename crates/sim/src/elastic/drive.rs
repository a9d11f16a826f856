//! The drive below a pool: the drive model with a volatile cache, or an image in files, with failing
//! commands and delays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Namespaces,
    Operation, Outcome, PayloadKind, Prng, QueueFull, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
    ZonedDevice,
};

use super::media::Media;
use super::simulation::DriveFaults;

/// A drive with power.
pub(super) struct Drive {
    media: Media,
    prng: Prng,
    faults: DriveFaults,
    /// Whether commands fail now.
    pub(super) has_faults: bool,
    /// Whether writes find no space now: most of them with a model, those that need it with files.
    is_full: bool,
    depth: usize,
    delay: Duration,
    in_flight: BTreeMap<CommandId, Flight>,
    /// Completions that are held back, by the time of their delivery.
    held: VecDeque<(Instant, Completion)>,
    /// Blocks of each zone that were acknowledged, and flushed.
    acknowledged: Vec<u64>,
    flushed: Vec<u64>,
    /// Resets in flight: their zones, and how many blocks of these were flushed before.
    resets: BTreeMap<CommandId, (usize, u64)>,
    pub(super) seen: Seen,
}

/// What has happened on the drive since it was last asked.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Zones of which a command has failed, or that have failed.
    pub(super) zones: BTreeSet<u32>,
    /// Commands that failed.
    pub(super) faults: u64,
    /// Management commands and flushes among them.
    pub(super) management_faults: u64,
    /// A write has found no space.
    pub(super) lacked_space: bool,
    /// Commands that the drive refused because of its limits.
    pub(super) over_limit: Option<String>,
}

#[derive(Debug)]
enum Flight {
    Write {
        zone: usize,
        end: u64,
    },
    Flush(Vec<u64>),
    Other,
    /// It is executed, and reported as failed.
    Failing(Status),
}

impl Drive {
    pub(super) fn new(
        media: Media,
        zone_count: u32,
        faults: DriveFaults,
        depth: usize,
        delay: Duration,
        prng: Prng,
    ) -> Drive {
        Drive {
            media,
            prng,
            faults,
            has_faults: false,
            is_full: false,
            depth,
            delay,
            in_flight: BTreeMap::new(),
            held: VecDeque::new(),
            acknowledged: vec![0; zone_count as usize],
            flushed: vec![0; zone_count as usize],
            resets: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    /// Commands in flight, completions that are held back included.
    pub(super) fn outstanding(&self) -> usize {
        self.in_flight.len() + self.held.len()
    }

    /// The medium of a zone fails. Returns whether it had not failed before.
    pub(super) fn degrade(&mut self, zone: u32, to: ZoneState) -> bool {
        let state = self.media.state(ZoneIndex(zone));
        if state == ZoneState::Offline || state == to {
            return false;
        }
        self.media.degrade(ZoneIndex(zone), to);
        self.seen.zones.insert(zone);
        true
    }

    /// Whether writes find no space now.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// There is no space, or some again.
    pub(super) fn set_full(&mut self, is_full: bool) {
        if let Media::Files(files) = &mut self.media
            && self.is_full != is_full
        {
            files.set_full(is_full);
        }
        self.is_full = is_full;
    }

    /// The program that has the files of the drive is killed, with or without the power of its machine.
    ///
    /// # Panics
    /// If it is a model.
    pub(super) fn kill(self, loses_power: bool) -> Drive {
        let Drive { media, faults, depth, delay, acknowledged, prng, seen, is_full, .. } = self;
        let Media::Files(files) = media else { unreachable!("the power of a model is lost") };
        let mut files = Box::new(files.kill(loses_power));
        files.set_full(is_full);
        let zone_count = acknowledged.len() as u32;
        let mut drive = Drive::new(Media::Files(files), zone_count, faults, depth, delay, prng);
        (drive.seen, drive.is_full) = (seen, is_full);
        drive
    }

    /// Notes which operations on files have found no space.
    fn note_space(&mut self) {
        if let Media::Files(files) = &mut self.media {
            let failed = files.take_lacked_space();
            self.seen.faults += failed;
            self.seen.lacked_space |= failed > 0;
        }
    }

    /// Loses the power; `cached` blocks that were not flushed may be lost, more of some zones than of
    /// others.
    pub(super) fn lose_power(self, profile: &Profile, is_volatile: bool, prng: &mut Prng) -> Drive {
        let Drive { media, faults, depth, delay, mut flushed, resets, prng: own, .. } = self;
        let zone_count = flushed.len() as u32;
        let ssd = match media {
            Media::Model(ssd) => *ssd,
            Media::Files(_) => unreachable!("a file-backed drive is killed"),
        };
        let media = ssd.power_loss(prng);
        let seed = prng.fork("power-on");
        let before = Ssd::power_on(profile, media, &seed);
        if !is_volatile {
            let kept = (0..zone_count).map(|zone| written(&before, zone)).collect::<Vec<u64>>();
            let mut drive = Drive::new(Media::Model(Box::new(before)), zone_count, faults, depth, delay, own);
            (drive.acknowledged, drive.flushed) = (kept.clone(), kept);
            return drive;
        }
        // Without effect, a reset costs nothing that was flushed.
        for (zone, before) in resets.into_values() {
            flushed[zone] = before;
        }
        let (style, geometry) = (prng.below(4), profile.geometry());
        let kept: Vec<u64> = (0..zone_count).map(|zone| kept_of(&before, zone, &flushed, style, prng)).collect();
        let after = Ssd::new(profile, PayloadKind::Bytes, &seed.fork("after"));
        let mut before = Clocked { ssd: before, now: Instant::ZERO };
        let mut after = Clocked { ssd: after, now: Instant::ZERO };
        // Those that are active in the end come last: a zone is active while it is filled.
        let mut zones: Vec<u32> = (0..zone_count).collect();
        zones.sort_by_key(|zone| before.ssd.zone(ZoneIndex(*zone)).state.is_active());
        for zone in zones {
            copy_zone(&mut before, &mut after, &geometry, zone, kept[zone as usize]);
        }
        let media = after.ssd.power_loss(prng);
        let after = Ssd::power_on(profile, media, &seed.fork("again"));
        let mut drive = Drive::new(Media::Model(Box::new(after)), zone_count, faults, depth, delay, own);
        (drive.acknowledged, drive.flushed) = (kept.clone(), kept);
        drive
    }

    fn strike(&mut self, command: &Command) -> Option<Status> {
        if !self.has_faults {
            return None;
        }
        let (percent, status) = match &command.operation {
            Operation::Read { .. } => (self.faults.read_per_mille, Status::UnrecoveredReadError),
            Operation::Write { .. } | Operation::WriteZeroes { .. } => {
                (self.faults.write_per_mille, Status::WriteFault)
            }
            Operation::ManageZones { .. } => (self.faults.manage_per_mille, Status::InternalError),
            Operation::Flush => (self.faults.flush_per_mille, Status::InternalError),
            _ => (0, Status::Success),
        };
        let zone = self.zone_of(&command.operation);
        let is_spared = zone.is_some_and(|zone| zone < 6 && (self.faults.log_copy != Some(zone % 2)));
        (percent > 0 && !is_spared && self.prng.chance(percent, 1000)).then_some(status)
    }

    fn zone_of(&self, operation: &Operation) -> Option<u32> {
        let start = match operation {
            Operation::Read { start, .. }
            | Operation::Write { start, .. }
            | Operation::WriteZeroes { start, .. }
            | Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => *start,
            _ => return None,
        };
        self.media.geometry(NamespaceId::FIRST).zone_of(start).map(|zone| zone.0)
    }

    fn flight_of(&self, operation: &Operation) -> Flight {
        let geometry = self.media.geometry(NamespaceId::FIRST);
        match operation {
            Operation::Write { start, blocks, .. } | Operation::WriteZeroes { start, blocks } => {
                let Some(zone) = geometry.zone_of(*start) else { return Flight::Other };
                let end = (*start - geometry.zone_start(zone)).0 + blocks.0;
                Flight::Write { zone: zone.as_usize(), end }
            }
            Operation::Flush => Flight::Flush(self.acknowledged.clone()),
            _ => Flight::Other,
        }
    }

    fn on_completion(&mut self, now: Instant, completion: Completion) {
        let flight = self.in_flight.remove(&completion.id).expect("the drive completes a command once");
        self.resets.remove(&completion.id);
        let completion = match flight {
            Flight::Failing(status) if completion.status.is_success() => Completion::of(completion.id, status),
            Flight::Write { zone, end } if completion.status.is_success() => {
                self.acknowledged[zone] = self.acknowledged[zone].max(end);
                completion
            }
            Flight::Flush(floors) if completion.status.is_success() => {
                for (flushed, floor) in self.flushed.iter_mut().zip(floors) {
                    *flushed = (*flushed).max(floor);
                }
                completion
            }
            _ => completion,
        };
        if matches!(completion.status, Status::TooManyActiveZones | Status::TooManyOpenZones) {
            self.seen.over_limit.get_or_insert_with(|| completion.status.to_string());
        }
        let late = if self.delay.0 > 0 && self.prng.chance(1, 2) { self.prng.below(self.delay.0) } else { 0 };
        let at = now + Duration(late);
        let place = self.held.iter().position(|(other, _)| *other > at).unwrap_or(self.held.len());
        self.held.insert(place, (at, completion));
    }

    /// A reset, once it is submitted, forgets what the zone held.
    fn forget(&mut self, id: CommandId, operation: &Operation) {
        if let Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) } = operation
            && let Some(zone) = self.media.geometry(NamespaceId::FIRST).zone_of(*start)
        {
            self.resets.insert(id, (zone.as_usize(), self.flushed[zone.as_usize()]));
            (self.acknowledged[zone.as_usize()], self.flushed[zone.as_usize()]) = (0, 0);
            for flight in self.in_flight.values_mut() {
                match flight {
                    Flight::Write { zone: other, .. } if *other == zone.as_usize() => *flight = Flight::Other,
                    Flight::Flush(floors) => floors[zone.as_usize()] = 0,
                    _ => {}
                }
            }
        }
    }
}

impl ZonedDevice for Drive {
    fn namespaces(&self) -> &Namespaces {
        self.media.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.outstanding() >= self.depth {
            return Err(QueueFull(command));
        }
        let is_write = matches!(command.operation, Operation::Write { .. } | Operation::WriteZeroes { .. });
        let is_model = matches!(self.media, Media::Model(_));
        if self.is_full && is_model && is_write && self.prng.chance(3, 4) {
            self.seen.faults += 1;
            self.seen.lacked_space = true;
            self.held.push_front((now, Completion::of(command.id, Status::CapacityExceeded)));
            return Ok(());
        }
        let mut flight = self.flight_of(&command.operation);
        if let Some(status) = self.strike(&command) {
            self.seen.faults += 1;
            self.seen.zones.extend(self.zone_of(&command.operation));
            let is_management = matches!(command.operation, Operation::ManageZones { .. } | Operation::Flush);
            self.seen.management_faults += u64::from(is_management);
            if self.prng.chance(1, 2) {
                self.held.push_front((now, Completion::of(command.id, status)));
                return Ok(());
            }
            flight = Flight::Failing(status);
        }
        let id = command.id;
        self.forget(id, &command.operation);
        self.media.submit(now, command)?;
        self.note_space();
        let before = self.in_flight.insert(id, flight);
        assert!(before.is_none(), "command {id} is in flight already");
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut ended = CompletionQueue::new();
        self.media.poll(now, &mut ended);
        self.note_space();
        while let Some(completion) = ended.pop() {
            self.on_completion(now, completion);
        }
        while self.held.front().is_some_and(|(at, _)| *at <= now) {
            let (_, completion) = self.held.pop_front().expect("there is one");
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.media.next_timeout().into_iter().chain(self.held.front().map(|(at, _)| *at)).min()
    }
}

/// Blocks that a zone holds.
fn written(ssd: &Ssd, zone: u32) -> u64 {
    let view = ssd.zone(ZoneIndex(zone));
    if view.state == ZoneState::Empty { 0 } else { view.write_pointer_blocks.0 }
}

/// Blocks of a zone that the loss of a cache leaves. A zone without free capacity keeps all: with
/// fewer it would be active, perhaps one too many.
fn kept_of(ssd: &Ssd, zone: u32, flushed: &[u64], style: u64, prng: &mut Prng) -> u64 {
    let stands = written(ssd, zone);
    let least = flushed[zone as usize].min(stands);
    let capacity = ssd.geometry(NamespaceId::FIRST).zone_capacity_blocks.0;
    match style {
        _ if stands == capacity => stands,
        0 => least,
        1 => stands,
        2 if prng.chance(1, 2) => least,
        2 => stands,
        _ => least + prng.below(stands - least + 1),
    }
}

/// Copies the first blocks of a zone, and its state.
fn copy_zone(from: &mut Clocked, to: &mut Clocked, geometry: &Geometry, zone: u32, kept: u64) {
    let view = from.ssd.zone(ZoneIndex(zone));
    let start = geometry.zone_start(ZoneIndex(zone));
    let (capacity, most) = (geometry.zone_capacity_blocks.0, geometry.max_transfer_blocks.0);
    let is_readable = view.state != ZoneState::Offline;
    for at in (0..kept).step_by(most as usize).filter(|_| is_readable) {
        let (start, blocks) = (Lba(start.0 + at), Blocks(most.min(kept - at)));
        let Outcome::Data(payload) = from.execute(Operation::Read { start, blocks }) else {
            panic!("a read returns data")
        };
        to.execute(Operation::Write { start, blocks, payload });
    }
    let target = ZoneTarget::Zone(start);
    if view.state == ZoneState::Full && view.write_pointer_blocks.0 < capacity {
        to.execute(Operation::ManageZones { action: ZoneAction::Finish, target });
    } else if matches!(view.state, ZoneState::ReadOnly | ZoneState::Offline) {
        to.ssd.degrade(ZoneIndex(zone), view.state);
    } else if kept > 0 && kept < capacity {
        to.execute(Operation::ManageZones { action: ZoneAction::Close, target });
    }
}

/// A drive whose commands are executed one at a time.
struct Clocked {
    ssd: Ssd,
    now: Instant,
}

impl Clocked {
    /// Executes a command, which must succeed.
    fn execute(&mut self, operation: Operation) -> Outcome {
        let text = operation.name();
        let command = Command::new(CommandId(u64::MAX), NamespaceId::FIRST, operation);
        self.ssd.submit(self.now, command).expect("an idle drive accepts a command");
        let mut ended = CompletionQueue::new();
        while ended.is_empty() {
            let wakeup = self.ssd.next_timeout().expect("a drive with a command in flight has a next wakeup");
            self.now = wakeup.max(self.now);
            self.ssd.poll(self.now, &mut ended);
        }
        let ended = ended.pop().expect("a command has ended");
        assert!(ended.status.is_success(), "{text}: {}", ended.status);
        ended.outcome
    }
}
