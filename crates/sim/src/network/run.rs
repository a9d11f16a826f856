//! One run of a network: time advances to the next event, and invariants are checked after it.

use std::collections::BTreeMap;

use zonda_initiator::Initiator;
use zonda_zoned::{CompletionQueue, Duration, Instant, Prng};

use super::bugs::NetworkBug;
use super::host::{Host, RunContext, Stage};
use super::link::{Link, Owner};
use super::server::Server;
use super::sharing::Sharing;
use super::simulation::Network;
use crate::bug::Bug;
use crate::event_trace::EventTrace;
use crate::hash::Hash;
use crate::observe::CheckError;
use crate::options::{Options, ScenarioKind};
use crate::outcome::{FailureKind, Outcome};

/// After all faults have ended, every host finishes within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(1_500);
/// Maximum number of events of a run.
const EVENTS_MAX: u64 = 3_000_000;
/// Until all faults end.
pub(super) const FOREVER: Instant = Instant(u64::MAX >> 1);

/// The state of one run of a network.
pub(crate) struct NetworkRun<'s> {
    pub(crate) simulation: &'s Network,
    options: &'s Options,
    pub(super) server: Server,
    pub(super) hosts: Vec<Host>,
    /// Hosts that share a namespace by reservations.
    pub(super) sharing: Option<Sharing>,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) next_link: u64,
    /// Connections of rogue clients, and when they are closed.
    pub(super) rogue_clients: Vec<(Instant, u64)>,
    /// The first bytes of an admin queue.
    pub(super) captured: Vec<u8>,
    pub(super) captured_from: Option<u64>,
    pub(crate) now: Instant,
    pub(super) hash: Hash,
    pub(crate) trace: EventTrace,
    next_id: u64,
    commands: u64,
    pub(super) events: u64,
    pub(super) faults: u64,
    next_fault: u64,
    faults_left: u64,
    /// When all faults ended.
    pub(super) faults_ended_at: Option<Instant>,
    pub(super) chaos_prng: Prng,
    pub(super) pipe_prng: Prng,
    order: Prng,
    pub(super) bug: Option<NetworkBug>,
    pub(super) bug_prng: Prng,
    scratch: CompletionQueue,
    due: Vec<DueEvent>,
}

/// An event that can be due.
#[derive(Clone, Copy, Debug)]
enum DueEvent {
    Open(u64),
    Up(u64),
    Down(u64),
    HostReset(u64),
    TargetReset(u64),
    Target,
    Drive(usize),
    Timer(usize),
    Host(usize),
    Server,
    RogueClients,
    /// A host of the shared namespace.
    Sharing(usize),
    /// The device that saves reservations.
    SaveReservations,
}

impl<'s> NetworkRun<'s> {
    pub(crate) fn new(simulation: &'s Network, options: &'s Options, trace: EventTrace) -> NetworkRun<'s> {
        let bug = match options.bug {
            Some(Bug::Network(bug)) => Some(bug),
            _ => None,
        };
        let hosts = simulation.hosts.iter().enumerate().map(|(index, shape)| {
            Host::new(index, shape, &simulation.drives[shape.drive], &simulation.root.fork(&format!("life/{index}")))
        });
        let mut run = NetworkRun {
            server: Server::new(simulation, bug),
            hosts: hosts.collect(),
            sharing: simulation.sharing.as_ref().map(|sharing| Sharing::new(sharing, simulation, bug)),
            links: BTreeMap::new(),
            next_link: 0,
            rogue_clients: Vec::new(),
            captured: Vec::new(),
            captured_from: None,
            now: Instant::ZERO,
            hash: Hash::default(),
            trace,
            next_id: 0,
            commands: 0,
            events: 0,
            faults: 0,
            next_fault: 0,
            faults_left: if simulation.chaos.is_empty() { 0 } else { simulation.chaos_max },
            faults_ended_at: None,
            chaos_prng: simulation.root.fork("strikes"),
            pipe_prng: simulation.root.fork("routes"),
            order: simulation.root.fork("order"),
            bug,
            bug_prng: simulation.root.fork("planted"),
            scratch: CompletionQueue::new(),
            due: Vec::new(),
            simulation,
            options,
        };
        run.schedule_fault();
        run
    }

    /// Runs to the end, or to the first error.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        while !self.hosts.iter().all(Host::is_done)
            || !self.sharing.as_ref().is_none_or(Sharing::is_done)
            || self.faults_ended_at.is_none()
        {
            self.step()?;
        }
        self.quiesce()
    }

    /// The outcome of the run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            scenario: ScenarioKind::Network,
            commands: self.commands,
            events: self.events,
            power_losses: self.server.kills,
            faults: self.faults,
            virtual_time: self.now.since(Instant::ZERO),
            hash: self.hash.value(),
            failure: None,
        }
    }

    /// One event, after any fault that is due.
    fn step(&mut self) -> Result<(), CheckError> {
        if self.faults_ended_at.is_none() {
            let has_little_left = |host: &Host| host.left <= host.reserve();
            let is_due = self.events >= self.next_fault;
            let have_little_left =
                self.hosts.iter().all(has_little_left) && self.sharing.as_ref().is_none_or(Sharing::has_little_left);
            if self.faults_left == 0 && is_due || have_little_left {
                self.end_faults();
            } else if is_due {
                self.faults_left -= 1;
                self.inject_fault();
                self.schedule_fault();
                self.run_effects()?;
            }
        }
        if !self.advance()? {
            if self.faults_ended_at.is_none() {
                self.end_faults();
                return Ok(());
            }
            return Err(CheckError::new(FailureKind::Starved, None, format!("{}; no event is due", self.oldest())));
        }
        if let Some(faults_ended_at) = self.faults_ended_at
            && self.now.since(faults_ended_at) > RECOVERY_MAX
        {
            let message = format!("{}, {RECOVERY_MAX} after all faults have ended", self.oldest());
            return Err(CheckError::new(FailureKind::Starved, None, message));
        }
        if self.events > EVENTS_MAX {
            let message = format!("{}, after {EVENTS_MAX} events", self.oldest());
            return Err(CheckError::new(FailureKind::Starved, None, message));
        }
        Ok(())
    }

    /// Advances to the next event and processes it; returns whether there was one.
    pub(super) fn advance(&mut self) -> Result<bool, CheckError> {
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        let mut next = Instant(u64::MAX);
        let now = self.now;
        self.each_due(|at, what| {
            let at = at.max(now);
            if at < next {
                next = at;
                due.clear();
            }
            if at == next {
                due.push(what);
            }
        });
        let what = self.order.pick(&due).copied();
        self.due = due;
        let Some(what) = what else { return Ok(false) };
        self.now = next;
        self.events += 1;
        self.act(what)?;
        self.run_effects()?;
        if self.release_fences()? {
            self.run_effects()?;
        }
        self.expire_lost();
        if self.server.is_draining {
            self.restart_drained();
        }
        self.check(what);
        Ok(true)
    }

    fn each_due(&self, mut visit: impl FnMut(Instant, DueEvent)) {
        for (&id, link) in &self.links {
            if let Some(at) = link.opens_at {
                visit(at, DueEvent::Open(id));
                continue;
            }
            if let Some(at) = link.up.next_at().filter(|_| !link.is_paused) {
                visit(at, DueEvent::Up(id));
            }
            if let Some(at) = link.down.next_at() {
                let stalled_until = match link.owner {
                    Owner::Host { host, .. } if link.host_end => self.hosts[host].stalled_until,
                    _ => Instant::ZERO,
                };
                visit(at.max(stalled_until), DueEvent::Down(id));
            }
            if let Some(at) = link.host_reset_at {
                visit(at, DueEvent::HostReset(id));
            }
            if let Some(at) = link.target_reset_at {
                visit(at, DueEvent::TargetReset(id));
            }
        }
        if let Some(at) = self.server.target.as_ref().and_then(|target| target.next_timeout()) {
            visit(at, DueEvent::Target);
        }
        for (place, drive) in self.server.drives.iter().enumerate() {
            if let Some(at) = drive.next_timeout() {
                visit(at, DueEvent::Drive(place));
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if let Some(at) = host.machine.as_ref().and_then(Initiator::next_timeout) {
                visit(at, DueEvent::Timer(index));
            }
            if let Some(at) = host.wake_at {
                visit(at, DueEvent::Host(index));
            }
        }
        if let Some(at) = self.server.up_at {
            visit(at, DueEvent::Server);
        }
        if let Some(sharing) = &self.sharing {
            sharing.wakeups().for_each(|(host, at)| visit(at, DueEvent::Sharing(host)));
        }
        if let Some(at) = self.server.store.as_ref().and_then(|store| store.next_at()) {
            visit(at, DueEvent::SaveReservations);
        }
        if let Some(at) = self.rogue_clients.iter().map(|(until, _)| *until).min() {
            visit(at, DueEvent::RogueClients);
        }
    }

    fn act(&mut self, what: DueEvent) -> Result<(), CheckError> {
        let now = self.now;
        match what {
            DueEvent::Open(id) => self.link_opens(id),
            DueEvent::Up(id) => self.link_up(id),
            DueEvent::Down(id) => self.link_down(id),
            DueEvent::HostReset(id) => self.host_loses(id, "connection reset by peer"),
            DueEvent::TargetReset(id) => self.target_loses(id),
            DueEvent::Target => self.server.target.as_mut().expect("it has a timer").on_timeout(now),
            DueEvent::Drive(place) => self.server.poll(now, place, &mut self.scratch),
            DueEvent::Timer(index) => self.hosts[index].machine.as_mut().expect("it has a timer").on_timeout(now),
            DueEvent::Host(index) => self.with_host(index, Host::act)?,
            DueEvent::Server => {
                self.server.come_up(self.simulation);
                self.update_sharing_disturbance();
                self.trace.log(now, || "the server is up".to_owned());
            }
            DueEvent::RogueClients => self.close_rogue_clients(now),
            DueEvent::Sharing(host) => self.sharing_acts(host)?,
            DueEvent::SaveReservations => self.end_save(),
        }
        Ok(())
    }

    pub(super) fn with_host<R>(&mut self, host: usize, act: impl FnOnce(&mut Host, &mut RunContext<'_>) -> R) -> R {
        let mut context = RunContext {
            now: self.now,
            hash: &mut self.hash,
            trace: &mut self.trace,
            next_id: &mut self.next_id,
            commands: &mut self.commands,
            faults: &mut self.faults,
        };
        act(&mut self.hosts[host], &mut context)
    }

    /// Releases hosts whose old connections can have no more effect: the target has closed them,
    /// and the drive has completed their commands, so that no power loss undoes them. A real host
    /// waits until that is certain.
    fn release_fences(&mut self) -> Result<bool, CheckError> {
        let mut has_released = false;
        for index in 0..self.hosts.len() {
            let host = &self.hosts[index];
            let Stage::Fenced(number) = host.stage else { continue };
            let is_old = |link: &Link| {
                let Owner::Host { host: of, epoch, .. } = link.owner else { return false };
                of == index && epoch < host.epoch && link.connection.is_some()
            };
            let drive = &self.server.drives[self.simulation.hosts[index].drive];
            let is_free = match number {
                _ if self.bug == Some(NetworkBug::ImpatientHost) => true,
                Some(number) => drive.has_ended(number),
                None if self.links.values().any(is_old) => false,
                None => {
                    let number = drive.submitted();
                    self.hosts[index].stage = Stage::Fenced(Some(number));
                    drive.has_ended(number)
                }
            };
            if is_free {
                self.with_host(index, Host::begin_verify)?;
                has_released = true;
            }
        }
        Ok(has_released)
    }

    fn check(&self, what: DueEvent) {
        if let Some(target) = &self.server.target {
            target.check_invariants();
        }
        let host = match what {
            DueEvent::Timer(host) | DueEvent::Host(host) => Some(host),
            DueEvent::Open(id) | DueEvent::Down(id) | DueEvent::HostReset(id) => {
                match self.links.get(&id).map(|link| link.owner) {
                    Some(Owner::Host { host, .. }) => Some(host),
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some(machine) = host.and_then(|host| self.hosts[host].machine.as_ref()) {
            machine.check_invariants();
        }
        if self.events.is_multiple_of(self.simulation.check_every) {
            self.server.drives.iter().for_each(super::drive::Drive::check_invariants);
        }
    }

    pub(super) fn count_command(&mut self) {
        self.commands += 1;
    }

    pub(super) fn mix(&mut self, value: u64) {
        self.hash.mix(value);
    }

    /// Updates until when the hosts of the shared namespace are excused: once all faults have ended
    /// and the server is up, for a short time; else without limit.
    pub(super) fn update_sharing_disturbance(&mut self) {
        let is_undisturbed = self.faults_ended_at.is_some() && self.server.target.is_some() && !self.server.is_draining;
        let until = if is_undisturbed { self.now + super::chaos::AFTERMATH } else { FOREVER };
        if let Some(sharing) = &mut self.sharing {
            sharing.disturb_until(until);
        }
    }

    fn oldest(&self) -> String {
        let host = self.hosts.iter().find(|host| !matches!(host.stage, Stage::Finished));
        host.map_or_else(|| "all hosts are finished".to_owned(), Host::oldest)
    }

    fn schedule_fault(&mut self) {
        self.next_fault = self.events + 1 + self.chaos_prng.below(2 * self.simulation.chaos_every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which the first host floods its drive, and stops reading once it works.
    fn run_with_flooding_host(seed: u64, options: &Options) -> Option<u64> {
        let mut simulation = Network::new(seed, options);
        simulation.chaos.clear();
        if simulation.hosts.len() < 2 {
            return None;
        }
        let flood = &mut simulation.hosts[0].load;
        (flood.commands, flood.phase_commands, flood.queue_depth) = (100_000, 100_000, 64);
        flood.pause = Duration::ZERO;
        let mut run = NetworkRun::new(&simulation, options, EventTrace::default());
        run.next_fault = u64::MAX;
        while !run.hosts[1..].iter().all(Host::is_done) {
            if let Err(error) = run.step() {
                panic!("seed {seed}: {}", error.message);
            }
            if matches!(run.hosts[0].stage, Stage::Working) && run.hosts[0].left < 99_990 {
                run.hosts[0].stalled_until = FOREVER;
                run.hosts[0].disturb(FOREVER);
            }
            assert!(run.faults_ended_at.is_none() && run.events < EVENTS_MAX, "seed {seed}");
        }
        Some(run.commands)
    }

    #[test]
    fn a_host_that_floods_and_never_reads_does_not_block_other_hosts() {
        let options = Options::default();
        let runs = (0..40).filter_map(|seed| run_with_flooding_host(seed, &options));
        assert!(runs.count() > 20);
    }
}
