//! Named bounds of file stores.

/// Maximum number of files of a store; the size of a metadata zone usually allows fewer.
pub const FILES_MAX: usize = 1 << 20;
/// Maximum size of a snapshot of the metadata, which bounds files and extents; half of a metadata
/// zone if that is less.
pub const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of a name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum number of outstanding requests; more end with
/// [`FileError::TooManyRequests`](crate::FileError::TooManyRequests).
pub const REQUESTS_MAX: usize = 1 << 16;
/// Maximum number of writes of one file in flight.
pub const FILE_WRITES_MAX: usize = 32;
/// Number of retries of a write, each to another zone, before the file fails.
pub const WRITE_ATTEMPTS_MAX: u8 = 4;
/// Zone descriptors that one command of a mount requests.
pub const REPORT_ZONES_MAX: u32 = 1024;
/// Maximum number of resets in flight while a store is formatted.
pub const FORMAT_RESETS_MAX: usize = 32;
/// Minimum number of sequential zones: two for metadata, one for data, one for migration.
pub const SEQUENTIAL_ZONES_MIN: u32 = 4;
/// Minimum number of active zones: one for metadata, one for data, one for migration.
pub const ACTIVE_ZONES_MIN: u32 = 3;
/// Minimum zone capacity in blocks: a superblock, a snapshot, records.
pub const ZONE_CAPACITY_BLOCKS_MIN: u64 = 8;
/// Maximum zone capacity in blocks: extents have 32 bits for them.
pub const ZONE_CAPACITY_BLOCKS_MAX: u64 = u32::MAX as u64;
/// Sequential zones from which on a store has three metadata zones rather than two.
pub const THREE_LOG_ZONES_FROM: u32 = 16;
/// Active zones from which on one is reserved for files of
/// [`Lifetime::Short`](crate::Lifetime::Short).
pub const RESERVE_FROM_ACTIVE_ZONES: u32 = 4;

const _: () = assert!(SEQUENTIAL_ZONES_MIN < THREE_LOG_ZONES_FROM);
const _: () = assert!(ACTIVE_ZONES_MIN < RESERVE_FROM_ACTIVE_ZONES);
