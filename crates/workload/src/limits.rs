//! Named bounds of loads.

/// Jobs in one run.
pub const JOBS_MAX: usize = 256;
/// Copies of one job.
pub const WORKERS_MAX: u32 = 1024;
/// Requests that one worker keeps outstanding (NVMe: a queue has at most 65,535 entries in use).
pub const QUEUE_DEPTH_MAX: u32 = 65_535;
/// Commands into which one request is split.
pub const STRIPE_PARTS_MAX: u64 = 512;
/// Samples in a time series; a longer run continues without the series.
pub const SAMPLES_MAX: u64 = 100_000;
/// Samples in a time series times jobs: the series ends here if this limit is reached before
/// [`SAMPLES_MAX`].
pub const JOB_SAMPLES_MAX: u64 = 1_000_000;
/// Nanoseconds of any time in a job file: a year, so that no sum of them overflows.
pub const TIME_MAX_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;
/// Nanoseconds of virtual time that a run may take: 100 years. No request is issued from then on.
pub const VIRTUAL_TIME_MAX_NS: u64 = 100 * TIME_MAX_NS;
const _: () = assert!(2 * TIME_MAX_NS < VIRTUAL_TIME_MAX_NS && VIRTUAL_TIME_MAX_NS < u64::MAX / 4);
/// Consecutive errors of one kind of command of a job, without a success of that kind, after which
/// the job stops.
pub const CONSECUTIVE_ERRORS_MAX: u32 = 1000;
/// Timeout of a live run on a device that accepts no command and has none in flight, in
/// nanoseconds: 30 s.
pub const REFUSAL_MAX_NS: u64 = 30 * 1_000_000_000;
/// Blocks of conventional zones that a run can verify: 320 MiB of records.
pub const VERIFY_CONVENTIONAL_BLOCKS_MAX: u64 = 1 << 24;
/// Blocks of a zone that appends write out of the order of their submission, before it is no longer
/// verified.
pub const VERIFY_DISPLACED_MAX: usize = 1 << 16;
/// Commands that [`crate::prepare`] keeps outstanding.
pub const PREPARE_QUEUE_DEPTH: usize = 32;
/// Bytes of one write of [`crate::prepare`].
pub const PREPARE_WRITE_BYTES_MAX: u64 = 128 << 10;
/// Completions at one instant after which a job that ends only by time stops: time does not advance
/// on such a device.
pub const STANDSTILL_COMPLETIONS_MAX: u32 = 1 << 20;
/// Levels of a store's tree (RocksDB, `num_levels`).
pub const STORE_LEVELS: usize = 7;
/// Clients of a store, the writer of a read-while-writing workload included.
pub const STORE_CLIENTS_MAX: u32 = 1024;
/// Flushes and compactions of a store at a time.
pub const STORE_JOBS_MAX: u32 = 64;
/// Entries that a workload preloads, and operations that it measures then.
pub const STORE_OPERATIONS_MAX: u64 = 1 << 31;
/// Times that a workload is run on the same drive.
pub const STORE_REPEATS_MAX: u32 = 10_000;
/// Keys that one scan of YCSB-E requests.
pub const STORE_SCAN_KEYS_MAX: u64 = 100;
/// Bytes of one entry, key and value.
pub const STORE_ENTRY_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a key; the minimum distinguishes all keys of a run.
pub const STORE_KEY_BYTES_MIN: u64 = 8;
/// Bytes of a memtable and of a table that compactions write: positions in a table are 32-bit
/// numbers.
pub const STORE_TABLE_BYTES_MAX: u64 = 1 << 30;
/// Memtables of a store.
pub const STORE_MEMTABLES_MAX: u32 = 64;
/// Bytes of a data block.
pub const STORE_BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Bytes of the block cache.
pub const STORE_CACHE_BYTES_MAX: u64 = 1 << 40;
/// Bits of a filter for each key.
pub const STORE_BLOOM_BITS_MAX: u32 = 64;
const _: () = assert!(2 * STORE_OPERATIONS_MAX <= 1 << 32, "keys are numbered in 32 bits");
const _: () = assert!(2 * STORE_TABLE_BYTES_MAX + STORE_ENTRY_BYTES_MAX < 1 << 32);
