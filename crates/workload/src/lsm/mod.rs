//! A leveled LSM key-value store as a load: its reads and writes on a drive, and their effects.
//!
//! The store has RocksDB's shape: memtables and logs, sorted tables on levels, filters, a block
//! cache, flushes and compactions in the background, write stalls. It runs in virtual time on a
//! file store ([`zonda_files`]) on any [`ZonedDevice`](zonda_zoned::ZonedDevice). Keys and the
//! order of their versions are in memory, 16 bytes an entry; values are not. Every byte that a real
//! store would read or write is read or written on the drive, by commands of the correct size and
//! address. `docs/internals/lsm.md` has the formats, the rules and the omissions.
//!
//! ```text
//!   client.rs   clients, each with one operation at a time     keys.rs   which keys, which operations
//!   run.rs      virtual time, from event to event              round.rs  preload, count, quiesce, repeat
//!   store/      operations in; effects and answers out         stall.rs  when writes wait
//!     memtable.rs  wal.rs  manifest.rs
//!     table.rs  bloom.rs  cache.rs  version.rs
//!     compaction.rs  what to compact    job.rs  a running flush or compaction    merge.rs  runs into one
//!   files.rs    effects on a file store                        meter.rs  bytes to and from the drive
//! ```
//!
//! ```
//! use zonda_config::unplaced;
//! use zonda_layers::Null;
//! use zonda_workload::lsm::{StorePlan, StoreRunner, StoreSpec, StoreWorkload};
//! use zonda_zoned::{Blocks, Geometry, Instant};
//!
//! let blocks = Blocks(4096);
//! let shape = Geometry { zone_size_blocks: blocks, zone_capacity_blocks: blocks, zone_count: 64, ..Geometry::tiny() };
//! let shape = Geometry { max_active_zones: Some(14), max_open_zones: Some(14), ..shape };
//! let spec = StoreSpec { operations: Some(unplaced(20_000)), ..StoreSpec::new(StoreWorkload::KvbenchIi) };
//! let plan = StorePlan::new(&unplaced(spec), &shape).expect("the drive is large enough for the store");
//!
//! let (result, _) = StoreRunner::new(&plan, 1).run(Null::new(shape), Instant::ZERO, None, &mut |_, _| {});
//! assert_eq!(result.operations, 20_000);
//! assert_eq!(result.file_bytes, result.files.live_bytes, "every live byte is of a log, a table or the manifest");
//! ```
//!
//! What is absent: values, recovery after a crash, transactions, snapshots, compression, column
//! families.

mod bloom;
mod cache;
mod check;
mod client;
mod compaction;
mod effect;
mod entry;
mod figures;
mod files;
mod job;
mod keys;
mod manifest;
mod memtable;
mod merge;
mod meter;
mod plan;
mod result;
mod round;
mod run;
mod runner;
mod spec;
mod stall;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod version;
mod wal;

pub use plan::StorePlan;
pub use result::{
    LevelResult, OperationKind, OperationResult, StoreCounters, StoreEnd, StoreProgress, StoreResult, StoreSample,
};
pub use runner::StoreRunner;
pub use spec::{LifetimeWord, LifetimesSpec, MigrationSpec, StoreSpec, StoreWorkload};
