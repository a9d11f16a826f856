//! Servers of drives: today NVMe/TCP.
//!
//! [`ServerPlan`] says what to serve (from `zonda.toml`, or built by a program); [`start`] opens the drives, takes the ports
//! and serves in a thread of its own; [`Running`] tells how it is, and stops it.
//!
//! ```text
//!   sockets.rs   connections: bytes up, bytes down          (ring)
//!       |  ^
//!   zonda_target   sessions, controllers, commands          (pure)
//!       v  |
//!   drives.rs    drives, and commands that wait for room    (devices)
//!
//!   server.rs    the loop that turns all three              control.rs, snapshot.rs, metrics.rs   what it tells
//! ```
//!
//! What is absent: the protocol, which is `zonda_nvme`'s and `zonda_target`'s, and the rules of zones, which are the drive's.
//! HTTP is the program's affair: [`metrics_text`] only makes the text.
#![forbid(unsafe_code)]

mod build;
mod config;
mod control;
mod drives;
mod events;
mod meter;
mod metrics;
mod report;
mod server;
pub mod snapshot;
mod sockets;
mod start;

use std::net::{Ipv4Addr, SocketAddr};

pub use config::*;
pub use control::Handle;
pub use meter::LATENCY_BOUNDS_NS;
pub use metrics::{METRICS_CONTENT_TYPE, metrics_text};
pub use start::{NamespaceInfo, Running, ServeError, ServerInfo, SubsystemInfo, start};

/// Where metrics and status are read if nobody says otherwise.
pub const HTTP_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9420);
