//! Guarantees, and their violations.

use std::fmt;

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The guarantee.
    pub promise: Promise,
    /// The logical block concerned, if any.
    pub lba: Option<u64>,
    /// A human-readable description.
    pub message: String,
}

/// The guarantees of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Requests complete with the right status and data.
    Answers,
    /// Every request completes, once; a volume quiesces.
    Ends,
    /// Reads return the version that was the newest when they were submitted.
    Contents,
    /// Acknowledged writes survive crashes, and a version that was read once stays.
    Durability,
    /// A volume can be mounted while it has enough members.
    Mounts,
    /// Members without faults are not failed.
    Members,
    /// Acknowledged writes are on all members: a volume can lose as many as it tolerates.
    Redundancy,
    /// Blocks reach the members in the order that mounts rely on.
    Order,
}

impl Violation {
    /// A violation that does not concern a block.
    #[must_use]
    pub fn new(promise: Promise, message: String) -> Violation {
        Violation { promise, lba: None, message }
    }

    /// A violation that concerns a block.
    #[must_use]
    pub fn of_block(promise: Promise, lba: u64, message: String) -> Violation {
        Violation { promise, lba: Some(lba), message }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Violation {}
