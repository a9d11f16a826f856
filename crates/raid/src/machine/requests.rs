//! Host requests: the parts that they wait for, and their results.
//!
//! Operations, in their order: [`begin`](Requests::begin), [`add_parts`](Requests::add_parts) for
//! what it waits for, [`add_data`](Requests::add_data) for blocks that were read,
//! [`end_part`](Requests::end_part); the completion is returned by [`poll`](Requests::poll). A
//! request begins with one part more than it waits for, so that it does not complete before it is
//! fully set up.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zonda_zoned::{BlockBuffer, CommandId, Completion, Key, Outcome, Payload, Slab, Status};

use super::spec::Spec;
use crate::limits::REQUESTS_MAX;

/// Owns the outstanding requests of hosts, and their completions.
#[derive(Debug, Default)]
pub(super) struct Requests {
    requests: Slab<Request>,
    completions: VecDeque<Completion>,
    /// Blocks written by hosts.
    host_blocks: u64,
}

/// A request that has not completed.
pub(super) type RequestKey = Key<Request>;

/// A request in flight.
#[derive(Debug)]
pub(super) struct Request {
    id: CommandId,
    /// Outstanding parts: blocks of a write, fetches of a read, stripes or members of a flush.
    pending: u64,
    status: Status,
    answer: Answer,
}

/// The result of a request.
#[derive(Debug)]
pub(super) enum Answer {
    None,
    /// All blocks of a read arrived in one buffer, which is returned as it is.
    Whole(Box<BlockBuffer>),
    /// Blocks of a read, in any order, with the first block of each piece; all other blocks read as
    /// zeros.
    Pieces {
        bytes: usize,
        pieces: Vec<(u32, Bytes)>,
    },
    /// A read without contents.
    NoContents,
    /// A flush: stripes first, then the members' caches.
    Flush,
}

impl Requests {
    /// Begins a request that waits for this many parts.
    #[inline]
    pub(super) fn begin(&mut self, id: CommandId, pending: u64, answer: Answer) -> RequestKey {
        assert!(pending > 0, "a request that waits for nothing would not complete");
        self.requests.insert(Request { id, pending, status: Status::Success, answer })
    }

    /// Begins a write, each block of which is a part.
    pub(super) fn begin_write(&mut self, id: CommandId, blocks: u64) -> RequestKey {
        self.host_blocks += blocks;
        self.begin(id, blocks, Answer::None)
    }

    /// A request waits for more parts.
    pub(super) fn add_parts(&mut self, request: RequestKey, parts: u64) {
        self.requests[request].pending += parts;
    }

    /// Blocks of a read have arrived, the first of them is block `at` of the request.
    pub(super) fn add_data(&mut self, request: RequestKey, at: u32, data: Bytes) {
        if let Answer::Pieces { pieces, .. } = &mut self.requests[request].answer {
            pieces.push((at, data));
        }
    }

    /// The same for a whole buffer: usually it has all requested blocks.
    #[inline]
    pub(super) fn add_buffer(&mut self, request: RequestKey, at: u32, mut buffer: Box<BlockBuffer>) {
        let answer = &mut self.requests[request].answer;
        match answer {
            Answer::Pieces { bytes, pieces } if buffer.data.len() == *bytes => {
                assert!(at == 0 && pieces.is_empty(), "a buffer of the size of a read has all of its blocks");
                buffer.metadata = Bytes::new();
                *answer = Answer::Whole(buffer);
            }
            _ => self.add_data(request, at, buffer.data),
        }
    }

    /// A request will end with an error, unless it does already.
    pub(super) fn set_error(&mut self, request: RequestKey, status: Status) {
        let entry = &mut self.requests[request];
        if entry.status.is_success() {
            entry.status = status;
        }
    }

    /// A request will end with this status.
    pub(super) fn set_status(&mut self, request: RequestKey, status: Status) {
        self.requests[request].status = status;
    }

    /// Some parts of a request have completed. A flush whose stripes have completed has one part
    /// left if caches are to be flushed: returns whether it waits for that now.
    #[inline]
    pub(super) fn end_part(
        &mut self,
        spec: &Spec,
        request: RequestKey,
        parts: u64,
        status: Status,
        flushes_caches: bool,
    ) -> bool {
        let entry = &mut self.requests[request];
        entry.pending -= parts;
        if !status.is_success() {
            entry.status = status;
        }
        if entry.pending > 0 {
            return false;
        }
        if flushes_caches && matches!(entry.answer, Answer::Flush) {
            entry.answer = Answer::None;
            entry.pending = 1;
            return true;
        }
        let Request { id, status, answer, .. } = self.requests.remove(request);
        let outcome = match answer {
            _ if !status.is_success() => Outcome::None,
            Answer::None | Answer::Flush => Outcome::None,
            Answer::NoContents => Outcome::Data(Payload::None),
            Answer::Whole(buffer) => Outcome::Data(Payload::Bytes(buffer)),
            Answer::Pieces { bytes, pieces } => {
                let data = concatenate(bytes, pieces, spec.shape.block_bytes);
                Outcome::Data(Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() })))
            }
        };
        self.completions.push_back(Completion { id, status, outcome });
        false
    }

    /// A command ends before it has begun.
    pub(super) fn refuse(&mut self, id: CommandId, status: Status) {
        self.completions.push_back(Completion::of(id, status));
    }

    /// The volume is lost: outstanding requests would never complete.
    pub(super) fn end_all(&mut self, status: Status) {
        let keys: Vec<RequestKey> = self.requests.iter().map(|(key, _)| key).collect();
        for key in keys {
            let request = self.requests.remove(key);
            self.refuse(request.id, status);
        }
    }

    /// The next completion.
    #[inline]
    pub(super) fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// A mount adopts the completions of the previous volume.
    pub(super) fn resume(&mut self, before: &mut Requests) {
        self.completions = std::mem::take(&mut before.completions);
    }

    pub(super) fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Whether another request may begin.
    pub(super) fn has_space(&self) -> bool {
        self.requests.len() < REQUESTS_MAX
    }

    /// Whether a request waits for its last part.
    pub(super) fn awaits_last_part(&self, request: RequestKey) -> bool {
        self.requests[request].pending == 1
    }

    /// Blocks that hosts have written.
    pub(super) fn host_blocks(&self) -> u64 {
        self.host_blocks
    }

    /// Checks the invariants between events.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(super) fn check_invariants(&self) {
        assert!(self.requests.len() <= REQUESTS_MAX, "requests are bounded");
        assert!(self.requests.iter().all(|(_, request)| request.pending > 0), "what waits for nothing has ended");
    }
}

/// All blocks of a read. No byte is written twice.
fn concatenate(bytes: usize, mut pieces: Vec<(u32, Bytes)>, block_bytes: usize) -> Bytes {
    pieces.sort_unstable_by_key(|&(at, _)| at);
    let mut data = BytesMut::with_capacity(bytes);
    for (at, piece) in &pieces {
        let from = *at as usize * block_bytes;
        assert!(data.len() <= from, "a block of a read arrives once");
        data.resize(from, 0);
        data.extend_from_slice(piece);
    }
    assert!(data.len() <= bytes, "only requested blocks arrive");
    data.resize(bytes, 0);
    data.freeze()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::spec;
    use super::*;

    const OK: Status = Status::Success;

    #[test]
    fn a_read_brings_its_pieces_in_their_places_and_zeros_between_them() {
        let (spec, mut requests) = (spec(1, false), Requests::default());
        let read = requests.begin(CommandId(5), 2, Answer::Pieces { bytes: 3 * 512, pieces: Vec::new() });
        requests.add_data(read, 2, Bytes::from(vec![2; 512]));
        assert!(!requests.end_part(&spec, read, 1, OK, false));
        requests.check_invariants();
        assert!(!requests.has_completions(), "a part is missing");
        requests.add_data(read, 0, Bytes::from(vec![1; 512]));
        requests.end_part(&spec, read, 1, OK, false);
        let completion = requests.poll().expect("it has ended");
        let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { panic!("a read brings data") };
        let blocks: Vec<u8> = buffer.data.chunks(512).map(|block| block[0]).collect();
        assert_eq!((completion.id, blocks), (CommandId(5), vec![1, 0, 2]));
    }

    #[test]
    fn a_request_of_which_one_part_fails_ends_with_its_status_and_brings_nothing() {
        let (spec, mut requests) = (spec(1, false), Requests::default());
        let read = requests.begin(CommandId(1), 2, Answer::NoContents);
        requests.end_part(&spec, read, 1, Status::UnrecoveredReadError, false);
        requests.end_part(&spec, read, 1, OK, false);
        let completion = requests.poll().expect("it has ended");
        assert_eq!((completion.status, completion.outcome), (Status::UnrecoveredReadError, Outcome::None));
    }

    #[test]
    fn a_flush_waits_for_caches_once_and_then_ends() {
        let (spec, mut requests) = (spec(1, true), Requests::default());
        let flush = requests.begin(CommandId(1), 1, Answer::Flush);
        assert!(requests.end_part(&spec, flush, 1, OK, true), "its stripes have ended");
        assert!(!requests.has_completions() && requests.awaits_last_part(flush));
        assert!(!requests.end_part(&spec, flush, 1, OK, true), "caches are flushed");
        assert_eq!(requests.poll().map(|completion| completion.status), Some(OK));
    }

    #[test]
    fn outstanding_requests_of_a_lost_volume_end_with_an_error() {
        let mut requests = Requests::default();
        requests.begin_write(CommandId(1), 4);
        requests.begin(CommandId(2), 1, Answer::Flush);
        requests.end_all(Status::InternalError);
        let ended: Vec<_> = std::iter::from_fn(|| requests.poll()).map(|one| (one.id.0, one.status)).collect();
        assert_eq!(ended, [(1, Status::InternalError), (2, Status::InternalError)]);
        assert_eq!(requests.host_blocks(), 4);
    }
}
