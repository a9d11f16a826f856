//! Worlds with volumes: a redundant volume over drives that fail, rot, go and come back.
//!
//! The world itself is [`zonda_raid::testing`]: drives that end commands in any order, an atlas that keeps what is done to them
//! within what the volume tolerates, a host that asks, and a model that says which contents each block may have. Here a seed and
//! options make one, its verdict is told as those of all worlds, and it is made small.

mod describe;
mod run;
mod world;

pub(crate) use describe::describe;
pub(crate) use run::VolumesRun;
pub(crate) use world::VolumesWorld;
