//! Every structure of the files lies at the bytes that its module's table gives, so that images
//! stay readable.

use std::collections::BTreeMap;

use zonda_zoned::{Blocks, Geometry, ZoneIndex, ZrwaGeometry};

use super::Generation;
use super::entry::{Entry, Ledger, RecordedState};
use super::layout::Layout;
use super::record::{Encoded, FlushedPointer, Kind, Place, Record, encode_mark};
use super::tag::TagCodec;
use super::{checkpoint, crc, superblock};
use crate::{Counters, ImageSpec};

/// Asserts that the little-endian numbers at these places are these, with so many bytes each, and
/// all else is zero.
#[track_caller]
fn assert_numbers(bytes: &[u8], numbers: &[(usize, usize, u64)]) {
    let mut expected = vec![0; bytes.len()];
    for &(place, width, number) in numbers {
        expected[place..place + width].copy_from_slice(&number.to_le_bytes()[..width]);
    }
    assert_eq!(bytes, expected);
}

fn entry() -> Entry {
    Entry {
        generation: Generation(0x0102_0304),
        wear: 0x0506_0708,
        durable: 0x11,
        pointer: 0x22,
        written: 0x33,
        persisted: 0x4455_6677_8899,
        ..Entry::default()
    }
}

#[test]
fn an_entry_has_its_numbers_state_and_flags_where_the_table_says() {
    let numbers = [
        (0, 4, 0x0102_0304),
        (4, 4, 0x0506_0708),
        (10, 6, 0x4455_6677_8899),
        (16, 8, 0x11),
        (24, 8, 0x22),
        (32, 8, 0x33),
    ];
    assert_numbers(&entry().encode(), &numbers);
    let states = [
        (RecordedState::Writable, 0),
        (RecordedState::Finished, 1),
        (RecordedState::ReadOnly, 2),
        (RecordedState::Offline, 3),
    ];
    for (state, code) in states {
        assert_eq!(Entry { state, ..entry() }.encode()[8..10], [code, 0]);
    }
    let flags = [
        (Entry { has_zrwa: true, ..entry() }, 1),
        (Entry { had_zrwa: true, ..entry() }, 2),
        (Entry { has_extension: true, ..entry() }, 4),
        (Entry { finished: true, ..entry() }, 8),
    ];
    for (entry, flag) in flags {
        assert_eq!(entry.encode()[8..10], [0, flag]);
    }
}

#[test]
fn a_record_has_its_numbers_where_the_table_says_and_its_checksums_cover_what_it_says() {
    let kinds = [
        (Kind::Reset, 1),
        (Kind::Finish, 2),
        (Kind::ReadOnly, 3),
        (Kind::Offline, 4),
        (Kind::Extension, 5),
        (Kind::Zrwa, 6),
        (Kind::Commit, 7),
        (Kind::Flush, 8),
        (Kind::RegionIntent, 9),
        (Kind::Contents, 10),
        (Kind::Zeros, 11),
        (Kind::Reservations, 12),
        (Kind::Overwrite, 13),
        (Kind::Persisted, 14),
    ];
    for (kind, code) in kinds {
        let payload = [0xaa; 5];
        let record = Record {
            kind,
            zone: ZoneIndex(0x11),
            generation: Generation(0x22),
            a: 0x33,
            b: 0x44,
            c: 0x55,
            payload: [&payload, &[]],
        };
        let place = Place { epoch: 0x66, sequence: 0x77, previous: 0x88, failed_batches: 0x00aa_bbcc };
        let Encoded { head, padding, sum } = record.encode(place);
        assert_eq!((head.len(), padding), (72 + 5, 3), "a record takes a multiple of eight bytes");
        let numbers = [
            (0, 4, u64::from(crc(&head[4..72]))),
            (4, 4, u64::from(crc(&payload))),
            (8, 4, 80),
            (12, 4, 5),
            (16, 8, 0x66),
            (24, 8, 0x77),
            (32, 1, code),
            (33, 3, 0x00aa_bbcc),
            (36, 4, 0x11),
            (40, 4, 0x22),
            (44, 4, 0x88),
            (48, 8, 0x33),
            (56, 8, 0x44),
            (64, 8, 0x55),
        ];
        assert_numbers(&head[..72], &numbers);
        assert_eq!((&head[72..], sum), (&payload[..], crc(&head[4..72])));
    }
}

#[test]
fn a_mark_and_a_flushed_pointer_have_their_numbers_where_the_table_says() {
    let mark = encode_mark(&[7; 16], 0x0102, 0x0304);
    let magic = u64::from(u32::from_le_bytes(*b"ZMRK"));
    let uuid = u64::from_le_bytes([7; 8]);
    let sum = u64::from(crc(&mark[4..40]));
    assert_numbers(
        &mark[..40],
        &[(0, 4, sum), (4, 4, magic), (8, 8, 0x0102), (16, 8, 0x0304), (24, 8, uuid), (32, 8, uuid)],
    );
    assert!(mark[40..].iter().all(|&byte| byte == 0));
    let mut pointer = Vec::new();
    FlushedPointer { zone: ZoneIndex(0x11), generation: Generation(0x22), pointer: 0x33 }.encode(&mut pointer);
    assert_numbers(&pointer, &[(0, 4, 0x11), (4, 4, 0x22), (8, 8, 0x33)]);
}

#[test]
fn a_checkpoint_has_its_header_entries_and_extensions_where_the_table_says() {
    let layout = Layout::new(&Geometry { zone_count: 3, ..Geometry::tiny() }, 1 << 20);
    let counters = Counters { host_written_blocks: 0x11, padding_blocks: 0x22, host_read_blocks: 0x33, erases: 0x44 };
    let entries = vec![Entry::default(), entry(), Entry { has_extension: true, ..Entry::default() }];
    let extensions = BTreeMap::from([(ZoneIndex(2), vec![9; 64].into())]);
    let reservations = (1..=5).collect();
    let ledger = Ledger { entries, extensions, counters, reservations };
    for clean in [false, true] {
        let copy = checkpoint::encode(&layout, &[7; 16], 0x0102, clean, &ledger);
        let uuid = u64::from_le_bytes([7; 8]);
        let numbers = [
            (0, 4, u64::from(crc(&copy[4..4096]))),
            (4, 4, u64::from(crc(&copy[4096..]))),
            (8, 8, u64::from_le_bytes(*b"zondchkp")),
            (16, 8, 0x0102),
            (24, 8, uuid),
            (32, 8, uuid),
            (40, 1, clean.into()),
            (48, 8, 0x11),
            (56, 8, 0x22),
            (64, 8, 0x33),
            (72, 8, 0x44),
            (80, 4, 5),
            (96, 5, 0x05_0403_0201),
        ];
        assert_numbers(&copy[..4096], &numbers);
        assert_eq!(copy[4096 + 40..4096 + 80], entry().encode());
        let extensions = &copy[4096 + 3 * 40..];
        assert_eq!((extensions.len(), &extensions[128..]), (3 * 64, &[9; 64][..]));
        assert!(extensions[..128].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_superblock_has_its_numbers_where_the_table_says() {
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(0x16),
        flush_granularity_blocks: Blocks(0x17),
        resources: 0x18,
        explicit_flush: false,
    };
    let geometry = Geometry {
        block_size_bytes: 0x10,
        metadata_bytes: 0x11,
        zone_size_blocks: Blocks(0x12),
        zone_capacity_blocks: Blocks(0x13),
        max_transfer_blocks: Blocks(0x14),
        max_append_blocks: Blocks(0x15),
        zrwa: Some(zrwa),
        zone_count: 0x19,
        conventional_zone_count: 0x1a,
        max_active_zones: Some(0x1b),
        max_open_zones: Some(0x1c),
        descriptor_extension_bytes: 0x1d,
        read_across_zones: false,
    };
    let spec = ImageSpec { geometry, profile: "name".into(), uuid: [7; 16], journal_bytes: 0x1e };
    let uuid = u64::from_le_bytes([7; 8]);
    let numbers = |copy: &[u8], flags| {
        let numbers = [
            (0, 8, u64::from_le_bytes(*b"zonda im")),
            (8, 8, u64::from_le_bytes(*b"age\0\0\0\0\0")),
            (16, 4, 3),
            (20, 4, u64::from(crc(&copy[24..148]))),
            (24, 8, uuid),
            (32, 8, uuid),
            (40, 8, 0x1e),
            (48, 8, 0x12),
            (56, 8, 0x13),
            (64, 8, 0x14),
            (72, 8, 0x15),
            (80, 8, 0x16),
            (88, 8, 0x17),
            (96, 4, 0x10),
            (100, 4, 0x19),
            (104, 4, 0x1a),
            (108, 4, 0x1b),
            (112, 4, 0x1c),
            (116, 4, 0x18),
            (120, 4, 0x1d),
            (124, 2, 0x11),
            (126, 1, flags),
            (128, 4, 4),
        ];
        assert_numbers(&copy[..144], &numbers);
        assert_eq!((&copy[144..148], copy.len()), (&b"name"[..], 32 << 10));
    };
    numbers(&superblock::encode(&spec), 0);
    let mut flagged = spec.clone();
    flagged.geometry.read_across_zones = true;
    numbers(&superblock::encode(&flagged), 2);
    let mut flagged = spec.clone();
    flagged.geometry.zrwa = Some(ZrwaGeometry { explicit_flush: true, ..zrwa });
    numbers(&superblock::encode(&flagged), 1);
}

#[test]
fn a_tag_has_kind_generation_and_metadata_where_the_table_says_and_covers_place_and_image() {
    let uuid: [u8; 16] = std::array::from_fn(|i| i as u8);
    let codec = TagCodec::new(&uuid, 512, 8, 16);
    let (data, metadata, lba) = ([0xaa; 512], [0xbb; 8], 0x0102_0304_0506_u64);
    let expected = |data_crc: u32, word: u32, metadata: &[u8]| {
        let covered =
            [&data_crc.to_le_bytes()[..], &word.to_le_bytes(), &lba.to_le_bytes(), &uuid[..8], metadata].concat();
        [&crc(&covered).to_le_bytes()[..], &word.to_le_bytes(), metadata].concat()
    };
    // The two highest bits are the kind: a generation's are left out.
    let written = codec.of_data(lba, Generation(0xc000_0005), &data, &metadata);
    assert_eq!(written, expected(crc(&data), 0x4000_0005, &metadata));
    assert_eq!(codec.of_zeros(lba, Generation(0xffff_ffff), 1), expected(0, 0xbfff_ffff, &[0; 8]));
}
