//! Named bounds of advice.

/// Dies, halves and quarters of them, and what the profile has.
pub const PARALLELISMS_MAX: usize = 4;
/// Segments of zones that are tried.
pub const SEGMENTS_MAX: usize = 3;
/// Zones that a candidate has at least: two for the store's metadata, and some to choose from.
pub const ZONES_MIN: u64 = 8;
/// Segments of the largest zone that is tried, whatever the profile has.
pub const ZONE_SEGMENTS_MAX: u64 = 64;
/// Limit on active zones where the profile has none: that of the ZN540, on which SilentZNS models its baseline.
pub const ACTIVE_ZONES_ASSUMED: u32 = 14;
/// A preset writes so many times what all dies hold in one erase unit each.
pub const PRESET_SUPERBLOCKS: u64 = 4;
/// A preset writes at most this share of the drive.
pub const PRESET_SHARE_OF_DRIVE: u64 = 3;
/// A preset writes at most so many pages, which bounds the time of a run.
pub const PRESET_PAGES_MAX: u64 = 1 << 19;
/// A drive is cut to so many times what a preset writes: the rest would never be used.
pub const DRIVE_SHARES_OF_LOAD: u64 = 32;
/// A drive is cut to so many times the most that a trace has in files at one time.
pub const DRIVE_SHARES_OF_TRACE: u64 = 8;
/// A drive is not cut to less than so many of the largest zones.
pub const DRIVE_ZONES_MIN: u64 = 32;

const _: () = assert!(ZONES_MIN >= zonda_files::limits::SEQUENTIAL_ZONES_MIN as u64, "a store fits");
const _: () = assert!(ACTIVE_ZONES_ASSUMED >= zonda_files::limits::RESERVE_FROM_ACTIVE_ZONES);
const _: () = assert!(DRIVE_ZONES_MIN >= ZONES_MIN && DRIVE_ZONES_MIN > ACTIVE_ZONES_ASSUMED as u64);
const _: () = assert!(DRIVE_SHARES_OF_LOAD > PRESET_SHARE_OF_DRIVE);
