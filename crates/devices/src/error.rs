//! Why a drive cannot be made or opened.

use std::fmt;

use zonda_initiator::Holder;

/// What is wrong with a drive, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
    /// Whether nothing is wrong but that another program has it.
    pub is_in_use: bool,
    /// Which other host has it, where that is why it cannot be used.
    pub holder: Option<Holder>,
    /// Whether there is no drive.
    pub(crate) is_missing: bool,
}

impl DriveError {
    /// An error and its remedy.
    #[must_use]
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> DriveError {
        DriveError { message: message.into(), help: help.into(), is_in_use: false, holder: None, is_missing: false }
    }

    /// The same of a drive in the place of a member of a volume: a new drive does not help there.
    pub(crate) fn of_member(self) -> DriveError {
        if !self.is_missing {
            return self;
        }
        let help = "bring the drive back; if it was moved, zonda volume import finds it; if it is lost, zonda member replace puts another one \
                    in its place";
        DriveError { help: help.to_owned(), ..self }
    }

    /// There is no drive.
    pub(crate) fn missing(message: impl Into<String>, help: impl Into<String>) -> DriveError {
        DriveError { is_missing: true, ..DriveError::new(message, help) }
    }

    /// Another host has reserved it.
    pub(crate) fn reserved(message: impl Into<String>, help: impl Into<String>, holder: Holder) -> DriveError {
        DriveError { is_in_use: true, holder: Some(holder), ..DriveError::new(message, help) }
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
