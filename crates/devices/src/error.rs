//! Why a drive cannot be made or opened.

use std::fmt;

/// What is wrong with a drive, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
    /// Whether nothing is wrong but that another program has it.
    pub is_in_use: bool,
}

impl DriveError {
    /// An error and its remedy.
    #[must_use]
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> DriveError {
        DriveError { message: message.into(), help: help.into(), is_in_use: false }
    }

    /// Another program has it.
    #[must_use]
    pub fn in_use(message: impl Into<String>, help: impl Into<String>) -> DriveError {
        DriveError { is_in_use: true, ..DriveError::new(message, help) }
    }
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.help)
    }
}

impl std::error::Error for DriveError {}
