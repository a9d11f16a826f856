//! One connection: what its client sends, what is under way, what is to be sent.

mod handshake;
mod in_flight;
mod options;
mod replies;
mod requests;
mod room;

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

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Options are exchanged. The caller has a deadline for this, if it is wise.
    Handshake,
    /// Requests are exchanged.
    Transmission,
    /// The client has said that nothing more will come; requests are still under way.
    Draining,
    /// [`Effect::Close`] has been made, or the other side is gone.
    Closed,
}

/// What the next bytes of the client are.
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
    /// A request for which there is no room now: nothing is taken until there is.
    Room(Incoming),
    /// Data of a WRITE, for which there is room.
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

/// Whether bytes come in TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    Off,
    /// STARTTLS is acknowledged, and the caller has not been told.
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
    /// Options that have come.
    options: u32,
    structured_replies: bool,
    /// Where `base:allocation` was selected.
    allocation_of: Option<ExportIndex>,
    transmission: Option<Transmission>,
    input: Input,
    output: Output,
    /// Bytes that the caller has been given to send and that have not left.
    unsent_bytes: usize,
    effects: VecDeque<Effect>,
    in_flight: InFlight,
    /// Bytes that it may hold; see [`Connection::allow`].
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

    /// Bytes have come from the client: all of them, in order. What was read before the connection wanted no more may
    /// still be handed over; it is kept. Long data of a WRITE that came whole share their memory with these
    /// bytes.
    pub fn received(&mut self, bytes: Bytes) {
        if bytes.is_empty() || matches!(self.expect, Expect::Nothing | Expect::Closed) {
            return;
        }
        if self.tls == Tls::Starting {
            return self.fail(Fault::PlaintextBehindStartTls);
        }
        self.input.push(bytes);
        self.pump();
    }

    /// So many bytes of what was to be sent have left for the socket.
    ///
    /// # Panics
    /// When that is more than was to be sent.
    pub fn sent(&mut self, bytes: usize) {
        if matches!(self.expect, Expect::Closed) {
            return;
        }
        assert!(bytes <= self.unsent_bytes, "{bytes} bytes sent of {}", self.unsent_bytes);
        self.unsent_bytes -= bytes;
        self.pump();
    }

    /// The server ends: a client in its handshake is closed at once; another gets the replies to what is under way, and
    /// errors for what it still sends, and is closed then.
    pub fn shutdown(&mut self) {
        self.is_shutting_down = true;
        if self.transmission.is_none() {
            return self.close(CloseReason::Shutdown);
        }
        self.pump();
        self.close_when_drained();
    }

    /// The socket was closed by the other side, or has failed. Nothing more comes of this connection.
    pub fn disconnected(&mut self) {
        self.forget();
        self.effects.clear();
    }

    /// What is to be done next. Asked until there is nothing, after each event.
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

    /// Whether the caller is to read from the socket. Asked after each event; not while as much is under way as may be,
    /// and not when nothing more is to come.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        match self.expect {
            Expect::Room(_) | Expect::Nothing | Expect::Closed => false,
            Expect::ClientFlags | Expect::OptionHeader | Expect::RequestHeader => !self.is_full(),
            Expect::OptionData { .. }
            | Expect::SkipOption { .. }
            | Expect::WriteData(_)
            | Expect::SkipWriteData { .. } => true,
        }
    }

    /// How far it is.
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

    /// Whether its bytes come in TLS.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls == Tls::On
    }

    /// Requests that the caller has to answer, those included that it has not polled.
    #[must_use]
    pub fn requests_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes that are held: received and not looked at, data of requests under way, replies that have not left. At most
    /// [`crate::Limits::buffered_bytes_max`], and the bytes with which the connection stopped to want more.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        // Room for the data of a WRITE counts before the data are there.
        let in_room = match self.expect {
            Expect::WriteData(incoming) => self.input.queued_bytes().min(incoming.room_bytes()),
            _ => 0,
        };
        self.input.queued_bytes() - in_room + self.held_bytes()
    }

    /// What must hold between events.
    ///
    /// # Panics
    /// When it does not.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        let limits = &self.server.config().limits;
        self.in_flight.check_invariants(limits.requests);
        assert!(self.in_flight.data_bytes() <= limits.data_bytes, "data under way is bounded");
        let held = self.held_bytes();
        assert!(held + OPTION_BYTES_MAX as usize <= limits.buffered_bytes_max(), "{held} bytes are held");
        if self.stage() == Stage::Closed {
            assert!(self.in_flight.is_empty() && self.input.is_empty(), "nothing stays of a closed connection");
        }
        if self.stage() == Stage::Draining {
            assert!(!self.in_flight.is_empty(), "a drained connection is closed");
        }
        if self.wants_bytes() && !matches!(self.expect, Expect::WriteData(_)) {
            assert!(self.input.queued_bytes() < OPTION_BYTES_MAX as usize, "what can be looked at has been looked at");
        }
    }

    /// Looks at what has come, until more has to come or something has to leave.
    fn pump(&mut self) {
        while self.step() {}
    }

    /// Takes the next piece of input; whether there was one.
    fn step(&mut self) -> bool {
        match self.expect {
            Expect::ClientFlags => self.take_client_flags(),
            Expect::OptionHeader => !self.is_full() && self.take_option_header(),
            Expect::OptionData { option, length } => self.take_option_data(option, length),
            Expect::SkipOption { option, left, refusal } => self.skip_option(option, left, refusal),
            Expect::RequestHeader => !self.is_full() && self.take_request_header(),
            Expect::Room(incoming) => self.take_room(incoming),
            Expect::WriteData(incoming) => self.take_write_data(incoming),
            Expect::SkipWriteData { left, refused } => self.skip_write_data(left, refused),
            Expect::Nothing | Expect::Closed => false,
        }
    }

    /// Makes a Send of what there is to send.
    fn flush_output(&mut self) {
        let bytes = self.output.queued_bytes();
        if bytes > 0 {
            self.unsent_bytes += bytes;
            self.effects.push_back(Effect::Send(self.output.take()));
        }
    }

    /// Ends the connection once no request is under way, where it is to end then.
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

    /// Ends the connection for what its client sent.
    fn fail(&mut self, fault: Fault) {
        self.close(CloseReason::Fault(fault));
    }

    /// Ends the connection. Requests that the caller has not seen yet it need not see.
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
