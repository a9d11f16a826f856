//! The state after a mount. Dropping an idle store is a crash, too: unsynced data are not
//! guaranteed.

use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{
    Blocks, Completion, Geometry, Instant, Outcome, PayloadKind, Prng, Status, ZoneAction, ZoneIndex, ZoneState,
};

use crate::limits::REPORT_ZONES_MAX;
use crate::testing::{Harness, pattern, small, units_of_two_blocks};
use crate::{FileError, FilesConfig, Lifetime, Migration};

use Lifetime::{Long, Medium, NotSet, Short};

#[test]
fn a_synced_file_survives_a_mount_completely() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.create("a", Medium);
    for length in [1, 511, 512, 513, 3000] {
        harness.append(file, &pattern(9, length));
    }
    let sync = harness.sync(file);
    harness.expect(sync);
    let contents = harness.contents(file);
    assert_eq!(contents.len(), 4537);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    let file = harness.store().lookup("a").unwrap();
    assert_eq!(harness.contents(file), contents);
}

#[test]
fn unsynced_data_may_be_truncated_and_a_file_never_synced_may_be_lost() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let [a, b] = ["a", "b"].map(|name| harness.create(name, NotSet));
    harness.append(a, &pattern(1, 700));
    harness.sync(a);
    for file in [a, b] {
        harness.append(file, &pattern(2, 2048));
    }
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    assert_eq!(harness.store().lookup("b"), None);
    let a = harness.store().lookup("a").unwrap();
    assert_eq!(harness.contents(a), pattern(1, 700));
}

#[test]
fn an_open_file_accepts_appends_after_a_mount_and_a_closed_one_does_not() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let open = harness.create("open", NotSet);
    harness.append(open, &pattern(1, 100));
    harness.sync(open);
    harness.write_file("closed", NotSet, 100);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    let [open, closed] = ["open", "closed"].map(|name| harness.store().lookup(name).unwrap());
    let append = harness.append(closed, b"more");
    assert_eq!(harness.error(append), FileError::NotOpen);
    let append = harness.append(open, b"more");
    harness.expect(append);
    harness.close(open);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    let open = harness.store().lookup("open").unwrap();
    assert_eq!(harness.contents(open), [&pattern(1, 100)[..], b"more"].concat());
}

#[test]
fn a_deleted_file_stays_deleted() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    harness.write_file("a", NotSet, 3000);
    harness.write_file("b", NotSet, 3000);
    let delete = harness.delete("a");
    harness.expect(delete);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    let names: Vec<String> = harness.store().names().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["b"]);
    assert_eq!(harness.store().usage().live_bytes, 3000);
}

#[test]
fn a_rename_replaces_the_file_of_that_name() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let new = harness.write_file("CURRENT.tmp", NotSet, 600);
    harness.write_file("CURRENT", NotSet, 700);
    let rename = harness.rename("CURRENT.tmp", "CURRENT");
    harness.expect(rename);
    assert_eq!(harness.store().lookup("CURRENT"), Some(new));
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    let names: Vec<String> = harness.store().names().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["CURRENT"]);
    let current = harness.store().lookup("CURRENT").unwrap();
    assert_eq!(harness.contents(current), pattern(new.0, 600));
    assert_eq!(harness.store().usage().live_bytes, 600);
}

#[test]
fn a_zone_keeps_its_lifetime_over_a_mount() {
    let mut harness = Harness::new(small(12, 6), units_of_two_blocks());
    harness.write_file("a", Medium, 600);
    harness.write_file("b", Lifetime::Extreme, 600);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    harness.write_file("c", Short, 600);
    assert_eq!(harness.zones_written(), [2], "medium is nearer to short than extreme is");
}

#[test]
fn a_zone_finished_early_is_recognized_after_a_mount() {
    let config = FilesConfig { finish_threshold_percent: 10, ..units_of_two_blocks() };
    let mut harness = Harness::new(small(12, 3), config);
    for name in ["a", "b", "c"] {
        harness.write_file(name, Long, 4 * 512);
    }
    let usage = harness.store().usage();
    let mut harness = harness.remount(config).unwrap();
    let found = harness.store().usage();
    assert_eq!(found.zones_finished_early, 1);
    assert_eq!(
        (found.live_bytes, found.dead_bytes, found.written_bytes),
        (usage.live_bytes, usage.dead_bytes, usage.written_bytes)
    );
}

#[test]
fn zones_that_no_file_claims_are_reset_after_a_mount() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    harness.write_file("a", Long, 600);
    let lost = harness.create("lost", NotSet);
    harness.append(lost, &pattern(1, 10 * 512));
    assert_eq!(harness.zones_written(), [2, 3]);
    harness.manage(7, ZoneAction::Finish);
    harness.manage(8, ZoneAction::Open { zrwa: false });
    harness.manage(9, ZoneAction::Open { zrwa: false });
    harness.manage(9, ZoneAction::Close);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    assert_eq!(harness.store().usage().zones_empty, 9);
    assert_eq!(harness.store().usage().zone_resets, 4);
    let drive = harness.into_drive();
    assert_eq!(drive.zones().active_zones(), 2, "the metadata and the zone of the file");
}

#[test]
fn the_metadata_move_from_zone_to_zone_without_loss() {
    for (zones, log_zones) in [(8, 2), (20, 3)] {
        let mut harness = Harness::new(small(zones, 5), units_of_two_blocks());
        let kept = harness.write_file("kept", Long, 2000);
        let mut resets = Vec::new();
        for round in 0..100 {
            harness.write_file(&format!("f{}", round % 3), Medium, 10);
            if round >= 2 {
                let delete = harness.delete(&format!("f{}", (round + 1) % 3));
                harness.expect(delete);
            }
            let seen = harness.take_commands();
            resets
                .extend(seen.iter().filter(|seen| seen.name == "reset" && seen.zone < log_zones).map(|seen| seen.zone));
            if round % 30 == 29 {
                harness = harness.remount(units_of_two_blocks()).unwrap();
            }
        }
        assert!(resets.len() > 5, "{resets:?}");
        let round_robin: Vec<u64> = (1..).map(|number| number % log_zones).take(resets.len()).collect();
        assert_eq!(resets, round_robin, "the metadata zones are used round-robin");
        let kept_file = harness.store().lookup("kept").unwrap();
        assert_eq!(harness.contents(kept_file), pattern(kept.0, 2000));
        let names: Vec<&str> = harness.files.store().names().map(|(name, _)| name).collect();
        assert_eq!(names, ["f0", "f2", "kept"]);
    }
}

#[test]
fn a_mount_after_a_clean_end_of_the_metadata_writes_nothing() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    harness.write_file("a", NotSet, 5000);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    assert_eq!(harness.store().usage().metadata_bytes, 0);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    harness.write_file("b", NotSet, 5000);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    assert_eq!(harness.store().names().count(), 2);
}

#[test]
fn a_format_discards_the_old_contents() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    for number in 0..6 {
        harness.write_file(&format!("f{number}"), NotSet, 4000);
    }
    let drive = harness.into_drive();
    let mut harness = Harness::format(&small(12, 5), units_of_two_blocks(), drive);
    assert_eq!(harness.store().names().count(), 0);
    assert_eq!(harness.store().usage().zones_empty, 10);
    harness.write_file("new", NotSet, 4000);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    assert_eq!(harness.store().names().count(), 1);
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
    let harness = Harness::format(&geometry, FilesConfig::default(), drive);
    assert_eq!(harness.failed, None);
    let mut drive = harness.into_drive();
    assert_eq!(drive.image(last).state, ZoneState::Empty, "after the format");
    drive.set_zone(last, full);
    let harness = Harness::on(crate::FileStore::mount(&geometry, FilesConfig::default()).unwrap(), drive);
    assert_eq!(harness.failed, None);
    assert_eq!(harness.into_drive().image(last).state, ZoneState::Empty, "after the mount");
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
fn conventional_zones_at_the_start_are_not_used() {
    let geometry = Geometry { conventional_zone_count: 2, zone_count: 12, ..small(12, 5) };
    let mut harness = Harness::new(geometry, units_of_two_blocks());
    let file = harness.write_file("a", NotSet, 5000);
    assert!(harness.take_commands().iter().all(|seen| seen.zone >= 2));
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    assert_eq!(harness.contents(file), pattern(file.0, 5000));
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
        let mut harness = Harness::new(small(14, 4), config);
        let mut prng = Prng::new(3);
        let mut all = Vec::new();
        for round in 0..200u64 {
            let name = format!("f{}", prng.below(6));
            let lifetime = Lifetime::ALL[prng.below(6) as usize];
            if let Ok(file) = harness.store().create(&name, lifetime) {
                harness.append(file, &pattern(round, 1 + prng.below(6000) as usize));
                harness.close(file);
                harness.read(file, prng.below(3000), 2500);
            } else {
                harness.delete(&name);
            }
            all.extend(harness.take_commands());
        }
        (all, harness.store().usage())
    };
    let with_bytes = commands(zonda_zoned::PayloadKind::Bytes);
    assert_eq!(with_bytes, commands(zonda_zoned::PayloadKind::Bytes));
    assert_eq!(with_bytes, commands(zonda_zoned::PayloadKind::None), "the commands do not depend on contents");
    assert!(with_bytes.1.migrated_bytes > 0 && with_bytes.1.zone_finishes > 0, "{:?}", with_bytes.1);
}
