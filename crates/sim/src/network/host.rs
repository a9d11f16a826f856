//! A host: its initiator, its load, and its model of the expected state.

use std::collections::BTreeMap;

use zonda_initiator::{Initiator, InitiatorConfig, State};
use zonda_layers::OperationKind;
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Instant, NamespaceId, Operation, PayloadKind, Prng,
    QueueFull, Status,
};

use super::simulation::{DriveShape, HostShape, seed_of};
use super::verify::{VerifyPass, is_verify_id};
use super::window::Window;
use crate::check::answers;
use crate::event_trace::{CommandRecord, End, EventTrace};
use crate::hash::Hash;
use crate::ledger::Ledger;
use crate::observe::CheckError;
use crate::outcome::FailureKind;
use crate::simulation::Load;

/// Commands that are rejected by weight before one is accepted regardless.
const ATTEMPTS_MAX: u32 = 40;
/// How long a host waits before it retries a failed connect.
const RETRY: Duration = Duration::from_millis(200);
/// Maximum latency of a command of a host without injected faults, on a drive in memory. It may
/// wait for all commands in flight of other hosts, on the slowest generated connection.
const LATENCY_MAX: Duration = Duration::from_secs(2);
/// The same on an SSD model: mostly the duration of its slowest operation.
const MODEL_LATENCY_MAX: Duration = Duration::from_secs(100);

/// The stage of a host.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The host is down.
    Down,
    Connecting,
    /// Connected, but commands of its lost connections may still reach the drive, or are in flight
    /// there up to this number.
    Fenced(Option<u64>),
    /// It reads its zones and compares them with its model.
    Verifying(Box<VerifyPass>),
    Working,
    /// All its commands are done and verified.
    Finished,
}

/// How uncertain the state of the zones is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Uncertainty {
    None,
    /// Some commands may have been executed or not.
    Commands,
    /// The same after a power loss.
    Power,
}

/// The model of a host: the expected state of its zones.
pub(crate) struct HostModel {
    pub(crate) oracle: ReferenceDevice,
    pub(crate) ledger: Ledger,
    source: CommandSource,
}

/// The state of the run that hosts use.
pub(crate) struct RunContext<'a> {
    pub(crate) now: Instant,
    pub(crate) hash: &'a mut Hash,
    pub(crate) trace: &'a mut EventTrace,
    pub(crate) next_id: &'a mut u64,
    pub(crate) commands: &'a mut u64,
    pub(crate) faults: &'a mut u64,
}

/// A command in flight.
struct Flight {
    expected: Completion,
    record: CommandRecord,
}

/// One host.
pub(crate) struct Host {
    pub(crate) index: usize,
    config: InitiatorConfig,
    pub(crate) window: Window,
    load: Load,
    latency_max: Duration,
    /// Its drive sometimes fails commands.
    has_faults: bool,
    pub(crate) machine: Option<Initiator>,
    /// Number of connection losses.
    pub(crate) epoch: u64,
    pub(crate) stage: Stage,
    pub(crate) model: Option<HostModel>,
    pub(crate) uncertainty: Uncertainty,
    /// Power was lost during the verification, or a read failed: it must be repeated.
    is_verify_stale: bool,
    flights: BTreeMap<CommandId, Flight>,
    /// A command that the initiator refused because its queues are full.
    refused: Option<Command>,
    is_blocked: bool,
    pub(crate) left: u64,
    until_verify: u64,
    pub(crate) wake_at: Option<Instant>,
    pub(crate) stalled_until: Instant,
    /// Consequences of injected faults are excused until then.
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
            model: None,
            uncertainty: Uncertainty::None,
            is_verify_stale: false,
            flights: BTreeMap::new(),
            refused: None,
            is_blocked: false,
            left: shape.load.commands,
            until_verify: shape.load.phase_commands,
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

    /// Excuses consequences of an injected fault until then.
    pub(crate) fn disturb(&mut self, until: Instant) {
        self.disturbed_until = self.disturbed_until.max(until);
    }

    /// Whether all its commands are done and verified.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Finished) && self.uncertainty == Uncertainty::None
    }

    /// Number of commands to run after all faults have ended.
    pub(crate) fn reserve(&self) -> u64 {
        self.load.commands / 5
    }

    /// Notes that its drive has lost power.
    pub(crate) fn note_power_loss(&mut self) {
        self.uncertainty = Uncertainty::Power;
        self.is_verify_stale = true;
    }

    /// Acts when the host's timer expires.
    pub(crate) fn act(&mut self, context: &mut RunContext<'_>) -> Result<(), CheckError> {
        self.wake_at = None;
        match &self.stage {
            Stage::Down => {
                let random_seed = seed_of(&mut self.seeds);
                let mut machine = Initiator::new(InitiatorConfig { random_seed, ..self.config.clone() });
                machine.start(context.now);
                self.machine = Some(machine);
                self.stage = Stage::Connecting;
                Ok(())
            }
            Stage::Connecting => {
                let machine = self.machine.as_mut().expect("a connecting host has an initiator");
                if let State::Failed(_) = machine.state() {
                    machine.start(context.now);
                }
                Ok(())
            }
            Stage::Working => self.submit_next(context),
            Stage::Fenced(_) | Stage::Verifying(_) | Stage::Finished => Ok(()),
        }
    }

    /// Processes completions and the state of the initiator.
    pub(crate) fn collect(&mut self, context: &mut RunContext<'_>) -> Result<(), CheckError> {
        let Some(machine) = &mut self.machine else { return Ok(()) };
        let mut completions = std::mem::take(&mut self.completions);
        machine.poll(context.now, &mut completions);
        let is_ready = *machine.state() == State::Ready;
        let has_failed = matches!(machine.state(), State::Failed(_));
        let mut result = Ok(());
        while let (Ok(()), Some(completion)) = (&result, completions.pop()) {
            self.is_blocked = false;
            result = self.end(context, completion, is_ready);
        }
        self.completions = completions;
        result?;
        let was_connected = !matches!(self.stage, Stage::Down | Stage::Connecting);
        if is_ready && !was_connected {
            self.on_connect(context)?;
        } else if !is_ready && was_connected {
            self.lost(context)?;
        }
        if has_failed && self.wake_at.is_none() && matches!(self.stage, Stage::Connecting) {
            self.wake_at = Some(context.now + RETRY);
        }
        self.advance(context)
    }

    /// Drops the commands in flight, after the connections are lost or the host is killed.
    pub(crate) fn forget_connections(&mut self, context: &mut RunContext<'_>) {
        self.epoch += 1;
        for id in std::mem::take(&mut self.flights).into_keys() {
            self.uncertainty = self.uncertainty.max(Uncertainty::Commands);
            context.trace.command_ended(id, End::Lost);
        }
        if let Some(model) = &mut self.model {
            model.ledger.forget_commands();
        }
        self.is_blocked = false;
        self.wake_at = None;
    }

    /// Starts to verify the zones, once no command of an old connection can be executed any more.
    pub(crate) fn begin_verify(&mut self, context: &mut RunContext<'_>) -> Result<(), CheckError> {
        let model = self.model.as_ref().expect("a host that has been connected has a model");
        self.stage = Stage::Verifying(Box::new(VerifyPass::new(&self.window, &model.ledger.geometry)));
        self.is_verify_stale = false;
        self.until_verify = self.load.phase_commands;
        self.advance(context)
    }

    /// Describes the oldest command in flight, or the stage.
    pub(crate) fn oldest(&self) -> String {
        match self.flights.values().next() {
            Some(flight) => format!("{} of host {}", flight.record.name(), self.index),
            None => format!("host {} is {}", self.index, self.stage.name()),
        }
    }

    fn on_connect(&mut self, context: &mut RunContext<'_>) -> Result<(), CheckError> {
        let machine = self.machine.as_ref().expect("the machine is ready");
        let geometry = machine.geometry().expect("it is ready").clone();
        let geometry = self.window.geometry(&geometry);
        match &self.model {
            Some(model) if model.ledger.geometry != geometry => {
                let message = format!("host {}: the geometry differs from that of the previous connection", self.index);
                return Err(CheckError::new(FailureKind::WrongAnswer, None, message));
            }
            Some(_) => {}
            None => {
                self.model = Some(HostModel {
                    oracle: ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes),
                    ledger: Ledger::new(&geometry),
                    source: CommandSource::new(&geometry, PayloadKind::Bytes, self.commands.fork("source")),
                });
            }
        }
        self.ready_at = context.now;
        self.stage = Stage::Fenced(None);
        let index = self.index;
        context.trace.log(context.now, || format!("host {index} is connected"));
        Ok(())
    }

    fn lost(&mut self, context: &mut RunContext<'_>) -> Result<(), CheckError> {
        let machine = self.machine.as_ref().expect("it was connected");
        if let Some(flight) = self.flights.values().next() {
            let message = format!("{} of host {} never completed", flight.record.name(), self.index);
            return Err(CheckError::new(FailureKind::Starved, None, message));
        }
        assert_eq!(machine.outstanding(), 0, "outstanding commands end with the connection");
        let (index, stage) = (self.index, self.stage.name());
        context.trace.log(context.now, || format!("host {index} lost its connection while {stage}"));
        if self.ready_at > self.disturbed_until {
            let message = format!("host {index} lost its connection while {stage}, without an injected fault");
            return Err(CheckError::new(FailureKind::BrokenConnection, None, message));
        }
        self.forget_connections(context);
        self.stage = Stage::Connecting;
        Ok(())
    }

    fn advance(&mut self, context: &mut RunContext<'_>) -> Result<(), CheckError> {
        let has_commands_before_verify = self.has_commands_before_verify();
        match &mut self.stage {
            Stage::Verifying(verify) => {
                let machine = self.machine.as_mut().expect("a verifying host is connected");
                verify.submit(context.now, machine)?;
                if !verify.is_done() {
                    return Ok(());
                }
                if self.is_verify_stale {
                    return self.begin_verify(context);
                }
                let Stage::Verifying(verify) = std::mem::replace(&mut self.stage, Stage::Working) else {
                    unreachable!("the host was verifying")
                };
                let model = self.model.as_mut().expect("a verifying host has a model");
                verify.check(self.index, model, self.uncertainty, context)?;
                self.uncertainty = Uncertainty::None;
                if self.left == 0 {
                    self.stage = Stage::Finished;
                } else {
                    self.wake_at = Some(context.now);
                }
                Ok(())
            }
            Stage::Working if has_commands_before_verify => {
                if self.wake_at.is_none() && !self.is_blocked && self.flights.len() < self.load.queue_depth {
                    self.wake_at = Some(context.now);
                }
                Ok(())
            }
            Stage::Working if self.flights.is_empty() => self.begin_verify(context),
            // Power was lost after the verification.
            Stage::Finished if self.uncertainty > Uncertainty::None => self.begin_verify(context),
            _ => Ok(()),
        }
    }

    fn has_commands_before_verify(&self) -> bool {
        self.left > 0 && self.until_verify > 0
    }

    fn submit_next(&mut self, context: &mut RunContext<'_>) -> Result<(), CheckError> {
        if !self.has_commands_before_verify() || self.flights.len() >= self.load.queue_depth {
            return Ok(());
        }
        let now = context.now;
        let command = self.refused.take().unwrap_or_else(|| self.next_command(context));
        let operation = self.window.operation_out(&command.operation).expect("it was generated to fit");
        let machine = self.machine.as_mut().expect("a working host is connected");
        let out = command.clone().with_operation(operation);
        if let Err(QueueFull(_)) = machine.submit(now, out) {
            if self.flights.is_empty() {
                let message =
                    format!("host {} has no command in flight, but the initiator refuses a command", self.index);
                return Err(CheckError::new(FailureKind::Starved, None, message));
            }
            self.refused = Some(command);
            self.is_blocked = true;
            return Ok(());
        }
        let model = self.model.as_mut().expect("a working host has a model");
        let expected = model.oracle.execute(&command);
        if expected.status.is_success() {
            model.ledger.take(command.id, &command.operation, &expected.outcome);
        }
        context.hash.submission(now, &command);
        *context.commands += 1;
        let geometry = &model.ledger.geometry;
        let record = CommandRecord {
            host: Some(self.index as u32),
            ..CommandRecord::new(command.id, &command.operation, geometry, now)
        };
        context.trace.command_submitted(record);
        self.flights.insert(command.id, Flight { expected, record });
        self.left -= 1;
        self.until_verify -= 1;
        let pause = self.load.pause.0;
        if pause > 0 {
            self.wake_at = Some(now + Duration(self.mix.exponential(pause)));
        }
        Ok(())
    }

    fn next_command(&mut self, context: &mut RunContext<'_>) -> Command {
        let model = self.model.as_mut().expect("a working host has a model");
        let most = self.load.weights.into_iter().max().expect("there are operation kinds");
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            let command = model.source.next(&model.oracle);
            if self.window.operation_out(&command.operation).is_none() {
                continue;
            }
            let weight = self.load.weights[OperationKind::of(&command.operation) as usize];
            let is_wanted = weight == most || self.mix.chance(weight, most);
            last = Some(command);
            if is_wanted {
                break;
            }
        }
        let flush = Command::new(CommandId(0), NamespaceId::FIRST, Operation::Flush);
        let id = CommandId(*context.next_id);
        *context.next_id += 1;
        last.unwrap_or(flush).with_id(id)
    }

    fn end(&mut self, context: &mut RunContext<'_>, completion: Completion, is_ready: bool) -> Result<(), CheckError> {
        let now = context.now;
        context.hash.completion(now, &completion);
        let is_loss = !is_ready && matches!(completion.status, Status::AbortedPowerLoss | Status::NamespaceNotReady);
        let is_fault = self.has_faults && matches!(completion.status, Status::InternalError | Status::WriteFault);
        if is_verify_id(completion.id) {
            return match &mut self.stage {
                _ if is_loss => Ok(()),
                Stage::Verifying(verify) if is_fault => {
                    *context.faults += 1;
                    self.is_verify_stale = true;
                    verify.drop_read(completion.id);
                    Ok(())
                }
                Stage::Verifying(verify) => verify.take(completion),
                _ => Err(stray(&completion, self.index)),
            };
        }
        let Some(Flight { expected, record }) = self.flights.remove(&completion.id) else {
            return Err(stray(&completion, self.index));
        };
        let model = self.model.as_mut().expect("a host with commands in flight has a model");
        if is_loss && completion.status != expected.status {
            self.uncertainty = self.uncertainty.max(Uncertainty::Commands);
            if completion.status == Status::NamespaceNotReady {
                model.ledger.withdraw(completion.id);
            }
            context.trace.command_ended(completion.id, End::Lost);
            return Ok(());
        }
        context.trace.command_ended(completion.id, End::Completed(now, completion.status));
        if is_fault {
            // The command may have been executed: the host has no other in flight, and verifies.
            *context.faults += 1;
            self.uncertainty = self.uncertainty.max(Uncertainty::Commands);
            self.until_verify = 0;
            return Ok(());
        }
        let completion = Completion { outcome: self.window.outcome_back(completion.outcome), ..completion };
        let zone = record.place.map(|(zone, _)| zone);
        answers::check(record.kind.name(), &expected, &completion)
            .map_err(|error| CheckError { zone, ..error.of_host(self.index) })?;
        if completion.status.is_success() {
            model.ledger.acknowledge(completion.id);
        }
        let latency = now.since(record.submitted_at);
        if record.submitted_at > self.disturbed_until && latency > self.latency_max {
            let message = format!("{} of host {} took {latency}, without an injected fault", record.name(), self.index);
            return Err(CheckError::new(FailureKind::Slow, zone, message));
        }
        Ok(())
    }
}

impl Stage {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Stage::Down => "down",
            Stage::Connecting => "connecting",
            Stage::Fenced(_) => "waiting for its old connections to be closed",
            Stage::Verifying(_) => "verifying its zones",
            Stage::Working => "working",
            Stage::Finished => "finished",
        }
    }
}

fn stray(completion: &Completion, host: usize) -> CheckError {
    let message = format!("command {} of host {host} completed but is not in flight", completion.id);
    CheckError::new(FailureKind::StrayCompletion, None, message)
}
