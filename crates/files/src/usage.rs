//! Space and counters of a store.

use serde::Serialize;

/// Space and counters of a store. Bytes are those of data zones, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Bytes of existing files, on the media or in flight.
    pub live_bytes: u64,
    /// Bytes of deleted, replaced or moved data in zones that are not yet reset.
    pub dead_bytes: u64,
    /// Bytes written to zones that are not yet reset: live, dead, and the padding of the last
    /// blocks of synced data.
    pub written_bytes: u64,
    /// Data zones that are empty.
    pub zones_empty: u32,
    /// Data zones that hold an active resource of the drive.
    pub zones_active: u32,
    /// Data zones that were finished before they were full, and are not yet reset.
    pub zones_finished_early: u32,
    /// Zones finished since the mount.
    pub zone_finishes: u64,
    /// Data zones reset since the mount.
    pub zone_resets: u64,
    /// Bytes moved by migration since the mount, block padding included.
    pub migrated_bytes: u64,
    /// Zones assigned since the mount to a file whose lifetime does not match theirs.
    pub relaxed_matches: u64,
    /// Bytes written to metadata zones since the mount.
    pub metadata_bytes: u64,
}

impl Usage {
    /// Live and dead bytes for each live byte; 1.0 without live data.
    #[must_use]
    pub fn space_amplification(&self) -> f64 {
        if self.live_bytes == 0 {
            return 1.0;
        }
        (self.live_bytes + self.dead_bytes) as f64 / self.live_bytes as f64
    }
}
