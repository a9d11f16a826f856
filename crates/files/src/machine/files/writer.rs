//! The end of a file that is not on the media yet.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zonda_zoned::{Status, ZoneIndex};

use crate::extents::Run;
use crate::limits::{FILE_WRITES_MAX, WRITE_ATTEMPTS_MAX};
use crate::machine::shape::Shape;
use crate::{FileError, RequestId};

use super::ChunkWrite;

/// The unwritten end of a file: behind the extents the chunks, then the pieces, then the rest of
/// waiting appends.
#[derive(Debug, Default)]
pub(in crate::machine) struct Writer {
    /// The zone that it holds.
    zone: Option<ZoneIndex>,
    is_waiting_for_zone: bool,
    /// Data cut for writing, in the order of the file.
    chunks: VecDeque<Chunk>,
    chunk_bytes: u64,
    next_chunk: u64,
    /// Data accepted and not cut into chunks; without contents, only their length.
    pieces: VecDeque<Bytes>,
    piece_bytes: u64,
    appends: VecDeque<WaitingAppend>,
    syncs: VecDeque<WaitingSync>,
    /// Data before this byte of the file are written without waiting for more.
    flush_to: u64,
    /// Bytes of appends that were acknowledged.
    acknowledged_bytes: u64,
    /// A close is among the waiting syncs.
    is_closing: bool,
    /// Writing has failed.
    broken: Option<FileError>,
    /// When it last wrote; greater is later.
    used_at: u64,
}

/// The number of a chunk of one file; not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) struct ChunkId(u64);

/// Data of one write.
#[derive(Clone, Debug)]
struct Chunk {
    id: ChunkId,
    /// Bytes of the file in it.
    bytes: u64,
    /// Whole blocks; empty if contents are not kept.
    data: Bytes,
    stage: ChunkStage,
    /// Number of failed writes.
    attempts: u8,
}

/// The progress of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkStage {
    /// Waits to be written, or rewritten after a failure.
    Waiting,
    InFlight(Run),
    /// On the media, but an earlier one is not.
    Done(Run),
}

/// An append that is not completely in the buffer.
#[derive(Debug)]
struct WaitingAppend {
    request: RequestId,
    /// The rest of its data; empty if contents are not kept.
    data: Bytes,
    left_bytes: u64,
}

/// A sync or close that waits for data.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) struct WaitingSync {
    pub(in crate::machine) request: RequestId,
    /// The end of the file when it was submitted.
    target: u64,
    pub(in crate::machine) closes: bool,
}

impl Writer {
    /// A writer behind data on the media.
    pub(super) fn behind(len_bytes: u64) -> Writer {
        Writer { acknowledged_bytes: len_bytes, flush_to: len_bytes, ..Writer::default() }
    }

    pub(in crate::machine) fn zone(&self) -> Option<ZoneIndex> {
        self.zone
    }

    /// The writer holds a zone, for which it may have waited.
    pub(in crate::machine) fn hold(&mut self, zone: ZoneIndex) {
        assert_eq!(self.zone, None, "a writer holds one zone");
        self.is_waiting_for_zone = false;
        self.zone = Some(zone);
    }

    /// The writer holds no zone any more.
    pub(in crate::machine) fn take_zone(&mut self) -> Option<ZoneIndex> {
        self.zone.take()
    }

    pub(in crate::machine) fn is_waiting_for_zone(&self) -> bool {
        self.is_waiting_for_zone
    }

    /// Notes that it waits for a zone. Returns whether it has waited already.
    pub(in crate::machine) fn wait_for_zone(&mut self) -> bool {
        assert_eq!(self.zone, None, "a writer with a zone does not wait for one");
        std::mem::replace(&mut self.is_waiting_for_zone, true)
    }

    pub(in crate::machine) fn stop_waiting_for_zone(&mut self) {
        self.is_waiting_for_zone = false;
    }

    /// When it last wrote; greater is later.
    pub(in crate::machine) fn used_at(&self) -> u64 {
        self.used_at
    }

    pub(in crate::machine) fn set_used_at(&mut self, used_at: u64) {
        self.used_at = used_at;
    }

    /// Whether it failed to write.
    pub(in crate::machine) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Bytes of appends that were acknowledged.
    pub(super) fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes that wait or are in flight.
    pub(super) fn buffered_bytes(&self) -> u64 {
        self.chunk_bytes + self.piece_bytes
    }

    pub(super) fn add_append(&mut self, request: RequestId, data: Bytes, left_bytes: u64) -> Result<(), FileError> {
        if self.is_closing {
            return Err(FileError::NotOpen);
        }
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.appends.push_back(WaitingAppend { request, data, left_bytes });
        Ok(())
    }

    /// The bytes of the file before the writer are `written_bytes`, here and below.
    pub(super) fn add_sync(&mut self, request: RequestId, closes: bool, written_bytes: u64) -> Result<(), FileError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if closes && self.is_closing {
            return Err(FileError::NotOpen);
        }
        self.is_closing |= closes;
        let waiting_bytes: u64 = self.appends.iter().map(|append| append.left_bytes).sum();
        let target = written_bytes + self.buffered_bytes() + waiting_bytes;
        self.flush_to = self.flush_to.max(target);
        self.syncs.push_back(WaitingSync { request, target, closes });
        Ok(())
    }

    /// Moves data of the first append into the buffer as far as it has space. Returns the append if
    /// it is completely there.
    pub(super) fn take_append(&mut self, buffer_bytes_max: u64, written_bytes: u64) -> Option<RequestId> {
        let space = buffer_bytes_max - self.buffered_bytes();
        let append = self.appends.front_mut()?;
        let count = append.left_bytes.min(space);
        if count < append.left_bytes {
            let has_data = !append.data.is_empty();
            let piece = if has_data { append.data.split_to(count as usize) } else { Bytes::new() };
            append.left_bytes -= count;
            self.push_piece(piece, count);
            return None;
        }
        let WaitingAppend { request, data, .. } = self.appends.pop_front()?;
        self.push_piece(data, count);
        self.acknowledged_bytes = written_bytes + self.buffered_bytes();
        Some(request)
    }

    pub(super) fn next_sync(&mut self, written_bytes: u64) -> Option<WaitingSync> {
        self.syncs.pop_front_if(|sync| sync.target <= written_bytes)
    }

    /// Ends all waiting requests, and returns them.
    pub(super) fn cancel_requests(&mut self, written_bytes: u64) -> Vec<RequestId> {
        self.flush_to = 0;
        self.is_closing = false;
        self.acknowledged_bytes = written_bytes + self.buffered_bytes();
        let appends = self.appends.drain(..).map(|append| append.request);
        appends.chain(self.syncs.drain(..).map(|sync| sync.request)).collect()
    }

    /// The requests that wait for records now that all data are on the media.
    pub(in crate::machine) fn into_syncs(self) -> impl Iterator<Item = RequestId> {
        self.syncs.into_iter().map(|sync| sync.request)
    }

    /// Requests that wait here.
    pub(in crate::machine) fn requests(&self) -> usize {
        self.appends.len() + self.syncs.len()
    }

    pub(super) fn assert_drained(&self) {
        assert!(self.buffered_bytes() == 0 && self.appends.is_empty(), "a close comes behind all appends");
    }

    /// Whether there are data to write now.
    pub(super) fn has_data_to_write(&self, unit_bytes: u64, written_bytes: u64) -> bool {
        let is_flushed = written_bytes + self.chunk_bytes < self.flush_to;
        let cuts = self.piece_bytes >= unit_bytes || (self.piece_bytes > 0 && is_flushed);
        let in_flight = self.chunks.iter().filter(|chunk| matches!(chunk.stage, ChunkStage::InFlight(_)));
        (cuts || self.first_waiting().is_some()) && !self.is_broken() && in_flight.count() < FILE_WRITES_MAX
    }

    /// The first chunk that waits to be written.
    fn first_waiting(&self) -> Option<usize> {
        self.chunks.iter().position(|chunk| chunk.stage == ChunkStage::Waiting)
    }

    /// Begins to write the first waiting chunk, or one that is cut off the pieces. It is split if
    /// the zone has no space for the whole. A zone that is full then is not held any more.
    pub(super) fn begin_write(&mut self, shape: &Shape, zone: ZoneIndex, start: u32, free: u32) -> ChunkWrite {
        assert_eq!(self.zone, Some(zone), "a file writes to the zone that it holds");
        let blocks_of = |bytes: u64| bytes.div_ceil(u64::from(shape.block_bytes)) as u32;
        let index = self.first_waiting().unwrap_or_else(|| {
            let blocks = free.min(shape.write_blocks).min(blocks_of(self.piece_bytes));
            let padded_bytes = shape.bytes(blocks);
            self.cut(padded_bytes.min(self.piece_bytes), padded_bytes);
            self.chunks.len() - 1
        });
        if blocks_of(self.chunks[index].bytes) > free {
            self.split_chunk(index, free, shape.block_bytes);
        }
        let chunk = &mut self.chunks[index];
        let blocks = blocks_of(chunk.bytes);
        let padding = (shape.bytes(blocks) - chunk.bytes) as u32;
        let run = Run { zone, start, blocks, padding };
        chunk.stage = ChunkStage::InFlight(run);
        let write = ChunkWrite { chunk: chunk.id, run, data: chunk.data.clone() };
        if blocks == free {
            self.zone = None;
        }
        write
    }

    /// A chunk is on the media.
    pub(super) fn end_write(&mut self, chunk: ChunkId, run: Run) {
        let chunk = self.chunk_in_flight(chunk);
        assert_eq!(chunk.stage, ChunkStage::InFlight(run), "a write ends where it began");
        chunk.stage = ChunkStage::Done(run);
    }

    /// A chunk is not on the media. Returns the error if it is not written again.
    pub(super) fn fail_write(&mut self, chunk: ChunkId, status: Status) -> Option<FileError> {
        let chunk = self.chunk_in_flight(chunk);
        chunk.stage = ChunkStage::Waiting;
        chunk.attempts += 1;
        if chunk.attempts < WRITE_ATTEMPTS_MAX {
            return None;
        }
        let error = FileError::Media { status, what: "writing a file's data to several zones" };
        self.broken = Some(error.clone());
        Some(error)
    }

    fn chunk_in_flight(&mut self, id: ChunkId) -> &mut Chunk {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.id == id).expect("a chunk stays until it is written");
        assert!(matches!(chunk.stage, ChunkStage::InFlight(_)), "only a write that has begun ends");
        chunk
    }

    /// Removes the first chunk if it is on the media.
    pub(super) fn pop_done(&mut self) -> Option<Run> {
        let ChunkStage::Done(run) = self.chunks.front()?.stage else { return None };
        let chunk = self.chunks.pop_front()?;
        self.chunk_bytes -= chunk.bytes;
        Some(run)
    }

    /// The runs of chunks in flight or on the media.
    pub(super) fn chunk_runs(&self) -> impl Iterator<Item = Run> {
        self.chunks.iter().filter_map(|chunk| match chunk.stage {
            ChunkStage::Waiting => None,
            ChunkStage::InFlight(run) | ChunkStage::Done(run) => Some(run),
        })
    }

    /// The runs of chunks on the media.
    pub(super) fn done_runs(&self) -> impl Iterator<Item = Run> {
        self.chunks.iter().filter_map(|chunk| match chunk.stage {
            ChunkStage::Done(run) => Some(run),
            ChunkStage::Waiting | ChunkStage::InFlight(_) => None,
        })
    }

    /// Adds data to the buffer.
    fn push_piece(&mut self, data: Bytes, bytes: u64) {
        self.piece_bytes += bytes;
        if !data.is_empty() {
            self.pieces.push_back(data);
        }
    }

    fn new_id(&mut self) -> ChunkId {
        self.next_chunk += 1;
        ChunkId(self.next_chunk)
    }

    /// Cuts a chunk of `bytes` off the pieces, padded to `padded_bytes`.
    fn cut(&mut self, bytes: u64, padded_bytes: u64) {
        let data = if self.pieces.is_empty() { Bytes::new() } else { self.take_pieces(bytes, padded_bytes) };
        self.piece_bytes -= bytes;
        self.chunk_bytes += bytes;
        let id = self.new_id();
        self.chunks.push_back(Chunk { id, bytes, data, stage: ChunkStage::Waiting, attempts: 0 });
    }

    fn take_pieces(&mut self, bytes: u64, padded_bytes: u64) -> Bytes {
        let wanted = bytes as usize;
        let front = self.pieces.front_mut().expect("pieces hold the accepted data");
        if bytes == padded_bytes && front.len() >= wanted {
            let data = front.split_to(wanted);
            if front.is_empty() {
                self.pieces.pop_front();
            }
            return data;
        }
        let mut data = BytesMut::with_capacity(padded_bytes as usize);
        while data.len() < wanted {
            let front = self.pieces.front_mut().expect("pieces hold the accepted data");
            let count = front.len().min(wanted - data.len());
            data.extend_from_slice(&front.split_to(count));
            if front.is_empty() {
                self.pieces.pop_front();
            }
        }
        data.resize(padded_bytes as usize, 0);
        data.freeze()
    }

    /// Splits the chunk at `index` behind its first `blocks` blocks.
    fn split_chunk(&mut self, index: usize, blocks: u32, block_bytes: u32) {
        let head_bytes = u64::from(blocks) * u64::from(block_bytes);
        let id = self.new_id();
        let chunk = &mut self.chunks[index];
        let mut tail = Chunk { id, bytes: chunk.bytes - head_bytes, ..chunk.clone() };
        chunk.bytes = head_bytes;
        if !chunk.data.is_empty() {
            tail.data = chunk.data.split_off(head_bytes as usize);
        }
        self.chunks.insert(index + 1, tail);
    }

    /// Copies the bytes from `from` on, counted from the first chunk, to `into`; they must exist.
    pub(in crate::machine) fn copy(&self, from: u64, mut into: &mut [u8]) {
        let mut skip = from as usize;
        let chunks = self.chunks.iter().map(|chunk| &chunk.data[..chunk.bytes as usize]);
        for part in chunks.chain(self.pieces.iter().map(|piece| &piece[..])) {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            let count = into.len().min(part.len() - skip);
            into[..count].copy_from_slice(&part[skip..skip + count]);
            into = &mut into[count..];
            skip = 0;
            if into.is_empty() {
                return;
            }
        }
        assert!(into.is_empty(), "a read is cut at the end of the file");
    }

    /// Asserts that lengths match the parts.
    pub(super) fn check_invariants(&self, keeps_bytes: bool, block_bytes: u32) {
        assert_eq!(self.chunk_bytes, self.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>(), "bytes of the chunks");
        if keeps_bytes {
            assert_eq!(self.piece_bytes, self.pieces.iter().map(|piece| piece.len() as u64).sum::<u64>(), "pieces");
        }
        for chunk in &self.chunks {
            if let ChunkStage::InFlight(run) | ChunkStage::Done(run) = chunk.stage {
                assert_eq!(run.bytes(block_bytes), chunk.bytes, "a chunk has the length of its run");
            }
        }
        assert!(
            !matches!(self.chunks.front(), Some(Chunk { stage: ChunkStage::Done(_), .. })),
            "it would be an extent"
        );
        assert!(self.zone.is_none() || !self.is_waiting_for_zone, "a writer with a zone does not wait for one");
        assert!(!self.is_closing || self.syncs.iter().any(|sync| sync.closes), "a close waits for data");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(pieces: &[&'static [u8]]) -> Writer {
        let mut writer = Writer::default();
        for piece in pieces {
            writer.push_piece(Bytes::from_static(piece), piece.len() as u64);
        }
        writer
    }

    #[test]
    fn a_chunk_is_cut_across_pieces_and_padded_with_zeros() {
        let mut writer = writer(&[b"abc", b"de", b"fgh"]);
        writer.cut(2, 2);
        writer.cut(6, 8);
        let data: Vec<&[u8]> = writer.chunks.iter().map(|chunk| &chunk.data[..]).collect();
        assert_eq!(data, [&b"ab"[..], b"cdefgh\0\0"]);
        assert_eq!((writer.piece_bytes, writer.chunk_bytes), (0, 8));
        writer.check_invariants(true, 4);
    }

    #[test]
    fn data_not_on_the_media_are_read_across_chunks_and_pieces() {
        let mut writer = writer(&[b"abcdef", b"gh"]);
        writer.cut(4, 4);
        writer.push_piece(Bytes::from_static(b"ij"), 2);
        for from in 0..10 {
            for count in 0..=10 - from {
                let mut found = vec![0; count];
                writer.copy(from as u64, &mut found);
                assert_eq!(found, b"abcdefghij"[from..from + count]);
            }
        }
    }

    #[test]
    fn a_chunk_that_is_split_keeps_its_bytes_in_order() {
        let mut writer = writer(&[b"abcdefghij"]);
        writer.cut(10, 12);
        writer.split_chunk(0, 1, 4);
        let parts: Vec<(u64, &[u8])> = writer.chunks.iter().map(|chunk| (chunk.bytes, &chunk.data[..])).collect();
        assert_eq!(parts, [(4, &b"abcd"[..]), (6, b"efghij\0\0")]);
        writer.check_invariants(true, 4);
    }
}
