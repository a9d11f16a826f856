//! Bytes received from the client and not processed yet.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

/// Bytes for which memory is allocated at once. A client that announces more gets more memory as it
/// sends them.
const RESERVED_BYTES: usize = 256 << 10;

/// A queue of bytes from which pieces of known length are taken.
///
/// An incomplete piece is copied out of the received chunks, so that a few bytes never keep a large
/// buffer of the caller alive.
#[derive(Debug, Default)]
pub(crate) struct Input {
    chunks: VecDeque<Bytes>,
    /// The front of a piece whose rest has not been received.
    partial: Vec<u8>,
    chunk_bytes: usize,
}

impl Input {
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.chunk_bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Bytes in the queue.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.chunk_bytes + self.partial.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued_bytes() == 0
    }

    /// Drops all bytes.
    pub(crate) fn clear(&mut self) {
        *self = Input::default();
    }

    /// The next `length` bytes when all have been received. After `None` the caller must request
    /// the same length again.
    pub(crate) fn take(&mut self, length: usize) -> Option<Bytes> {
        if self.partial.is_empty()
            && let Some(front) = self.chunks.front_mut()
            && front.len() >= length
        {
            let piece = front.split_to(length);
            self.chunk_bytes -= length;
            self.drop_empty_front();
            return Some(piece);
        }
        while self.partial.len() < length {
            let wanted = length - self.partial.len();
            let front = self.chunks.front_mut()?;
            let taken = wanted.min(front.len());
            reserve(&mut self.partial, taken, length);
            self.partial.extend_from_slice(&front[..taken]);
            front.advance(taken);
            self.chunk_bytes -= taken;
            self.drop_empty_front();
        }
        Some(Bytes::from(std::mem::take(&mut self.partial)))
    }

    /// Drops at most `length` bytes, and returns how many.
    pub(crate) fn skip(&mut self, length: u32) -> u32 {
        assert!(self.partial.is_empty(), "nothing is skipped in the middle of a piece");
        let mut left = length as usize;
        while left > 0
            && let Some(front) = self.chunks.front_mut()
        {
            let dropped = left.min(front.len());
            front.advance(dropped);
            self.chunk_bytes -= dropped;
            left -= dropped;
            self.drop_empty_front();
        }
        length - left as u32
    }

    fn drop_empty_front(&mut self) {
        if self.chunks.front().is_some_and(Bytes::is_empty) {
            self.chunks.pop_front();
        }
    }
}

/// Reserves capacity for `more` bytes in a buffer that will have `length` in the end: little at
/// first, then doubling.
fn reserve(partial: &mut Vec<u8>, more: usize, length: usize) {
    let needed = partial.len() + more;
    if needed > partial.capacity() {
        let capacity = needed.max(2 * partial.capacity()).max(RESERVED_BYTES).min(length);
        partial.reserve_exact(capacity - partial.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_depend_on_how_the_bytes_are_split() {
        let bytes: Vec<u8> = (0..200).collect();
        for split in 1..=bytes.len() {
            let mut input = Input::default();
            let mut pieces = Vec::new();
            let mut wanted = (1..).map(|index| index * 3);
            let mut next = wanted.next().unwrap();
            for chunk in bytes.chunks(split) {
                input.push(Bytes::copy_from_slice(chunk));
                while let Some(piece) = input.take(next) {
                    assert_eq!(piece.len(), next);
                    pieces.extend_from_slice(&piece);
                    next = wanted.next().unwrap();
                }
            }
            assert_eq!(pieces.len() + input.queued_bytes(), bytes.len());
            assert_eq!(pieces, bytes[..pieces.len()]);
        }
    }

    #[test]
    fn a_piece_received_as_a_whole_is_not_copied() {
        let mut input = Input::default();
        let chunk = Bytes::from(vec![1; 100]);
        input.push(chunk.clone());
        assert_eq!(input.take(10).unwrap().as_ptr(), chunk.as_ptr());
        assert_eq!(input.take(90).unwrap().as_ptr(), chunk[10..].as_ptr());
        assert!(input.is_empty() && input.take(1).is_none());
    }

    #[test]
    fn capacity_grows_as_bytes_arrive_and_never_exceeds_the_piece() {
        let mut input = Input::default();
        let length = 5 << 20;
        for _ in 0..(length / 4096) - 1 {
            input.push(Bytes::from_static(&[0; 4096]));
            assert!(input.take(length).is_none());
            assert!(input.partial.capacity() <= (2 * input.partial.len()).max(RESERVED_BYTES).min(length));
        }
        input.push(Bytes::from_static(&[0; 4100]));
        assert_eq!(input.take(length).map(|piece| piece.len()), Some(length));
        assert_eq!(input.queued_bytes(), 4);
    }

    #[test]
    fn skipped_bytes_are_dropped_across_chunks() {
        let mut input = Input::default();
        input.push(Bytes::from_static(b"abc"));
        input.push(Bytes::from_static(b"defg"));
        assert_eq!(input.skip(5), 5);
        assert_eq!(input.take(1).unwrap(), "f");
        assert_eq!(input.skip(9), 1);
        assert!(input.is_empty());
    }
}
