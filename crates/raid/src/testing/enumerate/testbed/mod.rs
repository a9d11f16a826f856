//! A volume on its members, executing one command at a time, always in the same order.

mod operate;

use std::collections::{BTreeMap, VecDeque};

use zonda_zoned::{Command, CommandId, Completion, Instant, Outcome, Payload, Status};

use super::super::inspect::violation_of;
use super::super::{Model, Request, Strictness, Violation};
use super::Setup;
use super::media::Media;
use super::setup::VOLUME_BLOCKS;
use crate::{Event, MemberIndex, MemberState, MountOptions, Volume, VolumeError};

/// Commands to members, and timeouts, after which a volume that does not quiesce counts as hung.
const STEPS_MAX: u32 = 20_000;

/// A volume on its members.
#[derive(Debug)]
pub(super) struct Testbed {
    setup: Setup,
    volume: Volume,
    media: Vec<Media>,
    /// The state of each member at its last flush and after each command since then.
    unflushed: Vec<Vec<Media>>,
    absent: u32,
    /// Members that were not active before the last mount: while it is in progress, the volume may
    /// not have found them yet.
    inactive_before: u32,
    queues: Vec<VecDeque<Command>>,
    /// The member whose command is executed next.
    next_member: usize,
    now: Instant,
    pub(super) model: Model,
    replacements: u8,
    /// Members that were rebuilt, and the epoch before that: they are active once all members have
    /// a later one.
    rebuilt: Vec<(MemberIndex, u64)>,
    /// The next flush of the first member fails.
    fails_flush: bool,
    reads: BTreeMap<CommandId, Completion>,
    points: Option<Vec<Point>>,
}

/// Everything that matters if the power fails at this moment.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) setup: Setup,
    pub(super) media: Vec<Media>,
    pub(super) unflushed: Vec<Vec<Media>>,
    /// Commands outstanding on members.
    pub(super) in_flight: Vec<(usize, Command)>,
    pub(super) model: Model,
    /// Members that are not active, as bits.
    pub(super) inactive: u32,
    /// Those of them that are being rebuilt.
    pub(super) rebuilding: u32,
}

/// The result of a mount.
#[derive(Debug)]
pub(super) enum Mounted {
    Ready,
    Refused(VolumeError),
}

/// The result of a read of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlockRead {
    Data(bytes::Bytes),
    /// An error, or no answer.
    Error,
}

/// Why a testbed cannot continue.
#[derive(Debug)]
pub(super) enum Stop {
    /// The volume does not quiesce.
    Hangs,
    Refused(VolumeError),
    Violation(Violation),
    /// An operation has nothing to do.
    Idle,
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Stop {
        Stop::Violation(violation)
    }
}

impl Testbed {
    /// A new volume.
    pub(super) fn create(setup: Setup) -> Result<Testbed, Stop> {
        let members = setup.scheme().members();
        let ids: Vec<[u8; 16]> = (0..members as u8).map(|at| [at + 1; 16]).collect();
        let geometries = vec![setup.geometry(); members];
        let volume = Volume::create(setup.config(), geometries, *b"enumerated array", &ids, false);
        let mut model = Model::new(VOLUME_BLOCKS, setup.geometry().block_size_bytes as usize);
        model.is_cache_volatile = setup.is_cache_volatile;
        let media = vec![Media::empty(setup.geometry()); members];
        let mut volume = volume.map_err(Stop::Refused)?;
        if let Some(bug) = setup.bug {
            volume.seed_bug(bug);
        }
        let mut bed = Testbed::of(setup, volume, media, model, 0);
        bed.quiesce()?;
        match bed.volume.failure() {
            Some(error) => Err(Stop::Refused(error.clone())),
            None => Ok(bed),
        }
    }

    fn of(setup: Setup, volume: Volume, media: Vec<Media>, model: Model, absent: u32) -> Testbed {
        let members = media.len();
        Testbed {
            setup,
            volume,
            unflushed: media.iter().map(|media| vec![media.clone()]).collect(),
            media,
            absent,
            inactive_before: 0,
            queues: vec![VecDeque::new(); members],
            next_member: 0,
            now: Instant::ZERO,
            model,
            replacements: 0,
            rebuilt: Vec::new(),
            fails_flush: false,
            reads: BTreeMap::new(),
            points: None,
        }
    }

    /// Mounts the volume on these members, without the absent ones.
    pub(super) fn mount(
        setup: Setup,
        media: Vec<Media>,
        model: Model,
        absent: u32,
    ) -> Result<(Testbed, Mounted), Stop> {
        let volume = match begin_mount(setup, &media, &model, absent) {
            Ok(volume) => volume,
            // No mount began: the members are unchanged.
            Err(error) => {
                let volume = begin_mount(setup, &media, &model, 0).map_err(Stop::Refused)?;
                return Ok((Testbed::of(setup, volume, media, model, absent), Mounted::Refused(error)));
            }
        };
        let mut bed = Testbed::of(setup, volume, media, model, absent);
        let mounted = bed.finish_mount()?;
        Ok((bed, mounted))
    }

    fn finish_mount(&mut self) -> Result<Mounted, Stop> {
        self.quiesce()?;
        if let Some(error) = self.volume.failure() {
            return Ok(Mounted::Refused(error.clone()));
        }
        if !self.volume.is_ready() {
            return Err(Stop::Hangs);
        }
        self.model.mounted();
        Ok(Mounted::Ready)
    }

    /// From now on, records every point at which the power may fail.
    pub(super) fn record(&mut self) {
        self.points = Some(Vec::new());
    }

    pub(super) fn points(&mut self) -> Vec<Point> {
        self.points.take().unwrap_or_default()
    }

    /// The current point.
    pub(super) fn point(&self) -> Point {
        let members = self.queues.iter().enumerate();
        let in_flight = members.flat_map(|(at, queue)| queue.iter().map(move |command| (at, command.clone())));
        Point {
            setup: self.setup,
            media: self.media.clone(),
            unflushed: if self.setup.is_cache_volatile { self.unflushed.clone() } else { Vec::new() },
            in_flight: in_flight.collect(),
            model: self.model.clone(),
            inactive: self.inactive(),
            rebuilding: self.in_state(MemberState::Rebuilding),
        }
    }

    /// Members that are not active, as bits.
    pub(super) fn inactive(&self) -> u32 {
        let members = self.volume.status().members;
        let inactive = members.iter().enumerate().filter(|(_, member)| member.state != MemberState::Active);
        let known = if self.volume.is_ready() { self.just_rebuilt() } else { self.inactive_before };
        inactive.fold(known, |bits, (at, _)| bits | 1 << at)
    }

    /// Members that were rebuilt, as bits, where not all members have recorded it yet.
    fn just_rebuilt(&self) -> u32 {
        let epoch = self.volume.epoch();
        let rebuilt = self.rebuilt.iter().filter(|(_, before)| *before >= epoch);
        rebuilt.fold(0, |bits, (member, _)| bits | 1 << member.0)
    }

    fn in_state(&self, state: MemberState) -> u32 {
        let members = self.volume.status().members;
        let found = members.iter().enumerate().filter(|(_, member)| member.state == state);
        found.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// Compares the media with the state that the volume assumes.
    pub(super) fn inspect(&mut self, strictness: Strictness) -> Result<(), Violation> {
        let Testbed { volume, media, .. } = self;
        let look = &mut |member: MemberIndex, lba| media[usize::from(member.0)].read_block(lba, strictness);
        violation_of(&volume.inconsistencies_on_media(strictness == Strictness::Strict, look)).map_or(Ok(()), Err)
    }

    /// Submits a request to the volume.
    pub(super) fn request(&mut self, request: &Request) -> Result<(), Violation> {
        let Testbed { volume, model, now, .. } = self;
        let is_taken = model.submit(request, |command| volume.submit(*now, command));
        assert!(is_taken, "an idle volume accepts a request");
        self.check_output()
    }

    /// Reads every block, one per request.
    pub(super) fn read_all(&mut self) -> Result<Vec<BlockRead>, Stop> {
        self.reads.clear();
        let first = self.model.next_id();
        for start in 0..VOLUME_BLOCKS {
            self.request(&Request::Read { start, blocks: 1 })?;
        }
        self.quiesce()?;
        let read = |at: u64| match self.reads.get(&CommandId(first + at)).map(|completion| &completion.outcome) {
            Some(Outcome::Data(Payload::Bytes(buffer))) => BlockRead::Data(buffer.data.clone()),
            _ => BlockRead::Error,
        };
        Ok((0..VOLUME_BLOCKS).map(read).collect())
    }

    /// Completes everything that can complete.
    pub(super) fn quiesce(&mut self) -> Result<(), Stop> {
        for _ in 0..STEPS_MAX {
            if self.step()? {
                continue;
            }
            let Some(due) = self.volume.next_timeout() else { return Ok(()) };
            self.now = self.now.max(due);
            self.volume.on_timeout(self.now);
            self.check_output()?;
        }
        Err(Stop::Hangs)
    }

    /// Executes and completes one command of a member. Returns whether there was one.
    fn step(&mut self) -> Result<bool, Violation> {
        for (at, queue) in self.queues.iter_mut().enumerate() {
            while let Some(command) = self.volume.poll_command(self.now, MemberIndex(at as u8)) {
                queue.push_back(command);
            }
        }
        if let Some(mut points) = self.points.take() {
            points.push(self.point());
            self.points = Some(points);
        }
        let members = self.media.len();
        let next = (0..members).map(|at| (self.next_member + at) % members).find(|&at| !self.queues[at].is_empty());
        let Some(at) = next else { return Ok(false) };
        self.next_member = (at + 1) % members;
        // Where members choose the order, each chooses another one.
        let is_newest_first = self.setup.group_stripes > 1 && at % 2 == 1;
        let queue = &mut self.queues[at];
        let command = if is_newest_first { queue.pop_back() } else { queue.pop_front() };
        let command = command.expect("the queue is not empty");
        let is_flush = command.operation == zonda_zoned::Operation::Flush;
        let fails = at == 0 && is_flush && std::mem::take(&mut self.fails_flush);
        let completion = match fails {
            true => Completion::of(command.id, Status::InternalError),
            false => self.media[at].execute(&command),
        };
        if self.setup.is_cache_volatile && !fails {
            match command.operation {
                zonda_zoned::Operation::Flush => self.unflushed[at] = vec![self.media[at].clone()],
                zonda_zoned::Operation::Read { .. } | zonda_zoned::Operation::ReportZones { .. } => {}
                _ => self.unflushed[at].push(self.media[at].clone()),
            }
        }
        self.volume.on_completion(self.now, MemberIndex(at as u8), completion);
        self.check_output()?;
        Ok(true)
    }

    fn check_output(&mut self) -> Result<(), Violation> {
        let mut is_whole = false;
        while let Some(event) = self.volume.poll_event() {
            is_whole |= matches!(event, Event::Rebuilt { .. });
            if let Event::Rebuilt { member } = event {
                self.rebuilt.push((member, self.volume.epoch()));
            }
        }
        if self.volume.is_ready() {
            self.model.newest_epoch = self.model.newest_epoch.max(Some(self.volume.epoch()));
        }
        while let Some(completion) = self.volume.poll_completion() {
            self.model.on_completion(&completion)?;
            self.reads.insert(completion.id, completion);
        }
        // Members have the data that the volume assumes.
        if is_whole && !self.model.is_lost { self.inspect(Strictness::Excusing) } else { Ok(()) }
    }

    pub(super) fn into_parts(self) -> (Vec<Media>, Model) {
        (self.media, self.model)
    }
}

fn begin_mount(setup: Setup, media: &[Media], model: &Model, absent: u32) -> Result<Volume, VolumeError> {
    let geometry = |(at, media): (usize, &Media)| (absent >> at & 1 == 0).then(|| media.geometry().clone());
    let geometries = media.iter().enumerate().map(geometry).collect();
    let newest_epoch = model.newest_epoch.filter(|_| setup.knows_epoch);
    let options = MountOptions { newest_epoch, accepts_losses: setup.accepts_losses, ..MountOptions::default() };
    let mut volume = Volume::mount(geometries, setup.config().tuning, options)?;
    if let Some(bug) = setup.bug {
        volume.seed_bug(bug);
    }
    Ok(volume)
}
