//! What has happened, in numbers.

/// Counts of a target since its start, and how much there is of what now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections now.
    pub connections: usize,
    /// Of these, without a connected and authenticated queue.
    pub half_open: usize,
    /// Controllers now.
    pub controllers: usize,
    /// Commands that devices have now.
    pub commands_at_devices: usize,
    /// Connections taken.
    pub connections_accepted: u64,
    /// Connections refused for lack of room.
    pub connections_refused: u64,
    /// Connects refused, for any reason.
    pub connects_refused: u64,
    /// Connections that did not finish their handshake in time.
    pub handshake_timeouts: u64,
    /// Controllers made.
    pub controllers_created: u64,
    /// Controllers whose keep alive timer expired.
    pub keep_alive_expired: u64,
    /// Exchanges in which a host did not prove to be who it says.
    pub authentication_failures: u64,
    /// Commands taken on connected queues.
    pub commands: u64,
    /// Commands that ended with an error.
    pub errors: u64,
    /// Commands whose data digest was wrong.
    pub data_digest_errors: u64,
    /// Connections ended for breaking the protocol.
    pub protocol_errors: u64,
    /// Bytes of data that came in H2CData PDUs.
    pub bytes_received: u64,
    /// Bytes handed out to be sent.
    pub bytes_sent: u64,
}

/// Counts of one namespace since the start of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceStatistics {
    /// Reads and compares that succeeded.
    pub reads: u64,
    /// Bytes they moved, without metadata.
    pub read_bytes: u64,
    /// Writes and appends that succeeded.
    pub writes: u64,
    /// Bytes they moved, without metadata.
    pub written_bytes: u64,
    /// Other I/O commands that succeeded.
    pub others: u64,
    /// I/O commands that failed at the device.
    pub errors: u64,
    /// Of these, those the medium caused (status code type 2).
    pub media_errors: u64,
}
