//! What may be found after a crash, from what was asked and what was acknowledged. Pure: no drive, no clock.
//!
//! Commands of one host to one zone take effect in the order of their submission. So a crash leaves a prefix of them that
//! holds every acknowledged one; the last may have come down to some of its first blocks. [`ZoneHistory`] says so of a
//! sequential zone. In a conventional namespace each block stands alone: [`PlainHistory`].

mod plain;
mod zone;

pub use plain::{Floor, PlainHistory};
pub use zone::{Change, FoundZone, ZoneHistory};

use std::fmt;

/// What is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The block, counted from the start of the zone or namespace; `None` when it is the zone itself.
    pub block: Option<u64>,
    /// What may be there.
    pub expected: String,
    /// What is.
    pub found: String,
}

impl Mismatch {
    fn new(block: Option<u64>, expected: impl fmt::Display, found: impl fmt::Display) -> Mismatch {
        Mismatch { block, expected: expected.to_string(), found: found.to_string() }
    }
}
