//! The guarantees of volumes, and simulations that check them: for this crate's own tests, and the
//! simulation tester.
//!
//! [`Model`] is the oracle: it knows which contents each logical block may have, across crashes
//! too. [`Mix`] generates requests. [`Drive`] is a member that completes commands in any order,
//! fails as configured, and keeps in a crash what a drive may keep. [`Simulation`] runs a
//! [`Volume`](crate::Volume) on drives: it submits requests, executes commands, cuts power, mounts
//! and compares; [`Swarm`] generates such simulations and their faults from a seed. [`enumerate`]
//! is exhaustive: all short histories of small volumes, all crashes, all faults.
//!
//! Nothing here depends on the internals of a volume: it sees what hosts and members see.
//!
//! ```
//! use zonda_raid::testing::Swarm;
//!
//! let outcome = Swarm::generate(1).run().expect("a volume keeps its promise");
//! assert_eq!(outcome, Swarm::generate(1).run().unwrap(), "a seed is a run");
//! ```

mod cache;
mod drive;
pub mod enumerate;
mod fault_budget;
mod hazards;
mod incidents;
mod inspect;
mod journal;
mod lifecycle;
mod media;
mod mix;
mod model;
mod order;
mod run;
mod simulation;
mod swarm;
mod violation;

pub use drive::{CommandFilter, Drive, Faults, Presence};
pub use fault_budget::{FaultBudget, InjectedFault, InjectedFaultKinds};
pub use hazards::{Hazards, Incident};
pub use inspect::Strictness;
pub use journal::Journal;
pub use mix::{Mix, Request};
pub use model::{BLOCK_BYTES_MIN, Model};
pub use run::{Outcome, SwarmRun};
pub use simulation::Simulation;
pub use swarm::Swarm;
pub use violation::{Promise, Violation};
