//! Tables of elements that are damaged, wrong, or of another drive: refused, and never a panic.

use proptest::prelude::*;
use zonda_ssd::allocation::{ElementState, ElementTable, ElementTableError, FlexibleAllocator, ZoneAllocator};
use zonda_zoned::{Prng, ZoneIndex};

use crate::zone_allocation::drive_in_use;

/// What is done to a table.
type Change<'a> = &'a dyn Fn(&mut ElementTable);

#[test]
fn a_table_of_another_drive_or_one_that_contradicts_itself_is_refused() {
    let (profile, mut allocator) = drive_in_use(&mut Prng::new(3));
    let good = allocator.elements();
    let refused = |change: Change<'_>| {
        let mut table = good.clone();
        change(&mut table);
        FlexibleAllocator::new(&profile).restore(&table).expect_err("it is wrong").to_string()
    };
    let owner = good.zones.iter().position(|zone| zone.len() > 1).expect("a zone is in use");
    let (owned, free) =
        (good.zones[owner][0], good.elements.iter().position(|e| e.state.is_free()).expect("one is free"));
    let changes: [(Change<'_>, &str); 10] = [
        (&|table| table.policy = zonda_ssd::profile::AllocationKind::Superblock, "by \"superblock\", not by \"block\""),
        (&|table| table.elements.truncate(3), "it has 3 elements, not 16"),
        (&|table| table.elements_per_zone = 5, "its zones have 5 elements each, not 4"),
        (&|table| table.zones.truncate(1), "it has 1 zones, not 4"),
        (&|table| table.zones[owner] = vec![99], "has element 99, which there is not"),
        (&|table| table.elements[owned as usize].state = ElementState::Retired, "went offline, and some of its"),
        (&|table| table.zones[owner] = vec![owned, owned], "is twice a zone's"),
        (&|table| table.elements[owned as usize].state = ElementState::Empty, "is free, and a zone's"),
        (&|table| table.elements[free].state = ElementState::Written, "is Written, and no zone's"),
        (&|table| table.elements[free].erases = u32::MAX, "was erased more often than can be"),
    ];
    for (change, expected) in changes {
        let error = refused(change);
        assert!(error.contains(expected), "{error}");
    }
    allocator.restore(&good).expect("the table itself is right");
}

#[test]
fn bytes_that_are_no_table_are_refused_for_what_they_are() {
    let (_, allocator) = drive_in_use(&mut Prng::new(3));
    let bytes = allocator.elements().to_bytes();
    let with = |at: usize, by: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= by;
        ElementTable::from_bytes(&bytes).expect_err("a byte is wrong")
    };
    assert_eq!(with(0, 1), ElementTableError::NotATable);
    assert_eq!(with(4, 3), ElementTableError::Version { found: 2 });
    assert_eq!(with(8, 1), ElementTableError::Checksum);
    assert_eq!(with(40, 1), ElementTableError::Checksum);
    assert_eq!(ElementTable::from_bytes(&bytes[..3]), Err(ElementTableError::NotATable));
    for cut in 4..bytes.len() {
        assert!(ElementTable::from_bytes(&bytes[..cut]).is_err(), "{cut} bytes of {}", bytes.len());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(ElementTable::from_bytes(&longer).is_err());
}

/// Bytes with the right beginning and checksum, so that more than these is looked at.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.splice(0..0, b"ZELM\x01\0\0\0\0\0\0\0".iter().copied());
    let sum = crc_fast::crc32_iscsi(&bytes[12..]);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_of_tables_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        numbers in proptest::collection::vec(0_u32..6, 0..40),
    ) {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        for bytes in [bytes.clone(), sealed(bytes), sealed(numbers)] {
            if let Ok(table) = ElementTable::from_bytes(&bytes) {
                prop_assert_eq!(table.to_bytes(), bytes, "a table that is read is written alike");
            }
        }
    }

    #[test]
    fn a_table_with_wrong_words_is_refused_or_makes_an_allocator_that_works(
        seed in 0_u64..50,
        words in proptest::collection::vec((0_usize..200, 0_u32..64), 1..4),
    ) {
        let (profile, allocator) = drive_in_use(&mut Prng::new(seed));
        let mut bytes = allocator.elements().to_bytes()[12..].to_vec();
        for (place, word) in words {
            let at = place * 4 % bytes.len();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let mut again = FlexibleAllocator::new(&profile);
        let taken = ElementTable::from_bytes(&sealed(bytes)).and_then(|table| again.restore(&table));
        prop_assert!(taken.is_err() || again.elements().elements.len() == allocator.elements().elements.len());
        again.check_invariants();
        for zone in 0..4 {
            again.allocate(ZoneIndex(zone));
            again.release_untouched(ZoneIndex(zone), 0);
        }
        again.check_invariants();
    }
}
