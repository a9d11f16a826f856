//! Servers of drives: NVMe/TCP, and NBD.
//!
//! [`ServerPlan`] says what to serve (from `zonda.toml`, or built by a program); [`start`] opens the drives, takes the ports
//! and serves in a thread of its own; [`Running`] tells how it is, and stops it.
//!
//! ```text
//!   sockets.rs   connections: bytes up, bytes down          (ring)
//!       |  ^
//!   zonda_target   sessions, controllers, commands          (pure)
//!       v  |
//!   drives.rs    drives; served.rs: commands that wait      (devices)
//!       ^  |
//!   nbd/         exports of conventional ones over NBD      (nbd, on sockets of its own)
//!
//!   server.rs    the loop that turns them all, bit by bit   control.rs, snapshot.rs, metrics.rs   what it tells
//!   memory.rs    how much of it there is for connections
//! ```
//!
//! What is absent: the protocols, which are `zonda_nvme`'s, `zonda_target`'s and `zonda_nbd`'s, and the rules of zones, which
//! are the drive's. HTTP is the program's affair: [`metrics_text`] only makes the text.
#![forbid(unsafe_code)]

mod auth_pool;
mod build;
mod config;
mod control;
mod drives;
mod events;
mod memory;
mod meter;
mod metrics;
mod nbd;
mod report;
mod served;
mod server;
pub mod snapshot;
mod sockets;
mod start;
mod volumes;

use std::net::{Ipv4Addr, SocketAddr};

pub use config::*;
pub use control::Handle;
pub use memory::{MEMORY_DEFAULT_MAX, MEMORY_MIN};
pub use meter::LATENCY_BOUNDS_NS;
pub use metrics::{METRICS_CONTENT_TYPE, metrics_text};
pub use nbd::{NbdTls, NbdTlsError, NbdTlsPart};
pub use start::{
    ADDRESS_IN_USE_TIMEOUT, NamespaceInfo, NbdExportInfo, Running, ServeError, ServerInfo, SubsystemInfo,
    retry_address_in_use, start,
};

/// Where metrics and status are read if nobody says otherwise.
pub const HTTP_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9420);
