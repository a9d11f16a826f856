//! The results of a run of a store, in the form that is also written as JSON.

use std::fmt;

use serde::Serialize;
use zonda_files::Usage;
use zonda_zoned::Duration;

use super::spec::StoreWorkload;
use crate::LatencySummary;
use crate::limits::VIRTUAL_TIME_MAX_NS;

/// The results of a run. They cover the counted operations of all repetitions together: from the
/// end of preloading to the last operation, and for counters until the tree is quiescent. Times are
/// in virtual time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreResult {
    /// The workload.
    pub workload: StoreWorkload,
    /// The seed, which reproduces this run.
    pub seed: u64,
    /// Why the run ended.
    pub ended_by: StoreEnd,
    /// Completed repetitions.
    pub rounds: u32,
    /// Completed operations, without those of a client that writes while others are counted.
    pub operations: u64,
    /// The time in which operations were counted.
    pub elapsed_ns: u64,
    /// From the start of the run, including formatting and preloading, until everything was idle.
    pub drained_ns: u64,
    /// Operations in a second.
    pub throughput: f64,
    /// One entry for each kind of operation that occurred.
    pub kinds: Vec<OperationResult>,
    /// Counters of the store.
    pub counters: StoreCounters,
    /// Bytes written to the drive, including the file store's metadata.
    pub host_write_bytes: u64,
    /// Bytes read from the drive.
    pub host_read_bytes: u64,
    /// `host_write_bytes` for each byte of the user; 0 if there was none.
    pub write_amplification: f64,
    /// Bytes of flushes and compactions for each byte of the user, as stores report it; 0 if there
    /// was none.
    pub tree_write_amplification: f64,
    /// (Live + dead) / live bytes of the file store, mean over the time in which operations were
    /// counted.
    pub space_amplification_mean: f64,
    /// The tree at the end, from level 0 on.
    pub levels: Vec<LevelResult>,
    /// Bytes of all files of the store at the end.
    pub file_bytes: u64,
    /// The file store at the end; its counters are of the whole run.
    pub files: Usage,
    /// The time series, if requested: while operations were counted.
    pub samples: Vec<StoreSample>,
    /// Whether the series ends early, at [`crate::limits::SAMPLES_MAX`] samples.
    pub samples_are_cut: bool,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// A new key or a new value.
    Put,
    /// A tombstone.
    Delete,
    /// One key.
    Get,
    /// Keys in their order.
    Scan,
    /// A get and a put of the same key.
    ReadModifyWrite,
}

/// Results of one kind of operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationResult {
    /// The kind.
    pub kind: OperationKind,
    /// The number of completed operations.
    pub operations: u64,
    /// Keys that gets (also of read-modify-writes) and scans returned.
    pub found: u64,
    /// Gets that found no key.
    pub not_found: u64,
    /// From the start of the operation to its end, including the client's CPU time.
    pub latency: LatencySummary,
}

/// Counters of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreCounters {
    /// Bytes of keys and values that clients wrote, and of keys that they deleted.
    pub user_bytes: u64,
    /// Bytes of records in logs.
    pub wal_bytes: u64,
    /// Bytes of tables that flushes wrote.
    pub flush_bytes: u64,
    /// Bytes of tables that compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes of tables that compactions wrote.
    pub compaction_write_bytes: u64,
    /// Bytes of filters and indices read when tables were opened.
    pub table_open_bytes: u64,
    /// Bytes of data blocks that gets and scans read.
    pub block_read_bytes: u64,
    /// Bytes of records in the manifest.
    pub manifest_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Compactions that merged.
    pub compactions: u64,
    /// Compactions that moved a table unchanged.
    pub moves: u64,
    /// Entries merged, including flushes.
    pub entries_merged: u64,
    /// Filter lookups.
    pub bloom_checks: u64,
    /// Filter lookups with a negative result.
    pub bloom_useful: u64,
    /// False positives of filters.
    pub bloom_false_positives: u64,
    /// Cache hits of data blocks.
    pub cache_hits: u64,
    /// Cache misses of data blocks.
    pub cache_misses: u64,
    /// Times that writes stopped.
    pub stops: u64,
    /// Time in which a write waited because writes had stopped.
    pub stopped_ns: u64,
    /// Writes that waited because writes were slowed down.
    pub slowed_writes: u64,
    /// Time in which a write waited for that.
    pub slowed_ns: u64,
}

/// One level of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LevelResult {
    /// Tables.
    pub tables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Versions of keys, tombstones included.
    pub entries: u64,
}

/// The store, the file store and the drive at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StoreSample {
    /// Since the start of the run.
    pub at_ns: u64,
    /// Operations counted so far.
    pub operations: u64,
    /// Bytes of existing files.
    pub live_bytes: u64,
    /// Bytes of deleted files in zones that are not yet reset.
    pub dead_bytes: u64,
    /// (Live + dead) / live.
    pub space_amplification: f64,
    /// Data zones that are empty.
    pub zones_empty: u32,
    /// Data zones that are active.
    pub zones_active: u32,
    /// Zones finished so far.
    pub zone_finishes: u64,
    /// Data zones reset so far.
    pub zone_resets: u64,
    /// Bytes moved by migration so far.
    pub migrated_bytes: u64,
    /// Bytes written to the drive so far, since the start of the run.
    pub host_write_bytes: u64,
    /// Bytes read from the drive so far.
    pub host_read_bytes: u64,
    /// Tables of level 0.
    pub level0_tables: u64,
}

/// The progress of a run, reported at each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreProgress {
    /// Since the start of the run.
    pub elapsed: Duration,
    /// Repetitions before this one.
    pub round: u32,
    /// All of them.
    pub rounds: u32,
    /// Whether operations are counted now: not while it preloads or quiesces.
    pub is_counting: bool,
    /// The completed share of the run's operations, including preloading, 0.0 to 1.0.
    pub fraction: f64,
    /// The current sample.
    pub sample: StoreSample,
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StoreEnd {
    /// All operations were done.
    Operations,
    /// The file store was out of space.
    NoSpace,
    /// The file store failed a request.
    Files {
        /// The error message.
        error: String,
    },
    /// No request was in flight, and a file still waited.
    Stuck,
    /// The run had taken [`crate::limits::VIRTUAL_TIME_MAX_NS`].
    ClockEnd,
}

impl StoreResult {
    /// Whether the run ended before its operations were done.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.ended_by != StoreEnd::Operations
    }

    /// The results of one kind of operation, if it occurred.
    #[must_use]
    pub fn kind(&self, kind: OperationKind) -> Option<&OperationResult> {
        self.kinds.iter().find(|figures| figures.kind == kind)
    }
}

impl OperationKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [OperationKind; 5] = [
        OperationKind::Put,
        OperationKind::Delete,
        OperationKind::Get,
        OperationKind::Scan,
        OperationKind::ReadModifyWrite,
    ];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Put => "put",
            OperationKind::Delete => "delete",
            OperationKind::Get => "get",
            OperationKind::Scan => "scan",
            OperationKind::ReadModifyWrite => "read-modify-write",
        }
    }
}

impl StoreCounters {
    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &StoreCounters) -> StoreCounters {
        StoreCounters {
            user_bytes: self.user_bytes + other.user_bytes,
            wal_bytes: self.wal_bytes + other.wal_bytes,
            flush_bytes: self.flush_bytes + other.flush_bytes,
            compaction_read_bytes: self.compaction_read_bytes + other.compaction_read_bytes,
            compaction_write_bytes: self.compaction_write_bytes + other.compaction_write_bytes,
            table_open_bytes: self.table_open_bytes + other.table_open_bytes,
            block_read_bytes: self.block_read_bytes + other.block_read_bytes,
            manifest_bytes: self.manifest_bytes + other.manifest_bytes,
            flushes: self.flushes + other.flushes,
            compactions: self.compactions + other.compactions,
            moves: self.moves + other.moves,
            entries_merged: self.entries_merged + other.entries_merged,
            bloom_checks: self.bloom_checks + other.bloom_checks,
            bloom_useful: self.bloom_useful + other.bloom_useful,
            bloom_false_positives: self.bloom_false_positives + other.bloom_false_positives,
            cache_hits: self.cache_hits + other.cache_hits,
            cache_misses: self.cache_misses + other.cache_misses,
            stops: self.stops + other.stops,
            stopped_ns: self.stopped_ns + other.stopped_ns,
            slowed_writes: self.slowed_writes + other.slowed_writes,
            slowed_ns: self.slowed_ns + other.slowed_ns,
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

// The text below contains this number.
const _: () = assert!(VIRTUAL_TIME_MAX_NS == 100 * 365 * 24 * 3600 * 1_000_000_000);

impl fmt::Display for StoreEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreEnd::Operations => f.pad("all operations completed"),
            StoreEnd::NoSpace => f.pad("no space left in any zone: use a larger drive, fewer operations, or migration"),
            StoreEnd::Files { error } => f.pad(&format!("the file store failed: {error}")),
            StoreEnd::Stuck => f.pad("a file waited for a zone that no other file releases: reduce background_jobs"),
            StoreEnd::ClockEnd => f.pad("virtual time ends after 100 years"),
        }
    }
}
