//! The state of a running server: the source of metrics, `zonda status` and its JSON.

use serde::{Deserialize, Serialize};
use zonda_devices::{LifeCounters, VolumeReport};
use zonda_ssd::allocation::AllocationFacts;

pub use crate::nbd::snapshot::{NbdExportSnapshot, NbdRequestSnapshot, NbdSnapshot};
pub use crate::tenants::{
    GrantsSnapshot, GroupSnapshot, PoolPartSnapshot, PoolSnapshot, SchedulerSnapshot, TableSnapshot,
};
pub use crate::zone_map::{CellState, ZONE_MAP_CELLS_MAX, ZoneMapSnapshot};

/// A server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of this layout; incremented when a field changes its meaning.
    pub format: u32,
    /// zonda's version.
    pub version: String,
    /// Process identifier of the server.
    #[serde(default)]
    pub pid: u32,
    /// When that process started, in clock ticks since the machine was booted: with the identifier
    /// it is unique, because identifiers are reused.
    #[serde(default)]
    pub started_ticks: u64,
    /// Since the server started, in nanoseconds.
    pub uptime_ns: u64,
    /// `io_uring` or `epoll`.
    pub backend: String,
    /// The addresses for hosts.
    pub listen: Vec<String>,
    /// Connections of hosts, handshakes included.
    pub connections: u64,
    /// Since the start.
    pub traffic: Traffic,
    /// Memory for the data of all connections.
    #[serde(default)]
    pub memory: MemorySnapshot,
    /// Absent if the server has no configuration file that it could read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationSnapshot>,
    /// In the order of the configuration.
    pub subsystems: Vec<SubsystemSnapshot>,
    /// The pools of which namespaces are served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolSnapshot>,
    /// The NBD server; absent if not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<NbdSnapshot>,
}

/// Memory for the data of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySnapshot {
    /// The budget, in bytes.
    pub budget_bytes: u64,
    /// Bytes in use, or reserved for requests in progress.
    pub used_bytes: u64,
    /// Requests that waited for memory since the server started.
    pub waits: u64,
}

/// The configuration file of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationSnapshot {
    /// Its path, as given to the server.
    pub file: String,
    /// How often the server has read it again.
    pub reloads: u64,
    /// The result of the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<ReloadSnapshot>,
}

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadSnapshot {
    /// When it ended, in seconds since 1970-01-01 00:00 UTC.
    pub unix_time_s: u64,
    /// What has changed, each change as a line.
    pub changes: Vec<String>,
    /// Why nothing has changed, with its place in the file and the remedy; absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Traffic since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections refused: too many, an unknown host, an authentication failure.
    pub connections_refused: u64,
    /// Connections closed for a protocol error.
    pub protocol_errors: u64,
    /// Hosts that failed to authenticate.
    pub authentication_failures: u64,
    /// Bytes received from hosts.
    pub received_bytes: u64,
    /// Bytes sent to hosts.
    pub sent_bytes: u64,
}

/// A subsystem and its sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubsystemSnapshot {
    /// NVMe Qualified Name.
    pub nqn: String,
    /// Controllers in use, one for each session of a host.
    pub sessions: Vec<SessionSnapshot>,
    /// In the order of their ids.
    pub namespaces: Vec<NamespaceSnapshot>,
}

/// A host's session with a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// The host's NVMe Qualified Name.
    pub host_nqn: String,
    /// Controller id.
    pub controller: u16,
    /// I/O queues that are connected.
    pub io_queues: u32,
    /// Whether the host has authenticated.
    pub authenticated: bool,
}

/// A namespace, and the drive behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamespaceSnapshot {
    /// Namespace id.
    pub id: u32,
    /// The directory of the image, or `memory`.
    pub source: String,
    /// `none` or `profile`.
    pub timing: String,
    /// Whether it is served read-only: hosts see it as write protected.
    #[serde(default)]
    pub read_only: bool,
    /// Bytes of a logical block.
    pub block_size_bytes: u32,
    /// Zones.
    pub zones: u32,
    /// Zone capacity, in bytes.
    pub zone_capacity_bytes: u64,
    /// Zones in each state.
    pub zones_by_state: Vec<StateSnapshot>,
    /// Zones that hold an active resource.
    pub active_zones: u32,
    /// Absent: no limit.
    pub max_active_zones: Option<u32>,
    /// Zones that hold an open resource.
    pub open_zones: u32,
    /// Absent: no limit.
    pub max_open_zones: Option<u32>,
    /// Bytes below write pointers.
    pub written_bytes: u64,
    /// Commands outstanding at the drive.
    pub outstanding: u64,
    /// Commands that succeeded since the server started, by kind.
    pub commands: Vec<CommandSnapshot>,
    /// Commands that failed since the server started, by status.
    pub errors: Vec<ErrorSnapshot>,
    /// Media errors since the server started.
    pub media_errors: u64,
    /// Space on the file system of an image; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceSnapshot>,
    /// Over the life of the drive; absent for a drive in memory.
    pub life: Option<LifeSnapshot>,
    /// Its storage elements; absent for fixed zones, and for a drive in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<ElementsSnapshot>,
    /// The state of a redundant volume; absent for a drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeReport>,
    /// The pool that it is a namespace of; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolPartSnapshot>,
    /// Its I/O scheduler; absent for a drive without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSnapshot>,
    /// Its zones, or those of each local member of a volume, if they were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zone_maps: Vec<ZoneMapSnapshot>,
}

/// Space on the file system of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceSnapshot {
    /// The file system is full, or a quota exhausted: writes fail with Capacity Exceeded.
    pub is_full: bool,
    /// File operations that failed with no space left since the server started.
    pub failures: u64,
}

/// Zones in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSnapshot {
    /// The state's name.
    pub state: String,
    /// Zones in it.
    pub zones: u32,
}

/// Commands of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSnapshot {
    /// `read`, `write`, `append`, ...
    pub kind: String,
    /// How many.
    pub count: u64,
    /// Bytes they transferred.
    pub bytes: u64,
    /// The sum of their latencies.
    pub latency_sum_ns: u64,
    /// Commands in each bucket of [`crate::LATENCY_BOUNDS_NS`], and those above.
    pub latency_counts: Vec<u64>,
    /// Upper bound of the bucket of the median; absent above all buckets.
    pub p50_ns: Option<u64>,
    /// Upper bound of the bucket of the 99th percentile.
    pub p99_ns: Option<u64>,
}

/// Commands with one status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorSnapshot {
    /// Its name.
    pub status: String,
    /// How many.
    pub count: u64,
}

/// Counters of a drive's life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LifeSnapshot {
    /// Bytes written by hosts.
    pub host_write_bytes: u64,
    /// Bytes written by the drive itself.
    pub device_write_bytes: u64,
    /// Bytes read by hosts.
    pub host_read_bytes: u64,
    /// Resets of zones that were not empty.
    pub zone_resets: u64,
    /// Device-level write amplification.
    pub dlwa: f64,
    /// Fewest erases of a zone, or of a storage element if zones are built of these.
    pub erases_min: u64,
    /// Most erases.
    pub erases_max: u64,
    /// Mean erases.
    pub erases_mean: f64,
}

/// Storage elements of a drive, and the policy that builds zones of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementsSnapshot {
    /// `block`, `superblock`, `vchunk-N`, `hchunk-N`.
    pub policy: String,
    /// Elements of the drive.
    pub count: u64,
    /// Elements of a zone.
    pub per_zone: u32,
    /// Bytes of flash of one element.
    pub element_bytes: u64,
    /// Size of the mapping from zones to elements.
    pub mapping_bytes: u64,
    /// Erased, and not allocated.
    pub empty: u64,
    /// Allocated to a zone, not written yet.
    pub allocated: u64,
    /// With data or padding of a zone.
    pub written: u64,
    /// To be erased before reuse.
    pub invalid: u64,
    /// Of zones that went offline.
    pub retired: u64,
    /// Erases of all elements over the life of the drive.
    pub erases_total: u64,
}

impl LifeSnapshot {
    /// The counters of a drive.
    #[must_use]
    pub fn of(life: &LifeCounters) -> LifeSnapshot {
        LifeSnapshot {
            host_write_bytes: life.host_write_bytes,
            device_write_bytes: life.device_write_bytes,
            host_read_bytes: life.host_read_bytes,
            zone_resets: life.zone_resets,
            dlwa: life.dlwa(),
            erases_min: life.erases_min,
            erases_max: life.erases_max,
            erases_mean: life.erases_total as f64 / life.wear_units.max(1) as f64,
        }
    }
}

impl ElementsSnapshot {
    /// The elements of a drive with this life.
    #[must_use]
    pub fn of(facts: &AllocationFacts, life: Option<&LifeCounters>) -> ElementsSnapshot {
        ElementsSnapshot {
            policy: facts.policy.clone(),
            count: facts.elements,
            per_zone: facts.elements_per_zone,
            element_bytes: facts.element_bytes,
            mapping_bytes: facts.mapping_bytes,
            empty: facts.empty,
            allocated: facts.allocated,
            written: facts.written,
            invalid: facts.invalid,
            retired: facts.retired,
            erases_total: life.map_or(0, |life| life.erases_total),
        }
    }

    /// Names of states, and how many elements are in each.
    #[must_use]
    pub fn by_state(&self) -> [(&'static str, u64); 5] {
        [
            ("empty", self.empty),
            ("allocated", self.allocated),
            ("written", self.written),
            ("invalid", self.invalid),
            ("retired", self.retired),
        ]
    }
}
