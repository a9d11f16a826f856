//! A redundant volume over several drives.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_raid::testing::{Hazards, Incident, InjectedFaultKinds, Mix, Swarm};
use zonda_raid::{Level, Scheme, StreamShape, Tuning, Victim, Volume, VolumeConfig};
use zonda_zoned::Duration;

use super::parts::{DurationDef, Member, is_unlimited, is_zero, unlimited};
use crate::volumes::VolumesSimulation;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumesScenario {
    #[serde(default = "unlimited", skip_serializing_if = "is_unlimited")]
    requests_max: u64,
    queue_depth: Option<usize>,
    steps: u64,
    crashes: u64,
    cut_mounts_percent: u64,
    is_loop: bool,
    deaths_percent: u64,
    has_power_losses: bool,
    has_deaths: bool,
    has_absences: bool,
    calm: u64,
    #[serde(rename = "blows_per_mille")]
    injected_faults_per_mille: u64,
    is_rough: bool,
    has_faults: bool,
    heals: bool,
    has_scrubs: bool,
    steps_between_scrubs: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    quiet_scrubs_percent: u64,
    /// By index.
    slow_members: Vec<usize>,
    #[serde(default, with = "HazardsDef", skip_serializing_if = "is_harmless")]
    hazards: Hazards,
    #[serde(rename = "blows", with = "InjectedFaultKindsDef")]
    injected_faults: InjectedFaultKinds,
    #[serde(with = "MixDef")]
    mix: Mix,
    #[serde(with = "VolumeConfigDef")]
    config: VolumeConfig,
    members: Vec<Member>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "InjectedFaultKinds", deny_unknown_fields)]
struct InjectedFaultKindsDef {
    rot: bool,
    zones: bool,
    members: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Hazards", deny_unknown_fields)]
struct HazardsDef {
    #[serde(with = "incidents")]
    incidents: Vec<(u64, Incident)>,
    fails_resets: bool,
    ignores_flushes: bool,
    misdirects_writes: bool,
    pauses_per_mille: u64,
    keeps_epochs: bool,
}

/// Entries that were recorded before hazards existed have none.
fn is_harmless(hazards: &Hazards) -> bool {
    *hazards == Hazards::default()
}

/// An incident as its name, with the round after which it takes place.
mod incidents {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use zonda_raid::testing::Incident;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        after_round: u64,
        name: String,
    }

    pub(super) fn serialize<S: Serializer>(incidents: &[(u64, Incident)], to: S) -> Result<S::Ok, S::Error> {
        let item = |&(after_round, incident): &(u64, Incident)| Item { after_round, name: incident.name().to_owned() };
        incidents.iter().map(item).collect::<Vec<Item>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u64, Incident)>, D::Error> {
        let incident = |Item { after_round, name }: Item| {
            let known = Incident::ALL.into_iter().find(|(other, _)| *other == name);
            let (_, incident) = known.ok_or_else(|| de::Error::custom(format!("\"{name}\" is not an incident")))?;
            Ok((after_round, incident))
        };
        Vec::<Item>::deserialize(from)?.into_iter().map(incident).collect()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mix", deny_unknown_fields)]
struct MixDef {
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    small_blocks_max: u64,
    large_blocks_max: u64,
    large_percent: u64,
    hot_percent: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "VolumeConfig", deny_unknown_fields)]
struct VolumeConfigDef {
    name: String,
    volume_blocks: Option<u64>,
    #[serde(with = "SchemeDef")]
    scheme: Scheme,
    #[serde(with = "StreamShapeDef")]
    small: StreamShape,
    #[serde(with = "StreamShapeDef")]
    large: StreamShape,
    #[serde(with = "TuningDef")]
    tuning: Tuning,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Scheme", deny_unknown_fields)]
struct SchemeDef {
    #[serde(with = "LevelDef")]
    level: Level,
    data: u8,
    parity: u8,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Level", rename_all = "kebab-case")]
enum LevelDef {
    Raid0,
    Raid1,
    Raid01,
    Raid4,
    Raid5,
    Raid6,
    ReedSolomon,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StreamShape", deny_unknown_fields)]
struct StreamShapeDef {
    unit_blocks: u32,
    group_stripes: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Tuning", deny_unknown_fields)]
struct TuningDef {
    reserve_percent: u8,
    small_segments: u8,
    large_segments: u8,
    large_from_blocks: u32,
    #[serde(rename = "flush_interval_ns", with = "DurationDef")]
    flush_interval: Duration,
    #[serde(with = "VictimDef")]
    victim: Victim,
    #[serde(rename = "member_timeout_ns", with = "DurationDef")]
    member_timeout: Duration,
    rebuild_blocks_per_second: Option<u64>,
    scrub_blocks_per_second: Option<u64>,
    trim_blocks: u64,
    is_cache_volatile: bool,
    has_contents: bool,
    #[serde(skip)]
    reads_unneeded: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Victim", rename_all = "kebab-case")]
enum VictimDef {
    Greedy,
    CostBenefit,
}

impl VolumesScenario {
    pub(super) fn of(simulation: &VolumesSimulation) -> VolumesScenario {
        let swarm = simulation.swarm.clone();
        VolumesScenario {
            requests_max: swarm.requests_max,
            queue_depth: (swarm.queue_depth != usize::MAX).then_some(swarm.queue_depth),
            steps: swarm.steps,
            crashes: swarm.crashes,
            cut_mounts_percent: swarm.cut_mounts_percent,
            is_loop: swarm.is_loop,
            deaths_percent: swarm.deaths_percent,
            has_power_losses: swarm.has_power_losses,
            has_deaths: swarm.has_deaths,
            has_absences: swarm.has_absences,
            calm: swarm.calm,
            injected_faults_per_mille: swarm.injected_faults_per_mille,
            is_rough: swarm.is_rough,
            has_faults: swarm.has_faults,
            heals: swarm.heals,
            has_scrubs: swarm.has_scrubs,
            steps_between_scrubs: swarm.steps_between_scrubs,
            quiet_scrubs_percent: swarm.quiet_scrubs_percent,
            slow_members: swarm.slow_members,
            hazards: swarm.hazards,
            injected_faults: swarm.injected_faults,
            mix: swarm.mix,
            config: swarm.config,
            members: swarm.geometries.into_iter().map(Member).collect(),
        }
    }

    pub(super) fn simulation(&self, seed: u64) -> Result<VolumesSimulation, ConfigError> {
        let scenario = self.clone();
        let swarm = Swarm {
            seed,
            config: scenario.config,
            geometries: scenario.members.into_iter().map(|member| member.0).collect(),
            mix: scenario.mix,
            requests_max: scenario.requests_max,
            queue_depth: scenario.queue_depth.unwrap_or(usize::MAX),
            steps: scenario.steps,
            crashes: scenario.crashes,
            cut_mounts_percent: scenario.cut_mounts_percent,
            is_loop: scenario.is_loop,
            deaths_percent: scenario.deaths_percent,
            has_power_losses: scenario.has_power_losses,
            has_deaths: scenario.has_deaths,
            has_absences: scenario.has_absences,
            calm: scenario.calm,
            injected_faults_per_mille: scenario.injected_faults_per_mille,
            injected_faults: scenario.injected_faults,
            is_rough: scenario.is_rough,
            has_faults: scenario.has_faults,
            heals: scenario.heals,
            has_scrubs: scenario.has_scrubs,
            steps_between_scrubs: scenario.steps_between_scrubs,
            quiet_scrubs_percent: scenario.quiet_scrubs_percent,
            slow_members: scenario.slow_members,
            hazards: scenario.hazards,
        };
        for (place, geometry) in swarm.geometries.iter().enumerate() {
            geometry.validate().map_err(|error| ConfigError::new(format!("volumes.members[{place}]: {error}")))?;
        }
        let ids = vec![[0; 16]; swarm.geometries.len()];
        Volume::create(swarm.config.clone(), swarm.geometries.clone(), [0; 16], &ids, false)
            .map_err(|error| ConfigError::new(format!("volumes.config: {error}")))?;
        if let Some(slow) = swarm.slow_members.iter().find(|slow| **slow >= swarm.geometries.len()) {
            return Err(ConfigError::new(format!("volumes.slow_members: member {slow} does not exist")));
        }
        let mix = &swarm.mix;
        super::at_least_one("volumes.mix", mix.reads + mix.writes + mix.trims + mix.flushes)?;
        super::at_least_one("volumes.steps_between_scrubs", swarm.steps_between_scrubs)?;
        for (name, percent) in [
            ("cut_mounts_percent", swarm.cut_mounts_percent),
            ("deaths_percent", swarm.deaths_percent),
            ("quiet_scrubs_percent", swarm.quiet_scrubs_percent),
            ("mix.large_percent", mix.large_percent),
            ("mix.hot_percent", mix.hot_percent),
        ] {
            if percent > 100 {
                return Err(ConfigError::new(format!("volumes.{name} = {percent} must be at most 100")));
            }
        }
        Ok(VolumesSimulation { swarm })
    }
}
