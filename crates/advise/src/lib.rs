//! Which zones a drive should have for a load: storage element, zone size, parallelism, and when the host finishes zones.
//!
//! A [`Base`] is a profile's flash and the [`Shape`]s of zones that can be made of it. A [`Load`] is a trace of file
//! operations, made or read, and what counts for it. An [`AdvicePlan`] lists the runs: each candidate's drive, which was
//! full once, carries the load out under a file store. The [`Advice`] ranks what was measured, says which candidate to take
//! and why, and holds it against what the SilentZNS paper recommends (Table 5). [`page`] shows all of it.
//!
//! What is absent: threads (the plan hands out runs, and whoever has processors makes them), files, and any model: figures
//! come from `zonda-ssd` under `zonda-files`. The guide is `docs/guide/advise.md`.
//!
//! ```
//! use zonda_advise::{AdvicePlan, Base, Load};
//! use zonda_stack::Profiles;
//! use zonda_workload::filetrace::Preset;
//!
//! let profile = Profiles::without_files(zonda_profiles::BUILTIN).find("tiny").expect("a built-in profile");
//! let base = Base::new(&profile).expect("which is right");
//! let load = Load::preset(Preset::Compaction, &base, 1);
//! let plan = AdvicePlan::new(&base, &load, 1).expect("the load fits the drive");
//! let advice = plan.advise(&mut |tasks| tasks.iter().map(|task| task.measure()).collect()).expect("it can be carried out");
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

pub use advice::{Advice, Beside, LeftOut};
pub use base::{Base, Changes};
pub use candidate::{Candidate, Shape, elements_of};
pub use load::{FINISH_THRESHOLDS_PERCENT, Goal, Load};
pub use measure::{Figures, Measurement, Task};
pub use plan::AdvicePlan;
pub use published::{Guidance, TABLE_5, ZoneClass, ZoneClasses};
pub use score::{CRITERIA, Criterion, Ranked, TIE, Weights, ranked};
