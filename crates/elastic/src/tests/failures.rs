//! Damage, failures and old copies: an error for what they concern, and nothing else.

use zonda_zoned::{
    Blocks, Lba, Operation, Outcome, Payload, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use super::drive::Fault;
use super::rig::{Rig, TENANT, write};
use crate::StartError;

fn read(start: u64, blocks: u64) -> Operation {
    Operation::Read { start: Lba(start), blocks: Blocks(blocks) }
}

fn first_byte(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data[0],
        other => panic!("a read returns bytes, not {other:?}"),
    }
}

/// A tenant with 8 blocks in its first zone and 4 in its second.
fn written() -> Rig {
    let mut rig = Rig::tiny();
    rig.create("tenant", 8, 3);
    assert_eq!(rig.execute(TENANT, write(0, 8, 1)).status, Status::Success);
    let second = rig.zone_size(TENANT);
    assert_eq!(rig.execute(TENANT, write(second, 4, 2)).status, Status::Success);
    rig
}

#[test]
fn a_namespace_that_is_created_after_a_deleted_one_reads_zeros() {
    let mut rig = written();
    let now = rig.now;
    rig.device().delete_namespace(now, TENANT).expect("nothing is in flight");
    rig.quiesce();
    assert_eq!(rig.execute(TENANT, read(0, 1)).status, Status::InvalidNamespace);
    assert_eq!(rig.create("next", 8, 3), TENANT, "identifiers are used again");
    assert_eq!(first_byte(&rig.execute(TENANT, read(0, 8)).outcome), 0);
    rig.mount_again();
    assert_eq!(first_byte(&rig.execute(TENANT, read(0, 8)).outcome), 0);
    rig.check();
}

#[test]
fn a_copy_of_the_log_that_is_lost_costs_nothing() {
    for copy in 0..2 {
        let mut rig = written();
        (0..3).for_each(|slot| rig.drive().degrade(ZoneIndex(slot * 2 + copy), ZoneState::Offline));
        rig.mount_again();
        assert_eq!(first_byte(&rig.execute(TENANT, read(0, 8)).outcome), 1);
        assert_eq!(rig.execute(TENANT, write(8, 4, 1)).status, Status::Success, "it goes on with the other copy");
        assert_eq!(rig.device().pool().unwrap().log_copies(), 1);
        rig.mount_again();
        assert_eq!(first_byte(&rig.execute(TENANT, read(8, 4)).outcome), 1);
    }
}

#[test]
fn without_any_copy_of_the_log_a_pool_is_refused_and_nothing_is_written() {
    let mut rig = written();
    (0..6).for_each(|zone| rig.drive().degrade(ZoneIndex(zone), ZoneState::Offline));
    assert_eq!(rig.try_mount(1), Some(StartError::NoPool));
}

#[test]
fn an_old_copy_of_the_drive_is_refused() {
    let mut rig = written();
    rig.mount_again();
    assert_eq!(rig.try_mount(7), Some(StartError::OldCopy { found: 2, known: 7 }));
}

#[test]
fn a_zone_that_goes_offline_takes_its_own_v_zone_with_it_and_no_other() {
    let mut rig = written();
    let zones = rig.zones_of(TENANT, 0);
    rig.drive().degrade(zones[0], ZoneState::Offline);
    rig.mount_again();
    assert_eq!(rig.execute(TENANT, read(0, 8)).status, Status::ZoneIsOffline);
    let second = rig.zone_size(TENANT);
    assert_eq!(first_byte(&rig.execute(TENANT, read(second, 4)).outcome), 2);
}

#[test]
fn a_zone_that_goes_read_only_ends_the_writes_of_its_v_zone_which_can_be_read() {
    let mut rig = written();
    let zones = rig.zones_of(TENANT, 0);
    rig.drive().degrade(zones[0], ZoneState::ReadOnly);
    let failed = rig.execute(TENANT, write(8, 8, 1));
    assert_eq!(failed.status, Status::ZoneIsReadOnly);
    for _ in 0..2 {
        assert_eq!(first_byte(&rig.execute(TENANT, read(0, 8)).outcome), 1);
        assert_eq!(rig.execute(TENANT, write(8, 1, 1)).status, Status::ZoneIsReadOnly);
        rig.check();
        rig.mount_again();
    }
}

#[test]
fn a_zone_that_cannot_be_reset_is_not_used_again() {
    let mut rig = written();
    let zones = rig.zones_of(TENANT, 0);
    rig.drive().degrade(zones[0], ZoneState::ReadOnly);
    let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(0)) };
    assert_eq!(rig.execute(TENANT, reset).status, Status::Success);
    assert_eq!(rig.device().pool().unwrap().zone_counts().retired, 1);
    assert_eq!(first_byte(&rig.execute(TENANT, read(0, 8)).outcome), 0);
    rig.mount_again();
    assert_eq!(rig.device().pool().unwrap().zone_counts().retired, 1);
    assert_eq!(rig.execute(TENANT, write(0, 8, 3)).status, Status::Success);
    assert!(!rig.zones_of(TENANT, 0).contains(&zones[0]));
}

#[test]
fn zones_of_others_are_set_aside_and_not_reset() {
    let mut rig = written();
    let foreign = ZoneIndex(90);
    rig.write_directly(foreign, 5);
    rig.mount_again();
    assert_eq!(rig.device().pool().unwrap().zone_counts().set_aside, 1);
    assert_eq!(rig.read_directly(foreign), 5);
}

#[test]
fn a_zone_that_another_program_has_reset_and_written_is_not_taken_for_the_v_zones_own() {
    let mut rig = written();
    let zones = rig.zones_of(TENANT, 0);
    rig.reset_directly(zones[0]);
    rig.write_directly(zones[0], 9);
    rig.mount_again();
    assert_eq!(rig.execute(TENANT, read(0, 1)).status, Status::ZoneIsOffline);
    assert_eq!(rig.read_directly(zones[0]), 9, "nothing is reset because it could not be read");
}

#[test]
fn a_zone_that_another_program_has_reset_is_an_error_and_not_an_empty_v_zone() {
    let mut rig = written();
    let zones = rig.zones_of(TENANT, 0);
    rig.reset_directly(zones[0]);
    for _ in 0..2 {
        rig.mount_again();
        assert_eq!(rig.execute(TENANT, read(0, 1)).status, Status::ZoneIsOffline);
        assert_eq!(rig.zones_of(TENANT, 0), zones, "all that is left of it is kept");
    }
}

#[test]
fn a_pool_promises_no_more_zones_and_active_zones_than_the_drive_has() {
    let mut rig = written();
    let now = rig.now;
    let config = |name: &str, zones, active| crate::NamespaceConfig::new(name, [9; 16], zones, active);
    let refused = rig.device().create_namespace(now, &config("large", 40, 2)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "40 zones (1.09 MiB) are more than the 14 zones (392 KiB) that are not promised to others; make it 14 zones (392 KiB) at most, make other namespaces \
         smaller, or delete one"
    );
    let refused = rig.device().create_namespace(now, &config("busy", 2, 14)).unwrap_err();
    assert!(refused.to_string().starts_with("14 active zones are more than the drive has"), "{refused}");
    let refused = rig.device().create_namespace(now, &config("tenant", 2, 2)).unwrap_err();
    assert_eq!(refused.to_string(), "the pool has a namespace \"tenant\" already: choose another name");
}

#[test]
fn a_namespace_grows_and_shrinks_and_keeps_its_data() {
    let mut rig = written();
    let now = rig.now;
    rig.device().resize_namespace(now, TENANT, 12).expect("the drive has room");
    rig.quiesce();
    let size = rig.zone_size(TENANT);
    assert_eq!(rig.execute(TENANT, write(11 * size, 4, 7)).status, Status::Success);
    let refused = rig.device().resize_namespace(now, TENANT, 4).unwrap_err();
    assert_eq!(refused.to_string(), "zone 11 of the namespace is not empty: reset it first");
    rig.mount_again();
    assert_eq!(first_byte(&rig.execute(TENANT, read(11 * size, 4)).outcome), 7);
    assert_eq!(first_byte(&rig.execute(TENANT, read(0, 8)).outcome), 1);
}

#[test]
fn a_namespace_has_its_share_from_the_moment_of_its_creation_on() {
    for left in 0..30 {
        let mut rig = Rig::with_active_zones(8, 4);
        let now = rig.now;
        let config = |name: &str, id, active| crate::NamespaceConfig::new(name, [id; 16], 5, active);
        rig.device().create_namespace(now, &config("first", 8, 1)).expect("the drive has room");
        rig.quiesce();
        // The record of the second one is being written.
        rig.drive().completions_left = left;
        let second = rig.device().create_namespace(now, &config("second", 9, 2)).expect("the drive has room");
        rig.submit(TENANT, write(0, 8, 7));
        rig.quiesce();
        rig.drive().completions_left = usize::MAX;
        rig.quiesce();
        let size = rig.zone_size(second);
        for zone in 0..2 {
            assert_eq!(rig.execute(second, write(zone * size, 8, 7)).status, Status::Success, "{left}");
        }
        rig.check();
    }
}

/// A namespace grows and is deleted, while a copy of the log must begin a new zone.
#[test]
fn a_crash_leaves_a_namespace_that_is_being_deleted_whole_or_removes_it() {
    for left in 0..60 {
        let mut rig = written();
        let now = rig.now;
        rig.drive().completions_left = 0;
        rig.drive().faults.push(Fault {
            matches: Box::new(|operation| matches!(operation, Operation::Write { start, .. } if start.0 / 32 == 1)),
            times: 1,
            status: Status::WriteFault,
        });
        rig.device().resize_namespace(now, TENANT, 12).expect("the drive has room");
        rig.device().delete_namespace(now, TENANT).expect("it is idle");
        rig.drive().completions_left = left;
        rig.quiesce();
        rig.drive().faults.clear();
        rig.mount_again();
        if rig.device().namespaces().geometry(TENANT).is_some() {
            assert_eq!(rig.execute(TENANT, read(0, 1)).status, Status::Success, "{left}");
            assert!(!rig.zones_of(TENANT, 0).is_empty(), "{left}: its zones were reset");
        }
        rig.check();
    }
}
