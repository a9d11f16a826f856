//! What hosts ask for. A command takes effect when it is taken: what a read returns is fixed then.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{
    BlockBuffer, Command, CommandId, Completion, Instant, Operation, Outcome, Payload, QueueFull, Status,
};

use super::members::Waiter;
use super::{Phase, Trims, Volume};
use crate::bug::SeededBug;
use crate::limits::{BUFFERED_BLOCKS_MAX, REQUEST_BLOCKS_MAX, REQUESTS_MAX};

/// A command of the host under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: CommandId,
    /// Parts that have not ended: blocks of a write, fetches of a read, stripes or members of a flush.
    pub(super) pending: u64,
    pub(super) status: Status,
    pub(super) answer: Answer,
}

/// What a request brings back.
#[derive(Debug)]
pub(super) enum Answer {
    None,
    /// All blocks of a read came in one piece: it goes on as it came.
    Whole(Box<BlockBuffer>),
    /// Blocks of a read as they come in, in any order, with the first block of each piece; what is in none of them reads as zeros.
    Pieces {
        bytes: usize,
        pieces: Vec<(u32, Bytes)>,
    },
    /// A read without contents.
    NoContents,
    /// A flush: stripes come first, then the members' caches.
    Flush,
}

impl Volume {
    /// Takes a command of the host. Zone management ends with [`Status::InvalidField`]: the volume's zones are conventional.
    ///
    /// # Errors
    /// [`QueueFull`] hands it back; it can be submitted again after the next completion.
    pub fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.now = now;
        let Command { id, namespace, operation } = command;
        match self.admit(&operation) {
            Admission::Full => return Err(QueueFull(Command { id, namespace, operation })),
            Admission::Refused(status) => {
                self.completions.push_back(Completion::of(id, status));
                return Ok(());
            }
            Admission::Taken => {}
        }
        self.has_progress |= !matches!(operation, Operation::Read { .. } | Operation::Write { .. });
        match operation {
            Operation::Read { start, blocks } => self.accept_read(id, start.0, blocks.0),
            Operation::Write { start, blocks, payload } => {
                self.trim_before(start.0, blocks.0);
                self.accept_write(id, start.0, blocks.0, payload);
            }
            Operation::WriteZeroes { start, blocks } => self.accept_trim(id, &[(start.0, blocks.0)]),
            Operation::Deallocate { ranges } => {
                let ranges: Vec<(u64, u64)> = ranges.iter().map(|range| (range.start.0, range.blocks.0)).collect();
                self.accept_trim(id, &ranges);
            }
            Operation::Flush => self.accept_flush(id),
            _ => unreachable!("others were refused"),
        }
        self.settle_if_woken();
        Ok(())
    }

    fn admit(&self, operation: &Operation) -> Admission {
        match &self.phase {
            Phase::Ready => {}
            Phase::Starting(_) => return Admission::Refused(Status::NamespaceNotReady),
            Phase::Failed(_) => return Admission::Refused(Status::InternalError),
        }
        let is_inside = |start: u64, blocks: u64| {
            start.checked_add(blocks).is_some_and(|end| end <= self.spec.geometry.namespace_blocks().0)
        };
        let refusal = match operation {
            Operation::Read { start, blocks } | Operation::Write { start, blocks, .. } => {
                if blocks.0 == 0 || blocks.0 > REQUEST_BLOCKS_MAX {
                    Some(Status::InvalidField)
                } else if !is_inside(start.0, blocks.0) {
                    Some(Status::LbaOutOfRange)
                } else if !self.payload_fits(operation) {
                    Some(Status::DataTransferError)
                } else {
                    None
                }
            }
            Operation::WriteZeroes { start, blocks } => {
                (!is_inside(start.0, blocks.0)).then_some(Status::LbaOutOfRange)
            }
            Operation::Deallocate { ranges } => {
                let all_inside = ranges.iter().all(|range| is_inside(range.start.0, range.blocks.0));
                (!all_inside).then_some(Status::LbaOutOfRange)
            }
            Operation::Flush => None,
            _ => Some(Status::InvalidField),
        };
        if let Some(status) = refusal {
            return Admission::Refused(status);
        }
        let (blocks, ranges) = match operation {
            // Each block may need a tombstone before it.
            Operation::Write { blocks, .. } if self.trims.has_rest() => (2 * blocks.0 as usize, 1),
            Operation::Write { blocks, .. } => (blocks.0 as usize, 0),
            Operation::WriteZeroes { .. } => (0, 1),
            Operation::Deallocate { ranges } => (0, ranges.len()),
            // Others take no blocks.
            _ => (0, 0),
        };
        let has_room = self.requests.len() < REQUESTS_MAX
            && self.buffered_blocks + blocks <= BUFFERED_BLOCKS_MAX
            && (ranges == 0 || self.trims.has_room(ranges));
        if !has_room {
            return Admission::Full;
        }
        Admission::Taken
    }

    fn payload_fits(&self, operation: &Operation) -> bool {
        let Operation::Write { blocks, payload, .. } = operation else { return true };
        !matches!(payload, Payload::Fingerprints(_)) && payload.fits(blocks.0, self.spec.geometry.block_size_bytes, 0)
    }

    fn accept_flush(&mut self, id: CommandId) {
        self.pad_all();
        let request = self.requests.insert(Request { id, pending: 1, status: Status::Success, answer: Answer::Flush });
        let mut stripes = 0;
        for stripe in self.stripes.values_mut() {
            if stripe.waits_for_hosts() {
                stripe.flushes.push(request);
                stripes += 1;
            }
        }
        self.requests[request].pending += stripes;
        self.end_part(request, 1, Status::Success);
    }

    /// Some parts of a request have ended.
    pub(super) fn end_part(&mut self, request: u32, parts: u64, status: Status) {
        let entry = &mut self.requests[request];
        entry.pending -= parts;
        if !status.is_success() {
            entry.status = status;
        }
        if entry.pending > 0 {
            return;
        }
        let is_flush = matches!(entry.answer, Answer::Flush);
        if is_flush && self.spec.is_cache_volatile() && self.is_ready() && !self.spec.has(SeededBug::DryFlush) {
            let entry = &mut self.requests[request];
            entry.answer = Answer::None;
            entry.pending = 1;
            return self.when_durable(Waiter::Request(request));
        }
        let Request { id, status, answer, .. } = self.requests.remove(request);
        let outcome = match answer {
            _ if !status.is_success() => Outcome::None,
            Answer::None | Answer::Flush => Outcome::None,
            Answer::NoContents => Outcome::Data(Payload::None),
            Answer::Whole(buffer) => Outcome::Data(Payload::Bytes(buffer)),
            Answer::Pieces { bytes, pieces } => {
                let data = together(bytes, pieces, self.spec.shape.block_bytes);
                Outcome::Data(Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() })))
            }
        };
        self.completions.push_back(Completion { id, status, outcome });
    }

    /// The volume is lost: nothing will end by itself any more.
    pub(super) fn end_all_requests(&mut self) {
        self.trims = Trims::default();
        let numbers: Vec<u32> = self.requests.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let request = self.requests.remove(number);
            self.completions.push_back(Completion::of(request.id, Status::InternalError));
        }
    }
}

enum Admission {
    Taken,
    Full,
    Refused(Status),
}

/// All blocks of a read. No byte is written twice.
fn together(bytes: usize, mut pieces: Vec<(u32, Bytes)>, block_bytes: usize) -> Bytes {
    pieces.sort_unstable_by_key(|&(at, _)| at);
    let mut data = BytesMut::with_capacity(bytes);
    for (at, piece) in &pieces {
        data.resize(*at as usize * block_bytes, 0);
        data.extend_from_slice(piece);
    }
    data.resize(bytes, 0);
    data.freeze()
}
