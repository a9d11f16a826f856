//! Limits of advice.

/// Maximum number of values of parallelism: all dies, a half, a quarter, and that of the profile.
pub const PARALLELISMS_MAX: usize = 4;
/// Maximum number of values of segments.
pub const SEGMENTS_MAX: usize = 3;
/// Minimum number of zones of a candidate: two for the metadata of the store, and some to choose
/// from.
pub const ZONES_MIN: u64 = 8;
/// Minimum number of segments of the largest zone that is tried.
pub const ZONE_SEGMENTS_MAX: u64 = 64;
/// Assumed limit on active zones if the profile has none: that of the ZN540, the baseline of
/// SilentZNS.
pub const ACTIVE_ZONES_ASSUMED: u32 = 14;
/// Amount written by a preset, in multiples of one erase unit of each die.
pub const PRESET_SUPERBLOCKS: u64 = 4;
/// Maximum share of the drive written by a preset.
pub const PRESET_SHARE_OF_DRIVE: u64 = 3;
/// Maximum number of pages written by a preset, which limits the time of a run.
pub const PRESET_PAGES_MAX: u64 = 1 << 19;
/// Maximum size of a drive, in multiples of the amount written by a preset: the rest would never be
/// used.
pub const DRIVE_SHARES_OF_LOAD: u64 = 32;
/// Maximum size of a drive, in multiples of the maximum live data of a trace.
pub const DRIVE_SHARES_OF_TRACE: u64 = 8;
/// Minimum size of a drive, in multiples of the largest zone.
pub const DRIVE_ZONES_MIN: u64 = 32;

const _: () = assert!(ZONES_MIN >= zonda_files::limits::SEQUENTIAL_ZONES_MIN as u64, "a store fits");
const _: () = assert!(ACTIVE_ZONES_ASSUMED >= zonda_files::limits::RESERVE_FROM_ACTIVE_ZONES);
const _: () = assert!(DRIVE_ZONES_MIN >= ZONES_MIN && DRIVE_ZONES_MIN > ACTIVE_ZONES_ASSUMED as u64);
const _: () = assert!(DRIVE_SHARES_OF_LOAD > PRESET_SHARE_OF_DRIVE);
