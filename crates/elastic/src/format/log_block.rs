//! A block of the log, "ZELG".
//!
//! ```text
//! body: 0      copy of the log, 0 or 1
//!       1      0: records    1: part of a checkpoint
//!       2..10  generation: counts the zones that this copy has begun
//!      10..18  sequence: of records, counts the blocks of records; of a checkpoint, the last such block that it covers
//!      18..22  part of the checkpoint      22..26  parts of the checkpoint (both 0 for records)
//!      26..    records, one behind the other
//! ```
//!
//! Both copies have the same blocks of records. A zone of the log begins with a checkpoint.

use super::PoolId;
use super::block::{self, BlockError, HEAD_BYTES};
use super::codec::{Decoder, Encoder};
use super::record::Record;

pub(super) const MAGIC: [u8; 4] = *b"ZELG";
const FIELDS_BYTES: usize = 26;

/// What a block of the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Records,
    Checkpoint { part: u32, parts: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogBlock {
    pub(crate) copy: u8,
    pub(crate) generation: u64,
    pub(crate) sequence: u64,
    pub(crate) body: Body,
    pub(crate) records: Vec<Record>,
}

/// Bytes of records that fit a block.
pub(crate) fn capacity_of(block_bytes: usize) -> usize {
    block_bytes - HEAD_BYTES - FIELDS_BYTES
}

/// The pool of whose log this block is a part; `None` for every other block.
#[must_use]
pub fn pool_of_log_block(bytes: &[u8]) -> Option<PoolId> {
    LogBlock::open(bytes).ok().map(|(pool, _)| pool)
}

impl LogBlock {
    /// The block, of records that are encoded already.
    pub(crate) fn seal(
        pool: PoolId,
        copy: u8,
        generation: u64,
        sequence: u64,
        body: Body,
        records: &[u8],
        block_bytes: usize,
    ) -> Vec<u8> {
        let (kind, part, parts) = match body {
            Body::Records => (0, 0, 0),
            Body::Checkpoint { part, parts } => (1, part, parts),
        };
        let mut encoder = Encoder::default();
        encoder.u8(copy).u8(kind).u64(generation).u64(sequence).u32(part).u32(parts).raw(records);
        block::seal(MAGIC, pool, &encoder.into_bytes(), block_bytes)
    }

    /// The pool and the contents of a block.
    pub(crate) fn open(bytes: &[u8]) -> Result<(PoolId, LogBlock), BlockError> {
        let (pool, body) = block::open(MAGIC, bytes)?;
        LogBlock::decode(&mut Decoder::new(body)).map(|block| (pool, block)).ok_or(BlockError::Damaged)
    }

    fn decode(from: &mut Decoder<'_>) -> Option<LogBlock> {
        let (copy, kind) = (from.u8()?, from.u8()?);
        let (generation, sequence) = (from.u64()?, from.u64()?);
        let (part, parts) = (from.u32()?, from.u32()?);
        let body = match kind {
            0 => Body::Records,
            1 if part < parts => Body::Checkpoint { part, parts },
            _ => return None,
        };
        let mut records = Vec::new();
        while !from.is_empty() {
            records.push(Record::decode(from)?);
        }
        Some(LogBlock { copy, generation, sequence, body, records })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SMALL_BLOCK_BYTES;
    use super::*;

    #[test]
    fn a_block_of_the_log_names_its_pool_and_other_blocks_name_none() {
        let pool = PoolId([7; 16]);
        let mut block = LogBlock::seal(pool, 1, 2, 3, Body::Records, &[], SMALL_BLOCK_BYTES);
        assert_eq!(pool_of_log_block(&block), Some(pool));
        block[20] ^= 1;
        assert_eq!(pool_of_log_block(&block), None, "its checksum is wrong");
        assert_eq!(pool_of_log_block(&[0; SMALL_BLOCK_BYTES]), None);
    }
}
