//! NBD: exports of drives with conventional zones.
//!
//! ```text
//!   listen.rs    TCP ports and Unix sockets
//!   service.rs   clients: bytes received and sent, deadlines
//!       |  ^
//!   zonda_nbd    handshake, requests, replies             (pure)
//!       v  |
//!   work/        requests as commands, locked ranges      (pure)
//!       |  ^
//!   drives.rs    the server's, shared with NVMe/TCP
//! ```
//!
//! tls.rs holds the keys. What is absent: zones. Only namespaces whose zones are all conventional
//! are exported.

mod admission;
mod change;
mod counters;
mod eviction;
mod limits;
mod listen;
mod lock;
mod memory;
mod prepare;
mod service;
pub(crate) mod snapshot;
mod table;
mod tls;
mod work;

pub(crate) use change::{NbdChange, compare};
pub(crate) use limits::{CONNECTIONS_MAX, REPLY_RESERVE_BYTES};
pub(crate) use prepare::{listen, prepare};
pub(crate) use service::{End, Nbd};
pub(crate) use table::Candidate;
#[cfg(test)]
pub(crate) use table::Table;
pub use tls::{NbdTls, NbdTlsError, NbdTlsPart};
