//! Reads: from zones for data on the media, and from the file's buffer for the rest.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{Blocks, Key, Operation, Outcome as DriveOutcome, Payload, Status, ZoneIndex};

use crate::{FileError, FileId, FileStore, Outcome, RequestId};

use super::InFlight;

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

impl FileStore {
    /// Reads from a file; the result is shorter at its end. Acknowledged appends are found, synced
    /// or not. The file may be deleted meanwhile.
    pub fn read(&mut self, request: RequestId, file: FileId, offset_bytes: u64, bytes: u32) {
        if !self.admit(request) {
            return;
        }
        let Some(entry) = self.files.get(&file) else { return self.end(request, Err(FileError::NoSuchFile)) };
        let end = offset_bytes.saturating_add(u64::from(bytes)).min(entry.len_bytes());
        let total = end.saturating_sub(offset_bytes) as usize;
        let on_media = entry.meta.extents.len_bytes();
        let media_end = end.min(on_media);
        let pieces = self.pieces(file, offset_bytes, media_end);

        let keeps_bytes = self.shape.keeps_bytes();
        let is_one = pieces.len() == 1 && pieces[0].1.bytes == total;
        let mut assembled = BytesMut::zeroed(if keeps_bytes && !is_one { total } else { 0 });
        let memory_from = offset_bytes.max(on_media);
        if keeps_bytes
            && memory_from < end
            && let Some(writer) = &self.files[&file].writer
        {
            writer.copy(memory_from - on_media, &mut assembled[(memory_from - offset_bytes) as usize..]);
        }
        let run = ReadRun { request, bytes: total, assembled, whole: None, left: pieces.len() as u32, error: None };
        let read = self.reads.insert(run);
        if pieces.is_empty() {
            return self.end_read(read);
        }
        for ((zone, first, blocks), piece) in pieces {
            self.zones[zone].pins += 1;
            let operation = Operation::Read { start: self.shape.lba(zone, first), blocks: Blocks(blocks.into()) };
            self.send(InFlight::Read { read, zone, piece }, operation);
        }
    }

    /// The commands that read the bytes from `from` to `to`, which are on the media: zone, first
    /// block, blocks.
    fn pieces(&self, file: FileId, from: u64, to: u64) -> Vec<((ZoneIndex, u32, u32), Piece)> {
        let block_bytes = u64::from(self.shape.block_bytes);
        let mut pieces = Vec::new();
        for extent in self.files[&file].meta.extents.extents_at(from) {
            let extent_end = extent.offset + extent.run.bytes(self.shape.block_bytes);
            let mut at = from.max(extent.offset);
            while at < to.min(extent_end) {
                let first = (at - extent.offset) / block_bytes;
                let skip = (at - extent.offset) % block_bytes;
                let wanted = to.min(extent_end) - at;
                let blocks = (skip + wanted).div_ceil(block_bytes).min(u64::from(self.shape.read_blocks));
                let count = wanted.min(blocks * block_bytes - skip);
                let piece = Piece { skip: skip as usize, bytes: count as usize, at: (at - from) as usize };
                pieces.push(((extent.run.zone, extent.run.start + first as u32, blocks as u32), piece));
                at += count;
            }
            if extent_end >= to {
                break;
            }
        }
        pieces
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
        let run = &mut self.reads[read];
        run.left -= 1;
        let data = match outcome {
            DriveOutcome::Data(Payload::Bytes(buffer)) => buffer.data,
            _ => Bytes::new(),
        };
        let wanted = piece.skip..piece.skip + piece.bytes;
        if !status.is_success() {
            run.error = Some(FileError::Media { status, what: "reading a file's data" });
        } else if self.shape.keeps_bytes() && data.len() < wanted.end {
            let what = "reading a file's data from a drive that keeps no contents";
            run.error = Some(FileError::Media { status: Status::DataTransferError, what });
        } else if self.shape.keeps_bytes() {
            if run.assembled.is_empty() {
                run.whole = Some(data.slice(wanted));
            } else {
                run.assembled[piece.at..piece.at + piece.bytes].copy_from_slice(&data[wanted]);
            }
        }
        if run.left == 0 {
            self.end_read(read);
        }
    }

    fn end_read(&mut self, read: Key<ReadRun>) {
        let run = self.reads.remove(read);
        let result = match run.error {
            Some(error) => Err(error),
            None if self.shape.keeps_bytes() => Ok(Outcome::Data(run.whole.unwrap_or_else(|| run.assembled.freeze()))),
            None => Ok(Outcome::Length(run.bytes as u64)),
        };
        self.end(run.request, result);
    }
}
