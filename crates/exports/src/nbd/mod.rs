//! NBD: exports of drives of conventional zones.
//!
//! ```text
//!   listen.rs    TCP ports and the files of Unix sockets
//!   service.rs   clients: bytes up, bytes down, deadlines
//!       |  ^
//!   zonda_nbd    handshake, requests, replies             (pure)
//!       v  |
//!   work/        requests as commands, turns at a block   (pure)
//!       |  ^
//!   drives.rs    the server's, shared with NVMe/TCP
//! ```
//!
//! tls.rs has the keys. What is absent: zones. Only namespaces whose zones are all conventional are exported.

mod admission;
mod counters;
mod crowd;
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

pub(crate) use limits::{CONNECTIONS_MAX, REPLY_ROOM_BYTES};
pub(crate) use prepare::prepare;
pub(crate) use service::{End, Nbd};
pub(crate) use table::Candidate;
pub use tls::{NbdTls, NbdTlsError, NbdTlsPart};
