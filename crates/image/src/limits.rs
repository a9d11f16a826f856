//! Named bounds of images.

/// Maximum number of outstanding commands; more are refused with `QueueFull`.
pub const COMMANDS_MAX: usize = 4096;
/// The unit in which files reach the media, and the largest block that is overwritten without being
/// journaled.
pub const PAGE_BYTES: u64 = 4096;
/// Default size of the journal in bytes.
pub const JOURNAL_BYTES_DEFAULT: u64 = 4 << 20;
/// Maximum size of the journal in bytes: a recovery reads it into memory.
pub const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// Maximum size of saved reservations in bytes: they are in the first page of a checkpoint, behind
/// its header.
pub const RESERVATIONS_BYTES_MAX: usize = 4000;
/// Maximum number of blocks of zeros whose tags one operation writes.
pub const ZERO_CHUNK_BLOCKS: u64 = 65_536;
/// Maximum number of findings that a check lists.
pub const FINDINGS_MAX: usize = 1000;
/// Maximum number of runs of unreadable blocks that a repair lists.
pub const UNREADABLE_RANGES_MAX: usize = 1000;

const _: () = assert!(JOURNAL_BYTES_DEFAULT <= JOURNAL_BYTES_MAX);
