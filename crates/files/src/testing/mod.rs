//! What the tests need: a world in which drives stop at any moment, and a model of what files promise.

mod desk;
mod drive;
mod model;
mod world;

pub(crate) use desk::{Desk, pattern, small, units_of_two_blocks};
pub(crate) use drive::SsdWorld;
pub(crate) use model::{Host, Model};
pub(crate) use world::World;
