//! Servers of drives: NVMe/TCP, and NBD.
//!
//! [`ServerPlan`] is the configuration (from `zonda.toml`, or built by a program); [`start`] opens
//! the drives, listens, and serves in its own thread; [`Running`] reports its state, and stops it.
//!
//! ```text
//!   sockets.rs   connections: bytes received and sent       (ring)
//!       |  ^
//!   zonda_target   sessions, controllers, commands          (pure)
//!       v  |
//!   drives.rs    drives; served.rs: queued commands         (devices)
//!       ^  |
//!   nbd/         exports of conventional ones over NBD      (nbd, on sockets of its own)
//!
//!   server.rs    the event loop                             control.rs, snapshot.rs, metrics.rs   its state
//!   memory.rs    the memory budget of connections
//! ```
//!
//! What is absent: the protocols, which are in `zonda_nvme`, `zonda_target` and `zonda_nbd`, and
//! the rules of zones, which are in the drives. HTTP is left to the program: [`metrics_text`] only
//! renders the text.
#![forbid(unsafe_code)]

mod apply;
mod auth_pool;
mod backing;
mod build;
mod config;
mod control;
mod drives;
mod events;
mod groups;
mod hidden_zones;
mod log_limit;
mod memory;
mod meter;
mod metrics;
mod nbd;
mod pool_metrics;
mod pools;
mod process;
mod reload;
mod report;
mod resize;
mod served;
mod server;
pub mod snapshot;
mod sockets;
mod start;
mod tenants;
mod volumes;
mod zone_map;

use std::net::{Ipv4Addr, SocketAddr};

pub use config::*;
pub use control::Handle;
pub use memory::{MEMORY_DEFAULT_MAX, MEMORY_MIN};
pub use meter::LATENCY_BOUNDS_NS;
pub use metrics::{METRICS_CONTENT_TYPE, metrics_text};
pub use nbd::{NbdTls, NbdTlsError, NbdTlsPart};
pub use process::started_ticks;
pub use start::{
    ADDRESS_IN_USE_TIMEOUT, HostInfo, NamespaceInfo, NbdExportInfo, Running, ServeError, ServerInfo, SubsystemInfo,
    retry_address_in_use, start, start_with,
};

/// The default address for metrics and status.
pub const HTTP_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9420);
