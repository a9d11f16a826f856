//! What every block of metadata begins with.
//!
//! ```text
//! byte 0..4    magic: which structure it is      16..32  pool
//!      4..8    CRC-32C over byte 8 to the end    32..36  bytes of the body
//!      8..10   version, 1                        36..    body, then zeros
//!      10..16  0
//! ```

use super::PoolId;

const VERSION: u16 = 1;
/// Bytes before the body.
pub(crate) const HEAD_BYTES: usize = 36;

/// Why a block is not the expected structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// Nothing but zeros.
    Blank,
    /// It begins otherwise.
    NotOurs,
    /// An undamaged block of a version that this crate does not support.
    OtherVersion(u16),
    /// Of another pool.
    OtherPool,
    /// Its checksum does not match, or a field has a value that no writer writes.
    Damaged,
}

/// A sealed block of `block_bytes`.
///
/// # Panics
/// If the body does not fit: writers know how much does.
pub(crate) fn seal(magic: [u8; 4], pool: PoolId, body: &[u8], block_bytes: usize) -> Vec<u8> {
    assert!(HEAD_BYTES + body.len() <= block_bytes, "a body of {} bytes fits a block of {block_bytes}", body.len());
    let mut block = vec![0; block_bytes];
    block[0..4].copy_from_slice(&magic);
    block[8..10].copy_from_slice(&VERSION.to_le_bytes());
    block[16..32].copy_from_slice(&pool.0);
    block[32..36].copy_from_slice(&(body.len() as u32).to_le_bytes());
    block[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(body);
    let sum = checksum(&block[8..]);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The pool and the body of a sealed block.
pub(crate) fn open(magic: [u8; 4], block: &[u8]) -> Result<(PoolId, &[u8]), BlockError> {
    let head = block.get(..HEAD_BYTES).ok_or(BlockError::Damaged)?;
    if head[0..4] != magic {
        let is_blank = block.iter().all(|byte| *byte == 0);
        return Err(if is_blank { BlockError::Blank } else { BlockError::NotOurs });
    }
    let field = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
    if checksum(&block[8..]) != field(4) {
        return Err(BlockError::Damaged);
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(BlockError::OtherVersion(version));
    }
    let pool = PoolId(head[16..32].try_into().map_err(|_| BlockError::Damaged)?);
    let body = block[HEAD_BYTES..].get(..field(32) as usize).ok_or(BlockError::Damaged)?;
    Ok((pool, body))
}

/// Corrects the checksum of a block, whatever it holds.
#[cfg(any(test, feature = "testing"))]
pub fn fit_checksum(block: &mut [u8]) {
    let sum = checksum(block.get(8..).unwrap_or(&[]));
    if let Some(field) = block.get_mut(4..8) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut block = seal(*b"TEST", PoolId([7; 16]), b"body", 512);
        assert_eq!(open(*b"TEST", &block), Ok((PoolId([7; 16]), &b"body"[..])));
        for bit in 0..8 * block.len() {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(open(*b"TEST", &block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn blank_foreign_and_half_blocks_are_told_apart() {
        assert_eq!(open(*b"TEST", &[0; 512]), Err(BlockError::Blank));
        assert_eq!(open(*b"TEST", &[1; 512]), Err(BlockError::NotOurs));
        let block = seal(*b"TEST", PoolId([7; 16]), b"", 512);
        assert_eq!(open(*b"TSET", &block), Err(BlockError::NotOurs));
        assert_eq!(open(*b"TEST", &block[..256]), Err(BlockError::Damaged));
        assert_eq!(open(*b"TEST", &[]), Err(BlockError::Damaged));
    }
}
