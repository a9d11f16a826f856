//! [`DriveError`]: why a drive cannot be created, opened or managed.

use std::fmt;

use zonda_initiator::Holder;

/// An error of a drive, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveError {
    /// What failed, and why.
    pub message: String,
    /// The remedy.
    pub help: String,
    /// Whether the drive is in use by another program or host.
    pub is_in_use: bool,
    /// The reservation holder, where the drive is reserved by another host.
    pub holder: Option<Holder>,
    /// Whether the drive does not exist.
    pub is_missing: bool,
    /// Whether what was asked for has an effect, or may have one, although it failed.
    pub has_effect: bool,
}

impl DriveError {
    /// An error and its remedy.
    #[must_use]
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> DriveError {
        let (message, help) = (message.into(), help.into());
        DriveError { message, help, is_in_use: false, holder: None, is_missing: false, has_effect: false }
    }

    /// The error for the drive of a member of a volume: the remedy must not be to create a new
    /// drive.
    pub(crate) fn of_member(self) -> DriveError {
        if !self.is_missing {
            return self;
        }
        let help = "restore the drive; if it was moved, zonda volume import finds it; if it is lost, replace it with \
                    zonda member replace";
        DriveError { help: help.to_owned(), ..self }
    }

    /// The drive does not exist.
    pub(crate) fn missing(message: impl Into<String>, help: impl Into<String>) -> DriveError {
        DriveError { is_missing: true, ..DriveError::new(message, help) }
    }

    /// Another host has reserved the drive.
    pub(crate) fn reserved(message: impl Into<String>, help: impl Into<String>, holder: Holder) -> DriveError {
        DriveError { is_in_use: true, holder: Some(holder), ..DriveError::new(message, help) }
    }

    /// The drive is in use by another program.
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
