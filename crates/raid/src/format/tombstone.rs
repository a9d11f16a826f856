//! The contents of a block of tombstones: ranges that read as zeros, and ranges that are lost.
//!
//! ```text
//! byte 0..4   magic "ZVTB"                        10..12  tombstones
//!      4..8   CRC-32C over byte 8 to the end       12..16  0
//!      8..10  version, 1 or 2                      16..    tombstones, then zeros
//!
//! a tombstone: 0..8  LBA    8..12  blocks; bit 31: lost    12..20  timestamp of the trim, or of what is lost
//! ```
//!
//! A range that is lost holds a version that can never be read again: reads of it fail until it is written or trimmed. Version 2 says
//! that a block has such ranges: a reader that knows only version 1 must not take them for trims.
//!
//! ```text
//! version 1: all ranges are trimmed        version 2: bit 31 of `blocks` tells the lost ones
//! ```

use super::block;
use super::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

const MAGIC: [u8; 4] = *b"ZVTB";
const VERSION_WITH_LOST: u16 = 2;
const COUNT_AT: usize = block::FIELDS_AT;
const ENTRIES_AT: usize = 16;

const BLOCKS_AT: usize = 8;
const TIMESTAMP_AT: usize = 12;
const ENTRY_BYTES: usize = 20;
/// In the number of blocks: the range is lost.
const LOST: u32 = 1 << 31;
const _: () = assert!(crate::limits::TOMBSTONE_BLOCKS_MAX < LOST as u64);

/// A range that reads as zeros since its trim, or that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
    /// Of the trim. Of a lost range: no less than that of the version that is lost, and less than that of any newer one.
    pub(crate) timestamp: u64,
    /// The range cannot be read, instead of reading as zeros.
    pub(crate) is_lost: bool,
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
    let has_lost = tombstones.iter().any(|tombstone| tombstone.is_lost);
    block::begin_version(out, MAGIC, if has_lost { VERSION_WITH_LOST } else { block::FIRST_VERSION });
    put_u16(out, COUNT_AT, tombstones.len() as u16);
    for (bytes, tombstone) in out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(tombstones) {
        put_u64(bytes, 0, tombstone.lba);
        put_u32(bytes, BLOCKS_AT, tombstone.blocks | if tombstone.is_lost { LOST } else { 0 });
        put_u64(bytes, TIMESTAMP_AT, tombstone.timestamp);
    }
    block::seal(out);
}

/// The tombstones of a block; `None` if it is not whole.
pub(crate) fn read_tombstones(block: &[u8]) -> Option<Vec<Tombstone>> {
    let has_lost = block::check_version(block, MAGIC, VERSION_WITH_LOST).ok()? == VERSION_WITH_LOST;
    let count = usize::from(u16_at(block, COUNT_AT));
    if count > tombstones_per_block(block.len() as u32) {
        return None;
    }
    let entries = block[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(count);
    let read = |bytes: &[u8]| {
        let blocks = u32_at(bytes, BLOCKS_AT);
        let is_lost = has_lost && blocks & LOST != 0;
        Tombstone {
            lba: u64_at(bytes, 0),
            blocks: if has_lost { blocks & !LOST } else { blocks },
            timestamp: u64_at(bytes, TIMESTAMP_AT),
            is_lost,
        }
    };
    Some(entries.map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};

    const TOMBSTONE: Tombstone =
        Tombstone { lba: 0x0102_0304_0506_0708, blocks: 0x1112_1314, timestamp: 0x2122_2324_2526_2728, is_lost: false };

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
        write_tombstones(&[TOMBSTONE, Tombstone { lba: 1, blocks: 2, timestamp: 3, is_lost: false }], &mut block);
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

    #[test]
    fn a_block_with_a_lost_range_is_of_version_2_and_tells_it_from_a_trimmed_one() {
        let mut block = [0; 512];
        let lost = Tombstone { lba: 1, blocks: 2, timestamp: 3, is_lost: true };
        write_tombstones(&[lost, TOMBSTONE], &mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a5654420e488c990200020000000000\n",
                "01000000000000000200008003000000\n",
                "00000000080706050403020114131211\n",
                "2827262524232221",
            )
        );
        assert_eq!(read_tombstones(&block), Some(vec![lost, TOMBSTONE]));
        every_flipped_bit_is_noticed(&block, |block| read_tombstones(block).is_none());
    }
}
