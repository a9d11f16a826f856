//! Drives that fail: data are written elsewhere, errors reach whoever asked, and the store goes on as far as it can.

use zonda_layers::{Fault, FaultEffect, FaultRule, Matcher, Memory, OperationSet, When};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Instant, NamespaceId, Operation, Payload, Prng, Status,
    ZoneIndex, ZoneState, ZonedDevice,
};

use crate::testing::{Desk, pattern, small, units_of_two_blocks};
use crate::{FileError, FileStore, Lifetime, Outcome};

use Lifetime::{Long, Medium};

type Failing = Desk<Fault<Memory>>;

/// A store on a drive that fails some commands to some zones.
fn failing(operations: OperationSet, zones: std::ops::Range<u32>, when: When, effect: FaultEffect) -> Failing {
    let geometry = small(12, 5);
    let zones = ZoneIndex(zones.start)..ZoneIndex(zones.end);
    let rule = FaultRule { matches: Matcher::operations(operations).in_zones(zones), when, effect };
    let drive = Fault::new(Memory::new(geometry.clone(), 1 << 30), vec![rule], Prng::new(1));
    Desk::format(&geometry, units_of_two_blocks(), drive)
}

const WRITE_FAULT: FaultEffect = FaultEffect::Fail(Status::WriteFault);

#[test]
fn data_whose_write_failed_are_written_to_another_zone() {
    for (when, effect) in [
        (When::Once, WRITE_FAULT),
        (When::Once, FaultEffect::FailAfter(Status::WriteFault)),
        (When::EveryNth(3), WRITE_FAULT),
        (When::EveryNth(4), FaultEffect::FailAfter(Status::InternalError)),
    ] {
        let mut desk = failing(OperationSet::WRITES, 2..12, when, effect);
        let files = ["a", "b"].map(|name| desk.write_file(name, Long, 5000));
        for file in files {
            assert_eq!(desk.contents(file), pattern(file.0, 5000), "{when:?} {effect:?}");
        }
        let drive = desk.into_drive().into_inner();
        let mut desk = Desk::on(crate::FileStore::mount(&small(12, 5), units_of_two_blocks()).unwrap(), drive);
        for file in files {
            assert_eq!(desk.contents(file), pattern(file.0, 5000), "{when:?} {effect:?}");
        }
    }
}

#[test]
fn a_zone_in_which_a_write_failed_takes_no_more_data_and_is_reset_when_it_is_dead() {
    let mut desk = failing(OperationSet::WRITES, 2..3, When::After(1), WRITE_FAULT);
    let file = desk.write_file("a", Long, 3000);
    let zones: Vec<u64> = desk.seen().iter().filter(|seen| seen.name == "finish").map(|seen| seen.zone).collect();
    assert_eq!(zones, [2], "its good data stay, and it gives its active resource back");
    assert_eq!(desk.contents(file), pattern(file.0, 3000));
    desk.delete("a");
    assert_eq!(desk.store().usage().zones_empty, 10);
}

#[test]
fn a_file_is_given_up_when_zone_after_zone_fails() {
    let mut desk = failing(OperationSet::WRITES, 2..12, When::Always, WRITE_FAULT);
    let file = desk.create("a", Long);
    let append = desk.append(file, &pattern(0, 2000));
    desk.expect(append);
    let sync = desk.sync(file);
    assert!(matches!(desk.error(sync), FileError::Media { status: Status::WriteFault, .. }));
    let append = desk.append(file, b"more");
    assert!(matches!(desk.error(append), FileError::Media { .. }));
    assert_eq!(desk.contents(file), pattern(0, 2000), "in memory it is still there");
    let delete = desk.delete("a");
    desk.expect(delete);
    assert_eq!(desk.store().usage().zones_empty, 10);
}

#[test]
fn a_read_that_fails_is_the_request_s_and_nobody_else_s() {
    let effect = FaultEffect::Fail(Status::UnrecoveredReadError);
    let mut desk = failing(OperationSet::READ, 2..12, When::Once, effect);
    let file = desk.write_file("a", Long, 5000);
    let read = desk.read(file, 0, 5000);
    let error = desk.error(read);
    assert!(matches!(error, FileError::Media { status: Status::UnrecoveredReadError, .. }), "{error}");
    assert_eq!(desk.contents(file), pattern(file.0, 5000));
}

#[test]
fn a_zone_that_becomes_read_only_or_offline_under_a_file_is_left() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
        let file = desk.create("a", Long);
        desk.append(file, &pattern(0, 2048));
        desk.sync(file);
        desk.files.device_mut().inner.degrade(ZoneIndex(2), state);
        desk.append(file, &pattern(1, 2048));
        let close = desk.close(file);
        desk.expect(close);
        let tail = desk.read(file, 2048, 2048);
        assert_eq!(desk.result(tail), Some(&Ok(Outcome::Data(pattern(1, 2048).into()))));
        let head = desk.read(file, 0, 2048);
        assert_eq!(matches!(desk.result(head), Some(Ok(_))), state == ZoneState::ReadOnly, "{state}");
        desk.delete("a");
        let usage = desk.store().usage();
        assert_eq!((usage.zones_empty, usage.zones_active), (9, 0), "{state}");
    }
}

#[test]
fn a_zone_that_became_empty_under_a_file_is_not_used_again_while_the_file_exists() {
    let mut desk = Desk::new(small(12, 5), units_of_two_blocks());
    let file = desk.create("a", Long);
    desk.append(file, &pattern(0, 2048));
    desk.sync(file);
    assert_eq!(desk.zones_written(), [2]);
    desk.manage(2, zonda_zoned::ZoneAction::Reset);
    desk.append(file, &pattern(1, 2048));
    let close = desk.close(file);
    desk.expect(close);
    desk.seen();
    for number in 0..20 {
        let name = format!("f{number}");
        desk.write_file(&name, Long, 3000);
        assert!(!desk.zones_written().contains(&2), "its file refers to it");
        desk.delete(&name);
    }
    let tail = desk.read(file, 2048, 2048);
    assert_eq!(desk.result(tail), Some(&Ok(Outcome::Data(pattern(1, 2048).into()))));
}

#[test]
fn a_zone_whose_reset_fails_is_not_used_again() {
    let resets = OperationSet::of(&[zonda_layers::OperationKind::Reset]);
    let mut desk = failing(resets, 2..4, When::Always, FaultEffect::Fail(Status::InternalError));
    desk.write_file("a", Long, 16 * 512);
    desk.write_file("b", Medium, 512);
    for name in ["a", "b"] {
        let delete = desk.delete(name);
        desk.expect(delete);
    }
    let usage = desk.store().usage();
    assert_eq!((usage.zones_empty, usage.zones_active), (8, 1), "the partly written one still holds its resource");
    for number in 0..20 {
        let name = format!("f{number}");
        desk.write_file(&name, Long, 600);
        desk.delete(&name);
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
    let mut desk = Desk::format(&geometry, config, drive);
    let files: Vec<_> = (0..6).map(|number| desk.write_file(&format!("f{number}"), Long, 4 * 512)).collect();
    for file in files {
        assert_eq!(desk.contents(file), pattern(file.0, 4 * 512));
    }
}

#[test]
fn metadata_whose_write_failed_go_to_the_next_zone() {
    for effect in [WRITE_FAULT, FaultEffect::FailAfter(Status::WriteFault)] {
        let mut desk = failing(OperationSet::WRITES, 0..2, When::EveryNth(6), effect);
        for number in 0..10 {
            desk.write_file(&format!("f{number}"), Long, 700);
        }
        assert_eq!(desk.failed, None);
        let drive = desk.into_drive().into_inner();
        let mut desk = Desk::on(crate::FileStore::mount(&small(12, 5), units_of_two_blocks()).unwrap(), drive);
        assert_eq!(desk.failed, None);
        for number in 0..10 {
            let file = desk.store().lookup(&format!("f{number}")).unwrap();
            assert_eq!(desk.contents(file), pattern(file.0, 700));
        }
    }
}

#[test]
fn when_no_metadata_zone_can_be_written_changes_fail_and_reads_go_on() {
    let mut desk = failing(OperationSet::WRITES, 0..2, When::After(4), WRITE_FAULT);
    let mut written = Vec::new();
    let lost = loop {
        let file = desk.create(&format!("f{}", written.len()), Long);
        desk.append(file, &pattern(file.0, 700));
        let close = desk.close(file);
        match desk.result(close) {
            Some(Ok(_)) => written.push(file),
            Some(Err(error)) => break error.clone(),
            None => panic!("a close waits for ever"),
        }
    };
    assert!(matches!(lost, FileError::Media { status: Status::WriteFault, .. }), "{lost}");
    assert_eq!(desk.failed, Some(lost.clone()));
    assert!(!written.is_empty());
    assert_eq!(desk.store().create("new", Long), Err(lost.clone()));
    let delete = desk.delete("f0");
    assert_eq!(desk.error(delete), lost);
    for file in written {
        assert_eq!(desk.contents(file), pattern(file.0, 700));
    }
}

#[test]
fn a_format_that_cannot_write_the_metadata_fails() {
    let desk = failing(OperationSet::WRITES, 0..2, When::Always, WRITE_FAULT);
    assert!(matches!(desk.failed, Some(FileError::Media { status: Status::WriteFault, .. })));
}

#[test]
fn a_mount_that_cannot_read_the_metadata_fails() {
    let desk = Desk::new(small(12, 5), units_of_two_blocks());
    let rule = FaultRule {
        matches: Matcher::operations(OperationSet::READ),
        when: When::Always,
        effect: FaultEffect::Fail(Status::UnrecoveredReadError),
    };
    let drive = Fault::new(desk.into_drive(), vec![rule], Prng::new(1));
    let desk = Desk::on(crate::FileStore::mount(&small(12, 5), units_of_two_blocks()).unwrap(), drive);
    assert!(matches!(desk.failed, Some(FileError::Media { status: Status::UnrecoveredReadError, .. })));
}

#[test]
fn migration_goes_round_what_cannot_be_read() {
    let effect = FaultEffect::Fail(Status::UnrecoveredReadError);
    let geometry = small(12, 5);
    let matches = Matcher::operations(OperationSet::READ).in_zones(ZoneIndex(2)..ZoneIndex(3));
    let rule = FaultRule { matches, when: When::Always, effect };
    let drive = Fault::new(Memory::new(geometry.clone(), 1 << 30), vec![rule], Prng::new(1));
    let migration = Some(crate::Migration { start_empty_zones_percent: 100, garbage_percent: 40 });
    let mut desk = Desk::format(&geometry, crate::FilesConfig { migration, ..units_of_two_blocks() }, drive);
    for zone in 0..2 {
        desk.write_file(&format!("stays-{zone}"), Long, 6 * 512);
        desk.write_file(&format!("goes-{zone}"), Medium, 10 * 512);
    }
    for zone in 0..2 {
        desk.delete(&format!("goes-{zone}"));
    }
    assert_eq!(desk.store().usage().migrated_bytes, 6 * 512, "the file in the zone that can be read");
    let file = desk.store().lookup("stays-1").unwrap();
    assert_eq!(desk.contents(file), pattern(file.0, 6 * 512));
}

#[test]
fn a_format_leaves_out_the_zone_whose_reset_failed_in_whatever_order_resets_end() {
    let geometry = small(12, 5);
    let now = Instant::ZERO;
    let mut drive = Memory::new(geometry.clone(), 1 << 20);
    let mut completions = CompletionQueue::new();
    for zone in [2, 3] {
        let start = geometry.zone_start(ZoneIndex(zone));
        let operation = Operation::Write { start, blocks: Blocks(1), payload: Payload::None };
        let command = Command { id: CommandId(zone.into()), namespace: NamespaceId::FIRST, operation };
        drive.submit(now, command).expect("an idle drive takes a command");
    }
    drive.poll(now, &mut completions);
    while completions.pop().is_some() {}

    let mut store = FileStore::format(&geometry, units_of_two_blocks(), [1; 16]).expect("they suit");
    let mut resets = Vec::new();
    while let Some(command) = store.poll_command(now) {
        if matches!(command.operation, Operation::ManageZones { .. }) {
            resets.push(command);
            continue;
        }
        drive.submit(now, command).expect("an idle drive takes a command");
        drive.poll(now, &mut completions);
        while let Some(completion) = completions.pop() {
            store.on_completion(now, completion);
        }
    }
    let later = resets.pop().expect("two zones are not empty");
    store.on_completion(now, Completion::of(later.id, Status::InternalError));
    drive.submit(now, resets.pop().expect("two zones are not empty")).expect("an idle drive takes a command");
    drive.poll(now, &mut completions);
    store.on_completion(now, completions.pop().expect("a reset ends at once here"));

    let mut desk = Desk::on(store, drive);
    desk.write_file("a", Lifetime::Long, 20 * 512);
    desk.write_file("b", Lifetime::Long, 20 * 512);
    let written = desk.zones_written();
    assert!(written.contains(&2) && !written.contains(&3), "zone 2 was reset, and zone 3 was not: {written:?}");
}
