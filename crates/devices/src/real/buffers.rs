//! Buffers at addresses that devices accept: a page is enough for all devices with blocks of that size,
//! and a transfer then has no more segments than pages.

use bytes::{Bytes, BytesMut};

const ALIGNMENT_BYTES: usize = 4096;

/// An empty buffer that has space for exactly this many bytes, at an address that the device accepts.
pub(crate) fn aligned_buffer(length: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(length + ALIGNMENT_BYTES - 1);
    let padding = buffer.as_ptr().align_offset(ALIGNMENT_BYTES);
    buffer.resize(padding, 0);
    let mut buffer = buffer.split_off(padding);
    // The rest of its capacity would be filled, too.
    drop(buffer.split_off(length));
    buffer
}

/// Whether the device accepts the address of these bytes.
pub(crate) fn is_aligned(data: &[u8]) -> bool {
    data.as_ptr().align_offset(ALIGNMENT_BYTES) == 0
}

/// The same bytes at an address that the device accepts.
pub(crate) fn aligned(data: Bytes) -> Bytes {
    if is_aligned(&data) {
        return data;
    }
    let mut buffer = aligned_buffer(data.len());
    buffer.extend_from_slice(&data);
    buffer.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_has_space_for_its_length_only() {
        for length in [512, 4096, 5000 * 512] {
            let buffer = aligned_buffer(length);
            assert_eq!((buffer.len(), buffer.capacity()), (0, length));
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT_BYTES), 0);
        }
    }

    #[test]
    fn bytes_are_moved_only_if_they_are_not_aligned() {
        let mut buffer = aligned_buffer(8192);
        buffer.extend((0..8192).map(|place| place as u8));
        let bytes = buffer.freeze();
        let (same, moved) = (aligned(bytes.clone()), aligned(bytes.slice(512..)));
        assert_eq!(same.as_ptr(), bytes.as_ptr());
        assert_eq!((moved.as_ptr().align_offset(ALIGNMENT_BYTES), &moved[..]), (0, &bytes[512..]));
    }
}
