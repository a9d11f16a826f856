//! One run of a file store scenario: the next event is selected at random, and invariants are
//! checked after it.

use zonda_files::testing::{Model, Violation};
use zonda_files::{Event, FileStore, SeededBug};
use zonda_layers::Shared;
use zonda_ssd::Ssd;
use zonda_zoned::{Instant, PayloadKind, Prng};

use super::clients::Clients;
use super::machine::Machine;
use super::simulation::{FilesSimulation, UUID};
use super::verify::{VerifyPass, is_verify_id};
use crate::bug::Bug;
use crate::check::liveness;
use crate::event_trace::{EventTrace, RequestRecord};
use crate::hash::Hash;
use crate::observe::CheckError;
use crate::options::{Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};

/// Maximum number of events until a client submits a request, or the store is quiescent.
const IDLE_EVENTS_MAX: u64 = 200_000;

/// The state of one run of a simulation.
pub(crate) struct FilesRun<'s> {
    pub(super) simulation: &'s FilesSimulation,
    pub(super) options: &'s Options,
    /// `None` only while power is off.
    pub(super) machine: Option<Machine>,
    pub(super) model: Model,
    pub(super) clients: Clients,
    pub(super) stage: Stage,
    pub(crate) now: Instant,
    pub(super) hash: Hash,
    pub(crate) trace: EventTrace,
    pub(super) watch: liveness::Watch,
    requests: u64,
    pub(super) events: u64,
    /// The event of the last client request.
    last_request_at: u64,
    pub(super) power_losses: u64,
    pub(super) faults: u64,
    /// Number of mounts.
    pub(super) lives: u64,
    /// The last life in which clients could submit requests.
    pub(super) last_life_with_requests: u64,
    /// Number of consecutive failed mounts.
    pub(super) failed_mounts: u32,
    /// While the store quiesces: no new requests, no faults.
    pub(super) is_quiescing: bool,
    order: Prng,
    pub(super) power_prng: Prng,
    pub(super) degradation_prng: Prng,
    pub(super) next_power_loss: u64,
    pub(super) next_kill: u64,
    pub(super) next_degradation: u64,
    /// Number of zones that became offline.
    pub(super) offline_zones: u64,
    /// One of the metadata zones has become read only.
    pub(super) has_weak_log: bool,
    pub(super) bug: Option<SeededBug>,
}

/// The stage of a run.
pub(super) enum Stage {
    /// The store is being formatted or mounted.
    Starting,
    /// Every file is being read, after a crash or when quiescent.
    Verifying { verify: VerifyPass, is_after_crash: bool },
    /// Clients submit requests.
    Working,
}

/// A possible next event.
#[derive(Clone, Copy, Debug)]
enum Next {
    Deliver,
    Submit,
    Poll,
    Request(usize),
}

impl<'s> FilesRun<'s> {
    pub(crate) fn new(simulation: &'s FilesSimulation, options: &'s Options, trace: EventTrace) -> FilesRun<'s> {
        let bug = match options.bug {
            Some(Bug::Files(bug)) => Some(bug),
            _ => None,
        };
        let drive = Ssd::new(&simulation.profile, PayloadKind::Bytes, &simulation.root.fork("life/0"));
        let store = FileStore::format(&simulation.geometry, simulation.config, UUID)
            .expect("geometry and configuration are valid");
        let mut model = Model::new();
        model.may_fail = !simulation.faults.is_empty() || simulation.degradation_every.is_some();
        let mut run = FilesRun {
            machine: None,
            model,
            clients: Clients::new(&simulation.load, &simulation.root),
            stage: Stage::Starting,
            now: Instant::ZERO,
            hash: Hash::default(),
            trace,
            watch: liveness::Watch::default(),
            requests: 0,
            events: 0,
            last_request_at: 0,
            power_losses: 0,
            faults: 0,
            lives: 0,
            last_life_with_requests: 0,
            failed_mounts: 0,
            is_quiescing: true,
            order: simulation.root.fork("order"),
            power_prng: simulation.root.fork("power losses"),
            degradation_prng: simulation.root.fork("degradations"),
            next_power_loss: u64::MAX,
            next_kill: u64::MAX,
            next_degradation: u64::MAX,
            offline_zones: 0,
            has_weak_log: false,
            bug,
            simulation,
            options,
        };
        run.start(Shared::new(drive), store);
        run
    }

    /// Runs to the end, or to the first error.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        self.quiesce()?;
        self.schedule_all();
        let mut phase_end = self.simulation.load.phase_requests;
        while self.requests < self.simulation.load.requests {
            self.inject_faults();
            self.advance()?;
            if self.requests >= phase_end {
                self.quiesce()?;
                phase_end = self.requests.saturating_add(self.simulation.load.phase_requests);
            }
        }
        if self.simulation.power_loss_every.is_some() && self.power_prng.chance(2, 3) {
            self.lose_power();
        }
        self.quiesce()
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            scenario: ScenarioKind::Files,
            commands: self.requests,
            events: self.events,
            power_losses: self.power_losses,
            faults: self.faults + self.machine.as_ref().map_or(0, Machine::injected_faults),
            virtual_time: self.now.since(Instant::ZERO),
            hash: self.hash.value(),
            failure: None,
        }
    }

    /// Stops requests and faults until the store is quiescent; then reads and checks every file.
    fn quiesce(&mut self) -> Result<(), CheckError> {
        self.is_quiescing = true;
        self.last_request_at = self.events;
        self.machine().set_faults(false);
        while !(matches!(self.stage, Stage::Working) && self.machine().is_idle()) {
            self.advance()?;
        }
        self.expect_rest()?;
        self.machine().drive.with_inner(Ssd::check_invariants);
        self.begin_verify(false)?;
        while !matches!(self.stage, Stage::Working) {
            self.advance()?;
        }
        self.is_quiescing = false;
        self.machine().set_faults(true);
        self.trace.log(self.now, || "quiescent: all files match the model".to_owned());
        Ok(())
    }

    /// One event. If none is possible now, time advances to the next one.
    fn advance(&mut self) -> Result<(), CheckError> {
        self.events += 1;
        if self.events > self.last_request_at + IDLE_EVENTS_MAX {
            let usage = self.machine().store.usage();
            let message = format!("{}, and the store never becomes idle: {usage:?}", self.oldest());
            return Err(CheckError::new(FailureKind::Starved, None, message));
        }
        let now = self.now;
        let wakeup = self.machine().next_timeout();
        let may_request = matches!(self.stage, Stage::Working) && !self.is_quiescing;
        let client = self.clients.next_ready().filter(|_| may_request && self.requests < self.simulation.load.requests);
        let machine = self.machine.as_ref().expect("power is on");
        let candidates = [
            machine.has_completions().then_some(Next::Deliver),
            machine.may_have_commands.then_some(Next::Submit),
            wakeup.filter(|wakeup| *wakeup <= now).map(|_| Next::Poll),
            client.filter(|(ready_at, _)| *ready_at <= now).map(|(_, client)| Next::Request(client)),
        ];
        let candidates: Vec<Next> = candidates.into_iter().flatten().collect();
        let Some(next) = self.order.pick(&candidates).copied() else {
            return self.jump(wakeup.into_iter().chain(client.map(|(ready_at, _)| ready_at)).min());
        };
        match next {
            Next::Deliver => self.deliver(),
            Next::Submit => self.submit(),
            Next::Poll => self.machine().poll(now),
            Next::Request(client) => self.submit_request(client)?,
        }
        self.process_events()?;
        if self.events.is_multiple_of(self.simulation.check_every) {
            self.machine().drive.with_inner(Ssd::check_invariants);
        }
        Ok(())
    }

    /// Advances to the next event, if none is possible now.
    fn jump(&mut self, to: Option<Instant>) -> Result<(), CheckError> {
        if self.machine().is_idle() {
            self.watch.progress(self.now);
            match &self.stage {
                Stage::Starting => return Err(liveness::asleep("the store never completes its format or mount")),
                Stage::Verifying { .. } => return Err(liveness::asleep("reads of the verification never complete")),
                Stage::Working => self.expect_rest()?,
            }
        }
        let Some(to) = to else { return Err(liveness::asleep(&self.oldest())) };
        self.now = self.now.max(to);
        self.watch.check(self.now, || "commands of the store are in flight".to_owned())
    }

    fn deliver(&mut self) {
        let now = self.now;
        let machine = self.machine.as_mut().expect("power is on");
        let completion = machine.deliver(now, &mut self.order);
        self.hash.completion(now, &completion);
        self.watch.progress(now);
    }

    fn submit(&mut self) {
        let (now, queue_depth) = (self.now, self.simulation.queue_depth);
        if let Some(command) = self.machine().submit(now, queue_depth) {
            self.hash.submission(now, &command);
        }
    }

    /// Submits a request of a client.
    fn submit_request(&mut self, client: usize) -> Result<(), CheckError> {
        let now = self.now;
        let request = self.simulation.load.mix.random_request(&self.model, &mut self.clients.prng);
        let machine = self.machine.as_mut().expect("power is on");
        let submitted = self.model.submit(&mut machine.store, &request);
        machine.may_have_commands = true;
        self.requests += 1;
        self.last_request_at = self.events;
        let id = submitted.as_ref().ok().copied().flatten();
        self.trace.request_submitted(RequestRecord {
            id: id.map(|id| id.0),
            name: request.name().to_owned(),
            new_name: request.new_name().map(str::to_owned),
            text: format!("client {client}: {request}"),
            at: now,
            end: None,
        });
        self.clients.submitted(
            now,
            client,
            submitted.map_err(|violation| broken(violation, FailureKind::StrayCompletion))?,
        );
        Ok(())
    }

    /// Processes the events of the store, and checks them against the model.
    fn process_events(&mut self) -> Result<(), CheckError> {
        let now = self.now;
        while let Some(event) = self.machine().store.poll_event() {
            self.hash.mix(now.0);
            match event {
                Event::Done { request, result } if is_verify_id(request) => {
                    let may_fail = self.offline_zones > 0;
                    let Stage::Verifying { verify, .. } = &mut self.stage else {
                        let message = format!("verification read {} completed twice", request.0);
                        return Err(CheckError::new(FailureKind::StrayCompletion, None, message));
                    };
                    verify.take(request, result, may_fail)?;
                }
                Event::Ready if matches!(self.stage, Stage::Starting) => self.on_ready()?,
                Event::Failed(error) if matches!(self.stage, Stage::Starting) => {
                    return self.on_failed_start(&error);
                }
                event => self.on_event(event)?,
            }
        }
        self.continue_verify()?;
        let machine = self.machine.as_ref().expect("power is on");
        machine.store.check_invariants();
        match self.stage {
            Stage::Starting | Stage::Verifying { is_after_crash: true, .. } => Ok(()),
            Stage::Working | Stage::Verifying { .. } => {
                self.model.check_names(&machine.store).map_err(|violation| broken(violation, FailureKind::WrongAnswer))
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), CheckError> {
        let now = self.now;
        match &event {
            Event::Done { request, result } => {
                self.hash.mix(request.0 << 1 | u64::from(result.is_ok()));
                self.clients.completed(now, *request);
                self.trace.request_ended(request.0, now, result.as_ref().map(drop).map_err(ToString::to_string));
            }
            Event::Failed(error) => {
                self.trace.log(now, || format!("the store failed: {error}"));
                // The store is read only now: it is mounted again soon.
                self.next_kill = self.next_kill.min(self.events + 100);
            }
            Event::Ready => {}
        }
        let machine = self.machine.as_ref().expect("power is on");
        self.model.on_event(&machine.store, event).map_err(|violation| broken(violation, FailureKind::StrayCompletion))
    }

    /// Starts to read every file.
    pub(super) fn begin_verify(&mut self, is_after_crash: bool) -> Result<(), CheckError> {
        let block_bytes = self.simulation.geometry.block_size_bytes;
        let verify = VerifyPass::new(&self.machine().store, block_bytes);
        self.stage = Stage::Verifying { verify, is_after_crash };
        self.continue_verify()
    }

    fn continue_verify(&mut self) -> Result<(), CheckError> {
        let Stage::Verifying { verify, is_after_crash } = &mut self.stage else { return Ok(()) };
        let is_after_crash = *is_after_crash;
        let machine = self.machine.as_mut().expect("power is on");
        if verify.submit(&mut machine.store) {
            machine.may_have_commands = true;
        }
        if !verify.is_done() {
            return Ok(());
        }
        let Stage::Verifying { verify, .. } = std::mem::replace(&mut self.stage, Stage::Working) else {
            panic!("a verification was in progress")
        };
        self.last_life_with_requests = self.lives;
        let found = verify.into_found();
        for file in found.values() {
            self.hash.mix(file.content.len() as u64);
        }
        if !is_after_crash {
            let result = self.model.check_contents(&found);
            return result.map_err(|violation| broken(violation, FailureKind::WrongAnswer));
        }
        let (files, bytes) = (found.len(), found.values().map(|file| file.content.len()).sum::<usize>());
        self.model.recover(found).map_err(|violation| broken(violation, FailureKind::WrongAnswer))?;
        self.trace.log(self.now, || format!("  found {files} files of {bytes} bytes, as allowed"));
        let faults = !self.is_quiescing;
        self.machine().set_faults(faults);
        Ok(())
    }

    fn expect_rest(&self) -> Result<(), CheckError> {
        self.model.expect_idle().map_err(|violation| broken(violation, FailureKind::Starved))
    }

    fn oldest(&self) -> String {
        format!("{} requests have not completed", self.model.waiting())
    }

    pub(super) fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("power is on")
    }
}

/// The error of a violation; `ends` is the kind of a wrong completion.
fn broken(violation: Violation, ends: FailureKind) -> CheckError {
    use zonda_files::testing::Promise;
    let kind = match violation.promise {
        Promise::Answers => FailureKind::WrongAnswer,
        Promise::Ends => ends,
        Promise::Durability => FailureKind::LostWrite,
        Promise::Contents => FailureKind::WrongContents,
    };
    CheckError::new(kind, None, violation.message).of_file(violation.file)
}
