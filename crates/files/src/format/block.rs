//! A block of a metadata zone.
//!
//! ```text
//! byte 0..4    magic "ZFIL"
//!      4..8    CRC-32C over bytes 8 up to the end of the payload
//!      8..16   sequence: that of the superblock at the start of the zone
//!      16..20  place: the index of the block in the zone
//!      20      kind: 1 superblock, 2 records
//!      21..24  0
//!      24..28  length of the payload
//!      28..32  0
//!      32..    payload, then zeros
//! ```

use super::{Fields, crc};

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"ZFIL";
const SUM_FROM: usize = 8;

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Superblock = 1,
    Records = 2,
}

/// An intact block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    pub(crate) kind: BlockKind,
    pub(crate) sequence: u64,
    pub(crate) place: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Block<'a> {
    /// Adds the block to `blocks`.
    pub(crate) fn encode(&self, block_bytes: usize, blocks: &mut Vec<u8>) {
        assert!(HEADER_BYTES + self.payload.len() <= block_bytes, "a payload fits its block");
        let from = blocks.len();
        blocks.extend_from_slice(&MAGIC);
        blocks.extend_from_slice(&[0; 4]);
        blocks.extend_from_slice(&self.sequence.to_le_bytes());
        blocks.extend_from_slice(&self.place.to_le_bytes());
        blocks.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        blocks.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        blocks.extend_from_slice(&[0; 4]);
        blocks.extend_from_slice(self.payload);
        let sum = crc(&blocks[from + SUM_FROM..]);
        blocks[from + 4..from + SUM_FROM].copy_from_slice(&sum.to_le_bytes());
        blocks.resize(from + block_bytes, 0);
    }

    /// Decodes a block; `None` if it is not intact.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Block<'a>> {
        let mut fields = Fields(bytes);
        if fields.take(4)? != MAGIC {
            return None;
        }
        let sum = fields.u32()?;
        let sequence = fields.u64()?;
        let place = fields.u32()?;
        let kind = match fields.u8()? {
            1 => BlockKind::Superblock,
            2 => BlockKind::Records,
            _ => return None,
        };
        fields.take(3)?;
        let length = fields.u32()? as usize;
        fields.take(4)?;
        let payload = fields.take(length)?;
        let covered = &bytes[SUM_FROM..HEADER_BYTES + length];
        (crc(covered) == sum).then_some(Block { kind, sequence, place, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_reads_back_as_it_was_written() {
        for length in [0, 1, 100, 480] {
            let payload = vec![7; length];
            let block = Block { kind: BlockKind::Records, sequence: 9, place: 3, payload: &payload };
            let mut bytes = vec![1];
            block.encode(512, &mut bytes);
            assert_eq!(bytes.len(), 513);
            assert_eq!(Block::decode(&bytes[1..]), Some(block));
        }
    }

    #[test]
    fn a_block_with_a_flipped_bit_is_none() {
        let mut bytes = Vec::new();
        Block { kind: BlockKind::Superblock, sequence: 1, place: 0, payload: &[5; 40] }.encode(512, &mut bytes);
        for bit in 0..8 * (HEADER_BYTES + 40) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Block::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Block::decode(&bytes[..HEADER_BYTES + 39]), None);
    }
}
