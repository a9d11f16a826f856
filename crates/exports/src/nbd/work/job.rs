//! One request as commands to its drive.
//!
//! Requests are in bytes and may be long; commands are in blocks and bounded. A read covers whole
//! blocks and is trimmed; a write that begins or ends within a block is a read-modify-write of that
//! block.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use zonda_devices::Extent;
use zonda_nbd::{NbdError, Operation as Request, ReadPiece, Reply};
use zonda_zoned::{BlockBuffer, Blocks, Geometry, Lba, LbaRange, Operation, Outcome, Payload, Status};

use super::map::Map;
use super::range_lock::Claim;
use crate::nbd::limits::{COMMANDS_PER_REQUEST_MAX, DATA_STEP_BYTES, TRIM_STEP_BYTES, ZEROES_STEP_BYTES};

/// The properties of a drive that determine the commands of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    block_bytes: u64,
    metadata_bytes: u64,
    size_bytes: u64,
    /// The limit of one command that reads or writes.
    data_step_blocks: u64,
    /// Whether the drive has a volatile write cache.
    volatile_write_cache: bool,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Job {
    body: Body,
    /// A flush follows after all other commands.
    wants_flush: bool,
    /// Commands started: the number of the next one.
    begun: u32,
    in_flight: u32,
    /// The first error; no more commands are started then.
    error: Option<NbdError>,
    /// No client waits for it any more.
    is_stopped: bool,
}

#[derive(Debug)]
enum Body {
    Read(Read),
    Write(Write),
    Status(Map),
    Flush,
}

#[derive(Debug)]
struct Read {
    offset: u64,
    length: u32,
    /// Blocks still to be read.
    left: Range<u64>,
    /// Results, by number of command.
    parts: Vec<Option<ReadPiece>>,
}

/// A write, a write of zeros, or a trim.
#[derive(Debug)]
struct Write {
    claim: Option<Claim>,
    /// Blocks that are written partially.
    edges: Vec<Edge>,
    edges_read: u32,
    /// Pieces to be written, the next at the end.
    pieces: Vec<Piece>,
}

#[derive(Debug)]
struct Edge {
    block: u64,
    /// The bytes of the block that change, and their new content.
    within: Range<usize>,
    content: Content,
}

#[derive(Debug)]
struct Piece {
    blocks: Range<u64>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Data(Bytes),
    /// Zeros that stay allocated.
    Zeros,
    /// Deallocated blocks, which read as zeros.
    Hole,
}

impl Shape {
    pub(crate) fn new(geometry: &Geometry, volatile_write_cache: bool) -> Shape {
        let block_bytes = u64::from(geometry.block_size_bytes);
        Shape {
            block_bytes,
            metadata_bytes: u64::from(geometry.metadata_bytes),
            size_bytes: geometry.namespace_blocks().bytes(geometry.block_size_bytes),
            data_step_blocks: geometry.max_transfer_blocks.0.min((DATA_STEP_BYTES / block_bytes).max(1)),
            volatile_write_cache,
        }
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// The drive has another size.
    pub(super) fn resize(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
    }

    /// The error of a request that ends beyond the end of the drive: the drive has shrunk since the
    /// client connected.
    pub(super) fn refusal(&self, request: &Request) -> Option<NbdError> {
        let (end, error) = match request {
            Request::Read { offset, length } => (offset + u64::from(*length), NbdError::Invalid),
            Request::Write { offset, data, .. } => (offset + data.len() as u64, NbdError::NoSpace),
            Request::WriteZeroes { offset, length, .. } => (offset + u64::from(*length), NbdError::NoSpace),
            Request::Trim { offset, length, .. } | Request::BlockStatus { offset, length, .. } => {
                (offset + u64::from(*length), NbdError::Invalid)
            }
            Request::Flush => return None,
        };
        (end > self.size_bytes).then_some(error)
    }
}

impl Job {
    pub(super) fn new(shape: &Shape, request: Request) -> Job {
        let fua = |fua: bool| fua && shape.volatile_write_cache;
        let (body, wants_flush) = match request {
            Request::Read { offset, length } => (Body::Read(Read::new(shape, offset, length)), false),
            Request::Write { offset, data, fua: durable } => {
                let length = data.len() as u64;
                (Body::Write(Write::new(shape, offset, length, &Content::Data(data))), fua(durable))
            }
            Request::WriteZeroes { offset, length, fua: durable, may_trim, fast: _ } => {
                let content = if may_trim { Content::Hole } else { Content::Zeros };
                (Body::Write(Write::new(shape, offset, u64::from(length), &content)), fua(durable))
            }
            Request::Trim { offset, length, fua: durable } => {
                (Body::Write(Write::of_trim(shape, offset, u64::from(length))), fua(durable))
            }
            Request::Flush => (Body::Flush, true),
            Request::BlockStatus { offset, length, one } => {
                (Body::Status(Map::new(shape, offset, u64::from(length), one)), false)
            }
        };
        Job { body, wants_flush, begun: 0, in_flight: 0, error: None, is_stopped: false }
    }

    /// The blocks it writes.
    pub(super) fn claim(&self) -> Option<Claim> {
        match &self.body {
            Body::Write(write) => write.claim.clone(),
            _ => None,
        }
    }

    /// Fails it with an error.
    pub(super) fn refuse(&mut self, error: NbdError) {
        self.error.get_or_insert(error);
    }

    /// Starts no more commands.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// The next command, with its number; `None` while it has to wait, and at the end.
    pub(super) fn next(&mut self, shape: &Shape) -> Option<(u32, Operation)> {
        if self.is_stopped || self.error.is_some() || self.in_flight == COMMANDS_PER_REQUEST_MAX {
            return None;
        }
        let operation = match &mut self.body {
            Body::Read(read) => read.next(shape),
            Body::Write(write) => write.next(shape, self.begun),
            Body::Status(_) | Body::Flush => None,
        };
        let operation = match operation {
            Some(operation) => operation,
            None if self.wants_flush && self.in_flight == 0 => {
                self.wants_flush = false;
                Operation::Flush
            }
            None => return None,
        };
        let number = self.begun;
        self.begun += 1;
        self.in_flight += 1;
        Some((number, operation))
    }

    /// Processes a completion.
    pub(super) fn ended(&mut self, shape: &Shape, number: u32, status: Status, outcome: Outcome) {
        self.in_flight -= 1;
        let result = if status.is_success() { Ok(outcome) } else { Err(error_of(status)) };
        match &mut self.body {
            Body::Read(read) => read.ended(shape, number, result),
            Body::Write(write) if number < write.edges.len() as u32 => {
                if let Err(error) = result.and_then(|outcome| write.edge_read(shape, number, outcome)) {
                    self.error.get_or_insert(error);
                }
            }
            Body::Write(_) | Body::Flush | Body::Status(_) => {
                if let Err(error) = result {
                    self.error.get_or_insert(error);
                }
            }
        }
    }

    /// The blocks whose allocation status to query next; `None` at the end, and for other requests.
    pub(super) fn question(&self) -> Option<(Lba, Blocks)> {
        match &self.body {
            Body::Status(map) if !self.is_stopped && self.error.is_none() => map.next(),
            _ => None,
        }
    }

    /// Processes the allocation status of the drive.
    pub(super) fn answered(&mut self, extent: Extent) {
        let Body::Status(map) = &mut self.body else { unreachable!("only BLOCK_STATUS queries") };
        map.found(extent);
    }

    /// Commands that have not ended.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The reply to the client, once [`Job::next`] returns `None` and no command is in flight.
    pub(super) fn into_result(self, shape: &Shape) -> Result<Reply, NbdError> {
        assert_eq!(self.in_flight, 0, "a request ends after its commands");
        if let Some(error) = self.error {
            return Err(error);
        }
        Ok(match self.body {
            Body::Read(read) => Reply::Read(read.into_pieces(shape)),
            Body::Write(_) | Body::Flush => Reply::Done,
            Body::Status(map) => Reply::Status(map.into_extents(shape)),
        })
    }
}

impl Read {
    fn new(shape: &Shape, offset: u64, length: u32) -> Read {
        let end = offset + u64::from(length);
        let left = offset / shape.block_bytes..end.div_ceil(shape.block_bytes);
        Read { offset, length, left, parts: Vec::new() }
    }

    fn next(&mut self, shape: &Shape) -> Option<Operation> {
        let blocks = front(&mut self.left, shape.data_step_blocks)?;
        self.parts.push(None);
        Some(read(&blocks))
    }

    fn ended(&mut self, shape: &Shape, number: u32, result: Result<Outcome, NbdError>) {
        let bytes = self.part_bytes(shape, number);
        let piece = match result.and_then(|outcome| contents(outcome, bytes)) {
            Ok(Some(data)) => ReadPiece::Data(data),
            Ok(None) => ReadPiece::Hole { length: bytes as u32 },
            Err(error) => ReadPiece::Failed { length: bytes as u32, error },
        };
        self.parts[number as usize] = Some(piece);
    }

    /// Bytes that a command reads: the last may be short.
    fn part_bytes(&self, shape: &Shape, number: u32) -> u64 {
        let first = self.offset / shape.block_bytes;
        let end = (self.offset + u64::from(self.length)).div_ceil(shape.block_bytes);
        let start = first + u64::from(number) * shape.data_step_blocks;
        (end - start).min(shape.data_step_blocks) * shape.block_bytes
    }

    /// The requested bytes, without those of the blocks before and after them.
    fn into_pieces(self, shape: &Shape) -> Vec<ReadPiece> {
        let head = (self.offset % shape.block_bytes) as usize;
        let mut left = self.length as usize;
        let mut pieces = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.into_iter().enumerate() {
            let part = part.expect("every command of a read has ended");
            let skip = if number == 0 { head } else { 0 };
            let taken = (part.length() - skip).min(left);
            left -= taken;
            pieces.push(match part {
                ReadPiece::Data(data) => ReadPiece::Data(data.slice(skip..skip + taken)),
                ReadPiece::Hole { .. } => ReadPiece::Hole { length: taken as u32 },
                ReadPiece::Failed { error, .. } => ReadPiece::Failed { length: taken as u32, error },
            });
        }
        pieces
    }
}

impl Write {
    fn new(shape: &Shape, offset: u64, length: u64, content: &Content) -> Write {
        let (size, end) = (shape.block_bytes, offset + length);
        let (first, last) = (offset / size, end.div_ceil(size));
        let (whole_first, whole_last) = (offset.div_ceil(size), end / size);
        // `from` and `to` are bytes of the request.
        let part = |from: u64, to: u64| match content {
            Content::Data(data) => Content::Data(data.slice(from as usize..to as usize)),
            // Zeros in a partial block are data of that block.
            other => other.clone(),
        };
        let mut edges = Vec::new();
        let mut edge = |block: u64| {
            let (from, to) = (offset.max(block * size), end.min((block + 1) * size));
            let within = (from - block * size) as usize..(to - block * size) as usize;
            edges.push(Edge { block, within, content: part(from - offset, to - offset) });
        };
        if first < whole_first {
            edge(first);
        }
        if whole_last < last && (whole_last > first || first == whole_first) {
            edge(whole_last);
        }
        let mut pieces = Vec::new();
        if whole_first < whole_last {
            let content = part(whole_first * size - offset, whole_last * size - offset);
            pieces.push(Piece { blocks: whole_first..whole_last, content });
        }
        let claim = Claim { blocks: first..last, partial: !edges.is_empty() };
        Write { claim: Some(claim), edges, edges_read: 0, pieces }
    }

    /// The whole blocks of a trim; partial ones are ignored.
    fn of_trim(shape: &Shape, offset: u64, length: u64) -> Write {
        let blocks = offset.div_ceil(shape.block_bytes)..(offset + length) / shape.block_bytes;
        let is_something = blocks.start < blocks.end;
        let claim = is_something.then(|| Claim { blocks: blocks.clone(), partial: false });
        let pieces = if is_something { vec![Piece { blocks, content: Content::Hole }] } else { Vec::new() };
        Write { claim, edges: Vec::new(), edges_read: 0, pieces }
    }

    fn next(&mut self, shape: &Shape, begun: u32) -> Option<Operation> {
        if let Some(edge) = self.edges.get(begun as usize) {
            return Some(read(&(edge.block..edge.block + 1)));
        }
        if (self.edges_read as usize) < self.edges.len() {
            return None;
        }
        let piece = self.pieces.last_mut()?;
        let step = match piece.content {
            Content::Data(_) => shape.data_step_blocks,
            Content::Zeros => ZEROES_STEP_BYTES / shape.block_bytes,
            Content::Hole => TRIM_STEP_BYTES / shape.block_bytes,
        };
        let blocks = front(&mut piece.blocks, step).expect("pieces are not empty");
        let (start, count) = (Lba(blocks.start), Blocks(blocks.end - blocks.start));
        let operation = match &mut piece.content {
            Content::Data(data) => {
                let data = data.split_to((count.0 * shape.block_bytes) as usize);
                let metadata = Bytes::from(vec![0; (count.0 * shape.metadata_bytes) as usize]);
                let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata }));
                Operation::Write { start, blocks: count, payload }
            }
            Content::Zeros => Operation::WriteZeroes { start, blocks: count },
            Content::Hole => Operation::Deallocate { ranges: [LbaRange { start, blocks: count }].into() },
        };
        if piece.blocks.is_empty() {
            self.pieces.pop();
        }
        Some(operation)
    }

    /// Modifies a partial block that was read, and queues its write.
    fn edge_read(&mut self, shape: &Shape, number: u32, outcome: Outcome) -> Result<(), NbdError> {
        self.edges_read += 1;
        let edge = &self.edges[number as usize];
        let mut block = match contents(outcome, shape.block_bytes)? {
            Some(found) => BytesMut::from(&found[..]),
            None => BytesMut::zeroed(shape.block_bytes as usize),
        };
        match &edge.content {
            Content::Data(data) => block[edge.within.clone()].copy_from_slice(data),
            Content::Zeros | Content::Hole => block[edge.within.clone()].fill(0),
        }
        let blocks = edge.block..edge.block + 1;
        self.pieces.push(Piece { blocks, content: Content::Data(block.freeze()) });
        Ok(())
    }
}

/// Takes at most `most` blocks from the front.
fn front(left: &mut Range<u64>, most: u64) -> Option<Range<u64>> {
    let end = left.end.min(left.start + most);
    let taken = left.start..end;
    left.start = end;
    (!taken.is_empty()).then_some(taken)
}

fn read(blocks: &Range<u64>) -> Operation {
    Operation::Read { start: Lba(blocks.start), blocks: Blocks(blocks.end - blocks.start) }
}

/// The data of a read; `None`: zeros.
fn contents(outcome: Outcome, bytes: u64) -> Result<Option<Bytes>, NbdError> {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) if buffer.data.len() as u64 == bytes => Ok(Some(buffer.data)),
        Outcome::Data(Payload::None) => Ok(None),
        // Any other outcome is an error of the drive.
        _ => Err(NbdError::Io),
    }
}

/// The NBD error of a failed command.
fn error_of(status: Status) -> NbdError {
    match status {
        Status::ZoneIsFull | Status::CapacityExceeded => NbdError::NoSpace,
        Status::ZoneIsReadOnly | Status::NamespaceWriteProtected | Status::ReservationConflict => {
            NbdError::NotPermitted
        }
        Status::InvalidField | Status::LbaOutOfRange => NbdError::Invalid,
        _ => NbdError::Io,
    }
}
