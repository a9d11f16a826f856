//! The permitted states after a crash, from the submitted and the acknowledged commands. Pure: no
//! drive, no clock.
//!
//! Commands of one host to one zone take effect in the order of their submission. So a crash leaves
//! a prefix of them that includes every acknowledged one; the last may be executed partially.
//! [`ZoneHistory`] checks this for a sequential zone. In a conventional namespace each block is
//! independent: [`PlainHistory`].

mod plain;
mod zone;

pub use plain::{Floor, PlainHistory};
pub use zone::{Change, FoundZone, ZoneHistory};

use std::fmt;

/// A state that is not permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The block, counted from the start of the zone or namespace; `None` when it is the zone
    /// itself.
    pub block: Option<u64>,
    /// The permitted states.
    pub expected: String,
    /// The state found.
    pub found: String,
}

impl Mismatch {
    fn new(block: Option<u64>, expected: impl fmt::Display, found: impl fmt::Display) -> Mismatch {
        Mismatch { block, expected: expected.to_string(), found: found.to_string() }
    }
}
