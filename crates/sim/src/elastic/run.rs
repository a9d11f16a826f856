//! One run of a pool scenario: the loop of events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_elastic::testing::Crash;
use zonda_elastic::{ElasticDevice, Pool, PoolEvent, PoolId};
use zonda_layers::Shared;
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Instant, NamespaceId, Operation, Prng, QueueFull,
    ZoneIndex, ZoneState, ZonedDevice,
};

use super::ElasticBug;
use super::drive::Drive;
use super::host::{Flight, Stage, Tenant};
use super::simulation::ElasticSimulation;
use crate::bug::Bug;
use crate::event_trace::{CommandRecord, End, EventTrace};
use crate::hash::Hash;
use crate::observe::CheckError;
use crate::options::{Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};

/// The identity of every pool.
pub(super) const ID: PoolId = PoolId([9; 16]);
/// A command that takes longer, once no more are submitted and no faults are injected, never completes.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(300);
/// Steps without an effect on the host in which everything must have ended.
const STEPS_MAX: u64 = 3_000_000;

pub(super) type Device = ElasticDevice<Box<dyn ZonedDevice>>;

/// One run of a simulation.
pub(crate) struct ElasticRun<'s> {
    pub(super) simulation: &'s ElasticSimulation,
    options: &'s Options,
    pub(crate) trace: EventTrace,
    pub(crate) now: Instant,
    pub(super) prng: Prng,
    pub(super) bug: Option<ElasticBug>,
    pub(super) drive: Option<Shared<Drive>>,
    pub(super) device: Option<Device>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) flights: BTreeMap<u64, Flight>,
    /// Completions of the commands of a check.
    pub(super) probed: BTreeMap<u64, Completion>,
    /// Zones of the drive of which a command has failed, or that have failed.
    pub(super) touched: BTreeSet<u32>,
    /// Zones of the drive below those of tenants, before the last step.
    below: Vec<((NamespaceId, usize), u32)>,
    /// Management commands or flushes have failed: the drive may have more active zones than the pool
    /// counts on.
    pub(super) had_management_faults: bool,
    /// Writes have found no space in this life.
    pub(super) lacked_space: bool,
    /// One copy of the log could not be written for some time.
    log_was_single: bool,
    /// The pool was opened, and its host knows what it holds.
    pub(super) is_mounted: bool,
    /// Commands that a pool did not take because it is about to be opened again.
    pub(super) stalled: VecDeque<Command>,
    /// Records could not be written in this life.
    pub(super) is_read_only: bool,
    /// The last epoch that is known.
    pub(super) epoch: u64,
    pub(super) next_id: u64,
    pub(super) next_write: u64,
    pub(super) next_tenant: u64,
    pub(super) commands: u64,
    pub(super) events: u64,
    pub(super) crashes: u64,
    pub(super) faults: u64,
    pub(super) hash: Hash,
}

impl<'s> ElasticRun<'s> {
    pub(crate) fn new(simulation: &'s ElasticSimulation, options: &'s Options, trace: EventTrace) -> ElasticRun<'s> {
        let bug = match options.bug {
            Some(Bug::Elastic(bug)) => Some(bug),
            _ => None,
        };
        ElasticRun {
            simulation,
            options,
            trace,
            now: Instant(1),
            prng: simulation.root.fork("run"),
            bug,
            drive: None,
            device: None,
            tenants: Vec::new(),
            flights: BTreeMap::new(),
            probed: BTreeMap::new(),
            touched: BTreeSet::new(),
            below: Vec::new(),
            had_management_faults: false,
            lacked_space: false,
            log_was_single: false,
            is_mounted: false,
            stalled: VecDeque::new(),
            is_read_only: false,
            epoch: 0,
            next_id: 0,
            next_write: 1,
            next_tenant: 1,
            commands: 0,
            events: 0,
            crashes: 0,
            faults: 0,
            hash: Hash::default(),
        }
    }

    /// Runs to the end, or to the first error.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        self.create()?;
        for life in 0..self.simulation.load.lives {
            self.live()?;
            let is_last = life + 1 == self.simulation.load.lives;
            if is_last || self.prng.chance(1, 4) {
                self.quiesce()?;
                self.check_quiescent()?;
                if is_last {
                    self.verify(None)?;
                }
            }
            if !is_last {
                self.crash_and_mount()?;
            }
        }
        Ok(())
    }

    /// The load of a life.
    fn live(&mut self) -> Result<(), CheckError> {
        self.set_faults(true);
        let load = &self.simulation.load;
        let mut commands_left = load.commands_of_life / 2 + self.prng.below(load.commands_of_life);
        let mut steps_left = 20 * load.commands_of_life;
        while commands_left > 0 && steps_left > 0 && !self.tenants.is_empty() {
            steps_left -= 1;
            for _ in 0..=self.prng.below(3) {
                if self.flights.len() < load.queue_depth && self.commands < load.commands && self.act()? {
                    commands_left = commands_left.saturating_sub(1);
                }
            }
            self.change_namespaces()?;
            self.degrade();
            self.fill_up();
            self.look_again()?;
            if load.pauses_every > 0 && self.prng.chance(1, load.pauses_every) {
                self.now += Duration(self.prng.below(3_000_000_000));
            }
            if !self.step()? && self.flights.is_empty() && self.commands >= load.commands {
                break;
            }
        }
        Ok(())
    }

    /// Advances to the next event. Returns whether there was any.
    pub(super) fn step(&mut self) -> Result<bool, CheckError> {
        self.events += 1;
        let wakeup = self.device().next_timeout();
        if let Some(at) = wakeup {
            self.now = self.now.max(at);
        }
        let now = self.now;
        let mut queue = CompletionQueue::new();
        self.remember_zones();
        self.device().poll(now, &mut queue);
        let pool = self.device.as_ref().and_then(Device::pool);
        self.log_was_single |= pool.is_some_and(|pool| pool.is_started() && pool.log_copies() < 2);
        self.submit_stalled();
        self.take_events()?;
        while let Some(completion) = queue.pop() {
            self.hash.completion(now, &completion);
            self.trace.command_ended(completion.id, End::Completed(now, completion.status));
            self.on_completion(completion)?;
        }
        if self.events.is_multiple_of(self.simulation.events.check_every) {
            self.check()?;
        }
        Ok(wakeup.is_some())
    }

    /// What has happened on the drive.
    pub(super) fn take_seen(&mut self) -> Result<(), CheckError> {
        let seen = self.drive().with_inner_mut(|drive| std::mem::take(&mut drive.seen));
        self.faults += seen.faults;
        self.touched.extend(seen.zones);
        self.had_management_faults |= seen.management_faults > 0;
        self.lacked_space |= seen.lacked_space;
        match seen.over_limit {
            Some(status) => {
                let message = format!("the pool has caused \"{status}\" on the drive");
                Err(CheckError::new(FailureKind::LimitExceeded, None, message))
            }
            None => Ok(()),
        }
    }

    /// What the pool has reported so far, and what has happened on the drive before.
    pub(super) fn take_events(&mut self) -> Result<(), CheckError> {
        self.take_seen()?;
        while let Some(event) = self.device().poll_event() {
            self.on_event(event)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: PoolEvent) -> Result<(), CheckError> {
        let now = self.now;
        self.trace.log(now, || format!("{event:?}"));
        let tenant = |id: NamespaceId| move |tenant: &Tenant| tenant.id == id;
        match event {
            PoolEvent::Started { is_recorded } => {
                // Opened again, it can record what it could not before.
                self.is_read_only = !is_recorded;
                if self.is_mounted {
                    self.adopt_namespaces(is_recorded);
                    self.tenants.iter_mut().flat_map(|own| &mut own.zones).for_each(|zone| zone.reopenings += 1);
                }
            }
            PoolEvent::ReadOnly => {
                self.is_read_only = true;
                if !self.had_management_faults && !self.lacked_space && self.touched.iter().all(|zone| *zone >= 6) {
                    let message = "the pool is read only, and its log has not failed".to_owned();
                    return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
                }
            }
            PoolEvent::Created { namespace, is_durable } => {
                if is_durable {
                    let found = self.tenants.iter_mut().find(|tenant| tenant.id == namespace);
                    found.expect("it was created").stage = Stage::Live;
                }
                // Otherwise a mount may find it.
            }
            PoolEvent::Resized { namespace, is_durable } => {
                if let Some(place) = self.tenants.iter().position(tenant(namespace))
                    && is_durable
                {
                    self.tenants[place].resized_from = None;
                }
            }
            PoolEvent::Deleted { namespace } => self.tenants.retain(|tenant| tenant.id != namespace),
        }
        Ok(())
    }

    /// Ends everything that is in flight, without faults.
    pub(super) fn quiesce(&mut self) -> Result<(), CheckError> {
        self.set_faults(false);
        let start = self.now;
        for _ in 0..STEPS_MAX {
            let is_changing = self.tenants.iter().any(|tenant| !matches!(tenant.stage, Stage::Live | Stage::Draining));
            let is_over = self.flights.is_empty() && (!is_changing || self.is_read_only);
            if is_over && self.drive().with_inner(Drive::outstanding) == 0 {
                return Ok(());
            }
            let has_event = self.step()?;
            if (!has_event && !is_over) || self.now.since(start) > COMMAND_TIME_MAX {
                break;
            }
        }
        let flight = self.flights.iter().next().map(|(id, flight)| format!("{id}: {flight:?}"));
        let what = flight.map_or_else(|| "a change of a namespace".to_owned(), |flight| format!("command {flight}"));
        Err(CheckError::new(FailureKind::Starved, None, format!("{what} does not end")))
    }

    /// Submits a command of a tenant.
    pub(super) fn submit(&mut self, namespace: NamespaceId, flight: Flight, operation: Operation) {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        let command = Command::new(id, namespace, operation);
        if let Some(geometry) = self.device().namespaces().geometry(namespace).cloned() {
            let mut record = CommandRecord::new(id, &command.operation, &geometry, self.now);
            record.host = Some(namespace.0);
            self.trace.command_submitted(record);
        }
        self.hash.submission(self.now, &command);
        let now = self.now;
        self.flights.insert(id.0, flight);
        if let Err(QueueFull(command)) = self.device().submit(now, command) {
            assert!(self.lacked_space || self.is_read_only, "a pool accepts so few commands");
            self.stalled.push_back(command);
        }
    }

    fn submit_stalled(&mut self) {
        let now = self.now;
        while let Some(command) = self.stalled.pop_front() {
            if let Err(QueueFull(command)) = self.device().submit(now, command) {
                self.stalled.push_front(command);
                return;
            }
        }
    }

    /// The pool was opened again while it was in use: changes of namespaces that were not recorded may
    /// have happened or not.
    fn adopt_namespaces(&mut self, is_recorded: bool) {
        let listed: BTreeMap<NamespaceId, u32> =
            self.pool().namespaces().iter().map(|(id, geometry)| (id, geometry.zone_count)).collect();
        let log_is_old = self.log_is_old();
        self.tenants.retain_mut(|tenant| {
            let Some(zones) = listed.get(&tenant.id) else {
                return !is_recorded || !(log_is_old || matches!(tenant.stage, Stage::Creating | Stage::Deleting));
            };
            let zones_before = tenant.zones.len() as u32;
            tenant.zones.resize_with(*zones as usize, Default::default);
            // What is not recorded may be otherwise at the next mount.
            let may_change = tenant.resized_from.is_some() && !is_recorded;
            let other = if zones_before == *zones { tenant.resized_from } else { Some(zones_before) };
            tenant.resized_from = other.filter(|_| may_change);
            tenant.stage = match tenant.stage {
                Stage::Creating if is_recorded => Stage::Live,
                Stage::Deleting if is_recorded => Stage::Draining,
                stage => stage,
            };
            true
        });
    }

    /// The drive has no space, or has some again, now and then.
    fn fill_up(&mut self) {
        let every = self.simulation.faults.full_every;
        if every > 0 && self.prng.chance(1, every) {
            let is_full = self.drive().with_inner_mut(|drive| {
                drive.set_full(!drive.is_full());
                drive.is_full()
            });
            let what = if is_full { "the drive has no space" } else { "the drive has space again" };
            self.trace.log(self.now, || what.to_owned());
        }
    }

    /// Executes commands beside which none is in flight.
    pub(super) fn execute_all(
        &mut self,
        operations: Vec<(NamespaceId, Operation)>,
    ) -> Result<Vec<Completion>, CheckError> {
        let first = self.next_id;
        let count = operations.len() as u64;
        for (namespace, operation) in operations {
            self.submit(namespace, Flight::Probe, operation);
            while self.flights.len() >= 32 {
                self.step_until_end()?;
            }
        }
        while !self.flights.is_empty() {
            self.step_until_end()?;
        }
        let probed = std::mem::take(&mut self.probed);
        assert_eq!(probed.len() as u64, count, "each command has ended, from {first} on");
        Ok(probed.into_values().collect())
    }

    fn step_until_end(&mut self) -> Result<(), CheckError> {
        let start = self.now;
        if !self.step()? || self.now.since(start) > COMMAND_TIME_MAX {
            let message = "a command of a check does not end".to_owned();
            return Err(CheckError::new(FailureKind::Starved, None, message));
        }
        Ok(())
    }

    /// A zone of the drive fails, now and then.
    fn degrade(&mut self) {
        let every = self.simulation.events.degradations_every;
        if every == 0 || !self.prng.chance(1, every) {
            return;
        }
        let zone = self.prng.below(self.simulation.geometry.zone_count.into()) as u32;
        let is_spared = zone < 6 && self.simulation.faults.log_copy != Some(zone % 2);
        let failed = self.touched.len() as u32;
        if is_spared || failed > self.simulation.geometry.zone_count / 8 {
            return;
        }
        let to = if self.prng.chance(1, 2) { ZoneState::ReadOnly } else { ZoneState::Offline };
        if self.drive().with_inner_mut(|drive| drive.degrade(zone, to)) {
            self.faults += 1;
            self.touched.insert(zone);
            self.trace.log(self.now, || format!("zone {zone} of the drive becomes {to}"));
        }
    }

    pub(super) fn set_faults(&mut self, are_on: bool) {
        self.drive().with_inner_mut(|drive| {
            drive.has_faults = are_on;
            drive.set_full(drive.is_full() && are_on);
        });
    }

    pub(super) fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("the pool runs")
    }

    pub(super) fn pool(&self) -> &Pool {
        self.device.as_ref().and_then(Device::pool).expect("the pool is open")
    }

    pub(super) fn drive(&self) -> &Shared<Drive> {
        self.drive.as_ref().expect("the drive has power")
    }

    /// Remembers which zones of the drive are below each tenant's, while some have failed: a reset may
    /// take them away in the step in which an error arrives that they explain.
    fn remember_zones(&mut self) {
        self.below.clear();
        // The next event may be the first fault.
        if self.touched.is_empty() && !self.simulation.faults.any_fails() {
            return;
        }
        let Some(pool) = self.device.as_ref().and_then(Device::pool) else { return };
        for tenant in &self.tenants {
            for zone in 0..tenant.zones.len() {
                let below = pool.physical_zones(tenant.id, ZoneIndex(zone as u32));
                self.below.extend(below.into_iter().map(|physical| ((tenant.id, zone), physical.0)));
            }
        }
    }

    /// Whether errors of a zone of a tenant are explained by failures below it.
    pub(super) fn is_excused(&self, tenant: usize, zone: usize) -> bool {
        let own = &self.tenants[tenant];
        let (crashes, reopenings) = (own.zones[zone].crashes, own.zones[zone].reopenings);
        // A zone that fails is recorded after another may have become active instead: more are active than
        // the namespace may have, and a mount makes one of them read only.
        let is_torn = own.zones.iter().any(|zone| zone.has_failed)
            || crashes + reopenings >= self.pool().shape().tears_max()
            || (crashes > 0 && self.simulation.pool.is_volatile);
        let physical = self.pool().physical_zones(own.id, ZoneIndex(zone as u32));
        let before = self.below.iter().filter(|(above, _)| *above == (own.id, zone)).map(|(_, below)| *below);
        let mut below = physical.iter().map(|zone| zone.0).chain(before);
        is_torn || self.log_is_old() || self.is_read_only || below.any(|zone| self.touched.contains(&zone))
    }

    /// Whether a mount may take an older copy of the log: the other one was the only one for some time,
    /// and a zone of the log has failed.
    pub(super) fn log_is_old(&self) -> bool {
        self.log_was_single && self.touched.iter().any(|zone| *zone < 6)
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            scenario: ScenarioKind::Elastic,
            commands: self.commands,
            events: self.events,
            power_losses: self.crashes,
            faults: self.faults,
            virtual_time: Duration(self.now.0),
            hash: self.hash.value(),
            failure: None,
        }
    }
}

/// The name of a crash in the event trace.
pub(super) fn crash_name(crash: Crash) -> &'static str {
    match crash {
        Crash::Kill => "the program is killed",
        Crash::PowerLoss => "the drive loses power",
        Crash::CacheLoss => "the drive loses power, and its cache",
    }
}
