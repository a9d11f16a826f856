//! One run of a scenario with conflict groups.

use std::collections::BTreeMap;

use zonda_sched::{
    ConflictGroup, EznsConfig, GroupLoad, Interference, InterferenceConfig, Request, RequestKind, Scheduled, SeededBug,
    Within, ZoneGroups,
};
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Instant, NamespaceId, Operation, Origin,
    PayloadKind, Prng, TenantId, ZoneIndex, ZonedDevice,
};

use super::drive::HiddenDrive;
use super::simulation::GroupsSimulation;
use crate::bug::Bug;
use crate::check::liveness::{Watch, asleep};
use crate::event_trace::{CommandRecord, End, EventTrace};
use crate::hash::Hash;
use crate::observe::CheckError;
use crate::options::{Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};

/// Ids of reads start here: those of random commands are below.
const READ_IDS: u64 = 1 << 40;

/// The state of one run of a scenario.
pub(crate) struct GroupsRun<'s> {
    simulation: &'s GroupsSimulation,
    options: &'s Options,
    device: Scheduled<HiddenDrive>,
    groups: ZoneGroups,
    oracle: ReferenceDevice,
    source: CommandSource,
    prng: Prng,
    /// Commands that were submitted and not released.
    waiting: BTreeMap<CommandId, Waiting>,
    /// Commands that were released: what the oracle has answered, the group that counts them, and
    /// whether it is a read.
    released: BTreeMap<CommandId, (Completion, Lane, bool)>,
    /// Those that are no reads.
    writes_in_flight: usize,
    /// Commands in flight by group; the last one is for those whose group is unknown.
    in_flight: Vec<u32>,
    watch: Watch,
    pub(crate) now: Instant,
    hash: Hash,
    pub(crate) trace: EventTrace,
    commands: u64,
    events: u64,
    reads: u64,
}

/// The group that counts a command: none for those that bypass the scheduler.
type Lane = Option<usize>;

struct Waiting {
    number: u64,
    command: Command,
    request: Request,
}

impl<'s> GroupsRun<'s> {
    pub(crate) fn new(simulation: &'s GroupsSimulation, options: &'s Options, trace: EventTrace) -> GroupsRun<'s> {
        let bug: Option<SeededBug> = match options.bug {
            Some(Bug::Groups(bug)) => Some(bug),
            _ => None,
        };
        let (root, geometry, table) = (&simulation.root, &simulation.geometry, &simulation.scheduler);
        let groups = ZoneGroups::new(table.of_zone.iter().map(|group| u32::try_from(*group).ok().map(ConflictGroup)));
        // Times of these drives, so that windows and tokens matter.
        let ezns = EznsConfig {
            read_latency_threshold: Duration(3 * simulation.drive.service_ns),
            token_capacity_bytes: 8 << 10,
            token_period: Duration(simulation.drive.service_ns),
            monitor_period: Duration(10 * simulation.drive.service_ns),
            block_latency: Duration(simulation.drive.service_ns),
            background_period: Duration(10 * simulation.drive.service_ns),
            ..EznsConfig::default()
        };
        let within = if table.is_ezns_within { Within::Ezns(ezns) } else { Within::Fair };
        let config = InterferenceConfig { within, learns: table.learns, ..InterferenceConfig::new(groups.clone()) };
        let scheduler = Interference::new(config).with_bug(bug);
        let drive = HiddenDrive::new(geometry, &simulation.drive, root.fork("times"));
        let in_flight_max = table.in_flight_max as usize;
        GroupsRun {
            device: Scheduled::new(drive, Box::new(scheduler)).with_in_flight_max(in_flight_max).recording_releases(),
            oracle: ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes),
            source: CommandSource::new(geometry, PayloadKind::Bytes, root.fork("commands")),
            prng: root.fork("run"),
            waiting: BTreeMap::new(),
            released: BTreeMap::new(),
            writes_in_flight: 0,
            in_flight: vec![0; groups.groups() as usize + 1],
            groups,
            watch: Watch::default(),
            now: Instant::ZERO,
            hash: Hash::default(),
            trace,
            commands: 0,
            events: 0,
            reads: 0,
            simulation,
            options,
        }
    }

    /// Runs to the end, or to the first error.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        let load = &self.simulation.load;
        while self.commands < load.commands || !self.is_idle() {
            self.events += 1;
            let outstanding = (self.waiting.len() + self.released.len()) as u64;
            let has_slot = self.commands < load.commands && outstanding < load.queue_depth;
            if has_slot && (outstanding == 0 || self.prng.chance(3, 4)) {
                self.submit()?;
            } else {
                self.poll()?;
            }
            if self.events.is_multiple_of(16) {
                self.device.check_invariants();
            }
        }
        self.device.check_invariants();
        let table = self.device.table().expect("the scheduler has a table");
        if self.simulation.is_right() && table.rejected > 0 {
            let message = format!("the table is right, and the scheduler has rejected it after {} reads", self.reads);
            return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
        }
        Ok(())
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            scenario: ScenarioKind::Groups,
            commands: self.commands,
            events: self.events,
            power_losses: 0,
            faults: 0,
            virtual_time: Duration(self.now.0),
            hash: self.hash.value(),
            failure: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.released.is_empty()
    }

    fn submit(&mut self) -> Result<(), CheckError> {
        if self.simulation.drive.changes_at == Some(self.commands) {
            self.device.inner_mut().change();
            self.trace.log(self.now, || "the hidden groups change".to_owned());
        }
        self.commands += 1;
        let command = self.next_command();
        let geometry = &self.simulation.geometry;
        self.hash.submission(self.now, &command);
        self.trace.command_submitted(CommandRecord::new(command.id, &command.operation, geometry, self.now));
        let request = match self.device.namespaces().geometry(command.namespace) {
            Some(geometry) => Request::of(&command, geometry, self.now),
            None => Request::to_nowhere(&command, self.now),
        };
        let waiting = Waiting { number: self.commands, command: command.clone(), request };
        self.waiting.insert(command.id, waiting);
        self.device.submit(self.now, command).expect("the queue of the scheduler is long");
        self.follow_releases()
    }

    fn next_command(&mut self) -> Command {
        let load = &self.simulation.load;
        let command = if self.prng.chance(load.reads_percent, 100) {
            self.reads += 1;
            let geometry = &self.simulation.geometry;
            let zone = ZoneIndex(self.prng.below(u64::from(geometry.zone_count)) as u32);
            let block = Blocks(self.prng.below(geometry.zone_capacity_blocks.0));
            let operation = Operation::Read { start: geometry.zone_start(zone) + block, blocks: Blocks(1) };
            Command::new(CommandId(READ_IDS + self.reads), NamespaceId::FIRST, operation)
        } else {
            self.source.next(&self.oracle)
        };
        let tenant = TenantId(self.prng.below(load.tenants) as u16);
        let command = command.with_origin(Origin { tenant, ..Origin::default() });
        if self.prng.chance(load.background_percent, 100) { command.in_background() } else { command }
    }

    fn poll(&mut self) -> Result<(), CheckError> {
        let Some(at) = self.device.next_timeout() else {
            return Err(asleep(&format!(
                "{} commands wait, {} are in flight",
                self.waiting.len(),
                self.released.len()
            )));
        };
        self.now = self.now.max(at);
        let mut completions = CompletionQueue::new();
        self.device.poll(self.now, &mut completions);
        if completions.is_empty() {
            let waiting = self.waiting.len();
            self.watch.check(self.now, || format!("{waiting} commands wait"))?;
        }
        while let Some(completion) = completions.pop() {
            self.watch.progress(self.now);
            self.hash.completion(self.now, &completion);
            self.trace.command_ended(completion.id, End::Completed(self.now, completion.status));
            let Some((expected, lane, is_read)) = self.released.remove(&completion.id) else {
                let message = format!("command {} has completed and was not in flight", completion.id.0);
                return Err(CheckError::new(FailureKind::StrayCompletion, None, message));
            };
            if completion != expected {
                let message =
                    format!("command {} completed with {completion:?}, expected {expected:?}", completion.id.0);
                return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
            }
            if let Some(lane) = lane {
                self.in_flight[lane] -= 1;
            }
            self.writes_in_flight -= usize::from(!is_read);
        }
        self.follow_releases()?;
        self.check_counts()
    }

    /// Executes released commands on the oracle, and checks that each was the scheduler's to choose.
    fn follow_releases(&mut self) -> Result<(), CheckError> {
        while let Some(id) = self.device.take_release() {
            let released = self.waiting.remove(&id).expect("a command is released once");
            let earlier = |other: &&Waiting| other.number < released.number;
            let overtaken = self.waiting.values().filter(earlier);
            if let Some(first) = overtaken.into_iter().find(|other| released.request.must_wait_for(&other.request)) {
                let message = format!("command {} was released before command {}", id.0, first.command.id.0);
                return Err(CheckError::new(FailureKind::WrongOrder, None, message));
            }
            let lane = self.lane_of(&released.request);
            self.check_choice(&released, lane)?;
            if let Some(lane) = lane {
                self.in_flight[lane] += 1;
            }
            let is_read = released.request.kind == RequestKind::Read;
            self.writes_in_flight += usize::from(!is_read);
            if self.writes_in_flight > self.slots_of_writes() {
                let message = format!("command {} was released into a slot that is for reads", id.0);
                return Err(CheckError::new(FailureKind::WrongOrder, None, message));
            }
            let completion = self.oracle.execute(&released.command);
            self.released.insert(id, (completion, lane, is_read));
        }
        Ok(())
    }

    /// A quarter of the slots is for reads.
    fn slots_of_writes(&self) -> usize {
        let slots = self.simulation.scheduler.in_flight_max as usize;
        slots - slots / 4
    }

    fn lane_of(&self, request: &Request) -> Lane {
        let is_scheduled = matches!(request.kind, RequestKind::Read | RequestKind::Write | RequestKind::Append);
        let unknown = self.in_flight.len() - 1;
        let is_known = request.namespace == NamespaceId::FIRST;
        let group = is_known.then(|| self.groups.group_of_all(request.zones.clone())).flatten();
        is_scheduled.then(|| group.map_or(unknown, |group| group.0 as usize))
    }

    /// No group with fewer commands in flight had a command that could be released.
    fn check_choice(&self, released: &Waiting, lane: Lane) -> Result<(), CheckError> {
        let table = &self.simulation.scheduler;
        let Some(lane) = lane else { return Ok(()) };
        if table.learns || table.is_ezns_within || !self.simulation.is_never_full() {
            return Ok(());
        }
        for other in self.waiting.values() {
            let Some(other_lane) = self.lane_of(&other.request) else { continue };
            let waits =
                |earlier: &&Waiting| earlier.number < other.number && other.request.must_wait_for(&earlier.request);
            let has_slot = other.request.kind == RequestKind::Read || self.writes_in_flight < self.slots_of_writes();
            let is_fewer = has_slot && self.in_flight[other_lane] < self.in_flight[lane];
            if is_fewer && !waits(&released) && !self.waiting.values().any(|earlier| waits(&earlier)) {
                let message = format!(
                    "command {} was released with {} in flight in its group, before command {} with {}",
                    released.command.id.0, self.in_flight[lane], other.command.id.0, self.in_flight[other_lane]
                );
                return Err(CheckError::new(FailureKind::WrongOrder, None, message));
            }
        }
        Ok(())
    }

    /// The scheduler counts the commands in flight of each group.
    fn check_counts(&self) -> Result<(), CheckError> {
        let unknown = self.in_flight.len() - 1;
        let of = |load: &GroupLoad| (load.group.map_or(unknown, |group| group.0 as usize), load.in_flight);
        let reported: BTreeMap<usize, u32> =
            self.device.group_loads().iter().map(of).filter(|(_, count)| *count > 0).collect();
        let actual: BTreeMap<usize, u32> =
            self.in_flight.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
        if reported == actual {
            return Ok(());
        }
        let message =
            format!("the scheduler counts {reported:?} commands in flight by group, and there are {actual:?}");
        Err(CheckError::new(FailureKind::WrongAnswer, None, message))
    }
}
