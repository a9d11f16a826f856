//! Attacks of unauthenticated clients on `zonda serve`, concurrent with honest clients under load.
//!
//! A [`Run`] starts the program with a small memory budget, a subsystem for any host, one for a
//! host with a secret, and an NBD export. Honest clients read and write all the time, and reconnect
//! several times a second: a host that authenticates, and an NBD client. Then an [`Attack`] runs in
//! a separate process, from another address of the loopback. A run measures the latencies of the
//! honest clients before and during the attack, counts each request and each connection that was
//! refused, and monitors the resident memory of the server.
//!
//! On a machine with few CPUs an attacker takes CPU time from all processes, regardless of the
//! server. So a third measurement has busy processes instead of the attack, which use as much CPU
//! time as it did.
//!
//! What is absent: attacks on the network itself, and attackers that are authenticated.
#![forbid(unsafe_code)]

mod attack;
mod honest;
mod latencies;
mod nbd;
mod nvme;
mod process;
mod run;
mod server;

pub use attack::{Attack, Victim};
pub use process::burn;
pub use run::{Figures, Outcome, Run, Times};

/// The host with a secret.
pub(crate) const HOST: &str = "nqn.2026-01.io.zonda:honest-host";
/// The subsystem for it.
pub(crate) const GUARDED: &str = "nqn.2026-01.io.zonda:guarded";
/// The subsystem for any host.
pub(crate) const OPEN: &str = "nqn.2026-01.io.zonda:open";
/// The NBD export.
pub(crate) const EXPORT: &str = "disk";
/// Bytes of a block of each drive.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Blocks of each drive: 4 zones of 16 MiB.
pub(crate) const DRIVE_BLOCKS: u64 = 4 * (16 << 20) / BLOCK_BYTES as u64;
