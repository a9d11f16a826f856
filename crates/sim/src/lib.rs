//! The simulation tester: one seed, one scenario, one verdict.
//!
//! A 64-bit seed generates a scenario: a small random drive, layers over it, a host with a mix of
//! commands, and injected faults; or hosts that reach such drives over a network; or clients of a
//! file store on one; or a redundant volume over several of them; or a file-backed drive image; or
//! tenants of a pool; or a scheduler over a drive with hidden conflict groups. A run compares every completion with the oracle, cuts power between any two events, and checks the
//! state after power-on against a ledger of its own. Injected faults stay within what the layers
//! below guarantee, so that every loss is a bug. Every run is made twice, and both must be
//! identical.
//!
//! ```
//! use zonda_sim::{Options, run};
//!
//! let options = Options::default();
//! let outcome = run(7, &options);
//! assert!(outcome.is_good(), "{}", outcome.verdict(&options));
//! ```
#![forbid(unsafe_code)]

mod bug;
mod bugbase;
mod check;
mod drive;
mod elastic;
mod event_trace;
mod files;
mod groups;
mod hash;
mod images;
mod ledger;
mod load;
mod network;
mod observe;
mod options;
mod outcome;
mod power;
mod run;
mod scenario;
mod shrink;
mod simulate;
mod simulation;
mod stack;
mod volumes;

pub use bug::{Bug, bug_by_name, bug_name, bugs};
pub use bugbase::BugbaseEntry;
pub use network::NetworkBug;
pub use options::{Mode, Options, Part, ScenarioKind, UnknownName};
pub use outcome::{Failure, FailureKind, Outcome};
pub use scenario::Scenario;
pub use shrink::{Shrunk, shrink};
pub use simulate::{drive_profile, event_trace, run};
#[doc(hidden)]
pub use zonda_elastic::testing::SeededBug as ElasticBug;
#[doc(hidden)]
pub use zonda_files::SeededBug as FilesBug;
#[doc(hidden)]
pub use zonda_image::testing::SeededBug as ImageBug;
#[doc(hidden)]
pub use zonda_raid::SeededBug as VolumesBug;
#[doc(hidden)]
pub use zonda_sched::SeededBug as GroupsBug;
