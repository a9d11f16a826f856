//! The client: its requests, and their results.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zerocopy::FromBytes;

use super::assembly::{Answer, Assembly, Failure};
use super::encode::{self, Ask};
use crate::wire::handshake::{
    EXPORT_NAME_ZEROES, ExportNameReply, Greeting, NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionReplyHeader,
    flags, option, reply,
};
use crate::wire::transmission::{CHUNK_DONE, CHUNK_MAGIC, ChunkHeader, SIMPLE_REPLY_MAGIC, SimpleReply, command};

/// One reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option.
    pub option: u32,
    /// See [`reply`].
    pub kind: u32,
    /// Its data.
    pub data: Vec<u8>,
}

/// The next input from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    Options,
    Transmission,
}

/// A client that obeys the protocol and checks that the server does.
#[derive(Debug)]
pub struct Client {
    flags: u32,
    buffer: Vec<u8>,
    /// Bytes at the buffer's front that have been processed.
    taken: usize,
    stage: Stage,
    /// Options without their last reply.
    options: VecDeque<u32>,
    replies: VecDeque<OptionReply>,
    is_structured: bool,
    /// Size and transmission flags, from the reply to EXPORT_NAME.
    export: Option<(u64, u16)>,
    pending: BTreeMap<u64, Assembly>,
    finished: VecDeque<(u64, Result<Answer, Failure>)>,
}

impl Default for Client {
    fn default() -> Client {
        Client::with_flags(u32::from(flags::FIXED_NEWSTYLE | flags::NO_ZEROES))
    }
}

impl Client {
    /// A client of fixed newstyle without zeros.
    #[must_use]
    pub fn new() -> Client {
        Client::default()
    }

    /// A client with these flags: see [`flags`].
    #[must_use]
    pub fn with_flags(flags: u32) -> Client {
        Client {
            flags,
            buffer: Vec::new(),
            taken: 0,
            stage: Stage::Greeting,
            options: VecDeque::new(),
            replies: VecDeque::new(),
            is_structured: false,
            export: None,
            pending: BTreeMap::new(),
            finished: VecDeque::new(),
        }
    }

    /// Bytes to send first.
    #[must_use]
    pub fn flags(&self) -> Bytes {
        encode::client_flags(self.flags)
    }

    /// Bytes that lead straight to transmission.
    pub fn hello(&mut self, name: &str) -> Bytes {
        [self.flags(), self.go(name)].concat().into()
    }

    /// Bytes of an option.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Bytes {
        self.options.push_back(option);
        encode::option(option, data)
    }

    /// Bytes of GO.
    pub fn go(&mut self, name: &str) -> Bytes {
        self.option(option::GO, &encode::info_data(name.as_bytes(), &[]))
    }

    /// Bytes that negotiate structured replies and BLOCK_STATUS.
    pub fn structured(&mut self, name: &str) -> Bytes {
        let queries: [&[u8]; 1] = [b"base:allocation"];
        let structured = self.option(option::STRUCTURED_REPLY, &[]);
        let data = encode::meta_context_data(name.as_bytes(), &queries);
        [structured, self.option(option::SET_META_CONTEXT, &data)].concat().into()
    }

    /// Bytes of a request, with the data of a WRITE.
    ///
    /// # Panics
    /// When a request with this cookie is in flight.
    pub fn ask(&mut self, ask: Ask, data: &[u8]) -> Bytes {
        let earlier = self.pending.insert(ask.cookie, Assembly::new(ask));
        assert!(earlier.is_none(), "cookies of requests in flight are different");
        encode::request(ask, data)
    }

    /// Bytes of a READ.
    pub fn read(&mut self, cookie: u64, offset: u64, length: u32) -> Bytes {
        self.ask(Ask { command: command::READ, flags: 0, cookie, offset, length }, &[])
    }

    /// Bytes of a WRITE.
    pub fn write(&mut self, cookie: u64, offset: u64, data: &[u8]) -> Bytes {
        let length = data.len() as u32;
        self.ask(Ask { command: command::WRITE, flags: 0, cookie, offset, length }, data)
    }

    /// Bytes of a DISC, after which nothing may be sent.
    #[must_use]
    pub fn disconnect(&self) -> Bytes {
        encode::request(Ask { command: command::DISC, flags: 0, cookie: 0, offset: 0, length: 0 }, &[])
    }

    /// Processes bytes from the server.
    ///
    /// # Panics
    /// When they violate the protocol.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        loop {
            let message = match self.stage {
                Stage::Greeting => self.greeting(),
                Stage::Options if self.options.front() == Some(&option::EXPORT_NAME) => self.export_name(),
                Stage::Options => self.option_reply(),
                Stage::Transmission => self.reply(),
            };
            let Some(length) = message else { break };
            self.taken += length;
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
    }

    /// The next reply to an option.
    pub fn option_replied(&mut self) -> Option<OptionReply> {
        self.replies.pop_front()
    }

    /// Size and transmission flags, from the reply to EXPORT_NAME.
    #[must_use]
    pub fn export(&self) -> Option<(u64, u16)> {
        self.export
    }

    /// Whether requests may be sent.
    #[must_use]
    pub fn is_in_transmission(&self) -> bool {
        self.stage == Stage::Transmission
    }

    /// The next request that has ended: its cookie and its result.
    pub fn finished(&mut self) -> Option<(u64, Result<Answer, Failure>)> {
        self.finished.pop_front()
    }

    /// Whether every request has ended, and no input is left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.buffer.is_empty() && self.options.is_empty()
    }

    /// Bytes that have not been processed.
    fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    fn greeting(&mut self) -> Option<usize> {
        let (greeting, _) = Greeting::read_from_prefix(self.rest()).ok()?;
        assert_eq!((greeting.nbd_magic.get(), greeting.option_magic.get()), (NBD_MAGIC, OPTION_MAGIC));
        assert_eq!(greeting.flags.get(), flags::FIXED_NEWSTYLE | flags::NO_ZEROES);
        self.stage = Stage::Options;
        Some(size_of::<Greeting>())
    }

    fn export_name(&mut self) -> Option<usize> {
        let has_zeroes = self.flags & u32::from(flags::NO_ZEROES) == 0;
        let length = size_of::<ExportNameReply>() + if has_zeroes { EXPORT_NAME_ZEROES } else { 0 };
        let (reply, zeroes) = self.rest().get(..length)?.split_at(size_of::<ExportNameReply>());
        assert!(zeroes.iter().all(|&byte| byte == 0), "zeros are zeros");
        let reply = ExportNameReply::read_from_bytes(reply).expect("its bytes");
        self.export = Some((reply.size.get(), reply.flags.get()));
        self.options.pop_front();
        self.stage = Stage::Transmission;
        Some(length)
    }

    fn option_reply(&mut self) -> Option<usize> {
        let (header, rest) = OptionReplyHeader::read_from_prefix(self.rest()).ok()?;
        let data = rest.get(..header.length.get() as usize)?.to_vec();
        assert_eq!(header.magic.get(), OPTION_REPLY_MAGIC, "a reply to an option");
        let (option, kind) = (header.option.get(), header.kind.get());
        assert_eq!(self.options.front(), Some(&option), "replies come in the order of the options");
        if kind == reply::ACK || kind & reply::ERROR != 0 {
            self.options.pop_front();
        }
        match option {
            option::GO if kind == reply::ACK => self.stage = Stage::Transmission,
            option::STRUCTURED_REPLY if kind == reply::ACK => self.is_structured = true,
            option::STARTTLS if kind == reply::ACK => self.is_structured = false,
            _ => {}
        }
        let length = size_of::<OptionReplyHeader>() + data.len();
        self.replies.push_back(OptionReply { option, kind, data });
        Some(length)
    }

    fn reply(&mut self) -> Option<usize> {
        match u32::from_be_bytes(*self.rest().first_chunk::<4>()?) {
            SIMPLE_REPLY_MAGIC => self.simple_reply(),
            CHUNK_MAGIC => self.chunk(),
            other => panic!("{other:#x} is not the magic of a reply"),
        }
    }

    fn simple_reply(&mut self) -> Option<usize> {
        let (header, rest) = SimpleReply::read_from_prefix(&self.buffer[self.taken..]).ok()?;
        let (cookie, error) = (header.cookie.get(), header.error.get());
        let ask = self.pending.get(&cookie).expect("a reply to a request in flight").ask;
        let is_read = ask.command == command::READ;
        let needs_chunks = is_read || ask.command == command::BLOCK_STATUS;
        assert!(!needs_chunks || !self.is_structured, "structured replies were negotiated");
        let length = if is_read && error == 0 { ask.length as usize } else { 0 };
        let data = rest.get(..length)?;
        let assembly = self.pending.remove(&cookie).expect("it was just here");
        self.finished.push_back((cookie, assembly.simple(error, data)));
        Some(size_of::<SimpleReply>() + length)
    }

    fn chunk(&mut self) -> Option<usize> {
        let (header, rest) = ChunkHeader::read_from_prefix(&self.buffer[self.taken..]).ok()?;
        let length = header.length.get() as usize;
        let payload = rest.get(..length)?;
        assert!(self.is_structured, "structured replies were not negotiated");
        let cookie = header.cookie.get();
        let assembly = self.pending.get_mut(&cookie).expect("a reply to a request in flight");
        assembly.chunk(header.flags.get(), header.kind.get(), payload);
        if header.flags.get() & CHUNK_DONE != 0 {
            let assembly = self.pending.remove(&cookie).expect("it was just here");
            self.finished.push_back((cookie, assembly.finish()));
        }
        Some(size_of::<ChunkHeader>() + length)
    }
}
