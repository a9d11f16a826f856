//! [`Direction`]: which way data goes.

use crate::{Request, RequestKind};

/// The direction of a request that a policy orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// `None` for requests that bypass a scheduler.
    pub(crate) fn of(request: &Request) -> Option<Direction> {
        match request.kind {
            RequestKind::Read => Some(Direction::Read),
            RequestKind::Write | RequestKind::Append => Some(Direction::Write),
            RequestKind::Manage | RequestKind::Flush | RequestKind::Report => None,
        }
    }

    pub(crate) fn other(self) -> Direction {
        match self {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        }
    }
}
