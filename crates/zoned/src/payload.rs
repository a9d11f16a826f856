//! The payload of a command: bytes, a 64-bit fingerprint for each block, or none.
//!
//! Timing studies need no payload, and simulation needs only to know *which* write a block holds:
//! eight bytes a block instead of 4 KiB.

use bytes::Bytes;

/// What a device keeps of the blocks written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PayloadKind {
    /// Nothing: reads return [`Payload::None`].
    #[default]
    None,
    /// A 64-bit fingerprint of each block and its metadata.
    Fingerprints,
    /// Data and metadata, byte for byte.
    Bytes,
}

/// The contents of the blocks of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// Unspecified contents, which are stored as zeros.
    #[default]
    None,
    /// One fingerprint for each block.
    Fingerprints(Box<[u64]>),
    /// Data, and metadata where the format has any.
    Bytes(Box<BlockBuffer>),
}

/// Data and metadata of consecutive blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockBuffer {
    /// Blocks × block size bytes.
    pub data: Bytes,
    /// Blocks × metadata bytes; empty where the format has none.
    pub metadata: Bytes,
}

/// The fingerprint of a block of zeros with metadata of zeros, which is what an unwritten block
/// reads as.
pub const ZERO_FINGERPRINT: u64 = 0;

/// The fingerprint of one block: [`ZERO_FINGERPRINT`] if all its bytes are zero, else a 64-bit hash
/// that is not.
///
/// For distinguishing blocks in tests and simulation, not for integrity on media.
#[must_use]
pub fn fingerprint(data: &[u8], metadata: &[u8]) -> u64 {
    if data.iter().chain(metadata).all(|&byte| byte == 0) {
        return ZERO_FINGERPRINT;
    }
    let mut hash = 0x9e37_79b9_7f4a_7c15u64 ^ data.len() as u64;
    for part in [data, metadata] {
        for chunk in part.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 32;
        }
    }
    hash.max(1)
}

impl Payload {
    /// Whether this payload describes exactly `blocks` blocks of the given format.
    /// [`Payload::None`] fits any.
    #[must_use]
    pub fn fits(&self, blocks: u64, block_size_bytes: u32, metadata_bytes: u16) -> bool {
        match self {
            Payload::None => true,
            Payload::Fingerprints(prints) => prints.len() as u64 == blocks,
            Payload::Bytes(buffer) => {
                blocks.checked_mul(u64::from(block_size_bytes)) == Some(buffer.data.len() as u64)
                    && blocks.checked_mul(u64::from(metadata_bytes)) == Some(buffer.metadata.len() as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_zeros_has_the_fingerprint_of_an_unwritten_one() {
        assert_eq!(fingerprint(&[0; 512], &[0; 8]), ZERO_FINGERPRINT);
        assert_ne!(fingerprint(&[0; 512], &[0, 1]), ZERO_FINGERPRINT);
    }

    #[test]
    fn one_flipped_bit_anywhere_changes_the_fingerprint() {
        let block = [0x5a; 512];
        let whole = fingerprint(&block, &[]);
        for byte in 0..512 {
            let mut other = block;
            other[byte] ^= 1;
            assert_ne!(fingerprint(&other, &[]), whole, "byte {byte}");
        }
    }

    #[test]
    fn a_payload_fits_only_its_own_number_of_blocks() {
        let buffer = BlockBuffer { data: vec![0; 1024].into(), metadata: vec![0; 16].into() };
        let payload = Payload::Bytes(Box::new(buffer));
        assert!(payload.fits(2, 512, 8));
        assert!(!payload.fits(2, 512, 0));
        assert!(!payload.fits(1, 512, 8));
        assert!(!Payload::Fingerprints(vec![1, 2].into()).fits(3, 512, 8));
        assert!(Payload::None.fits(9, 512, 8));
    }
}
