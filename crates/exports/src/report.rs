//! Takes a snapshot.

use std::path::{Path, PathBuf};

use zonda_devices::{PoolDrive, SpaceFacts, VolumeDrive};
use zonda_ring::Ring;
use zonda_target::{DeviceKey, Target};
use zonda_zoned::{Instant, NamespaceId};

use crate::drives::Drives;
use crate::meter::KindMeter;
use crate::nbd::Nbd;
use crate::served::Served;
use crate::snapshot::{
    CommandSnapshot, ConfigurationSnapshot, ElementsSnapshot, ErrorSnapshot, LifeSnapshot, MemorySnapshot,
    NamespaceSnapshot, PoolPartSnapshot, PoolSnapshot, SchedulerSnapshot, SessionSnapshot, Snapshot, SpaceSnapshot,
    StateSnapshot, SubsystemSnapshot, Traffic, ZoneMapSnapshot,
};
use crate::sockets::Sockets;
use crate::start::backend_name;

/// Version of the layout of [`Snapshot`].
const FORMAT: u32 = 1;

/// What a server listens on and serves.
pub(crate) struct Facts {
    pub(crate) listen: Vec<String>,
    pub(crate) layout: Vec<SubsystemLayout>,
    /// Of the process.
    pub(crate) started_ticks: u64,
    pub(crate) configuration: Option<ConfigurationSnapshot>,
}

/// A subsystem and its namespaces.
pub(crate) struct SubsystemLayout {
    pub(crate) nqn: String,
    pub(crate) namespaces: Vec<NamespaceLayout>,
}

/// A namespace and the drive behind it.
pub(crate) struct NamespaceLayout {
    pub(crate) id: NamespaceId,
    pub(crate) device: DeviceKey,
    pub(crate) read_only: bool,
    /// The directory of its pool, and its name there.
    pub(crate) pool: Option<PoolPartSnapshot>,
}

/// Whether a snapshot has the zone maps of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneMaps {
    LeftOut,
    Included,
}

/// The server as it is now.
pub(crate) fn snapshot(
    now: Instant,
    facts: &Facts,
    ring: &Ring,
    target: &Target,
    sockets: &Sockets,
    nbd: Option<&Nbd>,
    drives: &Drives,
) -> Snapshot {
    let budget = target.budget();
    let buffer_bytes = sockets.buffer_bytes() + nbd.map_or(0, Nbd::buffer_bytes);
    let statistics = target.statistics();
    let sessions = |nqn: &str| {
        let sessions = target.sessions();
        let of_subsystem =
            sessions.into_iter().filter(|session| session.subsystem.as_ref().is_some_and(|name| name.as_str() == nqn));
        of_subsystem
            .map(|session| SessionSnapshot {
                host_nqn: session.host.to_string(),
                controller: session.controller_id,
                io_queues: u32::from(session.io_queues),
                authenticated: session.authenticated,
            })
            .collect()
    };
    Snapshot {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_ticks: facts.started_ticks,
        uptime_ns: now.since(Instant::ZERO).as_nanos(),
        backend: backend_name(ring).to_owned(),
        listen: facts.listen.clone(),
        connections: sockets.len() as u64,
        traffic: Traffic {
            connections_accepted: sockets.accepted,
            connections_refused: statistics.connections_refused + statistics.connects_refused,
            protocol_errors: statistics.protocol_errors,
            authentication_failures: statistics.authentication_failures,
            received_bytes: sockets.received_bytes,
            sent_bytes: sockets.sent_bytes,
        },
        memory: MemorySnapshot {
            budget_bytes: budget.total_bytes() as u64,
            used_bytes: (budget.held_bytes() + buffer_bytes) as u64,
            waits: budget.waits(),
        },
        configuration: facts.configuration.clone(),
        subsystems: facts
            .layout
            .iter()
            .map(|subsystem| SubsystemSnapshot {
                nqn: subsystem.nqn.clone(),
                sessions: sessions(&subsystem.nqn),
                namespaces: subsystem
                    .namespaces
                    .iter()
                    .map(|entry| namespace(entry, drives.get(entry.device)))
                    .collect(),
            })
            .collect(),
        pools: open_pools(drives).map(|(path, pool)| pool_snapshot(path, pool)).collect(),
        nbd: nbd.map(Nbd::snapshot),
    }
}

fn namespace(entry: &NamespaceLayout, served: &Served) -> NamespaceSnapshot {
    let (geometry, facts) = (served.geometry(), served.drive().facts());
    let states = facts.zones_by_state.iter();
    let errors = served.meter.errors();
    NamespaceSnapshot {
        id: entry.id.0,
        source: served.source.clone(),
        timing: served.timing.to_owned(),
        read_only: entry.read_only,
        block_size_bytes: geometry.block_size_bytes,
        zones: geometry.zone_count,
        zone_capacity_bytes: geometry.zone_capacity_bytes(),
        zones_by_state: states
            .map(|(state, zones)| StateSnapshot { state: state.to_string(), zones: *zones })
            .collect(),
        active_zones: facts.active_zones,
        max_active_zones: geometry.max_active_zones,
        open_zones: facts.open_zones,
        max_open_zones: geometry.max_open_zones,
        written_bytes: facts.written_blocks * u64::from(geometry.block_size_bytes),
        outstanding: served.outstanding() as u64,
        commands: served.meter.kinds().map(|(kind, meter)| command(kind.name(), meter)).collect(),
        errors: errors.into_iter().map(|(status, count)| ErrorSnapshot { status: status.to_string(), count }).collect(),
        media_errors: served.drive().media_errors(),
        space: served.drive().space().map(|SpaceFacts { is_full, failures }| SpaceSnapshot { is_full, failures }),
        life: facts.life.as_ref().map(LifeSnapshot::of),
        elements: facts.elements.map(|elements| ElementsSnapshot::of(&elements, facts.life.as_ref())),
        volume: served.volume().map(VolumeDrive::report),
        pool: entry.pool.clone(),
        scheduler: served.drive().scheduler().map(|facts| SchedulerSnapshot::of(&facts)),
        zone_maps: Vec::new(),
    }
}

/// The pools of which a namespace is served.
fn open_pools(drives: &Drives) -> impl Iterator<Item = &(PathBuf, PoolDrive)> {
    drives.pools.iter().filter(|(_, pool)| pool.has_users())
}

fn pool_snapshot(path: &Path, pool: &PoolDrive) -> PoolSnapshot {
    PoolSnapshot { path: path.display().to_string(), report: pool.report(), zone_map: None }
}

/// Adds the zone maps of all drives to a snapshot that was just taken.
pub(crate) fn add_zone_maps(snapshot: &mut Snapshot, facts: &Facts, drives: &Drives) {
    for (subsystem, layout) in snapshot.subsystems.iter_mut().zip(&facts.layout) {
        for (namespace, entry) in subsystem.namespaces.iter_mut().zip(&layout.namespaces) {
            namespace.zone_maps = zone_maps(drives.get(entry.device));
        }
    }
    for (of, (_, pool)) in snapshot.pools.iter_mut().zip(open_pools(drives)) {
        of.zone_map = ZoneMapSnapshot::of_pool(pool);
    }
}

/// The map of a drive, or of each member of a volume that reports its zones.
fn zone_maps(served: &Served) -> Vec<ZoneMapSnapshot> {
    let Some(volume) = served.volume() else {
        return ZoneMapSnapshot::of_drive(served.drive()).into_iter().collect();
    };
    let mut maps = Vec::new();
    volume.visit_members(&mut |member, drive| {
        let map = ZoneMapSnapshot::of_drive(drive);
        maps.extend(map.map(|map| ZoneMapSnapshot { member: Some(member), ..map }));
    });
    maps
}

fn command(kind: &str, meter: &KindMeter) -> CommandSnapshot {
    CommandSnapshot {
        kind: kind.to_owned(),
        count: meter.succeeded,
        bytes: meter.bytes,
        latency_sum_ns: meter.latencies.sum_ns,
        latency_counts: meter.latencies.counts.to_vec(),
        p50_ns: meter.latencies.quantile_ns(0.5),
        p99_ns: meter.latencies.quantile_ns(0.99),
    }
}
