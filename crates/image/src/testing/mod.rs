//! What may come back of a drive after a crash: for this crate's own tests, and for the simulation tester.
//!
//! A [`Ledger`] is told of every command of a life of a drive and of every completion, and holds what the next life shows
//! ([`Observed`]) against what the order of acknowledgements, flushes and management allows, block by block and zone by zone.
//! It looks at no file: it sees what hosts see.

#[cfg(test)]
mod disk;
#[cfg(test)]
mod drive;
mod file;
mod ledger;
mod observed;

#[cfg(test)]
pub(crate) use disk::{Disk, Fault};
#[cfg(test)]
pub(crate) use drive::{Drive, spec};
pub use file::{PAGE, SimFile};
pub use ledger::{Crash, Ledger, Promise, Violation};
pub use observed::{Contents, Observed};
