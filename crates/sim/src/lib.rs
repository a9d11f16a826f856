//! The simulation tester: one seed, one world, one verdict.
//!
//! A 64-bit seed makes a world: a small drive that no vendor sells, layers over it, a host with a mix of commands, and
//! what goes wrong; or hosts that reach such drives over a network; or clients at a store of files on one; or a redundant
//! volume over some of them; or a drive that is kept in files. The run holds
//! every completion against the oracle, cuts the power at any event, and decides by books of its own whether what came
//! back may come back. Faults stay within the promise of what is below, so that every loss is a bug. Every run is made
//! twice, and both must be the same.
//!
//! ```
//! use zonda_sim::{Options, run};
//!
//! let options = Options::default();
//! let outcome = run(7, &options);
//! assert!(outcome.is_good(), "{}", outcome.verdict(&options));
//! ```
#![forbid(unsafe_code)]

mod bugbase;
mod check;
mod drive;
mod files;
mod hash;
mod images;
mod ledger;
mod load;
mod network;
mod options;
mod outcome;
mod power;
mod run;
mod scenario;
mod shrink;
mod simulate;
mod stack;
mod story;
mod survey;
mod volumes;
mod world;

pub use bugbase::BugbaseEntry;
pub use network::NetworkBug;
pub use options::{Bug, Mode, Options, Part, UnknownName, WorldKind, bug_by_name, bug_name, bugs};
pub use outcome::{Failure, FailureKind, Outcome};
pub use scenario::Scenario;
pub use shrink::{Shrunk, shrink};
pub use simulate::{drive_profile, run, story};
#[doc(hidden)]
pub use zonda_files::SeededBug as FilesBug;
#[doc(hidden)]
pub use zonda_image::SeededBug as ImageBug;
#[doc(hidden)]
pub use zonda_raid::SeededBug as VolumesBug;
