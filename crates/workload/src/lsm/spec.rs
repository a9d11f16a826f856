//! The table of a store, deserialized from TOML. [`StorePlan::new`](super::StorePlan::new) checks
//! it against a drive.

use std::fmt;

use serde::{Deserialize, Serialize};
use zonda_config::{ByteSize, Spanned, TimeSpan, unplaced};
use zonda_files::Lifetime;

use crate::Fraction;

/// A store and its load. Defaults are those of RocksDB 8, unless stated otherwise.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSpec {
    /// The workload of the clients.
    pub workload: Spanned<StoreWorkload>,
    /// The namespace of a pool that the store is on, by its name; required if there are several.
    pub namespace: Option<Spanned<String>>,
    /// The number of counted operations of all clients together. Default 1 million.
    pub operations: Option<Spanned<u64>>,
    /// Entries preloaded before counting begins; counting waits until the tree is quiescent.
    /// Default 0.
    pub preload: Option<Spanned<u64>>,
    /// Different keys, for the workloads of `db_bench`. Default: `preload`, or `operations` when
    /// nothing is preloaded.
    pub keys: Option<Spanned<u64>>,
    /// Repetitions on the same drive, each with a new store. Default 1.
    pub repeat: Option<Spanned<u32>>,
    /// Bytes of an entry, key and value. Default 512 B.
    pub entry_size: Option<Spanned<ByteSize>>,
    /// Bytes of a key. Default 16 B.
    pub key_size: Option<Spanned<ByteSize>>,
    /// Clients, each with one operation at a time; for readwhilewriting the readers. Default 1.
    pub clients: Option<Spanned<u32>>,
    /// CPU time of a read or a write. Default 2 us.
    pub operation_cpu: Option<Spanned<TimeSpan>>,
    /// CPU time of a flush or a compaction for each entry. Default 200 ns.
    pub merge_cpu: Option<Spanned<TimeSpan>>,
    /// Bytes of a memtable. Default 64 MiB.
    pub write_buffer_size: Option<Spanned<ByteSize>>,
    /// Memtables that may wait to be flushed before writes stop. Default 2.
    pub write_buffers_max: Option<Spanned<u32>>,
    /// Tables of level 0 from which it is compacted. Default 4.
    pub level0_compaction_trigger: Option<Spanned<u32>>,
    /// Tables of level 0 from which writes are slowed down. Default 20.
    pub level0_slowdown: Option<Spanned<u32>>,
    /// Tables of level 0 from which writes stop. Default 36.
    pub level0_stop: Option<Spanned<u32>>,
    /// Bytes of level 1. Default 256 MiB.
    pub level1_size: Option<Spanned<ByteSize>>,
    /// The size ratio of consecutive levels. Default 10.
    pub level_multiplier: Option<Spanned<u64>>,
    /// Bytes of a table that a compaction writes. Default 64 MiB.
    pub target_file_size: Option<Spanned<ByteSize>>,
    /// Bytes of a data block. Default 4 KiB.
    pub block_size: Option<Spanned<ByteSize>>,
    /// Bits of a filter for each key; 0: no filters. Default 10 (RocksDB: none, unless configured).
    pub bloom_bits_per_key: Option<Spanned<u32>>,
    /// Bytes of the cache of data blocks. Default 32 MiB.
    pub block_cache: Option<Spanned<ByteSize>>,
    /// Concurrent flushes and compactions: one flush, and compactions for the rest, at least one.
    /// Default 2.
    pub background_jobs: Option<Spanned<u32>>,
    /// Whether a write waits until the log is on the media. Default false.
    pub wal_sync: Option<Spanned<bool>>,
    /// Bytes that a compaction reads of an input at a time. Default 2 MiB.
    pub compaction_readahead: Option<Spanned<ByteSize>>,
    /// Share of its capacity from which a zone may be finished to free an active resource, 0.01 to
    /// 1.0. Default: that of [`FilesConfig`](zonda_files::FilesConfig).
    pub finish_threshold: Option<Spanned<Fraction>>,
    /// When live data are migrated to empty zones. Default: never.
    pub migration: Option<Spanned<MigrationSpec>>,
    /// Bytes of a write to the drive. Default 256 KiB, or the largest transfer of the drive if that
    /// is less.
    pub write_unit: Option<Spanned<ByteSize>>,
    /// The expected lifetimes of files. Default: as in RocksDB.
    pub lifetimes: Option<LifetimesSpec>,
}

/// The workload of the clients. Keys are uniformly distributed unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreWorkload {
    /// KVBench-II: 50 % puts of new keys, 25 % puts, 10 % deletes and 15 % gets of existing keys,
    /// in random order.
    KvbenchIi,
    /// `db_bench`: puts of random keys.
    Fillrandom,
    /// `db_bench`: the same in a preloaded store.
    Overwrite,
    /// `db_bench`: gets of random keys.
    Readrandom,
    /// `db_bench`: gets of random keys, which are counted, while one more client puts random keys.
    Readwhilewriting,
    /// YCSB A: half gets, half puts, zipfian.
    YcsbA,
    /// YCSB B: 95 % gets, 5 % puts, zipfian.
    YcsbB,
    /// YCSB C: gets, zipfian.
    YcsbC,
    /// YCSB D: 95 % gets of the latest keys, 5 % puts of new keys.
    YcsbD,
    /// YCSB E: 95 % scans of up to 100 keys, 5 % puts of new keys, zipfian.
    YcsbE,
    /// YCSB F: half gets, half read-modify-writes, zipfian.
    YcsbF,
}

/// When live data are migrated to empty zones.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationSpec {
    /// Below this share of empty zones.
    pub start_empty_zones: Fraction,
    /// From zones with at least this share of garbage.
    pub garbage: Fraction,
}

/// The expected lifetimes of files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LifetimesSpec {
    /// Write-ahead logs.
    pub wal: LifetimeWord,
    /// The manifest.
    pub manifest: LifetimeWord,
    /// Tables of level 0, 1 and so on; the last lifetime applies to all further levels.
    pub levels: Spanned<Vec<LifetimeWord>>,
}

/// The name of a write lifetime hint in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifetimeWord {
    /// [`Lifetime::NotSet`].
    NotSet,
    /// [`Lifetime::None`].
    None,
    /// [`Lifetime::Short`].
    Short,
    /// [`Lifetime::Medium`].
    Medium,
    /// [`Lifetime::Long`].
    Long,
    /// [`Lifetime::Extreme`].
    Extreme,
}

impl StoreSpec {
    /// A store with defaults for everything except the workload.
    #[must_use]
    pub fn new(workload: StoreWorkload) -> StoreSpec {
        StoreSpec {
            workload: unplaced(workload),
            namespace: None,
            operations: None,
            preload: None,
            keys: None,
            repeat: None,
            entry_size: None,
            key_size: None,
            clients: None,
            operation_cpu: None,
            merge_cpu: None,
            write_buffer_size: None,
            write_buffers_max: None,
            level0_compaction_trigger: None,
            level0_slowdown: None,
            level0_stop: None,
            level1_size: None,
            level_multiplier: None,
            target_file_size: None,
            block_size: None,
            bloom_bits_per_key: None,
            block_cache: None,
            background_jobs: None,
            wal_sync: None,
            compaction_readahead: None,
            finish_threshold: None,
            migration: None,
            write_unit: None,
            lifetimes: None,
        }
    }
}

impl StoreWorkload {
    /// All of them, in the order of their declaration.
    pub const ALL: [StoreWorkload; 11] = [
        StoreWorkload::KvbenchIi,
        StoreWorkload::Fillrandom,
        StoreWorkload::Overwrite,
        StoreWorkload::Readrandom,
        StoreWorkload::Readwhilewriting,
        StoreWorkload::YcsbA,
        StoreWorkload::YcsbB,
        StoreWorkload::YcsbC,
        StoreWorkload::YcsbD,
        StoreWorkload::YcsbE,
        StoreWorkload::YcsbF,
    ];

    /// The name in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StoreWorkload::KvbenchIi => "kvbench-ii",
            StoreWorkload::Fillrandom => "fillrandom",
            StoreWorkload::Overwrite => "overwrite",
            StoreWorkload::Readrandom => "readrandom",
            StoreWorkload::Readwhilewriting => "readwhilewriting",
            StoreWorkload::YcsbA => "ycsb-a",
            StoreWorkload::YcsbB => "ycsb-b",
            StoreWorkload::YcsbC => "ycsb-c",
            StoreWorkload::YcsbD => "ycsb-d",
            StoreWorkload::YcsbE => "ycsb-e",
            StoreWorkload::YcsbF => "ycsb-f",
        }
    }

    /// Whether it needs existing entries.
    pub(super) fn needs_preload(self) -> bool {
        !matches!(self, StoreWorkload::KvbenchIi | StoreWorkload::Fillrandom)
    }

    /// Whether it uses a fixed number of keys.
    pub(super) fn has_fixed_keys(self) -> bool {
        matches!(
            self,
            StoreWorkload::Fillrandom
                | StoreWorkload::Overwrite
                | StoreWorkload::Readrandom
                | StoreWorkload::Readwhilewriting
        )
    }
}

impl fmt::Display for StoreWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// RocksDB's rules (`ColumnFamilyData::CalculateSSTWriteHint`): logs short, levels 0 and 1 medium,
/// level 2 long, deeper levels extreme; the manifest has no hint.
impl Default for LifetimesSpec {
    fn default() -> LifetimesSpec {
        let levels = [LifetimeWord::Medium, LifetimeWord::Medium, LifetimeWord::Long, LifetimeWord::Extreme];
        LifetimesSpec { wal: LifetimeWord::Short, manifest: LifetimeWord::NotSet, levels: unplaced(levels.to_vec()) }
    }
}

impl From<LifetimeWord> for Lifetime {
    fn from(word: LifetimeWord) -> Lifetime {
        match word {
            LifetimeWord::NotSet => Lifetime::NotSet,
            LifetimeWord::None => Lifetime::None,
            LifetimeWord::Short => Lifetime::Short,
            LifetimeWord::Medium => Lifetime::Medium,
            LifetimeWord::Long => Lifetime::Long,
            LifetimeWord::Extreme => Lifetime::Extreme,
        }
    }
}
