//! What a volume promises, and worlds in which it is held against its promise: this crate's own tests, and the simulation tester.
//!
//! [`Model`] is the oracle: it knows which contents each logical block may have, through crashes too. [`Mix`] draws requests.
//! [`Drive`] is a member that ends commands in any order, fails as it is told to, and keeps in a crash what a drive may keep.
//! [`World`] puts a [`Volume`](crate::Volume) on drives, asks, moves, cuts power, mounts and compares; [`Swarm`] draws such worlds
//! and what is done to them. [`enumerate`] leaves nothing to chance: all short histories of small volumes, all crashes, all faults.
//!
//! Nothing here looks inside a volume: it sees what hosts and members see.
//!
//! ```
//! use zonda_raid::testing::Swarm;
//!
//! let outcome = Swarm::draw(1).run().expect("a volume keeps its promise");
//! assert_eq!(outcome, Swarm::draw(1).run().unwrap(), "a seed is a run");
//! ```

mod atlas;
mod cache;
mod drive;
pub mod enumerate;
mod hazards;
mod incidents;
mod inspect;
mod journal;
mod lives;
mod media;
mod mix;
mod model;
mod order;
mod run;
mod swarm;
mod violation;
mod world;

pub use atlas::{Atlas, Blow, Blows};
pub use drive::{Drive, Faults, IsMeant, Presence};
pub use hazards::{Hazards, Incident};
pub use inspect::Strictness;
pub use journal::Journal;
pub use mix::{Mix, Request};
pub use model::{BLOCK_BYTES_MIN, Model};
pub use run::{Outcome, SwarmRun};
pub use swarm::Swarm;
pub use violation::{Promise, Violation};
pub use world::World;
