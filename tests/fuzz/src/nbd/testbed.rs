//! A connection, its caller with an export in memory, and its client.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_nbd::limits::DATA_BYTES_MIN;
use zonda_nbd::testing::{self, Ask, Client};
use zonda_nbd::wire::handshake::flags;
use zonda_nbd::wire::transmission::command;
use zonda_nbd::{
    CloseReason, Connection, Effect, Export, Extent, Limits, NbdError, Operation, ReadPiece, Reply, Request, Server,
    ServerConfig, Stage, TlsPolicy,
};

/// Bytes of the export that are stored; the rest is a hole.
pub(super) const STORE_BYTES: u64 = 64 << 10;
/// Bytes of the export.
pub(super) const SIZE_BYTES: u64 = 1 << 40;
/// Bytes that are delivered at once.
const CHUNK_BYTES: usize = 8192;
/// Pieces of the reply to a READ: more than the server sends as separate chunks.
const PIECES_MAX: u32 = 200;
/// Bytes that an honest client reads at once: it stores them all.
const HONEST_BYTES_MAX: u32 = 32 << 10;

pub(super) struct Testbed {
    connection: Connection,
    limits: Limits,
    client: Client,
    /// Whether the client has conformed to the protocol so far, so that the replies can be checked.
    is_honest: bool,
    asked: u64,
    to_send: VecDeque<u8>,
    /// Sent by the server and not read by the client.
    unread: VecDeque<Bytes>,
    /// Whether the client does not read.
    pub(super) hold: bool,
    requests: Vec<Request>,
    store: Vec<u8>,
    closed: Option<CloseReason>,
    is_disconnected: bool,
}

impl Testbed {
    pub(super) fn new(choice: u8) -> Testbed {
        let mut disk = Export::new("disk", SIZE_BYTES);
        (disk.fast_zero, disk.description) = (choice & 0x20 != 0, "in memory".to_owned());
        let mut relic = Export::new("relic", STORE_BYTES);
        (relic.read_only, relic.minimum_block_bytes, relic.maximum_block_bytes) = (true, 512, 65_536);
        let limits = Limits { requests: [1, 2, 8, 64][usize::from(choice >> 3 & 3)], data_bytes: DATA_BYTES_MIN };
        let tls = [TlsPolicy::Off, TlsPolicy::Allowed, TlsPolicy::Required][usize::from(choice & 3) % 3];
        let config = ServerConfig { tls, limits, ..ServerConfig::new(vec![disk, relic]) };
        let no_zeroes = if choice & 4 == 0 { 0 } else { flags::NO_ZEROES };
        let client = Client::with_flags(u32::from(flags::FIXED_NEWSTYLE | no_zeroes));
        let to_send = client.flags().iter().copied().collect();
        let mut testbed = Testbed {
            connection: Server::new(config).expect("a valid configuration").connect(),
            limits,
            client,
            is_honest: true,
            asked: 0,
            to_send,
            unread: VecDeque::new(),
            hold: false,
            requests: Vec::new(),
            store: (0..STORE_BYTES).map(|index| (index / 512) as u8).collect(),
            closed: None,
            is_disconnected: false,
        };
        testbed.run_until_idle();
        testbed
    }

    pub(super) fn is_over(&self) -> bool {
        self.closed.is_some() || self.is_disconnected
    }

    /// Sends an option. An honest client waits for its replies, and sends no option in the
    /// transmission phase.
    pub(super) fn send_option(&mut self, code: u32, data: &[u8]) {
        if !self.is_honest {
            return self.to_send.extend(testing::option(code, data));
        }
        self.catch_up();
        if !self.is_over() && self.connection.stage() == Stage::Handshake {
            let bytes = self.client.option(code, data);
            self.to_send.extend(bytes);
            self.catch_up();
            // EXPORT_NAME and ABORT may have no reply.
            let is_answered = self.is_over() || self.client.is_idle();
            assert!(is_answered, "option {code} has received its replies");
            while self.client.option_replied().is_some() {}
        }
    }

    /// Sends a request. An honest client sends it in the transmission phase, with a unique cookie.
    pub(super) fn send_request(&mut self, ask: Ask) {
        let data = vec![self.asked as u8; if ask.command == command::WRITE { ask.length as usize } else { 0 }];
        let mut ask = Ask { cookie: self.asked, ..ask };
        if !self.is_honest {
            self.to_send.extend(testing::request(ask, &data));
        } else if self.client.is_in_transmission() {
            ask.length = ask.length.min(HONEST_BYTES_MAX);
            self.to_send.extend(self.client.ask(ask, &data));
        }
        self.asked += 1;
    }

    /// Sends arbitrary bytes.
    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.is_honest = false;
        self.to_send.extend(bytes);
    }

    /// Delivers some of the client's output, once even if the connection has paused.
    pub(super) fn send(&mut self, most: usize) {
        let mut left = most;
        while left > 0 && !self.to_send.is_empty() && !self.is_over() {
            let length = left.min(self.to_send.len()).min(CHUNK_BYTES);
            left -= length;
            let chunk: Bytes = self.to_send.drain(..length).collect::<Vec<u8>>().into();
            let wanted = self.connection.wants_bytes();
            let before = self.connection.buffered_bytes();
            self.connection.on_bytes(chunk);
            let bound = if wanted { self.limits.buffered_bytes_max() } else { before };
            assert!(self.connection.buffered_bytes() <= bound + length, "buffered bytes are bounded");
            self.run_until_idle();
            if !self.connection.wants_bytes() {
                break;
            }
        }
    }

    /// The client reads the sent bytes, and the connection is notified.
    pub(super) fn release(&mut self) {
        for piece in std::mem::take(&mut self.unread) {
            if self.is_honest {
                self.client.on_bytes(&piece);
            }
            self.connection.on_sent(piece.len());
        }
        self.run_until_idle();
        while self.client.finished().is_some() {}
    }

    /// The caller completes one of its requests, with success or failure.
    pub(super) fn reply(&mut self, which: usize, how: u8, cut: u16) {
        if self.requests.is_empty() {
            return;
        }
        let request = self.requests.swap_remove(which % self.requests.len());
        let result = self.answer(&request.operation, how, u32::from(cut).max(1));
        self.connection.reply(request.id, result);
        self.run_until_idle();
    }

    pub(super) fn disconnect(&mut self) {
        if self.connection.stage() == Stage::Transmission {
            self.to_send.extend(self.client.disconnect());
            self.catch_up();
            self.finish_requests();
            assert!(!self.is_honest || self.closed == Some(CloseReason::Disconnected), "{:?}", self.closed);
        }
    }

    pub(super) fn shutdown(&mut self) {
        self.connection.shutdown();
        self.run_until_idle();
        self.finish_requests();
        assert!(self.closed.is_some(), "no request is in flight, and the server closes the connection");
    }

    /// The socket is closed.
    pub(super) fn close_socket(&mut self) {
        self.connection.on_disconnect();
        self.is_disconnected = true;
        assert!(self.connection.poll_effect().is_none() && self.connection.buffered_bytes() == 0);
        let late = std::mem::take(&mut self.requests);
        late.into_iter().for_each(|request| self.connection.reply(request.id, Err(NbdError::Io)));
        self.connection.check_invariants();
    }

    /// Completes all requests in flight; an honest client has received all replies.
    pub(super) fn finish(mut self) {
        if self.is_disconnected {
            return;
        }
        self.hold = false;
        self.catch_up();
        self.release();
        self.finish_requests();
        let stage = self.connection.stage();
        assert_eq!(stage == Stage::Closed, self.closed.is_some(), "a closed connection has reported Close");
        if self.closed.is_none() {
            assert!(self.connection.wants_bytes() && self.to_send.is_empty(), "no input waits");
            assert!(!self.is_honest || self.client.is_idle(), "every request has completed");
        }
        if self.is_honest {
            assert!(!matches!(self.closed, Some(CloseReason::Fault(_))), "an honest client: {:?}", self.closed);
        }
    }

    /// Delivers all of the client's output, and reads all replies; completes requests to free
    /// slots.
    fn catch_up(&mut self) {
        while !self.to_send.is_empty() && !self.is_over() {
            self.send(usize::MAX);
            self.release();
            if !self.connection.wants_bytes() {
                self.finish_requests();
            }
        }
        self.release();
    }

    fn finish_requests(&mut self) {
        while !self.requests.is_empty() {
            self.reply(0, 0, 1000);
            self.release();
        }
    }

    fn run_until_idle(&mut self) {
        while let Some(effect) = self.connection.poll_effect() {
            assert!(self.closed.is_none(), "there is no effect after Close");
            match effect {
                Effect::Send(pieces) => self.unread.extend(pieces),
                Effect::Request(request) => {
                    self.within_the_export(&request.operation);
                    self.requests.push(request);
                }
                Effect::Open(index) => assert_eq!(self.connection.export(), Some(index)),
                Effect::StartTls => assert!(self.connection.is_encrypted()),
                Effect::Close(reason) => {
                    assert!(!reason.to_string().is_empty());
                    self.closed = Some(reason);
                    self.requests.clear();
                }
            }
        }
        self.connection.check_invariants();
        assert_eq!(self.connection.requests_in_flight(), self.requests.len(), "the caller has all requests");
        assert!(self.requests.len() <= self.limits.requests);
        if !self.hold && !self.unread.is_empty() && self.closed.is_none() {
            self.release();
        }
    }

    fn within_the_export(&self, operation: &Operation) {
        let (offset, length) = match operation {
            Operation::Read { offset, length }
            | Operation::Trim { offset, length, .. }
            | Operation::WriteZeroes { offset, length, .. }
            | Operation::BlockStatus { offset, length, .. } => (*offset, *length),
            Operation::Write { offset, data, .. } => (*offset, data.len() as u32),
            Operation::Flush => return,
        };
        let is_disk = self.connection.export().is_some_and(|index| index.0 == 0);
        let (size, block) = if is_disk { (SIZE_BYTES, 1) } else { (STORE_BYTES, 512) };
        assert!(length > 0 && offset + u64::from(length) <= size, "{operation:?}");
        assert!((offset | u64::from(length)).is_multiple_of(block), "{operation:?}");
    }

    /// The reply of the export in memory.
    fn answer(&mut self, operation: &Operation, how: u8, cut: u32) -> Result<Reply, NbdError> {
        if how & 7 == 7 {
            return Err(NbdError::ALL[usize::from(how >> 3) % NbdError::ALL.len()]);
        }
        match operation {
            Operation::Read { offset, length } => return Ok(Reply::Read(self.pieces(*offset, *length, how, cut))),
            Operation::BlockStatus { offset, length, .. } => {
                let block = if self.connection.export().is_some_and(|index| index.0 == 0) { 1 } else { 512 };
                let kept = STORE_BYTES.saturating_sub(*offset).min(u64::from(*length));
                let data = Extent { length: kept, is_hole: false, is_zero: false };
                let part = Extent { length: u64::from(cut) * block, is_hole: how & 1 != 0, is_zero: true };
                let hole = Extent { length: 1 << 40, is_hole: true, is_zero: true };
                let extents = [data, part, hole].into_iter().filter(|extent| extent.length > 0).collect();
                return Ok(Reply::Status(extents));
            }
            Operation::Write { offset, data, .. } => self.put(*offset, data),
            Operation::WriteZeroes { offset, length, .. } | Operation::Trim { offset, length, .. } => {
                self.put(*offset, &vec![0; (*length).min(STORE_BYTES as u32) as usize]);
            }
            Operation::Flush => {}
        }
        Ok(Reply::Done)
    }

    fn put(&mut self, offset: u64, data: &[u8]) {
        let start = offset.min(STORE_BYTES) as usize;
        let end = (start + data.len()).min(STORE_BYTES as usize);
        self.store[start..end].copy_from_slice(&data[..end - start]);
    }

    /// The stored data in pieces of a length, then a hole; parts of them are unreadable.
    fn pieces(&self, offset: u64, length: u32, how: u8, cut: u32) -> Vec<ReadPiece> {
        let kept = STORE_BYTES.saturating_sub(offset).min(u64::from(length)) as u32;
        let cut = cut.max(kept / PIECES_MAX);
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < kept {
            let part = cut.min(kept - at);
            let start = offset as usize + at as usize;
            pieces.push(match (how & 3, pieces.len() % 3) {
                (1, 1) | (2, 0) => ReadPiece::Failed { length: part, error: NbdError::Io },
                (3, 1) => ReadPiece::Hole { length: part },
                _ => ReadPiece::Data(Bytes::copy_from_slice(&self.store[start..start + part as usize])),
            });
            at += part;
        }
        if at < length {
            pieces.push(ReadPiece::Hole { length: length - at });
        }
        pieces
    }
}
