//! One run of a world: the host submits, time jumps to the next event, completions are checked, the world interferes.

use std::collections::BTreeMap;

use zonda_layers::{FaultEffect, OperationKind, Shared};
use zonda_ssd::Ssd;
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Instant, NamespaceId, Prng, QueueFull, Status,
    ZoneIndex, ZoneState, ZoneType, ZonedDevice,
};

use crate::check::{answers, limits, liveness, quiet};
use crate::hash::Hash;
use crate::ledger::Ledger;
use crate::load::Host;
use crate::options::{Bug, Mode, Options, WorldKind};
use crate::outcome::{FailureKind, Outcome};
use crate::power;
use crate::stack::Stack;
use crate::story::{End, Teller, Told};
use crate::survey::{Trouble, survey};
use crate::world::World;

/// One run of a world, with everything that changes in it.
pub(crate) struct Run<'w> {
    pub(crate) world: &'w World,
    pub(crate) options: &'w Options,
    /// Absent only while the power is off.
    pub(crate) machine: Option<Machine>,
    pub(crate) oracle: ReferenceDevice,
    pub(crate) ledger: Ledger,
    host: Host,
    pub(crate) flights: BTreeMap<CommandId, Flight>,
    /// A command that the stack had no room for.
    pub(crate) refused: Option<Command>,
    pub(crate) now: Instant,
    pub(crate) hash: Hash,
    pub(crate) teller: Teller,
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

/// A command under way.
pub(crate) struct Flight {
    expected: Completion,
    /// Whether its completion tells the host that it has happened.
    acknowledges: bool,
    /// It is lost on its way, and ends when the host gives up.
    is_dropped: bool,
    told: Told,
}

impl Machine {
    /// Puts a stack over a drive that has just got power.
    pub(crate) fn new(world: &World, drive: Ssd, life: u64) -> Machine {
        let drive = Shared::new(drive);
        let stack = Stack::new(world, &drive, life);
        Machine { drive, stack }
    }
}

impl<'w> Run<'w> {
    pub(crate) fn new(world: &'w World, options: &'w Options, teller: Teller) -> Run<'w> {
        let mut drive = Ssd::new(&world.profile, world.keeps, &world.root.fork("life/0"));
        if let Some(Bug::Drive(bug)) = options.bug {
            drive.plant(bug);
        }
        let mut run = Run {
            machine: Some(Machine::new(world, drive, 0)),
            oracle: ReferenceDevice::new(world.geometry.clone(), world.keeps),
            ledger: Ledger::new(&world.geometry),
            host: Host::new(world),
            flights: BTreeMap::new(),
            refused: None,
            now: Instant::ZERO,
            hash: Hash::default(),
            teller,
            watch: liveness::Watch::default(),
            completions: CompletionQueue::new(),
            commands: 0,
            events: 0,
            power_losses: 0,
            faults: 0,
            power_prng: world.root.fork("power losses"),
            next_power_loss: u64::MAX,
            degradation_prng: world.root.fork("degradations"),
            next_degradation: u64::MAX,
            world,
            options,
        };
        run.schedule_power_loss();
        run.schedule_degradation();
        run
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub(crate) fn run(&mut self) -> Result<(), Trouble> {
        let mut phase_end = self.world.load.phase_commands;
        while self.commands < self.world.load.commands {
            self.step()?;
            if self.commands >= phase_end {
                self.come_to_rest()?;
                phase_end = self.commands.saturating_add(self.world.load.phase_commands);
            }
        }
        if self.world.power_loss_every.is_some() && self.power_prng.chance(1, 2) {
            power::lose(self)?;
        }
        self.come_to_rest()
    }

    /// The verdict on what was run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            world: WorldKind::Drive,
            commands: self.commands,
            events: self.events,
            power_losses: self.power_losses,
            faults: self.faults,
            virtual_time: self.now.since(Instant::ZERO),
            hash: self.hash.value(),
            failure: None,
        }
    }

    /// One event: the world interferes, or the host submits a command, or time jumps to where the stack has news.
    fn step(&mut self) -> Result<(), Trouble> {
        if self.events >= self.next_power_loss {
            power::lose(self)?;
            self.schedule_power_loss();
        }
        if self.events >= self.next_degradation {
            self.degrade();
            self.schedule_degradation();
        }
        self.events += 1;
        let wakeup = self.machine().stack.next_wakeup();
        let has_room = self.flights.len() < self.world.load.queue_depth && self.refused.is_none();
        let ready_at = self.host.ready_at().max(self.now);
        if has_room && wakeup.is_none_or(|wakeup| ready_at <= wakeup) {
            self.now = ready_at;
            let command = self.host.next(&self.oracle);
            self.submit(&command);
        } else {
            self.poll(wakeup)?;
            if let Some(command) = self.refused.take() {
                self.submit(&command);
            }
        }
        if self.events.is_multiple_of(self.world.check_every) {
            self.check_drive()?;
        }
        Ok(())
    }

    /// Hands a command to the stack. It takes effect at once, on the drive as on the oracle and in the books.
    fn submit(&mut self, command: &Command) {
        let now = self.now;
        let struck = match self.machine().stack.submit(now, command.clone()) {
            Ok(struck) => struck,
            Err(QueueFull(back)) => {
                assert_eq!(back, *command, "a refused command comes back as it was");
                self.refused = Some(back);
                return;
            }
        };
        let id = command.id;
        let mut expected = match struck {
            Some(FaultEffect::Fail(status)) => Completion::of(id, status),
            Some(FaultEffect::Drop) => Completion::of(id, Status::AbortRequested),
            _ => self.take_effect(command),
        };
        match struck {
            Some(FaultEffect::FailAfter(status)) if expected.status.is_success() => {
                expected = Completion::of(id, status);
            }
            Some(FaultEffect::DropAfter) => expected = Completion::of(id, Status::AbortRequested),
            _ => {}
        }
        self.faults += u64::from(struck.is_some());
        self.commands += 1;
        self.host.pause(now);
        self.hash.submission(now, command);
        let told = Told::new(id, &command.operation, &self.world.geometry, now);
        self.teller.taken(told);
        if self.flights.is_empty() {
            self.watch.progress(now);
        }
        let flight = Flight {
            acknowledges: struck.is_none(),
            is_dropped: matches!(struck, Some(FaultEffect::Drop | FaultEffect::DropAfter)),
            expected,
            told,
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

    /// Jumps to where the stack has news, and checks what has ended.
    fn poll(&mut self, wakeup: Option<Instant>) -> Result<(), Trouble> {
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

    /// The stack waits for nothing. If that is because commands got lost, the host gives up on them.
    fn wake_up(&mut self) -> Result<(), Trouble> {
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

    fn end(&mut self, completion: &Completion) -> Result<(), Trouble> {
        let now = self.now;
        self.hash.completion(now, completion);
        let Some(flight) = self.flights.remove(&completion.id) else {
            let message = format!("command {} ended, and is not under way", completion.id);
            return Err(Trouble::new(FailureKind::StrayCompletion, None, message));
        };
        self.teller.ended(completion.id, End::Completed(now, completion.status));
        let zone = flight.told.place.map(|(zone, _)| zone);
        answers::check(flight.told.kind.name(), &flight.expected, completion)
            .map_err(|trouble| Trouble { zone, ..trouble })?;
        if flight.acknowledges && completion.status.is_success() {
            self.ledger.acknowledge(completion.id);
        }
        match self.options.mode {
            Mode::Lite => self.machine().drive.clone().with_inner(|drive| quiet::check_views(&self.oracle, drive)),
            Mode::Performance => liveness::check_latency(|| flight.told.name(), now.since(flight.told.taken_at)),
            Mode::Swarm => Ok(()),
        }
    }

    /// Faults stop, and everything under way must end; then the drive must show what the oracle shows.
    fn come_to_rest(&mut self) -> Result<(), Trouble> {
        while !self.flights.is_empty() || self.refused.is_some() {
            self.events += 1;
            let now = self.now;
            self.machine().stack.abort_dropped(now);
            let wakeup = self.machine().stack.next_wakeup();
            self.poll(wakeup)?;
            if let Some(command) = self.refused.take() {
                self.submit(&command);
            }
        }
        self.ledger.settle_all();
        self.look()?;
        self.teller.tell(self.now, || "everything has ended, and is as it must be".to_owned());
        Ok(())
    }

    /// Looks at the whole quiet drive.
    fn look(&mut self) -> Result<(), Trouble> {
        let (now, keeps) = (self.now, self.world.keeps);
        let (mut seen, now) = survey(&mut self.machine().drive, now, keeps)?;
        self.now = now;
        limits::check(&self.world.profile.geometry(), &seen)?;
        let host = seen.drain(self.world.host_zones()).collect::<Vec<_>>();
        quiet::check(&self.oracle, &host, keeps)?;
        self.check_drive()
    }

    pub(crate) fn check_drive(&mut self) -> Result<(), Trouble> {
        self.machine().drive.with_inner(Ssd::check_invariants);
        Ok(())
    }

    /// The medium of a zone gives up, on both devices and in the books.
    fn degrade(&mut self) {
        let geometry = self.oracle.geometry(NamespaceId::FIRST);
        let zones: Vec<ZoneIndex> = (0..geometry.zone_count)
            .map(ZoneIndex)
            .filter(|zone| geometry.zone_type(*zone) == ZoneType::SequentialWriteRequired)
            .collect();
        let healthy =
            |zone: &ZoneIndex| !matches!(self.oracle.image(*zone).state, ZoneState::ReadOnly | ZoneState::Offline);
        // Half of the zones stay as they are, or nothing would be left to test.
        if zones.iter().filter(|zone| healthy(zone)).count() * 2 <= zones.len() {
            return;
        }
        let zone = *self.degradation_prng.pick(&zones).expect("there are healthy zones");
        let to = if self.degradation_prng.chance(2, 3) { ZoneState::ReadOnly } else { ZoneState::Offline };
        if self.oracle.image(zone).state == ZoneState::Offline {
            return;
        }
        self.faults += 1;
        self.machine().drive.with_inner_mut(|drive| drive.degrade(zone, to));
        self.oracle.degrade(zone, to);
        self.ledger.degrade(zone, to);
        self.hash.mix(u64::from(zone.0) << 8 | u64::from(to.code()));
        self.teller.tell(self.now, || format!("zone {zone} becomes {to} by itself"));
    }

    pub(crate) fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("the power is on")
    }

    fn schedule_power_loss(&mut self) {
        let Some(every) = self.world.power_loss_every else { return };
        self.next_power_loss = self.events + 1 + self.power_prng.below(2 * every);
    }

    fn schedule_degradation(&mut self) {
        let Some(every) = self.world.degradation_every else { return };
        self.next_degradation = self.events + 1 + self.degradation_prng.below(2 * every);
    }

    /// Forgets what was under way when the power went.
    pub(crate) fn forget_flights(&mut self) {
        for id in std::mem::take(&mut self.flights).into_keys() {
            self.teller.ended(id, End::Lost);
        }
        self.refused = None;
        self.watch.progress(self.now);
    }

    /// How long the power is off.
    pub(crate) fn draw_outage(&mut self) -> Duration {
        Duration(self.power_prng.below(1_000_000_000))
    }
}

/// Tells of the command under way that was taken first.
fn oldest(flights: &BTreeMap<CommandId, Flight>) -> String {
    match flights.values().next() {
        Some(flight) => {
            format!("{}, taken at {}, never completed ({} under way)", flight.told.name(), flight.told.taken_at, {
                flights.len()
            })
        }
        None => "a command that was refused is never taken".to_owned(),
    }
}

/// The kind of an operation as a number, for the hash.
pub(crate) fn kind_number(command: &Command) -> u64 {
    OperationKind::of(&command.operation) as u64
}
