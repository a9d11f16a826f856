//! The guarantees of files, as a model that a store is checked against: by this crate's own tests,
//! and by the simulation tester.
//!
//! [`Mix::random_request`] generates requests, [`Model::submit`] submits them to a store and notes
//! their required effects, [`Model::on_event`] checks their results, and [`Model::recover`] the
//! files after a crash. The model does not depend on how a store works: it sees only names and
//! bytes.

mod model;
mod recovered;
mod request;

#[cfg(test)]
mod drive;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod host;
#[cfg(test)]
mod testbed;

pub use model::{Model, Promise, Violation};
pub use recovered::RecoveredFile;
pub use request::{Mix, Request};

#[cfg(test)]
pub(crate) use {
    drive::SsdSimulation,
    harness::{Harness, fill_metadata, pattern, small, units_of_two_blocks},
    host::{Host, Tester},
    testbed::Testbed,
};
