//! Replies to requests (sections "Simple reply message", "Structured reply chunk message").

use zerocopy::IntoBytes;

use super::Connection;
use super::in_flight::{Pending, PendingKind};
use super::options::ALLOCATION_ID;
use crate::error::{NbdError, Refusal};
use crate::limits::{EXTENTS_MAX, MESSAGE_BYTES_MAX, READ_CHUNKS_MAX};
use crate::request::{Extent, ReadPiece, Reply, RequestId};
use crate::wire::transmission::{
    CHUNK_DONE, CHUNK_MAGIC, ChunkHeader, ErrorPayload, ExtentDescriptor, HolePayload, SIMPLE_REPLY_MAGIC, SimpleReply,
    chunk, command, state,
};

/// The cookie and range of a READ.
#[derive(Clone, Copy)]
struct ReadPlace {
    cookie: u64,
    offset: u64,
    length: u32,
    unfragmented: bool,
}

impl Connection {
    /// Replies to a request.
    ///
    /// # Panics
    /// When no such request is in flight, or the reply does not match it: see [`crate::Operation`]
    /// and [`Reply`].
    pub fn reply(&mut self, id: RequestId, result: Result<Reply, NbdError>) {
        // Replies to requests that were in flight when the connection was closed are dropped.
        if self.stage() == super::Stage::Closed {
            return;
        }
        let pending = self.in_flight.remove(id).expect("a reply is to a request in flight, and the only one");
        let Pending { cookie, kind, .. } = pending;
        match (result, kind) {
            (Ok(Reply::Done), PendingKind::Plain | PendingKind::FastZeroes) => self.reply_simple(cookie, 0),
            (Ok(Reply::Read(pieces)), PendingKind::Read { offset, length, unfragmented }) => {
                self.reply_read(ReadPlace { cookie, offset, length, unfragmented }, &pieces);
            }
            (Ok(Reply::Status(extents)), PendingKind::Status { length, one }) => {
                self.reply_status(cookie, length, one, &extents);
            }
            (Err(error), kind) => self.reply_error(cookie, permitted(error, kind).into()),
            (Ok(reply), kind) => panic!("{reply:?} does not match {kind:?}"),
        }
        self.close_when_drained();
        self.pump();
    }

    /// Replies to a request of no bytes.
    pub(super) fn reply_empty(&mut self, command: u16, cookie: u64) {
        // A READ gets no simple reply once structured replies were negotiated, even without data.
        if self.structured_replies && command == command::READ {
            self.chunk(cookie, CHUNK_DONE, chunk::NONE, 0);
        } else {
            self.reply_simple(cookie, 0);
        }
    }

    pub(super) fn reply_error(&mut self, cookie: u64, refusal: Refusal) {
        if self.structured_replies {
            self.error_chunk(cookie, CHUNK_DONE, refusal, None);
        } else {
            self.reply_simple(cookie, refusal.error.code());
        }
    }

    fn reply_simple(&mut self, cookie: u64, error: u32) {
        let reply = SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
        self.output.copy(reply.as_bytes());
    }

    fn reply_read(&mut self, place: ReadPlace, pieces: &[ReadPiece]) {
        let total: usize = pieces.iter().map(ReadPiece::length).sum();
        assert_eq!(total, place.length as usize, "a reply to a READ covers its whole length");
        assert!(pieces.iter().all(|piece| piece.length() > 0), "no piece is empty");
        let first_error = pieces.iter().find_map(failure);
        if !self.structured_replies {
            if let Some(error) = first_error {
                return self.reply_simple(place.cookie, permitted_in_read(error).code());
            }
            self.reply_simple(place.cookie, 0);
            return self.content(pieces);
        }
        let runs = || pieces.chunk_by(is_one_chunk);
        let chunks = runs().count();
        let contents = runs().filter(|run| failure(&run[0]).is_none()).count();
        if chunks > READ_CHUNKS_MAX || place.unfragmented && contents > 1 {
            return self.reply_unfragmented(place, pieces);
        }
        let mut offset = place.offset;
        for (index, run) in runs().enumerate() {
            let done = if index + 1 == chunks { CHUNK_DONE } else { 0 };
            let length = run_length(run);
            match &run[0] {
                ReadPiece::Data(_) => self.data_chunk(place.cookie, done, offset, run),
                ReadPiece::Hole { .. } => {
                    let payload = HolePayload { offset: offset.into(), length: (length as u32).into() };
                    self.chunk(place.cookie, done, chunk::OFFSET_HOLE, payload.as_bytes().len());
                    self.output.copy(payload.as_bytes());
                }
                ReadPiece::Failed { error, .. } => {
                    self.error_chunk(place.cookie, done, permitted_in_read(*error).into(), Some(offset));
                }
            }
            offset += length as u64;
        }
    }

    /// One chunk with all data and zeros, unreadable parts as zeros; then the first error. The
    /// client ignores the chunk from the error's offset on.
    fn reply_unfragmented(&mut self, place: ReadPlace, pieces: &[ReadPiece]) {
        let readable = pieces.iter().take_while(|piece| failure(piece).is_none()).map(ReadPiece::length);
        let error_at = place.offset + readable.sum::<usize>() as u64;
        let first_error = pieces.iter().find_map(failure);
        let done = if first_error.is_none() { CHUNK_DONE } else { 0 };
        self.data_chunk(place.cookie, done, place.offset, pieces);
        if let Some(error) = first_error {
            self.error_chunk(place.cookie, CHUNK_DONE, permitted_in_read(error).into(), Some(error_at));
        }
    }

    fn reply_status(&mut self, cookie: u64, length: u32, one: bool, extents: &[Extent]) {
        let most = if one { 1 } else { EXTENTS_MAX };
        let granularity = u64::from(self.granularity_bytes());
        assert!(extents.iter().all(|extent| extent.length.is_multiple_of(granularity)), "extents are whole blocks");
        let descriptors = descriptors(length, most, extents);
        let context = ALLOCATION_ID.to_be_bytes();
        let bytes = context.len() + descriptors.len() * size_of::<ExtentDescriptor>();
        self.chunk(cookie, CHUNK_DONE, chunk::BLOCK_STATUS, bytes);
        self.output.copy(&context);
        self.output.copy(descriptors.as_bytes());
    }

    fn chunk(&mut self, cookie: u64, flags: u16, kind: u16, length: usize) {
        let header = ChunkHeader {
            magic: CHUNK_MAGIC.into(),
            flags: flags.into(),
            kind: kind.into(),
            cookie: cookie.into(),
            length: (length as u32).into(),
        };
        self.output.copy(header.as_bytes());
    }

    fn data_chunk(&mut self, cookie: u64, flags: u16, offset: u64, run: &[ReadPiece]) {
        self.chunk(cookie, flags, chunk::OFFSET_DATA, size_of::<u64>() + run_length(run));
        self.output.copy(&offset.to_be_bytes());
        self.content(run);
    }

    fn content(&mut self, run: &[ReadPiece]) {
        for piece in run {
            match piece {
                ReadPiece::Data(data) => self.output.data(data),
                ReadPiece::Hole { length } | ReadPiece::Failed { length, .. } => self.output.zeros(*length as usize),
            }
        }
    }

    fn error_chunk(&mut self, cookie: u64, flags: u16, refusal: Refusal, offset: Option<u64>) {
        let message = refusal.message.as_bytes();
        assert!(message.len() <= MESSAGE_BYTES_MAX, "messages are short");
        let payload =
            ErrorPayload { error: refusal.error.code().into(), message_length: (message.len() as u16).into() };
        let tail = offset.map(u64::to_be_bytes);
        let tail = tail.as_ref().map_or(&[][..], |bytes| bytes);
        let kind = if offset.is_some() { chunk::ERROR_OFFSET } else { chunk::ERROR };
        self.chunk(cookie, flags, kind, payload.as_bytes().len() + message.len() + tail.len());
        for part in [payload.as_bytes(), message, tail] {
            self.output.copy(part);
        }
    }
}

/// Extents up to the end of the request, adjacent extents of one state merged.
fn descriptors(length: u32, most: usize, extents: &[Extent]) -> Vec<ExtentDescriptor> {
    let mut descriptors: Vec<ExtentDescriptor> = Vec::with_capacity(extents.len().min(most));
    let mut left = length;
    for extent in extents {
        assert!(extent.length > 0, "an extent is not empty");
        let covered = u32::try_from(extent.length).unwrap_or(u32::MAX).min(left);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(extent.is_hole, state::HOLE) | flag(extent.is_zero, state::ZERO);
        let is_full = descriptors.len() == most;
        match descriptors.last_mut() {
            Some(last) if last.flags.get() == flags => last.length += covered,
            _ if is_full => break,
            _ => descriptors.push(ExtentDescriptor { length: covered.into(), flags: flags.into() }),
        }
        left -= covered;
        if left == 0 {
            break;
        }
    }
    assert!(!descriptors.is_empty(), "a reply to BLOCK_STATUS has at least one extent");
    descriptors
}

/// The error value that the protocol permits (section "Error values"): two are for one kind of
/// request each.
fn permitted(error: NbdError, kind: PendingKind) -> NbdError {
    match (error, kind) {
        (NbdError::TooLarge, PendingKind::Read { unfragmented: true, .. }) => error,
        (NbdError::NotSupported, PendingKind::FastZeroes) => error,
        (NbdError::TooLarge | NbdError::NotSupported, _) => NbdError::Invalid,
        _ => error,
    }
}

/// The permitted error of a part of a READ.
fn permitted_in_read(error: NbdError) -> NbdError {
    permitted(error, PendingKind::Plain)
}

fn failure(piece: &ReadPiece) -> Option<NbdError> {
    match piece {
        ReadPiece::Failed { error, .. } => Some(*error),
        ReadPiece::Data(_) | ReadPiece::Hole { .. } => None,
    }
}

/// Whether two adjacent pieces go in one chunk.
fn is_one_chunk(left: &ReadPiece, right: &ReadPiece) -> bool {
    match (left, right) {
        (ReadPiece::Data(_), ReadPiece::Data(_)) | (ReadPiece::Hole { .. }, ReadPiece::Hole { .. }) => true,
        _ => failure(left).is_some() && failure(left) == failure(right),
    }
}

fn run_length(run: &[ReadPiece]) -> usize {
    run.iter().map(ReadPiece::length).sum()
}
