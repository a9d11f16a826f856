//! A pool scenario: everything that is generated from a seed before the first event.

use serde::{Deserialize, Serialize};
use zonda_elastic::PoolOptions;
use zonda_ssd::profile::Profile;
use zonda_zoned::{Blocks, Geometry, Prng};

use crate::drive::{one_of, profile_of};
use crate::options::{Options, Part};

/// Label of the fork of the seed for pool scenarios and their runs.
pub(crate) const FORK: &str = "elastic";

/// Everything that is generated from a seed before the first event.
#[derive(Debug)]
pub(crate) struct ElasticSimulation {
    pub(crate) root: Prng,
    pub(crate) profile_text: String,
    pub(crate) profile: Box<Profile>,
    pub(crate) geometry: Geometry,
    pub(crate) pool: PoolPlan,
    pub(crate) load: ElasticLoad,
    pub(crate) mix: TenantMix,
    pub(crate) events: ElasticEvents,
    pub(crate) faults: DriveFaults,
}

/// The pool, and what is between it and the drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolPlan {
    pub(crate) zones_per_vzone: u32,
    pub(crate) width_max: u32,
    /// `None`: as the pool chooses.
    pub(crate) essential_zones: Option<u32>,
    pub(crate) scheduler: SchedulerKind,
    /// Commands that the scheduler releases at a time.
    pub(crate) released_max: usize,
    /// The drive has a volatile write cache.
    pub(crate) is_volatile: bool,
    /// The drive is an image in files, which is killed with the pool. Without a volatile cache the machine
    /// keeps its power.
    #[serde(default)]
    pub(crate) is_file_backed: bool,
}

/// The scheduler below the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SchedulerKind {
    Absent,
    Fifo,
    MqDeadline,
    Ezns,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ElasticLoad {
    /// Lives of the pool: each begins with a mount.
    pub(crate) lives: u64,
    /// Commands of a life, at most.
    pub(crate) commands_of_life: u64,
    /// Commands of the run, at most.
    pub(crate) commands: u64,
    pub(crate) queue_depth: usize,
    /// Namespaces, at most.
    pub(crate) tenants: usize,
    /// One in so many steps waits for longer than the drive takes; 0: none.
    pub(crate) pauses_every: u64,
    /// One in so many steps creates, resizes or deletes a namespace; 0: only the first are created.
    pub(crate) changes_every: u64,
}

/// Weights of the commands of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantMix {
    pub(crate) writes: u64,
    pub(crate) appends: u64,
    pub(crate) zeroes: u64,
    pub(crate) reads: u64,
    pub(crate) finishes: u64,
    pub(crate) resets: u64,
    pub(crate) opens: u64,
    pub(crate) closes: u64,
    pub(crate) flushes: u64,
    pub(crate) extensions: u64,
}

/// Ends of lives, by weight, and what happens in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ElasticEvents {
    pub(crate) kills: u64,
    pub(crate) power_losses: u64,
    pub(crate) cut_mounts_percent: u64,
    /// One in so many steps makes a zone read only or offline; 0: none.
    pub(crate) degradations_every: u64,
    pub(crate) check_every: u64,
}

/// How many of 1000 commands of each kind fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriveFaults {
    pub(crate) read_per_mille: u64,
    pub(crate) write_per_mille: u64,
    pub(crate) manage_per_mille: u64,
    pub(crate) flush_per_mille: u64,
    /// The copy of the log of which commands fail, and zones; `None`: neither.
    pub(crate) log_copy: Option<u32>,
    /// Mean delay of completions.
    pub(crate) delay_ns: u64,
    /// Commands that the drive accepts at a time.
    pub(crate) depth: usize,
    /// One in so many steps begins or ends a time in which writes find no space; 0: none.
    #[serde(default)]
    pub(crate) full_every: u64,
}

impl DriveFaults {
    /// Whether any command may fail.
    pub(crate) fn any_fails(&self) -> bool {
        self.read_per_mille + self.write_per_mille + self.manage_per_mille + self.flush_per_mille > 0
    }
}

impl ElasticSimulation {
    pub(crate) fn new(seed: u64, options: &Options) -> ElasticSimulation {
        let root = Prng::new(seed).fork(FORK);
        let geometry = generate_geometry(&mut root.fork("geometry"));
        let profile_text = profile_of(&root.fork("drive"), &geometry);
        let profile = Profile::parse(&profile_text).expect("a generated drive is valid");
        let pool = generate_pool(&root, &geometry, options);
        ElasticSimulation {
            faults: generate_faults(&root, options, pool.is_file_backed),
            pool,
            load: generate_load(&root, options),
            mix: generate_mix(&root, options),
            events: generate_events(&root, options),
            root,
            profile_text,
            profile: Box::new(profile),
            geometry,
        }
    }

    /// Choices of the pool.
    pub(crate) fn options(&self) -> PoolOptions {
        PoolOptions {
            zones_per_vzone: Some(self.pool.zones_per_vzone),
            essential_zones: self.pool.essential_zones,
            width_max: Some(self.pool.width_max),
        }
    }
}

/// A small drive with few or many active zones.
fn generate_geometry(prng: &mut Prng) -> Geometry {
    let active = one_of(prng, &[4, 5, 6, 8, 8, 14, 14, 14, 24, 32, 32, 64, 256]) as u32;
    let capacity = one_of(prng, &[16, 24, 24, 32, 48, 64]);
    let zone_count = (24 + prng.below(60) as u32).max(active + 4);
    let transfer = one_of(prng, &[2, 4, 8, 16, 16]);
    Geometry {
        block_size_bytes: one_of(prng, &[512, 512, 512, 4096]) as u32,
        metadata_bytes: one_of(prng, &[0, 0, 8]) as u16,
        zone_size_blocks: Blocks(capacity + prng.below(9)),
        zone_capacity_blocks: Blocks(capacity),
        zone_count,
        conventional_zone_count: 0,
        max_active_zones: Some(active),
        max_open_zones: Some(if prng.chance(3, 4) { active } else { 1 + prng.below(active.into()) as u32 }),
        max_transfer_blocks: Blocks(transfer),
        max_append_blocks: Blocks(1),
        zrwa: None,
        read_across_zones: prng.chance(1, 2),
        descriptor_extension_bytes: 0,
    }
}

fn generate_pool(root: &Prng, geometry: &Geometry, options: &Options) -> PoolPlan {
    let mut prng = root.fork("pool");
    let zones_per_vzone = one_of(&mut prng, &[1, 2, 4, 4, 8]) as u32;
    let width_max = 1 << prng.below(u64::from(zones_per_vzone.ilog2()) + 1);
    let active = geometry.max_active_zones.expect("it has a limit");
    let essential = 1 + prng.below(u64::from(active - 3)) as u32;
    let has_essential = prng.chance(1, 3);
    let scheduler = *prng
        .pick(&[
            SchedulerKind::Absent,
            SchedulerKind::Absent,
            SchedulerKind::Fifo,
            SchedulerKind::MqDeadline,
            SchedulerKind::Ezns,
            SchedulerKind::Ezns,
        ])
        .expect("the list is not empty");
    let released_max = one_of(&mut prng, &[1, 4, 32, 256]) as usize;
    let is_volatile = prng.chance(1, 2);
    let is_file_backed = root.fork("files").chance(1, 3) && options.has(Part::Images);
    PoolPlan {
        zones_per_vzone,
        width_max,
        essential_zones: has_essential.then_some(essential),
        scheduler: if options.has(Part::Scheduler) { scheduler } else { SchedulerKind::Absent },
        released_max,
        is_volatile: is_volatile && options.has(Part::Caches),
        is_file_backed,
    }
}

fn generate_load(root: &Prng, options: &Options) -> ElasticLoad {
    let mut prng = root.fork("load");
    let lives = 2 + prng.below(6);
    let commands_of_life = one_of(&mut prng, &[20, 60, 120, 240]).saturating_mul(options.scale.max(1));
    let queue_depth = one_of(&mut prng, &[1, 2, 4, 16, 32]);
    let queue_depth = options.queue_depth_max.map_or(queue_depth, |most| queue_depth.min(u64::from(most.max(1))));
    let tenants = one_of(&mut prng, &[1, 2, 2, 3, 5]) as usize;
    let pauses_every = one_of(&mut prng, &[0, 0, 20, 100]);
    let changes_every = one_of(&mut prng, &[0, 40, 40, 150]);
    ElasticLoad {
        lives,
        commands_of_life,
        commands: options.commands_max.unwrap_or(u64::MAX),
        queue_depth: queue_depth as usize,
        tenants,
        pauses_every: if options.has(Part::Pauses) { pauses_every } else { 0 },
        changes_every: if options.has(Part::NamespaceChanges) { changes_every } else { 0 },
    }
}

fn generate_mix(root: &Prng, options: &Options) -> TenantMix {
    let mut prng = root.fork("mix");
    let mut weight = |even: u64, choices: &[u64]| {
        let choice = one_of(&mut prng, choices);
        if options.has(Part::Mix) { choice } else { even }
    };
    let mix = TenantMix {
        writes: weight(10, &[1, 10, 30]),
        appends: weight(10, &[1, 10, 30]),
        zeroes: weight(1, &[0, 0, 2]),
        reads: weight(10, &[1, 10, 40]),
        finishes: weight(1, &[0, 1, 3]),
        resets: weight(2, &[0, 1, 4]),
        opens: weight(1, &[0, 1, 3]),
        closes: weight(1, &[0, 1, 3]),
        flushes: weight(2, &[0, 2, 6]),
        extensions: weight(1, &[0, 1, 2]),
    };
    TenantMix { flushes: if options.has(Part::Flushes) { mix.flushes } else { 0 }, ..mix }
}

fn generate_events(root: &Prng, options: &Options) -> ElasticEvents {
    let choice = |label: &str, part: Part, choices: &[u64]| {
        let choice = one_of(&mut root.fork(label), choices);
        if options.has(part) { choice } else { 0 }
    };
    ElasticEvents {
        kills: choice("kills", Part::Deaths, &[0, 1, 1, 3]),
        power_losses: choice("power", Part::PowerLoss, &[0, 1, 3, 3]),
        cut_mounts_percent: choice("cut mounts", Part::CutOpenings, &[0, 0, 30, 60]),
        degradations_every: choice("degradations", Part::Degradation, &[0, 0, 0, 100, 400]),
        check_every: one_of(&mut root.fork("checks"), &[1, 7, 31]),
    }
}

fn generate_faults(root: &Prng, options: &Options, is_file_backed: bool) -> DriveFaults {
    let mut prng = root.fork("faults");
    let has_faults = prng.chance(1, 3) && options.has(Part::Faults);
    let mut rate = |choices: &[u64]| {
        let choice = one_of(&mut prng, choices);
        if has_faults { choice } else { 0 }
    };
    let rates = [rate(&[0, 2, 20]), rate(&[0, 2, 20]), rate(&[0, 0, 10]), rate(&[0, 0, 0, 3])];
    let log_copy = one_of(&mut prng, &[0, 0, 1, 2]);
    let delay_ns = one_of(&mut root.fork("delays"), &[0, 0, 10_000, 1_000_000, 20_000_000]);
    let depth = one_of(&mut root.fork("depth"), &[1, 2, 4, 16, 1024]) as usize;
    // A file system fills up more often than a drive has too few blocks.
    let choices: &[u64] = if is_file_backed { &[0, 30, 150, 600] } else { &[0, 0, 0, 0, 30, 150] };
    let full_every = one_of(&mut root.fork("space"), choices);
    DriveFaults {
        read_per_mille: rates[0],
        write_per_mille: rates[1],
        manage_per_mille: rates[2],
        flush_per_mille: rates[3],
        log_copy: log_copy.checked_sub(1).map(|copy| copy as u32),
        delay_ns: if options.has(Part::Delays) { delay_ns } else { 0 },
        depth,
        full_every: if options.has(Part::Faults) { full_every } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_out_a_part_changes_no_other_part() {
        for seed in 0..40 {
            let whole = ElasticSimulation::new(seed, &Options::default());
            for (_, part) in Part::ALL {
                let without = ElasticSimulation::new(seed, &Options { without: [part].into(), ..Options::default() });
                assert_eq!(whole.profile_text, without.profile_text, "{}", part.name());
                assert_eq!(whole.load.queue_depth, without.load.queue_depth);
                assert_eq!(whole.load.lives, without.load.lives);
                assert_eq!(whole.pool.width_max, without.pool.width_max);
                let changes_faults = matches!(part, Part::Faults | Part::Delays | Part::Images);
                assert!(changes_faults || whole.faults == without.faults);
                assert!(part == Part::Mix || part == Part::Flushes || whole.mix == without.mix);
            }
        }
    }

    #[test]
    fn every_optional_part_is_in_some_scenarios_and_not_in_others() {
        type HasPart = fn(&ElasticSimulation) -> bool;
        let simulations: Vec<ElasticSimulation> =
            (0..200).map(|seed| ElasticSimulation::new(seed, &Options::default())).collect();
        let parts: [(&str, HasPart); 12] = [
            ("times without space", |it| it.faults.full_every > 0),
            ("read faults", |it| it.faults.read_per_mille > 0),
            ("write faults", |it| it.faults.write_per_mille > 0),
            ("management faults", |it| it.faults.manage_per_mille > 0),
            ("delays", |it| it.faults.delay_ns > 0),
            ("kills", |it| it.events.kills > 0),
            ("power losses", |it| it.events.power_losses > 0),
            ("degradation", |it| it.events.degradations_every > 0),
            ("caches", |it| it.pool.is_volatile),
            ("images", |it| it.pool.is_file_backed),
            ("schedulers", |it| it.pool.scheduler != SchedulerKind::Absent),
            ("changes", |it| it.load.changes_every > 0),
        ];
        for (name, has_part) in parts {
            let count = simulations.iter().filter(|simulation| has_part(simulation)).count();
            assert!((15..190).contains(&count), "{name} in {count} of 200 scenarios");
        }
    }
}
