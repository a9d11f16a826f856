//! Named bounds of file stores.

/// Files of a store, at most; the size of a metadata zone usually says less.
pub const FILES_MAX: usize = 1 << 20;
/// Bytes of a snapshot of the metadata, which bound files and extents; half of a metadata zone where that is less.
pub const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// Requests that have not ended; more end with [`FileError::TooManyRequests`](crate::FileError::TooManyRequests).
pub const REQUESTS_MAX: usize = 1 << 16;
/// Writes of one file under way at once.
pub const FILE_WRITES_MAX: usize = 32;
/// Times that data are written anew, each time to another zone, before their file is given up.
pub const WRITE_ATTEMPTS_MAX: u8 = 4;
/// Zone descriptors that one command of a mount asks for.
pub const REPORT_ZONES_MAX: u32 = 1024;
/// Resets under way at once while a store is formatted.
pub const FORMAT_RESETS_MAX: usize = 32;
/// Sequential zones that a store needs: two for metadata, one for data, one to move them to.
pub const SEQUENTIAL_ZONES_MIN: u32 = 4;
/// Active zones that a store needs: one for metadata, one for data, one to move them to.
pub const ACTIVE_ZONES_MIN: u32 = 3;
/// Blocks of the smallest zone: a superblock, a snapshot, records.
pub const ZONE_CAPACITY_BLOCKS_MIN: u64 = 8;
/// Blocks of the largest zone: extents have 32 bits for them.
pub const ZONE_CAPACITY_BLOCKS_MAX: u64 = u32::MAX as u64;
/// Sequential zones from which on there are three metadata zones rather than two.
pub const THREE_LOG_ZONES_FROM: u32 = 16;
/// Active zones from which on one is kept in reserve for files of [`Lifetime::Short`](crate::Lifetime::Short).
pub const RESERVE_FROM_ACTIVE_ZONES: u32 = 4;

const _: () = assert!(SEQUENTIAL_ZONES_MIN < THREE_LOG_ZONES_FROM);
const _: () = assert!(ACTIVE_ZONES_MIN < RESERVE_FROM_ACTIVE_ZONES);
