//! What files promise, as a model that testers hold a store against: this crate's own tests, and the simulation tester.
//!
//! [`Mix::draw`] draws requests, [`Model::ask`] hands them to a store and notes what must come of them, [`Model::hear`]
//! checks how they end, and [`Model::found`] what is there after a crash. Nothing here knows how a store works: it sees names
//! and bytes.

mod found;
mod model;
mod request;

#[cfg(test)]
mod desk;
#[cfg(test)]
mod drive;
#[cfg(test)]
mod host;
#[cfg(test)]
mod world;

pub use found::FoundFile;
pub use model::{Model, Promise, Violation};
pub use request::{Mix, Request};

#[cfg(test)]
pub(crate) use {
    desk::{Desk, fill_metadata, pattern, small, units_of_two_blocks},
    drive::SsdWorld,
    host::{Host, Tester},
    world::World,
};
