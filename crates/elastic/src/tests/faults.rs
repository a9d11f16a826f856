//! Errors of the drive, and losses of its cache: every command ends, and resources are released.

use zonda_zoned::{
    Blocks, Duration, Lba, NamespaceId, Operation, Outcome, Payload, Status, ZoneAction, ZoneIndex, ZoneState,
    ZoneTarget, ZonedDevice,
};

use super::drive::Fault;
use super::rig::{Rig, TENANT, manage, write};
use crate::limits::{COMMAND_TRIES_MAX, LOG_ZONES};

fn read(start: u64, blocks: u64) -> Operation {
    Operation::Read { start: Lba(start), blocks: Blocks(blocks) }
}

fn first_byte(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data[0],
        other => panic!("a read returns bytes, not {other:?}"),
    }
}

/// Writes a v-zone from its beginning up to `end`.
fn fill(rig: &mut Rig, zone: u64, end: u64, byte: u8) {
    let start = zone * rig.zone_size(TENANT);
    for at in 0..end {
        assert_eq!(rig.execute(TENANT, write(start + at, 1, byte)).status, Status::Success, "block {at}");
    }
}

fn capacity(rig: &mut Rig) -> u64 {
    rig.device().geometry(TENANT).zone_capacity_blocks.0
}

#[test]
fn full_v_zones_that_have_lost_a_zone_hold_no_active_zones() {
    let mut rig = Rig::tenant();
    let end = capacity(&mut rig);
    let mut lost = Vec::new();
    for zone in 0..9 {
        fill(&mut rig, zone, end, 1);
        lost.push(rig.zones_of(TENANT, zone as u32)[0]);
    }
    lost.into_iter().for_each(|zone| rig.reset_directly(zone));
    rig.mount_again();
    rig.check();
    fill(&mut rig, 9, end, 2);
}

#[test]
fn a_v_zone_that_failed_keeps_its_data_however_many_others_are_active() {
    let mut rig = Rig::tenant();
    fill(&mut rig, 9, 8, 7);
    let size = rig.zone_size(TENANT);
    let zone = rig.zones_of(TENANT, 9)[0];
    rig.drive().degrade(zone, ZoneState::ReadOnly);
    assert_eq!(rig.execute(TENANT, write(9 * size + 8, 8, 7)).status, Status::ZoneIsReadOnly);
    (0..3).for_each(|zone| fill(&mut rig, zone, 4, 1));
    assert_eq!(first_byte(&rig.execute(TENANT, read(9 * size, 8)).outcome), 7);
    rig.mount_again();
    assert_eq!(first_byte(&rig.execute(TENANT, read(9 * size, 8)).outcome), 7);
    rig.check();
}

#[test]
fn a_zone_that_cannot_be_reset_and_stays_active_costs_no_other_zone() {
    let mut rig = Rig::tenant();
    fill(&mut rig, 0, 4, 1);
    let zones = rig.zones_of(TENANT, 0).len() as u32;
    let matches = |operation: &Operation| {
        matches!(operation, Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) }
            if start.0 / 32 >= u64::from(LOG_ZONES))
    };
    let times = zones * u32::from(COMMAND_TRIES_MAX);
    rig.drive().faults.push(Fault { matches: Box::new(matches), times, status: Status::InternalError });
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Reset)).status, Status::Success);
    assert_eq!(rig.device().pool().unwrap().zone_counts().retired, zones);
    let end = capacity(&mut rig);
    for round in 0..3 {
        (0..3).for_each(|zone| fill(&mut rig, zone, end, round));
        for zone in 0..3 {
            let start = zone * rig.zone_size(TENANT);
            assert_eq!(rig.execute(TENANT, manage(start, ZoneAction::Reset)).status, Status::Success);
        }
        rig.check();
    }
    assert_eq!(rig.device().pool().unwrap().zone_counts().retired, zones);
}

#[test]
fn a_reset_that_no_copy_of_the_log_can_record_fails_and_releases_nothing() {
    let mut rig = Rig::tenant();
    fill(&mut rig, 0, 4, 1);
    (0..LOG_ZONES).for_each(|zone| rig.drive().degrade(ZoneIndex(zone), ZoneState::ReadOnly));
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Reset)).status, Status::InternalError);
    rig.check();
    assert!(rig.device().pool().unwrap().is_read_only());
    let size = rig.zone_size(TENANT);
    assert!(!rig.execute(TENANT, write(size, 1, 1)).status.is_success(), "it ends");
    rig.check();
}

#[test]
fn namespaces_that_are_created_together_share_the_active_zones() {
    let mut rig = Rig::tiny();
    let now = rig.now;
    let config = |name: &str, id| crate::NamespaceConfig::new(name, [id; 16], 8, 12);
    // The drive has 16 essential zones, and does not answer until both were asked for.
    rig.drive().completions_left = 0;
    rig.device().create_namespace(now, &config("a", 1)).expect("the drive has room");
    assert!(rig.device().create_namespace(now, &config("b", 2)).is_err());
}

#[test]
fn a_v_zone_that_was_torn_too_often_by_kills_is_full() {
    let mut rig = Rig::tenant();
    fill(&mut rig, 0, 1, 1);
    let mut losses = 0;
    loop {
        // Each time another zone of the group is further on than the first missing block.
        let zones = rig.zones_of(TENANT, 0);
        let zone = zones[zones.len() - 1];
        let start = rig.device().drive().geometry(NamespaceId::FIRST).zone_start(zone);
        let pointer = rig.write_pointer(zone);
        if pointer < 24 {
            rig.write_blocks_directly(Lba(start.0 + pointer), 1);
        }
        rig.mount_again();
        losses += 1;
        let written = rig.device().pool().unwrap().table(TENANT).unwrap().zone(ZoneIndex(0)).write_pointer_blocks.0;
        match rig.execute(TENANT, write(written, 1, 1)).status {
            Status::Success => assert!(losses < 40, "a group has a limit"),
            status => {
                assert_eq!(status, Status::ZoneIsFull);
                assert_eq!(rig.state(0), ZoneState::Full);
                assert!(losses > 8, "{losses}");
                break;
            }
        }
    }
    rig.check();
}

/// The last v-zone waits for a group when a block of its first one cannot be written.
#[test]
fn a_v_zone_that_fails_while_it_waits_for_a_group_releases_all_active_zones() {
    for fails in [false, true] {
        let mut rig = Rig::with_active_zones(9, 1);
        rig.create("tenant", 10, 3);
        let end = capacity(&mut rig);
        let size = rig.zone_size(TENANT);
        fill(&mut rig, 0, 1, 1);
        fill(&mut rig, 1, 1, 1);
        fill(&mut rig, 2, 1, 1);
        let matches = move |operation: &Operation| matches!(operation, Operation::Write { blocks, .. } if blocks.0 > 1);
        if fails {
            rig.drive().faults.push(Fault { matches: Box::new(matches), times: 1, status: Status::WriteFault });
        }
        let ids: Vec<zonda_zoned::CommandId> =
            (0..(end - 1) / 2).map(|at| rig.submit(TENANT, write(2 * size + 1 + at * 2, 2, 1))).collect();
        assert_eq!(rig.quiesce().len(), ids.len(), "every command ends");
        rig.check();
        if fails {
            assert_eq!(rig.active_zones_of(TENANT, 2), 0);
        }
        if fails {
            fill(&mut rig, 3, end, 1);
        }
        rig.mount_again();
        rig.check();
    }
}

#[test]
fn writes_end_when_no_copy_of_the_log_can_be_written() {
    for active in [7, 9, 32] {
        let mut rig = Rig::with_active_zones(active, 1);
        rig.create("tenant", 10, 2);
        let (end, size) = (capacity(&mut rig), rig.zone_size(TENANT));
        (0..2).for_each(|zone| fill(&mut rig, zone, 1, 1));
        (0..LOG_ZONES).for_each(|zone| rig.drive().degrade(ZoneIndex(zone), ZoneState::ReadOnly));
        let submitted = (1..end).map(|at| [0, 1].map(|zone| rig.submit(TENANT, write(zone * size + at, 1, 1)))).count();
        let ended = rig.quiesce();
        assert_eq!(ended.len(), submitted * 2, "with {active} active zones");
        rig.check();
        assert_eq!(first_byte(&rig.execute(TENANT, read(size, 1)).outcome), 1);
    }
}

/// The record of the finish survives in the cache, and the data do not: the finish has not ended.
#[test]
fn a_finish_whose_data_were_lost_has_not_happened() {
    let mut rig = Rig::tenant();
    fill(&mut rig, 0, 8, 1);
    assert_eq!(rig.execute(TENANT, Operation::Flush).status, Status::Success);
    let size = rig.zone_size(TENANT);
    assert_eq!(rig.execute(TENANT, write(8, 8, 2)).status, Status::Success);
    rig.drive().completions_left = 1;
    rig.submit(TENANT, manage(0, ZoneAction::Finish));
    rig.mount_after(|drive| {
        drive.lose_power(|zone, flushed, written| if zone.0 < LOG_ZONES { written } else { flushed });
    });
    let found = rig.device().pool().unwrap().table(TENANT).unwrap().zone(ZoneIndex(0));
    assert_eq!((found.state, found.write_pointer_blocks), (ZoneState::Closed, Blocks(8)));
    assert_eq!(rig.execute(TENANT, write(8, 8, 3)).status, Status::Success);
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status, Status::Success);
    rig.mount_again();
    assert_eq!(first_byte(&rig.execute(TENANT, read(8, 8)).outcome), 3);
    assert_eq!(rig.execute(TENANT, write(size, 1, 1)).status, Status::Success);
    rig.check();
}

/// Of the copy that cannot be read, more blocks are unreadable than there are records in the other.
#[test]
fn a_copy_of_the_log_of_which_one_block_can_be_read_costs_nothing() {
    for copy in 0..2 {
        let mut rig = Rig::tiny();
        ["a", "bb", "ccc", "dddd"].into_iter().for_each(|name| {
            rig.create(name, 3, 2);
        });
        for namespace in (1..=4).map(NamespaceId) {
            for zone in 0..2 {
                let start = zone * rig.zone_size(namespace);
                assert_eq!(rig.execute(namespace, write(start, 2, 1)).status, Status::Success);
            }
        }
        rig.mount_again();
        let matches = move |operation: &Operation| match operation {
            Operation::Read { start, blocks } => {
                let zone = start.0 / 32;
                zone < u64::from(LOG_ZONES) && zone % 2 == copy && (start.0 % 32 > 0 || blocks.0 > 1)
            }
            _ => false,
        };
        let fault = Fault { matches: Box::new(matches), times: 1_000, status: Status::UnrecoveredReadError };
        rig.mount_after(|drive| {
            drive.power_cycle();
            drive.faults.push(fault);
        });
        assert_eq!(first_byte(&rig.execute(NamespaceId(1), read(0, 2)).outcome), 1);
    }
}

/// What another program has written is not the pool's to reset.
#[test]
fn a_deleted_namespace_leaves_zones_alone_that_are_not_its_own() {
    let mut rig = Rig::tenant();
    fill(&mut rig, 0, 8, 1);
    let zones = rig.zones_of(TENANT, 0);
    rig.reset_directly(zones[0]);
    rig.write_directly(zones[0], 9);
    rig.mount_again();
    let now = rig.now;
    rig.device().delete_namespace(now, TENANT).expect("nothing is in flight");
    rig.quiesce();
    assert_eq!(rig.read_directly(zones[0]), 9);
    rig.check();
    rig.create("next", 8, 3);
    fill(&mut rig, 0, 8, 2);
    rig.mount_again();
    assert_eq!(rig.read_directly(zones[0]), 9);
    rig.check();
}

/// A zone whose write has failed is active still, and the drive has no active zone to spare.
#[test]
fn a_zone_of_the_log_that_fails_costs_no_other_zone_of_the_log() {
    for copy in 0..2 {
        let mut rig = Rig::with_active_zones(8, 1);
        rig.create("tenant", 10, 3);
        let matches = move |operation: &Operation| {
            matches!(operation, Operation::Write { start, .. }
                if start.0 / 32 < u64::from(LOG_ZONES) && start.0 / 32 % 2 == copy)
        };
        for round in 0..100 {
            if round == 10 {
                rig.drive().faults.push(Fault { matches: Box::new(matches), times: 1, status: Status::WriteFault });
            }
            fill(&mut rig, round % 3, 1, 1);
            let start = round % 3 * rig.zone_size(TENANT);
            assert_eq!(rig.execute(TENANT, manage(start, ZoneAction::Reset)).status, Status::Success);
            assert_eq!(rig.device().pool().unwrap().log_copies(), 2, "round {round}");
        }
        let active = (0..LOG_ZONES).filter(|zone| rig.drive().state(ZoneIndex(*zone)).is_active()).count();
        assert!(active <= 2, "{active} zones of the log are active");
        fill(&mut rig, 0, 4, 5);
        rig.mount_again();
        assert_eq!(first_byte(&rig.execute(TENANT, read(0, 4)).outcome), 5);
        rig.check();
    }
}

/// A copy whose zone is full is told from one whose last write has failed: that zone is active.
#[test]
fn writes_of_both_copies_of_the_log_that_fail_at_the_same_time_leave_no_zone_active() {
    for block in 1..24 {
        let mut rig = Rig::with_active_zones(8, 1);
        rig.create("tenant", 10, 3);
        let matches = move |operation: &Operation| {
            matches!(operation, Operation::Write { start, .. }
                if start.0 / 32 < u64::from(LOG_ZONES) && start.0 % 32 == block)
        };
        rig.drive().faults.push(Fault { matches: Box::new(matches), times: 2, status: Status::WriteFault });
        for round in 0..40 {
            fill(&mut rig, round % 3, 1, 1);
            let start = round % 3 * rig.zone_size(TENANT);
            assert_eq!(rig.execute(TENANT, manage(start, ZoneAction::Reset)).status, Status::Success);
            let active = (0..LOG_ZONES).filter(|zone| rig.drive().state(ZoneIndex(*zone)).is_active()).count();
            assert!(active <= 2, "{active} zones of the log are active after a failure of block {block}");
        }
        assert_eq!(rig.device().pool().unwrap().log_copies(), 2);
        rig.check();
    }
}

#[test]
fn a_copy_of_the_log_for_which_the_drive_has_had_no_space_is_written_again_without_a_command() {
    for copy in 0..2 {
        let mut rig = Rig::tenant();
        fill(&mut rig, 0, 2, 1);
        let of_copy = move |zone: u64| zone < u64::from(LOG_ZONES) && zone % 2 == copy;
        let matches =
            move |operation: &Operation| matches!(operation, Operation::Write { start, .. } if of_copy(start.0 / 32));
        rig.drive().faults.push(Fault { matches: Box::new(matches), times: 10, status: Status::CapacityExceeded });
        rig.create("next", 2, 2);
        assert_eq!(rig.device().pool().unwrap().log_copies(), 1);
        let end = rig.now + Duration::from_secs(60);
        while rig.device().pool().unwrap().log_copies() < 2 && rig.now < end {
            let at = rig.device().next_timeout().expect("the pool is opened again at some time");
            rig.now = rig.now.max(at);
            rig.quiesce();
        }
        assert_eq!(rig.device().pool().unwrap().log_copies(), 2, "once space is there again");
        assert_eq!(first_byte(&rig.execute(TENANT, read(0, 2)).outcome), 1);
        rig.check();
    }
}

/// The other v-zone changed before: its record is in both copies.
#[test]
fn a_v_zone_whose_first_record_is_lost_with_the_newer_copy_of_the_log_is_offline_and_not_empty() {
    let mut rig = Rig::tenant();
    fill(&mut rig, 1, 2, 6);
    let of_copy = |operation: &Operation| {
        let zone = |start: &Lba| start.0 / 32;
        matches!(operation, Operation::Write { start, .. } if zone(start) < u64::from(LOG_ZONES) && zone(start) % 2 == 0)
    };
    rig.drive().faults.push(Fault { matches: Box::new(of_copy), times: 100, status: Status::WriteFault });
    fill(&mut rig, 0, 4, 5);
    assert_eq!(rig.device().pool().unwrap().log_copies(), 1);
    rig.drive().faults.clear();
    (0..LOG_ZONES)
        .filter(|zone| zone % 2 == 1)
        .for_each(|zone| rig.drive().degrade(ZoneIndex(zone), ZoneState::Offline));
    for _ in 0..2 {
        rig.mount_again();
        assert_eq!(rig.execute(TENANT, read(0, 4)).status, Status::ZoneIsOffline, "never zeros");
        let other = rig.zone_size(TENANT);
        assert_eq!(first_byte(&rig.execute(TENANT, read(other, 2)).outcome), 6);
        rig.check();
    }
}
