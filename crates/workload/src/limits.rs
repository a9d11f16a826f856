//! Named bounds of loads.

/// Jobs in one run.
pub const JOBS_MAX: usize = 256;
/// Copies of one job.
pub const WORKERS_MAX: u32 = 1024;
/// Requests that one worker keeps outstanding (NVMe: a queue has at most 65,535 entries in use).
pub const QUEUE_DEPTH_MAX: u32 = 65_535;
/// Commands into which one request is split.
pub const STRIPE_PARTS_MAX: u64 = 512;
/// Samples in a time series; the run goes on when they are used up, the series does not.
pub const SAMPLES_MAX: u64 = 100_000;
/// Samples in a time series times jobs: the series ends here if that comes before [`SAMPLES_MAX`].
pub const JOB_SAMPLES_MAX: u64 = 1_000_000;
/// Nanoseconds of any time in a job file: a year, so that no sum of them overflows.
pub const TIME_MAX_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;
/// Nanoseconds of virtual time that a run may take: 100 years. No request is issued from then on.
pub const VIRTUAL_TIME_MAX_NS: u64 = 100 * TIME_MAX_NS;
const _: () = assert!(2 * TIME_MAX_NS < VIRTUAL_TIME_MAX_NS && VIRTUAL_TIME_MAX_NS < u64::MAX / 4);
/// Errors of one kind of command of a job in a row, with no success of that kind between, after which the job gives up.
pub const CONSECUTIVE_ERRORS_MAX: u32 = 1000;
/// Nanoseconds of a live run in which a device with nothing under way takes no command, before the run gives up: 30 s.
pub const REFUSAL_MAX_NS: u64 = 30 * 1_000_000_000;
/// Blocks of conventional zones that a run can verify: 320 MiB of records.
pub const VERIFY_CONVENTIONAL_BLOCKS_MAX: u64 = 1 << 24;
/// Blocks of a zone that appends put elsewhere than in the order of their submission, before it is no longer verified.
pub const VERIFY_DISPLACED_MAX: usize = 1 << 16;
/// Commands that [`crate::prepare`] keeps outstanding.
pub const PREPARE_QUEUE_DEPTH: usize = 32;
/// Bytes of one write of [`crate::prepare`].
pub const PREPARE_WRITE_BYTES_MAX: u64 = 128 << 10;
/// Completions at one instant after which a job that only time ends gives up: on such a device time does not pass.
pub const STANDSTILL_COMPLETIONS_MAX: u32 = 1 << 20;
