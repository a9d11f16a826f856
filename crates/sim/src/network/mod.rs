//! Worlds with a network: some hosts reach drives through one target, and everything between them goes wrong.
//!
//! A run is a loop over what is due next: bytes that arrive, timers, devices, and what the world does to all of them. The
//! machines of hosts and target are those of `zonda_initiator` and `zonda_target`; drives are models or in memory.

mod bugs;
mod chaos;
mod describe;
mod drive;
mod effects;
mod host;
mod link;
mod lives;
mod look;
mod pipe;
mod rest;
mod run;
mod server;
mod sharing;
mod stranger;
mod window;
mod world;

pub use bugs::NetworkBug;
pub(crate) use chaos::ChaosKind;
pub(crate) use describe::describe;
pub(crate) use pipe::PipeShape;
pub(crate) use run::NetworkRun;
pub(crate) use sharing::SharingTraits;
pub(crate) use window::Window;
pub(crate) use world::{DriveShape, FORK, HostShape, HostTraits, Network, TargetTraits};
