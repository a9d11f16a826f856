//! [`EznsConfig`]: the parameters.

use zonda_zoned::{Duration, Geometry, TenantId};

use crate::limits::EZNS_ACTIVE_ZONES;

/// The parameters of [`Ezns`](super::Ezns). Sources: Section 4.5 of the paper and its Algorithm 1;
/// the *prototype* is its public implementation, which is followed where the paper is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EznsConfig {
    /// The mean latency of reads above which their stream is congested: 500 us (line 6).
    pub read_latency_threshold: Duration,
    /// The minimum window of a stream, in commands for each zone: 1. The algorithm has one command for
    /// the whole stream (line 8), and its text a minimum that is large enough for random reads
    /// (Section 4.5.1). With less than one for each zone the parts of one read wait for each other, and
    /// one slow die keeps the others idle.
    pub window_min: u32,
    /// The maximum window of a stream, in commands for each zone: 4 (line 10). It begins with 1.
    pub window_max: u32,
    /// Reads with a mean below the threshold, for each command of the window, after which it grows by 1: 8 (the
    /// inverse of α in line 10; prototype).
    pub window_increase: u32,
    /// Writes of a stream that may be in flight, for each zone: 1. Writes to a zone are sequential and
    /// synchronous (Section 4.5.1), so that the latency of a write is the time in which its zone admits
    /// its blocks, however many writes wait.
    pub writes_in_flight: u32,
    /// Tokens that a stream can collect, in bytes for each zone: 128 KiB (prototype).
    pub token_capacity_bytes: u64,
    /// How often streams with a waiting write receive tokens: 1 ms (line 25).
    pub token_period: Duration,
    /// The period of which the write latency is averaged: 10 ms (line 19).
    pub monitor_period: Duration,
    /// The time in which a zone admits a block of 4 KiB, before a write has been measured: 100 us
    /// (prototype).
    pub block_latency: Duration,
    /// The number of zones of the paper's drive for which a zone of this one counts. A zone that is
    /// itself striped over many dies deserves more than one on a die, which the paper assumes. `None`:
    /// as many as make all zones that can be active as wide as the paper's 256
    /// ([`scaled_to`](EznsConfig::scaled_to)).
    pub zone_width: Option<u8>,
    /// While requests in the foreground are in progress, one in the background is released in each
    /// period of this length: 10 ms (assumed: the paper has no classes).
    pub background_period: Duration,
    /// The shares of tenants: 1 for those that are not listed. The last entry of a tenant applies.
    pub weights: Vec<(TenantId, u32)>,
}

impl Default for EznsConfig {
    fn default() -> EznsConfig {
        EznsConfig {
            read_latency_threshold: Duration::from_micros(500),
            window_min: 1,
            window_max: 4,
            window_increase: 8,
            writes_in_flight: 1,
            token_capacity_bytes: 128 * 1024,
            token_period: Duration::from_millis(1),
            monitor_period: Duration::from_millis(10),
            block_latency: Duration::from_micros(100),
            zone_width: None,
            background_period: Duration::from_millis(10),
            weights: Vec::new(),
        }
    }
}

impl EznsConfig {
    /// The same for a drive, if `zone_width` is not given: 1 for one with 256 active zones or no limit,
    /// 18 for one with 14.
    #[must_use]
    pub fn scaled_to(&self, drive: &Geometry) -> EznsConfig {
        let active = drive.max_active_zones.unwrap_or(EZNS_ACTIVE_ZONES).max(1);
        let width = u8::try_from(EZNS_ACTIVE_ZONES / active).unwrap_or(u8::MAX).max(1);
        EznsConfig { zone_width: self.zone_width.or(Some(width)), ..self.clone() }
    }

    /// The width of a stream of so many zones of the drive; 0 is a zone that belongs to no stream.
    pub(super) fn width_of(&self, zones: u8) -> u32 {
        u32::from(zones.max(1)) * u32::from(self.zone_width.unwrap_or(1).max(1))
    }

    /// The minimum window of a stream that is striped over `width` zones.
    pub(super) fn window_min(&self, width: u32) -> u32 {
        self.window_min.saturating_mul(width).clamp(1, self.window_max(width))
    }

    /// The maximum window of a stream that is striped over `width` zones.
    pub(super) fn window_max(&self, width: u32) -> u32 {
        self.window_max.saturating_mul(width).max(1)
    }

    /// The most writes in flight of a stream that is striped over `width` zones.
    pub(super) fn writes_max(&self, width: u32) -> u32 {
        self.writes_in_flight.saturating_mul(width).max(1)
    }
}
