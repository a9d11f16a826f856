//! Output for the socket: pieces of bytes, small ones merged, large ones not copied.

use bytes::{Bytes, BytesMut};

/// Data of at least so many bytes stays a piece of its own; less is copied, because a piece costs
/// more than the copy.
pub const ZERO_COPY_BYTES_MIN: usize = 2048;

/// Bytes in which the buffer for small things grows.
const BUFFER_BYTES: usize = 4096;

const _: () = assert!(ZERO_COPY_BYTES_MIN <= BUFFER_BYTES, "copied data fits a new buffer");

/// An append-only queue of bytes.
#[derive(Debug, Default)]
pub struct Output {
    pieces: Vec<Bytes>,
    /// Small data after the last piece.
    open: BytesMut,
    queued_bytes: usize,
}

impl Output {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Output {
        Output::default()
    }

    /// Appends a copy.
    pub fn copy(&mut self, bytes: &[u8]) {
        if self.open.capacity() - self.open.len() < bytes.len() {
            self.close();
            self.open.reserve(BUFFER_BYTES.max(bytes.len()));
        }
        self.open.extend_from_slice(bytes);
        self.queued_bytes += bytes.len();
    }

    /// Appends zeros.
    pub fn pad(&mut self, bytes: usize) {
        const ZEROS: [u8; 256] = [0; 256];
        assert!(bytes <= ZEROS.len(), "padding stays below the largest alignment");
        self.copy(&ZEROS[..bytes]);
    }

    /// Appends data: as a separate piece if it is large, else as a copy.
    pub fn data(&mut self, data: &Bytes) {
        if data.len() < ZERO_COPY_BYTES_MIN {
            self.copy(data);
            return;
        }
        self.close();
        self.queued_bytes += data.len();
        self.pieces.push(data.clone());
    }

    /// Bytes that wait.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued_bytes == 0
    }

    /// Takes all pieces, in order.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.close();
        self.queued_bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Makes the small things gathered so far a piece.
    fn close(&mut self) {
        if !self.open.is_empty() {
            self.pieces.push(self.open.split().freeze());
        }
    }
}

/// `length` zeros without an allocation: slices of one constant block.
pub fn zeros(length: usize) -> impl Iterator<Item = Bytes> {
    const BLOCK_BYTES: usize = 64 << 10;
    static BLOCK: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    (0..length).step_by(BLOCK_BYTES).map(move |start| Bytes::from_static(&BLOCK[..BLOCK_BYTES.min(length - start)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_data_is_merged_and_large_data_is_not_copied() {
        let mut output = Output::new();
        let large = Bytes::from(vec![7; ZERO_COPY_BYTES_MIN]);
        output.copy(b"ab");
        output.data(&Bytes::from_static(b"cd"));
        output.data(&large);
        output.pad(2);
        assert_eq!(output.queued_bytes(), 4 + ZERO_COPY_BYTES_MIN + 2);
        let pieces = output.take();
        assert_eq!((pieces.len(), &pieces[0][..], &pieces[2][..]), (3, &b"abcd"[..], &[0, 0][..]));
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert!(output.is_empty() && output.take().is_empty());
    }

    #[test]
    fn an_output_is_empty_until_it_has_bytes_and_again_once_they_are_taken() {
        let mut output = Output::new();
        assert!(output.is_empty());
        for data in [Bytes::from_static(b"a"), Bytes::from(vec![7; ZERO_COPY_BYTES_MIN])] {
            output.data(&data);
            assert!(!output.is_empty(), "{} bytes wait", data.len());
            assert_eq!(output.take(), [data]);
            assert!(output.is_empty());
        }
    }

    #[test]
    fn zeros_have_the_requested_length() {
        for length in [0, 1, 65_536, 200_000] {
            let pieces: Vec<Bytes> = zeros(length).collect();
            assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), length);
            assert!(pieces.iter().flatten().all(|&byte| byte == 0));
        }
    }
}
