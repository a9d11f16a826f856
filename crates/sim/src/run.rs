//! One run of a drive: the host submits commands, time advances to the next event, completions are
//! checked, faults are injected.

use std::collections::BTreeMap;

use zonda_layers::{FaultEffect, OperationKind, Shared};
use zonda_ssd::Ssd;
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Instant, NamespaceId, Prng, QueueFull, Status,
    ZoneIndex, ZoneState, ZoneType, ZonedDevice,
};

use crate::bug::Bug;
use crate::check::{answers, limits, liveness, quiescent};
use crate::event_trace::{CommandRecord, End, EventTrace};
use crate::hash::Hash;
use crate::ledger::Ledger;
use crate::load::Host;
use crate::observe::{CheckError, observe};
use crate::options::{Mode, Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};
use crate::power;
use crate::simulation::Simulation;
use crate::stack::Stack;

/// The state of one run of a simulation.
pub(crate) struct Run<'s> {
    pub(crate) simulation: &'s Simulation,
    pub(crate) options: &'s Options,
    /// `None` only while power is off.
    pub(crate) machine: Option<Machine>,
    pub(crate) oracle: ReferenceDevice,
    pub(crate) ledger: Ledger,
    host: Host,
    pub(crate) flights: BTreeMap<CommandId, Flight>,
    /// A command that the stack refused because its queue was full.
    pub(crate) refused: Option<Command>,
    pub(crate) now: Instant,
    pub(crate) hash: Hash,
    pub(crate) trace: EventTrace,
    watch: liveness::Watch,
    completions: CompletionQueue,
    commands: u64,
    events: u64,
    pub(crate) power_losses: u64,
    faults: u64,
    pub(crate) power_prng: Prng,
    next_power_loss: u64,
    degradation_prng: Prng,
    next_degradation: u64,
}

/// A drive with power, and the stack over it.
pub(crate) struct Machine {
    pub(crate) drive: Shared<Ssd>,
    pub(crate) stack: Stack,
}

/// A command in flight.
pub(crate) struct Flight {
    expected: Completion,
    /// Whether a successful completion acknowledges its effect.
    acknowledges: bool,
    /// It is lost, and ends when the host aborts it.
    is_dropped: bool,
    record: CommandRecord,
}

impl Machine {
    /// Builds the stack over a drive after power-on.
    pub(crate) fn new(simulation: &Simulation, drive: Ssd, life: u64) -> Machine {
        let drive = Shared::new(drive);
        let stack = Stack::new(simulation, &drive, life);
        Machine { drive, stack }
    }
}

impl<'s> Run<'s> {
    pub(crate) fn new(simulation: &'s Simulation, options: &'s Options, trace: EventTrace) -> Run<'s> {
        let mut drive = Ssd::new(&simulation.profile, simulation.keeps, &simulation.root.fork("life/0"));
        if let Some(Bug::Drive(bug)) = options.bug {
            drive.seed_bug(bug);
        }
        let mut run = Run {
            machine: Some(Machine::new(simulation, drive, 0)),
            oracle: ReferenceDevice::new(simulation.geometry.clone(), simulation.keeps),
            ledger: Ledger::new(&simulation.geometry),
            host: Host::new(simulation),
            flights: BTreeMap::new(),
            refused: None,
            now: Instant::ZERO,
            hash: Hash::default(),
            trace,
            watch: liveness::Watch::default(),
            completions: CompletionQueue::new(),
            commands: 0,
            events: 0,
            power_losses: 0,
            faults: 0,
            power_prng: simulation.root.fork("power losses"),
            next_power_loss: u64::MAX,
            degradation_prng: simulation.root.fork("degradations"),
            next_degradation: u64::MAX,
            simulation,
            options,
        };
        run.schedule_power_loss();
        run.schedule_degradation();
        run
    }

    /// Runs to the end, or to the first error.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        let mut phase_end = self.simulation.load.phase_commands;
        while self.commands < self.simulation.load.commands {
            self.step()?;
            if self.commands >= phase_end {
                self.quiesce()?;
                phase_end = self.commands.saturating_add(self.simulation.load.phase_commands);
            }
        }
        if self.simulation.power_loss_every.is_some() && self.power_prng.chance(1, 2) {
            power::lose(self)?;
        }
        self.quiesce()
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            scenario: ScenarioKind::Drive,
            commands: self.commands,
            events: self.events,
            power_losses: self.power_losses,
            faults: self.faults,
            virtual_time: self.now.since(Instant::ZERO),
            hash: self.hash.value(),
            failure: None,
        }
    }

    /// One event: a fault is injected, the host submits a command, or time advances to the stack's
    /// next wakeup.
    fn step(&mut self) -> Result<(), CheckError> {
        if self.events >= self.next_power_loss {
            power::lose(self)?;
            self.schedule_power_loss();
        }
        if self.events >= self.next_degradation {
            self.degrade();
            self.schedule_degradation();
        }
        self.events += 1;
        let wakeup = self.machine().stack.next_timeout();
        let has_slot = self.flights.len() < self.simulation.load.queue_depth && self.refused.is_none();
        let ready_at = self.host.ready_at().max(self.now);
        if has_slot && wakeup.is_none_or(|wakeup| ready_at <= wakeup) {
            self.now = ready_at;
            let command = self.host.next(&self.oracle);
            self.submit(&command);
        } else {
            self.poll(wakeup)?;
            if let Some(command) = self.refused.take() {
                self.submit(&command);
            }
        }
        if self.events.is_multiple_of(self.simulation.check_every) {
            self.check_drive()?;
        }
        Ok(())
    }

    /// Submits a command to the stack. It takes effect at once, on the drive, the oracle and the
    /// ledger.
    fn submit(&mut self, command: &Command) {
        let now = self.now;
        let fault = match self.machine().stack.submit(now, command.clone()) {
            Ok(fault) => fault,
            Err(QueueFull(back)) => {
                assert_eq!(back, *command, "a refused command is returned unchanged");
                self.refused = Some(back);
                return;
            }
        };
        let id = command.id;
        let mut expected = match fault {
            Some(FaultEffect::Fail(status)) => Completion::of(id, status),
            Some(FaultEffect::Drop) => Completion::of(id, Status::AbortRequested),
            _ => self.take_effect(command),
        };
        match fault {
            Some(FaultEffect::FailAfter(status)) if expected.status.is_success() => {
                expected = Completion::of(id, status);
            }
            Some(FaultEffect::DropAfter) => expected = Completion::of(id, Status::AbortRequested),
            _ => {}
        }
        self.faults += u64::from(fault.is_some());
        self.commands += 1;
        self.host.pause(now);
        self.hash.submission(now, command);
        let record = CommandRecord::new(id, &command.operation, &self.simulation.geometry, now);
        self.trace.command_submitted(record);
        if self.flights.is_empty() {
            self.watch.progress(now);
        }
        let flight = Flight {
            acknowledges: fault.is_none(),
            is_dropped: matches!(fault, Some(FaultEffect::Drop | FaultEffect::DropAfter)),
            expected,
            record,
        };
        self.flights.insert(id, flight);
    }

    fn take_effect(&mut self, command: &Command) -> Completion {
        let expected = self.oracle.execute(command);
        if expected.status.is_success() {
            self.ledger.take(command.id, &command.operation, &expected.outcome);
        }
        expected
    }

    /// Advances to the stack's next wakeup, and checks the completions.
    fn poll(&mut self, wakeup: Option<Instant>) -> Result<(), CheckError> {
        let Some(wakeup) = wakeup else { return self.wake_up() };
        self.now = self.now.max(wakeup);
        let now = self.now;
        let mut completions = std::mem::take(&mut self.completions);
        self.machine().stack.poll(now, &mut completions);
        let has_ended = !completions.is_empty();
        let mut result = Ok(());
        while let (Ok(()), Some(completion)) = (&result, completions.pop()) {
            result = self.end(&completion);
        }
        self.completions = completions;
        result?;
        if has_ended || self.flights.is_empty() {
            self.watch.progress(now);
        }
        let flights = &self.flights;
        self.watch.check(now, || oldest(flights))
    }

    /// The stack has no wakeup. If that is because all commands in flight are lost, the host aborts
    /// them.
    fn wake_up(&mut self) -> Result<(), CheckError> {
        let now = self.now;
        let is_lost = self.flights.values().all(|flight| flight.is_dropped);
        if is_lost && self.machine().stack.abort_dropped(now) > 0 {
            return Ok(());
        }
        if self.flights.is_empty() && self.refused.is_none() {
            return Ok(());
        }
        self.flights.retain(|_, flight| !flight.is_dropped);
        Err(liveness::asleep(&oldest(&self.flights)))
    }

    fn end(&mut self, completion: &Completion) -> Result<(), CheckError> {
        let now = self.now;
        self.hash.completion(now, completion);
        let Some(flight) = self.flights.remove(&completion.id) else {
            let message = format!("command {} completed but is not in flight", completion.id);
            return Err(CheckError::new(FailureKind::StrayCompletion, None, message));
        };
        self.trace.command_ended(completion.id, End::Completed(now, completion.status));
        let zone = flight.record.place.map(|(zone, _)| zone);
        answers::check(flight.record.kind.name(), &flight.expected, completion)
            .map_err(|error| CheckError { zone, ..error })?;
        if flight.acknowledges && completion.status.is_success() {
            self.ledger.acknowledge(completion.id);
        }
        match self.options.mode {
            Mode::Lite => self.machine().drive.clone().with_inner(|drive| quiescent::check_views(&self.oracle, drive)),
            Mode::Performance => {
                liveness::check_latency(|| flight.record.name(), now.since(flight.record.submitted_at))
            }
            Mode::Swarm => Ok(()),
        }
    }

    /// Stops faults and waits until every command in flight has ended; then the drive must equal
    /// the oracle.
    fn quiesce(&mut self) -> Result<(), CheckError> {
        while !self.flights.is_empty() || self.refused.is_some() {
            self.events += 1;
            let now = self.now;
            self.machine().stack.abort_dropped(now);
            let wakeup = self.machine().stack.next_timeout();
            self.poll(wakeup)?;
            if let Some(command) = self.refused.take() {
                self.submit(&command);
            }
        }
        self.ledger.apply_all();
        self.verify()?;
        self.trace.log(self.now, || "quiescent: all zones and blocks match the oracle".to_owned());
        Ok(())
    }

    /// Compares the whole quiescent drive with the oracle.
    fn verify(&mut self) -> Result<(), CheckError> {
        let (now, keeps) = (self.now, self.simulation.keeps);
        let (mut seen, now) = observe(&mut self.machine().drive, now, keeps)?;
        self.now = now;
        limits::check(&self.simulation.profile.geometry(), &seen)?;
        let host = seen.drain(self.simulation.host_zones()).collect::<Vec<_>>();
        quiescent::check(&self.oracle, &host, keeps)?;
        self.check_drive()
    }

    pub(crate) fn check_drive(&mut self) -> Result<(), CheckError> {
        self.machine().drive.with_inner(Ssd::check_invariants);
        Ok(())
    }

    /// Degrades a zone, on the drive, the oracle and the ledger.
    fn degrade(&mut self) {
        let geometry = self.oracle.geometry(NamespaceId::FIRST);
        let zones: Vec<ZoneIndex> = (0..geometry.zone_count)
            .map(ZoneIndex)
            .filter(|zone| geometry.zone_type(*zone) == ZoneType::SequentialWriteRequired)
            .collect();
        let healthy =
            |zone: &ZoneIndex| !matches!(self.oracle.image(*zone).state, ZoneState::ReadOnly | ZoneState::Offline);
        // At least half of the zones stay healthy, or nothing would be left to test.
        if zones.iter().filter(|zone| healthy(zone)).count() * 2 <= zones.len() {
            return;
        }
        let zone = *self.degradation_prng.pick(&zones).expect("at least half of the zones are healthy");
        let to = if self.degradation_prng.chance(2, 3) { ZoneState::ReadOnly } else { ZoneState::Offline };
        if self.oracle.image(zone).state == ZoneState::Offline {
            return;
        }
        self.faults += 1;
        self.machine().drive.with_inner_mut(|drive| drive.degrade(zone, to));
        self.oracle.degrade(zone, to);
        self.ledger.degrade(zone, to);
        self.hash.mix(u64::from(zone.0) << 8 | u64::from(to.code()));
        self.trace.log(self.now, || format!("zone {zone} enters the state {to}"));
    }

    pub(crate) fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("power is on")
    }

    fn schedule_power_loss(&mut self) {
        let Some(every) = self.simulation.power_loss_every else { return };
        self.next_power_loss = self.events + 1 + self.power_prng.below(2 * every);
    }

    fn schedule_degradation(&mut self) {
        let Some(every) = self.simulation.degradation_every else { return };
        self.next_degradation = self.events + 1 + self.degradation_prng.below(2 * every);
    }

    /// Drops the commands that were in flight when power was lost.
    pub(crate) fn forget_flights(&mut self) {
        for id in std::mem::take(&mut self.flights).into_keys() {
            self.trace.command_ended(id, End::Lost);
        }
        self.refused = None;
        self.watch.progress(self.now);
    }

    /// How long power is off.
    pub(crate) fn random_outage(&mut self) -> Duration {
        Duration(self.power_prng.below(1_000_000_000))
    }
}

/// Describes the oldest command in flight.
fn oldest(flights: &BTreeMap<CommandId, Flight>) -> String {
    match flights.values().next() {
        Some(flight) => {
            format!(
                "{}, submitted at {}, never completed ({} in flight)",
                flight.record.name(),
                flight.record.submitted_at,
                { flights.len() }
            )
        }
        None => "a refused command is never accepted".to_owned(),
    }
}

/// The kind of an operation as a number, for the hash.
pub(crate) fn kind_number(command: &Command) -> u64 {
    OperationKind::of(&command.operation) as u64
}
