//! How much memory a connection uses, and may use.

use super::requests::Incoming;
use super::{Connection, Expect};

impl Connection {
    /// Sets how many bytes of requests and replies the connection may hold. By default only its own
    /// limit applies. This is for a caller that shares memory among connections: it calls
    /// [`Connection::wanted_bytes`] after each event.
    pub fn allow(&mut self, bytes: usize) {
        let is_more = bytes > self.allowed_bytes;
        self.allowed_bytes = bytes;
        if is_more {
            self.pump();
        }
    }

    /// How many bytes the connection has to be allowed to process its next input; `None` if the
    /// allowance suffices.
    #[must_use]
    pub fn wanted_bytes(&self) -> Option<usize> {
        let wanted = match self.expect {
            Expect::Memory(incoming) if self.is_within_limits(incoming) => {
                self.held_bytes() + incoming.reserved_bytes()
            }
            Expect::ClientFlags | Expect::OptionHeader | Expect::RequestHeader if !self.is_at_own_limit() => {
                self.held_bytes()
            }
            _ => return None,
        };
        (wanted > self.allowed_bytes).then_some(wanted)
    }

    /// Bytes of requests, and of replies that were not sent.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.in_flight.data_bytes() + self.outgoing_bytes()
    }

    /// Bytes for the client that were not sent.
    pub(super) fn outgoing_bytes(&self) -> usize {
        self.output.queued_bytes() + self.unsent_bytes
    }

    /// Whether output has to be sent before more input is processed.
    pub(super) fn is_full(&self) -> bool {
        self.is_at_own_limit() || self.held_bytes() > self.allowed_bytes
    }

    fn is_at_own_limit(&self) -> bool {
        self.held_bytes() >= self.server.config().limits.data_bytes
    }

    /// Whether a request is within the limits of the connection.
    pub(super) fn is_within_limits(&self, incoming: Incoming) -> bool {
        let limits = &self.server.config().limits;
        self.in_flight.len() < limits.requests && self.held_bytes() + incoming.reserved_bytes() <= limits.data_bytes
    }
}
