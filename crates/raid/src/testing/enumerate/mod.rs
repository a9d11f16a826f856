//! All short histories of small volumes, all points at which the power may fail in them, and all
//! single faults after them.
//!
//! CrashMonkey and ACE (Mohan et al., "Finding Crash-Consistency Bugs with Bounded Black-Box Crash
//! Testing", OSDI 2018) found that few operations on a small, new file system reveal most
//! crash-consistency bugs, provided that they are enumerated completely. The same is done here with
//! volumes: a [`Setup`] is one of the smallest volumes of each level, a history is a few of the
//! operations [`Op`], and a [`Case`] is what is left of its members after a crash, with faults
//! added. Each case is mounted, read, mounted again and read again, and compared with the
//! [`Model`](super::Model).
//!
//! The name of a case replays it:
//!
//! ```
//! use zonda_raid::testing::enumerate::Case;
//!
//! let case: Case = "raid5/oob/g1/plp/w0 flush/end/flip 2:37 data".parse().expect("the name of a case");
//! assert_eq!(case.to_string(), "raid5/oob/g1/plp/w0 flush/end/flip 2:37 data");
//! ```

mod case;
mod check;
mod cut;
mod explore;
mod fault;
mod history;
mod media;
mod report;
mod setup;
mod sides;
mod testbed;

pub use case::Case;
pub use check::{Failure, Stage, What};
pub use cut::{Cut, CutKind};
pub use explore::{Depth, explore, replay};
pub use fault::{Damage, Fault};
pub use history::{Op, histories};
pub use report::{Found, Report};
pub use setup::Setup;
