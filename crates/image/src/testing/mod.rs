//! A simulated disk, a drive on it, and a ledger of what may be found after a crash.

mod disk;
mod drive;
mod ledger;

pub(crate) use disk::{Disk, Fault};
pub(crate) use drive::{Drive, Observed, spec};
pub(crate) use ledger::{Crash, Ledger};
