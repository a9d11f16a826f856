//! How much a connection holds, and may hold.

use super::requests::Incoming;
use super::{Connection, Expect};

impl Connection {
    /// How many bytes the connection may hold from now on, of requests and of replies. Without this its own limit is the only one. For a
    /// caller that divides memory among connections: it asks [`Connection::wanted_bytes`] after each event.
    pub fn allow(&mut self, bytes: usize) {
        let is_more = bytes > self.allowed_bytes;
        self.allowed_bytes = bytes;
        if is_more {
            self.pump();
        }
    }

    /// How many bytes the connection has to be allowed, so that what comes next is taken; `None` while that does not hinder it.
    #[must_use]
    pub fn wanted_bytes(&self) -> Option<usize> {
        let wanted = match self.expect {
            Expect::Room(incoming) if self.has_own_room(incoming) => self.held_bytes() + incoming.room_bytes(),
            Expect::ClientFlags | Expect::OptionHeader | Expect::RequestHeader if !self.is_at_own_limit() => {
                self.held_bytes()
            }
            _ => return None,
        };
        (wanted > self.allowed_bytes).then_some(wanted)
    }

    /// Bytes of requests, and of replies that have not left.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.in_flight.data_bytes() + self.outgoing_bytes()
    }

    /// Bytes for the client that have not left.
    pub(super) fn outgoing_bytes(&self) -> usize {
        self.output.queued_bytes() + self.unsent_bytes
    }

    /// Whether so much is outstanding that something has to leave before more is looked at.
    pub(super) fn is_full(&self) -> bool {
        self.is_at_own_limit() || self.held_bytes() > self.allowed_bytes
    }

    fn is_at_own_limit(&self) -> bool {
        self.held_bytes() >= self.server.config().limits.data_bytes
    }

    /// Whether a request is within the limits of the connection.
    pub(super) fn has_own_room(&self, incoming: Incoming) -> bool {
        let limits = &self.server.config().limits;
        self.in_flight.len() < limits.requests && self.held_bytes() + incoming.room_bytes() <= limits.data_bytes
    }
}
