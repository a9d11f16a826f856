//! Element tables that are damaged, inconsistent, or of another drive: rejected without a panic.

use proptest::prelude::*;
use zonda_ssd::allocation::{ElementState, ElementTable, ElementTableError, FlexibleAllocator, ZoneAllocator};
use zonda_zoned::{Prng, ZoneIndex};

use crate::zone_allocation::drive_in_use;

/// A change of a table.
type Change<'a> = &'a dyn Fn(&mut ElementTable);

#[test]
fn a_table_of_another_drive_or_an_inconsistent_one_is_refused() {
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
        (&|table| table.elements.truncate(3), "its number of elements is 3, not 16"),
        (&|table| table.elements_per_zone = 5, "its number of elements per zone is 5, not 4"),
        (&|table| table.zones.truncate(1), "its number of zones is 1, not 4"),
        (&|table| table.zones[owner] = vec![99], "has element 99, which does not exist"),
        (&|table| table.elements[owned as usize].state = ElementState::Retired, "is offline, but not all of its"),
        (&|table| table.zones[owner] = vec![owned, owned], "is listed twice"),
        (&|table| table.elements[owned as usize].state = ElementState::Empty, "is free, but listed for a zone"),
        (&|table| table.elements[free].state = ElementState::Written, "is not free, but has no owner"),
        (&|table| table.elements[free].erases = u32::MAX, "has too many erases"),
    ];
    for (change, expected) in changes {
        let error = refused(change);
        assert!(error.contains(expected), "{error}");
    }
    allocator.restore(&good).expect("the table itself is right");
}

#[test]
fn bytes_that_are_not_a_table_are_refused_with_the_reason() {
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

/// Bytes with a valid magic number and checksum, so that the rest is parsed.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.splice(0..0, b"ZELM\x01\0\0\0\0\0\0\0".iter().copied());
    let sum = crc_fast::crc32_iscsi(&bytes[12..]);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_make_the_table_parser_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        numbers in proptest::collection::vec(0_u32..6, 0..40),
    ) {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        for bytes in [bytes.clone(), sealed(bytes), sealed(numbers)] {
            if let Ok(table) = ElementTable::from_bytes(&bytes) {
                prop_assert_eq!(table.to_bytes(), bytes, "a table is serialized to the bytes it was parsed from");
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
