//! Assembles the reply to one request from its messages, and checks them against the protocol.

use zerocopy::FromBytes;
use zerocopy::network_endian::U32;

use super::encode::Ask;
use crate::error::NbdError;
use crate::request::Extent;
use crate::wire::transmission::{
    CHUNK_DONE, ErrorPayload, ExtentDescriptor, HolePayload, chunk, command, command_flags, state,
};

/// The result of a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request is complete.
    Done,
    /// Of a READ.
    Data(Vec<u8>),
    /// Of a BLOCK_STATUS.
    Status(Vec<Extent>),
}

/// The result of a request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The first error.
    pub error: NbdError,
    /// Its offset, if the server reported it.
    pub offset: Option<u64>,
    /// Data of a READ received nevertheless: offsets and data.
    pub contents: Vec<(u64, Vec<u8>)>,
}

/// A reply that is not complete.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) ask: Ask,
    contents: Vec<(u64, Vec<u8>)>,
    status: Option<Vec<Extent>>,
    errors: Vec<(NbdError, Option<u64>)>,
}

impl Assembly {
    pub(super) fn new(ask: Ask) -> Assembly {
        Assembly { ask, contents: Vec::new(), status: None, errors: Vec::new() }
    }

    /// A simple reply, which is complete.
    pub(super) fn simple(mut self, error: u32, data: &[u8]) -> Result<Answer, Failure> {
        if error != 0 {
            self.errors.push((known(error), None));
        } else if self.ask.command == command::READ {
            self.content(self.ask.offset, data.to_vec());
        }
        self.finish()
    }

    /// A chunk of a structured reply.
    pub(super) fn chunk(&mut self, flags: u16, kind: u16, payload: &[u8]) {
        assert_eq!(flags & !CHUNK_DONE, 0, "no flag but DONE");
        match kind {
            chunk::NONE => assert!(flags & CHUNK_DONE != 0 && payload.is_empty(), "NONE is the last, and empty"),
            chunk::OFFSET_DATA => {
                let (offset, data) = payload.split_first_chunk::<8>().expect("an offset");
                assert!(!data.is_empty(), "a chunk has data");
                self.content(u64::from_be_bytes(*offset), data.to_vec());
            }
            chunk::OFFSET_HOLE => {
                let hole = HolePayload::read_from_bytes(payload).expect("twelve bytes");
                assert!(hole.length.get() > 0, "a hole has a length");
                self.content(hole.offset.get(), vec![0; hole.length.get() as usize]);
            }
            chunk::BLOCK_STATUS => self.block_status(payload),
            chunk::ERROR | chunk::ERROR_OFFSET => self.error(kind, payload),
            _ => panic!("a chunk of type {kind}"),
        }
    }

    /// The reply is complete.
    pub(super) fn finish(mut self) -> Result<Answer, Failure> {
        self.contents.sort_by_key(|(offset, _)| *offset);
        if let Some(&(error, offset)) = self.errors.first() {
            return Err(Failure { error, offset, contents: self.contents });
        }
        match self.ask.command {
            command::READ => {
                let data = self.contents.into_iter().map(|(_, data)| data).collect::<Vec<_>>().concat();
                assert_eq!(
                    data.len(),
                    self.ask.length as usize,
                    "chunks that do not overlap and have the length cover the request"
                );
                Ok(Answer::Data(data))
            }
            command::BLOCK_STATUS => Ok(Answer::Status(self.status.expect("a chunk for the one context"))),
            _ => Ok(Answer::Done),
        }
    }

    fn content(&mut self, offset: u64, data: Vec<u8>) {
        assert_eq!(self.ask.command, command::READ, "content is for READ");
        let end = offset + data.len() as u64;
        let asked = self.ask.offset..self.ask.offset + u64::from(self.ask.length);
        assert!(asked.start <= offset && end <= asked.end, "content lies within the request");
        let overlaps = |(other, known): &(u64, Vec<u8>)| *other < end && offset < other + known.len() as u64;
        assert!(!self.contents.iter().any(overlaps), "contents do not overlap");
        let is_after_error = |(_, at): &(NbdError, Option<u64>)| at.is_some_and(|at| (offset..end).contains(&at));
        assert!(!self.errors.iter().any(is_after_error), "content comes before the error in it");
        self.contents.push((offset, data));
        let is_fragmented = self.ask.flags & command_flags::DF != 0 && self.contents.len() > 1;
        assert!(!is_fragmented, "one content chunk with DF");
    }

    fn block_status(&mut self, payload: &[u8]) {
        let (context, descriptors) = payload.split_first_chunk::<4>().expect("a context");
        assert_eq!(u32::from_be_bytes(*context), 1, "the id from SET_META_CONTEXT");
        assert!(self.status.is_none() && self.ask.command == command::BLOCK_STATUS, "one chunk a context");
        let descriptors = <[ExtentDescriptor]>::ref_from_bytes(descriptors).expect("whole descriptors");
        let lengths = || descriptors.iter().map(|descriptor| u64::from(descriptor.length.get()));
        assert!(!descriptors.is_empty() && lengths().all(|length| length > 0), "descriptors have lengths");
        let all_but_last: u64 = lengths().take(descriptors.len() - 1).sum();
        assert!(all_but_last < u64::from(self.ask.length), "no descriptor begins beyond the request");
        if self.ask.flags & command_flags::REQ_ONE != 0 {
            let fits = descriptors.len() == 1 && descriptors[0].length.get() <= self.ask.length;
            assert!(fits, "one descriptor, no longer than the request");
        }
        let has = |flags: U32, flag: u32| flags.get() & flag != 0;
        let extents = descriptors.iter().map(|descriptor| Extent {
            length: u64::from(descriptor.length.get()),
            is_hole: has(descriptor.flags, state::HOLE),
            is_zero: has(descriptor.flags, state::ZERO),
        });
        self.status = Some(extents.collect());
    }

    fn error(&mut self, kind: u16, payload: &[u8]) {
        let (front, rest) = ErrorPayload::read_from_prefix(payload).expect("a front");
        let (message, tail) = rest.split_at(usize::from(front.message_length.get()));
        assert!(std::str::from_utf8(message).is_ok_and(|text| !text.contains('\0')), "a message is text");
        let offset = (kind == chunk::ERROR_OFFSET)
            .then(|| u64::from_be_bytes(tail.try_into().expect("an offset, and nothing after it")));
        assert!(offset.is_some() || tail.is_empty(), "nothing after the message");
        let end = self.ask.offset.saturating_add(u64::from(self.ask.length));
        assert!(offset.is_none_or(|at| (self.ask.offset..end).contains(&at)), "an error lies within the request");
        self.errors.push((known(front.error.get()), offset));
    }
}

fn known(error: u32) -> NbdError {
    NbdError::from_code(error).expect("an error value of the protocol")
}
