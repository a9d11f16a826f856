//! Errors that a run can find.

use std::fmt;

use serde::Serialize;

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Namespace, zone and block, or the command.
    pub place: String,
    /// The expected state.
    pub expected: String,
    /// The state found.
    pub found: String,
}

/// The error that ends a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Acknowledged data or states were lost.
    Lost(Vec<Loss>),
    /// The run could not be carried out: the program is missing, a directory cannot be created, a
    /// server does not start.
    Failed(String),
}

impl Loss {
    /// Creates a loss.
    #[must_use]
    pub fn new(place: impl fmt::Display, expected: impl fmt::Display, found: impl fmt::Display) -> Loss {
        Loss { place: place.to_string(), expected: expected.to_string(), found: found.to_string() }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.place, self.expected, self.found)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Lost(losses) => {
                f.write_str(&losses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            }
            RunError::Failed(message) => f.write_str(message),
        }
    }
}

impl RunError {
    /// An error with one loss.
    pub(crate) fn lost(loss: Loss) -> RunError {
        RunError::Lost(vec![loss])
    }
}
