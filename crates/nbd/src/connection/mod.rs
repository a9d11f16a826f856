//! One connection: input from its client, requests in flight, output to be sent.

mod handshake;
mod in_flight;
mod memory;
mod options;
mod replies;
mod requests;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::{CloseReason, Fault};
use crate::export::ExportIndex;
use crate::input::Input;
use crate::limits::OPTION_BYTES_MAX;
use crate::output::Output;
use crate::request::Effect;
use crate::server::Server;
use handshake::{ClientFlags, OptionRefusal};
use in_flight::InFlight;
use requests::{Incoming, Transmission};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Options are exchanged. The caller should have a deadline for this.
    Handshake,
    /// Requests are exchanged.
    Transmission,
    /// The client has sent DISC; requests are still in flight.
    Draining,
    /// [`Effect::Close`] was emitted, or the client has disconnected.
    Closed,
}

/// The next input from the client.
#[derive(Debug)]
enum Expect {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        length: u32,
    },
    /// Data of an option that is refused.
    SkipOption {
        option: u32,
        left: u32,
        refusal: OptionRefusal,
    },
    RequestHeader,
    /// A request that waits for memory: no input is processed until it is available.
    Memory(Incoming),
    /// Data of a WRITE, whose memory is reserved.
    WriteData(Incoming),
    /// Data of a WRITE that is refused.
    SkipWriteData {
        left: u32,
        refused: requests::Refused,
    },
    /// Nothing: DISC was the last.
    Nothing,
    Closed,
}

/// Whether the connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    Off,
    /// STARTTLS is acknowledged; the effect has not been emitted.
    Starting,
    On,
}

/// One connection of a server.
#[derive(Debug)]
pub struct Connection {
    server: Server,
    expect: Expect,
    tls: Tls,
    client: ClientFlags,
    /// Options received.
    options: u32,
    structured_replies: bool,
    /// The export for which `base:allocation` was selected.
    allocation_of: Option<ExportIndex>,
    /// The unknown export of the last GO.
    unknown_export: Option<String>,
    transmission: Option<Transmission>,
    input: Input,
    output: Output,
    /// Bytes passed to the caller to send that it has not sent.
    unsent_bytes: usize,
    effects: VecDeque<Effect>,
    in_flight: InFlight,
    /// Bytes that it may buffer; see [`Connection::allow`].
    allowed_bytes: usize,
    is_shutting_down: bool,
}

impl Connection {
    pub(crate) fn new(server: Server) -> Connection {
        let mut connection = Connection {
            server,
            expect: Expect::ClientFlags,
            tls: Tls::Off,
            client: ClientFlags::default(),
            options: 0,
            structured_replies: false,
            allocation_of: None,
            unknown_export: None,
            transmission: None,
            input: Input::default(),
            output: Output::default(),
            unsent_bytes: 0,
            effects: VecDeque::new(),
            in_flight: InFlight::default(),
            allowed_bytes: usize::MAX,
            is_shutting_down: false,
        };
        connection.greet();
        connection
    }

    /// Processes bytes received from the client: all of them, in order. Bytes that were read before
    /// [`Connection::wants_bytes`] became false may still be passed; they are queued. Long data of
    /// a WRITE that arrived as a whole share their memory with these bytes.
    pub fn on_bytes(&mut self, bytes: Bytes) {
        if bytes.is_empty() || matches!(self.expect, Expect::Nothing | Expect::Closed) {
            return;
        }
        if self.tls == Tls::Starting {
            return self.fail(Fault::PlaintextBehindStartTls);
        }
        self.input.push(bytes);
        self.pump();
    }

    /// Reports that this many bytes of the output were written to the socket.
    ///
    /// # Panics
    /// When that is more than there was to send.
    pub fn on_sent(&mut self, bytes: usize) {
        if matches!(self.expect, Expect::Closed) {
            return;
        }
        assert!(bytes <= self.unsent_bytes, "{bytes} bytes sent of {}", self.unsent_bytes);
        self.unsent_bytes -= bytes;
        self.pump();
    }

    /// Shuts the connection down: in the handshake it is closed at once; later the client gets the
    /// replies to requests in flight, and ESHUTDOWN for further ones, and is closed then.
    pub fn shutdown(&mut self) {
        self.is_shutting_down = true;
        if self.transmission.is_none() {
            return self.close(CloseReason::Shutdown);
        }
        self.pump();
        self.close_when_drained();
    }

    /// Reports that the client closed the socket, or that it failed. The connection emits no more
    /// effects.
    pub fn on_disconnect(&mut self) {
        self.forget();
        self.effects.clear();
    }

    /// The next effect. Call it after each event, until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if self.effects.is_empty() {
            self.flush_output();
        }
        let effect = self.effects.pop_front()?;
        if matches!(effect, Effect::StartTls) {
            self.tls = Tls::On;
        }
        Some(effect)
    }

    /// Whether the caller should read from the socket. Call it after each event; false while the
    /// limits are reached, and after the last request.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        match self.expect {
            Expect::Memory(_) | Expect::Nothing | Expect::Closed => false,
            Expect::ClientFlags | Expect::OptionHeader | Expect::RequestHeader => !self.is_full(),
            Expect::OptionData { .. }
            | Expect::SkipOption { .. }
            | Expect::WriteData(_)
            | Expect::SkipWriteData { .. } => true,
        }
    }

    /// Its phase.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.expect {
            Expect::Closed => Stage::Closed,
            Expect::Nothing => Stage::Draining,
            _ if self.transmission.is_some() => Stage::Transmission,
            _ => Stage::Handshake,
        }
    }

    /// The export that the client has chosen.
    #[must_use]
    pub fn export(&self) -> Option<ExportIndex> {
        self.transmission.as_ref().map(|transmission| transmission.export)
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls == Tls::On
    }

    /// Requests that the caller has to answer, including those it has not polled.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Buffered bytes: received and not processed, data of requests in flight, replies that were
    /// not sent. At most [`crate::Limits::buffered_bytes_max`], plus the bytes with which the limit
    /// was reached.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        // Memory reserved for the data of a WRITE is counted before the data arrive.
        let reserved = match self.expect {
            Expect::WriteData(incoming) => self.input.queued_bytes().min(incoming.reserved_bytes()),
            _ => 0,
        };
        self.input.queued_bytes() - reserved + self.held_bytes()
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// When one is violated.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        let limits = &self.server.config().limits;
        self.in_flight.check_invariants(limits.requests);
        assert!(self.in_flight.data_bytes() <= limits.data_bytes, "data in flight is bounded");
        let held = self.held_bytes();
        assert!(held + OPTION_BYTES_MAX as usize <= limits.buffered_bytes_max(), "{held} bytes are held");
        if self.stage() == Stage::Closed {
            assert!(self.in_flight.is_empty() && self.input.is_empty(), "a closed connection buffers nothing");
        }
        if self.stage() == Stage::Draining {
            assert!(!self.in_flight.is_empty(), "a drained connection is closed");
        }
        if self.wants_bytes() && !matches!(self.expect, Expect::WriteData(_)) {
            assert!(
                self.input.queued_bytes() < OPTION_BYTES_MAX as usize,
                "all input that can be processed has been processed"
            );
        }
    }

    /// Processes input, until more has to arrive or output has to be sent.
    fn pump(&mut self) {
        while self.step() {}
    }

    /// Processes the next piece of input; false if it has not arrived.
    fn step(&mut self) -> bool {
        match self.expect {
            Expect::ClientFlags => self.take_client_flags(),
            Expect::OptionHeader => !self.is_full() && self.take_option_header(),
            Expect::OptionData { option, length } => self.take_option_data(option, length),
            Expect::SkipOption { option, left, refusal } => self.skip_option(option, left, refusal),
            Expect::RequestHeader => !self.is_full() && self.take_request_header(),
            Expect::Memory(incoming) => self.admit(incoming),
            Expect::WriteData(incoming) => self.take_write_data(incoming),
            Expect::SkipWriteData { left, refused } => self.skip_write_data(left, refused),
            Expect::Nothing | Expect::Closed => false,
        }
    }

    /// Emits a Send effect for queued output.
    fn flush_output(&mut self) {
        let bytes = self.output.queued_bytes();
        if bytes > 0 {
            self.unsent_bytes += bytes;
            self.effects.push_back(Effect::Send(self.output.take()));
        }
    }

    /// Closes a draining connection once no request is in flight.
    fn close_when_drained(&mut self) {
        if !self.in_flight.is_empty() {
            return;
        }
        if matches!(self.expect, Expect::Nothing) {
            self.close(CloseReason::Disconnected);
        } else if self.is_shutting_down {
            self.close(CloseReason::Shutdown);
        }
    }

    /// Closes the connection because of a protocol error.
    fn fail(&mut self, fault: Fault) {
        self.close(CloseReason::Fault(fault));
    }

    /// Closes the connection. Requests that the caller has not polled are dropped.
    fn close(&mut self, reason: CloseReason) {
        if matches!(self.expect, Expect::Closed) {
            return;
        }
        self.effects.retain(|effect| !matches!(effect, Effect::Request(_)));
        self.flush_output();
        self.effects.push_back(Effect::Close(reason));
        self.forget();
    }

    fn forget(&mut self) {
        self.expect = Expect::Closed;
        self.input.clear();
        self.in_flight.clear();
        self.output = Output::default();
        self.unsent_bytes = 0;
    }
}
