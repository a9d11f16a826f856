//! Space: how it is reclaimed, and behaviour without any.

use zonda_layers::{Fault, FaultEffect, FaultRule, Matcher, Memory, OperationKind, OperationSet, When};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{Instant, Operation, PayloadKind, Prng, Status, ZoneIndex};

use crate::testing::{Harness, fill_metadata, pattern, small, units_of_two_blocks};
use crate::{FileData, FileError, FileId, FileStore, FilesConfig, Lifetime, Migration, RequestId};

use Lifetime::{Long, NotSet, Short};

#[test]
fn a_zone_is_reset_as_soon_as_all_its_data_are_dead() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    harness.write_file("a", Long, 20 * 512);
    harness.write_file("b", Short, 512);
    assert_eq!(harness.zones_written(), [2, 3], "the second zone is shared");
    let resets = |harness: &mut Harness<_>| -> Vec<u64> {
        harness.take_commands().iter().filter(|seen| seen.name == "reset").map(|seen| seen.zone).collect()
    };
    harness.delete("a");
    assert_eq!(resets(&mut harness), [2], "the full zone");
    harness.delete("b");
    assert_eq!(resets(&mut harness), [3], "the partly written one, which has no holder");
    let usage = harness.store().usage();
    assert_eq!((usage.zones_empty, usage.written_bytes, usage.zone_resets), (10, 0, 2));
}

#[test]
fn a_zone_that_is_finished_early_is_reset_too() {
    let config = FilesConfig { finish_threshold_percent: 10, ..units_of_two_blocks() };
    let mut harness = Harness::new(small(12, 3), config);
    for name in ["a", "b", "c"] {
        harness.write_file(name, Long, 4 * 512);
    }
    assert_eq!(harness.store().usage().zones_finished_early, 1);
    for name in ["a", "b"] {
        harness.delete(name);
    }
    let usage = harness.store().usage();
    assert_eq!((usage.zones_finished_early, usage.zones_empty), (0, 9));
}

#[test]
fn a_read_in_flight_keeps_its_zone_from_being_reset() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.write_file("a", Long, 16 * 512);
    let store = harness.store();
    store.read(crate::RequestId(900), file, 0, 16 * 512);
    store.delete(crate::RequestId(901), "a");
    harness.run();
    let read = harness.result(crate::RequestId(900)).cloned();
    assert_eq!(read, Some(Ok(crate::Outcome::Data(pattern(file.0, 16 * 512).into()))));
    let names: Vec<&str> = harness.take_commands().iter().map(|seen| seen.name).collect();
    let last_read = names.iter().rposition(|name| *name == "read").unwrap();
    let reset = names.iter().position(|name| *name == "reset").unwrap();
    assert!(last_read < reset, "{names:?}");
    assert_eq!(harness.store().usage().zones_empty, 10);
}

#[test]
fn usage_distinguishes_live_data_dead_data_and_padding() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    harness.write_file("a", NotSet, 1000);
    harness.write_file("b", NotSet, 512);
    harness.write_file("c", NotSet, 3 * 512);
    let usage = harness.store().usage();
    assert_eq!((usage.live_bytes, usage.dead_bytes, usage.written_bytes), (1000 + 4 * 512, 0, 6 * 512));
    assert!((usage.space_amplification() - 1.0).abs() < 1e-9);
    harness.delete("b");
    harness.delete("a");
    let usage = harness.store().usage();
    assert_eq!((usage.live_bytes, usage.dead_bytes, usage.written_bytes), (3 * 512, 3 * 512, 6 * 512));
    assert!((usage.space_amplification() - 2.0).abs() < 1e-9);
    harness.delete("c");
    assert!((harness.store().usage().space_amplification() - 1.0).abs() < 1e-9, "nothing is live");
}

/// Writes files of 10 blocks until one finds no space.
fn fill(harness: &mut Harness<zonda_layers::Memory>) -> (Vec<String>, FileId) {
    let mut names = Vec::new();
    loop {
        let name = format!("f{}", names.len());
        let file = harness.create(&name, Long);
        let append = harness.append(file, &pattern(file.0, 5120));
        let close = harness.close(file);
        if harness.result(close) == Some(&Err(FileError::NoSpace)) {
            assert!(matches!(harness.result(append), Some(Ok(_) | Err(FileError::NoSpace))));
            return (names, file);
        }
        harness.expect(close);
        names.push(name);
    }
}

#[test]
fn a_full_drive_reports_no_space_and_accepts_data_after_a_delete() {
    let mut harness = Harness::new(small(8, 5), units_of_two_blocks());
    let (names, starved) = fill(&mut harness);
    assert_eq!(names.len(), 9, "6 zones of 16 blocks hold 9 files of 10, and a part of one");
    let again = harness.sync(starved);
    assert_eq!(harness.error(again), FileError::NoSpace);
    let kept = harness.store().len_bytes(starved).unwrap();
    for name in &names[..4] {
        let delete = harness.delete(name);
        harness.expect(delete);
    }
    let close = harness.close(starved);
    harness.expect(close);
    assert_eq!(harness.contents(starved), pattern(starved.0, 5120)[..kept as usize]);
    let file = harness.write_file("new", Long, 5120);
    assert_eq!(harness.contents(file), pattern(file.0, 5120));
    for name in &names[4..] {
        let file = harness.store().lookup(name).unwrap();
        assert_eq!(harness.contents(file), pattern(file.0, 5120));
    }
}

#[test]
fn the_metadata_zones_bound_the_number_of_files() {
    let mut harness = Harness::new(small(8, 5), units_of_two_blocks());
    let mut names = Vec::new();
    let refusal = loop {
        let name = format!("a file with quite a long name, number {}", names.len());
        match harness.store().create(&name, Long) {
            Ok(file) => {
                let sync = harness.sync(file);
                harness.expect(sync);
                names.push(name);
            }
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, FileError::TooManyFiles);
    assert!(names.len() > 8, "{} files", names.len());
    let rename = harness.rename(&names[0], &"x".repeat(255));
    assert_eq!(harness.error(rename), FileError::TooManyFiles);
    for name in &names {
        let delete = harness.delete(name);
        harness.expect(delete);
    }
    harness.write_file("one more", Long, 5000);
}

#[test]
fn migration_empties_the_zones_with_most_garbage_and_moves_live_data() {
    let migration = Some(Migration { start_empty_zones_percent: 60, garbage_percent: 40 });
    let mut harness = Harness::new(small(12, 5), FilesConfig { migration, ..units_of_two_blocks() });
    let mut kept = Vec::new();
    // Each zone gets a file that stays and one that is deleted: 10 blocks and 6, or 6 and 10.
    for zone in 0..5 {
        let stays = if zone == 3 { 6 } else { 10 };
        kept.push(harness.write_file(&format!("stays-{zone}"), NotSet, stays * 512 - 40));
        harness.write_file(&format!("goes-{zone}"), NotSet, (16 - stays) * 512);
    }
    assert_eq!(harness.zones_written(), [2, 3, 4, 5, 6]);
    assert_eq!(harness.store().usage().migrated_bytes, 0, "half of the zones are full of live data");
    for zone in 0..5 {
        harness.delete(&format!("goes-{zone}"));
    }
    let usage = harness.store().usage();
    assert_eq!(usage.migrated_bytes, 6 * 512, "the other zones have less garbage than the threshold");
    assert_eq!((usage.zone_resets, usage.zones_empty), (1, 5));
    let read: Vec<u64> =
        harness.take_commands().iter().filter(|seen| seen.name == "read").map(|seen| seen.zone).collect();
    assert!(!read.is_empty() && read.iter().all(|&zone| zone == 5), "{read:?}");
    for (zone, file) in kept.iter().enumerate() {
        let stays = if zone == 3 { 6 } else { 10 };
        assert_eq!(harness.contents(*file), pattern(file.0, stays * 512 - 40));
    }
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    for (zone, before) in kept.iter().enumerate() {
        let file = harness.store().lookup(&format!("stays-{zone}")).unwrap();
        let stays = if zone == 3 { 6 } else { 10 };
        assert_eq!(harness.contents(file), pattern(before.0, stays * 512 - 40));
    }
}

#[test]
fn migration_begins_below_its_share_of_empty_zones_and_with_the_zone_of_most_garbage() {
    let migration = Some(Migration { start_empty_zones_percent: 50, garbage_percent: 30 });
    let live_blocks = [10, 8, 5, 9, 11];
    // Of ten data zones five are written, and each of them has the most garbage once.
    for first in 0..live_blocks.len() {
        let mut harness = Harness::new(small(12, 5), FilesConfig { migration, ..units_of_two_blocks() });
        let mut by_garbage = Vec::new();
        for zone in 0..live_blocks.len() {
            let live = live_blocks[(first + zone) % live_blocks.len()];
            by_garbage.push((live, 2 + zone as u64));
            harness.write_file(&format!("stays-{zone}"), NotSet, live * 512);
            harness.write_file(&format!("goes-{zone}"), NotSet, (16 - live) * 512);
        }
        by_garbage.sort_unstable();
        for zone in 0..live_blocks.len() {
            harness.delete(&format!("goes-{zone}"));
        }
        let usage = harness.store().usage();
        assert_eq!((usage.zones_empty, usage.migrated_bytes), (5, 0), "half of the zones are empty, which is enough");
        harness.take_commands();
        harness.write_file("one more", NotSet, 512);
        let mut read: Vec<u64> =
            harness.take_commands().iter().filter(|seen| seen.name == "read").map(|seen| seen.zone).collect();
        read.dedup();
        let expected: Vec<u64> = by_garbage.iter().map(|(_, zone)| *zone).take(read.len()).collect();
        assert!(!read.is_empty() && read == expected, "{read:?} are read, of {by_garbage:?}");
        let usage = harness.store().usage();
        let moved: usize = by_garbage.iter().map(|(live, _)| *live * 512).take(read.len()).sum();
        assert_eq!((usage.zones_empty, usage.migrated_bytes), (5, moved as u64), "it ends when enough are empty");
    }
}

#[test]
fn migration_frees_space_on_a_drive_that_is_full_without_it() {
    let half_dead = |migration| {
        let mut harness = Harness::new(small(10, 5), FilesConfig { migration, ..units_of_two_blocks() });
        for zone in 0..7 {
            harness.write_file(&format!("stays-{zone}"), NotSet, 8 * 512);
            harness.write_file(&format!("goes-{zone}"), NotSet, 8 * 512);
        }
        for zone in 0..7 {
            harness.delete(&format!("goes-{zone}"));
        }
        let mut written = 0;
        loop {
            let file = harness.create(&format!("new-{written}"), NotSet);
            harness.append(file, &pattern(9, 8 * 512));
            let close = harness.close(file);
            if harness.result(close) == Some(&Err(FileError::NoSpace)) {
                break;
            }
            harness.expect(close);
            written += 1;
        }
        for zone in 0..7 {
            let file = harness.store().lookup(&format!("stays-{zone}")).unwrap();
            assert_eq!(harness.contents(file), pattern(file.0, 8 * 512));
        }
        (written, harness.store().usage().migrated_bytes)
    };
    assert_eq!(half_dead(None), (2, 0), "one zone was left");
    let (written, migrated) = half_dead(Some(Migration { start_empty_zones_percent: 1, garbage_percent: 50 }));
    assert!(written >= 6, "{written} files of half a zone");
    assert!(migrated >= 3 * 8 * 512, "{migrated} bytes");
}

#[test]
fn a_file_that_waits_for_an_aborted_migration_fails() {
    // The first of a file's four writes fails. So the file has no extent yet, and its zone cannot
    // be emptied; and the only empty zone is reserved for migration.
    let geometry = small(5, 5);
    let matches = Matcher::operations(OperationSet::WRITES).in_zones(ZoneIndex(3)..ZoneIndex(4));
    let rule = FaultRule { matches, when: When::Once, effect: FaultEffect::FailAfter(Status::WriteFault) };
    let drive = Fault::new(Memory::new(geometry.clone(), 1 << 30), vec![rule], Prng::new(1));
    let migration = Some(Migration { start_empty_zones_percent: 1, garbage_percent: 40 });
    let mut harness = Harness::format(&geometry, FilesConfig { migration, ..units_of_two_blocks() }, drive);
    harness.write_file("a", NotSet, 16 * 512);
    let file = harness.create("b", NotSet);
    harness.append(file, &pattern(1, 8 * 512));
    let close = harness.close(file);
    assert_eq!(harness.error(close), FileError::NoSpace);
    assert_eq!(harness.contents(file), pattern(1, 8 * 512), "it stays open, with the data in its buffer");
    harness.delete("a");
    let close = harness.close(file);
    harness.expect(close);
}

#[test]
fn no_file_waits_for_a_migration_if_active_resources_are_missing() {
    // Resets of two partly written zones fail, which keeps their active resources; there is a zone
    // of half garbage, and there are enough empty ones.
    let geometry = small(12, 4);
    let resets = OperationSet::of(&[OperationKind::Reset]);
    let matches = Matcher::operations(resets).in_zones(ZoneIndex(3)..ZoneIndex(5));
    let effect = FaultEffect::Fail(Status::InternalError);
    let rule = FaultRule { matches, when: When::Always, effect };
    let drive = Fault::new(Memory::new(geometry.clone(), 1 << 30), vec![rule], Prng::new(1));
    let migration = Some(Migration { start_empty_zones_percent: 1, garbage_percent: 40 });
    let mut harness = Harness::format(&geometry, FilesConfig { migration, ..units_of_two_blocks() }, drive);
    harness.write_file("stays", NotSet, 8 * 512);
    harness.write_file("goes", NotSet, 8 * 512);
    harness.write_file("a", Lifetime::Medium, 512);
    harness.write_file("b", Long, 512);
    for name in ["goes", "a", "b"] {
        harness.delete(name);
    }
    let usage = harness.store().usage();
    assert_eq!((usage.zones_active, usage.zones_empty), (2, 7));
    let file = harness.create("c", Long);
    harness.append(file, b"more");
    let close = harness.close(file);
    assert_eq!(harness.error(close), FileError::NoSpace);
    harness.write_file("short", Short, 512);
}

#[test]
fn files_created_during_a_migration_leave_space_for_its_metadata() {
    let geometry = small(10, 5);
    let migration = Some(Migration { start_empty_zones_percent: 100, garbage_percent: 30 });
    let config = FilesConfig { migration, ..units_of_two_blocks() };
    let mut store = FileStore::format(&geometry, config, [1; 16]).expect("they suit");
    let mut drive = ReferenceDevice::new(geometry, PayloadKind::Bytes);
    let mut run = |store: &mut FileStore, before: &mut dyn FnMut(&mut FileStore, &Operation)| {
        while let Some(command) = store.poll_command(Instant::ZERO) {
            before(store, &command.operation);
            store.on_completion(Instant::ZERO, drive.execute(&command));
            store.check_invariants();
        }
    };
    run(&mut store, &mut |_, _| {});
    // The zone of the first two will be emptied; the third leaves space for a part of the moved
    // data, which so become two extents.
    for (number, (name, blocks)) in [("stays", 10), ("goes", 6), ("other", 13)].into_iter().enumerate() {
        let file = store.create(name, NotSet).expect("the name is free");
        store.append(RequestId(number as u64), file, FileData::Bytes(pattern(1, blocks * 512).into()));
        store.close(RequestId(100 + number as u64), file);
        run(&mut store, &mut |_, _| {});
    }
    store.delete(RequestId(200), "goes");
    let mut has_filled = false;
    run(&mut store, &mut |store, operation| {
        if has_filled || !matches!(operation, Operation::Read { .. }) {
            return;
        }
        has_filled = true;
        fill_metadata(store);
    });
    assert!(has_filled && store.usage().migrated_bytes > 0);
}

#[test]
fn a_migration_whose_data_are_deleted_while_it_waits_for_a_zone_blocks_no_file() {
    let geometry = small(12, 3);
    let migration = Some(Migration { start_empty_zones_percent: 100, garbage_percent: 40 });
    let config = FilesConfig { migration, finish_threshold_percent: 100, ..units_of_two_blocks() };
    let mut store = FileStore::format(&geometry, config, [1; 16]).expect("they suit");
    let mut drive = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    // Completes all commands except writes to one excluded zone, if any; returns those.
    let mut run = |store: &mut FileStore, left_out: Option<ZoneIndex>| {
        let mut held = Vec::new();
        while let Some(command) = store.poll_command(Instant::ZERO) {
            let zone = match &command.operation {
                Operation::Write { start, .. } => geometry.zone_of(*start),
                _ => None,
            };
            let completion = drive.execute(&command);
            if zone.is_some() && zone == left_out {
                held.push(completion);
            } else {
                store.on_completion(Instant::ZERO, completion);
            }
        }
        store.check_invariants();
        held
    };
    run(&mut store, None);
    let data = |blocks: usize| FileData::Bytes(pattern(1, blocks * 512).into());
    for (number, name) in ["stays", "goes"].into_iter().enumerate() {
        let file = store.create(name, NotSet).expect("the name is free");
        store.append(RequestId(10 + number as u64), file, data(8));
        store.close(RequestId(20 + number as u64), file);
        run(&mut store, None);
    }
    // Two open files hold all zones that may be active, and one has a write in flight for a long
    // time.
    let holders = ["a", "b"].map(|name| store.create(name, Long).expect("the name is free"));
    for file in holders {
        store.append(RequestId(30 + file.0), file, data(2));
        run(&mut store, None);
    }
    store.append(RequestId(40), holders[0], data(2));
    let held = run(&mut store, Some(ZoneIndex(3)));
    assert_eq!(held.len(), 1);
    store.delete(RequestId(50), "goes");
    run(&mut store, None);
    store.delete(RequestId(51), "stays");
    run(&mut store, None);
    let file = store.create("c", Long).expect("the name is free");
    store.append(RequestId(60), file, data(2));
    store.close(RequestId(61), file);
    run(&mut store, None);
    for completion in held {
        store.on_completion(Instant::ZERO, completion);
    }
    run(&mut store, None);
    let mut ended = Vec::new();
    while let Some(event) = store.poll_event() {
        if let crate::Event::Done { request, result: Ok(_) } = event {
            ended.push(request);
        }
    }
    assert!(ended.contains(&RequestId(61)), "{ended:?}");
}
