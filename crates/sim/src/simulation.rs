//! A simulation of a drive: everything that is generated from a seed before the first command.
//!
//! Each part takes its random numbers from its own labelled fork of the seed, so that leaving a
//! part out changes no other.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_layers::{DelayRule, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, SliceConfig, When};
use zonda_ssd::profile::Profile;
use zonda_stack::Layer;
use zonda_zoned::{Duration, Geometry, NamespaceId, PayloadKind, Prng, Status, ZoneIndex};

use crate::drive::{generate_payload_kind, generate_profile, one_of};
use crate::options::{Mode, Options, Part};
use crate::scenario;

/// Everything that is generated from a seed before the first command.
#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) root: Prng,
    pub(crate) profile_text: String,
    pub(crate) profile: Profile,
    pub(crate) keeps: PayloadKind,
    /// The geometry of the namespace that the host accesses: the whole drive, or a slice of it.
    pub(crate) geometry: Geometry,
    /// The lowest first.
    pub(crate) layers: Vec<Layer>,
    pub(crate) load: Load,
    /// Mean number of events between two power losses; `None`: power is never lost.
    pub(crate) power_loss_every: Option<u64>,
    /// Mean number of events between two zone degradations; `None`: no zone degrades.
    pub(crate) degradation_every: Option<u64>,
    /// Number of events between two checks of the drive's invariants.
    pub(crate) check_every: u64,
}

/// The load that the host generates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) commands: u64,
    /// Commands between two quiescent points, at which every zone and block is compared.
    #[serde(default = "scenario::unlimited", skip_serializing_if = "scenario::is_unlimited")]
    pub(crate) phase_commands: u64,
    pub(crate) queue_depth: usize,
    /// Mean pause between commands; zero: no pauses.
    #[serde(rename = "pause_ns", with = "scenario::DurationDef")]
    pub(crate) pause: Duration,
    /// Relative weight of each kind of operation, in the order of [`OperationKind::ALL`]: how often
    /// a generated operation of that kind is submitted. Kinds with the largest weight always are.
    #[serde(with = "scenario::operation_weights")]
    pub(crate) weights: [u64; OperationKind::ALL.len()],
}

impl Load {
    /// Checks that a host can generate this load.
    pub(crate) fn check(&self, name: &str) -> Result<(), ConfigError> {
        scenario::at_least_one(&format!("{name}.queue_depth"), self.queue_depth as u64)
    }
}

impl Simulation {
    pub(crate) fn new(seed: u64, options: &Options) -> Simulation {
        let root = Prng::new(seed);
        let is_swarm = options.mode == Mode::Swarm;
        let keeps = generate_payload_kind(&mut root.fork("payload"), options);
        let text = generate_profile(&root.fork("drive"), keeps, options);
        let profile = Profile::parse(&text).expect("a generated drive is valid");
        let whole = profile.geometry();
        let slice = if is_swarm && options.has(Part::Slice) {
            generate_slice(&mut root.fork("slice"), &whole, keeps)
        } else {
            None
        };
        let geometry = slice.map_or_else(|| whole.clone(), |slice| slice.geometry(&whole).expect("the slice is valid"));
        let layers = if is_swarm { generate_layers(&root, slice, options) } else { Vec::new() };
        let load = generate_load(&root, keeps, options);
        let every = |label: &str, part: Part, choices: &[u64]| {
            let choice = one_of(&mut root.fork(label), choices);
            (is_swarm && options.has(part) && choice > 0).then_some(choice)
        };
        let mut checks = root.fork("checks");
        Simulation {
            power_loss_every: every("power", Part::PowerLoss, &[0, 30, 100, 100, 300, 300, 1_000]),
            // A slice detects a degraded zone later than the drive. Which completions then differ
            // depends on timing, and is tested in the crate of the slice.
            degradation_every: every("degradation", Part::Degradation, &[0, 300, 1_000]).filter(|_| slice.is_none()),
            check_every: if is_swarm || options.mode == Mode::Performance {
                one_of(&mut checks, &[1, 7, 31])
            } else {
                1
            },
            root,
            profile_text: text,
            profile,
            keeps,
            geometry,
            layers,
            load,
        }
    }

    /// The slice of the drive that the host accesses, unless it accesses the whole drive.
    pub(crate) fn slice(&self) -> Option<&SliceConfig> {
        self.layers.iter().find_map(Layer::slice)
    }

    /// The zones of the drive that the host accesses.
    pub(crate) fn host_zones(&self) -> std::ops::Range<usize> {
        let first = self.slice().map_or(0, |slice| slice.first.as_usize());
        first..first + self.geometry.zone_count as usize
    }
}

/// A slice of the drive, in one scenario of four. The slice has all of the drive's active and open
/// resources: a power loss that undoes a Reset can leave more active zones than a share of them,
/// and the slice then reports zones as full.
fn generate_slice(prng: &mut Prng, whole: &Geometry, keeps: PayloadKind) -> Option<SliceConfig> {
    if !prng.chance(1, 4) {
        return None;
    }
    // At least three sequential zones remain, as in every random geometry.
    let first = prng.below(u64::from(whole.zone_count - 2)) as u32;
    let count = 3 + prng.below(u64::from(whole.zone_count - first - 2)) as u32;
    let config = SliceConfig {
        namespace: NamespaceId::FIRST,
        first: ZoneIndex(first),
        count,
        max_active_zones: whole.max_active_zones,
        max_open_zones: whole.max_open_zones,
        zrwa_resources: whole.zrwa.map_or(0, |zrwa| zrwa.resources),
        keeps,
    };
    config.geometry(whole).is_ok().then_some(config)
}

fn generate_layers(root: &Prng, slice: Option<SliceConfig>, options: &Options) -> Vec<Layer> {
    let mut layers: Vec<Layer> = slice.map(Layer::Slice).into_iter().collect();
    let mut low = root.fork("layers/low");
    if low.chance(1, 4) && options.has(Part::Delays) {
        layers.push(Layer::Delay(generate_delays(&mut low)));
    }
    if root.fork("layers/trace").chance(1, 4) && options.has(Part::Trace) {
        layers.push(Layer::Trace { events: 0 });
    }
    let mut faults = root.fork("layers/fault");
    if faults.chance(1, 3) && options.has(Part::Faults) {
        layers.push(Layer::Fault(generate_faults(&mut faults)));
    }
    let mut high = root.fork("layers/high");
    if high.chance(1, 6) && options.has(Part::Delays) {
        layers.push(Layer::Delay(generate_delays(&mut high)));
    }
    layers
}

fn generate_delays(prng: &mut Prng) -> Vec<DelayRule> {
    (0..=prng.below(2))
        .map(|_| DelayRule {
            matches: Matcher::operations(generate_operations(prng)),
            when: generate_when(prng),
            fixed: Duration(one_of(prng, &[0, 1_000, 100_000])),
            spread: Duration(one_of(prng, &[0, 10_000, 1_000_000, 20_000_000])),
        })
        .collect()
}

/// Faults within the guarantees: a failed command was not executed, or may have been; a lost
/// command is aborted in the end.
fn generate_faults(prng: &mut Prng) -> Vec<FaultRule> {
    let statuses = [Status::InternalError, Status::WriteFault, Status::NamespaceNotReady];
    (0..=prng.below(3))
        .map(|_| {
            let status = *prng.pick(&statuses).expect("the list of statuses is not empty");
            let effects =
                [FaultEffect::Fail(status), FaultEffect::FailAfter(status), FaultEffect::Drop, FaultEffect::DropAfter];
            let effect = *prng.pick(&effects).expect("the list of effects is not empty");
            let denominator = one_of(prng, &[10, 40, 100]);
            FaultRule {
                matches: Matcher::operations(generate_operations(prng)),
                when: if prng.chance(1, 4) { generate_when(prng) } else { When::Chance { numerator: 1, denominator } },
                effect,
            }
        })
        .collect()
}

fn generate_operations(prng: &mut Prng) -> OperationSet {
    match prng.below(5) {
        0 => OperationSet::READ,
        1 => OperationSet::WRITES,
        2 => OperationSet::MANAGEMENT,
        3 => OperationSet::of(&[OperationKind::ALL[prng.below(OperationKind::ALL.len() as u64) as usize]]),
        _ => OperationSet::ALL,
    }
}

fn generate_when(prng: &mut Prng) -> When {
    match prng.below(3) {
        0 => When::Once,
        1 => When::EveryNth(2 + prng.below(30)),
        _ => When::Chance { numerator: 1, denominator: 2 + prng.below(20) },
    }
}

fn generate_load(root: &Prng, keeps: PayloadKind, options: &Options) -> Load {
    let mut prng = root.fork("load");
    let commands = match options.mode {
        Mode::Lite => 200 + prng.below(600),
        Mode::Swarm => 300 + prng.below(2_000),
        Mode::Performance => 40_000,
    };
    let commands = if keeps == PayloadKind::Bytes { commands / 2 } else { commands } * options.scale.max(1);
    let depth = if options.mode == Mode::Lite { 1 } else { one_of(&mut prng, &[1, 2, 3, 4, 8, 16, 24, 32]) };
    let depth = depth.min(u64::from(options.queue_depth_max.unwrap_or(u32::MAX))).max(1);
    let phase_commands = match options.mode {
        Mode::Performance => u64::MAX,
        _ => 100 + prng.below(500),
    };
    let pause = Duration(one_of(&mut prng, &[0, 0, 0, 3_000, 100_000, 2_000_000]));
    let has_pause = options.mode == Mode::Swarm && options.has(Part::Pauses);
    let has_mix = options.mode != Mode::Lite && options.has(Part::Mix);
    Load {
        commands: commands.min(options.commands_max.unwrap_or(u64::MAX)),
        phase_commands,
        queue_depth: depth as usize,
        weights: if has_mix { generate_weights(&mut root.fork("mix")) } else { [1; OperationKind::ALL.len()] },
        pause: if has_pause { pause } else { Duration::ZERO },
    }
}

/// Random weights: some scenarios use every operation, others mostly one or two.
pub(crate) fn generate_weights(prng: &mut Prng) -> [u64; OperationKind::ALL.len()] {
    let mut weights = [1; OperationKind::ALL.len()];
    match prng.below(3) {
        0 => {}
        1 => {
            for weight in &mut weights {
                *weight = one_of(prng, &[0, 1, 3, 10]);
            }
        }
        _ => {
            for _ in 0..=prng.below(3) {
                weights[prng.below(OperationKind::ALL.len() as u64) as usize] = 20;
            }
        }
    }
    // Without writes there is nothing to check.
    let write = [OperationKind::Write, OperationKind::Append][prng.below(2) as usize];
    weights[write as usize] = weights[write as usize].max(one_of(prng, &[3, 20]));
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_out_a_part_changes_no_other_part() {
        type IsPart = fn(&Layer) -> bool;
        let parts: [(Part, IsPart); 4] = [
            (Part::Trace, |layer| matches!(layer, Layer::Trace { .. })),
            (Part::Delays, |layer| matches!(layer, Layer::Delay(_))),
            (Part::Faults, |layer| matches!(layer, Layer::Fault(_))),
            (Part::Slice, |layer| matches!(layer, Layer::Slice(_))),
        ];
        for (part, is_part) in parts {
            let mut seen = 0;
            for seed in 0..60 {
                let whole = Simulation::new(seed, &Options::default());
                let without = Simulation::new(seed, &Options { without: [part].into(), ..Options::default() });
                seen += whole.layers.iter().filter(|layer| is_part(layer)).count();
                assert!(!without.layers.iter().any(is_part), "{}", part.name());
                assert_eq!(whole.load.weights, without.load.weights);
                assert_eq!(whole.profile.geometry(), without.profile.geometry());
            }
            assert!(seen > 3, "{} is in {seen} of 60 scenarios", part.name());
        }
    }

    #[test]
    fn a_lite_scenario_is_a_bare_drive_with_queue_depth_1() {
        for seed in 0..20 {
            let simulation = Simulation::new(seed, &Options::of(Mode::Lite));
            assert!(simulation.layers.is_empty());
            assert_eq!((simulation.load.queue_depth, simulation.check_every), (1, 1));
            assert_eq!((simulation.power_loss_every, simulation.degradation_every), (None, None));
        }
    }
}
