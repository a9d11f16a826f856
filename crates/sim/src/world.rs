//! A world: everything that a seed decides before the first command.
//!
//! Each part draws from its own fork of the seed, by label, so that leaving a part out shifts no other.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_layers::{DelayRule, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, SliceConfig, When};
use zonda_ssd::profile::Profile;
use zonda_zoned::{Duration, Geometry, NamespaceId, PayloadKind, Prng, Status, ZoneIndex};

use crate::drive::{draw_payload_kind, draw_profile, one_of};
use crate::options::{Mode, Options, Part};
use crate::scenario;

/// Everything that a seed decides before the first command.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) root: Prng,
    pub(crate) profile_text: String,
    pub(crate) profile: Profile,
    pub(crate) keeps: PayloadKind,
    /// The namespace as the host sees it: that of the drive, or of a slice of it.
    pub(crate) geometry: Geometry,
    pub(crate) layers: Vec<Layer>,
    pub(crate) load: Load,
    /// Events between two losses of power, about; `None` where the power stays.
    pub(crate) power_loss_every: Option<u64>,
    /// Events between two zones that degrade, about.
    pub(crate) degradation_every: Option<u64>,
    /// Events between two checks of the invariants.
    pub(crate) check_every: u64,
}

/// A layer over the drive; the first is the lowest.
#[derive(Clone, Debug)]
pub(crate) enum Layer {
    Slice(SliceConfig),
    Delay(Vec<DelayRule>),
    Trace,
    Fault(Vec<FaultRule>),
}

/// What the host does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    pub(crate) commands: u64,
    /// Commands from one quiet point, at which everything is compared, to the next.
    #[serde(default = "scenario::unlimited", skip_serializing_if = "scenario::is_unlimited")]
    pub(crate) phase_commands: u64,
    pub(crate) queue_depth: usize,
    /// Mean pause between commands; zero is none.
    #[serde(rename = "pause_ns", with = "scenario::DurationDef")]
    pub(crate) pause: Duration,
    /// How often each kind of operation is kept of those that are drawn, by the place of the kind in
    /// [`OperationKind::ALL`]; the largest are always kept.
    #[serde(with = "scenario::operation_weights")]
    pub(crate) weights: [u64; OperationKind::ALL.len()],
}

impl Load {
    /// Says whether a host can do this.
    pub(crate) fn check(&self, name: &str) -> Result<(), ConfigError> {
        scenario::at_least_one(&format!("{name}.queue_depth"), self.queue_depth as u64)
    }
}

impl Layer {
    /// The slice, if it is one.
    pub(crate) fn slice(&self) -> Option<&SliceConfig> {
        match self {
            Layer::Slice(config) => Some(config),
            _ => None,
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> World {
        let root = Prng::new(seed);
        let is_swarm = options.mode == Mode::Swarm;
        let keeps = draw_payload_kind(&mut root.fork("payload"), options);
        let text = draw_profile(&root.fork("drive"), keeps, options);
        let profile = Profile::parse(&text).expect("a drawn drive is valid");
        let whole = profile.geometry();
        let slice = if is_swarm && options.has(Part::Slice) {
            draw_slice(&mut root.fork("slice"), &whole, keeps)
        } else {
            None
        };
        let geometry = slice.map_or_else(|| whole.clone(), |slice| slice.geometry(&whole).expect("the slice is valid"));
        let layers = if is_swarm { draw_layers(&root, slice, options) } else { Vec::new() };
        let load = draw_load(&root, keeps, options);
        let every = |label: &str, part: Part, choices: &[u64]| {
            let choice = one_of(&mut root.fork(label), choices);
            (is_swarm && options.has(part) && choice > 0).then_some(choice)
        };
        let mut checks = root.fork("checks");
        World {
            power_loss_every: every("power", Part::PowerLoss, &[0, 30, 100, 100, 300, 300, 1_000]),
            // A slice notices a zone that degrades later than the drive; which of its answers then differ is a matter
            // of timing, and tested in its own crate.
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

    /// The slice of the drive that the host has, if it has not the whole.
    pub(crate) fn slice(&self) -> Option<&SliceConfig> {
        self.layers.iter().find_map(Layer::slice)
    }

    /// Which of the drive's zones are the host's.
    pub(crate) fn host_zones(&self) -> std::ops::Range<usize> {
        let first = self.slice().map_or(0, |slice| slice.first.as_usize());
        first..first + self.geometry.zone_count as usize
    }
}

/// In one world of four, some zones of the drive. Its limits are the slice's alone: a loss of power that takes a Reset
/// back can bring back more active zones than a share, and the slice then shows them as full.
fn draw_slice(prng: &mut Prng, whole: &Geometry, keeps: PayloadKind) -> Option<SliceConfig> {
    if !prng.chance(1, 4) {
        return None;
    }
    // Three sequential zones at least are left, as in every random geometry.
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

fn draw_layers(root: &Prng, slice: Option<SliceConfig>, options: &Options) -> Vec<Layer> {
    let mut layers: Vec<Layer> = slice.map(Layer::Slice).into_iter().collect();
    let mut low = root.fork("layers/low");
    if low.chance(1, 4) && options.has(Part::Delays) {
        layers.push(Layer::Delay(draw_delays(&mut low)));
    }
    if root.fork("layers/trace").chance(1, 4) && options.has(Part::Trace) {
        layers.push(Layer::Trace);
    }
    let mut faults = root.fork("layers/fault");
    if faults.chance(1, 3) && options.has(Part::Faults) {
        layers.push(Layer::Fault(draw_faults(&mut faults)));
    }
    let mut high = root.fork("layers/high");
    if high.chance(1, 6) && options.has(Part::Delays) {
        layers.push(Layer::Delay(draw_delays(&mut high)));
    }
    layers
}

fn draw_delays(prng: &mut Prng) -> Vec<DelayRule> {
    (0..=prng.below(2))
        .map(|_| DelayRule {
            matches: Matcher::operations(draw_operations(prng)),
            when: draw_when(prng),
            fixed: Duration(one_of(prng, &[0, 1_000, 100_000])),
            spread: Duration(one_of(prng, &[0, 10_000, 1_000_000, 20_000_000])),
        })
        .collect()
}

/// Faults within the promise: a command that fails has not happened, or may have; a lost one is aborted in the end.
fn draw_faults(prng: &mut Prng) -> Vec<FaultRule> {
    let statuses = [Status::InternalError, Status::WriteFault, Status::NamespaceNotReady];
    (0..=prng.below(3))
        .map(|_| {
            let status = *prng.pick(&statuses).expect("there is a status to choose");
            let effects =
                [FaultEffect::Fail(status), FaultEffect::FailAfter(status), FaultEffect::Drop, FaultEffect::DropAfter];
            let effect = *prng.pick(&effects).expect("there is an effect to choose");
            let denominator = one_of(prng, &[10, 40, 100]);
            FaultRule {
                matches: Matcher::operations(draw_operations(prng)),
                when: if prng.chance(1, 4) { draw_when(prng) } else { When::Chance { numerator: 1, denominator } },
                effect,
            }
        })
        .collect()
}

fn draw_operations(prng: &mut Prng) -> OperationSet {
    match prng.below(5) {
        0 => OperationSet::READ,
        1 => OperationSet::WRITES,
        2 => OperationSet::MANAGEMENT,
        3 => OperationSet::of(&[OperationKind::ALL[prng.below(OperationKind::ALL.len() as u64) as usize]]),
        _ => OperationSet::ALL,
    }
}

fn draw_when(prng: &mut Prng) -> When {
    match prng.below(3) {
        0 => When::Once,
        1 => When::EveryNth(2 + prng.below(30)),
        _ => When::Chance { numerator: 1, denominator: 2 + prng.below(20) },
    }
}

fn draw_load(root: &Prng, keeps: PayloadKind, options: &Options) -> Load {
    let mut prng = root.fork("load");
    let drawn = match options.mode {
        Mode::Lite => 200 + prng.below(600),
        Mode::Swarm => 300 + prng.below(2_000),
        Mode::Performance => 40_000,
    };
    let drawn = if keeps == PayloadKind::Bytes { drawn / 2 } else { drawn } * options.scale.max(1);
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
        commands: drawn.min(options.commands_max.unwrap_or(u64::MAX)),
        phase_commands,
        queue_depth: depth as usize,
        weights: if has_mix { draw_weights(&mut root.fork("mix")) } else { [1; OperationKind::ALL.len()] },
        pause: if has_pause { pause } else { Duration::ZERO },
    }
}

/// Some worlds do a bit of everything, others hammer one or two things.
pub(crate) fn draw_weights(prng: &mut Prng) -> [u64; OperationKind::ALL.len()] {
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
    // Without writes nothing ever happens.
    let write = [OperationKind::Write, OperationKind::Append][prng.below(2) as usize];
    weights[write as usize] = weights[write as usize].max(one_of(prng, &[3, 20]));
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_left_out_is_gone_and_the_rest_of_the_world_stays() {
        type IsPart = fn(&Layer) -> bool;
        let parts: [(Part, IsPart); 4] = [
            (Part::Trace, |layer| matches!(layer, Layer::Trace)),
            (Part::Delays, |layer| matches!(layer, Layer::Delay(_))),
            (Part::Faults, |layer| matches!(layer, Layer::Fault(_))),
            (Part::Slice, |layer| matches!(layer, Layer::Slice(_))),
        ];
        for (part, is_part) in parts {
            let mut seen = 0;
            for seed in 0..60 {
                let whole = World::new(seed, &Options::default());
                let without = World::new(seed, &Options { without: [part].into(), ..Options::default() });
                seen += whole.layers.iter().filter(|layer| is_part(layer)).count();
                assert!(!without.layers.iter().any(is_part), "{}", part.name());
                assert_eq!(whole.load.weights, without.load.weights);
                assert_eq!(whole.profile.geometry(), without.profile.geometry());
            }
            assert!(seen > 3, "{} is in {seen} of 60 worlds", part.name());
        }
    }

    #[test]
    fn a_lite_world_is_a_bare_drive_and_one_command_at_a_time() {
        for seed in 0..20 {
            let world = World::new(seed, &Options::of(Mode::Lite));
            assert!(world.layers.is_empty());
            assert_eq!((world.load.queue_depth, world.check_every), (1, 1));
            assert_eq!((world.power_loss_every, world.degradation_every), (None, None));
        }
    }
}
