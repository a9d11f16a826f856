//! Which zones of a drive disturb each other: measurement, and the table of conflict groups.
//!
//! A small zone lies on one die or a few. Zones on the same die, or on the same channel where the
//! channel is what limits them, delay each other, and no command of NVMe reports which do.
//! [`Profiler`] finds out by reading: it loads some zones with a burst of reads, and measures
//! whether reads of another zone wait behind them (`probe.rs`).
//!
//! ```text
//!   zones ──► size of reads ──► samples ──► visits of zones ──► GroupTable
//!             calibration.rs    samples.rs  search.rs, visit.rs   table.rs
//!                                           rule.rs: order of allocation
//!                                           pairwise.rs: the published algorithm
//! ```
//!
//! No latency is a constant here. The drive itself shows how slow zones are that share hardware: a
//! zone that is loaded by its own reads does. Each measurement is evidence for one of two
//! distributions, and measurements are repeated until the evidence suffices; if it never does, the
//! zone is unknown, with the reason.
//!
//! The machine only reads. Zones without data have no group that reads could show.
//!
//! What is absent: clocks, files, the choice of the device. The same machine runs against the model
//! in virtual time and against real drives.
#![forbid(unsafe_code)]

mod calibration;
mod format;
mod knowledge;
pub mod limits;
mod machine;
mod pairwise;
mod probe;
mod rule;
mod run;
mod samples;
mod search;
mod table;
#[cfg(test)]
mod tests;
mod visit;

pub use format::{DriveIdentity, SerialKind, StoredTable, TableError};
pub use machine::{Profiler, ProfilerConfig, ProfilerEvent, Progress, ReportFailed, Strategy};
pub use run::{VirtualClock, run};
pub use table::{Effort, Evidence, GroupId, GroupTable, UnknownReason, Verdict, ZoneEntry};
