//! The first block of a chunk on members without metadata bytes: it describes the other blocks.
//!
//! ```text
//! byte 0..4    magic "ZVCM"                            12..16  stripe, counted from the start of the segment
//!      4..8    CRC-32C over byte 8 to the end           16..41  place: array, member u8, segment u64
//!      8..10   version, 1                               41..48  0
//!      10..12  entries                                  48..    entries, then zeros
//!
//! an entry: 0..20  record (of a parity chunk: coded)    20..24  CRC-32C of the block's own contents
//! ```

use super::block;
use super::bytes::{array_at, put_u16, put_u32, u16_at, u32_at};
use super::place::{PLACE_BYTES, Place};
use super::record::RECORD_BYTES;

const MAGIC: [u8; 4] = *b"ZVCM";
const COUNT_AT: usize = block::FIELDS_AT;
const STRIPE_AT: usize = 12;
const PLACE_AT: usize = 16;
const ENTRIES_AT: usize = 48;
const ENTRY_BYTES: usize = RECORD_BYTES + 4;

const _: () = assert!(PLACE_AT + PLACE_BYTES <= ENTRIES_AT);

/// Contents of a chunk's first block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkMeta {
    pub(crate) stripe: u32,
    /// Record and CRC-32C of each of the chunk's other blocks, in their order.
    pub(crate) entries: Vec<([u8; RECORD_BYTES], u32)>,
}

/// How many blocks one metadata block can describe.
pub(crate) fn chunk_meta_entries_max(block_size_bytes: u32) -> usize {
    (block_size_bytes as usize).saturating_sub(ENTRIES_AT) / ENTRY_BYTES
}

/// Writes the metadata block of a chunk, for at most [`chunk_meta_entries_max`] blocks.
pub(crate) fn write_chunk_meta(place: &Place, stripe: u32, entries: &[([u8; RECORD_BYTES], u32)], out: &mut [u8]) {
    assert!(entries.len() <= chunk_meta_entries_max(out.len() as u32), "a chunk's blocks fit its first block");
    block::begin(out, MAGIC);
    put_u16(out, COUNT_AT, entries.len() as u16);
    put_u32(out, STRIPE_AT, stripe);
    place.write(&mut out[PLACE_AT..ENTRIES_AT]);
    for (entry, (record, block_crc)) in out[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        entry[..RECORD_BYTES].copy_from_slice(record);
        put_u32(entry, RECORD_BYTES, *block_crc);
    }
    block::seal(out);
}

/// Reads the metadata block of a chunk; `None` if it is damaged, or of another place.
pub(crate) fn read_chunk_meta(place: &Place, block: &[u8]) -> Option<ChunkMeta> {
    read_placed_chunk_meta(block).filter(|(read, _)| read == place).map(|(_, meta)| meta)
}

/// The place and contents of a metadata block; `None` if it is damaged.
pub(crate) fn read_placed_chunk_meta(block: &[u8]) -> Option<(Place, ChunkMeta)> {
    block::check(block, MAGIC).ok()?;
    let count = usize::from(u16_at(block, COUNT_AT));
    if count > chunk_meta_entries_max(block.len() as u32) {
        return None;
    }
    let place = Place::read(&block[PLACE_AT..ENTRIES_AT]);
    let entries = block[ENTRIES_AT..].chunks_exact(ENTRY_BYTES).take(count);
    let entries = entries.map(|entry| (array_at(entry, 0), u32_at(entry, RECORD_BYTES))).collect();
    Some((place, ChunkMeta { stripe: u32_at(block, STRIPE_AT), entries }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};

    const PLACE: Place = Place { array: *b"0123456789abcdef", segment: 0x0102_0304_0506_0708, member: 9 };

    #[test]
    fn a_chunk_reads_back_whatever_blocks_it_has_and_at_no_other_place() {
        assert_eq!([512, 4096, 65_536].map(chunk_meta_entries_max), [19, 168, 2728]);
        for block_size_bytes in [512_u32, 4096, 65_536] {
            let most = chunk_meta_entries_max(block_size_bytes);
            for count in [0, 1, most - 1, most] {
                let entries: Vec<_> = (0..count).map(|at| ([at as u8; RECORD_BYTES], u32::MAX - at as u32)).collect();
                let mut block = vec![0xFF; block_size_bytes as usize];
                write_chunk_meta(&PLACE, 77, &entries, &mut block);
                assert_eq!(read_chunk_meta(&PLACE, &block), Some(ChunkMeta { stripe: 77, entries }));
                assert_eq!(read_chunk_meta(&Place { member: 8, ..PLACE }, &block), None);
                assert_eq!(read_chunk_meta(&Place { segment: 1, ..PLACE }, &block), None);
            }
        }
    }

    #[test]
    fn a_chunk_with_a_flipped_bit_or_more_blocks_than_fit_is_none() {
        let mut block = [0; 512];
        write_chunk_meta(&PLACE, 77, &[([1; RECORD_BYTES], 2)], &mut block);
        every_flipped_bit_is_noticed(&block, |block| read_chunk_meta(&PLACE, block).is_none());
        put_u16(&mut block, COUNT_AT, 20);
        block::seal(&mut block);
        assert_eq!(read_chunk_meta(&PLACE, &block), None);
    }

    #[test]
    fn the_bytes_of_a_chunk_are_golden() {
        let mut block = [0; 512];
        let entries = [([0x11; RECORD_BYTES], 0x2122_2324), ([0x31; RECORD_BYTES], 0x4142_4344)];
        write_chunk_meta(&PLACE, 0x5152_5354, &entries, &mut block);
        assert_eq!(
            hex(&block),
            concat!(
                "5a56434d760cc1050100020054535251\n",
                "30313233343536373839616263646566\n",
                "09080706050403020100000000000000\n",
                "11111111111111111111111111111111\n",
                "11111111242322213131313131313131\n",
                "31313131313131313131313144434241",
            )
        );
    }
}
