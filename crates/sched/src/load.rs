//! What is in progress in a scheduler: [`TenantLoad`] by tenants, [`GroupLoad`] by conflict groups.

use zonda_zoned::TenantId;

use crate::ConflictGroup;

/// The requests of a conflict group at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLoad {
    /// The group; absent for requests whose group is unknown.
    pub group: Option<ConflictGroup>,
    /// Requests that wait.
    pub waiting: u32,
    /// Requests that were released and have not completed.
    pub in_flight: u32,
}

/// What a scheduler has found about its table of conflict groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableReport {
    /// The number of groups.
    pub groups: u32,
    /// Whether requests are ordered by it.
    pub is_used: bool,
    /// How often the latencies of reads contradicted it, so that the scheduler stopped using it.
    pub rejected: u64,
    /// How often they confirmed it after that, so that it is used again.
    pub restored: u64,
}

/// Streams of a tenant with requests in progress, and what the scheduler grants them together. The
/// figures of idle streams are left out: they show the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLoad {
    /// The tenant.
    pub tenant: TenantId,
    /// Streams with requests that wait or are in flight.
    pub streams: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Reads in flight.
    pub reads_in_flight: u32,
    /// Reads that may be in flight: the sum of the windows of the streams.
    pub read_window: u32,
    /// Writes in flight.
    pub writes_in_flight: u32,
    /// Write tokens after the last refill, in bytes; negative after writes larger than a full bucket.
    pub write_tokens_bytes: i64,
}

impl TenantLoad {
    /// A tenant without streams.
    pub(crate) fn none(tenant: TenantId) -> TenantLoad {
        TenantLoad {
            tenant,
            streams: 0,
            waiting: 0,
            reads_in_flight: 0,
            read_window: 0,
            writes_in_flight: 0,
            write_tokens_bytes: 0,
        }
    }
}
