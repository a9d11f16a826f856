//! Scenarios with conflict groups: a scheduler over a drive whose zones share hardware that no command
//! reports.
//!
//! Zones of a hidden group wait for each other; how long varies, the drive refuses commands when its
//! queues are full, and groups may change during the run. The scheduler has a table that is right,
//! wrong or incomplete. A run checks that each completion is that of an oracle which executes commands
//! in the order of their releases, that no command is released before one that it must wait for, that
//! each group is counted and chosen as it should be, that every command completes, and that a right
//! table is not rejected.

mod describe;
mod drive;
mod run;
mod simulation;

pub(crate) use describe::describe;
pub(crate) use run::GroupsRun;
pub(crate) use simulation::{FORK, GroupsLoad, GroupsSimulation, HiddenGroups, Table};
