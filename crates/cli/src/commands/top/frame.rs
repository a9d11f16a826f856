//! [`Frame`]: what a server did between two snapshots, a row for each namespace.

use serde::Serialize;
use zonda_devices::{PoolGroupCount, PoolNamespaceReport, VolumeReport};
use zonda_exports::snapshot::{
    GrantsSnapshot, GroupSnapshot, NamespaceSnapshot, PoolSnapshot, SchedulerSnapshot, Snapshot, SubsystemSnapshot,
    TableSnapshot, ZoneMapSnapshot,
};

use super::rates::Rates;

/// A server at one moment, with its activity since the moment before.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) server: ServerLine,
    /// Namespaces of the server, in the order of its configuration, and then namespaces of its pools
    /// that are not served.
    pub(super) rows: Vec<Row>,
    pub(super) pools: Vec<PoolSnapshot>,
}

/// What the first line has.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerLine {
    pub(super) version: String,
    pub(super) uptime_ns: u64,
    pub(super) connections: u64,
    pub(super) memory_used_bytes: u64,
    pub(super) memory_budget_bytes: u64,
    /// The process, and when it started: another one is another server.
    pub(super) process: (u32, u64),
    /// Between the two snapshots; 0 if this is the first one.
    pub(super) interval_ns: u64,
}

/// One namespace.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    /// `db` of a pool, or the last part of the path.
    pub(super) name: String,
    /// `drive`, `volume` or `pool`.
    pub(super) kind: &'static str,
    /// The subsystem; absent for a namespace of a pool that is not served.
    pub(super) nqn: Option<String>,
    /// Its number in the subsystem.
    pub(super) namespace: Option<u32>,
    /// The directory of the image, volume or pool, or `memory`.
    pub(super) source: String,
    /// Absent in the first frame, and for a namespace that is not served.
    #[serde(flatten)]
    pub(super) rates: Option<Rates>,
    /// Commands that are queued or in flight.
    pub(super) outstanding: u64,
    pub(super) zones: u32,
    pub(super) size_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) active_zones: u32,
    pub(super) max_active_zones: Option<u32>,
    pub(super) open_zones: u32,
    pub(super) max_open_zones: Option<u32>,
    #[serde(flatten)]
    pub(super) share: Option<ShareOfPool>,
    /// The scheduler of the drive; absent without one.
    pub(super) scheduler: Option<String>,
    /// Absent while no request is in progress in the scheduler, and without one.
    #[serde(flatten)]
    pub(super) grants: Option<GrantsSnapshot>,
    /// Absent for a scheduler without conflict groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) conflict_groups: Option<ConflictGroups>,
    /// The health of a volume, as `zonda volume status --json` prints it: its state, members, rebuild.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume: Option<VolumeReport>,
    #[serde(skip)]
    pub(super) dlwa: Option<f64>,
    #[serde(skip)]
    pub(super) maps: Vec<ZoneMapSnapshot>,
}

/// The conflict groups of a drive in the scheduler `interference`. Namespaces of a pool share those
/// of its drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ConflictGroups {
    #[serde(flatten)]
    pub(super) table: TableSnapshot,
    /// Groups with outstanding commands.
    pub(super) outstanding: Vec<GroupSnapshot>,
}

impl ConflictGroups {
    fn of(scheduler: &SchedulerSnapshot) -> Option<ConflictGroups> {
        scheduler.table.map(|table| ConflictGroups { table, outstanding: scheduler.groups.clone() })
    }
}

/// What a pool has for one of its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ShareOfPool {
    /// The directory of the pool.
    pub(super) pool: String,
    /// The identifier in the pool.
    #[serde(skip)]
    pub(super) id: u32,
    pub(super) weight: u32,
    pub(super) essentials: u32,
    pub(super) spares_own: u32,
    pub(super) spares_lent: u32,
    pub(super) spares_leased: u32,
    pub(super) spares_used: u32,
    /// Stripe groups that can be written, by their width.
    pub(super) stripe_groups: Vec<PoolGroupCount>,
}

impl ShareOfPool {
    fn of(pool: &PoolSnapshot, own: &PoolNamespaceReport) -> ShareOfPool {
        ShareOfPool {
            pool: pool.path.clone(),
            id: own.id,
            weight: own.weight,
            essentials: own.essentials,
            spares_own: own.spares_own,
            spares_lent: own.spares_lent,
            spares_leased: own.spares_leased,
            spares_used: own.spares_used,
            stripe_groups: own.writable_groups.clone(),
        }
    }

    /// Spares that it may use.
    pub(super) fn spares(&self) -> u32 {
        (self.spares_own + self.spares_leased).saturating_sub(self.spares_lent)
    }
}

impl Frame {
    /// The frame of a snapshot, and of the one before if that is of the same process.
    pub(super) fn of(before: Option<&Snapshot>, now: &Snapshot) -> Frame {
        let before = before.filter(|before| process_of(before) == process_of(now));
        let interval_ns = before.map_or(0, |before| now.uptime_ns.saturating_sub(before.uptime_ns));
        let mut rows = Vec::new();
        for subsystem in &now.subsystems {
            for namespace in &subsystem.namespaces {
                let old = before.map(|before| find(before, &subsystem.nqn, namespace.id));
                let rates = old.filter(|_| interval_ns > 0).map(|old| Rates::between(old, namespace, interval_ns));
                rows.push(row(now, subsystem, namespace, rates));
            }
        }
        for pool in &now.pools {
            let is_unserved = |own: &&PoolNamespaceReport| !rows.iter().any(|row| row.is_part(pool, &own.name));
            let idle: Vec<Row> =
                pool.report.namespaces.iter().filter(is_unserved).map(|own| unserved(pool, own)).collect();
            rows.extend(idle);
        }
        Frame {
            server: ServerLine {
                version: now.version.clone(),
                uptime_ns: now.uptime_ns,
                connections: now.connections + now.nbd.as_ref().map_or(0, |nbd| nbd.connections),
                memory_used_bytes: now.memory.used_bytes,
                memory_budget_bytes: now.memory.budget_bytes,
                process: process_of(now),
                interval_ns,
            },
            rows,
            pools: now.pools.clone(),
        }
    }

    /// The pool of a row.
    pub(super) fn pool_of(&self, row: &Row) -> Option<&PoolSnapshot> {
        let share = row.share.as_ref()?;
        self.pools.iter().find(|pool| pool.path == share.pool)
    }
}

impl Row {
    fn is_part(&self, pool: &PoolSnapshot, name: &str) -> bool {
        self.name == name && self.share.as_ref().is_some_and(|share| share.pool == pool.path)
    }

    /// What identifies it from frame to frame.
    pub(super) fn key(&self) -> (Option<&str>, Option<u32>, &str, &str) {
        (self.nqn.as_deref(), self.namespace, &self.source, &self.name)
    }
}

/// The process of a server, and when it started.
pub(super) fn process_of(snapshot: &Snapshot) -> (u32, u64) {
    (snapshot.pid, snapshot.started_ticks)
}

fn find<'s>(snapshot: &'s Snapshot, nqn: &str, id: u32) -> Option<&'s NamespaceSnapshot> {
    let subsystem = snapshot.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)?;
    subsystem.namespaces.iter().find(|namespace| namespace.id == id)
}

fn row(now: &Snapshot, subsystem: &SubsystemSnapshot, namespace: &NamespaceSnapshot, rates: Option<Rates>) -> Row {
    let pool = namespace.pool.as_ref().and_then(|part| now.pools.iter().find(|pool| pool.path == part.path));
    let own = pool.zip(namespace.pool.as_ref()).and_then(|(pool, part)| pool.report.namespace(&part.name));
    let last_part = |path: &str| path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path).to_owned();
    Row {
        name: match &namespace.pool {
            Some(part) => part.name.clone(),
            None => last_part(&namespace.source),
        },
        kind: match (&namespace.pool, &namespace.volume) {
            (Some(_), _) => "pool",
            (None, Some(_)) => "volume",
            (None, None) => "drive",
        },
        nqn: Some(subsystem.nqn.clone()),
        namespace: Some(namespace.id),
        source: namespace.source.clone(),
        rates,
        outstanding: namespace.outstanding,
        zones: namespace.zones,
        size_bytes: u64::from(namespace.zones) * namespace.zone_capacity_bytes,
        written_bytes: namespace.written_bytes,
        active_zones: namespace.active_zones,
        max_active_zones: namespace.max_active_zones,
        open_zones: namespace.open_zones,
        max_open_zones: namespace.max_open_zones,
        share: pool.zip(own).map(|(pool, own)| ShareOfPool::of(pool, own)),
        scheduler: namespace.scheduler.as_ref().map(|scheduler| scheduler.name.clone()),
        conflict_groups: namespace.scheduler.as_ref().and_then(ConflictGroups::of),
        grants: namespace.scheduler.as_ref().and_then(|scheduler| scheduler.grants),
        volume: namespace.volume.clone(),
        dlwa: namespace.life.as_ref().map(|life| life.dlwa),
        maps: namespace.zone_maps.clone(),
    }
}

/// A namespace of a pool that no subsystem exports.
fn unserved(pool: &PoolSnapshot, own: &PoolNamespaceReport) -> Row {
    Row {
        name: own.name.clone(),
        kind: "pool",
        source: pool.path.clone(),
        zones: own.zones,
        size_bytes: own.size_bytes,
        written_bytes: own.written_bytes,
        active_zones: own.active_zones,
        max_active_zones: Some(own.max_active_zones),
        share: Some(ShareOfPool::of(pool, own)),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_namespace_of_a_pool_that_is_not_served_has_a_row_without_rates() {
        let (before, now) = samples::pool();
        let frame = Frame::of(Some(&before), &now);
        let names: Vec<&str> = frame.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["db", "log", "backup"]);
        assert!(frame.rows[0].rates.is_some() && frame.rows[2].rates.is_none());
        assert_eq!((frame.rows[2].nqn.as_deref(), frame.rows[2].share.as_ref().map(|share| share.id)), (None, Some(3)));
    }

    #[test]
    fn figures_of_another_process_are_not_compared() {
        let (before, mut now) = samples::pool();
        assert_eq!(Frame::of(Some(&before), &now).server.interval_ns, 1_000_000_000);
        now.pid += 1;
        let frame = Frame::of(Some(&before), &now);
        assert_eq!((frame.server.interval_ns, frame.rows[0].rates.is_none()), (0, true));
    }
}
