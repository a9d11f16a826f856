//! The state of the NBD server.

use serde::{Deserialize, Serialize};

/// The NBD server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdSnapshot {
    /// The addresses for clients: `HOST:PORT` or `unix:PATH`.
    pub listen: Vec<String>,
    /// Connections of clients, handshakes included.
    pub connections: u64,
    /// Connections accepted since the start.
    pub connections_accepted: u64,
    /// Connections refused because there were too many.
    pub connections_refused: u64,
    /// Connections whose handshake timed out.
    pub handshake_timeouts: u64,
    /// Connections closed because the client received nothing.
    pub stalled: u64,
    /// Connections closed for a protocol error.
    pub protocol_errors: u64,
    /// Connections whose TLS failed, including those with a rejected certificate.
    #[serde(default)]
    pub tls_failures: u64,
    /// Bytes received from clients.
    pub received_bytes: u64,
    /// Bytes sent to clients.
    pub sent_bytes: u64,
    /// In the order of the configuration.
    pub exports: Vec<NbdExportSnapshot>,
}

/// An export and its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdExportSnapshot {
    /// The index of its `[[nbd]]` in the configuration, from 0: two may have exports of one name.
    pub table: u32,
    /// The export name.
    pub name: String,
    /// The subsystem's NVMe Qualified Name.
    pub nqn: String,
    /// The namespace in it.
    pub namespace: u32,
    /// Bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Clients connected to it.
    pub connections: u64,
    /// Requests completed since the server started, by kind; kinds without requests are omitted.
    pub requests: Vec<NbdRequestSnapshot>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NbdRequestSnapshot {
    /// `read`, `write`, `flush`, `trim`, `write zeroes`, `block status`.
    pub kind: String,
    /// Completed requests, including errors.
    pub count: u64,
    /// Requests that failed, in part or as a whole.
    pub errors: u64,
    /// Bytes covered by successful requests.
    pub bytes: u64,
}
