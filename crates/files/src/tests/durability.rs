//! What is there after a mount. Dropping a store with everything at rest is a crash too: what was not synced was not promised.

use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{
    Blocks, Completion, Geometry, Instant, Outcome, PayloadKind, Prng, Status, ZoneAction, ZoneIndex, ZoneState,
};

use crate::limits::REPORT_ZONES_MAX;
use crate::testing::{Desk, pattern, small, units_of_two_blocks};
use crate::{FileError, FilesConfig, Lifetime, Migration};

use Lifetime::{Long, Medium, NotSet, Short};

#[test]
fn a_synced_file_is_there_after_a_mount_to_the_last_byte() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.create("a", Medium);
    for length in [1, 511, 512, 513, 3000] {
        desk.append(file, &pattern(9, length));
    }
    let sync = desk.sync(file);
    desk.expect(sync);
    let contents = desk.contents(file);
    assert_eq!(contents.len(), 4537);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    let file = desk.store().lookup("a").unwrap();
    assert_eq!(desk.contents(file), contents);
}

#[test]
fn what_was_not_synced_may_be_cut_off_and_a_file_never_synced_may_be_gone() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let [a, b] = ["a", "b"].map(|name| desk.create(name, NotSet));
    desk.append(a, &pattern(1, 700));
    desk.sync(a);
    for file in [a, b] {
        desk.append(file, &pattern(2, 2048));
    }
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    assert_eq!(desk.store().lookup("b"), None);
    let a = desk.store().lookup("a").unwrap();
    assert_eq!(desk.contents(a), pattern(1, 700));
}

#[test]
fn a_file_that_was_open_goes_on_after_a_mount_and_a_closed_one_does_not() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let open = desk.create("open", NotSet);
    desk.append(open, &pattern(1, 100));
    desk.sync(open);
    desk.write_file("closed", NotSet, 100);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    let [open, closed] = ["open", "closed"].map(|name| desk.store().lookup(name).unwrap());
    let append = desk.append(closed, b"more");
    assert_eq!(desk.error(append), FileError::NotOpen);
    let append = desk.append(open, b"more");
    desk.expect(append);
    desk.close(open);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    let open = desk.store().lookup("open").unwrap();
    assert_eq!(desk.contents(open), [&pattern(1, 100)[..], b"more"].concat());
}

#[test]
fn a_deleted_file_stays_deleted() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    desk.write_file("a", NotSet, 3000);
    desk.write_file("b", NotSet, 3000);
    let delete = desk.delete("a");
    desk.expect(delete);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    let names: Vec<String> = desk.store().names().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["b"]);
    assert_eq!(desk.store().usage().live_bytes, 3000);
}

#[test]
fn a_rename_takes_the_place_of_the_file_of_that_name() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let new = desk.write_file("CURRENT.tmp", NotSet, 600);
    desk.write_file("CURRENT", NotSet, 700);
    let rename = desk.rename("CURRENT.tmp", "CURRENT");
    desk.expect(rename);
    assert_eq!(desk.store().lookup("CURRENT"), Some(new));
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    let names: Vec<String> = desk.store().names().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["CURRENT"]);
    let current = desk.store().lookup("CURRENT").unwrap();
    assert_eq!(desk.contents(current), pattern(new.0, 600));
    assert_eq!(desk.store().usage().live_bytes, 600);
}

#[test]
fn a_zone_keeps_its_lifetime_over_a_mount() {
    let mut desk = Desk::new(small(12, 6), units_of_two_blocks());
    desk.write_file("a", Medium, 600);
    desk.write_file("b", Lifetime::Extreme, 600);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    desk.write_file("c", Short, 600);
    assert_eq!(desk.zones_written(), [2], "medium is nearer to short than extreme is");
}

#[test]
fn a_zone_that_was_finished_early_is_known_as_such_after_a_mount() {
    let config = FilesConfig { finish_threshold_percent: 10, ..units_of_two_blocks() };
    let mut desk = Desk::new(small(12, 3), config);
    for name in ["a", "b", "c"] {
        desk.write_file(name, Long, 4 * 512);
    }
    let usage = desk.store().usage();
    let mut desk = desk.remount(config).unwrap();
    let found = desk.store().usage();
    assert_eq!(found.zones_finished_early, 1);
    assert_eq!(
        (found.live_bytes, found.dead_bytes, found.written_bytes),
        (usage.live_bytes, usage.dead_bytes, usage.written_bytes)
    );
}

#[test]
fn zones_that_no_file_claims_are_reset_after_a_mount() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    desk.write_file("a", Long, 600);
    let lost = desk.create("lost", NotSet);
    desk.append(lost, &pattern(1, 10 * 512));
    assert_eq!(desk.zones_written(), [2, 3]);
    desk.manage(7, ZoneAction::Finish);
    desk.manage(8, ZoneAction::Open { zrwa: false });
    desk.manage(9, ZoneAction::Open { zrwa: false });
    desk.manage(9, ZoneAction::Close);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    assert_eq!(desk.store().usage().zones_empty, 9);
    assert_eq!(desk.store().usage().zone_resets, 4);
    let drive = desk.into_drive();
    assert_eq!(drive.zones().active_zones(), 2, "the metadata and the zone of the file");
}

#[test]
fn the_metadata_go_from_zone_to_zone_and_nothing_is_lost() {
    for (zones, log_zones) in [(8, 2), (20, 3)] {
        let mut desk = Desk::new(small(zones, 5), units_of_two_blocks());
        let kept = desk.write_file("kept", Long, 2000);
        let mut resets = Vec::new();
        for round in 0..100 {
            desk.write_file(&format!("f{}", round % 3), Medium, 10);
            if round >= 2 {
                let delete = desk.delete(&format!("f{}", (round + 1) % 3));
                desk.expect(delete);
            }
            let seen = desk.seen();
            resets
                .extend(seen.iter().filter(|seen| seen.name == "reset" && seen.zone < log_zones).map(|seen| seen.zone));
            if round % 30 == 29 {
                desk = desk.remount(units_of_two_blocks()).unwrap();
            }
        }
        assert!(resets.len() > 5, "{resets:?}");
        let in_turn: Vec<u64> = (1..).map(|turn| turn % log_zones).take(resets.len()).collect();
        assert_eq!(resets, in_turn, "the metadata zones are used in turn");
        let kept_file = desk.store().lookup("kept").unwrap();
        assert_eq!(desk.contents(kept_file), pattern(kept.0, 2000));
        let names: Vec<&str> = desk.files.store().names().map(|(name, _)| name).collect();
        assert_eq!(names, ["f0", "f2", "kept"]);
    }
}

#[test]
fn a_mount_writes_nothing_where_the_metadata_end_in_order() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    desk.write_file("a", NotSet, 5000);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    assert_eq!(desk.store().usage().metadata_bytes, 0);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    desk.write_file("b", NotSet, 5000);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    assert_eq!(desk.store().names().count(), 2);
}

#[test]
fn a_format_forgets_what_was_there() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    for number in 0..6 {
        desk.write_file(&format!("f{number}"), NotSet, 4000);
    }
    let drive = desk.into_drive();
    let mut desk = Desk::format(&small(12, 5), units_of_two_blocks(), drive);
    assert_eq!(desk.store().names().count(), 0);
    assert_eq!(desk.store().usage().zones_empty, 10);
    desk.write_file("new", NotSet, 4000);
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    assert_eq!(desk.store().names().count(), 1);
}

#[test]
fn format_and_mount_reset_a_full_zone_that_only_the_second_report_lists() {
    // A snapshot has a few bytes for each zone, and half a metadata zone holds it.
    let zone_blocks = Blocks(64);
    let geometry = Geometry {
        block_size_bytes: 4096,
        zone_size_blocks: zone_blocks,
        zone_capacity_blocks: zone_blocks,
        ..small(REPORT_ZONES_MAX + 6, 5)
    };
    let last = ZoneIndex(REPORT_ZONES_MAX + 5);
    let full = ZoneImage { state: ZoneState::Full, write_pointer_blocks: zone_blocks, zrwa: false, extension: None };
    let mut drive = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    drive.set_zone(last, full.clone());
    let desk = Desk::format(&geometry, FilesConfig::default(), drive);
    assert_eq!(desk.failed, None);
    let mut drive = desk.into_drive();
    assert_eq!(drive.image(last).state, ZoneState::Empty, "after the format");
    drive.set_zone(last, full);
    let desk = Desk::on(crate::FileStore::mount(&geometry, FilesConfig::default()).unwrap(), drive);
    assert_eq!(desk.failed, None);
    assert_eq!(desk.into_drive().image(last).state, ZoneState::Empty, "after the mount");
}

#[test]
fn a_format_fails_when_a_report_is_empty_before_the_last_zone() {
    let mut store = crate::FileStore::format(&small(12, 5), units_of_two_blocks(), [0; 16]).unwrap();
    let report = store.poll_command(Instant::ZERO).unwrap();
    let outcome = Outcome::Report(Box::default());
    store.on_completion(Instant::ZERO, Completion { outcome, ..Completion::of(report.id, Status::Success) });
    let what = "reporting zones";
    let failed = crate::Event::Failed(FileError::Media { status: Status::InternalError, what });
    assert_eq!((store.poll_event(), store.poll_command(Instant::ZERO)), (Some(failed), None));
}

#[test]
fn requests_before_the_store_is_ready_are_refused() {
    let mut store = crate::FileStore::format(&small(12, 5), units_of_two_blocks(), [0; 16]).unwrap();
    assert_eq!(store.create("a", NotSet), Err(FileError::NotReady));
    store.delete(crate::RequestId(7), "a");
    let refused = crate::Event::Done { request: crate::RequestId(7), result: Err(FileError::NotReady) };
    assert_eq!(store.poll_event(), Some(refused));
}

#[test]
fn conventional_zones_at_the_start_are_left_alone() {
    let geometry = Geometry { conventional_zone_count: 2, zone_count: 12, ..small(12, 5) };
    let mut desk = Desk::new(geometry, units_of_two_blocks());
    let file = desk.write_file("a", NotSet, 5000);
    assert!(desk.seen().iter().all(|seen| seen.zone >= 2));
    let mut desk = desk.remount(units_of_two_blocks()).unwrap();
    assert_eq!(desk.contents(file), pattern(file.0, 5000));
}

#[test]
fn the_same_requests_give_the_same_commands() {
    let commands = |keeps| {
        let config = FilesConfig {
            keeps,
            finish_threshold_percent: 30,
            migration: Some(Migration { start_empty_zones_percent: 70, garbage_percent: 20 }),
            ..units_of_two_blocks()
        };
        let mut desk = Desk::new(small(14, 4), config);
        let mut prng = Prng::new(3);
        let mut all = Vec::new();
        for round in 0..200u64 {
            let name = format!("f{}", prng.below(6));
            let lifetime = Lifetime::ALL[prng.below(6) as usize];
            if let Ok(file) = desk.store().create(&name, lifetime) {
                desk.append(file, &pattern(round, 1 + prng.below(6000) as usize));
                desk.close(file);
                desk.read(file, prng.below(3000), 2500);
            } else {
                desk.delete(&name);
            }
            all.extend(desk.seen());
        }
        (all, desk.store().usage())
    };
    let with_bytes = commands(zonda_zoned::PayloadKind::Bytes);
    assert_eq!(with_bytes, commands(zonda_zoned::PayloadKind::Bytes));
    assert_eq!(with_bytes, commands(zonda_zoned::PayloadKind::None), "contents change nothing but contents");
    assert!(with_bytes.1.migrated_bytes > 0 && with_bytes.1.zone_finishes > 0, "{:?}", with_bytes.1);
}
