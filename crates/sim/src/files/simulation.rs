//! A file store scenario: everything that is generated from a seed before the first event.

use serde::{Deserialize, Serialize};
use zonda_files::testing::Mix;
use zonda_files::{FileStore, FilesConfig, Migration, limits::THREE_LOG_ZONES_FROM};
use zonda_layers::{DelayRule, FaultEffect, FaultRule, Matcher, OperationSet, When};
use zonda_ssd::profile::Profile;
use zonda_stack::Layer;
use zonda_zoned::{Blocks, Duration, Geometry, Prng, Status, ZoneIndex};

use crate::drive::{one_of, profile_of};
use crate::options::{Options, Part};
use crate::scenario;

/// Maximum number of geometries until one is valid for a store: its zones must have space for the
/// metadata.
const ATTEMPTS_MAX: u32 = 100;
/// Number of mounts with a configuration of their own; further mounts reuse these.
const MOUNTS: u64 = 1_000;
/// Label of the fork of the seed for file store scenarios and their runs.
pub(crate) const FORK: &str = "files";
/// The UUID of every store.
pub(crate) const UUID: [u8; 16] = [7; 16];

/// Everything that is generated from a seed before the first event.
#[derive(Debug)]
pub(crate) struct FilesSimulation {
    pub(crate) root: Prng,
    pub(crate) profile_text: String,
    pub(crate) profile: Box<Profile>,
    pub(crate) geometry: Geometry,
    /// Layers below the fault layer, the lowest first.
    pub(crate) layers: Vec<Layer>,
    /// Rules for commands that fail, before or after execution.
    pub(crate) faults: Vec<FaultRule>,
    pub(crate) config: FilesConfig,
    /// The configuration of each mount, reused cyclically; if empty, every mount uses that of the
    /// format.
    pub(crate) mounts: Vec<FilesConfig>,
    /// The store flushes the drive's write cache.
    pub(crate) flushes: bool,
    /// Queue depth of the drive.
    pub(crate) queue_depth: usize,
    pub(crate) load: ClientLoad,
    /// Mean number of events between two power losses; `None`: power is never lost.
    pub(crate) power_loss_every: Option<u64>,
    /// Mean number of events between two process kills.
    pub(crate) death_every: Option<u64>,
    /// Mean number of events between two zone degradations.
    pub(crate) degradation_every: Option<u64>,
    /// Number of events between two checks of the drive's invariants.
    pub(crate) check_every: u64,
}

/// The load of the clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientLoad {
    /// Number of requests of all clients.
    pub(crate) requests: u64,
    /// Requests between two quiescent points, at which every file is compared.
    pub(crate) phase_requests: u64,
    /// Number of clients, each with one outstanding request.
    pub(crate) clients: usize,
    /// Mean pause between two requests of a client; zero: no pauses.
    #[serde(rename = "pause_ns", with = "scenario::DurationDef")]
    pub(crate) pause: Duration,
    #[serde(with = "scenario::MixDef")]
    pub(crate) mix: Mix,
}

impl FilesSimulation {
    pub(crate) fn new(seed: u64, options: &Options) -> FilesSimulation {
        let root = Prng::new(seed).fork(FORK);
        let geometry = generate_geometry(&mut root.fork("geometry"), options);
        let profile_text = profile_of(&root.fork("drive"), &geometry);
        let profile = Profile::parse(&profile_text).expect("a generated drive is valid");
        let mut faults = root.fork("faults");
        let has_faults = faults.chance(1, 2) && options.has(Part::Faults);
        let every = |label: &str, part: Part, choices: &[u64]| {
            let choice = one_of(&mut root.fork(label), choices);
            (options.has(part) && choice > 0).then_some(choice)
        };
        let mut queue = root.fork("queue");
        FilesSimulation {
            layers: generate_layers(&root, options),
            faults: if has_faults { generate_faults(&mut faults, &geometry) } else { Vec::new() },
            config: generate_config(&mut root.fork("config"), &geometry, options),
            mounts: generate_mounts(&root, &geometry, options),
            flushes: root.fork("flushes").chance(1, 4) && options.has(Part::Flushes),
            queue_depth: one_of(&mut queue, &[1, 2, 4, 16, 64, 1024]) as usize,
            load: generate_load(&root, &geometry, options),
            power_loss_every: every("power", Part::PowerLoss, &[0, 60, 200, 200, 600, 1_500]),
            death_every: every("deaths", Part::Deaths, &[0, 0, 300, 1_000]),
            degradation_every: every("degradation", Part::Degradation, &[0, 0, 0, 400, 1_500]),
            check_every: one_of(&mut root.fork("checks"), &[7, 31]),
            root,
            profile_text,
            profile: Box::new(profile),
            geometry,
        }
    }

    /// The configuration of a life of the store.
    pub(super) fn config_of(&self, life: u64) -> FilesConfig {
        match (life.checked_sub(1), self.mounts.len()) {
            (Some(mount), count @ 1..) => self.mounts[mount as usize % count],
            _ => self.config,
        }
    }

    /// The zones that hold metadata.
    pub(super) fn log_zones(&self) -> std::ops::Range<u32> {
        let first = self.geometry.conventional_zone_count;
        let sequential = self.geometry.zone_count - first;
        first..first + if sequential >= THREE_LOG_ZONES_FROM { 3 } else { 2 }
    }
}

/// A small drive with enough space for a store.
fn generate_geometry(prng: &mut Prng, options: &Options) -> Geometry {
    for _ in 0..ATTEMPTS_MAX {
        let geometry = generate_any_geometry(prng, options);
        let block = geometry.block_size_bytes;
        let config = FilesConfig { write_unit_bytes: block, read_unit_bytes: block, ..FilesConfig::default() };
        if FileStore::format(&geometry, config, UUID).is_ok() {
            return geometry;
        }
    }
    panic!("most generated drives are valid for a store");
}

fn generate_any_geometry(prng: &mut Prng, options: &Options) -> Geometry {
    let conventional = if prng.chance(1, 5) { 1 + prng.below(2) as u32 } else { 0 };
    let conventional = if options.has(Part::Conventional) { conventional } else { 0 };
    let capacity = one_of(prng, &[8, 12, 16, 16, 24, 32, 36, 48]);
    let active = match prng.below(12) {
        0 => None,
        1 => Some(3),
        2..8 => Some(4 + prng.below(3) as u32),
        _ => Some(4 + prng.below(11) as u32),
    };
    let open = active.map(|active| 1 + prng.below(u64::from(active)) as u32);
    let beyond = prng.below(9);
    let transfer = one_of(prng, &[1, 4, 7, 8, 16, 64]);
    Geometry {
        block_size_bytes: one_of(prng, &[512, 512, 512, 4096]) as u32,
        metadata_bytes: one_of(prng, &[0, 0, 8]) as u16,
        zone_size_blocks: Blocks(if conventional > 0 { capacity } else { capacity + beyond }),
        zone_capacity_blocks: Blocks(capacity),
        zone_count: conventional + 6 + prng.below(18) as u32,
        conventional_zone_count: conventional,
        max_active_zones: active,
        max_open_zones: open,
        max_transfer_blocks: Blocks(transfer),
        max_append_blocks: Blocks(1),
        zrwa: None,
        read_across_zones: prng.chance(1, 2),
        descriptor_extension_bytes: one_of(prng, &[0, 0, 64]) as u32,
    }
}

fn generate_config(prng: &mut Prng, geometry: &Geometry, options: &Options) -> FilesConfig {
    let block = geometry.block_size_bytes;
    let write_unit_bytes = block * one_of(prng, &[1, 2, 3, 8]) as u32;
    let migration =
        Migration { start_empty_zones_percent: 1 + prng.below(100) as u8, garbage_percent: 1 + prng.below(60) as u8 };
    let has_migration = prng.chance(2, 3) && options.has(Part::Migration);
    FilesConfig {
        finish_threshold_percent: 1 + prng.below(100) as u8,
        write_unit_bytes,
        file_buffer_bytes: write_unit_bytes + prng.below(40 * u64::from(block)) as u32,
        read_unit_bytes: block * (1 + prng.below(8) as u32),
        migration: has_migration.then_some(migration),
        ..FilesConfig::default()
    }
}

/// In one scenario of three, each mount has a different configuration.
fn generate_mounts(root: &Prng, geometry: &Geometry, options: &Options) -> Vec<FilesConfig> {
    let mounts = if root.fork("config varies").chance(1, 3) { MOUNTS } else { 0 };
    (1..=mounts).map(|life| generate_config(&mut root.fork(&format!("config/{life}")), geometry, options)).collect()
}

fn generate_layers(root: &Prng, options: &Options) -> Vec<Layer> {
    let mut layers = Vec::new();
    if root.fork("layers/trace").chance(1, 6) && options.has(Part::Trace) {
        layers.push(Layer::Trace { events: 0 });
    }
    let mut late = root.fork("layers/delays");
    if late.chance(1, 2) && options.has(Part::Delays) {
        let rules = (0..=late.below(2)).map(|_| DelayRule {
            matches: Matcher::operations(generate_operations(&mut late)),
            when: When::Chance { numerator: 1, denominator: 1 + late.below(6) },
            fixed: Duration(one_of(&mut late, &[0, 10_000])),
            spread: Duration(one_of(&mut late, &[10_000, 1_000_000, 20_000_000])),
        });
        layers.push(Layer::Delay(rules.collect()));
    }
    layers
}

/// Faults that a store must tolerate: a failed command was not executed, or may have been. No
/// command is lost, because a store has no command timeout.
fn generate_faults(prng: &mut Prng, geometry: &Geometry) -> Vec<FaultRule> {
    let data = ZoneIndex(geometry.conventional_zone_count + 3)..ZoneIndex(geometry.zone_count);
    (0..=prng.below(3))
        .map(|_| {
            let operations = generate_operations(prng);
            let status = match operations {
                OperationSet::READ => Status::UnrecoveredReadError,
                _ => *prng
                    .pick(&[Status::InternalError, Status::WriteFault, Status::NamespaceNotReady])
                    .expect("the list of statuses is not empty"),
            };
            let effect = if prng.chance(1, 2) { FaultEffect::Fail(status) } else { FaultEffect::FailAfter(status) };
            let when = match prng.below(5) {
                0 => When::Once,
                1 => When::EveryNth(3 + prng.below(60)),
                _ => When::Chance { numerator: 1, denominator: one_of(prng, &[12, 40, 150, 600]) },
            };
            let matches = Matcher::operations(operations);
            let matches = if prng.chance(2, 3) { matches.in_zones(data.clone()) } else { matches };
            FaultRule { matches, when, effect }
        })
        .collect()
}

fn generate_operations(prng: &mut Prng) -> OperationSet {
    match prng.below(5) {
        0 => OperationSet::READ,
        1 | 2 => OperationSet::WRITES,
        3 => OperationSet::MANAGEMENT,
        _ => OperationSet::ALL,
    }
}

fn generate_load(root: &Prng, geometry: &Geometry, options: &Options) -> ClientLoad {
    let mut prng = root.fork("load");
    let requests = (80 + prng.below(300)) * options.scale.max(1);
    let clients = one_of(&mut prng, &[1, 2, 4, 8, 16]);
    let pause = Duration(one_of(&mut prng, &[0, 0, 0, 10_000, 1_000_000]));
    let zone_bytes = geometry.zone_capacity_blocks.0 * u64::from(geometry.block_size_bytes);
    let mut mix = Mix { append_bytes_max: zone_bytes * one_of(&mut prng, &[1, 1, 2, 4]), ..Mix::default() };
    mix.names.truncate(one_of(&mut prng, &[3, 6, 10]) as usize);
    if options.has(Part::Mix) {
        generate_weights(&mut root.fork("mix"), &mut mix.weights);
    }
    ClientLoad {
        requests: requests.min(options.commands_max.unwrap_or(u64::MAX)),
        phase_requests: 40 + prng.below(150),
        clients: clients.min(u64::from(options.queue_depth_max.unwrap_or(u32::MAX))).max(1) as usize,
        mix,
        pause: if options.has(Part::Pauses) { pause } else { Duration::ZERO },
    }
}

/// Random weights: some scenarios use all requests evenly, others some of them more often.
fn generate_weights(prng: &mut Prng, weights: &mut [u64; 7]) {
    if prng.chance(1, 3) {
        return;
    }
    for weight in &mut *weights {
        *weight *= one_of(prng, &[1, 1, 2, 5]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_out_a_part_changes_no_other_part() {
        for seed in 0..40 {
            let whole = FilesSimulation::new(seed, &Options::default());
            for (_, part) in Part::ALL.into_iter().filter(|(_, part)| *part != Part::Conventional) {
                let without = FilesSimulation::new(seed, &Options { without: [part].into(), ..Options::default() });
                assert_eq!(whole.profile_text, without.profile_text, "{}", part.name());
                assert_eq!(whole.load.requests, without.load.requests);
                assert!(part != Part::Faults || without.faults.is_empty());
                assert!(part != Part::Migration || without.config.migration.is_none());
                assert!(part == Part::Migration || whole.config == without.config);
            }
        }
    }

    #[test]
    fn every_optional_part_is_in_some_scenarios_and_not_in_others() {
        type HasPart = fn(&FilesSimulation) -> bool;
        let simulations: Vec<FilesSimulation> =
            (0..200).map(|seed| FilesSimulation::new(seed, &Options::default())).collect();
        let parts: [(&str, HasPart); 8] = [
            ("faults", |simulation| !simulation.faults.is_empty()),
            ("layers", |simulation| !simulation.layers.is_empty()),
            ("migration", |simulation| simulation.config.migration.is_some()),
            ("flushes", |simulation| simulation.flushes),
            ("power losses", |simulation| simulation.power_loss_every.is_some()),
            ("deaths", |simulation| simulation.death_every.is_some()),
            ("degradation", |simulation| simulation.degradation_every.is_some()),
            ("three metadata zones", |simulation| simulation.log_zones().len() == 3),
        ];
        for (name, has_part) in parts {
            let count = simulations.iter().filter(|simulation| has_part(simulation)).count();
            assert!((20..190).contains(&count), "{name} in {count} of 200 scenarios");
        }
    }
}
