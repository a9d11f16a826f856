//! Network scenarios: hosts reach drives through one target, with faults of hosts, network, server
//! and drives.
//!
//! A run is a loop over the next event: bytes that arrive, timers, devices, and injected faults.
//! The state machines of hosts and target are those of `zonda_initiator` and `zonda_target`; drives
//! are SSD models or in memory.

mod bugs;
mod chaos;
mod describe;
mod drive;
mod effects;
mod host;
mod link;
mod lives;
mod pipe;
mod quiesce;
mod rogue;
mod run;
mod server;
mod sharing;
mod simulation;
mod verify;
mod window;

pub use bugs::NetworkBug;
pub(crate) use chaos::ChaosKind;
pub(crate) use describe::describe;
pub(crate) use pipe::PipeShape;
pub(crate) use run::NetworkRun;
pub(crate) use sharing::SharingTraits;
pub(crate) use simulation::{DriveShape, FORK, HostShape, HostTraits, Network, TargetTraits};
pub(crate) use window::Window;
