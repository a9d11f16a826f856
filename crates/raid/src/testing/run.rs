//! A run of a generated simulation, and its results.

mod quiet;

use zonda_zoned::{Duration, Prng};

use super::{Drive, FaultBudget, Faults, Journal, Presence, Promise, Simulation, Strictness, Swarm, Violation};
use crate::{Event, Level, MemberReport, MemberState};

/// Read errors of a victim during a mount, per 1000 reads.
const READ_ERRORS_AT_MOUNT_PER_MILLE: u64 = 50;
/// Maximum steps of an interrupted mount.
const CUT_STEPS: u64 = 600;
/// Maximum write commands of an interrupted mount.
const CUT_WRITES: u64 = 160;
/// Rounds of load after which a rebuild must have found space.
const REBUILD_ROUNDS_MAX: u32 = 8;
/// Steps of a round.
const REBUILD_ROUND_STEPS: u64 = 400;
/// Maximum pause of the program.
const LONGEST_PAUSE_SECONDS: u64 = 120;

/// Results of a run that kept all guarantees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A hash over all commands and all completions that hosts received.
    pub hash: u64,
    /// Requests that completed.
    pub requests: u64,
    /// Commands that members completed.
    pub completions: u64,
    /// Commands that failed.
    pub failed_commands: u64,
    /// Faults injected into members.
    pub injected_faults: u64,
    /// Members that failed.
    pub failed_members: u64,
    /// Power losses, and kills of the program, those during mounts included.
    pub crashes: u64,
    /// Mounts.
    pub mounts: u64,
    /// How often all members were intact again.
    pub healed: u64,
    /// Scrubs that were started.
    pub scrubs: u64,
    /// Segments that were collected.
    pub collected: u64,
    /// Blocks that were reconstructed from the rest of their stripe.
    pub reconstructed: u64,
    /// Incidents that took place.
    pub incidents: u64,
    /// Mounts that were refused.
    pub refused_mounts: u64,
    /// Blocks lost beyond the tolerance of the volume.
    pub lost_blocks: u64,
}

/// A run in progress.
#[derive(Debug)]
pub struct SwarmRun {
    pub(super) swarm: Swarm,
    pub(super) simulation: Simulation,
    pub(super) fault_budget: Option<FaultBudget>,
    /// Victims are being replaced: until then no faults are injected.
    pub(super) is_replacing: bool,
    pub(super) steps: u64,
    pub(super) outcome: Outcome,
    /// Nothing is left of the volume that could be mounted.
    pub(super) is_over: bool,
    prngs: Prngs,
}

/// A random generator for each kind of event.
#[derive(Debug)]
struct Prngs {
    victims: Prng,
    faults: Prng,
    injected_faults: Prng,
    scrubs: Prng,
    heals: Prng,
    crashes: Prng,
    absences: Prng,
    hazards: Prng,
    pauses: Prng,
    quiet: Prng,
    returns: Prng,
}

impl SwarmRun {
    pub(super) fn new(swarm: Swarm) -> SwarmRun {
        let root = Prng::new(swarm.seed);
        let is_volatile = swarm.config.tuning.is_cache_volatile;
        let drive = |(at, geometry): (usize, &zonda_zoned::Geometry)| {
            let drive = Drive::new(geometry.clone(), root.fork(&format!("drive/{at}")));
            if is_volatile { drive.with_volatile_cache() } else { drive }
        };
        let drives = swarm.geometries.iter().enumerate().map(drive).collect();
        let simulation = Simulation::create(swarm.config.clone(), drives, root.fork("world"));
        let mut simulation = simulation.expect("a generated configuration suits its members");
        simulation.mix = swarm.mix.clone();
        simulation.generated_max = swarm.requests_max;
        simulation.queue_depth = swarm.queue_depth;
        for (at, speed) in simulation.speeds.iter_mut().enumerate() {
            *speed = if swarm.slow_members.contains(&at) { 1 } else { 16 };
        }
        let prngs = Prngs {
            victims: root.fork("victims"),
            faults: root.fork("faults"),
            injected_faults: root.fork("blows"),
            scrubs: root.fork("scrubs"),
            heals: root.fork("heals"),
            crashes: root.fork("crashes"),
            absences: root.fork("absences"),
            hazards: root.fork("hazards"),
            pauses: root.fork("pauses"),
            quiet: root.fork("quiet"),
            returns: root.fork("returns"),
        };
        simulation.keeps_epochs = swarm.hazards.keeps_epochs;
        SwarmRun {
            swarm,
            simulation,
            fault_budget: None,
            is_replacing: false,
            steps: 0,
            outcome: Outcome::default(),
            is_over: false,
            prngs,
        }
    }

    /// The simulation, as it is now.
    #[must_use]
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// The simulation, to seed a bug in it, or to record its trace.
    pub fn simulation_mut(&mut self) -> &mut Simulation {
        &mut self.simulation
    }

    /// Steps so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first violated guarantee.
    pub fn run(&mut self) -> Result<(), Violation> {
        if self.swarm.is_loop {
            self.simulation.fill()?;
        }
        for round in 0..=self.swarm.crashes {
            self.round()?;
            self.incidents(round)?;
            if self.is_over {
                return Ok(());
            }
            self.inspect_media()?;
            if round < self.swarm.crashes {
                self.crash()?;
                self.simulation.inspect(Strictness::Excusing)?;
            }
        }
        // No more faults: every request completes, and everything is readable.
        self.clear_faults();
        self.simulation.quiesce()?;
        self.simulation.read_all()?;
        self.simulation.inspect(Strictness::Excusing)?;
        self.count();
        Ok(())
    }

    /// The results so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            hash: self.simulation.hash(),
            requests: self.simulation.model.ended(),
            completions: self.simulation.completions,
            failed_commands: self.simulation.drives.iter().map(Drive::failed).sum(),
            ..self.outcome.clone()
        }
    }

    /// Records the event trace, and optionally the writes of a block.
    pub fn record_trace(&mut self, watched: Option<u64>) {
        self.simulation.journal = Journal::recording(watched);
    }

    /// A round of load and faults.
    fn round(&mut self) -> Result<(), Violation> {
        let (members, tolerates) = (self.simulation.drives.len(), self.tolerates());
        let Swarm { is_rough, injected_faults, .. } = self.swarm;
        let mut fault_budget = self.fault_budget.take().unwrap_or_else(|| {
            FaultBudget::choose(&mut self.prngs.victims, members, tolerates, is_rough, injected_faults)
        });
        self.simulation.suspects = fault_budget.victims();
        if self.swarm.has_faults && !self.is_replacing {
            for (at, drive) in self.simulation.drives.iter_mut().enumerate() {
                drive.faults = fault_budget.faults(&mut self.prngs.faults, at);
            }
        }
        if !self.is_replacing {
            self.add_hazards(&mut fault_budget);
        }
        for _ in 0..self.swarm.steps {
            self.steps += 1;
            self.simulation.step(self.swarm.calm)?;
            if self.prngs.pauses.chance(self.swarm.hazards.pauses_per_mille, 1000) {
                let span = Duration::from_secs(1 + self.prngs.pauses.below(LONGEST_PAUSE_SECONDS));
                self.simulation.pause_program(span)?;
            }
            if !self.is_replacing && self.prngs.injected_faults.chance(self.swarm.injected_faults_per_mille, 1000) {
                let fault = fault_budget.inject(&mut self.prngs.injected_faults, &mut self.simulation.drives);
                if let Some(fault) = fault {
                    self.outcome.injected_faults += 1;
                    self.simulation.trace(|| format!("injected fault: {fault}"));
                }
            }
            if self.swarm.has_scrubs && self.prngs.scrubs.chance(1, self.swarm.steps_between_scrubs) {
                self.outcome.scrubs += 1;
                self.simulation.trace(|| "start of a scrub".to_owned());
                self.simulation.volume.start_scrub(self.simulation.now());
                self.simulation.check_output()?;
            }
        }
        self.fault_budget = Some(fault_budget);
        if self.swarm.heals && self.prngs.heals.chance(1, 2) {
            self.heal()?;
        }
        Ok(())
    }

    /// Adds the hazards to the faults of victims.
    fn add_hazards(&mut self, fault_budget: &mut FaultBudget) {
        let victims = fault_budget.victims();
        for (at, drive) in self.simulation.drives.iter_mut().enumerate() {
            if victims >> at & 1 == 1 {
                self.swarm.hazards.add_to(&mut self.prngs.hazards, &mut drive.faults);
            }
        }
        if self.swarm.hazards.damages_victims() {
            fault_budget.mark_damaged();
        }
    }

    /// The number of arbitrary members that the volume tolerates to lose.
    pub(super) fn tolerates(&self) -> usize {
        let scheme = self.swarm.config.scheme;
        if scheme.level == Level::Raid01 { 1 } else { usize::from(scheme.parity) }
    }

    /// Replaces all victims, now or later; then others may be damaged.
    fn heal(&mut self) -> Result<(), Violation> {
        self.clear_faults();
        if !self.is_replacing {
            self.replace_suspects()?;
            if self.prngs.heals.chance(1, 2) {
                return Ok(());
            }
        }
        self.finish_replacements()
    }

    pub(super) fn replace_suspects(&mut self) -> Result<(), Violation> {
        self.is_replacing = true;
        let victims = self.simulation.suspects;
        for at in (0..self.simulation.drives.len()).filter(|at| victims >> at & 1 == 1) {
            self.simulation.replace(at)?;
        }
        Ok(())
    }

    /// Waits until all replaced members are rebuilt.
    pub(super) fn finish_replacements(&mut self) -> Result<(), Violation> {
        self.simulation.quiesce()?;
        for at in 0..self.simulation.drives.len() {
            // A crash may have come before the replacement was recorded.
            if self.simulation.volume.status().members[at].state == MemberState::Failed {
                self.simulation.replace(at)?;
            }
        }
        self.simulation.quiesce()?;
        // Where few zones may be active, a rebuild waits until open segments are full.
        let mut rounds_left = REBUILD_ROUNDS_MAX;
        let generated_max = std::mem::replace(&mut self.simulation.generated_max, u64::MAX);
        while self.simulation.volume.is_degraded() && rounds_left > 0 {
            rounds_left -= 1;
            for _ in 0..REBUILD_ROUND_STEPS {
                self.simulation.step(self.swarm.calm)?;
            }
            self.simulation.quiesce()?;
        }
        self.simulation.generated_max = generated_max;
        if self.simulation.volume.is_degraded() {
            if self.simulation.model.is_lost && self.simulation.volume.status().members.iter().any(is_full) {
                // Segments with lost blocks stay until hosts rewrite these: beyond tolerance there
                // may be no other segments.
                self.simulation.trace(|| "no space for a rebuild".to_owned());
                self.is_over = true;
                return Ok(());
            }
            let what = format!(
                "the volume is degraded after replacing members: {:?}",
                self.simulation.volume.status().members
            );
            return Err(Violation::new(Promise::Members, what));
        }
        self.is_replacing = false;
        self.fault_budget = None;
        self.simulation.suspects = 0;
        self.outcome.healed += 1;
        Ok(())
    }

    /// Power loss, or kill of the program, and a mount of the members that are left.
    fn crash(&mut self) -> Result<(), Violation> {
        let prng = &mut self.prngs.crashes;
        let (is_quiet, dies) = (prng.chance(1, 4), prng.chance(self.swarm.deaths_percent, 100));
        if !(if dies { self.swarm.has_deaths } else { self.swarm.has_power_losses }) {
            return Ok(());
        }
        if is_quiet {
            self.clear_faults();
            self.simulation.quiesce()?;
        }
        self.count();
        self.outcome.crashes += 1;
        if dies {
            self.simulation.kill();
        } else {
            self.simulation.crash();
        }
        self.clear_faults();
        if self.swarm.has_absences {
            // Removed and failed members may be present again.
            for drive in self.simulation.drives.iter_mut().filter(|drive| drive.presence() != Presence::Present) {
                if self.prngs.absences.chance(1, 2) {
                    drive.set_presence(Presence::Present);
                }
            }
        }
        let is_absent = self.prngs.absences.chance(1, 2) && self.swarm.has_absences;
        let absent = self.prngs.absences.below(1 << 16) as u32;
        let without = if is_absent { self.simulation.suspects & absent } else { 0 };
        while self.prngs.crashes.chance(self.swarm.cut_mounts_percent, 100) && self.swarm.has_power_losses {
            self.outcome.crashes += 1;
            if self.prngs.crashes.chance(1, 2) {
                self.simulation.mount_and_crash(without, CUT_STEPS)?;
            } else {
                let writes = self.prngs.crashes.below(CUT_WRITES);
                self.simulation.mount_and_crash_in_writes(without, writes)?;
            }
        }
        if self.prngs.crashes.chance(1, 2) && self.swarm.has_faults {
            let victims = self.simulation.suspects;
            for (at, drive) in self.simulation.drives.iter_mut().enumerate() {
                drive.faults.reads = if victims >> at & 1 == 1 { READ_ERRORS_AT_MOUNT_PER_MILLE } else { 0 };
            }
        }
        self.outcome.mounts += 1;
        if self.swarm.is_loop && self.prngs.crashes.chance(4, 5) {
            self.simulation.mount_until_ready(without)?;
            self.clear_faults();
            return self.take_back();
        }
        self.simulation.mount(without)?;
        self.clear_faults();
        self.take_back()?;
        if self.prngs.crashes.chance(1, 2) {
            self.simulation.read_all()?;
        }
        Ok(())
    }

    /// Re-adds some or all members that have failed, and are present again.
    fn take_back(&mut self) -> Result<(), Violation> {
        if !self.swarm.has_absences {
            return Ok(());
        }
        let members = self.simulation.volume.status().members;
        for at in (0..members.len()).filter(|&at| members[at].state == MemberState::Failed) {
            let is_present = self.simulation.drives[at].presence() == Presence::Present;
            if is_present && self.prngs.returns.chance(1, 2) {
                self.simulation.readd(at)?;
            }
        }
        Ok(())
    }

    pub(super) fn clear_faults(&mut self) {
        self.simulation.drives.iter_mut().for_each(|drive| drive.faults = Faults::default());
    }

    pub(super) fn count(&mut self) {
        let counters = self.simulation.volume.counters();
        self.outcome.collected += counters.collected_segments;
        self.outcome.reconstructed += counters.reconstructed_blocks;
        let is_member_failure = |event: &&Event| matches!(event, Event::MemberFailed { .. });
        self.outcome.failed_members += self.simulation.events.iter().filter(is_member_failure).count() as u64;
    }
}

/// Whether an active member has no free zone left.
fn is_full(member: &MemberReport) -> bool {
    member.state == MemberState::Active && member.free_zones == 0
}
