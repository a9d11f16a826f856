//! One run of a network: time jumps to what is due next, and everything that must hold is checked after it.

use std::collections::BTreeMap;

use zonda_initiator::Initiator;
use zonda_zoned::{CompletionQueue, Duration, Instant, Prng};

use super::bugs::NetworkBug;
use super::host::{Desk, Host, Stage};
use super::link::{Link, Owner};
use super::server::Server;
use super::sharing::Sharing;
use super::world::Network;
use crate::hash::Hash;
use crate::options::{Bug, Options, WorldKind};
use crate::outcome::{FailureKind, Outcome};
use crate::story::Teller;
use crate::survey::Trouble;

/// When the world has stopped doing things, every host ends its work within this time.
const HEALING_MAX: Duration = Duration::from_secs(1_500);
/// And within so many events.
const EVENTS_MAX: u64 = 3_000_000;
/// Until everything is healed.
pub(super) const EVER: Instant = Instant(u64::MAX >> 1);

/// One run of a world, with everything that changes in it.
pub(crate) struct NetworkRun<'w> {
    pub(crate) world: &'w Network,
    options: &'w Options,
    pub(super) server: Server,
    pub(super) hosts: Vec<Host>,
    /// Hosts that share a namespace by reservations.
    pub(super) sharing: Option<Sharing>,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) next_link: u64,
    /// Connections of strangers, and when they end.
    pub(super) strangers: Vec<(Instant, u64)>,
    /// How an admin queue began.
    pub(super) captured: Vec<u8>,
    pub(super) captured_from: Option<u64>,
    pub(crate) now: Instant,
    pub(super) hash: Hash,
    pub(crate) teller: Teller,
    next_id: u64,
    commands: u64,
    pub(super) events: u64,
    pub(super) faults: u64,
    next_strike: u64,
    strikes_left: u64,
    /// When the world stopped doing things.
    pub(super) healed_at: Option<Instant>,
    pub(super) chaos_prng: Prng,
    pub(super) pipe_prng: Prng,
    order: Prng,
    pub(super) bug: Option<NetworkBug>,
    pub(super) bug_prng: Prng,
    scratch: CompletionQueue,
    due: Vec<What>,
}

/// Something that can be due.
#[derive(Clone, Copy, Debug)]
enum What {
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
    Strangers,
    /// A host that shares.
    Sharing(usize),
    /// The device that keeps reservations.
    Keeping,
}

impl<'w> NetworkRun<'w> {
    pub(crate) fn new(world: &'w Network, options: &'w Options, teller: Teller) -> NetworkRun<'w> {
        let bug = match options.bug {
            Some(Bug::Network(bug)) => Some(bug),
            _ => None,
        };
        let hosts = world.hosts.iter().enumerate().map(|(index, shape)| {
            Host::new(index, shape, &world.drives[shape.drive], &world.root.fork(&format!("life/{index}")))
        });
        let mut run = NetworkRun {
            server: Server::new(world, bug),
            hosts: hosts.collect(),
            sharing: world.sharing.as_ref().map(|sharing| Sharing::new(sharing, world, bug)),
            links: BTreeMap::new(),
            next_link: 0,
            strangers: Vec::new(),
            captured: Vec::new(),
            captured_from: None,
            now: Instant::ZERO,
            hash: Hash::default(),
            teller,
            next_id: 0,
            commands: 0,
            events: 0,
            faults: 0,
            next_strike: 0,
            strikes_left: if world.chaos.is_empty() { 0 } else { world.chaos_max },
            healed_at: None,
            chaos_prng: world.root.fork("strikes"),
            pipe_prng: world.root.fork("routes"),
            order: world.root.fork("order"),
            bug,
            bug_prng: world.root.fork("planted"),
            scratch: CompletionQueue::new(),
            due: Vec::new(),
            world,
            options,
        };
        run.schedule_strike();
        run
    }

    /// Runs to the end, or to the first thing that is wrong.
    pub(crate) fn run(&mut self) -> Result<(), Trouble> {
        while !self.hosts.iter().all(Host::is_done)
            || !self.sharing.as_ref().is_none_or(Sharing::is_done)
            || self.healed_at.is_none()
        {
            self.step()?;
        }
        self.come_to_rest()
    }

    /// The verdict on what was run.
    pub(crate) fn outcome(&self, seed: u64) -> Outcome {
        Outcome {
            seed,
            mode: self.options.mode,
            world: WorldKind::Network,
            commands: self.commands,
            events: self.events,
            power_losses: self.server.deaths,
            faults: self.faults,
            virtual_time: self.now.since(Instant::ZERO),
            hash: self.hash.value(),
            failure: None,
        }
    }

    /// One event, and what the world does before it.
    fn step(&mut self) -> Result<(), Trouble> {
        if self.healed_at.is_none() {
            let has_little_left = |host: &Host| host.left <= host.reserve();
            let is_due = self.events >= self.next_strike;
            let have_little_left =
                self.hosts.iter().all(has_little_left) && self.sharing.as_ref().is_none_or(Sharing::has_little_left);
            if self.strikes_left == 0 && is_due || have_little_left {
                self.heal();
            } else if is_due {
                self.strikes_left -= 1;
                self.strike();
                self.schedule_strike();
                self.settle()?;
            }
        }
        if !self.advance()? {
            if self.healed_at.is_none() {
                self.heal();
                return Ok(());
            }
            return Err(Trouble::new(FailureKind::Starved, None, format!("{}; nothing is due", self.oldest())));
        }
        if let Some(healed_at) = self.healed_at
            && self.now.since(healed_at) > HEALING_MAX
        {
            let message = format!("{} after {HEALING_MAX} without disturbance", self.oldest());
            return Err(Trouble::new(FailureKind::Starved, None, message));
        }
        if self.events > EVENTS_MAX {
            let message = format!("{} after {EVENTS_MAX} events", self.oldest());
            return Err(Trouble::new(FailureKind::Starved, None, message));
        }
        Ok(())
    }

    /// Jumps to what is due next and does it; says whether there was anything.
    pub(super) fn advance(&mut self) -> Result<bool, Trouble> {
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
        self.settle()?;
        if self.release_fences()? {
            self.settle()?;
        }
        self.expire_lost();
        if self.server.is_draining {
            self.restart_drained();
        }
        self.check(what);
        Ok(true)
    }

    fn each_due(&self, mut tell: impl FnMut(Instant, What)) {
        for (&id, link) in &self.links {
            if let Some(at) = link.opens_at {
                tell(at, What::Open(id));
                continue;
            }
            if let Some(at) = link.up.next_at().filter(|_| !link.is_paused) {
                tell(at, What::Up(id));
            }
            if let Some(at) = link.down.next_at() {
                let stalled_until = match link.owner {
                    Owner::Host { host, .. } if link.host_end => self.hosts[host].stalled_until,
                    _ => Instant::ZERO,
                };
                tell(at.max(stalled_until), What::Down(id));
            }
            if let Some(at) = link.host_reset_at {
                tell(at, What::HostReset(id));
            }
            if let Some(at) = link.target_reset_at {
                tell(at, What::TargetReset(id));
            }
        }
        if let Some(at) = self.server.target.as_ref().and_then(|target| target.next_timeout()) {
            tell(at, What::Target);
        }
        for (place, drive) in self.server.drives.iter().enumerate() {
            if let Some(at) = drive.next_wakeup() {
                tell(at, What::Drive(place));
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            if let Some(at) = host.machine.as_ref().and_then(Initiator::next_timeout) {
                tell(at, What::Timer(index));
            }
            if let Some(at) = host.wake_at {
                tell(at, What::Host(index));
            }
        }
        if let Some(at) = self.server.up_at {
            tell(at, What::Server);
        }
        if let Some(sharing) = &self.sharing {
            sharing.wakeups().for_each(|(host, at)| tell(at, What::Sharing(host)));
        }
        if let Some(at) = self.server.store.as_ref().and_then(|store| store.next_at()) {
            tell(at, What::Keeping);
        }
        if let Some(at) = self.strangers.iter().map(|(until, _)| *until).min() {
            tell(at, What::Strangers);
        }
    }

    fn act(&mut self, what: What) -> Result<(), Trouble> {
        let now = self.now;
        match what {
            What::Open(id) => self.link_opens(id),
            What::Up(id) => self.link_up(id),
            What::Down(id) => self.link_down(id),
            What::HostReset(id) => self.host_loses(id, "connection reset by peer"),
            What::TargetReset(id) => self.target_loses(id),
            What::Target => self.server.target.as_mut().expect("it has a timer").timeout(now),
            What::Drive(place) => self.server.poll(now, place, &mut self.scratch),
            What::Timer(index) => self.hosts[index].machine.as_mut().expect("it has a timer").timeout(now),
            What::Host(index) => self.with_host(index, Host::act)?,
            What::Server => {
                self.server.come_up(self.world);
                self.calm_sharing();
                self.teller.tell(now, || "the server is back".to_owned());
            }
            What::Strangers => self.close_strangers(now),
            What::Sharing(host) => self.sharing_acts(host)?,
            What::Keeping => self.end_keeping(),
        }
        Ok(())
    }

    pub(super) fn with_host<R>(&mut self, host: usize, act: impl FnOnce(&mut Host, &mut Desk<'_>) -> R) -> R {
        let mut desk = Desk {
            now: self.now,
            hash: &mut self.hash,
            teller: &mut self.teller,
            next_id: &mut self.next_id,
            commands: &mut self.commands,
            faults: &mut self.faults,
        };
        act(&mut self.hosts[host], &mut desk)
    }

    /// Hosts go on of whose old connections nothing can come any more: the target has let go of them, and the drive has
    /// ended what came of them, so that no loss of power takes it back. A real host waits until that is certain.
    fn release_fences(&mut self) -> Result<bool, Trouble> {
        let mut has_released = false;
        for index in 0..self.hosts.len() {
            let host = &self.hosts[index];
            let Stage::Fenced(number) = host.stage else { continue };
            let is_old = |link: &Link| {
                let Owner::Host { host: of, epoch, .. } = link.owner else { return false };
                of == index && epoch < host.epoch && link.connection.is_some()
            };
            let drive = &self.server.drives[self.world.hosts[index].drive];
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
                self.with_host(index, Host::begin_look)?;
                has_released = true;
            }
        }
        Ok(has_released)
    }

    fn check(&self, what: What) {
        if let Some(target) = &self.server.target {
            target.check_invariants();
        }
        let host = match what {
            What::Timer(host) | What::Host(host) => Some(host),
            What::Open(id) | What::Down(id) | What::HostReset(id) => match self.links.get(&id).map(|link| link.owner) {
                Some(Owner::Host { host, .. }) => Some(host),
                _ => None,
            },
            _ => None,
        };
        if let Some(machine) = host.and_then(|host| self.hosts[host].machine.as_ref()) {
            machine.check_invariants();
        }
        if self.events.is_multiple_of(self.world.check_every) {
            self.server.drives.iter().for_each(super::drive::Drive::check_invariants);
        }
    }

    pub(super) fn count_command(&mut self) {
        self.commands += 1;
    }

    pub(super) fn mix(&mut self, value: u64) {
        self.hash.mix(value);
    }

    /// After everything is healed and while there is a server, nobody disturbs the hosts that share.
    pub(super) fn calm_sharing(&mut self) {
        let is_calm = self.healed_at.is_some() && self.server.target.is_some() && !self.server.is_draining;
        let until = if is_calm { self.now + super::chaos::AFTERMATH } else { EVER };
        if let Some(sharing) = &mut self.sharing {
            sharing.disturb_until(until);
        }
    }

    fn oldest(&self) -> String {
        let host = self.hosts.iter().find(|host| !matches!(host.stage, Stage::Resting));
        host.map_or_else(|| "all hosts rest".to_owned(), Host::oldest)
    }

    fn schedule_strike(&mut self) {
        self.next_strike = self.events + 1 + self.chaos_prng.below(2 * self.world.chaos_every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which the first host floods its drive, and reads nothing once it works.
    fn with_a_deaf_flood(seed: u64, options: &Options) -> Option<u64> {
        let mut world = Network::new(seed, options);
        world.chaos.clear();
        if world.hosts.len() < 2 {
            return None;
        }
        let flood = &mut world.hosts[0].load;
        (flood.commands, flood.phase_commands, flood.queue_depth) = (100_000, 100_000, 64);
        flood.pause = Duration::ZERO;
        let mut run = NetworkRun::new(&world, options, Teller::default());
        run.next_strike = u64::MAX;
        while !run.hosts[1..].iter().all(Host::is_done) {
            if let Err(trouble) = run.step() {
                panic!("seed {seed}: {}", trouble.message);
            }
            if matches!(run.hosts[0].stage, Stage::Working) && run.hosts[0].left < 99_990 {
                run.hosts[0].stalled_until = EVER;
                run.hosts[0].disturb(EVER);
            }
            assert!(run.healed_at.is_none() && run.events < EVENTS_MAX, "seed {seed}");
        }
        Some(run.commands)
    }

    #[test]
    fn a_host_that_floods_and_never_reads_keeps_no_other_from_its_work() {
        let options = Options::default();
        let runs = (0..40).filter_map(|seed| with_a_deaf_flood(seed, &options));
        assert!(runs.count() > 20);
    }
}
