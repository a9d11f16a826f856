//! A server's connection, its caller, and a client.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::testing::{self, Answer, Ask, Client, Failure, OptionReply};
use crate::{
    CloseReason, Connection, Effect, Export, ExportIndex, NbdError, Operation, Reply, Request, Server, ServerConfig,
};

/// Bytes of the exports of [`config`].
pub(super) const SIZE: u64 = 1 << 20;

/// Two exports, the second read-only and in blocks of 512 bytes.
pub(super) fn config() -> ServerConfig {
    let mut disk = Export::new("disk", SIZE);
    disk.description = "a disk to try things on".to_owned();
    let mut relic = Export::new("relic", SIZE);
    (relic.read_only, relic.minimum_block_bytes, relic.maximum_block_bytes) = (true, 512, 65_536);
    ServerConfig::new(vec![disk, relic])
}

pub(super) struct Testbed {
    pub(super) connection: Connection,
    pub(super) client: Client,
    /// Requests that have no reply.
    pub(super) requests: VecDeque<Request>,
    pub(super) opened: Option<ExportIndex>,
    pub(super) closed: Option<CloseReason>,
    /// Whether the connection has emitted StartTls.
    pub(super) tls: bool,
    /// Whether the caller holds the output back until [`Testbed::release`].
    pub(super) hold: bool,
    pub(super) unsent: Vec<u8>,
}

impl Testbed {
    pub(super) fn new(config: ServerConfig) -> Testbed {
        Testbed::with_client(config, Client::new())
    }

    pub(super) fn with_client(config: ServerConfig, client: Client) -> Testbed {
        let server = Server::new(config).expect("a valid configuration");
        let mut testbed = Testbed {
            connection: server.connect(),
            client,
            requests: VecDeque::new(),
            opened: None,
            closed: None,
            tls: false,
            hold: false,
            unsent: Vec::new(),
        };
        testbed.run_effects();
        testbed
    }

    /// A testbed whose client has sent its flags.
    pub(super) fn greeted(config: ServerConfig) -> Testbed {
        let mut testbed = Testbed::new(config);
        let flags = testbed.client.flags();
        testbed.feed(&flags);
        testbed
    }

    /// A testbed in transmission with simple replies.
    pub(super) fn simple(name: &str) -> Testbed {
        let mut testbed = Testbed::greeted(config());
        let go = testbed.client.go(name);
        testbed.feed(&go);
        testbed.forget_replies()
    }

    /// A testbed in transmission with structured replies and `base:allocation`.
    pub(super) fn structured(name: &str) -> Testbed {
        Testbed::structured_with(config(), name)
    }

    pub(super) fn structured_with(config: ServerConfig, name: &str) -> Testbed {
        let mut testbed = Testbed::greeted(config);
        let structured = testbed.client.structured(name);
        testbed.feed(&structured);
        let go = testbed.client.go(name);
        testbed.feed(&go);
        testbed.forget_replies()
    }

    fn forget_replies(mut self) -> Testbed {
        while self.client.option_replied().is_some() {}
        assert!(self.client.is_in_transmission());
        self
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.connection.on_bytes(Bytes::copy_from_slice(bytes));
        self.run_effects();
    }

    /// An option, and its replies.
    pub(super) fn option(&mut self, option: u32, data: &[u8]) -> Vec<OptionReply> {
        let bytes = self.client.option(option, data);
        self.feed(&bytes);
        std::iter::from_fn(|| self.client.option_replied()).collect()
    }

    /// An option, and the type of its only reply.
    pub(super) fn option_reply(&mut self, option: u32, data: &[u8]) -> u32 {
        let replies = self.option(option, data);
        assert_eq!(replies.len(), 1, "one reply to option {option}");
        replies[0].kind
    }

    /// Sends a request, and returns the operation that the caller gets.
    pub(super) fn ask(&mut self, ask: Ask, data: &[u8]) -> Operation {
        let bytes = self.client.ask(ask, data);
        self.feed(&bytes);
        assert_eq!(self.client.finished(), None);
        self.requests.back().expect("a request for the caller").operation.clone()
    }

    /// Sends a request that the server answers by itself, and returns the answer.
    pub(super) fn ask_server(&mut self, ask: Ask, data: &[u8]) -> Result<Answer, Failure> {
        let bytes = self.client.ask(ask, data);
        self.feed(&bytes);
        assert!(self.requests.is_empty(), "nothing for the caller");
        self.finished(ask.cookie)
    }

    /// The error of a request that the server refuses.
    pub(super) fn refusal(&mut self, ask: Ask, data: &[u8]) -> NbdError {
        self.ask_server(ask, data).expect_err("a refusal").error
    }

    /// Answers the oldest request.
    pub(super) fn reply(&mut self, result: Result<Reply, NbdError>) {
        let request = self.requests.pop_front().expect("a request for the caller");
        self.connection.reply(request.id, result);
        self.run_effects();
    }

    pub(super) fn finished(&mut self, cookie: u64) -> Result<Answer, Failure> {
        let (finished, result) = self.client.finished().expect("a request that has ended");
        assert_eq!(finished, cookie);
        result
    }

    /// Executes the effects of the connection.
    pub(super) fn run_effects(&mut self) {
        while let Some(effect) = self.connection.poll_effect() {
            assert_eq!(self.closed, None, "nothing comes after Close");
            match effect {
                Effect::Send(pieces) => {
                    self.unsent.extend_from_slice(&pieces.concat());
                    if !self.hold {
                        self.release();
                    }
                }
                Effect::StartTls => self.tls = true,
                Effect::Open(index) => self.opened = Some(index),
                Effect::Request(request) => self.requests.push_back(request),
                Effect::Close(reason) => self.closed = Some(reason),
            }
            self.connection.check_invariants();
        }
        self.connection.check_invariants();
    }

    /// Sends the held output to the client.
    pub(super) fn release(&mut self) {
        let bytes = std::mem::take(&mut self.unsent);
        self.client.on_bytes(&bytes);
        self.connection.on_sent(bytes.len());
    }
}

/// A request of a command without flags.
pub(super) fn ask(command: u16, cookie: u64, offset: u64, length: u32) -> Ask {
    Ask { command, flags: 0, cookie, offset, length }
}

/// Bytes of invalid options or requests.
pub(super) fn raw_request(magic: u32, ask: Ask) -> Vec<u8> {
    let mut bytes = testing::request(ask, &[]).to_vec();
    bytes[..4].copy_from_slice(&magic.to_be_bytes());
    bytes
}
