//! The output queue: pieces of bytes, small ones merged, large ones without a copy.

use bytes::{Bytes, BytesMut};

/// Data of at least this many bytes is a piece of its own; less is copied, because a piece costs
/// more than the copy.
const ZERO_COPY_BYTES_MIN: usize = 2048;
/// Growth of the buffer for small pieces.
const BUFFER_BYTES: usize = 4096;
/// Zeros shared by all pieces of zeros.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

const _: () = assert!(ZERO_COPY_BYTES_MIN <= BUFFER_BYTES, "copied data fits an empty buffer");
const _: () = assert!(ZERO_COPY_BYTES_MIN <= ZEROS.len());

/// An append-only queue of bytes.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: Vec<Bytes>,
    /// Small pieces after the last one.
    open: BytesMut,
    queued_bytes: usize,
}

impl Output {
    /// Appends a copy.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        if self.open.capacity() - self.open.len() < bytes.len() {
            self.close();
            self.open.reserve(BUFFER_BYTES.max(bytes.len()));
        }
        self.open.extend_from_slice(bytes);
        self.queued_bytes += bytes.len();
    }

    /// Appends data: as a piece of its own when it is large, else as a copy.
    pub(crate) fn data(&mut self, data: &Bytes) {
        if data.len() < ZERO_COPY_BYTES_MIN {
            self.copy(data);
            return;
        }
        self.close();
        self.queued_bytes += data.len();
        self.pieces.push(data.clone());
    }

    /// Appends zeros.
    pub(crate) fn zeros(&mut self, length: usize) {
        for start in (0..length).step_by(ZEROS.len()) {
            self.data(&Bytes::from_static(&ZEROS[..ZEROS.len().min(length - start)]));
        }
    }

    /// Bytes in the queue.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Takes all pieces, in order.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.close();
        self.queued_bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Closes the buffer of small pieces.
    fn close(&mut self) {
        if !self.open.is_empty() {
            self.pieces.push(self.open.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_merged_and_large_data_is_not_copied() {
        let mut output = Output::default();
        let large = Bytes::from(vec![7; ZERO_COPY_BYTES_MIN]);
        output.copy(b"ab");
        output.data(&Bytes::from_static(b"cd"));
        output.data(&large);
        output.zeros(2);
        assert_eq!(output.queued_bytes(), 4 + ZERO_COPY_BYTES_MIN + 2);
        let pieces = output.take();
        assert_eq!((pieces.len(), &pieces[0][..], &pieces[2][..]), (3, &b"abcd"[..], &[0, 0][..]));
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert!(output.queued_bytes() == 0 && output.take().is_empty());
    }

    #[test]
    fn zeros_have_the_requested_length_and_take_no_memory() {
        for length in [0, 1, 65_536, 200_000] {
            let mut output = Output::default();
            output.zeros(length);
            assert_eq!(output.queued_bytes(), length);
            let pieces = output.take();
            assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), length);
            assert!(pieces.iter().flatten().all(|&byte| byte == 0));
            let static_zeros = ZEROS.as_ptr_range();
            assert!(
                pieces.iter().all(|piece| piece.len() < ZERO_COPY_BYTES_MIN || static_zeros.contains(&piece.as_ptr()))
            );
        }
    }
}
