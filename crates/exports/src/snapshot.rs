//! What a running server tells about itself: the source of metrics, `zonda status` and its JSON.

use serde::{Deserialize, Serialize};
use zonda_devices::{LifeCounters, VolumeReport};
use zonda_ssd::allocation::AllocationFacts;

pub use crate::nbd::snapshot::{NbdExportSnapshot, NbdRequestSnapshot, NbdSnapshot};

/// A server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of this layout; goes up when a field changes its meaning.
    pub format: u32,
    /// zonda's version.
    pub version: String,
    /// Since the server started, in nanoseconds.
    pub uptime_ns: u64,
    /// `io_uring` or `epoll`.
    pub backend: String,
    /// Where hosts connect.
    pub listen: Vec<String>,
    /// Connections of hosts, handshakes included.
    pub connections: u64,
    /// Since the start.
    pub traffic: Traffic,
    /// Memory for the data of all connections.
    #[serde(default)]
    pub memory: MemorySnapshot,
    /// In the order of the configuration.
    pub subsystems: Vec<SubsystemSnapshot>,
    /// The NBD server; absent where nothing is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<NbdSnapshot>,
}

/// Memory for the data of all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySnapshot {
    /// Bytes that there may be.
    pub budget_bytes: u64,
    /// Bytes that are in use, or promised to requests that have begun.
    pub used_bytes: u64,
    /// Requests that had to wait for memory since the server started.
    pub waits: u64,
}

/// What came and went since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections turned away: no room, a wrong name, a wrong secret.
    pub connections_refused: u64,
    /// Connections that a violation of the protocol ended.
    pub protocol_errors: u64,
    /// Hosts that failed to prove who they are.
    pub authentication_failures: u64,
    /// Bytes from hosts.
    pub received_bytes: u64,
    /// Bytes to hosts.
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
    /// Whether the host has proved who it is.
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
    /// Bytes that can be written to a zone.
    pub zone_capacity_bytes: u64,
    /// Zones in each state.
    pub zones_by_state: Vec<StateSnapshot>,
    /// Zones that hold an active resource, and how many may.
    pub active_zones: u32,
    /// Absent: no limit.
    pub max_active_zones: Option<u32>,
    /// Zones that hold an open resource, and how many may.
    pub open_zones: u32,
    /// Absent: no limit.
    pub max_open_zones: Option<u32>,
    /// Bytes below write pointers.
    pub written_bytes: u64,
    /// Commands in the drive now.
    pub outstanding: u64,
    /// Commands that succeeded since the server started, by kind.
    pub commands: Vec<CommandSnapshot>,
    /// Commands that failed since the server started, by status.
    pub errors: Vec<ErrorSnapshot>,
    /// Failures inside the drive since the server started.
    pub media_errors: u64,
    /// Room on the file system of an image; absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceSnapshot>,
    /// Over the life of the drive; absent for a drive in memory.
    pub life: Option<LifeSnapshot>,
    /// What its zones are built of; absent where they are fixed, and for a drive in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<ElementsSnapshot>,
    /// What a redundant volume tells of itself; absent for a drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeReport>,
}

/// Whether there is room for what is written to an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceSnapshot {
    /// The file system is full, or a quota used up: writes end with Capacity Exceeded.
    pub is_full: bool,
    /// File operations that failed for that since the server started.
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
    /// Bytes they moved.
    pub bytes: u64,
    /// All of their time.
    pub latency_sum_ns: u64,
    /// Commands in each class of [`crate::LATENCY_BOUNDS_NS`], and those above.
    pub latency_counts: Vec<u64>,
    /// Upper bound of the class of the median; absent above all classes.
    pub p50_ns: Option<u64>,
    /// Upper bound of the class of the 99th percentile.
    pub p99_ns: Option<u64>,
}

/// Commands with one status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorSnapshot {
    /// In words.
    pub status: String,
    /// How many.
    pub count: u64,
}

/// Counters of a drive's life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LifeSnapshot {
    /// Bytes that hosts wrote.
    pub host_write_bytes: u64,
    /// Bytes that the drive wrote of its own accord.
    pub device_write_bytes: u64,
    /// Bytes that hosts read.
    pub host_read_bytes: u64,
    /// Resets of zones that held something.
    pub zone_resets: u64,
    /// Device-level write amplification.
    pub dlwa: f64,
    /// Erases of the least worn zone, or storage element where zones are built of these.
    pub erases_min: u64,
    /// Erases of the most worn one.
    pub erases_max: u64,
    /// Erases of an average one.
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
    /// Flash of one element.
    pub element_bytes: u64,
    /// What the drive needs to remember which elements are whose.
    pub mapping_bytes: u64,
    /// Erased, and no zone's.
    pub empty: u64,
    /// A zone's, and nothing of it is on them yet.
    pub allocated: u64,
    /// With data or padding of a zone.
    pub written: u64,
    /// To be erased before they are used again.
    pub invalid: u64,
    /// Of zones that went offline.
    pub retired: u64,
    /// Erases of all elements over the life of the drive.
    pub erases_total: u64,
}

impl LifeSnapshot {
    /// What a drive has counted.
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
            erases_mean: life.erases_total as f64 / life.worn_units.max(1) as f64,
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
