//! A host: its machine, what it asks for, and what it was told.

use std::collections::BTreeMap;

use zonda_initiator::{Initiator, InitiatorConfig, State};
use zonda_layers::OperationKind;
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Instant, NamespaceId, Operation, PayloadKind, Prng,
    QueueFull, Status,
};

use super::look::{Look, is_of_look};
use super::window::Window;
use super::world::{DriveShape, HostShape, seed_of};
use crate::check::answers;
use crate::hash::Hash;
use crate::ledger::Ledger;
use crate::outcome::FailureKind;
use crate::story::{End, Teller, Told};
use crate::survey::Trouble;
use crate::world::Load;

/// Commands drawn before one is taken whatever it is.
const DRAWS_MAX: u32 = 40;
/// How long a host waits that could not connect at all.
const RETRY: Duration = Duration::from_millis(200);
/// A command of a host that nobody disturbs ends within this time, at a drive in memory. It may wait behind all that others
/// have under way, on the slowest connection that is drawn.
const LATENCY_MAX: Duration = Duration::from_secs(2);
/// And at a model of a drive: the slowest thing that one does takes most of it.
const MODEL_LATENCY_MAX: Duration = Duration::from_secs(100);

/// What a host is doing.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its machine is gone.
    Down,
    Connecting,
    /// Connected; commands of connections that it has lost may still come to the drive, or be under way there up to a
    /// number.
    Fenced(Option<u64>),
    /// It reads its zones, and holds them against the books.
    Looking(Box<Look>),
    Working,
    /// All its work is done and has been looked at.
    Resting,
}

/// How sure the oracle is of the zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    None,
    /// Commands may have happened or not.
    Commands,
    /// And the power went.
    Power,
}

/// What a host has on paper, and goes by.
pub(crate) struct Books {
    pub(crate) oracle: ReferenceDevice,
    pub(crate) ledger: Ledger,
    source: CommandSource,
}

/// What all hosts share.
pub(crate) struct Desk<'a> {
    pub(crate) now: Instant,
    pub(crate) hash: &'a mut Hash,
    pub(crate) teller: &'a mut Teller,
    pub(crate) next_id: &'a mut u64,
    pub(crate) commands: &'a mut u64,
    pub(crate) faults: &'a mut u64,
}

/// A command under way.
struct Flight {
    expected: Completion,
    told: Told,
}

/// One host.
pub(crate) struct Host {
    pub(crate) index: usize,
    config: InitiatorConfig,
    pub(crate) window: Window,
    load: Load,
    latency_max: Duration,
    /// Its drive fails commands now and then.
    has_faults: bool,
    pub(crate) machine: Option<Initiator>,
    /// Connections lost so far.
    pub(crate) epoch: u64,
    pub(crate) stage: Stage,
    pub(crate) books: Option<Books>,
    pub(crate) doubt: Doubt,
    /// The power went while it looked, or the drive failed it: it has to look again.
    is_look_stale: bool,
    flights: BTreeMap<CommandId, Flight>,
    /// A command that the machine had no room for.
    refused: Option<Command>,
    is_blocked: bool,
    pub(crate) left: u64,
    until_look: u64,
    pub(crate) wake_at: Option<Instant>,
    pub(crate) stalled_until: Instant,
    /// What the world has done to it is over.
    pub(crate) disturbed_until: Instant,
    ready_at: Instant,
    seeds: Prng,
    mix: Prng,
    commands: Prng,
    completions: CompletionQueue,
}

impl Host {
    pub(crate) fn new(index: usize, shape: &HostShape, drive: &DriveShape, root: &Prng) -> Host {
        Host {
            index,
            config: shape.config.clone(),
            window: shape.window,
            load: shape.load.clone(),
            latency_max: if drive.profile.is_some() { MODEL_LATENCY_MAX } else { LATENCY_MAX },
            has_faults: !drive.faults.is_empty(),
            machine: None,
            epoch: 0,
            stage: Stage::Down,
            books: None,
            doubt: Doubt::None,
            is_look_stale: false,
            flights: BTreeMap::new(),
            refused: None,
            is_blocked: false,
            left: shape.load.commands,
            until_look: shape.load.phase_commands,
            wake_at: Some(Instant(1)),
            stalled_until: Instant::ZERO,
            disturbed_until: Instant::ZERO,
            ready_at: Instant::ZERO,
            seeds: root.fork("seeds"),
            mix: root.fork("mixing"),
            commands: root.fork("commands"),
            completions: CompletionQueue::new(),
        }
    }

    /// What the world does to it excuses it until then.
    pub(crate) fn disturb(&mut self, until: Instant) {
        self.disturbed_until = self.disturbed_until.max(until);
    }

    /// Whether all its work is done and has been looked at.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Resting) && self.doubt == Doubt::None
    }

    /// Work that it is to do after the world has stopped doing things.
    pub(crate) fn reserve(&self) -> u64 {
        self.load.commands / 5
    }

    /// Its drive has lost power.
    pub(crate) fn power_is_lost(&mut self) {
        self.doubt = Doubt::Power;
        self.is_look_stale = true;
    }

    /// The time has come that the host waited for.
    pub(crate) fn act(&mut self, desk: &mut Desk<'_>) -> Result<(), Trouble> {
        self.wake_at = None;
        match &self.stage {
            Stage::Down => {
                let random_seed = seed_of(&mut self.seeds);
                let mut machine = Initiator::new(InitiatorConfig { random_seed, ..self.config.clone() });
                machine.start(desk.now);
                self.machine = Some(machine);
                self.stage = Stage::Connecting;
                Ok(())
            }
            Stage::Connecting => {
                let machine = self.machine.as_mut().expect("a host that connects has a machine");
                if let State::Failed(_) = machine.state() {
                    machine.start(desk.now);
                }
                Ok(())
            }
            Stage::Working => self.submit_next(desk),
            Stage::Fenced(_) | Stage::Looking(_) | Stage::Resting => Ok(()),
        }
    }

    /// Takes what has ended, and sees where the machine stands.
    pub(crate) fn collect(&mut self, desk: &mut Desk<'_>) -> Result<(), Trouble> {
        let Some(machine) = &mut self.machine else { return Ok(()) };
        let mut completions = std::mem::take(&mut self.completions);
        machine.poll(desk.now, &mut completions);
        let is_ready = *machine.state() == State::Ready;
        let has_failed = matches!(machine.state(), State::Failed(_));
        let mut result = Ok(());
        while let (Ok(()), Some(completion)) = (&result, completions.pop()) {
            self.is_blocked = false;
            result = self.end(desk, completion, is_ready);
        }
        self.completions = completions;
        result?;
        let was_connected = !matches!(self.stage, Stage::Down | Stage::Connecting);
        if is_ready && !was_connected {
            self.connected(desk)?;
        } else if !is_ready && was_connected {
            self.lost(desk)?;
        }
        if has_failed && self.wake_at.is_none() && matches!(self.stage, Stage::Connecting) {
            self.wake_at = Some(desk.now + RETRY);
        }
        self.go_on(desk)
    }

    /// Its connections are gone, or its machine is.
    pub(crate) fn forget_connections(&mut self, desk: &mut Desk<'_>) {
        self.epoch += 1;
        for id in std::mem::take(&mut self.flights).into_keys() {
            self.doubt = self.doubt.max(Doubt::Commands);
            desk.teller.ended(id, End::Lost);
        }
        if let Some(books) = &mut self.books {
            books.ledger.forget_commands();
        }
        self.is_blocked = false;
        self.wake_at = None;
    }

    /// Nothing of its old connections can come any more: it looks at its zones.
    pub(crate) fn begin_look(&mut self, desk: &mut Desk<'_>) -> Result<(), Trouble> {
        let books = self.books.as_ref().expect("a host that has been connected has books");
        self.stage = Stage::Looking(Box::new(Look::new(&self.window, &books.ledger.geometry)));
        self.is_look_stale = false;
        self.until_look = self.load.phase_commands;
        self.go_on(desk)
    }

    /// What it has under way that was taken first.
    pub(crate) fn oldest(&self) -> String {
        match self.flights.values().next() {
            Some(flight) => format!("{} of host {}", flight.told.name(), self.index),
            None => format!("host {} is {}", self.index, self.stage.name()),
        }
    }

    fn connected(&mut self, desk: &mut Desk<'_>) -> Result<(), Trouble> {
        let machine = self.machine.as_ref().expect("the machine is ready");
        let geometry = machine.geometry().expect("it is ready").clone();
        let geometry = self.window.geometry(&geometry);
        match &self.books {
            Some(books) if books.ledger.geometry != geometry => {
                let message = format!("host {} finds another geometry than before", self.index);
                return Err(Trouble::new(FailureKind::WrongAnswer, None, message));
            }
            Some(_) => {}
            None => {
                self.books = Some(Books {
                    oracle: ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes),
                    ledger: Ledger::new(&geometry),
                    source: CommandSource::new(&geometry, PayloadKind::Bytes, self.commands.fork("source")),
                });
            }
        }
        self.ready_at = desk.now;
        self.stage = Stage::Fenced(None);
        let index = self.index;
        desk.teller.tell(desk.now, || format!("host {index} is connected"));
        Ok(())
    }

    fn lost(&mut self, desk: &mut Desk<'_>) -> Result<(), Trouble> {
        let machine = self.machine.as_ref().expect("it was connected");
        if let Some(flight) = self.flights.values().next() {
            let message = format!("{} of host {} never ended", flight.told.name(), self.index);
            return Err(Trouble::new(FailureKind::Starved, None, message));
        }
        assert_eq!(machine.outstanding(), 0, "what is outstanding ends with the connection");
        let (index, under) = (self.index, self.stage.name());
        desk.teller.tell(desk.now, || format!("host {index} has lost its connection while {under}"));
        if self.ready_at > self.disturbed_until {
            let message = format!("host {index} has lost its connection while {under}, and nobody broke it");
            return Err(Trouble::new(FailureKind::BrokenConnection, None, message));
        }
        self.forget_connections(desk);
        self.stage = Stage::Connecting;
        Ok(())
    }

    fn go_on(&mut self, desk: &mut Desk<'_>) -> Result<(), Trouble> {
        let is_between_looks = self.is_between_looks();
        match &mut self.stage {
            Stage::Looking(look) => {
                let machine = self.machine.as_mut().expect("who looks is connected");
                look.submit(desk.now, machine)?;
                if !look.is_done() {
                    return Ok(());
                }
                if self.is_look_stale {
                    return self.begin_look(desk);
                }
                let Stage::Looking(look) = std::mem::replace(&mut self.stage, Stage::Working) else {
                    unreachable!("the host was looking")
                };
                let books = self.books.as_mut().expect("who looks has books");
                look.judge(self.index, books, self.doubt, desk)?;
                self.doubt = Doubt::None;
                if self.left == 0 {
                    self.stage = Stage::Resting;
                } else {
                    self.wake_at = Some(desk.now);
                }
                Ok(())
            }
            Stage::Working if is_between_looks => {
                if self.wake_at.is_none() && !self.is_blocked && self.flights.len() < self.load.queue_depth {
                    self.wake_at = Some(desk.now);
                }
                Ok(())
            }
            Stage::Working if self.flights.is_empty() => self.begin_look(desk),
            // The power went after it had looked.
            Stage::Resting if self.doubt > Doubt::None => self.begin_look(desk),
            _ => Ok(()),
        }
    }

    fn is_between_looks(&self) -> bool {
        self.left > 0 && self.until_look > 0
    }

    fn submit_next(&mut self, desk: &mut Desk<'_>) -> Result<(), Trouble> {
        if !self.is_between_looks() || self.flights.len() >= self.load.queue_depth {
            return Ok(());
        }
        let now = desk.now;
        let command = self.refused.take().unwrap_or_else(|| self.draw(desk));
        let operation = self.window.operation_out(&command.operation).expect("it was drawn to fit");
        let machine = self.machine.as_mut().expect("who works is connected");
        let out = Command { operation, ..command };
        if let Err(QueueFull(_)) = machine.submit(now, out) {
            if self.flights.is_empty() {
                let message = format!("host {} has nothing under way, and no command is taken", self.index);
                return Err(Trouble::new(FailureKind::Starved, None, message));
            }
            self.refused = Some(command);
            self.is_blocked = true;
            return Ok(());
        }
        let books = self.books.as_mut().expect("who works has books");
        let expected = books.oracle.execute(&command);
        if expected.status.is_success() {
            books.ledger.take(command.id, &command.operation, &expected.outcome);
        }
        desk.hash.submission(now, &command);
        *desk.commands += 1;
        let geometry = &books.ledger.geometry;
        let told = Told { host: Some(self.index as u32), ..Told::new(command.id, &command.operation, geometry, now) };
        desk.teller.taken(told);
        self.flights.insert(command.id, Flight { expected, told });
        self.left -= 1;
        self.until_look -= 1;
        let pause = self.load.pause.0;
        if pause > 0 {
            self.wake_at = Some(now + Duration(self.mix.exponential(pause)));
        }
        Ok(())
    }

    fn draw(&mut self, desk: &mut Desk<'_>) -> Command {
        let books = self.books.as_mut().expect("who works has books");
        let most = self.load.weights.into_iter().max().expect("there are kinds of operations");
        let mut drawn = None;
        for _ in 0..DRAWS_MAX {
            let command = books.source.next(&books.oracle);
            if self.window.operation_out(&command.operation).is_none() {
                continue;
            }
            let weight = self.load.weights[OperationKind::of(&command.operation) as usize];
            let is_wanted = weight == most || self.mix.chance(weight, most);
            drawn = Some(command);
            if is_wanted {
                break;
            }
        }
        let flush = Command { id: CommandId(0), namespace: NamespaceId::FIRST, operation: Operation::Flush };
        let id = CommandId(*desk.next_id);
        *desk.next_id += 1;
        Command { id, ..drawn.unwrap_or(flush) }
    }

    fn end(&mut self, desk: &mut Desk<'_>, completion: Completion, is_ready: bool) -> Result<(), Trouble> {
        let now = desk.now;
        desk.hash.completion(now, &completion);
        let is_loss = !is_ready && matches!(completion.status, Status::AbortedPowerLoss | Status::NamespaceNotReady);
        let is_fault = self.has_faults && matches!(completion.status, Status::InternalError | Status::WriteFault);
        if is_of_look(completion.id) {
            return match &mut self.stage {
                _ if is_loss => Ok(()),
                Stage::Looking(look) if is_fault => {
                    *desk.faults += 1;
                    self.is_look_stale = true;
                    look.give_up(completion.id);
                    Ok(())
                }
                Stage::Looking(look) => look.take(completion),
                _ => Err(stray(&completion, self.index)),
            };
        }
        let Some(Flight { expected, told }) = self.flights.remove(&completion.id) else {
            return Err(stray(&completion, self.index));
        };
        let books = self.books.as_mut().expect("who has commands under way has books");
        if is_loss && completion.status != expected.status {
            self.doubt = self.doubt.max(Doubt::Commands);
            if completion.status == Status::NamespaceNotReady {
                books.ledger.withdraw(completion.id);
            }
            desk.teller.ended(completion.id, End::Lost);
            return Ok(());
        }
        desk.teller.ended(completion.id, End::Completed(now, completion.status));
        if is_fault {
            // It may have happened: the host has nothing else under way, and looks.
            *desk.faults += 1;
            self.doubt = self.doubt.max(Doubt::Commands);
            self.until_look = 0;
            return Ok(());
        }
        let completion = Completion { outcome: self.window.outcome_back(completion.outcome), ..completion };
        let zone = told.place.map(|(zone, _)| zone);
        answers::check(told.kind.name(), &expected, &completion)
            .map_err(|trouble| Trouble { zone, ..trouble.of_host(self.index) })?;
        if completion.status.is_success() {
            books.ledger.acknowledge(completion.id);
        }
        let latency = now.since(told.taken_at);
        if told.taken_at > self.disturbed_until && latency > self.latency_max {
            let message = format!("{} of host {} took {latency}, and nobody disturbed it", told.name(), self.index);
            return Err(Trouble::new(FailureKind::Slow, zone, message));
        }
        Ok(())
    }
}

impl Stage {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Stage::Down => "down",
            Stage::Connecting => "connecting",
            Stage::Fenced(_) => "waiting for its old connections to end",
            Stage::Looking(_) => "looking at its zones",
            Stage::Working => "working",
            Stage::Resting => "resting",
        }
    }
}

fn stray(completion: &Completion, host: usize) -> Trouble {
    let message = format!("command {} of host {host} ended, and is not under way", completion.id);
    Trouble::new(FailureKind::StrayCompletion, None, message)
}
