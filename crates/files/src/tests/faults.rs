//! Failing drives: data are written to another zone, requests return the errors, and the store
//! continues as far as possible.

use zonda_layers::{Fault, FaultEffect, FaultRule, Matcher, Memory, OperationSet, When};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Instant, NamespaceId, Operation, Payload, Prng, Status,
    ZoneIndex, ZoneState, ZonedDevice,
};

use crate::testing::{Harness, pattern, small, units_of_two_blocks};
use crate::{FileError, FileStore, Lifetime, Outcome};

use Lifetime::{Long, Medium};

type Failing = Harness<Fault<Memory>>;

/// A store on a drive that fails some commands to some zones.
fn failing(operations: OperationSet, zones: std::ops::Range<u32>, when: When, effect: FaultEffect) -> Failing {
    let geometry = small(12, 5);
    let zones = ZoneIndex(zones.start)..ZoneIndex(zones.end);
    let rule = FaultRule { matches: Matcher::operations(operations).in_zones(zones), when, effect };
    let drive = Fault::new(Memory::new(geometry.clone(), 1 << 30), vec![rule], Prng::new(1));
    Harness::format(&geometry, units_of_two_blocks(), drive)
}

const WRITE_FAULT: FaultEffect = FaultEffect::Fail(Status::WriteFault);

#[test]
fn data_of_a_failed_write_are_written_to_another_zone() {
    for (when, effect) in [
        (When::Once, WRITE_FAULT),
        (When::Once, FaultEffect::FailAfter(Status::WriteFault)),
        (When::EveryNth(3), WRITE_FAULT),
        (When::EveryNth(4), FaultEffect::FailAfter(Status::InternalError)),
    ] {
        let mut harness = failing(OperationSet::WRITES, 2..12, when, effect);
        let files = ["a", "b"].map(|name| harness.write_file(name, Long, 5000));
        for file in files {
            assert_eq!(harness.contents(file), pattern(file.0, 5000), "{when:?} {effect:?}");
        }
        let drive = harness.into_drive().into_inner();
        let mut harness = Harness::on(crate::FileStore::mount(&small(12, 5), units_of_two_blocks()).unwrap(), drive);
        for file in files {
            assert_eq!(harness.contents(file), pattern(file.0, 5000), "{when:?} {effect:?}");
        }
    }
}

#[test]
fn a_zone_with_a_failed_write_accepts_no_more_data_and_is_reset_when_it_is_dead() {
    let mut harness = failing(OperationSet::WRITES, 2..3, When::After(1), WRITE_FAULT);
    let file = harness.write_file("a", Long, 3000);
    let zones: Vec<u64> =
        harness.take_commands().iter().filter(|seen| seen.name == "finish").map(|seen| seen.zone).collect();
    assert_eq!(zones, [2], "its good data stay, and its active resource is freed");
    assert_eq!(harness.contents(file), pattern(file.0, 3000));
    harness.delete("a");
    assert_eq!(harness.store().usage().zones_empty, 10);
}

#[test]
fn a_file_fails_when_zone_after_zone_fails() {
    let mut harness = failing(OperationSet::WRITES, 2..12, When::Always, WRITE_FAULT);
    let file = harness.create("a", Long);
    let append = harness.append(file, &pattern(0, 2000));
    harness.expect(append);
    let sync = harness.sync(file);
    assert!(matches!(harness.error(sync), FileError::Media { status: Status::WriteFault, .. }));
    let append = harness.append(file, b"more");
    assert!(matches!(harness.error(append), FileError::Media { .. }));
    assert_eq!(harness.contents(file), pattern(0, 2000), "it is still in memory");
    let delete = harness.delete("a");
    harness.expect(delete);
    assert_eq!(harness.store().usage().zones_empty, 10);
}

#[test]
fn a_failed_read_fails_only_its_request() {
    let effect = FaultEffect::Fail(Status::UnrecoveredReadError);
    let mut harness = failing(OperationSet::READ, 2..12, When::Once, effect);
    let file = harness.write_file("a", Long, 5000);
    let read = harness.read(file, 0, 5000);
    let error = harness.error(read);
    assert!(matches!(error, FileError::Media { status: Status::UnrecoveredReadError, .. }), "{error}");
    assert_eq!(harness.contents(file), pattern(file.0, 5000));
}

#[test]
fn a_file_leaves_a_zone_that_becomes_read_only_or_offline() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
        let file = harness.create("a", Long);
        harness.append(file, &pattern(0, 2048));
        harness.sync(file);
        harness.files.device_mut().inner.degrade(ZoneIndex(2), state);
        harness.append(file, &pattern(1, 2048));
        let close = harness.close(file);
        harness.expect(close);
        let tail = harness.read(file, 2048, 2048);
        assert_eq!(harness.result(tail), Some(&Ok(Outcome::Data(pattern(1, 2048).into()))));
        let head = harness.read(file, 0, 2048);
        assert_eq!(matches!(harness.result(head), Some(Ok(_))), state == ZoneState::ReadOnly, "{state}");
        harness.delete("a");
        let usage = harness.store().usage();
        assert_eq!((usage.zones_empty, usage.zones_active), (9, 0), "{state}");
    }
}

#[test]
fn a_zone_that_was_emptied_without_the_store_is_not_reused_while_a_file_refers_to_it() {
    let mut harness = Harness::new(small(12, 5), units_of_two_blocks());
    let file = harness.create("a", Long);
    harness.append(file, &pattern(0, 2048));
    harness.sync(file);
    assert_eq!(harness.zones_written(), [2]);
    harness.manage(2, zonda_zoned::ZoneAction::Reset);
    harness.append(file, &pattern(1, 2048));
    let close = harness.close(file);
    harness.expect(close);
    harness.take_commands();
    for number in 0..20 {
        let name = format!("f{number}");
        harness.write_file(&name, Long, 3000);
        assert!(!harness.zones_written().contains(&2), "its file refers to it");
        harness.delete(&name);
    }
    let tail = harness.read(file, 2048, 2048);
    assert_eq!(harness.result(tail), Some(&Ok(Outcome::Data(pattern(1, 2048).into()))));
}

#[test]
fn a_zone_whose_reset_fails_is_not_used_again() {
    let resets = OperationSet::of(&[zonda_layers::OperationKind::Reset]);
    let mut harness = failing(resets, 2..4, When::Always, FaultEffect::Fail(Status::InternalError));
    harness.write_file("a", Long, 16 * 512);
    harness.write_file("b", Medium, 512);
    for name in ["a", "b"] {
        let delete = harness.delete(name);
        harness.expect(delete);
    }
    let usage = harness.store().usage();
    assert_eq!((usage.zones_empty, usage.zones_active), (8, 1), "the partly written one still holds its resource");
    for number in 0..20 {
        let name = format!("f{number}");
        harness.write_file(&name, Long, 600);
        harness.delete(&name);
    }
}

#[test]
fn a_zone_whose_finish_fails_is_not_used_again() {
    let finishes = OperationSet::of(&[zonda_layers::OperationKind::Finish]);
    let rule = FaultRule {
        matches: Matcher::operations(finishes),
        when: When::Once,
        effect: FaultEffect::Fail(Status::InternalError),
    };
    let geometry = small(12, 4);
    let drive = Fault::new(Memory::new(geometry.clone(), 1 << 30), vec![rule], Prng::new(1));
    let config = crate::FilesConfig { finish_threshold_percent: 10, ..units_of_two_blocks() };
    let mut harness = Harness::format(&geometry, config, drive);
    let files: Vec<_> = (0..6).map(|number| harness.write_file(&format!("f{number}"), Long, 4 * 512)).collect();
    for file in files {
        assert_eq!(harness.contents(file), pattern(file.0, 4 * 512));
    }
}

#[test]
fn metadata_of_a_failed_write_are_written_to_the_next_zone() {
    for effect in [WRITE_FAULT, FaultEffect::FailAfter(Status::WriteFault)] {
        let mut harness = failing(OperationSet::WRITES, 0..2, When::EveryNth(6), effect);
        for number in 0..10 {
            harness.write_file(&format!("f{number}"), Long, 700);
        }
        assert_eq!(harness.failed, None);
        let drive = harness.into_drive().into_inner();
        let mut harness = Harness::on(crate::FileStore::mount(&small(12, 5), units_of_two_blocks()).unwrap(), drive);
        assert_eq!(harness.failed, None);
        for number in 0..10 {
            let file = harness.store().lookup(&format!("f{number}")).unwrap();
            assert_eq!(harness.contents(file), pattern(file.0, 700));
        }
    }
}

#[test]
fn when_no_metadata_zone_can_be_written_changes_fail_and_reads_continue() {
    let mut harness = failing(OperationSet::WRITES, 0..2, When::After(4), WRITE_FAULT);
    let mut written = Vec::new();
    let lost = loop {
        let file = harness.create(&format!("f{}", written.len()), Long);
        harness.append(file, &pattern(file.0, 700));
        let close = harness.close(file);
        match harness.result(close) {
            Some(Ok(_)) => written.push(file),
            Some(Err(error)) => break error.clone(),
            None => panic!("a close waits forever"),
        }
    };
    assert!(matches!(lost, FileError::Media { status: Status::WriteFault, .. }), "{lost}");
    assert_eq!(harness.failed, Some(lost.clone()));
    assert!(!written.is_empty());
    assert_eq!(harness.store().create("new", Long), Err(lost.clone()));
    let delete = harness.delete("f0");
    assert_eq!(harness.error(delete), lost);
    for file in written {
        assert_eq!(harness.contents(file), pattern(file.0, 700));
    }
}

#[test]
fn a_format_that_cannot_write_the_metadata_fails() {
    let harness = failing(OperationSet::WRITES, 0..2, When::Always, WRITE_FAULT);
    assert!(matches!(harness.failed, Some(FileError::Media { status: Status::WriteFault, .. })));
}

#[test]
fn a_mount_that_cannot_read_the_metadata_fails() {
    let harness = Harness::new(small(12, 5), units_of_two_blocks());
    let rule = FaultRule {
        matches: Matcher::operations(OperationSet::READ),
        when: When::Always,
        effect: FaultEffect::Fail(Status::UnrecoveredReadError),
    };
    let drive = Fault::new(harness.into_drive(), vec![rule], Prng::new(1));
    let harness = Harness::on(crate::FileStore::mount(&small(12, 5), units_of_two_blocks()).unwrap(), drive);
    assert!(matches!(harness.failed, Some(FileError::Media { status: Status::UnrecoveredReadError, .. })));
}

#[test]
fn migration_skips_unreadable_data() {
    let effect = FaultEffect::Fail(Status::UnrecoveredReadError);
    let geometry = small(12, 5);
    let matches = Matcher::operations(OperationSet::READ).in_zones(ZoneIndex(2)..ZoneIndex(3));
    let rule = FaultRule { matches, when: When::Always, effect };
    let drive = Fault::new(Memory::new(geometry.clone(), 1 << 30), vec![rule], Prng::new(1));
    let migration = Some(crate::Migration { start_empty_zones_percent: 100, garbage_percent: 40 });
    let mut harness = Harness::format(&geometry, crate::FilesConfig { migration, ..units_of_two_blocks() }, drive);
    for zone in 0..2 {
        harness.write_file(&format!("stays-{zone}"), Long, 6 * 512);
        harness.write_file(&format!("goes-{zone}"), Medium, 10 * 512);
    }
    for zone in 0..2 {
        harness.delete(&format!("goes-{zone}"));
    }
    assert_eq!(harness.store().usage().migrated_bytes, 6 * 512, "the file in the zone that can be read");
    let file = harness.store().lookup("stays-1").unwrap();
    assert_eq!(harness.contents(file), pattern(file.0, 6 * 512));
}

#[test]
fn a_format_excludes_a_zone_whose_reset_failed_in_any_order_of_completions() {
    let geometry = small(12, 5);
    let now = Instant::ZERO;
    let mut drive = Memory::new(geometry.clone(), 1 << 20);
    let mut completions = CompletionQueue::new();
    for zone in [2, 3] {
        let start = geometry.zone_start(ZoneIndex(zone));
        let operation = Operation::Write { start, blocks: Blocks(1), payload: Payload::None };
        let command = Command::new(CommandId(zone.into()), NamespaceId::FIRST, operation);
        drive.submit(now, command).expect("an idle drive accepts a command");
    }
    drive.poll(now, &mut completions);
    while completions.pop().is_some() {}

    let mut store = FileStore::format(&geometry, units_of_two_blocks(), [1; 16]).expect("they match");
    let mut resets = Vec::new();
    while let Some(command) = store.poll_command(now) {
        if matches!(command.operation, Operation::ManageZones { .. }) {
            resets.push(command);
            continue;
        }
        drive.submit(now, command).expect("an idle drive accepts a command");
        drive.poll(now, &mut completions);
        while let Some(completion) = completions.pop() {
            store.on_completion(now, completion);
        }
    }
    let later = resets.pop().expect("two zones are not empty");
    store.on_completion(now, Completion::of(later.id, Status::InternalError));
    drive.submit(now, resets.pop().expect("two zones are not empty")).expect("an idle drive accepts a command");
    drive.poll(now, &mut completions);
    store.on_completion(now, completions.pop().expect("a reset ends immediately here"));

    let mut harness = Harness::on(store, drive);
    harness.write_file("a", Lifetime::Long, 20 * 512);
    harness.write_file("b", Lifetime::Long, 20 * 512);
    let written = harness.zones_written();
    assert!(written.contains(&2) && !written.contains(&3), "zone 2 was reset, and zone 3 was not: {written:?}");
}
