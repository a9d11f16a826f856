//! Checks the state of a drive after a crash: for this crate's own tests, and for the simulation
//! tester.
//!
//! A [`Ledger`] records every command of a session of a drive and every completion, and compares
//! the state in the next session ([`Observed`]) with the states that the order of acknowledgements,
//! flushes and management allows, for every block and zone. It reads no files: it sees only what
//! hosts see.

mod bugs;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod drive;
mod file;
mod ledger;
mod observed;

pub use crate::bugs::SeededBug;
pub use bugs::open_with_bug;
#[cfg(test)]
pub(crate) use disk::{Disk, Fault};
#[cfg(test)]
pub(crate) use drive::{Drive, spec};
pub use file::{PAGE, SimFile};
pub use ledger::{Crash, Doubts, Ledger, Promise, Violation};
pub use observed::{Contents, Observed};
