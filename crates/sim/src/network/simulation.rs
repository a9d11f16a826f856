//! A network scenario: everything that is generated from a seed before the first byte.

use bytes::Bytes;
use zonda_chap::{Group, Hash, Policy, Secret};
use zonda_initiator::InitiatorConfig;
use zonda_layers::{DelayRule, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, When};
use zonda_nvme::Nqn;
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::Digests;
use zonda_ssd::profile::Profile;
use zonda_target::{DeviceKey, HostAccess, HostEntry, Limits, NamespaceConfig, Portal, SubsystemConfig, TargetConfig};
use zonda_zoned::{Blocks, Duration, Geometry, NamespaceId, Prng, Status, ZoneIndex, ZrwaGeometry};

use super::chaos::{ChaosKind, generate_kinds};
use super::pipe::PipeShape;
use super::sharing::{self, SharingTraits};
use super::window::Window;
use crate::drive::{one_of, profile_of};
use crate::options::{Options, Part};
use crate::simulation::{Load, generate_weights};

/// Label of the fork of the seed for network scenarios and their runs.
pub(crate) const FORK: &str = "network";

/// Everything that is generated from a seed before the first byte.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) root: Prng,
    pub(crate) target_traits: TargetTraits,
    /// Configuration of the target, from its traits, the drives and the hosts.
    pub(crate) target: TargetConfig,
    pub(crate) drives: Vec<DriveShape>,
    pub(crate) hosts: Vec<HostShape>,
    /// Hosts that share the namespace of the last drive by reservations.
    pub(crate) sharing: Option<SharingTraits>,
    /// Kinds of connections: the direction to the target, and the one from it.
    pub(crate) pipes: Vec<(PipeShape, PipeShape)>,
    /// The kinds of faults that are injected.
    pub(crate) chaos: Vec<ChaosKind>,
    /// Mean number of events between two faults.
    pub(crate) chaos_every: u64,
    /// Maximum number of faults.
    pub(crate) chaos_max: u64,
    /// Number of events between two checks of the drives' invariants.
    pub(crate) check_every: u64,
}

/// A drive.
#[derive(Debug)]
pub(crate) struct DriveShape {
    pub(crate) geometry: Geometry,
    /// The profile of an SSD model; `None`: a drive in memory.
    pub(crate) profile: Option<Box<Profile>>,
    pub(crate) profile_text: Option<String>,
    /// The target reports a volatile write cache.
    pub(crate) has_volatile_cache: bool,
    /// Rules for delayed completions.
    pub(crate) delays: Vec<DelayRule>,
    /// Rules for commands that fail, before or after execution.
    pub(crate) faults: Vec<FaultRule>,
}

/// A host.
#[derive(Debug)]
pub(crate) struct HostShape {
    pub(crate) traits: HostTraits,
    /// Configuration of the initiator, from the traits.
    pub(crate) config: InitiatorConfig,
    pub(crate) drive: usize,
    pub(crate) window: Window,
    pub(crate) load: Load,
}

/// Generated properties of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetTraits {
    pub(crate) authenticates: bool,
    pub(crate) limits: Limits,
    /// Seed of its challenges.
    pub(crate) seed: [u8; 32],
}

/// Generated properties of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostTraits {
    pub(crate) io_queues: u16,
    pub(crate) queue_depth: u16,
    pub(crate) digests: Digests,
    pub(crate) transfer_bytes_max: u32,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) step_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) reconnect: Duration,
    /// The host authenticates the target, too.
    pub(crate) authenticates_target: bool,
    /// Seed of its challenges and of its host identifier.
    pub(crate) seed: [u8; 32],
}

impl TargetTraits {
    /// The configuration of a target for these drives and hosts.
    pub(crate) fn config(
        &self,
        drives: &[DriveShape],
        hosts: &[HostShape],
        sharing: Option<&SharingTraits>,
    ) -> TargetConfig {
        let namespaces = drives.iter().enumerate().map(|(place, drive)| NamespaceConfig {
            id: NamespaceId(place as u32 + 1),
            device: DeviceKey(place as u32),
            device_namespace: NamespaceId::FIRST,
            geometry: drive.geometry.clone(),
            identity: NamespaceIdentity { uuid: Some([place as u8 + 1; 16]), ..NamespaceIdentity::default() },
            volatile_write_cache: drive.has_volatile_cache,
        });
        let entries = hosts.iter().map(|host| HostEntry {
            nqn: host.config.host_nqn.clone(),
            secret: host.config.host_secret.clone(),
            controller_secret: host.config.controller_secret.clone(),
        });
        let subsystem = SubsystemConfig {
            nqn: name("drive"),
            serial: "1".to_owned(),
            model: "zonda".to_owned(),
            firmware: "1".to_owned(),
            namespaces: namespaces.collect(),
            allow: if self.authenticates { HostAccess::Hosts(entries.collect()) } else { HostAccess::Any },
        };
        let portal = Portal { address: "192.0.2.1".to_owned(), service: "4420".to_owned() };
        let mut config =
            TargetConfig { limits: self.limits.clone(), ..TargetConfig::new(vec![subsystem], vec![portal], self.seed) };
        if sharing.is_some_and(|sharing| sharing.keeps) {
            config.saved_reservations.insert(DeviceKey(drives.len() as u32 - 1), Bytes::new());
        }
        config
    }
}

impl HostTraits {
    /// The configuration of the host with this index, for this drive.
    pub(crate) fn config(&self, host: usize, drive: usize, authenticates: bool) -> InitiatorConfig {
        let mut config = InitiatorConfig {
            io_queues: self.io_queues,
            queue_depth: self.queue_depth,
            digests: self.digests,
            transfer_bytes_max: self.transfer_bytes_max,
            keep_alive: self.keep_alive,
            step_timeout: self.step_timeout,
            command_timeout: self.command_timeout,
            reconnect: Some(self.reconnect),
            namespace: NamespaceId(drive as u32 + 1),
            ..InitiatorConfig::new(host_name(host), name("drive"), self.seed)
        };
        if authenticates {
            config.host_secret = Some(secret(host, 0));
            config.controller_secret = self.authenticates_target.then(|| secret(host, 1));
            config.policy = Policy::new(&[Hash::Sha256], &[Group::Null]).expect("a hash and a group");
        }
        config
    }
}

impl Network {
    pub(crate) fn new(seed: u64, options: &Options) -> Network {
        let root = Prng::new(seed).fork(FORK);
        let mut prng = root.fork("shape");
        let hosts = 1 + prng.below(4) as usize;
        let shares = hosts > 1 && prng.chance(1, 2);
        let zones_each = 3 + prng.below(3) as u32;
        let mut drives: Vec<DriveShape> = (0..if shares { 1 } else { hosts })
            .map(|drive| {
                let zones = if shares { zones_each * hosts as u32 } else { zones_each };
                generate_drive(&root.fork(&format!("drive/{drive}")), zones, options)
            })
            .collect();
        let has_auth = prng.chance(1, 4) && options.has(Part::Authentication);
        let mut shared = root.fork("sharing");
        let has_sharing = shared.chance(1, 4) && !has_auth && options.has(Part::Reservations);
        let sharing = has_sharing.then(|| SharingTraits::generate(&mut shared, options));
        let limits =
            generate_limits(&mut root.fork("limits"), hosts + sharing.as_ref().map_or(0, |sharing| sharing.hosts));
        let hosts: Vec<HostShape> = (0..hosts)
            .map(|host| {
                let drive = if shares { 0 } else { host };
                let first = if shares { ZoneIndex(zones_each * host as u32) } else { ZoneIndex(0) };
                let root = root.fork(&format!("host/{host}"));
                let window = Window::new(&drives[drive].geometry, first, zones_each);
                let traits = generate_host(&mut root.fork("config"), has_auth, &drives[drive], options);
                let config = traits.config(host, drive, has_auth);
                let load = generate_load(&root, &config, options);
                HostShape { traits, config, drive, window, load }
            })
            .collect();
        for (place, drive) in drives.iter_mut().enumerate() {
            let mut faults = root.fork(&format!("drive/{place}/faults"));
            // The state after a failed command with others in flight is unknown: only hosts with
            // queue depth 1 can check it.
            let mut loads = hosts.iter().filter(|host| host.drive == place).map(|host| &host.load);
            if loads.all(|load| load.queue_depth == 1) && faults.chance(1, 2) && options.has(Part::Faults) {
                drive.faults = generate_faults(&mut faults);
            }
        }
        drives.extend(sharing.as_ref().map(|_| sharing::drive()));
        let target_traits = generate_target(&root, limits, &mut drives, has_auth);
        let target = target_traits.config(&drives, &hosts, sharing.as_ref());
        let mut chaos = root.fork("chaos");
        Network {
            pipes: generate_pipes(&mut root.fork("pipes")),
            chaos: generate_kinds(&mut root.fork("kinds"), options),
            chaos_every: one_of(&mut chaos, &[30, 100, 300]),
            chaos_max: one_of(&mut chaos, &[0, 4, 12, 30]),
            check_every: one_of(&mut chaos, &[7, 31]),
            root,
            target_traits,
            target,
            drives,
            hosts,
            sharing,
        }
    }
}

/// A drive without limits of open and active zones: whether a limit is reached would depend on
/// other hosts and queues.
fn generate_drive(root: &Prng, zone_count: u32, options: &Options) -> DriveShape {
    let mut prng = root.fork("geometry");
    let size = one_of(&mut prng, &[16, 24, 32, 40]);
    let capacity = if prng.chance(1, 2) { size } else { size - 4 };
    let transfer = one_of(&mut prng, &[16, 16, 32, 64]);
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(8),
        flush_granularity_blocks: Blocks(4),
        resources: zone_count,
        explicit_flush: prng.chance(2, 3),
    };
    let geometry = Geometry {
        block_size_bytes: 512,
        metadata_bytes: one_of(&mut prng, &[0, 0, 8, 64]) as u16,
        zone_size_blocks: Blocks(size),
        zone_capacity_blocks: Blocks(capacity),
        zone_count,
        conventional_zone_count: 0,
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks: Blocks(transfer),
        max_append_blocks: Blocks(16),
        zrwa: (prng.chance(1, 2) && options.has(Part::Zrwa)).then_some(zrwa),
        read_across_zones: prng.chance(1, 2),
        descriptor_extension_bytes: one_of(&mut prng, &[0, 64]) as u32,
    };
    let profile_text = root.fork("kind").chance(1, 2).then(|| profile_of(root, &geometry));
    let profile = profile_text.as_ref().map(|text| Box::new(Profile::parse(text).expect("a generated drive is valid")));
    let mut late = root.fork("delays");
    let has_delays = late.chance(1, 2) && options.has(Part::Delays);
    let rule = |prng: &mut Prng| DelayRule {
        matches: Matcher::operations(OperationSet::ALL),
        when: When::Chance { numerator: 1, denominator: 1 + prng.below(4) },
        fixed: Duration(one_of(prng, &[0, 10_000])),
        spread: Duration(one_of(prng, &[10_000, 1_000_000, 20_000_000])),
    };
    DriveShape {
        geometry,
        profile,
        profile_text,
        has_volatile_cache: false,
        delays: if has_delays { vec![rule(&mut late)] } else { Vec::new() },
        faults: Vec::new(),
    }
}

fn generate_faults(prng: &mut Prng) -> Vec<FaultRule> {
    let rule = |effect| FaultRule {
        matches: Matcher::operations(OperationSet::ALL),
        when: When::Chance { numerator: 1, denominator: one_of(prng, &[30, 100]) },
        effect,
    };
    [FaultEffect::Fail(Status::InternalError), FaultEffect::FailAfter(Status::WriteFault)].map(rule).into()
}

fn generate_limits(prng: &mut Prng, hosts: usize) -> Limits {
    let transfer_bytes = one_of(prng, &[8192, 8192, 16_384, 1 << 20]) as u32;
    let is_tight = prng.chance(1, 2);
    let bytes = transfer_bytes as usize * if is_tight { 2 } else { 8 };
    Limits {
        // Twice the number that all hosts need, since connections of a crashed host are released
        // late.
        connections: if is_tight { hosts * 10 + 4 } else { 64 },
        half_open: if is_tight { hosts * 2 } else { 32 },
        half_open_per_address: if is_tight { hosts * 2 } else { 16 },
        controllers: if is_tight { hosts * 2 + 2 } else { 32 },
        discovery_controllers: if is_tight { hosts } else { 8 },
        auth_steps: if is_tight { 1 } else { 4 },
        io_queues: if is_tight { 2 } else { 8 },
        queue_entries: one_of(prng, &[32, 64, 128]) as u16,
        transfer_bytes,
        in_capsule_bytes: one_of(prng, &[0, 512, 4096, 8192]) as u32,
        outgoing_bytes: bytes,
        receive_bytes: bytes,
        handshake: Duration::from_secs(one_of(prng, &[1, 5, 20])),
    }
}

fn generate_host(prng: &mut Prng, has_auth: bool, shape: &DriveShape, options: &Options) -> HostTraits {
    let seconds = |prng: &mut Prng, choices: &[u64]| Duration::from_secs(one_of(prng, choices));
    let digests = Digests { header: prng.chance(1, 3), data: prng.chance(1, 3) };
    let keep_alive = one_of(prng, &[0, 500, 2_000, 10_000]);
    let queue_depth = one_of(prng, &[1, 2, 7, 31, 127]) as u16;
    let mut traits = HostTraits {
        io_queues: 1 + prng.below(4) as u16,
        queue_depth: queue_depth.min(options.queue_depth_max.map_or(u16::MAX, |most| most as u16)).max(1),
        digests: if options.has(Part::Digests) { digests } else { Digests::NONE },
        transfer_bytes_max: one_of(prng, &[8192, 16_384, 1 << 20]) as u32,
        keep_alive: (keep_alive > 0).then(|| Duration::from_millis(keep_alive)),
        step_timeout: seconds(prng, &[2, 10]),
        // Long enough for the slowest generated drive.
        command_timeout: if shape.profile.is_some() { Duration::from_secs(200) } else { seconds(prng, &[5, 20]) },
        reconnect: Duration::from_millis(one_of(prng, &[1, 20, 300])),
        authenticates_target: false,
        seed: seed_of(prng),
    };
    traits.authenticates_target = has_auth && prng.chance(1, 2);
    traits
}

fn generate_load(root: &Prng, config: &InitiatorConfig, options: &Options) -> Load {
    let mut prng = root.fork("load");
    let commands = (20 + prng.below(100)) * options.scale.max(1);
    let slots = u64::from(config.queue_depth) * u64::from(config.io_queues);
    let depth = one_of(&mut prng, &[1, 2, 4, 8, 16, 32]).min(slots + 1);
    let pause = Duration(one_of(&mut prng, &[0, 0, 0, 3_000, 1_000_000]));
    Load {
        commands: commands.min(options.commands_max.unwrap_or(u64::MAX)),
        phase_commands: 30 + prng.below(60),
        queue_depth: depth.min(u64::from(options.queue_depth_max.unwrap_or(u32::MAX))).max(1) as usize,
        weights: match options.has(Part::Mix) {
            true => generate_weights(&mut root.fork("mix")),
            false => [1; OperationKind::ALL.len()],
        },
        pause: if options.has(Part::Pauses) { pause } else { Duration::ZERO },
    }
}

/// Generates the target, and the properties of drives that only the target reports.
fn generate_target(root: &Prng, limits: Limits, drives: &mut [DriveShape], authenticates: bool) -> TargetTraits {
    let mut prng = root.fork("target");
    for drive in drives {
        drive.has_volatile_cache = prng.chance(1, 2);
    }
    TargetTraits { authenticates, limits, seed: seed_of(&mut root.fork("challenges")) }
}

/// Three kinds of connections, so that segments of different connections arrive in any order.
fn generate_pipes(prng: &mut Prng) -> Vec<(PipeShape, PipeShape)> {
    let segments = one_of(prng, &[400, 1_500, 9_000, 65_536]);
    let reads = one_of(prng, &[600, 4_096, 20_000, 262_144]);
    let buffer_bytes = one_of(prng, &[2_048, 16_384, 262_144]) as usize;
    let mut shape = || PipeShape {
        latency: Duration(one_of(prng, &[5_000, 50_000, 1_000_000])),
        jitter: Duration(one_of(prng, &[0, 20_000, 2_000_000])),
        bytes_per_second: one_of(prng, &[20_000_000, 1_000_000_000, 5_000_000_000]),
        buffer_bytes,
        segment_bytes_max: segments,
        read_bytes_max: reads,
    };
    (0..3).map(|_| (shape(), shape())).collect()
}

pub(crate) fn name(end: &str) -> Nqn {
    Nqn::new(&format!("nqn.2014-08.org.example:{end}")).expect("a valid NQN")
}

fn host_name(host: usize) -> Nqn {
    name(&format!("host-{host}"))
}

fn secret(host: usize, side: u8) -> Secret {
    let mut bytes = [side + 1; 64];
    bytes[0] = host as u8;
    Secret::generate(None, bytes)
}

pub(crate) fn seed_of(prng: &mut Prng) -> [u8; 32] {
    let mut seed = [0; 32];
    for word in seed.chunks_exact_mut(8) {
        word.copy_from_slice(&prng.next_u64().to_le_bytes());
    }
    seed
}

#[cfg(test)]
mod tests {
    use zonda_target::Target;

    use super::*;

    #[test]
    fn every_generated_network_is_valid_for_target_and_hosts() {
        for seed in 0..300 {
            let simulation = Network::new(seed, &Options::default());
            assert!(
                Target::new(simulation.target.clone()).is_ok(),
                "seed {seed}: {:?}",
                Target::new(simulation.target).err()
            );
            for host in &simulation.hosts {
                assert_eq!(host.config.check(), Ok(()), "seed {seed}");
                let end = host.window.first.0 + host.window.count;
                assert!(end <= simulation.drives[host.drive].geometry.zone_count, "seed {seed}");
            }
        }
    }

    #[test]
    fn each_zone_belongs_to_one_host_and_some_namespaces_to_several() {
        let mut shared = 0;
        for seed in 0..100 {
            let simulation = Network::new(seed, &Options::default());
            for (place, host) in simulation.hosts.iter().enumerate() {
                let zones = |host: &HostShape| host.window.first.0..host.window.first.0 + host.window.count;
                let others = simulation.hosts[..place].iter().filter(|other| other.drive == host.drive);
                for other in others {
                    shared += 1;
                    assert!(zones(other).end <= zones(host).start, "seed {seed}");
                }
            }
        }
        assert!(shared > 30, "{shared}");
    }

    #[test]
    fn leaving_out_a_part_changes_no_other_part() {
        for seed in 0..100 {
            let options = Options { without: [Part::Crashes, Part::Digests].into(), ..Options::default() };
            let (whole, less) = (Network::new(seed, &Options::default()), Network::new(seed, &options));
            assert!(!less.chaos.iter().any(|kind| matches!(kind, ChaosKind::Crash | ChaosKind::Drain)));
            assert!(less.hosts.iter().all(|host| host.config.digests == Digests::NONE));
            let remaining = whole.chaos.iter().filter(|kind| !matches!(kind, ChaosKind::Crash | ChaosKind::Drain));
            assert!(remaining.eq(&less.chaos), "seed {seed}");
            assert_eq!(whole.target.limits, less.target.limits);
            assert_eq!(whole.hosts.len(), less.hosts.len());
        }
    }
}
