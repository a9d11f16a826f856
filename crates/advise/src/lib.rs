//! Recommends zones of a drive for a workload: storage element, zone size, parallelism, and the
//! FINISH policy of the host.
//!
//! A [`Base`] is the flash of a profile and the [`Shape`]s of zones that it allows. A [`Load`] is a
//! trace of file operations, generated or given, and the weights of criteria. An [`AdvicePlan`]
//! lists the runs: a preconditioned drive of each candidate runs the workload under a file store.
//! The [`Advice`] ranks the measurements, recommends a candidate, and compares it with the
//! recommendation of the SilentZNS paper (Table 5). [`page`] renders all of it.
//!
//! Not part of this crate: threads (the caller executes the runs of the plan), file access, and
//! models: figures come from `zonda-ssd` under `zonda-files`. The guide is `docs/guide/advise.md`.
//!
//! ```
//! use zonda_advise::{AdvicePlan, Base, Load};
//! use zonda_stack::Profiles;
//! use zonda_workload::filetrace::Preset;
//!
//! let profile = Profiles::without_files(zonda_profiles::BUILTIN).find("tiny").expect("a built-in profile");
//! let base = Base::new(&profile).expect("a valid profile");
//! let load = Load::preset(Preset::Compaction, &base, 1);
//! let plan = AdvicePlan::new(&base, &load, 1).expect("the load fits the drive");
//! let advice = plan.advise(&mut |tasks| tasks.iter().map(|task| task.measure()).collect()).expect("the workload completes");
//! assert!(advice.paragraph.contains("on tiny"), "{}", advice.paragraph);
//! assert!(advice.settings.contains("[zones]"), "{}", advice.settings);
//! ```
#![forbid(unsafe_code)]

mod advice;
mod base;
mod candidate;
pub mod limits;
mod load;
mod measure;
pub mod page;
mod plan;
mod published;
mod score;
pub mod words;

pub use advice::{Advice, LeftOut, PublishedComparison};
pub use base::{Base, Changes};
pub use candidate::{Candidate, Shape, elements_of};
pub use load::{FINISH_THRESHOLDS_PERCENT, Goal, Load};
pub use measure::{Figures, Measurement, Task};
pub use plan::AdvicePlan;
pub use published::{Guidance, TABLE_5, ZoneClass, ZoneClasses};
pub use score::{CRITERIA, Criterion, Ranked, TIE, Weights, ranked};
