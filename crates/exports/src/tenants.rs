//! Pools and schedulers in a snapshot.

use serde::{Deserialize, Serialize};
use zonda_devices::{PoolReport, SchedulerFacts};
use zonda_sched::GroupLoad;

use crate::zone_map::ZoneMapSnapshot;

/// A pool of which the server serves namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSnapshot {
    /// Its directory.
    pub path: String,
    /// Its state, with all of its namespaces.
    pub report: PoolReport,
    /// The zones of its drive, if they were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_map: Option<ZoneMapSnapshot>,
}

/// The namespace of a pool behind a namespace of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPartSnapshot {
    /// The directory of the pool, as in [`PoolSnapshot::path`].
    pub path: String,
    /// Its name in the pool.
    pub name: String,
}

/// The I/O scheduler of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSnapshot {
    /// Its name.
    pub name: String,
    /// Commands that wait in it.
    pub waiting: u64,
    /// Commands that it has released and that have not completed.
    pub in_flight: u64,
    /// What it grants the streams with requests in progress; absent if there are none, and for a
    /// scheduler without such limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<GrantsSnapshot>,
    /// Conflict groups with requests in progress; none for a scheduler without groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupSnapshot>,
    /// Its table of conflict groups; absent for a scheduler without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableSnapshot>,
}

/// What a scheduler has found about its table of conflict groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSnapshot {
    /// The number of groups.
    pub groups: u32,
    /// Whether commands are ordered by it.
    pub is_used: bool,
    /// How often the latencies of reads contradicted it.
    pub rejected: u64,
    /// How often they confirmed it after that.
    pub restored: u64,
}

/// The requests of a conflict group of zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSnapshot {
    /// The number of the group; absent for requests whose group is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Commands that wait.
    pub waiting: u32,
    /// Commands that were released and have not completed.
    pub in_flight: u32,
}

/// What a scheduler grants the streams with requests in progress: stripe groups, or single zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantsSnapshot {
    /// Streams.
    pub streams: u32,
    /// Reads in flight.
    pub reads_in_flight: u32,
    /// Reads that may be in flight: the sum of their windows.
    pub read_window: u32,
    /// Writes in flight.
    pub writes_in_flight: u32,
    /// Their write tokens, in bytes; negative after large writes.
    pub write_tokens_bytes: i64,
}

impl GroupSnapshot {
    fn of(load: &GroupLoad) -> GroupSnapshot {
        let group = load.group.map(|group| group.0);
        GroupSnapshot { group, waiting: load.waiting, in_flight: load.in_flight }
    }
}

impl SchedulerSnapshot {
    pub(crate) fn of(facts: &SchedulerFacts) -> SchedulerSnapshot {
        let grants = facts.loads.iter().fold(GrantsSnapshot::default(), |sum, load| GrantsSnapshot {
            streams: sum.streams + load.streams,
            reads_in_flight: sum.reads_in_flight + load.reads_in_flight,
            read_window: sum.read_window + load.read_window,
            writes_in_flight: sum.writes_in_flight + load.writes_in_flight,
            write_tokens_bytes: sum.write_tokens_bytes.saturating_add(load.write_tokens_bytes),
        });
        SchedulerSnapshot {
            name: facts.name.to_owned(),
            waiting: facts.waiting,
            in_flight: facts.in_flight,
            grants: (!facts.loads.is_empty()).then_some(grants),
            groups: facts.groups.iter().map(GroupSnapshot::of).collect(),
            table: facts.table.map(|table| TableSnapshot {
                groups: table.groups,
                is_used: table.is_used,
                rejected: table.rejected,
                restored: table.restored,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use zonda_devices::TenantLoad;
    use zonda_sched::{ConflictGroup, TableReport};
    use zonda_zoned::TenantId;

    use super::*;

    #[test]
    fn grants_are_the_sums_of_all_tenants_with_requests_in_progress() {
        let load = |number, read_window, write_tokens_bytes| TenantLoad {
            tenant: TenantId(number),
            streams: 2,
            waiting: 9,
            reads_in_flight: 3,
            read_window,
            writes_in_flight: 1,
            write_tokens_bytes,
        };
        let groups = vec![
            GroupLoad { group: Some(ConflictGroup(3)), waiting: 12, in_flight: 7 },
            GroupLoad { group: None, waiting: 6, in_flight: 1 },
        ];
        let loads = vec![load(0, 4, -10), load(1, 5, 50)];
        let table = Some(TableReport { groups: 8, is_used: false, rejected: 2, restored: 1 });
        let facts = SchedulerFacts { name: "ezns", waiting: 18, in_flight: 8, loads, groups, table };
        let snapshot = SchedulerSnapshot::of(&facts);
        let expected = GrantsSnapshot {
            streams: 4,
            reads_in_flight: 6,
            read_window: 9,
            writes_in_flight: 2,
            write_tokens_bytes: 40,
        };
        assert_eq!((snapshot.waiting, snapshot.in_flight, snapshot.grants), (18, 8, Some(expected)));
        let group = |group, waiting, in_flight| GroupSnapshot { group, waiting, in_flight };
        let table = TableSnapshot { groups: 8, is_used: false, rejected: 2, restored: 1 };
        assert_eq!(snapshot.table, Some(table));
        assert_eq!(snapshot.groups, [group(Some(3), 12, 7), group(None, 6, 1)]);
        let idle = SchedulerSnapshot::of(&SchedulerFacts { loads: Vec::new(), ..facts });
        assert_eq!(idle.grants, None);
    }
}
