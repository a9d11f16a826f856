//! Counters of a target.

/// Counters of a target since its start, and gauges of its current state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Current connections.
    pub connections: usize,
    /// Of these, without a connected and authenticated queue.
    pub half_open: usize,
    /// Current controllers.
    pub controllers: usize,
    /// Commands in flight at devices.
    pub commands_at_devices: usize,
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Connections refused because of a limit.
    pub connections_refused: u64,
    /// Connects refused, for any reason.
    pub connects_refused: u64,
    /// Connections whose handshake timed out.
    pub handshake_timeouts: u64,
    /// Controllers created.
    pub controllers_created: u64,
    /// Controllers whose keep alive timer expired.
    pub keep_alive_expired: u64,
    /// Failed authentication exchanges.
    pub authentication_failures: u64,
    /// Commands received on connected queues.
    pub commands: u64,
    /// Commands that completed with an error.
    pub errors: u64,
    /// Commands whose data digest was wrong.
    pub data_digest_errors: u64,
    /// Connections terminated because of a protocol error.
    pub protocol_errors: u64,
    /// Bytes of data received in H2CData PDUs.
    pub bytes_received: u64,
    /// Bytes handed out to be sent.
    pub bytes_sent: u64,
}

/// Counters of one namespace since the start of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceStatistics {
    /// Reads and compares that succeeded.
    pub reads: u64,
    /// Bytes that they transferred, without metadata.
    pub read_bytes: u64,
    /// Writes and appends that succeeded.
    pub writes: u64,
    /// Bytes that they transferred, without metadata.
    pub written_bytes: u64,
    /// Other I/O commands that succeeded.
    pub others: u64,
    /// I/O commands that failed at the device.
    pub errors: u64,
    /// Of these, those the medium caused (status code type 2).
    pub media_errors: u64,
}

impl NamespaceStatistics {
    /// Adds the counters of another namespace.
    pub(crate) fn add(&mut self, other: &NamespaceStatistics) {
        let NamespaceStatistics { reads, read_bytes, writes, written_bytes, others, errors, media_errors } = other;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.writes += writes;
        self.written_bytes += written_bytes;
        self.others += others;
        self.errors += errors;
        self.media_errors += media_errors;
    }
}
