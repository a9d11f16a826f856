//! The zone of a file's data. Zones 0 and 1 are for metadata, so data begin in zone 2.

use zonda_zoned::{Blocks, Geometry, Prng};

use crate::limits::FILE_WRITES_MAX;
use crate::testing::{Harness, Testbed, fill_metadata, pattern, small, units_of_two_blocks};
use crate::{FileData, FileError, FilesConfig, Lifetime, RequestId};

use Lifetime::{Extreme, Long, Medium, NotSet, Short};

fn never_finishing() -> FilesConfig {
    FilesConfig { finish_threshold_percent: 100, ..units_of_two_blocks() }
}

#[test]
fn a_file_is_placed_with_longer_lived_data() {
    let mut harness = Harness::new(small(12, 5), never_finishing());
    harness.write_file("level", Medium, 1024);
    harness.write_file("log", Short, 700);
    assert_eq!(harness.zones_written(), [2]);
    assert_eq!(harness.store().usage().relaxed_matches, 0);
}

#[test]
fn of_the_longer_lived_zones_the_nearest_is_chosen() {
    let mut harness = Harness::new(small(12, 6), never_finishing());
    let extreme = harness.create("extreme", Extreme);
    let long = harness.create("long", Long);
    for file in [extreme, long] {
        harness.append(file, &pattern(1, 600));
        harness.sync(file);
    }
    harness.close(extreme);
    harness.close(long);
    assert_eq!(harness.zones_written(), [2, 3]);
    harness.write_file("log", Short, 700);
    assert_eq!(harness.zones_written(), [3]);
}

#[test]
fn of_equally_fitting_zones_the_fullest_is_chosen() {
    for (blocks, fullest) in [([2, 5, 4], 3), ([7, 5, 4], 2), ([2, 3, 4], 4)] {
        let mut harness = Harness::new(small(12, 6), never_finishing());
        let files = ["a", "b", "c"].map(|name| harness.create(name, Long));
        for (file, blocks) in files.into_iter().zip(blocks) {
            harness.append(file, &pattern(1, blocks * 512));
            harness.sync(file);
        }
        assert_eq!(harness.zones_written(), [2, 3, 4]);
        for file in files {
            harness.close(file);
        }
        harness.write_file("log", Short, 700);
        assert_eq!(harness.zones_written(), [fullest], "{blocks:?} blocks are written");
    }
}

#[test]
fn data_of_equal_lifetime_get_their_own_zone_while_one_is_free() {
    let mut harness = Harness::new(small(12, 4), never_finishing());
    harness.write_file("a", Long, 600);
    harness.write_file("b", Long, 600);
    assert_eq!(harness.zones_written(), [2, 3]);
    harness.write_file("c", Long, 600);
    assert_eq!(harness.zones_written(), [2], "the third active zone is reserved for short-lived data");
    assert_eq!(harness.store().usage().relaxed_matches, 1);
}

#[test]
fn files_without_a_lifetime_share_zones_only_with_each_other() {
    let mut harness = Harness::new(small(12, 6), never_finishing());
    harness.write_file("a", NotSet, 600);
    harness.write_file("b", Short, 600);
    harness.write_file("c", Lifetime::None, 600);
    harness.write_file("d", Medium, 600);
    assert_eq!(harness.zones_written(), [2, 3, 2, 4]);
}

#[test]
fn a_zone_has_the_lifetime_of_the_first_file_in_it() {
    let mut harness = Harness::new(small(12, 6), never_finishing());
    harness.write_file("a", Extreme, 600);
    harness.write_file("b", Short, 600);
    harness.write_file("c", Medium, 600);
    assert_eq!(harness.zones_written(), [2], "the zone keeps its extreme lifetime after the short-lived file");
}

#[test]
fn open_files_never_write_to_the_same_zone() {
    let mut harness = Harness::new(small(12, 6), never_finishing());
    let files = ["a", "b", "c"].map(|name| harness.create(name, Long));
    let mut zones = [const { Vec::new() }; 3];
    for round in 0..9 {
        for (file, zones) in files.iter().zip(&mut zones) {
            harness.append(*file, &pattern(round, 900));
            harness.sync(*file);
            zones.extend(harness.zones_written());
        }
    }
    assert!(zones.iter().all(|zones| zones.len() > 1));
    let shared = zones[0].iter().any(|zone| zones[1].contains(zone) || zones[2].contains(zone));
    assert!(!shared && !zones[1].iter().any(|zone| zones[2].contains(zone)), "{zones:?}");
}

#[test]
fn at_the_active_limit_the_fullest_zone_is_finished_if_it_is_full_enough() {
    let mut harness = Harness::new(small(12, 3), FilesConfig { finish_threshold_percent: 50, ..units_of_two_blocks() });
    harness.write_file("a", Long, 4 * 512);
    harness.write_file("b", Long, 9 * 512);
    harness.write_file("c", Long, 512);
    assert_eq!(harness.zones_written(), [2, 3, 4]);
    let usage = harness.store().usage();
    assert_eq!((usage.zone_finishes, usage.zones_finished_early, usage.relaxed_matches), (1, 1, 0));
    assert_eq!(usage.zones_active, 2);
}

#[test]
fn at_the_active_limit_no_zone_is_finished_below_the_threshold() {
    let mut harness = Harness::new(small(12, 3), FilesConfig { finish_threshold_percent: 60, ..units_of_two_blocks() });
    harness.write_file("a", Long, 4 * 512);
    harness.write_file("b", Long, 9 * 512);
    harness.write_file("c", Long, 512);
    assert_eq!(
        harness.zones_written(),
        [2, 3],
        "the third file shares the zone of the second, which is the fuller one"
    );
    let usage = harness.store().usage();
    assert_eq!((usage.zone_finishes, usage.relaxed_matches), (0, 1));
}

#[test]
fn a_file_waits_for_the_zone_that_is_being_finished_and_neither_finishes_nor_shares_another() {
    for threshold in [20, 50] {
        let config = FilesConfig { finish_threshold_percent: threshold, ..units_of_two_blocks() };
        let mut testbed = Testbed::format(small(12, 3), config, Prng::new(1));
        testbed.refuses = false;
        for (name, blocks) in [("a", 4), ("b", 9)] {
            let file = testbed.store.create(name, Long).unwrap();
            testbed.store.append(RequestId(0), file, FileData::Bytes(pattern(0, blocks * 512).into()));
            testbed.store.close(RequestId(1), file);
            testbed.run_to_idle();
        }
        let file = testbed.store.create("c", Long).unwrap();
        testbed.store.append(RequestId(2), file, FileData::Bytes(pattern(1, 1024).into()));
        while testbed.take_command() {}
        // The zone of b is being finished. The store searches for a zone again, and would find that
        // of a.
        testbed.store.append(RequestId(3), file, FileData::Bytes(pattern(2, 1024).into()));
        testbed.run_to_idle();
        assert_eq!(testbed.store.len_bytes(file), Some(2048));
        let usage = testbed.store.usage();
        assert_eq!((usage.zone_finishes, usage.relaxed_matches), (1, 0), "from {threshold}% on zones are finished");
    }
}

#[test]
fn a_second_waiting_file_has_another_zone_finished_immediately() {
    let config = FilesConfig { finish_threshold_percent: 50, ..units_of_two_blocks() };
    let mut testbed = Testbed::format(small(12, 3), config, Prng::new(1));
    testbed.refuses = false;
    for name in ["a", "b"] {
        let file = testbed.store.create(name, Long).unwrap();
        testbed.store.append(RequestId(0), file, FileData::Bytes(pattern(0, 9 * 512).into()));
        testbed.store.close(RequestId(1), file);
        testbed.run_to_idle();
    }
    for (name, finishes) in [("c", 1), ("d", 2)] {
        let file = testbed.store.create(name, Long).unwrap();
        testbed.store.append(RequestId(3), file, FileData::Bytes(pattern(1, 1024).into()));
        while testbed.take_command() {}
        assert_eq!(testbed.in_flight(), finishes, "file {name} causes its own finish");
    }
}

#[test]
fn a_relaxed_match_is_a_zone_of_equal_lifetime_or_else_the_nearest() {
    let mut harness = Harness::new(small(12, 3), never_finishing());
    harness.write_file("short", Short, 600);
    harness.write_file("medium", Medium, 600);
    assert_eq!(harness.zones_written(), [2, 3]);
    harness.write_file("extreme", Extreme, 600);
    assert_eq!(harness.zones_written(), [3], "medium is nearer to extreme than short is");
    harness.write_file("another", Short, 600);
    assert_eq!(harness.zones_written(), [3], "medium lives longer than short: no relaxed match is needed");
    assert_eq!(harness.store().usage().relaxed_matches, 1);
}

#[test]
fn no_data_are_written_to_a_zone_while_it_is_being_finished() {
    let config = FilesConfig { finish_threshold_percent: 10, ..units_of_two_blocks() };
    for seed in 0..200 {
        let mut testbed = Testbed::format(small(14, 4), config, Prng::new(seed));
        for (number, lifetime) in [Long, Medium, Long, Extreme, Medium, Long].into_iter().enumerate() {
            let file = testbed.store.create(&format!("file-{number}"), lifetime).unwrap();
            let request = |kind| RequestId(number as u64 * 2 + kind);
            let data = FileData::Bytes(pattern(number as u64, 2000).into());
            testbed.store.append(request(0), file, data);
            testbed.store.close(request(1), file);
            for _ in 0..testbed.prng.below(12) {
                testbed.take_command();
                testbed.expect_no_write_behind_a_finish();
                testbed.complete();
            }
        }
        testbed.run_to_idle();
        assert!(testbed.store.usage().zone_finishes > 0);
    }
}

#[test]
fn a_short_lived_file_gets_a_zone_whichever_files_hold_the_others() {
    let mut harness = Harness::new(small(12, 4), never_finishing());
    for name in ["a", "b", "c", "d"] {
        let file = harness.create(name, Long);
        harness.append(file, &pattern(0, 600));
        harness.sync(file);
    }
    let before = harness.store().usage().relaxed_matches;
    assert_eq!(harness.store().usage().zones_active, 2, "the third is reserved");
    harness.take_commands();
    let log = harness.create("log", Short);
    harness.append(log, &pattern(0, 600));
    let sync = harness.sync(log);
    harness.expect(sync);
    assert_eq!(harness.zones_written(), [4]);
    assert_eq!(harness.store().usage().relaxed_matches, before);
}

#[test]
fn longer_lived_files_may_hold_all_zones_but_one_which_is_reserved_for_short_lived_ones() {
    for active in [4, 5, 6] {
        let mut harness = Harness::new(small(14, active), never_finishing());
        harness.write_file("old log", Short, 600);
        assert_eq!(harness.zones_written(), [2], "it is active, not held, and has space");
        // One active zone is for metadata, and one is left.
        let held = u64::from(active) - 2;
        for number in 0..held {
            let file = harness.create(&format!("level-{number}"), Long);
            harness.append(file, &pattern(number, 600));
            harness.sync(file);
            assert_eq!(harness.zones_written(), [3 + number], "with {active} active zones {held} may be held");
        }
        let another = harness.create("another", Long);
        harness.append(another, &pattern(9, 600));
        let sync = harness.sync(another);
        harness.expect(sync);
        assert_eq!(harness.zones_written(), [3], "it gets the zone of another file and not the reserved one");
        let log = harness.create("log", Short);
        harness.append(log, &pattern(10, 600));
        harness.sync(log);
        assert_eq!(harness.zones_written(), [2]);
    }
}

#[test]
fn a_file_has_no_more_writes_in_flight_than_its_limit() {
    let geometry = Geometry { zone_size_blocks: Blocks(256), zone_capacity_blocks: Blocks(256), ..small(12, 5) };
    let config = FilesConfig { file_buffer_bytes: 1 << 20, ..units_of_two_blocks() };
    let mut testbed = Testbed::format(geometry, config, Prng::new(6));
    testbed.refuses = false;
    let file = testbed.store.create("a", Long).unwrap();
    // Each write takes two blocks.
    let writes = 2 * FILE_WRITES_MAX;
    testbed.store.append(RequestId(0), file, FileData::Bytes(pattern(0, writes * 1024).into()));
    while testbed.take_command() {}
    assert_eq!(testbed.in_flight(), FILE_WRITES_MAX);
    testbed.run_to_idle();
    assert_eq!(testbed.store.len_bytes(file), Some(writes as u64 * 1024));
}

#[test]
fn a_file_waits_for_a_zone_while_the_others_write() {
    let mut testbed = Testbed::format(small(12, 3), never_finishing(), Prng::new(5));
    testbed.refuses = false;
    let files = ["a", "b", "c"].map(|name| testbed.store.create(name, Long).unwrap());
    for (number, file) in files.into_iter().enumerate() {
        testbed.store.append(RequestId(number as u64), file, FileData::Bytes(pattern(0, 1024).into()));
    }
    while testbed.take_command() {}
    assert_eq!(testbed.in_flight(), 2, "two data zones can be active");
    testbed.store.close(RequestId(10), files[0]);
    testbed.run_to_idle();
    assert_eq!(testbed.in_flight(), 0);
    for file in files {
        assert_eq!(testbed.store.len_bytes(file), Some(1024));
    }
    let usage = testbed.store.usage();
    assert_eq!((usage.zones_active, usage.written_bytes), (2, 3 * 1024));
}

#[test]
fn when_nothing_is_written_a_waiting_file_gets_the_least_recently_used_zone() {
    let mut harness = Harness::new(small(12, 3), never_finishing());
    let [a, b] = ["a", "b"].map(|name| harness.create(name, Long));
    for file in [a, b, a] {
        harness.append(file, &pattern(file.0, 600));
        harness.sync(file);
    }
    assert_eq!(harness.zones_written(), [2, 3, 2]);
    let c = harness.create("c", Long);
    harness.append(c, &pattern(7, 600));
    let sync = harness.sync(c);
    harness.expect(sync);
    assert_eq!(harness.zones_written(), [3], "b is the least recently written");
    harness.append(b, &pattern(8, 600));
    let sync = harness.sync(b);
    harness.expect(sync);
    assert_eq!(harness.zones_written(), [2], "and b continues in the zone of a");
    assert_eq!(harness.contents(b), [pattern(b.0, 600), pattern(8, 600)].concat());
}

#[test]
fn a_zone_that_was_assigned_and_never_written_is_still_empty() {
    let mut harness = Harness::new(small(12, 3), never_finishing());
    let a = harness.create("a", Long);
    // Less than a unit: it stays in the buffer.
    harness.append(a, &pattern(0, 100));
    assert_eq!(harness.store().usage().zones_active, 0);
    harness.delete("a");
    assert_eq!(harness.store().usage().zones_empty, 10);
}

#[test]
fn empty_zones_are_used_in_the_order_in_which_they_became_empty() {
    let mut harness = Harness::new(small(8, 5), never_finishing());
    for round in 0..12 {
        let name = format!("file-{round}");
        harness.write_file(&name, Long, 600);
        assert_eq!(harness.zones_written(), [2 + round % 6]);
        harness.delete(&name);
        harness.take_commands();
    }
}

#[test]
fn a_file_that_gets_a_zone_and_has_no_space_for_its_metadata_blocks_no_other() {
    let mut harness = Harness::new(small(12, 3), units_of_two_blocks());
    let files = ["a", "b", "c", "d", "e"].map(|name| harness.create(name, Long));
    for file in &files[..2] {
        harness.append(*file, &pattern(1, 1024));
    }
    // While a write is in flight, no zone is reassigned: three files wait. The write continues with
    // an extent, and leaves space for one of another file.
    let store = harness.store();
    let data = |number| FileData::Bytes(pattern(number, 1024).into());
    store.append(RequestId(900), files[0], data(2));
    fill_metadata(store);
    for (number, file) in (3..).zip(&files[2..]) {
        store.append(RequestId(900 + number), *file, data(number));
    }
    store.close(RequestId(914), files[3]);
    store.close(RequestId(915), files[4]);
    harness.run();
    for close in [914, 915] {
        assert_eq!(harness.result(RequestId(close)), Some(&Err(FileError::NoSpace)));
    }
}
