//! Pools: one zoned drive divided among the namespaces of many tenants.
//!
//! ```text
//! directory.rs    pool.toml, which records where the drive is, and the lock
//! drive.rs        opens a pool, and hands out its namespaces
//! create.rs       creates pools
//! base.rs         what a pool is on: its drive, and a scheduler
//! shared.rs       a mounted pool on its drive, which the users of its namespaces share
//! namespace.rs    a namespace of an open pool as a drive of its own
//! manage.rs       namespaces are created, resized and deleted
//! reservations.rs the saved reservations of hosts
//! report.rs       the state of a pool
//! reconnect.rs    another connection to its drive, when that is lost
//! takeover.rs     takes a pool over from an owner that cannot be reached
//! restore.rs      the same for a pool whose directory is lost
//! zones.rs        the zones of its drive, for reports
//! look.rs         the state of a pool that is not in use, without writing
//! ```
//!
//! The rules of pools, and what they write on their drives, are in [`zonda_elastic`].

mod base;
mod create;
mod directory;
mod drive;
mod look;
mod manage;
mod namespace;
mod ownership;
mod reconnect;
#[cfg(test)]
mod reconnect_tests;
mod report;
mod reservations;
mod restore;
mod shared;
mod shares;
mod takeover;
mod zones;

pub use base::{PoolOpenOptions, SchedulerOfDrive};
pub use create::NewPool;
pub use directory::{POOL_FILE, is_pool};
pub use drive::PoolDrive;
pub use manage::{NamespaceSize, NewNamespace, PoolRequest, PoolRequestId};
pub use namespace::PoolNamespace;
pub use report::{PoolGroupCount, PoolNamespaceReport, PoolReport, ReclaimReport, ZonesInState};
pub use restore::LostPool;
pub use zones::PoolZone;
