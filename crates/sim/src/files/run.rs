//! One run of a world with files: what can happen next happens, by lot, and everything that must hold is checked after it.

use zonda_files::testing::{Model, Violation};
use zonda_files::{Event, FileStore, SeededBug};
use zonda_layers::Shared;
use zonda_ssd::Ssd;
use zonda_zoned::{Instant, PayloadKind, Prng};

use super::clients::Clients;
use super::look::{Look, is_of_look};
use super::machine::Machine;
use super::world::{FilesWorld, UUID};
use crate::check::liveness;
use crate::hash::Hash;
use crate::options::{Bug, Options, WorldKind};
use crate::outcome::{FailureKind, Outcome};
use crate::story::{Asked, Teller};
use crate::survey::Trouble;

/// Events within which a client asks for something, or everything comes to rest.
const IDLE_EVENTS_MAX: u64 = 200_000;

/// One run of a world, with everything that changes in it.
pub(crate) struct FilesRun<'w> {
    pub(super) world: &'w FilesWorld,
    pub(super) options: &'w Options,
    /// Absent only while the power is off.
    pub(super) machine: Option<Machine>,
    pub(super) model: Model,
    pub(super) clients: Clients,
    pub(super) stage: Stage,
    pub(crate) now: Instant,
    pub(super) hash: Hash,
    pub(crate) teller: Teller,
    pub(super) watch: liveness::Watch,
    requests: u64,
    pub(super) events: u64,
    /// The event with which a client last asked for something.
    asked_at: u64,
    pub(super) power_losses: u64,
    pub(super) faults: u64,
    /// How often a store was mounted.
    pub(super) lives: u64,
    /// The last life in which clients worked.
    pub(super) last_worked: u64,
    /// Mounts that failed, one behind the other.
    pub(super) failed_mounts: u32,
    /// No new requests, no faults, no interference.
    pub(super) is_resting: bool,
    order: Prng,
    pub(super) power_prng: Prng,
    pub(super) degradation_prng: Prng,
    pub(super) next_power_loss: u64,
    pub(super) next_death: u64,
    pub(super) next_degradation: u64,
    /// Zones that cannot be read any more.
    pub(super) offline_zones: u64,
    /// One of the metadata zones has become read only.
    pub(super) has_weak_log: bool,
    pub(super) bug: Option<SeededBug>,
}

/// What is going on.
pub(super) enum Stage {
    /// The store is being formatted or mounted.
    Starting,
    /// Every file is being read; after a crash, or at rest.
    Looking { look: Look, is_after_crash: bool },
    /// Clients ask.
    Working,
}

/// Something that can happen next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Deliver,
    Submit,
    Poll,
    Ask(usize),
}

impl<'w> FilesRun<'w> {
    pub(crate) fn new(world: &'w FilesWorld, options: &'w Options, teller: Teller) -> FilesRun<'w> {
        let bug = match options.bug {
            Some(Bug::Files(bug)) => Some(bug),
            _ => None,
        };
        let drive = Ssd::new(&world.profile, PayloadKind::Bytes, &world.root.fork("life/0"));
        let store = FileStore::format(&world.geometry, world.config, UUID).expect("they suit");
        let mut model = Model::new();
        model.may_fail = !world.faults.is_empty() || world.degradation_every.is_some();
        let mut run = FilesRun {
            machine: None,
            model,
            clients: Clients::new(&world.load, &world.root),
            stage: Stage::Starting,
            now: Instant::ZERO,
            hash: Hash::default(),
            teller,
            watch: liveness::Watch::default(),
            requests: 0,
            events: 0,
            asked_at: 0,
            power_losses: 0,
            faults: 0,
            lives: 0,
            last_worked: 0,
            failed_mounts: 0,
            is_resting: true,
            order: world.root.fork("order"),
            power_prng: world.root.fork("power losses"),
            degradation_prng: world.root.fork("degradations"),
            next_power_loss: u64::MAX,
            next_death: u64::MAX,
            next_degradation: u64::MAX,
            offline_zones: 0,
            has_weak_log: false,
            bug,
            world,
            options,
        };
        run.start(Shared::new(drive), store);
        run
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub(crate) fn run(&mut self) -> Result<(), Trouble> {
        self.come_to_rest()?;
        self.schedule_all();
        let mut phase_end = self.world.load.phase_requests;
        while self.requests < self.world.load.requests {
            self.interfere();
            self.advance()?;
            if self.requests >= phase_end {
                self.come_to_rest()?;
                phase_end = self.requests.saturating_add(self.world.load.phase_requests);
            }
        }
        if self.world.power_loss_every.is_some() && self.power_prng.chance(2, 3) {
            self.lose_power();
        }
        self.come_to_rest()
    }

    /// The verdict on what was run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            world: WorldKind::Files,
            commands: self.requests,
            events: self.events,
            power_losses: self.power_losses,
            faults: self.faults + self.machine.as_ref().map_or(0, Machine::struck),
            virtual_time: self.now.since(Instant::ZERO),
            hash: self.hash.value(),
            failure: None,
        }
    }

    /// Nothing more is asked for, and nothing fails any more: everything must end, and every file must be as it must.
    fn come_to_rest(&mut self) -> Result<(), Trouble> {
        self.is_resting = true;
        self.asked_at = self.events;
        self.machine().set_faults(false);
        while !(matches!(self.stage, Stage::Working) && self.machine().is_quiet()) {
            self.advance()?;
        }
        self.expect_rest()?;
        self.machine().drive.with_inner(Ssd::check_invariants);
        self.begin_look(false)?;
        while !matches!(self.stage, Stage::Working) {
            self.advance()?;
        }
        self.is_resting = false;
        self.machine().set_faults(true);
        self.teller.tell(self.now, || "everything has ended, and every file is as it must be".to_owned());
        Ok(())
    }

    /// One event. If nothing can happen now, time jumps to where something can.
    fn advance(&mut self) -> Result<(), Trouble> {
        self.events += 1;
        if self.events > self.asked_at + IDLE_EVENTS_MAX {
            let usage = self.machine().store.usage();
            let message = format!("{}, and the store goes on for ever: {usage:?}", self.oldest());
            return Err(Trouble::new(FailureKind::Starved, None, message));
        }
        let now = self.now;
        let wakeup = self.machine().next_wakeup();
        let asks = matches!(self.stage, Stage::Working) && !self.is_resting;
        let client = self.clients.next_ready().filter(|_| asks && self.requests < self.world.load.requests);
        let machine = self.machine.as_ref().expect("the power is on");
        let candidates = [
            machine.has_completions().then_some(Next::Deliver),
            machine.may_have_commands.then_some(Next::Submit),
            wakeup.filter(|wakeup| *wakeup <= now).map(|_| Next::Poll),
            client.filter(|(ready_at, _)| *ready_at <= now).map(|(_, client)| Next::Ask(client)),
        ];
        let candidates: Vec<Next> = candidates.into_iter().flatten().collect();
        let Some(next) = self.order.pick(&candidates).copied() else {
            return self.jump(wakeup.into_iter().chain(client.map(|(ready_at, _)| ready_at)).min());
        };
        match next {
            Next::Deliver => self.deliver(),
            Next::Submit => self.submit(),
            Next::Poll => self.machine().poll(now),
            Next::Ask(client) => self.ask(client)?,
        }
        self.hear()?;
        if self.events.is_multiple_of(self.world.check_every) {
            self.machine().drive.with_inner(Ssd::check_invariants);
        }
        Ok(())
    }

    /// Nothing can happen now.
    fn jump(&mut self, to: Option<Instant>) -> Result<(), Trouble> {
        if self.machine().is_quiet() {
            self.watch.progress(self.now);
            match &self.stage {
                Stage::Starting => return Err(liveness::asleep("the store is starting, and never ready")),
                Stage::Looking { .. } => return Err(liveness::asleep("files are being read, and never come")),
                Stage::Working => self.expect_rest()?,
            }
        }
        let Some(to) = to else { return Err(liveness::asleep(&self.oldest())) };
        self.now = self.now.max(to);
        self.watch.check(self.now, || "commands of the store are under way".to_owned())
    }

    fn deliver(&mut self) {
        let now = self.now;
        let machine = self.machine.as_mut().expect("the power is on");
        let completion = machine.deliver(now, &mut self.order);
        self.hash.completion(now, &completion);
        self.watch.progress(now);
    }

    fn submit(&mut self) {
        let (now, queue_depth) = (self.now, self.world.queue_depth);
        if let Some(command) = self.machine().submit(now, queue_depth) {
            self.hash.submission(now, &command);
        }
    }

    /// A client asks for something.
    fn ask(&mut self, client: usize) -> Result<(), Trouble> {
        let now = self.now;
        let request = self.world.load.mix.draw(&self.model, &mut self.clients.prng);
        let machine = self.machine.as_mut().expect("the power is on");
        let asked = self.model.ask(&mut machine.store, &request);
        machine.may_have_commands = true;
        self.requests += 1;
        self.asked_at = self.events;
        let id = asked.as_ref().ok().copied().flatten();
        self.teller.asked(Asked {
            id: id.map(|id| id.0),
            name: request.name().to_owned(),
            new_name: request.new_name().map(str::to_owned),
            what: format!("client {client}: {request}"),
            at: now,
            end: None,
        });
        self.clients.asked(now, client, asked.map_err(|violation| broken(violation, FailureKind::StrayCompletion))?);
        Ok(())
    }

    /// Takes the store's news, and holds it against what must be.
    fn hear(&mut self) -> Result<(), Trouble> {
        let now = self.now;
        while let Some(event) = self.machine().store.poll_event() {
            self.hash.mix(now.0);
            match event {
                Event::Done { request, result } if is_of_look(request) => {
                    let may_fail = self.offline_zones > 0;
                    let Stage::Looking { look, .. } = &mut self.stage else {
                        let message = format!("read {} of a look at the files ended twice", request.0);
                        return Err(Trouble::new(FailureKind::StrayCompletion, None, message));
                    };
                    look.take(request, result, may_fail)?;
                }
                Event::Ready if matches!(self.stage, Stage::Starting) => self.on_ready()?,
                Event::Failed(error) if matches!(self.stage, Stage::Starting) => {
                    return self.on_failed_start(&error);
                }
                event => self.on_event(event)?,
            }
        }
        self.go_on_looking()?;
        let machine = self.machine.as_ref().expect("the power is on");
        machine.store.check_invariants();
        match self.stage {
            Stage::Starting | Stage::Looking { is_after_crash: true, .. } => Ok(()),
            Stage::Working | Stage::Looking { .. } => {
                self.model.check_names(&machine.store).map_err(|violation| broken(violation, FailureKind::WrongAnswer))
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), Trouble> {
        let now = self.now;
        match &event {
            Event::Done { request, result } => {
                self.hash.mix(request.0 << 1 | u64::from(result.is_ok()));
                self.clients.ended(now, *request);
                self.teller.answered(request.0, now, result.as_ref().map(drop).map_err(ToString::to_string));
            }
            Event::Failed(error) => {
                self.teller.tell(now, || format!("the store says: {error}"));
                // Nothing can be changed any more: it is mounted again soon.
                self.next_death = self.next_death.min(self.events + 100);
            }
            Event::Ready => {}
        }
        let machine = self.machine.as_ref().expect("the power is on");
        self.model.hear(&machine.store, event).map_err(|violation| broken(violation, FailureKind::StrayCompletion))
    }

    /// Begins to read every file.
    pub(super) fn begin_look(&mut self, is_after_crash: bool) -> Result<(), Trouble> {
        let block_bytes = self.world.geometry.block_size_bytes;
        let look = Look::new(&self.machine().store, block_bytes);
        self.stage = Stage::Looking { look, is_after_crash };
        self.go_on_looking()
    }

    fn go_on_looking(&mut self) -> Result<(), Trouble> {
        let Stage::Looking { look, is_after_crash } = &mut self.stage else { return Ok(()) };
        let is_after_crash = *is_after_crash;
        let machine = self.machine.as_mut().expect("the power is on");
        if look.ask(&mut machine.store) {
            machine.may_have_commands = true;
        }
        if !look.is_done() {
            return Ok(());
        }
        let Stage::Looking { look, .. } = std::mem::replace(&mut self.stage, Stage::Working) else {
            panic!("a look was under way")
        };
        self.last_worked = self.lives;
        let found = look.into_found();
        for file in found.values() {
            self.hash.mix(file.content.len() as u64);
        }
        if !is_after_crash {
            let result = self.model.check_found(&found);
            return result.map_err(|violation| broken(violation, FailureKind::WrongAnswer));
        }
        let (files, bytes) = (found.len(), found.values().map(|file| file.content.len()).sum::<usize>());
        self.model.found(found).map_err(|violation| broken(violation, FailureKind::WrongAnswer))?;
        self.teller.tell(self.now, || format!("  {files} files of {bytes} bytes are there, as they may be"));
        let faults = !self.is_resting;
        self.machine().set_faults(faults);
        Ok(())
    }

    fn expect_rest(&self) -> Result<(), Trouble> {
        self.model.expect_rest().map_err(|violation| broken(violation, FailureKind::Starved))
    }

    fn oldest(&self) -> String {
        format!("{} requests have not ended", self.model.waiting())
    }

    pub(super) fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("the power is on")
    }
}

/// A promise that was not kept as what went wrong; `ends` is what a wrong end is.
fn broken(violation: Violation, ends: FailureKind) -> Trouble {
    use zonda_files::testing::Promise;
    let kind = match violation.promise {
        Promise::Answers => FailureKind::WrongAnswer,
        Promise::Ends => ends,
        Promise::Durability => FailureKind::LostWrite,
        Promise::Contents => FailureKind::WrongContents,
    };
    Trouble::new(kind, None, violation.message).of_file(violation.file)
}
