//! An error, and the file it is about.

use std::fmt;

use zonda_config::ConfigError;

/// What is wrong with a description, and in which of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// What is wrong, where in the file, and what to do.
    pub error: ConfigError,
    /// Which file.
    pub source: ErrorSource,
}

/// The file that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorSource {
    /// The text that was handed in.
    JobFile,
    /// A profile that the job file names by its path.
    Profile {
        /// The path as it stands in the job file.
        path: String,
        /// The file's text, which the error's place belongs to.
        text: String,
    },
}

impl From<ConfigError> for SpecError {
    fn from(error: ConfigError) -> SpecError {
        SpecError { error, source: ErrorSource::JobFile }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ErrorSource::JobFile => write!(f, "{}", self.error),
            ErrorSource::Profile { path, .. } => write!(f, "{path}: {}", self.error),
        }
    }
}

impl std::error::Error for SpecError {}
