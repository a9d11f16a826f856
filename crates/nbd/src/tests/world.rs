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

pub(super) struct World {
    pub(super) connection: Connection,
    pub(super) client: Client,
    /// Requests that have no reply.
    pub(super) requests: VecDeque<Request>,
    pub(super) opened: Option<ExportIndex>,
    pub(super) closed: Option<CloseReason>,
    /// Whether the caller has been told to start TLS.
    pub(super) tls: bool,
    /// Whether what is sent stays with the caller, who then calls [`World::release`].
    pub(super) hold: bool,
    pub(super) unsent: Vec<u8>,
}

impl World {
    pub(super) fn new(config: ServerConfig) -> World {
        World::with_client(config, Client::new())
    }

    pub(super) fn with_client(config: ServerConfig, client: Client) -> World {
        let server = Server::new(config).expect("a configuration that can be served");
        let mut world = World {
            connection: server.connect(),
            client,
            requests: VecDeque::new(),
            opened: None,
            closed: None,
            tls: false,
            hold: false,
            unsent: Vec::new(),
        };
        world.settle();
        world
    }

    /// A world whose client has sent its flags.
    pub(super) fn greeted(config: ServerConfig) -> World {
        let mut world = World::new(config);
        let flags = world.client.flags();
        world.feed(&flags);
        world
    }

    /// A world in transmission with simple replies.
    pub(super) fn simple(name: &str) -> World {
        let mut world = World::greeted(config());
        let go = world.client.go(name);
        world.feed(&go);
        world.forget_replies()
    }

    /// A world in transmission with structured replies and `base:allocation`.
    pub(super) fn structured(name: &str) -> World {
        World::structured_with(config(), name)
    }

    pub(super) fn structured_with(config: ServerConfig, name: &str) -> World {
        let mut world = World::greeted(config);
        let structured = world.client.structured(name);
        world.feed(&structured);
        let go = world.client.go(name);
        world.feed(&go);
        world.forget_replies()
    }

    fn forget_replies(mut self) -> World {
        while self.client.option_replied().is_some() {}
        assert!(self.client.is_in_transmission());
        self
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.connection.received(Bytes::copy_from_slice(bytes));
        self.settle();
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

    /// A request that the caller is to get, as it gets it.
    pub(super) fn ask(&mut self, ask: Ask, data: &[u8]) -> Operation {
        let bytes = self.client.ask(ask, data);
        self.feed(&bytes);
        assert_eq!(self.client.finished(), None);
        self.requests.back().expect("a request for the caller").operation.clone()
    }

    /// A request that the server answers by itself, and the answer.
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

    /// Answers the request that has waited longest.
    pub(super) fn reply(&mut self, result: Result<Reply, NbdError>) {
        let request = self.requests.pop_front().expect("a request for the caller");
        self.connection.reply(request.id, result);
        self.settle();
    }

    pub(super) fn finished(&mut self, cookie: u64) -> Result<Answer, Failure> {
        let (finished, result) = self.client.finished().expect("a request that has ended");
        assert_eq!(finished, cookie);
        result
    }

    /// Does what the connection wants done.
    pub(super) fn settle(&mut self) {
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

    /// What was to be sent leaves for the client.
    pub(super) fn release(&mut self) {
        let bytes = std::mem::take(&mut self.unsent);
        self.client.received(&bytes);
        self.connection.sent(bytes.len());
    }
}

/// A request of a command without flags.
pub(super) fn ask(command: u16, cookie: u64, offset: u64, length: u32) -> Ask {
    Ask { command, flags: 0, cookie, offset, length }
}

/// Bytes of options or requests that no client makes.
pub(super) fn raw_request(magic: u32, ask: Ask) -> Vec<u8> {
    let mut bytes = testing::request(ask, &[]).to_vec();
    bytes[..4].copy_from_slice(&magic.to_be_bytes());
    bytes
}
