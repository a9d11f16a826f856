//! A file at run time, and its data that are not on the media yet.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zonda_zoned::ZoneIndex;

use crate::catalog::FileMeta;
use crate::extents::{ExtentList, Run};
use crate::{FileError, Lifetime, RequestId};

/// A file.
#[derive(Debug)]
pub(super) struct File {
    /// Its extents are those whose writes have ended, as have all before them.
    pub(super) meta: FileMeta,
    /// Records contain it.
    pub(super) is_recorded: bool,
    /// Bytes at its start whose extents are recorded.
    pub(super) recorded_bytes: u64,
    /// Records contain it as closed.
    pub(super) is_recorded_closed: bool,
    /// The log sequence number of its last record.
    pub(super) lsn: u64,
    /// Present while it accepts data.
    pub(super) writer: Option<Box<Writer>>,
}

/// The unwritten end of a file: behind the extents the chunks, then the pieces, then the rest of
/// waiting appends.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The zone that it holds.
    pub(super) zone: Option<ZoneIndex>,
    pub(super) is_waiting_for_zone: bool,
    /// Data cut for writing, in the order of the file.
    pub(super) chunks: VecDeque<Chunk>,
    chunk_bytes: u64,
    next_chunk: u64,
    /// Data accepted and not cut into chunks; without contents, only their length.
    pieces: VecDeque<Bytes>,
    piece_bytes: u64,
    pub(super) appends: VecDeque<WaitingAppend>,
    pub(super) syncs: VecDeque<WaitingSync>,
    /// Data before this byte of the file are written without waiting for more.
    pub(super) flush_to: u64,
    /// Bytes of appends that were acknowledged.
    pub(super) acknowledged_bytes: u64,
    /// A close is among the waiting syncs.
    pub(super) is_closing: bool,
    /// Writing has failed.
    pub(super) broken: Option<FileError>,
    /// When it last wrote; greater is later.
    pub(super) used_at: u64,
}

/// Data of one write.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) number: u64,
    /// Bytes of the file in it.
    pub(super) bytes: u64,
    /// Whole blocks; empty if contents are not kept.
    pub(super) data: Bytes,
    pub(super) stage: ChunkStage,
    /// Number of failed writes.
    pub(super) attempts: u8,
}

/// The progress of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkStage {
    /// Waits to be written, or rewritten after a failure.
    Waiting,
    InFlight(Run),
    /// On the media, but an earlier one is not.
    Done(Run),
}

/// An append that is not completely in the buffer.
#[derive(Debug)]
pub(super) struct WaitingAppend {
    pub(super) request: RequestId,
    /// The rest of its data; empty if contents are not kept.
    pub(super) data: Bytes,
    pub(super) left_bytes: u64,
}

/// A sync or close that waits for data.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingSync {
    pub(super) request: RequestId,
    /// The end of the file when it was submitted.
    pub(super) target: u64,
    pub(super) closes: bool,
}

impl File {
    pub(super) fn new(name: &str, lifetime: Lifetime) -> File {
        let extents = ExtentList::default();
        File {
            meta: FileMeta { name: name.to_owned(), lifetime, extents, is_closed: false },
            is_recorded: false,
            is_recorded_closed: false,
            recorded_bytes: 0,
            lsn: 0,
            writer: Some(Box::default()),
        }
    }

    /// A file that a mount has found.
    pub(super) fn found(meta: FileMeta) -> File {
        let len_bytes = meta.extents.len_bytes();
        let writer = (!meta.is_closed)
            .then(|| Box::new(Writer { acknowledged_bytes: len_bytes, flush_to: len_bytes, ..Writer::default() }));
        File { is_recorded: true, is_recorded_closed: meta.is_closed, recorded_bytes: len_bytes, lsn: 0, writer, meta }
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(self.meta.extents.len_bytes(), |writer| writer.acknowledged_bytes)
    }

    /// Runs of chunks, which belong to the file like its extents.
    pub(super) fn chunk_runs(&self) -> impl Iterator<Item = Run> {
        self.writer.iter().flat_map(|writer| &writer.chunks).filter_map(|chunk| match chunk.stage {
            ChunkStage::Waiting => None,
            ChunkStage::InFlight(run) | ChunkStage::Done(run) => Some(run),
        })
    }
}

impl Writer {
    /// Bytes that wait or are in flight.
    pub(super) fn buffered_bytes(&self) -> u64 {
        self.chunk_bytes + self.piece_bytes
    }

    /// Bytes that are not cut into chunks yet.
    pub(super) fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Bytes of appends that are not in the buffer yet.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.appends.iter().map(|append| append.left_bytes).sum()
    }

    /// Adds data to the buffer.
    pub(super) fn push_piece(&mut self, data: Bytes, bytes: u64) {
        self.piece_bytes += bytes;
        if !data.is_empty() {
            self.pieces.push_back(data);
        }
    }

    /// Cuts a chunk of `bytes` off the pieces, padded to `padded_bytes`.
    pub(super) fn cut(&mut self, bytes: u64, padded_bytes: u64) {
        let data = if self.pieces.is_empty() { Bytes::new() } else { self.take_pieces(bytes, padded_bytes) };
        self.piece_bytes -= bytes;
        self.chunk_bytes += bytes;
        let number = self.next_chunk;
        self.next_chunk += 1;
        self.chunks.push_back(Chunk { number, bytes, data, stage: ChunkStage::Waiting, attempts: 0 });
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
    pub(super) fn split_chunk(&mut self, index: usize, blocks: u32, block_bytes: u32) {
        let head_bytes = u64::from(blocks) * u64::from(block_bytes);
        let number = self.next_chunk;
        self.next_chunk += 1;
        let chunk = &mut self.chunks[index];
        let mut tail = Chunk { number, bytes: chunk.bytes - head_bytes, ..chunk.clone() };
        chunk.bytes = head_bytes;
        if !chunk.data.is_empty() {
            tail.data = chunk.data.split_off(head_bytes as usize);
        }
        self.chunks.insert(index + 1, tail);
    }

    /// Removes the first chunk if it is on the media.
    pub(super) fn pop_done(&mut self) -> Option<Run> {
        let ChunkStage::Done(run) = self.chunks.front()?.stage else { return None };
        let chunk = self.chunks.pop_front()?;
        self.chunk_bytes -= chunk.bytes;
        Some(run)
    }

    pub(super) fn chunk_mut(&mut self, number: u64) -> Option<&mut Chunk> {
        self.chunks.iter_mut().find(|chunk| chunk.number == number)
    }

    /// Writes in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.chunks.iter().filter(|chunk| matches!(chunk.stage, ChunkStage::InFlight(_))).count()
    }

    /// The first chunk that waits to be written.
    pub(super) fn first_waiting(&self) -> Option<usize> {
        self.chunks.iter().position(|chunk| chunk.stage == ChunkStage::Waiting)
    }

    /// Requests that wait here.
    pub(super) fn requests(&self) -> usize {
        self.appends.len() + self.syncs.len()
    }

    /// Copies the bytes from `from` on, counted from the first chunk, to `into`; they must exist.
    pub(super) fn copy(&self, from: u64, mut into: &mut [u8]) {
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
        assert_eq!((writer.piece_bytes(), writer.chunk_bytes()), (0, 8));
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
