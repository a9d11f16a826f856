//! Reads: from zones for data on the media, and from the file's buffer for the rest.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{Blocks, Key, Operation, Outcome as DriveOutcome, Payload, Slab, Status, ZoneIndex};

use crate::extents::ExtentList;
use crate::{FileError, FileId, FileStore, Outcome, RequestId};

use super::commands::InFlight;
use super::shape::Shape;

/// Owns the read requests in progress.
#[derive(Debug, Default)]
pub(super) struct Reads {
    runs: Slab<ReadRun>,
}

/// A read request in progress.
#[derive(Debug)]
pub(super) struct ReadRun {
    request: RequestId,
    bytes: usize,
    /// The buffer for all parts; empty if one command reads everything, or contents are not kept.
    assembled: BytesMut,
    /// The data of the only command.
    whole: Option<Bytes>,
    /// Commands in flight.
    left: u32,
    error: Option<FileError>,
}

/// The part of one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Bytes of the first block before the requested ones.
    skip: usize,
    bytes: usize,
    /// The offset of the part in the requested range.
    at: usize,
}

/// The blocks that one command reads.
#[derive(Clone, Copy, Debug)]
struct Place {
    zone: ZoneIndex,
    first: u32,
    blocks: u32,
}

/// The end of a read request.
type Ended = (RequestId, Result<Outcome, FileError>);

impl Reads {
    /// Ends a part. With the last one the request ends.
    fn end_piece(
        &mut self,
        shape: &Shape,
        read: Key<ReadRun>,
        piece: Piece,
        status: Status,
        outcome: DriveOutcome,
    ) -> Option<Ended> {
        let run = &mut self.runs[read];
        run.left -= 1;
        let data = match outcome {
            DriveOutcome::Data(Payload::Bytes(buffer)) => buffer.data,
            _ => Bytes::new(),
        };
        let wanted = piece.skip..piece.skip + piece.bytes;
        if !status.is_success() {
            run.error = Some(FileError::Media { status, what: "reading a file's data" });
        } else if shape.keeps_bytes() && data.len() < wanted.end {
            let what = "reading a file's data from a drive that keeps no contents";
            run.error = Some(FileError::Media { status: Status::DataTransferError, what });
        } else if shape.keeps_bytes() {
            if run.assembled.is_empty() {
                run.whole = Some(data.slice(wanted));
            } else {
                run.assembled[piece.at..piece.at + piece.bytes].copy_from_slice(&data[wanted]);
            }
        }
        (run.left == 0).then(|| self.runs.remove(read).end(shape))
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn check_invariants(&self) {
        for (_, run) in self.runs.iter() {
            assert!(run.left > 0, "a read that waits for no command has ended");
            assert!(run.assembled.is_empty() || run.assembled.len() == run.bytes, "all parts have a place");
        }
    }
}

impl ReadRun {
    fn end(self, shape: &Shape) -> Ended {
        let result = match self.error {
            Some(error) => Err(error),
            None if shape.keeps_bytes() => Ok(Outcome::Data(self.whole.unwrap_or_else(|| self.assembled.freeze()))),
            None => Ok(Outcome::Length(self.bytes as u64)),
        };
        (self.request, result)
    }
}

impl FileStore {
    /// Reads from a file; the result is shorter at its end. Acknowledged appends are found, synced
    /// or not. The file may be deleted meanwhile.
    pub fn read(&mut self, request: RequestId, file: FileId, offset_bytes: u64, bytes: u32) {
        if !self.admit(request) {
            return;
        }
        let Some(entry) = self.files.get(file) else { return self.end(request, Err(FileError::NoSuchFile)) };
        let end = offset_bytes.saturating_add(u64::from(bytes)).min(entry.len_bytes());
        let total = end.saturating_sub(offset_bytes) as usize;
        let extents = &entry.meta().extents;
        let on_media = extents.len_bytes();
        let media_end = end.min(on_media);
        let pieces = pieces(&self.shape, extents, offset_bytes, media_end);

        let keeps_bytes = self.shape.keeps_bytes();
        let is_one = pieces.len() == 1 && pieces[0].1.bytes == total;
        let mut assembled = BytesMut::zeroed(if keeps_bytes && !is_one { total } else { 0 });
        let memory_from = offset_bytes.max(on_media);
        if keeps_bytes
            && memory_from < end
            && let Some(writer) = entry.writer()
        {
            writer.copy(memory_from - on_media, &mut assembled[(memory_from - offset_bytes) as usize..]);
        }
        let run = ReadRun { request, bytes: total, assembled, whole: None, left: pieces.len() as u32, error: None };
        if pieces.is_empty() {
            let (request, result) = run.end(&self.shape);
            return self.end(request, result);
        }
        let read = self.reads.runs.insert(run);
        for (Place { zone, first, blocks }, piece) in pieces {
            self.zones.pin(zone);
            let operation = Operation::Read { start: self.shape.lba(zone, first), blocks: Blocks(blocks.into()) };
            self.commands.send(InFlight::Read { read, zone, piece }, operation);
        }
    }

    pub(super) fn on_read(
        &mut self,
        read: Key<ReadRun>,
        zone: ZoneIndex,
        piece: Piece,
        status: Status,
        outcome: DriveOutcome,
    ) {
        self.zones.unpin(zone);
        if let Some((request, result)) = self.reads.end_piece(&self.shape, read, piece, status, outcome) {
            self.end(request, result);
        }
    }
}

/// The commands that read the bytes from `from` to `to`, which are on the media.
fn pieces(shape: &Shape, extents: &ExtentList, from: u64, to: u64) -> Vec<(Place, Piece)> {
    let block_bytes = u64::from(shape.block_bytes);
    let mut pieces = Vec::new();
    for extent in extents.extents_at(from) {
        let extent_end = extent.offset + extent.run.bytes(shape.block_bytes);
        let mut at = from.max(extent.offset);
        while at < to.min(extent_end) {
            let first = (at - extent.offset) / block_bytes;
            let skip = (at - extent.offset) % block_bytes;
            let wanted = to.min(extent_end) - at;
            let blocks = (skip + wanted).div_ceil(block_bytes).min(u64::from(shape.read_blocks));
            let count = wanted.min(blocks * block_bytes - skip);
            let place = Place { zone: extent.run.zone, first: extent.run.start + first as u32, blocks: blocks as u32 };
            pieces.push((place, Piece { skip: skip as usize, bytes: count as usize, at: (at - from) as usize }));
            at += count;
        }
        if extent_end >= to {
            break;
        }
    }
    pieces
}
