//! Loads for a zoned device, and their measurements.
//!
//! A load is a list of jobs in the manner of fio: operation, zones, queue depth, rate, limits.
//! [`JobSpec`] and [`RunSpec`] are the contents of a job file (`docs/guide/job-files.md` is the
//! reference), [`Plan`] is the same checked against a drive's geometry, and [`Runner`] executes it
//! on any [`ZonedDevice`](zonda_zoned::ZonedDevice): in virtual time ([`Runner::run`]), where the
//! same seed gives the same result, or in the time of a [`LiveClock`](zonda_zoned::LiveClock)
//! ([`Runner::run_live`]). [`RunResult`] has the results: operations, bytes, latencies and errors
//! of each job, and a time series. A run may verify the data of its reads.
//!
//! A model of a drive fills its zones itself, as [`Plan::prefill`] lists them; [`prepare`] does so
//! by commands. What is absent: clocks and files, the drive, and printing.
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
//! .expect("the jobs are valid");
//! let plan = Plan::new(&run, &jobs, &geometry).expect("the drive supports them");
//!
//! let mut drive = ReferenceDevice::new(geometry, PayloadKind::None);
//! let runner = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST);
//! let result = runner.run(&mut drive, Instant::ZERO, &mut |_| {});
//! let appends = result.jobs[0].kind(RequestKind::Append).expect("there were appends");
//! assert_eq!(appends.bytes, 2 * 12 * 512, "two zones are full");
//! ```
#![forbid(unsafe_code)]

mod distribution;
pub mod filetrace;
pub mod limits;
pub mod lsm;
mod plan;
mod prepare;
mod result;
mod runner;
mod spec;
mod stamp;
mod summary;

pub use distribution::Places;
pub use plan::{NamedNamespace, Plan};
pub use prepare::{PrepareError, PrepareProgress, prepare};
pub use result::{
    EndReason, ErrorCount, Finding, JobResult, JobSample, KindResult, RequestKind, RunResult, Sample, VerifyError,
    VerifyErrors,
};
pub use runner::{Progress, Runner};
pub use spec::{
    Distribution, Fraction, JobOperation, JobSpec, Mix, OnFull, Prefill, RunSpec, Share, TenantSpec, ZoneOrder,
    parse_jobs,
};
pub use summary::LatencySummary;
