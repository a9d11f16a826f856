//! Named bounds of images.

/// Commands under way at once; more are refused with `QueueFull`.
pub const COMMANDS_MAX: usize = 4096;
/// The unit in which files reach the media, and the largest block that is overwritten without being logged.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the journal where nothing else is asked for.
pub const JOURNAL_BYTES_DEFAULT: u64 = 4 << 20;
/// Bytes of the longest journal: it is read into memory by a recovery.
pub const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// Bytes of what hosts have reserved: they lie in the first page of a checkpoint, behind its header.
pub const RESERVATIONS_BYTES_MAX: usize = 4000;
/// Blocks of zeros whose tags are written at once.
pub const ZERO_CHUNK_BLOCKS: u64 = 65_536;
/// Findings that a check lists.
pub const FINDINGS_MAX: usize = 1000;
/// Runs of unreadable blocks that a repair lists.
pub const UNREADABLE_RANGES_MAX: usize = 1000;

const _: () = assert!(JOURNAL_BYTES_DEFAULT <= JOURNAL_BYTES_MAX);
