//! Worlds drawn from a seed: what the volume is, what is asked of it, what is done to it.
//!
//! Each seed leaves most things out: what is always there hides what needs its absence (Groce et al., "Swarm Testing", ISSTA 2012).
//! Each part is drawn from a fork of the seed of its own, so that one that is left out shifts no other.

use zonda_zoned::{Blocks, Duration, Geometry, Prng};

use super::{Blows, Hazards, Mix, Outcome, SwarmRun, Violation};
use crate::{Level, Scheme, StreamShape, Victim, Volume, VolumeConfig};

/// Draws of members and configuration before these suit each other.
const DRAWS_MAX: u32 = 100;

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
    /// Requests, at most.
    pub requests_max: u64,
    /// Requests under way, at most, when another one is asked.
    pub queue_depth: usize,
    /// Steps between crashes.
    pub steps: u64,
    /// Crashes.
    pub crashes: u64,
    /// Of 100 mounts after them, how many are cut short by the next crash.
    pub cut_mounts_percent: u64,
    /// Whether crashes are to leave as little room as they can: every block is written at the beginning, and hosts write as soon as
    /// they may.
    pub is_loop: bool,
    /// Of 100 crashes, in how many the power stays, and the volume's program dies.
    pub deaths_percent: u64,
    /// Whether crashes that are losses of power take place.
    pub has_power_losses: bool,
    /// Whether crashes that are deaths of the program take place.
    pub has_deaths: bool,
    /// Whether members that were hurt may be absent from a mount, and be there at the next one.
    pub has_absences: bool,
    /// A host asks once in so many steps: the fewer, the more is under way.
    pub calm: u64,
    /// Of 1000 steps, how many hurt a victim.
    pub blows_per_mille: u64,
    /// How victims are hurt.
    pub blows: Blows,
    /// Whether whole members may be taken, and the zones of superblocks.
    pub is_rough: bool,
    /// Whether commands may fail.
    pub has_faults: bool,
    /// Whether members that were hurt are replaced, so that others can be hurt.
    pub heals: bool,
    /// Whether volumes are scrubbed.
    pub has_scrubs: bool,
    /// Steps from one scrub to the next, about.
    pub steps_between_scrubs: u64,
    /// Of 100 quiet moments between crashes, in how many victims are damaged and scrubbed, where volumes are.
    pub quiet_scrubs_percent: u64,
    /// Members that are slower than others, by their place.
    pub slow_members: Vec<usize>,
    /// What happens beside all that.
    pub hazards: Hazards,
}

impl Swarm {
    /// Draws a run.
    ///
    /// # Panics
    /// When no members suit a configuration, out of a hundred draws.
    #[must_use]
    pub fn draw(seed: u64) -> Swarm {
        let root = Prng::new(seed).fork("swarm");
        let (config, geometries) = draw_volume(&root);
        let mut prng = root.fork("crashes");
        // Long runs with few crashes fill volumes; short ones with many cut into whatever is under way; and some crash again and
        // again before anything is won back, most of all while they are mounted.
        let (steps, crashes, cut_mounts_percent) = match prng.below(10) {
            0 => (4000, prng.below(4), 33),
            1..5 => (800, prng.below(4), 33),
            5..8 => (200 + prng.below(400), 4 + prng.below(5), 33),
            _ => (20 + prng.below(300), 8 + prng.below(17), 10 + prng.below(80)),
        };
        let is_loop = crashes > 8;
        let has_absences = prng.chance(1, 2);
        let deaths_percent = if prng.chance(1, 2) { 50 } else { 0 };
        let mut prng = root.fork("blows");
        let blows_per_mille = if prng.chance(1, 2) { 1 + prng.below(12) } else { 0 };
        let mut prng = root.fork("load");
        let calm = 2 + prng.below(20);
        let mut mix = draw_mix(&mut root.fork("mix"));
        if is_loop {
            mix.hot_percent /= 2;
        }
        let slow_members = draw_slow_members(&root, seed, geometries.len());
        Swarm {
            seed,
            config,
            geometries,
            mix,
            requests_max: u64::MAX,
            queue_depth: usize::MAX,
            steps,
            crashes,
            cut_mounts_percent,
            is_loop,
            deaths_percent,
            has_power_losses: true,
            has_deaths: deaths_percent > 0,
            has_absences,
            calm: if is_loop { 2 + calm / 8 } else { calm },
            blows_per_mille,
            blows: Blows { rot: true, zones: true, members: true },
            is_rough: root.fork("rough").chance(1, 2),
            has_faults: root.fork("faults").chance(1, 2),
            heals: root.fork("heals").chance(1, 2),
            has_scrubs: root.fork("scrubs").chance(3, 4),
            steps_between_scrubs: *root.fork("steps between scrubs").pick(&[100, 400, 2000]).expect("there are some"),
            quiet_scrubs_percent: if root.fork("quiet scrubs").chance(1, 2) { 40 } else { 0 },
            slow_members,
            hazards: Hazards::draw(&root, crashes),
        }
    }

    /// Begins it: the volume is created on empty drives.
    ///
    /// # Panics
    /// When the volume and its members do not suit each other.
    #[must_use]
    pub fn begin(&self) -> SwarmRun {
        SwarmRun::new(self.clone())
    }

    /// Runs it.
    ///
    /// # Errors
    /// The first promise that was broken, with the seed and the step in its message.
    pub fn run(&self) -> Result<Outcome, Violation> {
        let mut run = self.begin();
        run.run().map_err(|violation| {
            let message = format!("seed {}, step {}: {}", self.seed, run.steps(), violation.message);
            Violation { message, ..violation }
        })?;
        Ok(run.outcome())
    }
}

/// Members, and a volume for which they have room.
fn draw_volume(root: &Prng) -> (VolumeConfig, Vec<Geometry>) {
    for draw in 0..DRAWS_MAX {
        let mut prng = root.fork(&format!("volume/{draw}"));
        let scheme = draw_scheme(&mut prng);
        let geometries = draw_geometries(&mut prng, scheme);
        let mut config = draw_config(&mut prng, scheme, &geometries[0]);
        config.tuning.is_cache_volatile = prng.chance(1, 4);
        config.tuning.trim_blocks = if prng.chance(1, 2) { 1 + prng.below(64) } else { config.tuning.trim_blocks };
        let ids = vec![[0; 16]; geometries.len()];
        if let Ok(volume) = Volume::create(config.clone(), geometries.clone(), [0; 16], &ids, false) {
            config.volume_blocks = Some(volume.geometry().namespace_blocks().0);
            return (config, geometries);
        }
    }
    panic!("most members that are drawn suit most configurations");
}

/// In three runs of four, about a quarter of the members.
fn draw_slow_members(root: &Prng, seed: u64, members: usize) -> Vec<usize> {
    let has_any = root.fork("slow members").chance(3, 4);
    let mut speeds = Prng::new(seed).fork("speeds");
    (0..members).filter(|_| speeds.chance(1, 4) && has_any).collect()
}

fn draw_mix(prng: &mut Prng) -> Mix {
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
    mix
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
    tuning.reserve_percent = if prng.chance(1, 3) { 1 } else { 25 + prng.below(50) as u8 };
    tuning.small_segments = 1 + prng.below(2) as u8;
    tuning.large_segments = prng.below(3) as u8;
    tuning.large_from_blocks = 2 + prng.below(16) as u32;
    tuning.flush_interval = Duration::from_micros(1 + prng.below(300));
    tuning.victim = if prng.chance(1, 2) { Victim::Greedy } else { Victim::CostBenefit };
    config
}
