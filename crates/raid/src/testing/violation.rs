//! Promises, and how they were broken.

use std::fmt;

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub promise: Promise,
    /// The logical block concerned, if it is one.
    pub lba: Option<u64>,
    /// What exactly, for a person.
    pub message: String,
}

/// What volumes promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Requests end as they must.
    Answers,
    /// Every request ends, once; a volume comes to rest.
    Ends,
    /// Reads return what was written last when they were submitted.
    Contents,
    /// What was acknowledged is there after a crash, and what was read once stays.
    Durability,
    /// A volume mounts while it has members enough.
    Mounts,
    /// Members that did nothing wrong are kept.
    Members,
    /// What was acknowledged is on all members: a volume can lose as many as it tolerates.
    Redundancy,
    /// What members hold came in the order that mounts rely on.
    Order,
}

impl Violation {
    /// A broken promise that is not one of a block.
    #[must_use]
    pub fn new(promise: Promise, message: String) -> Violation {
        Violation { promise, lba: None, message }
    }

    /// A block that is not as it must be.
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
