//! A run of a drawn world, and what came of it.

mod quiet;

use zonda_zoned::{Duration, Prng};

use super::{Atlas, Drive, Faults, Journal, Presence, Promise, Strictness, Swarm, Violation, World};
use crate::{Event, Level, MemberReport, MemberState};

/// Of 1000 reads of a victim while a volume is mounted, how many fail.
const READ_ERRORS_AT_MOUNT_PER_MILLE: u64 = 50;
/// Steps of a mount that is cut short, at most.
const CUT_STEPS: u64 = 600;
/// Commands that it writes with, at most.
const CUT_WRITES: u64 = 160;
/// Rounds of load after which a rebuild must have found room.
const REBUILD_PATIENCE: u32 = 8;
/// Steps of one.
const REBUILD_ROUND_STEPS: u64 = 400;
/// For how long the program does not run, at most.
const LONGEST_PAUSE_SECONDS: u64 = 120;

/// What came of a run that kept all promises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Over all commands and all that hosts heard.
    pub hash: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Commands that members ended.
    pub completions: u64,
    /// Commands that failed.
    pub failed_commands: u64,
    /// Blows to members.
    pub blows: u64,
    /// Members that were given up.
    pub given_up: u64,
    /// Losses of power, and deaths of the program, those during mounts included.
    pub crashes: u64,
    /// Mounts.
    pub mounts: u64,
    /// Times that all members were whole again.
    pub healed: u64,
    /// Scrubs that were begun.
    pub scrubs: u64,
    /// Segments that were collected.
    pub collected: u64,
    /// Blocks that were read out of the rest of their stripe.
    pub reconstructed: u64,
    /// Incidents that took place.
    pub incidents: u64,
    /// Mounts that were refused.
    pub refused_mounts: u64,
    /// Blocks that were lost beyond what the volume tolerates.
    pub lost_blocks: u64,
}

/// A run under way.
#[derive(Debug)]
pub struct SwarmRun {
    pub(super) swarm: Swarm,
    pub(super) world: World,
    pub(super) atlas: Option<Atlas>,
    /// Victims are being replaced: until they are, they are left alone.
    pub(super) is_healing: bool,
    pub(super) steps: u64,
    pub(super) outcome: Outcome,
    /// Nothing is left of the volume that could be mounted.
    pub(super) is_over: bool,
    prngs: Prngs,
}

/// One for each thing that happens to a world.
#[derive(Debug)]
struct Prngs {
    victims: Prng,
    faults: Prng,
    blows: Prng,
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
        let world = World::create(swarm.config.clone(), drives, root.fork("world"));
        let mut world = world.expect("a drawn configuration suits its members");
        world.mix = swarm.mix.clone();
        world.drawn_max = swarm.requests_max;
        world.queue_depth = swarm.queue_depth;
        for (at, speed) in world.speeds.iter_mut().enumerate() {
            *speed = if swarm.slow_members.contains(&at) { 1 } else { 16 };
        }
        let prngs = Prngs {
            victims: root.fork("victims"),
            faults: root.fork("faults"),
            blows: root.fork("blows"),
            scrubs: root.fork("scrubs"),
            heals: root.fork("heals"),
            crashes: root.fork("crashes"),
            absences: root.fork("absences"),
            hazards: root.fork("hazards"),
            pauses: root.fork("pauses"),
            quiet: root.fork("quiet"),
            returns: root.fork("returns"),
        };
        world.keeps_epochs = swarm.hazards.keeps_epochs;
        SwarmRun {
            swarm,
            world,
            atlas: None,
            is_healing: false,
            steps: 0,
            outcome: Outcome::default(),
            is_over: false,
            prngs,
        }
    }

    /// The world, as it is now.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The world, to plant a bug in it, or to listen.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Steps so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn run(&mut self) -> Result<(), Violation> {
        if self.swarm.is_loop {
            self.world.fill()?;
        }
        for round in 0..=self.swarm.crashes {
            self.round()?;
            self.incidents(round)?;
            if self.is_over {
                return Ok(());
            }
            self.look_at_media()?;
            if round < self.swarm.crashes {
                self.crash()?;
                self.world.inspect(Strictness::Excusing)?;
            }
        }
        // Nothing fails any more: every request ends, and everything is there.
        self.calm_down();
        self.world.rest()?;
        self.world.read_all()?;
        self.world.inspect(Strictness::Excusing)?;
        self.count();
        Ok(())
    }

    /// What came of it so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            hash: self.world.hash(),
            requests: self.world.model.ended(),
            completions: self.world.completions,
            failed_commands: self.world.drives.iter().map(Drive::failed).sum(),
            ..self.outcome.clone()
        }
    }

    /// Listens to the run, and to what becomes of a block.
    pub fn listen(&mut self, watched: Option<u64>) {
        self.world.journal = Journal::listening(watched);
    }

    /// Steps, with whatever is done meanwhile.
    fn round(&mut self) -> Result<(), Violation> {
        let (members, tolerates) = (self.world.drives.len(), self.tolerates());
        let Swarm { is_rough, blows, .. } = self.swarm;
        let mut atlas = self
            .atlas
            .take()
            .unwrap_or_else(|| Atlas::draw(&mut self.prngs.victims, members, tolerates, is_rough, blows));
        self.world.suspects = atlas.victims();
        if self.swarm.has_faults && !self.is_healing {
            for (at, drive) in self.world.drives.iter_mut().enumerate() {
                drive.faults = atlas.faults(&mut self.prngs.faults, at);
            }
        }
        if !self.is_healing {
            self.add_hazards(&mut atlas);
        }
        for _ in 0..self.swarm.steps {
            self.steps += 1;
            self.world.step(self.swarm.calm)?;
            if self.prngs.pauses.chance(self.swarm.hazards.pauses_per_mille, 1000) {
                let span = Duration::from_secs(1 + self.prngs.pauses.below(LONGEST_PAUSE_SECONDS));
                self.world.pause_program(span)?;
            }
            if !self.is_healing && self.prngs.blows.chance(self.swarm.blows_per_mille, 1000) {
                let blow = atlas.strike(&mut self.prngs.blows, &mut self.world.drives);
                if let Some(blow) = blow {
                    self.outcome.blows += 1;
                    self.world.tell(|| format!("a blow: {blow:?}"));
                }
            }
            if self.swarm.has_scrubs && self.prngs.scrubs.chance(1, self.swarm.steps_between_scrubs) {
                self.outcome.scrubs += 1;
                self.world.tell(|| "a scrub begins".to_owned());
                self.world.volume.start_scrub(self.world.now());
                self.world.hear()?;
            }
        }
        self.atlas = Some(atlas);
        if self.swarm.heals && self.prngs.heals.chance(1, 2) {
            self.heal()?;
        }
        Ok(())
    }

    /// What victims do wrong beside their other faults.
    fn add_hazards(&mut self, atlas: &mut Atlas) {
        let victims = atlas.victims();
        for (at, drive) in self.world.drives.iter_mut().enumerate() {
            if victims >> at & 1 == 1 {
                self.swarm.hazards.add_to(&mut self.prngs.hazards, &mut drive.faults);
            }
        }
        if self.swarm.hazards.damages_victims() {
            atlas.set_hurt();
        }
    }

    /// How many members, whichever they are, the volume can do without.
    pub(super) fn tolerates(&self) -> usize {
        let scheme = self.swarm.config.scheme;
        if scheme.level == Level::Raid01 { 1 } else { usize::from(scheme.parity) }
    }

    /// Replaces all victims, or sees that they are replaced: then others may be hurt.
    fn heal(&mut self) -> Result<(), Violation> {
        self.calm_down();
        if !self.is_healing {
            self.replace_suspects()?;
            if self.prngs.heals.chance(1, 2) {
                return Ok(());
            }
        }
        self.finish_healing()
    }

    pub(super) fn replace_suspects(&mut self) -> Result<(), Violation> {
        self.is_healing = true;
        let victims = self.world.suspects;
        for at in (0..self.world.drives.len()).filter(|at| victims >> at & 1 == 1) {
            self.world.replace(at)?;
        }
        Ok(())
    }

    /// Waits until all members that were replaced are rebuilt.
    pub(super) fn finish_healing(&mut self) -> Result<(), Violation> {
        self.world.rest()?;
        for at in 0..self.world.drives.len() {
            // A crash may have come before anybody knew of the replacement.
            if self.world.volume.status().members[at].state == MemberState::Failed {
                self.world.replace(at)?;
            }
        }
        self.world.rest()?;
        // Where few zones may be active, a rebuild waits until segments that are open are full.
        let mut patience = REBUILD_PATIENCE;
        let drawn_max = std::mem::replace(&mut self.world.drawn_max, u64::MAX);
        while self.world.volume.is_degraded() && patience > 0 {
            patience -= 1;
            for _ in 0..REBUILD_ROUND_STEPS {
                self.world.step(self.swarm.calm)?;
            }
            self.world.rest()?;
        }
        self.world.drawn_max = drawn_max;
        if self.world.volume.is_degraded() {
            if self.world.model.is_lost && self.world.volume.status().members.iter().any(is_full) {
                // Segments with blocks that are lost stay until hosts write these again: beyond tolerance they may be all that there is.
                self.world.tell(|| "there is no room for a rebuild".to_owned());
                self.is_over = true;
                return Ok(());
            }
            let what = format!("the volume is not whole with new members: {:?}", self.world.volume.status().members);
            return Err(Violation::new(Promise::Members, what));
        }
        self.is_healing = false;
        self.atlas = None;
        self.world.suspects = 0;
        self.outcome.healed += 1;
        Ok(())
    }

    /// The power goes, or the program dies, and what there is, is mounted.
    fn crash(&mut self) -> Result<(), Violation> {
        let prng = &mut self.prngs.crashes;
        let (is_quiet, dies) = (prng.chance(1, 4), prng.chance(self.swarm.deaths_percent, 100));
        if !(if dies { self.swarm.has_deaths } else { self.swarm.has_power_losses }) {
            return Ok(());
        }
        if is_quiet {
            self.calm_down();
            self.world.rest()?;
        }
        self.count();
        self.outcome.crashes += 1;
        if dies {
            self.world.die();
        } else {
            self.world.crash();
        }
        self.calm_down();
        if self.swarm.has_absences {
            // Whoever was pulled, or has failed, may be there again.
            for drive in self.world.drives.iter_mut().filter(|drive| drive.presence() != Presence::There) {
                if self.prngs.absences.chance(1, 2) {
                    drive.set_presence(Presence::There);
                }
            }
        }
        let is_absent = self.prngs.absences.chance(1, 2) && self.swarm.has_absences;
        let absent = self.prngs.absences.below(1 << 16) as u32;
        let without = if is_absent { self.world.suspects & absent } else { 0 };
        while self.prngs.crashes.chance(self.swarm.cut_mounts_percent, 100) && self.swarm.has_power_losses {
            self.outcome.crashes += 1;
            if self.prngs.crashes.chance(1, 2) {
                self.world.mount_and_crash(without, CUT_STEPS)?;
            } else {
                let writes = self.prngs.crashes.below(CUT_WRITES);
                self.world.mount_and_crash_in_writes(without, writes)?;
            }
        }
        if self.prngs.crashes.chance(1, 2) && self.swarm.has_faults {
            let victims = self.world.suspects;
            for (at, drive) in self.world.drives.iter_mut().enumerate() {
                drive.faults.reads = if victims >> at & 1 == 1 { READ_ERRORS_AT_MOUNT_PER_MILLE } else { 0 };
            }
        }
        self.outcome.mounts += 1;
        if self.swarm.is_loop && self.prngs.crashes.chance(4, 5) {
            self.world.mount_in_haste(without)?;
            self.calm_down();
            return self.take_back();
        }
        self.world.mount(without)?;
        self.calm_down();
        self.take_back()?;
        if self.prngs.crashes.chance(1, 2) {
            self.world.read_all()?;
        }
        Ok(())
    }

    /// Members that have failed, and are there again, are taken back, or some of them.
    fn take_back(&mut self) -> Result<(), Violation> {
        if !self.swarm.has_absences {
            return Ok(());
        }
        let members = self.world.volume.status().members;
        for at in (0..members.len()).filter(|&at| members[at].state == MemberState::Failed) {
            let is_there = self.world.drives[at].presence() == Presence::There;
            if is_there && self.prngs.returns.chance(1, 2) {
                self.world.readd(at)?;
            }
        }
        Ok(())
    }

    pub(super) fn calm_down(&mut self) {
        self.world.drives.iter_mut().for_each(|drive| drive.faults = Faults::default());
    }

    pub(super) fn count(&mut self) {
        let counters = self.world.volume.counters();
        self.outcome.collected += counters.collected_segments;
        self.outcome.reconstructed += counters.reconstructed_blocks;
        let is_given_up = |event: &&Event| matches!(event, Event::MemberFailed { .. });
        self.outcome.given_up += self.world.events.iter().filter(is_given_up).count() as u64;
    }
}

/// Whether a member that is active has no zone left to be written.
fn is_full(member: &MemberReport) -> bool {
    member.state == MemberState::Active && member.free_zones == 0
}
