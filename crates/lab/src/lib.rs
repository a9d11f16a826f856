//! Experiments as data: a drive, a workload, varied parameters, metrics, and published results.
//!
//! A TOML file describes an experiment: `[drive]`, `[run]` and `[[job]]` are those of a job file;
//! `[x]` and `[[series]]` vary any key of them, `[[metric]]` selects figures of each run,
//! `[[result]]` compares a value with a published one, and `[[plot]]` plots metrics.
//! [`LabExperiment::parse`] validates all of it, so that every [`Point`] can be run. Each point is
//! run with several seeds, after a warm-up that is detected automatically ([`WarmUp`]). The same
//! file gives the same [`Outcome`], byte for byte. `docs/guide/experiments.md` is the reference.
//!
//! Not part of this crate: file access, threads and printing. Points are independent and can be run
//! in any order, on any number of threads.
//!
//! ```
//! use zonda_lab::{LabExperiment, Outcome, Row};
//! use zonda_stack::Profiles;
//!
//! let profiles = Profiles::without_files(zonda_profiles::BUILTIN);
//! let text = r#"
//! title = "Reads by queue depth"
//! statistics = { seeds = 2 }
//!
//! [drive]
//! profile = "tiny"
//! [run]
//! time = "20 ms"
//! [[job]]
//! name = "readers"
//! operation = "randread"
//! [x]
//! title = "queue depth"
//! values = [1, 4]
//! set = { "job.readers.queue_depth" = "{}" }
//! [[metric]]
//! name = "rate"
//! unit = "kIOPS"
//! of = "readers.read.iops"
//!
//! [[result]]
//! id = "mine-gain"
//! title = "four reads at a time over one"
//! unit = "ratio"
//! published = 3.5
//! tolerance = 0.3
//! of = { metric = "rate", at = 4 }
//! over = { metric = "rate", at = 1 }
//! "#;
//! let experiment = LabExperiment::parse("mine", text, &profiles).expect("the file is valid");
//! let measurements = experiment.points.iter().map(|point| point.measure(&experiment.metrics, experiment.seeds, None));
//! let outcome = Outcome { measurements: measurements.collect() };
//! let row = &Row::all(&experiment, &outcome)[0];
//! assert!(row.met, "{row:?}");
//! ```
#![forbid(unsafe_code)]

mod basis;
mod catalogue;
mod compare;
mod counts;
mod csv;
mod estimate;
mod expand;
mod figures;
pub mod fit;
mod host;
mod lab_file;
pub mod limits;
mod metric;
mod open;
mod outcome;
mod page;
mod papers;
mod plan;
mod point;
mod published;
mod spec;
mod spread;
mod steady;
mod verdict;

pub use basis::Basis;
pub use catalogue::{builtin, builtin_ids, builtin_text};
pub use compare::Row;
pub use counts::{Counts, Tally};
pub use csv::csv;
pub use estimate::Estimate;
pub use host::{Clock, HostTimes};
pub use lab_file::{LabError, LabExperiment, XAxis};
pub use metric::Metric;
pub use open::{OpenLoad, Variation};
pub use outcome::Outcome;
pub use page::{PageFile, site};
pub use papers::{PAPERS, Paper};
pub use plan::{PlotPlan, PublishedCurve, ResultPlan};
pub use point::{Measurement, Point, PointError};
pub use published::{PublishedResult, published_results, uncovered_results};
pub use spec::{AcrossSpec, ContradictionSpec, KindSpec, ScaleSpec, TakeSpec};
pub use spread::{LoadValue, Spread, SpreadSummary};
pub use steady::WarmUp;
pub use verdict::Verdict;
