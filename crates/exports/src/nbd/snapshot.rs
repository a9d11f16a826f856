//! What the NBD server tells about itself.

use serde::{Deserialize, Serialize};

/// The NBD server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdSnapshot {
    /// Where clients connect: `HOST:PORT` or `unix:PATH`.
    pub listen: Vec<String>,
    /// Connections of clients, handshakes included.
    pub connections: u64,
    /// Connections accepted since the start.
    pub connections_accepted: u64,
    /// Connections turned away, because there were too many.
    pub connections_refused: u64,
    /// Connections that did not come to an end with their handshake.
    pub handshake_timeouts: u64,
    /// Connections that were cut because their clients took nothing of what they were sent.
    pub stalled: u64,
    /// Connections that a violation of the protocol ended.
    pub protocol_errors: u64,
    /// Connections whose TLS failed, those of clients that are not believed included.
    #[serde(default)]
    pub tls_failures: u64,
    /// Bytes from clients.
    pub received_bytes: u64,
    /// Bytes to clients.
    pub sent_bytes: u64,
    /// In the order of the configuration.
    pub exports: Vec<NbdExportSnapshot>,
}

/// An export and what was asked of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdExportSnapshot {
    /// Where its `[[nbd]]` stands in the configuration, from 0: two may have exports of one name.
    pub table: u32,
    /// What clients ask for.
    pub name: String,
    /// The subsystem's NVMe Qualified Name.
    pub nqn: String,
    /// The namespace in it.
    pub namespace: u32,
    /// Bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Clients that have chosen it.
    pub connections: u64,
    /// Requests that have been answered since the server started, by kind; kinds that nobody asked for are left out.
    pub requests: Vec<NbdRequestSnapshot>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdRequestSnapshot {
    /// `read`, `write`, `flush`, `trim`, `write zeroes`, `block status`.
    pub kind: String,
    /// How many were answered, errors included.
    pub count: u64,
    /// How many of them with an error, in part or altogether.
    pub errors: u64,
    /// Bytes that those without an error were about.
    pub bytes: u64,
}
