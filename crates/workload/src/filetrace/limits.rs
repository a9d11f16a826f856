//! Named bounds of file traces.

use zonda_files::limits::{FILES_MAX as STORE_FILES_MAX, NAME_BYTES_MAX, REQUESTS_MAX};

/// Threads of a trace; they are numbered from 0.
pub const THREADS_MAX: u32 = 1024;
/// Files that exist at one time.
pub const FILES_MAX: usize = 1 << 16;
/// Bytes of one append or read.
pub const OPERATION_BYTES_MAX: u64 = 1 << 30;
/// Nanoseconds of one think time: an hour.
pub const THINK_MAX_NS: u64 = 3600 * 1_000_000_000;
/// Bytes of a line.
pub const LINE_BYTES_MAX: usize = 1024;
/// Entries that a replay has read and not started: a thread whose next entry is behind this window
/// waits.
pub const LOOKAHEAD_ENTRIES: usize = 1 << 14;
/// Nanoseconds between two samples of the space that a store occupies.
pub const SAMPLE_NS: u64 = 1_000_000;
/// Minimum number of bytes that a preset writes: its smallest files then have several blocks.
pub const PRESET_BYTES_MIN: u64 = 4 << 20;

const _: () = assert!(FILES_MAX <= STORE_FILES_MAX, "a store has space for all files of a trace");
const _: () = assert!(THREADS_MAX as usize <= REQUESTS_MAX, "each thread has a request");
const _: () = assert!(LINE_BYTES_MAX > 2 * NAME_BYTES_MAX + 64, "a rename fits on a line");
const _: () = assert!(OPERATION_BYTES_MAX <= u32::MAX as u64, "a read has its length in 32 bits");
