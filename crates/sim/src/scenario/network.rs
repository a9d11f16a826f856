//! Hosts that reach drives over a network.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_nvme::tcp::Digests;
use zonda_target::{Limits, Target};
use zonda_zoned::{Duration, Geometry, Prng, ZoneIndex};

use super::parts::{Delay, DurationDef, Fault, GeometryDef, ZoneIndexDef, hex};
use crate::network::{
    ChaosKind, DriveShape, HostShape, HostTraits, Network, PipeShape, SharingTraits, TargetTraits, Window,
};
use crate::simulation::Load;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkScenario {
    /// Names of the faults that are injected.
    chaos: Vec<String>,
    /// In events.
    chaos_every: u64,
    chaos_max: u64,
    check_every: u64,
    target: TargetText,
    drives: Vec<DriveText>,
    hosts: Vec<HostText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sharing: Option<SharingTraits>,
    pipes: Vec<PipesText>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetText {
    authenticates: bool,
    /// Seed of its challenges.
    #[serde(with = "hex")]
    seed: [u8; 32],
    #[serde(with = "LimitsDef")]
    limits: Limits,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits", deny_unknown_fields)]
struct LimitsDef {
    connections: usize,
    half_open: usize,
    #[serde(default = "half_open_per_address")]
    half_open_per_address: usize,
    controllers: usize,
    #[serde(default = "discovery_controllers")]
    discovery_controllers: usize,
    #[serde(default = "auth_steps")]
    auth_steps: usize,
    io_queues: u16,
    queue_entries: u16,
    transfer_bytes: u32,
    in_capsule_bytes: u32,
    outgoing_bytes: usize,
    receive_bytes: usize,
    #[serde(rename = "handshake_ns", with = "DurationDef")]
    handshake: Duration,
}

/// Default for scenarios that were recorded before this limit existed.
fn half_open_per_address() -> usize {
    zonda_target::limits::HALF_OPEN_MAX
}

/// Default for scenarios that were recorded before this limit existed.
fn discovery_controllers() -> usize {
    zonda_target::limits::DISCOVERY_CONTROLLERS_MAX
}

/// Default for scenarios that were recorded before this limit existed.
fn auth_steps() -> usize {
    zonda_target::limits::AUTH_STEPS_MAX
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriveText {
    has_volatile_cache: bool,
    /// The profile of an SSD model; `None`: a drive in memory.
    profile: Option<String>,
    #[serde(with = "GeometryDef")]
    geometry: Geometry,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    delays: Vec<Delay>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    faults: Vec<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    /// By index.
    drive: usize,
    #[serde(with = "ZoneIndexDef")]
    first_zone: ZoneIndex,
    zones: u32,
    io_queues: u16,
    queue_depth: u16,
    #[serde(with = "DigestsDef")]
    digests: Digests,
    transfer_bytes_max: u32,
    keep_alive_ns: Option<u64>,
    #[serde(rename = "step_timeout_ns", with = "DurationDef")]
    step_timeout: Duration,
    #[serde(rename = "command_timeout_ns", with = "DurationDef")]
    command_timeout: Duration,
    #[serde(rename = "reconnect_ns", with = "DurationDef")]
    reconnect: Duration,
    /// The host authenticates the target, too.
    authenticates_target: bool,
    /// Seed of its challenges and of its host identifier.
    #[serde(with = "hex")]
    seed: [u8; 32],
    load: Load,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Digests", deny_unknown_fields)]
struct DigestsDef {
    header: bool,
    data: bool,
}

/// A kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PipesText {
    to_target: PipeShape,
    from_target: PipeShape,
}

impl NetworkScenario {
    pub(super) fn of(simulation: &Network) -> NetworkScenario {
        let target = &simulation.target_traits;
        NetworkScenario {
            chaos: simulation.chaos.iter().map(|kind| kind.name().to_owned()).collect(),
            chaos_every: simulation.chaos_every,
            chaos_max: simulation.chaos_max,
            check_every: simulation.check_every,
            target: TargetText {
                authenticates: target.authenticates,
                seed: target.seed,
                limits: target.limits.clone(),
            },
            drives: simulation.drives.iter().map(DriveText::of).collect(),
            hosts: simulation.hosts.iter().map(HostText::of).collect(),
            sharing: simulation.sharing.clone(),
            pipes: simulation.pipes.iter().map(|(to, from)| PipesText { to_target: *to, from_target: *from }).collect(),
        }
    }

    pub(super) fn simulation(&self, root: Prng) -> Result<Network, ConfigError> {
        let chaos = self.chaos.iter().map(|name| {
            let unknown = || ConfigError::new(format!("network.chaos: \"{name}\" is not a network fault"));
            ChaosKind::by_name(name).ok_or_else(unknown)
        });
        let drives: Vec<DriveShape> = self.drives.iter().map(DriveText::shape).collect::<Result<_, _>>()?;
        let authenticates = self.target.authenticates;
        let hosts = self.hosts.iter().enumerate().map(|(place, host)| host.shape(place, &drives, authenticates));
        let hosts: Vec<HostShape> = hosts.collect::<Result<_, _>>()?;
        let target_traits = TargetTraits { authenticates, seed: self.target.seed, limits: self.target.limits.clone() };
        let at_least_one = [
            ("network.hosts", hosts.len() as u64),
            ("network.pipes", self.pipes.len() as u64),
            ("network.check_every", self.check_every),
            ("network.chaos_every", self.chaos_every),
        ];
        for (name, number) in at_least_one {
            super::at_least_one(name, number)?;
        }
        for pipe in self.pipes.iter().flat_map(|pipes| [pipes.to_target, pipes.from_target]) {
            let least = pipe.bytes_per_second.min(pipe.segment_bytes_max).min(pipe.read_bytes_max);
            super::at_least_one("network.pipes", least.min(pipe.buffer_bytes as u64))?;
        }
        if let Some(sharing) = &self.sharing {
            sharing.check().map_err(|what| ConfigError::new(format!("network.sharing: must be {what}")))?;
            if authenticates || drives.is_empty() {
                return Err(ConfigError::new("network.sharing: requires a drive and hosts without authentication"));
            }
        }
        let target = target_traits.config(&drives, &hosts, self.sharing.as_ref());
        Target::new(target.clone()).map_err(|error| ConfigError::new(format!("network.target: {error:?}")))?;
        Ok(Network {
            root,
            target,
            target_traits,
            drives,
            hosts,
            sharing: self.sharing.clone(),
            pipes: self.pipes.iter().map(|pipes| (pipes.to_target, pipes.from_target)).collect(),
            chaos: chaos.collect::<Result<_, _>>()?,
            chaos_every: self.chaos_every,
            chaos_max: self.chaos_max,
            check_every: self.check_every,
        })
    }
}

impl DriveText {
    fn of(shape: &DriveShape) -> DriveText {
        DriveText {
            has_volatile_cache: shape.has_volatile_cache,
            profile: shape.profile_text.clone(),
            geometry: shape.geometry.clone(),
            delays: shape.delays.iter().cloned().map(Delay).collect(),
            faults: shape.faults.iter().cloned().map(Fault).collect(),
        }
    }

    fn shape(&self) -> Result<DriveShape, ConfigError> {
        self.geometry.validate().map_err(|error| ConfigError::new(format!("network.drives: geometry: {error}")))?;
        let profile = match &self.profile {
            Some(text) => Some(Box::new(super::profile("network.drives: profile", text)?)),
            None => None,
        };
        if profile.as_ref().is_some_and(|profile| profile.geometry() != self.geometry) {
            return Err(ConfigError::new("network.drives: the geometry differs from that of the profile"));
        }
        Ok(DriveShape {
            geometry: self.geometry.clone(),
            profile_text: self.profile.clone(),
            profile,
            has_volatile_cache: self.has_volatile_cache,
            delays: self.delays.iter().map(|rule| rule.0.clone()).collect(),
            faults: self.faults.iter().map(|rule| rule.0.clone()).collect(),
        })
    }
}

impl HostText {
    fn of(shape: &HostShape) -> HostText {
        let traits = &shape.traits;
        HostText {
            drive: shape.drive,
            first_zone: shape.window.first,
            zones: shape.window.count,
            io_queues: traits.io_queues,
            queue_depth: traits.queue_depth,
            digests: traits.digests,
            transfer_bytes_max: traits.transfer_bytes_max,
            keep_alive_ns: traits.keep_alive.map(|keep_alive| keep_alive.0),
            step_timeout: traits.step_timeout,
            command_timeout: traits.command_timeout,
            reconnect: traits.reconnect,
            authenticates_target: traits.authenticates_target,
            seed: traits.seed,
            load: shape.load.clone(),
        }
    }

    fn shape(&self, place: usize, drives: &[DriveShape], authenticates: bool) -> Result<HostShape, ConfigError> {
        let mistake = |what: String| ConfigError::new(format!("network.hosts[{place}]: {what}"));
        let drive = drives.get(self.drive).ok_or_else(|| mistake(format!("drive {} does not exist", self.drive)))?;
        let end = u64::from(self.first_zone.0) + u64::from(self.zones);
        if self.zones == 0 || end > u64::from(drive.geometry.zone_count) {
            return Err(mistake(format!(
                "{} zones from zone {} exceed the {} zones of the drive",
                self.zones, self.first_zone, drive.geometry.zone_count
            )));
        }
        self.load.check("network.hosts: load")?;
        let traits = HostTraits {
            io_queues: self.io_queues,
            queue_depth: self.queue_depth,
            digests: self.digests,
            transfer_bytes_max: self.transfer_bytes_max,
            keep_alive: self.keep_alive_ns.map(Duration),
            step_timeout: self.step_timeout,
            command_timeout: self.command_timeout,
            reconnect: self.reconnect,
            authenticates_target: self.authenticates_target,
            seed: self.seed,
        };
        let config = traits.config(place, self.drive, authenticates);
        config.check().map_err(|error| mistake(error.to_string()))?;
        let window = Window::new(&drive.geometry, self.first_zone, self.zones);
        Ok(HostShape { traits, config, drive: self.drive, window, load: self.load.clone() })
    }
}
