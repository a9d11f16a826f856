//! Elastic zones: namespaces of many tenants on one zoned drive, whose zones grow and shrink with
//! their work (eZNS, ACM Transactions on Storage 20(3), 2024).
//!
//! A [`Pool`] divides a drive among namespaces. To its host each is an ordinary zoned namespace; its
//! *v-zones* are striped over as many physical zones as the tenant may have active at the moment.
//! [`ElasticDevice`] is a pool and its drive as a device, so that everything that runs on a drive
//! runs on a pool.
//!
//! ```text
//!  v-zone    | group 0, width 8, stripes of 2 blocks | group 1, width 4 | group 2, width 4 |  16 physical zones
//!  zone      | reservation | owner | data ...                                      | slack |
//!  log       | checkpoint | records | records | ...          two copies, three zones each
//! ```
//!
//! What stands on the drive is in `docs/internals/pool-format.md`. Everything is recovered from it: a
//! group, a finish and a reset are recorded before they begin, and a v-zone ends at its first missing
//! block. What is acknowledged has no missing block before it.
//!
//! What is absent: clocks, threads, files, knowledge of dies and channels. The order of commands of
//! different v-zones is a scheduler's, which is a device below this one.
#![forbid(unsafe_code)]

mod balloon;
mod bug;
mod device;
mod format;
mod group;
pub mod limits;
mod log;
mod machine;
mod payload;
mod shape;
mod start;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod vzone;
mod zones;

pub use balloon::{Share, portion};
pub use device::ElasticDevice;
pub use format::{BlockError, MAGICS, PoolId, pool_of_log_block};
pub use machine::{Activity, AdminError, NamespaceConfig, Pool, PoolEvent, ReclaimProgress, ZoneRole};
pub use shape::{PoolOptions, Shape};
pub use start::{Goal, Start, StartError};
pub use zones::ZoneCounts;
