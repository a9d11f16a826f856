//! The blocks at the end of a full zone: a copy of the metadata of all its blocks, so that they can
//! be read in few commands.
//!
//! ```text
//! byte 0..4    magic "ZVFT"                            12..16  first entry: its index among those of the zone
//!      4..8    CRC-32C over byte 8 to the end           16..41  place: array, member u8, segment u64
//!      8..10   version, 1                               41..48  0
//!      10..12  entries                                  48..    entries, then zeros
//!
//! an entry: 0..20  record    20..24  CRC-32C of the block's own contents    24..28  stripe
//! ```
//!
//! There is an entry for each block of the data region that does not hold chunk metadata, in the
//! order of the zone.

use super::block;
use super::block_meta::{BARE_BYTES, BlockMeta};
use super::bytes::{put_u16, put_u32, u16_at, u32_at};
use super::place::{PLACE_BYTES, Place};

const MAGIC: [u8; 4] = *b"ZVFT";
const COUNT_AT: usize = block::FIELDS_AT;
const FIRST_ENTRY_AT: usize = 12;
const PLACE_AT: usize = 16;
const ENTRIES_AT: usize = 48;

const _: () = assert!(PLACE_AT + PLACE_BYTES <= ENTRIES_AT);

/// Entries per footer block.
pub(crate) fn footer_entries_per_block(block_size_bytes: u32) -> usize {
    (block_size_bytes as usize).saturating_sub(ENTRIES_AT) / BARE_BYTES
}

/// Writes one footer block with at most [`footer_entries_per_block`] entries.
pub(crate) fn write_footer_block(place: &Place, first_entry: u32, entries: &[BlockMeta], out: &mut [u8]) {
    assert!(entries.len() <= footer_entries_per_block(out.len() as u32), "entries fit their block");
    block::begin(out, MAGIC);
    put_u16(out, COUNT_AT, entries.len() as u16);
    put_u32(out, FIRST_ENTRY_AT, first_entry);
    place.write(&mut out[PLACE_AT..ENTRIES_AT]);
    for (bytes, entry) in out[ENTRIES_AT..].chunks_exact_mut(BARE_BYTES).zip(entries) {
        entry.write_bare(bytes);
    }
    block::seal(out);
}

/// The index of the block's first entry, and its entries; `None` if it is damaged, or of another
/// place.
pub(crate) fn read_footer_block(place: &Place, block: &[u8]) -> Option<(u32, Vec<BlockMeta>)> {
    let is_of_place = read_footer_place(block)? == *place;
    let count = usize::from(u16_at(block, COUNT_AT));
    if !is_of_place || count > footer_entries_per_block(block.len() as u32) {
        return None;
    }
    let entries = block[ENTRIES_AT..].chunks_exact(BARE_BYTES).take(count).map(BlockMeta::read_bare).collect();
    Some((u32_at(block, FIRST_ENTRY_AT), entries))
}

/// The place of a footer block; `None` if it is damaged.
pub(crate) fn read_footer_place(block: &[u8]) -> Option<Place> {
    block::check(block, MAGIC).ok()?;
    Some(Place::read(&block[PLACE_AT..ENTRIES_AT]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};

    const PLACE: Place = Place { array: *b"0123456789abcdef", segment: 0x0102_0304_0506_0708, member: 9 };

    fn entry(number: u8) -> BlockMeta {
        BlockMeta { record: [number; 20], block_crc: 0x1111_1111 * u32::from(number % 15), stripe: u32::from(number) }
    }

    #[test]
    fn a_block_of_a_footer_reads_back_and_at_no_other_place() {
        assert_eq!([512, 4096, 65_536].map(footer_entries_per_block), [16, 144, 2338]);
        for block_size_bytes in [512_u32, 4096, 65_536] {
            let most = footer_entries_per_block(block_size_bytes);
            for count in [0, 1, most - 1, most] {
                let entries: Vec<_> = (0..count).map(|at| entry(at as u8)).collect();
                let mut block = vec![0xFF; block_size_bytes as usize];
                write_footer_block(&PLACE, 288, &entries, &mut block);
                assert_eq!(read_footer_block(&PLACE, &block), Some((288, entries)));
                assert_eq!(read_footer_block(&Place { member: 8, ..PLACE }, &block), None);
                assert_eq!(read_footer_block(&Place { array: [0; 16], ..PLACE }, &block), None);
            }
        }
    }

    #[test]
    fn a_block_of_a_footer_with_a_flipped_bit_or_more_entries_than_fit_is_none() {
        let mut block = [0; 512];
        write_footer_block(&PLACE, 3, &[entry(1), entry(2)], &mut block);
        every_flipped_bit_is_noticed(&block, |block| read_footer_block(&PLACE, block).is_none());
        put_u16(&mut block, COUNT_AT, 17);
        block::seal(&mut block);
        assert_eq!(read_footer_block(&PLACE, &block), None);
    }

    #[test]
    fn the_bytes_of_a_footer_are_golden() {
        let mut block = [0; 512];
        write_footer_block(&PLACE, 0x5152_5354, &[entry(1), entry(2)], &mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a5646547fd1888f0100020054535251\n",
                "30313233343536373839616263646566\n",
                "09080706050403020100000000000000\n",
                "01010101010101010101010101010101\n",
                "01010101111111110100000002020202\n",
                "02020202020202020202020202020202\n",
                "2222222202",
            )
        );
    }
}
