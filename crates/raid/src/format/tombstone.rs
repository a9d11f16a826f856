//! The contents of a block of tombstones: ranges that read as zeros.
//!
//! ```text
//! byte 0..4   magic "ZVTB"                        10..12  tombstones
//!      4..8   CRC-32C over byte 8 to the end       12..16  0
//!      8..10  version, 1                           16..    tombstones, then zeros
//!
//! a tombstone: 0..8  LBA    8..12  blocks    12..20  timestamp of the trim
//! ```

use super::block;
use super::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

const MAGIC: [u8; 4] = *b"ZVTB";
const COUNT_AT: usize = block::FIELDS_AT;
const ENTRIES_AT: usize = 16;

const BLOCKS_AT: usize = 8;
const TIMESTAMP_AT: usize = 12;
const ENTRY_BYTES: usize = 20;

/// A range that reads as zeros since its trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
    pub(crate) timestamp: u64,
}

impl Tombstone {
    /// The blocks of the range.
    pub(crate) fn lbas(&self) -> std::ops::Range<u64> {
        self.lba..self.lba + u64::from(self.blocks)
    }
}

/// How many tombstones a block holds.
pub(crate) fn tombstones_per_block(block_size_bytes: u32) -> usize {
    (block_size_bytes as usize).saturating_sub(ENTRIES_AT) / ENTRY_BYTES
}

/// Writes a block of tombstones, at most [`tombstones_per_block`] of them.
pub(crate) fn write_tombstones(tombstones: &[Tombstone], out: &mut [u8]) {
    assert!(tombstones.len() <= tombstones_per_block(out.len() as u32), "tombstones fit their block");
    block::begin(out, MAGIC);
    put_u16(out, COUNT_AT, tombstones.len() as u16);
    for (bytes, tombstone) in out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(tombstones) {
        put_u64(bytes, 0, tombstone.lba);
        put_u32(bytes, BLOCKS_AT, tombstone.blocks);
        put_u64(bytes, TIMESTAMP_AT, tombstone.timestamp);
    }
    block::seal(out);
}

/// The tombstones of a block; `None` if it is not whole.
pub(crate) fn read_tombstones(block: &[u8]) -> Option<Vec<Tombstone>> {
    block::check(block, MAGIC).ok()?;
    let count = usize::from(u16_at(block, COUNT_AT));
    if count > tombstones_per_block(block.len() as u32) {
        return None;
    }
    let entries = block[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(count);
    let read = |bytes: &[u8]| Tombstone {
        lba: u64_at(bytes, 0),
        blocks: u32_at(bytes, BLOCKS_AT),
        timestamp: u64_at(bytes, TIMESTAMP_AT),
    };
    Some(entries.map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};

    const TOMBSTONE: Tombstone =
        Tombstone { lba: 0x0102_0304_0506_0708, blocks: 0x1112_1314, timestamp: 0x2122_2324_2526_2728 };

    #[test]
    fn tombstones_read_back() {
        assert_eq!([512, 4096, 65_536].map(tombstones_per_block), [24, 204, 3276]);
        for block_size_bytes in [512_u32, 4096, 65_536] {
            let most = tombstones_per_block(block_size_bytes);
            for count in [0, 1, most] {
                let tombstones: Vec<_> = (0..count).map(|at| Tombstone { lba: at as u64, ..TOMBSTONE }).collect();
                let mut block = vec![0xFF; block_size_bytes as usize];
                write_tombstones(&tombstones, &mut block);
                assert_eq!(read_tombstones(&block), Some(tombstones));
            }
        }
    }

    #[test]
    fn tombstones_with_a_flipped_bit_or_more_than_fit_are_none() {
        let mut block = [0; 512];
        write_tombstones(&[TOMBSTONE; 3], &mut block);
        every_flipped_bit_is_noticed(&block, |block| read_tombstones(block).is_none());
        put_u16(&mut block, COUNT_AT, 25);
        block::seal(&mut block);
        assert_eq!(read_tombstones(&block), None);
    }

    #[test]
    fn the_bytes_of_tombstones_are_golden() {
        let mut block = [0; 512];
        write_tombstones(&[TOMBSTONE, Tombstone { lba: 1, blocks: 2, timestamp: 3 }], &mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a5654421e42a3490100020000000000\n",
                "08070605040302011413121128272625\n",
                "24232221010000000000000002000000\n",
                "03",
            )
        );
    }
}
