//! What a run can find wrong.

use std::fmt;

use serde::Serialize;

/// Something that is not as it was promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Namespace, zone and block, or the command.
    pub place: String,
    /// What was promised.
    pub expected: String,
    /// What is.
    pub found: String,
}

/// Why a run ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A promise was broken.
    Lost(Vec<Loss>),
    /// Nothing can be said: the program is missing, a directory cannot be made, a server does not start.
    Stuck(String),
}

impl Loss {
    /// A broken promise.
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

impl Trouble {
    /// One broken promise.
    pub(crate) fn lost(loss: Loss) -> Trouble {
        Trouble::Lost(vec![loss])
    }
}
