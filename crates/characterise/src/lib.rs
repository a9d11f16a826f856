//! One report of what a zoned drive can do, for a user who does not know the drive.
//!
//! [`characterise`] measures a [`Subject`] in parts, each within its share of a budget: conflict
//! groups of zones ([`zonda_profiler`]), reads, writes and appends over size, depth and number of
//! zones, latencies of zone management, each pair of operations beside each other, and the I/O schedulers
//! ([`zonda_sched`]) before a mixed load. The loads are jobs of [`zonda_workload`]. A [`Report`] has the figures, guidelines that named rules derive from
//! them, and a configuration for the server; [`Report::changes`] compares it with an older one.
//!
//! ```text
//!   Subject ──► plan.rs ──► runs.rs, managed.rs ──► Report ──► rules.rs, page/, compare.rs
//!   live.rs     loads       one run of loads       report.rs   words, HTML, changes
//!   model.rs
//! ```
//!
//! What was not measured says why: there was no time, the drive refuses the operation, only reads
//! were allowed. A [`LiveSubject`] writes only to zones that its owner has allowed, and resets them at
//! the end; a [`ModelSubject`] runs in virtual time, and the same seed gives the same report.
//!
//! What is absent: clocks, files, the choice of the device, the layout of the terminal.
#![forbid(unsafe_code)]

mod appends;
mod characterise;
mod choice;
mod compare;
mod finding;
mod fit;
mod jobs;
pub mod limits;
mod live;
mod load;
mod managed;
#[cfg(test)]
mod measured;
mod model;
mod page;
mod plan;
mod reasons;
mod report;
mod rules;
mod runs;
mod scheduler;
mod settings;
mod subject;
#[cfg(test)]
mod tests;
mod zones;

pub use characterise::{Characterisation, Control, Groups, Options, PartSummary, Progress, characterise};
pub use choice::{Compared, choice, compared_schedulers};
pub use compare::{Change, Comparison};
pub use finding::{Figures, Finding, Missing, Part};
pub use fit::{FIT_PARAMETERS, fit_measurements};
pub use live::LiveSubject;
pub use load::{Kind, Load};
pub use model::ModelSubject;
pub use page::html;
pub use reasons::Unmeasured;
pub use report::{Conditions, DriveLimits, GroupSummary, Report, ReportError};
pub use rules::Guideline;
pub use scheduler::SchedulerName;
pub use settings::{GROUPS_FILE, Served, Source, zonda_toml};
pub use subject::{PrepareFailed, Subject};
