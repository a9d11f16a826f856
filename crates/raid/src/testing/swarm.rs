//! Worlds drawn from a seed: what the volume is, what is asked of it, what is done to it.
//!
//! Each seed leaves most things out: what is always there hides what needs its absence (Groce et al., "Swarm Testing", ISSTA 2012).

use zonda_zoned::{Blocks, Duration, Geometry, Prng};

use super::{Atlas, Drive, Faults, Mix, Promise, Violation, World};
use crate::{Event, Level, MemberState, Scheme, StreamShape, Victim, VolumeConfig};

/// Of 1000 reads of a victim while a volume is mounted, how many fail.
const READ_ERRORS_AT_MOUNT_PER_MILLE: u64 = 50;

/// One run.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// All of it follows from this.
    pub seed: u64,
    /// What the volume is to be.
    pub config: VolumeConfig,
    /// Its members.
    pub geometries: Vec<Geometry>,
    /// What is asked.
    pub mix: Mix,
    /// Steps between crashes.
    pub steps: u64,
    /// Crashes.
    pub crashes: u64,
    /// A host asks once in so many steps: the fewer, the more is under way.
    pub calm: u64,
    /// Of 1000 steps, how many hurt a victim.
    pub blows_per_mille: u64,
    /// Whether whole members may be taken.
    pub is_rough: bool,
    /// Whether commands may fail.
    pub has_faults: bool,
    /// Whether members that were hurt are replaced, so that others can be hurt.
    pub heals: bool,
}

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
    /// Mounts.
    pub mounts: u64,
    /// Times that all members were whole again.
    pub healed: u64,
    /// Segments that were collected.
    pub collected: u64,
    /// Blocks that were read out of the rest of their stripe.
    pub reconstructed: u64,
    /// Configuration and members did not suit each other: nothing was run.
    pub is_unsuited: bool,
}

impl Swarm {
    /// Draws a run.
    #[must_use]
    pub fn draw(seed: u64) -> Swarm {
        let mut prng = Prng::new(seed).fork("swarm");
        let scheme = draw_scheme(&mut prng);
        let geometries = draw_geometries(&mut prng, scheme);
        let config = draw_config(&mut prng, scheme, &geometries[0]);
        let mut mix = Mix::default();
        if prng.chance(1, 2) {
            mix.reads = prng.below(20);
        }
        if prng.chance(1, 2) {
            mix.trims = prng.below(4);
        }
        if prng.chance(1, 2) {
            mix.flushes = prng.below(4);
        }
        if prng.chance(1, 3) {
            (mix.large_percent, mix.large_blocks_max) = (prng.below(60), 1 + prng.below(40));
        }
        mix.hot_percent = prng.below(100);
        Swarm {
            seed,
            config,
            geometries,
            mix,
            steps: if prng.chance(1, 8) { 4000 } else { 800 },
            crashes: prng.below(4),
            calm: 2 + prng.below(20),
            blows_per_mille: if prng.chance(1, 2) { 1 + prng.below(12) } else { 0 },
            is_rough: prng.chance(1, 2),
            has_faults: prng.chance(1, 2),
            heals: prng.chance(1, 2),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The first promise that was broken, with the seed and the step in its message.
    pub fn run(&self) -> Result<Outcome, Violation> {
        let mut step = 0;
        self.run_steps(&mut step).map_err(|violation| {
            let message = format!("seed {}, step {step}: {}", self.seed, violation.message);
            Violation { message, ..violation }
        })
    }

    /// As [`run`](Swarm::run), counting steps where the caller can see them when an assertion ends the run.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn run_steps(&self, step: &mut u64) -> Result<Outcome, Violation> {
        let root = Prng::new(self.seed);
        let mut prng = root.fork("blows");
        let drives = self.geometries.iter().enumerate();
        let drives: Vec<Drive> =
            drives.map(|(at, geometry)| Drive::new(geometry.clone(), root.fork(&format!("drive/{at}")))).collect();
        let Ok(mut world) = World::create(self.config.clone(), drives, root.fork("world")) else {
            return Ok(Outcome { is_unsuited: true, ..Outcome::default() });
        };
        world.mix = self.mix.clone();
        for speed in &mut world.speeds {
            *speed = if prng.chance(1, 4) { 1 } else { 16 };
        }
        let mut run = Run { swarm: self, world, prng, atlas: None, is_healing: false, outcome: Outcome::default() };
        for round in 0..=self.crashes {
            run.round(step)?;
            if round < self.crashes {
                run.crash()?;
            }
        }
        run.end()
    }
}

/// A run under way.
struct Run<'a> {
    swarm: &'a Swarm,
    world: World,
    prng: Prng,
    atlas: Option<Atlas>,
    /// Victims are being replaced: until they are, they are left alone.
    is_healing: bool,
    outcome: Outcome,
}

impl Run<'_> {
    /// Steps, with whatever is done meanwhile.
    fn round(&mut self, step: &mut u64) -> Result<(), Violation> {
        let Swarm { config: VolumeConfig { scheme, .. }, is_rough, .. } = *self.swarm;
        let members = self.world.drives.len();
        let tolerates = if scheme.level == Level::Raid01 { 1 } else { usize::from(scheme.parity) };
        let atlas = self.atlas.take().unwrap_or_else(|| Atlas::draw(&mut self.prng, members, tolerates, is_rough));
        let atlas = self.atlas.insert(atlas);
        self.world.suspects = atlas.victims();
        if self.swarm.has_faults && !self.is_healing {
            for (at, drive) in self.world.drives.iter_mut().enumerate() {
                drive.faults = atlas.faults(&mut self.prng, at);
            }
        }
        for _ in 0..self.swarm.steps {
            *step += 1;
            self.world.step(self.swarm.calm)?;
            if !self.is_healing && self.prng.chance(self.swarm.blows_per_mille, 1000) {
                self.outcome.blows += u64::from(atlas.strike(&mut self.prng, &mut self.world.drives).is_some());
            }
            if self.prng.chance(1, 2000) {
                self.world.volume.start_scrub(self.world.now());
                self.world.hear()?;
            }
        }
        if self.swarm.heals && self.prng.chance(1, 2) {
            self.heal()?;
        }
        Ok(())
    }

    /// Replaces all victims, or sees that they are replaced: then others may be hurt.
    fn heal(&mut self) -> Result<(), Violation> {
        self.calm_down();
        if !self.is_healing {
            self.is_healing = true;
            let victims = self.world.suspects;
            for at in (0..self.world.drives.len()).filter(|at| victims >> at & 1 == 1) {
                self.world.replace(at)?;
            }
            if self.prng.chance(1, 2) {
                return Ok(());
            }
        }
        self.world.rest()?;
        for at in 0..self.world.drives.len() {
            // A crash may have come before anybody knew of the replacement.
            if self.world.volume.status().members[at].state == MemberState::Failed {
                self.world.replace(at)?;
            }
        }
        self.world.rest()?;
        // Where few zones may be active, a rebuild waits until segments that are open are full.
        let mut patience = 8;
        while self.world.volume.is_degraded() && patience > 0 {
            patience -= 1;
            for _ in 0..400 {
                self.world.step(self.swarm.calm)?;
            }
            self.world.rest()?;
        }
        if self.world.volume.is_degraded() {
            let what = format!("the volume is not whole with new members: {:?}", self.world.volume.status().members);
            return Err(Violation::new(Promise::Members, what));
        }
        self.is_healing = false;
        self.atlas = None;
        self.world.suspects = 0;
        self.outcome.healed += 1;
        Ok(())
    }

    /// The power goes, and what there is, is mounted.
    fn crash(&mut self) -> Result<(), Violation> {
        if self.prng.chance(1, 4) {
            self.calm_down();
            self.world.rest()?;
        }
        self.count();
        self.world.crash();
        self.calm_down();
        let without = if self.prng.chance(1, 4) { self.world.suspects & self.prng.below(1 << 16) as u32 } else { 0 };
        while self.prng.chance(1, 3) {
            self.world.mount_and_crash(without, 300)?;
        }
        if self.prng.chance(1, 2) {
            let victims = self.world.suspects;
            for (at, drive) in self.world.drives.iter_mut().enumerate() {
                drive.faults.reads = if victims >> at & 1 == 1 { READ_ERRORS_AT_MOUNT_PER_MILLE } else { 0 };
            }
        }
        self.world.mount(without)?;
        self.calm_down();
        self.outcome.mounts += 1;
        if self.prng.chance(1, 2) {
            self.world.read_all()?;
        }
        Ok(())
    }

    fn calm_down(&mut self) {
        self.world.drives.iter_mut().for_each(|drive| drive.faults = Faults::default());
    }

    fn count(&mut self) {
        let counters = self.world.volume.counters();
        self.outcome.collected += counters.collected_segments;
        self.outcome.reconstructed += counters.reconstructed_blocks;
        let is_given_up = |event: &&Event| matches!(event, Event::MemberFailed { .. });
        self.outcome.given_up += self.world.events.iter().filter(is_given_up).count() as u64;
    }

    /// Nothing fails any more: every request ends, and everything is there.
    fn end(mut self) -> Result<Outcome, Violation> {
        self.calm_down();
        self.world.rest()?;
        self.world.read_all()?;
        self.count();
        self.outcome.hash = self.world.hash();
        self.outcome.requests = self.world.model.ended();
        self.outcome.completions = self.world.completions;
        self.outcome.failed_commands = self.world.drives.iter().map(Drive::failed).sum();
        Ok(self.outcome)
    }
}

fn draw_scheme(prng: &mut Prng) -> Scheme {
    let scheme = |level, data, parity| Scheme { level, data, parity };
    let schemes = [
        scheme(Level::Raid5, 2, 1),
        scheme(Level::Raid5, 3, 1),
        scheme(Level::Raid5, 4, 1),
        scheme(Level::Raid6, 2, 2),
        scheme(Level::Raid6, 4, 2),
        scheme(Level::Raid1, 1, 1),
        scheme(Level::Raid1, 1, 2),
        scheme(Level::Raid01, 2, 2),
        scheme(Level::Raid4, 3, 1),
        scheme(Level::Raid0, 2, 0),
        scheme(Level::ReedSolomon, 3, 3),
        scheme(Level::ReedSolomon, 1, 2),
    ];
    *prng.pick(&schemes).expect("there are schemes")
}

/// Small drives that differ in what drives of one volume may differ in. More of them have the smallest shape than can be missing.
fn draw_geometries(prng: &mut Prng, scheme: Scheme) -> Vec<Geometry> {
    let block_size_bytes = if prng.chance(1, 8) { 4096 } else { 512 };
    let capacity = 16 + prng.below(49);
    let zone_count = 12 + prng.below(13) as u32;
    let active = match prng.below(4) {
        0 => None,
        1 => Some(3),
        _ => Some(4 + prng.below(6) as u32),
    };
    let metadata_bytes = *prng.pick(&[64, 32, 0, 0]).expect("there are some");
    let transfer = 2 + prng.below(15);
    let (differs, append) = (prng.chance(1, 3), 1 + prng.below(transfer));
    let one = |prng: &mut Prng, at: usize| {
        let differs = differs && at > usize::from(scheme.parity);
        let mut more = |most: u64| if differs { prng.below(most + 1) } else { 0 };
        let capacity = capacity + more(8);
        let geometry = Geometry {
            block_size_bytes,
            metadata_bytes: if differs && metadata_bytes == 32 { 32 + 8 * more(4) as u16 } else { metadata_bytes },
            zone_size_blocks: Blocks(capacity + more(5)),
            zone_capacity_blocks: Blocks(capacity),
            zone_count: zone_count + more(3) as u32,
            conventional_zone_count: 0,
            max_active_zones: active,
            max_open_zones: active.map(|active| active.min(2 + more(8) as u32)),
            max_transfer_blocks: Blocks(transfer),
            max_append_blocks: Blocks(append),
            zrwa: None,
            read_across_zones: more(1) == 1,
            descriptor_extension_bytes: 0,
        };
        assert_eq!(geometry.validate(), Ok(()), "such a drive can be");
        geometry
    };
    (0..scheme.members()).map(|at| one(prng, at)).collect()
}

fn draw_config(prng: &mut Prng, scheme: Scheme, geometry: &Geometry) -> VolumeConfig {
    let mut config = VolumeConfig::new("swarm", scheme);
    let group = |prng: &mut Prng| if prng.chance(1, 4) { 1 } else { 1 + prng.below(64) as u32 };
    config.small = StreamShape { unit_blocks: 1 + prng.below(3) as u32, group_stripes: group(prng) };
    // What is collected fills whole stripes: a segment has to have some of them.
    let large_blocks_max = (geometry.zone_capacity_blocks.0 / 6).min(8);
    config.large = StreamShape { unit_blocks: 1 + prng.below(large_blocks_max) as u32, group_stripes: group(prng) };
    let tuning = &mut config.tuning;
    tuning.reserve_percent = 25 + prng.below(50) as u8;
    tuning.small_segments = 1 + prng.below(2) as u8;
    tuning.large_segments = prng.below(3) as u8;
    tuning.large_from_blocks = 2 + prng.below(16) as u32;
    tuning.flush_interval = Duration::from_micros(1 + prng.below(300));
    tuning.victim = if prng.chance(1, 2) { Victim::Greedy } else { Victim::CostBenefit };
    config
}
