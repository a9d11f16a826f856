//! Volume scenarios: a redundant volume over drives that fail, corrupt data, and are removed and
//! added again.
//!
//! The simulation is [`zonda_raid::testing`]: drives that complete commands in any order, faults
//! within what the volume tolerates, a host, and a model of the allowed contents of each block.
//! This module generates it from a seed and options, and converts its results.

mod describe;
mod run;
mod simulation;

pub(crate) use describe::describe;
pub(crate) use run::VolumesRun;
pub(crate) use simulation::VolumesSimulation;
