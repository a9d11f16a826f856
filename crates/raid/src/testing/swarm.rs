//! Simulations generated from a seed: the volume, its load, and its faults.
//!
//! Each seed omits most features: what is always present hides bugs that need its absence (Groce et
//! al., "Swarm Testing", ISSTA 2012). Each feature is chosen by its own fork of the seed, so that
//! omitting one does not affect the others.

use zonda_zoned::{Blocks, Duration, Geometry, Prng};

use super::{Hazards, InjectedFaultKinds, Mix, Outcome, SwarmRun, Violation};
use crate::{Level, Scheme, StreamShape, Victim, Volume, VolumeConfig};

/// Attempts to generate members and a configuration that suit each other.
const DRAWS_MAX: u32 = 100;

/// The parameters of one run.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The seed that determines all of it.
    pub seed: u64,
    /// The configuration of the volume.
    pub config: VolumeConfig,
    /// The geometries of its members.
    pub geometries: Vec<Geometry>,
    /// The mix of requests.
    pub mix: Mix,
    /// Maximum number of requests.
    pub requests_max: u64,
    /// Maximum requests in flight when another one is submitted.
    pub queue_depth: usize,
    /// Steps between crashes.
    pub steps: u64,
    /// Number of crashes.
    pub crashes: u64,
    /// Percentage of mounts after them that are interrupted by the next crash.
    pub cut_mounts_percent: u64,
    /// Whether crashes are to leave as little free space as possible: every block is written at the
    /// beginning, and hosts write as soon as the volume is ready.
    pub is_loop: bool,
    /// Percentage of crashes in which the program is killed without a power loss.
    pub deaths_percent: u64,
    /// Whether power losses take place.
    pub has_power_losses: bool,
    /// Whether kills of the program take place.
    pub has_deaths: bool,
    /// Whether members that may be damaged can be absent from a mount, and present at the next one.
    pub has_absences: bool,
    /// A host submits a request once in this many steps: the fewer, the more are in flight.
    pub calm: u64,
    /// Injected faults per 1000 steps.
    pub injected_faults_per_mille: u64,
    /// Kinds of injected faults.
    pub injected_faults: InjectedFaultKinds,
    /// Whether whole members may fail, and zones of superblocks.
    pub is_rough: bool,
    /// Whether commands may fail.
    pub has_faults: bool,
    /// Whether damaged members are replaced, so that others can be damaged.
    pub heals: bool,
    /// Whether volumes are scrubbed.
    pub has_scrubs: bool,
    /// Mean number of steps between scrubs.
    pub steps_between_scrubs: u64,
    /// Percentage of idle moments between crashes in which victims are damaged and scrubbed, if
    /// volumes are scrubbed.
    pub quiet_scrubs_percent: u64,
    /// Members that are slower than others, by index.
    pub slow_members: Vec<usize>,
    /// Hazards beyond all that.
    pub hazards: Hazards,
}

impl Swarm {
    /// Generates a run.
    ///
    /// # Panics
    /// If no members suit a configuration in a hundred attempts.
    #[must_use]
    pub fn generate(seed: u64) -> Swarm {
        let root = Prng::new(seed).fork("swarm");
        let (config, geometries) = generate_volume(&root);
        let mut prng = root.fork("crashes");
        // Long runs with few crashes fill volumes; short ones with many interrupt whatever is in
        // flight; and some crash again and again before any space is reclaimed, especially during
        // mounts.
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
        let injected_faults_per_mille = if prng.chance(1, 2) { 1 + prng.below(12) } else { 0 };
        let mut prng = root.fork("load");
        let calm = 2 + prng.below(20);
        let mut mix = generate_mix(&mut root.fork("mix"));
        if is_loop {
            mix.hot_percent /= 2;
        }
        let slow_members = choose_slow_members(&root, seed, geometries.len());
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
            injected_faults_per_mille,
            injected_faults: InjectedFaultKinds { rot: true, zones: true, members: true },
            is_rough: root.fork("rough").chance(1, 2),
            has_faults: root.fork("faults").chance(1, 2),
            heals: root.fork("heals").chance(1, 2),
            has_scrubs: root.fork("scrubs").chance(3, 4),
            steps_between_scrubs: *root.fork("steps between scrubs").pick(&[100, 400, 2000]).expect("there are some"),
            quiet_scrubs_percent: if root.fork("quiet scrubs").chance(1, 2) { 40 } else { 0 },
            slow_members,
            hazards: Hazards::generate(&root, crashes),
        }
    }

    /// Begins the run: the volume is created on empty drives.
    ///
    /// # Panics
    /// If the volume and its members do not suit each other.
    #[must_use]
    pub fn begin(&self) -> SwarmRun {
        SwarmRun::new(self.clone())
    }

    /// Executes the run.
    ///
    /// # Errors
    /// The first violated guarantee, with the seed and the step in its message.
    pub fn run(&self) -> Result<Outcome, Violation> {
        let mut run = self.begin();
        run.run().map_err(|violation| {
            let message = format!("seed {}, step {}: {}", self.seed, run.steps(), violation.message);
            Violation { message, ..violation }
        })?;
        Ok(run.outcome())
    }
}

/// Members, and a volume that fits them.
fn generate_volume(root: &Prng) -> (VolumeConfig, Vec<Geometry>) {
    for draw in 0..DRAWS_MAX {
        let mut prng = root.fork(&format!("volume/{draw}"));
        let scheme = choose_scheme(&mut prng);
        let geometries = generate_geometries(&mut prng, scheme);
        let mut config = generate_config(&mut prng, scheme, &geometries[0]);
        config.tuning.is_cache_volatile = prng.chance(1, 4);
        config.tuning.trim_blocks = if prng.chance(1, 2) { 1 + prng.below(64) } else { config.tuning.trim_blocks };
        let ids = vec![[0; 16]; geometries.len()];
        if let Ok(volume) = Volume::create(config.clone(), geometries.clone(), [0; 16], &ids, false) {
            config.volume_blocks = Some(volume.geometry().namespace_blocks().0);
            return (config, geometries);
        }
    }
    panic!("most generated members suit most configurations");
}

/// In three of four runs, about a quarter of the members.
fn choose_slow_members(root: &Prng, seed: u64, members: usize) -> Vec<usize> {
    let has_any = root.fork("slow members").chance(3, 4);
    let mut speeds = Prng::new(seed).fork("speeds");
    (0..members).filter(|_| speeds.chance(1, 4) && has_any).collect()
}

fn generate_mix(prng: &mut Prng) -> Mix {
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

fn choose_scheme(prng: &mut Prng) -> Scheme {
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

/// Small drives that differ as drives of one volume may differ. More of them have the smallest
/// geometry than can be missing.
fn generate_geometries(prng: &mut Prng, scheme: Scheme) -> Vec<Geometry> {
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

fn generate_config(prng: &mut Prng, scheme: Scheme, geometry: &Geometry) -> VolumeConfig {
    let mut config = VolumeConfig::new("swarm", scheme);
    let group = |prng: &mut Prng| if prng.chance(1, 4) { 1 } else { 1 + prng.below(64) as u32 };
    config.small = StreamShape { unit_blocks: 1 + prng.below(3) as u32, group_stripes: group(prng) };
    // Collected blocks fill whole stripes: a segment must have several of them.
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
