//! An error, and the file it is about.

use std::fmt;

use zonda_config::ConfigError;

/// An error in a description, and the file it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The error, its place in the file, and the remedy.
    pub error: ConfigError,
    /// The file.
    pub source: ErrorSource,
}

/// The file that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorSource {
    /// The job file itself.
    JobFile,
    /// A profile that the job file names by its path.
    Profile {
        /// The path as written in the job file.
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
