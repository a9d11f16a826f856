//! Loads for a zoned device, and what they measure.
//!
//! A load is a list of jobs in the manner of fio: what to do, in which zones, how many requests at a time, how fast, until
//! when. [`JobSpec`] and [`RunSpec`] are what people write in a file (`docs/guide/job-files.md` is the reference),
//! [`Plan`] is the same checked against a drive's geometry, and [`Runner`] carries it out on any
//! [`ZonedDevice`](zonda_zoned::ZonedDevice) in virtual time. [`RunResult`] holds what came of it: operations, bytes,
//! latencies and errors of each job, and a time series. The same seed gives the same result.
//!
//! What is absent: clocks and files, the drive, filling zones before the run (the plan only says how full,
//! [`Plan::prefill`]), checking what reads return, and printing.
//!
//! ```
//! use zonda_workload::{Plan, RequestKind, Runner, parse_jobs};
//! use zonda_zoned::reference::ReferenceDevice;
//! use zonda_zoned::{Geometry, Instant, NamespaceId, PayloadKind};
//!
//! let geometry = Geometry::tiny();
//! let (run, jobs) = parse_jobs(
//!     r#"
//!     [[job]]
//!     operation = "append"
//!     block_size = "1 KiB"
//!     queue_depth = 4
//!     zones = "0..2"
//!     "#,
//! )
//! .expect("the jobs are well written");
//! let plan = Plan::new(&run, &jobs, &geometry).expect("the drive can do them");
//!
//! let mut drive = ReferenceDevice::new(geometry, PayloadKind::None);
//! let runner = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST);
//! let result = runner.run(&mut drive, Instant::ZERO, &mut |_| {});
//! let appends = result.jobs[0].kind(RequestKind::Append).expect("there were appends");
//! assert_eq!(appends.bytes, 2 * 12 * 512, "two zones are full");
//! ```
#![forbid(unsafe_code)]

mod distribution;
mod plan;
mod result;
mod runner;
mod spec;
mod summary;

pub use plan::Plan;
pub use result::{EndReason, ErrorCount, JobResult, JobSample, KindResult, RequestKind, RunResult, Sample};
pub use runner::{Progress, Runner};
pub use spec::{
    Distribution, Fraction, JobOperation, JobSpec, Mix, OnFull, Prefill, RunSpec, Share, ZoneOrder, parse_jobs,
};
pub use summary::LatencySummary;

/// Named bounds of loads.
pub mod limits {
    /// Jobs in one run.
    pub const JOBS_MAX: usize = 256;
    /// Copies of one job.
    pub const WORKERS_MAX: u32 = 1024;
    /// Requests that one worker keeps outstanding (NVMe: a queue has at most 65,535 entries in use).
    pub const QUEUE_DEPTH_MAX: u32 = 65_535;
    /// Commands into which one request is split.
    pub const STRIPE_PARTS_MAX: u64 = 256;
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
    /// Completions at one instant after which a job that only time ends gives up: on such a device time does not pass.
    pub const STANDSTILL_COMPLETIONS_MAX: u32 = 1 << 20;
}
