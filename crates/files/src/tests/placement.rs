//! Which zone a file's data go to. Zones 0 and 1 are for metadata, so that data begin in zone 2.

use zonda_zoned::{Blocks, Geometry, Prng};

use crate::limits::FILE_WRITES_MAX;
use crate::testing::{Desk, World, fill_metadata, pattern, small, units_of_two_blocks};
use crate::{FileData, FileError, FilesConfig, Lifetime, RequestId};

use Lifetime::{Extreme, Long, Medium, NotSet, Short};

fn never_finishing() -> FilesConfig {
    FilesConfig { finish_threshold_percent: 100, ..units_of_two_blocks() }
}

#[test]
fn a_file_goes_where_longer_lived_data_are() {
    let mut desk = Desk::new(small(12, 5), never_finishing());
    desk.write_file("level", Medium, 1024);
    desk.write_file("log", Short, 700);
    assert_eq!(desk.zones_written(), [2]);
    assert_eq!(desk.store().usage().relaxed_matches, 0);
}

#[test]
fn of_the_zones_that_live_longer_the_nearest_is_taken() {
    let mut desk = Desk::new(small(12, 6), never_finishing());
    let extreme = desk.create("extreme", Extreme);
    let long = desk.create("long", Long);
    for file in [extreme, long] {
        desk.append(file, &pattern(1, 600));
        desk.sync(file);
    }
    desk.close(extreme);
    desk.close(long);
    assert_eq!(desk.zones_written(), [2, 3]);
    desk.write_file("log", Short, 700);
    assert_eq!(desk.zones_written(), [3]);
}

#[test]
fn of_zones_that_fit_equally_well_the_fullest_is_taken() {
    for (blocks, fullest) in [([2, 5, 4], 3), ([7, 5, 4], 2), ([2, 3, 4], 4)] {
        let mut desk = Desk::new(small(12, 6), never_finishing());
        let files = ["a", "b", "c"].map(|name| desk.create(name, Long));
        for (file, blocks) in files.into_iter().zip(blocks) {
            desk.append(file, &pattern(1, blocks * 512));
            desk.sync(file);
        }
        assert_eq!(desk.zones_written(), [2, 3, 4]);
        for file in files {
            desk.close(file);
        }
        desk.write_file("log", Short, 700);
        assert_eq!(desk.zones_written(), [fullest], "{blocks:?} blocks are written");
    }
}

#[test]
fn equally_lived_data_get_a_zone_of_their_own_while_there_is_one() {
    let mut desk = Desk::new(small(12, 4), never_finishing());
    desk.write_file("a", Long, 600);
    desk.write_file("b", Long, 600);
    assert_eq!(desk.zones_written(), [2, 3]);
    desk.write_file("c", Long, 600);
    assert_eq!(desk.zones_written(), [2], "the third active zone is kept for short-lived data");
    assert_eq!(desk.store().usage().relaxed_matches, 1);
}

#[test]
fn files_without_a_lifetime_keep_to_themselves() {
    let mut desk = Desk::new(small(12, 6), never_finishing());
    desk.write_file("a", NotSet, 600);
    desk.write_file("b", Short, 600);
    desk.write_file("c", Lifetime::None, 600);
    desk.write_file("d", Medium, 600);
    assert_eq!(desk.zones_written(), [2, 3, 2, 4]);
}

#[test]
fn a_zone_has_the_lifetime_of_the_first_file_in_it() {
    let mut desk = Desk::new(small(12, 6), never_finishing());
    desk.write_file("a", Extreme, 600);
    desk.write_file("b", Short, 600);
    desk.write_file("c", Medium, 600);
    assert_eq!(desk.zones_written(), [2], "also behind the short-lived file the zone is one of extreme life");
}

#[test]
fn files_that_are_open_never_write_to_one_zone() {
    let mut desk = Desk::new(small(12, 6), never_finishing());
    let files = ["a", "b", "c"].map(|name| desk.create(name, Long));
    let mut zones = [const { Vec::new() }; 3];
    for round in 0..9 {
        for (file, zones) in files.iter().zip(&mut zones) {
            desk.append(*file, &pattern(round, 900));
            desk.sync(*file);
            zones.extend(desk.zones_written());
        }
    }
    assert!(zones.iter().all(|zones| zones.len() > 1));
    let shared = zones[0].iter().any(|zone| zones[1].contains(zone) || zones[2].contains(zone));
    assert!(!shared && !zones[1].iter().any(|zone| zones[2].contains(zone)), "{zones:?}");
}

#[test]
fn at_the_active_limit_the_fullest_zone_is_finished_if_it_is_full_enough() {
    let mut desk = Desk::new(small(12, 3), FilesConfig { finish_threshold_percent: 50, ..units_of_two_blocks() });
    desk.write_file("a", Long, 4 * 512);
    desk.write_file("b", Long, 9 * 512);
    desk.write_file("c", Long, 512);
    assert_eq!(desk.zones_written(), [2, 3, 4]);
    let usage = desk.store().usage();
    assert_eq!((usage.zone_finishes, usage.zones_finished_early, usage.relaxed_matches), (1, 1, 0));
    assert_eq!(usage.zones_active, 2);
}

#[test]
fn at_the_active_limit_no_zone_is_finished_below_the_threshold() {
    let mut desk = Desk::new(small(12, 3), FilesConfig { finish_threshold_percent: 60, ..units_of_two_blocks() });
    desk.write_file("a", Long, 4 * 512);
    desk.write_file("b", Long, 9 * 512);
    desk.write_file("c", Long, 512);
    assert_eq!(desk.zones_written(), [2, 3], "the third file shares the zone of the second, which is the fuller one");
    let usage = desk.store().usage();
    assert_eq!((usage.zone_finishes, usage.relaxed_matches), (0, 1));
}

#[test]
fn a_file_waits_for_the_zone_that_is_being_finished_and_neither_finishes_nor_shares_another() {
    for threshold in [20, 50] {
        let config = FilesConfig { finish_threshold_percent: threshold, ..units_of_two_blocks() };
        let mut world = World::format(small(12, 3), config, Prng::new(1));
        world.refuses = false;
        for (name, blocks) in [("a", 4), ("b", 9)] {
            let file = world.store.create(name, Long).unwrap();
            world.store.append(RequestId(0), file, FileData::Bytes(pattern(0, blocks * 512).into()));
            world.store.close(RequestId(1), file);
            world.run_to_rest();
        }
        let file = world.store.create("c", Long).unwrap();
        world.store.append(RequestId(2), file, FileData::Bytes(pattern(1, 1024).into()));
        while world.hand_out() {}
        // The zone of b is being finished. The store looks for a zone again, and would find that of a.
        world.store.append(RequestId(3), file, FileData::Bytes(pattern(2, 1024).into()));
        world.run_to_rest();
        assert_eq!(world.store.len_bytes(file), Some(2048));
        let usage = world.store.usage();
        assert_eq!((usage.zone_finishes, usage.relaxed_matches), (1, 0), "from {threshold}% on zones are finished");
    }
}

#[test]
fn of_two_files_that_wait_for_one_zone_the_second_has_another_finished_at_once() {
    let config = FilesConfig { finish_threshold_percent: 50, ..units_of_two_blocks() };
    let mut world = World::format(small(12, 3), config, Prng::new(1));
    world.refuses = false;
    for name in ["a", "b"] {
        let file = world.store.create(name, Long).unwrap();
        world.store.append(RequestId(0), file, FileData::Bytes(pattern(0, 9 * 512).into()));
        world.store.close(RequestId(1), file);
        world.run_to_rest();
    }
    for (name, finishes) in [("c", 1), ("d", 2)] {
        let file = world.store.create(name, Long).unwrap();
        world.store.append(RequestId(3), file, FileData::Bytes(pattern(1, 1024).into()));
        while world.hand_out() {}
        assert_eq!(world.under_way(), finishes, "file {name} has a finish of its own");
    }
}

#[test]
fn a_relaxed_match_is_one_of_equal_life_and_else_the_nearest() {
    let mut desk = Desk::new(small(12, 3), never_finishing());
    desk.write_file("short", Short, 600);
    desk.write_file("medium", Medium, 600);
    assert_eq!(desk.zones_written(), [2, 3]);
    desk.write_file("extreme", Extreme, 600);
    assert_eq!(desk.zones_written(), [3], "medium is nearer to extreme than short is");
    desk.write_file("another", Short, 600);
    assert_eq!(desk.zones_written(), [3], "medium lives longer than short: no need to relax");
    assert_eq!(desk.store().usage().relaxed_matches, 1);
}

#[test]
fn no_data_are_sent_to_a_zone_while_it_is_finished() {
    let config = FilesConfig { finish_threshold_percent: 10, ..units_of_two_blocks() };
    for seed in 0..200 {
        let mut world = World::format(small(14, 4), config, Prng::new(seed));
        for (number, lifetime) in [Long, Medium, Long, Extreme, Medium, Long].into_iter().enumerate() {
            let file = world.store.create(&format!("file-{number}"), lifetime).unwrap();
            let request = |kind| RequestId(number as u64 * 2 + kind);
            let data = FileData::Bytes(pattern(number as u64, 2000).into());
            world.store.append(request(0), file, data);
            world.store.close(request(1), file);
            for _ in 0..world.prng.below(12) {
                world.hand_out();
                world.expect_no_write_behind_a_finish();
                world.complete();
            }
        }
        world.run_to_rest();
        assert!(world.store.usage().zone_finishes > 0);
    }
}

#[test]
fn a_short_lived_file_finds_a_zone_whoever_holds_the_others() {
    let mut desk = Desk::new(small(12, 4), never_finishing());
    for name in ["a", "b", "c", "d"] {
        let file = desk.create(name, Long);
        desk.append(file, &pattern(0, 600));
        desk.sync(file);
    }
    let before = desk.store().usage().relaxed_matches;
    assert_eq!(desk.store().usage().zones_active, 2, "the third is kept in reserve");
    desk.seen();
    let log = desk.create("log", Short);
    desk.append(log, &pattern(0, 600));
    let sync = desk.sync(log);
    desk.expect(sync);
    assert_eq!(desk.zones_written(), [4]);
    assert_eq!(desk.store().usage().relaxed_matches, before);
}

#[test]
fn all_zones_but_one_may_be_held_by_longer_lived_files_and_the_last_is_left_to_short_lived_ones() {
    for active in [4, 5, 6] {
        let mut desk = Desk::new(small(14, active), never_finishing());
        desk.write_file("old log", Short, 600);
        assert_eq!(desk.zones_written(), [2], "it is active, not held, and has room");
        // One active zone is for metadata, and one is left.
        let held = u64::from(active) - 2;
        for number in 0..held {
            let file = desk.create(&format!("level-{number}"), Long);
            desk.append(file, &pattern(number, 600));
            desk.sync(file);
            assert_eq!(desk.zones_written(), [3 + number], "with {active} active zones {held} may be held");
        }
        let another = desk.create("another", Long);
        desk.append(another, &pattern(9, 600));
        let sync = desk.sync(another);
        desk.expect(sync);
        assert_eq!(desk.zones_written(), [3], "it takes over a zone rather than use the one left to short-lived files");
        let log = desk.create("log", Short);
        desk.append(log, &pattern(10, 600));
        desk.sync(log);
        assert_eq!(desk.zones_written(), [2]);
    }
}

#[test]
fn a_file_has_no_more_writes_in_flight_than_its_limit() {
    let geometry = Geometry { zone_size_blocks: Blocks(256), zone_capacity_blocks: Blocks(256), ..small(12, 5) };
    let config = FilesConfig { file_buffer_bytes: 1 << 20, ..units_of_two_blocks() };
    let mut world = World::format(geometry, config, Prng::new(6));
    world.refuses = false;
    let file = world.store.create("a", Long).unwrap();
    // Each write takes two blocks.
    let writes = 2 * FILE_WRITES_MAX;
    world.store.append(RequestId(0), file, FileData::Bytes(pattern(0, writes * 1024).into()));
    while world.hand_out() {}
    assert_eq!(world.under_way(), FILE_WRITES_MAX);
    world.run_to_rest();
    assert_eq!(world.store.len_bytes(file), Some(writes as u64 * 1024));
}

#[test]
fn while_the_others_write_a_file_waits_for_a_zone() {
    let mut world = World::format(small(12, 3), never_finishing(), Prng::new(5));
    world.refuses = false;
    let files = ["a", "b", "c"].map(|name| world.store.create(name, Long).unwrap());
    for (number, file) in files.into_iter().enumerate() {
        world.store.append(RequestId(number as u64), file, FileData::Bytes(pattern(0, 1024).into()));
    }
    while world.hand_out() {}
    assert_eq!(world.under_way(), 2, "two data zones can be active");
    world.store.close(RequestId(10), files[0]);
    world.run_to_rest();
    assert_eq!(world.under_way(), 0);
    for file in files {
        assert_eq!(world.store.len_bytes(file), Some(1024));
    }
    let usage = world.store.usage();
    assert_eq!((usage.zones_active, usage.written_bytes), (2, 3 * 1024));
}

#[test]
fn when_nothing_is_written_a_file_that_waits_takes_over_the_zone_longest_unused() {
    let mut desk = Desk::new(small(12, 3), never_finishing());
    let [a, b] = ["a", "b"].map(|name| desk.create(name, Long));
    for file in [a, b, a] {
        desk.append(file, &pattern(file.0, 600));
        desk.sync(file);
    }
    assert_eq!(desk.zones_written(), [2, 3, 2]);
    let c = desk.create("c", Long);
    desk.append(c, &pattern(7, 600));
    let sync = desk.sync(c);
    desk.expect(sync);
    assert_eq!(desk.zones_written(), [3], "b has not written for longest");
    desk.append(b, &pattern(8, 600));
    let sync = desk.sync(b);
    desk.expect(sync);
    assert_eq!(desk.zones_written(), [2], "and b goes on in the place of a");
    assert_eq!(desk.contents(b), [pattern(b.0, 600), pattern(8, 600)].concat());
}

#[test]
fn a_zone_that_was_given_and_never_written_is_still_empty() {
    let mut desk = Desk::new(small(12, 3), never_finishing());
    let a = desk.create("a", Long);
    // Less than a unit: it stays in the buffer.
    desk.append(a, &pattern(0, 100));
    assert_eq!(desk.store().usage().zones_active, 0);
    desk.delete("a");
    assert_eq!(desk.store().usage().zones_empty, 10);
}

#[test]
fn empty_zones_are_used_in_the_order_in_which_they_became_empty() {
    let mut desk = Desk::new(small(8, 5), never_finishing());
    for round in 0..12 {
        let name = format!("file-{round}");
        desk.write_file(&name, Long, 600);
        assert_eq!(desk.zones_written(), [2 + round % 6]);
        desk.delete(&name);
        desk.seen();
    }
}

#[test]
fn a_file_that_gets_a_zone_and_has_no_room_for_its_metadata_lets_nobody_wait() {
    let mut desk = Desk::new(small(12, 3), units_of_two_blocks());
    let files = ["a", "b", "c", "d", "e"].map(|name| desk.create(name, Long));
    for file in &files[..2] {
        desk.append(*file, &pattern(1, 1024));
    }
    // While a write is under way, nobody takes a zone over: three wait. The write goes on with an extent, and leaves room for
    // one of another file.
    let store = desk.store();
    let data = |number| FileData::Bytes(pattern(number, 1024).into());
    store.append(RequestId(900), files[0], data(2));
    fill_metadata(store);
    for (number, file) in (3..).zip(&files[2..]) {
        store.append(RequestId(900 + number), *file, data(number));
    }
    store.close(RequestId(914), files[3]);
    store.close(RequestId(915), files[4]);
    desk.run();
    for close in [914, 915] {
        assert_eq!(desk.result(RequestId(close)), Some(&Err(FileError::NoSpace)));
    }
}
