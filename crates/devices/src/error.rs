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

    /// The same of a drive in the place of a member of a volume: a new drive does not help there.
    pub(crate) fn of_member(self) -> DriveError {
        if !self.help.contains("zonda drive create") {
            return self;
        }
        let help = "bring the drive back; if it was moved, zonda volume import finds it; if it is lost, zonda member replace puts another one \
                    in its place";
        DriveError { help: help.to_owned(), ..self }
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
