//! Blocks with valid checksums and arbitrary contents: readers accept or refuse them, and never
//! panic.

use zonda_zoned::Prng;

use super::*;
use crate::config::StreamShape;

const PLACE: Place = Place { array: [7; 16], segment: 9, member: 2 };

/// Blocks of every kind, as writers write them.
fn blocks() -> Vec<[u8; 512]> {
    let shape = StreamShape { unit_blocks: 4, group_stripes: 256 };
    let member = MemberEntry { id: [1; 16], state: MemberState::Active, since_epoch: 1, is_rejected: false };
    let header = SegmentHeader {
        copies: 2,
        array: PLACE.array,
        segment: PLACE.segment,
        epoch: 1,
        timestamp: 2,
        member: PLACE.member,
        stream: 0,
        is_in_band: false,
        is_rebuilt: false,
        unit_blocks: 1,
        group_stripes: 4,
        stripes: 8,
        data: 3,
        parity: 1,
        zones: vec![Some(5); 4],
    };
    let superblock = Superblock {
        version: 2,
        copies_behind: 1,
        accepted_segment: 6,
        offline_zones: Some(2),
        read_only_zones: Vec::new(),
        array: PLACE.array,
        name: "prague".to_owned(),
        epoch: 1,
        sequence: 1,
        block_size_bytes: 512,
        volume_blocks: 1000,
        level: 5,
        data: 3,
        parity: 1,
        is_in_band: false,
        has_single_headers: false,
        small: shape,
        large: shape,
        member: 2,
        members: vec![member; 4],
    };
    let meta = BlockMeta { record: [3; RECORD_BYTES], block_crc: 4, stripe: 5 };
    let mut blocks = vec![[0; 512]; 6];
    header.write(&mut blocks[0]);
    superblock.write(&mut blocks[1]);
    write_chunk_meta(&PLACE, 1, &[([3; RECORD_BYTES], 4); 3], &mut blocks[2]);
    write_footer_block(&PLACE, 0, &[meta; 3], &mut blocks[3]);
    let trimmed = Tombstone { lba: 1, blocks: 2, timestamp: 3, is_lost: false };
    write_tombstones(&[trimmed; 3], &[], &mut blocks[4]);
    let place = LostPlace { segment: PLACE.segment, stripe: 5, member: PLACE.member, block: 1 };
    write_tombstones(&[trimmed, Tombstone { is_lost: true, ..trimmed }], &[place; 2], &mut blocks[5]);
    blocks
}

/// How many of the readers accept a block.
fn takers(block: &[u8]) -> usize {
    [
        SegmentHeader::read(block).is_ok(),
        Superblock::read(block).is_ok(),
        read_chunk_meta(&PLACE, block).is_some(),
        read_footer_block(&PLACE, block).is_some(),
        read_tombstones(block).is_some(),
    ]
    .iter()
    .filter(|&&takes| takes)
    .count()
}

#[test]
fn a_block_is_taken_by_one_reader_only_and_altered_ones_with_a_sum_that_fits_by_at_most_one() {
    let mut prng = Prng::new(1);
    let mut refused = 0;
    for block in blocks() {
        assert_eq!(takers(&block), 1);
        for _ in 0..5_000 {
            let mut altered = block;
            for _ in 0..=prng.below(8) {
                let at = block::FIELDS_AT + prng.below(150) as usize;
                altered[at] = if prng.chance(1, 2) { 0xFF } else { prng.below(256) as u8 };
            }
            block::seal(&mut altered);
            let takers = takers(&altered);
            assert!(takers <= 1);
            refused += usize::from(takers == 0);
        }
    }
    assert!(refused > 1_000, "many of these blocks are refused: {refused}");
}

#[test]
fn noise_of_any_length_is_refused() {
    let mut prng = Prng::new(2);
    for length in (0..600).chain([4096, 65_536]) {
        let noise: Vec<u8> = (0..length).map(|_| prng.below(256) as u8).collect();
        assert_eq!(takers(&noise), 0);
        assert_eq!(BlockMeta::read_oob(PLACE.seed(), 0, &noise), None);
    }
}
