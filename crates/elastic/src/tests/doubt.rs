//! Commands that fail once or for good, zones that stay active, and blocks that only one mount cannot
//! read.

use zonda_zoned::{Blocks, Duration, Lba, Operation, Outcome, Payload, Status, ZoneAction, ZoneState, ZoneTarget};

use super::drive::{Damage, Fault};
use super::rig::{Rig, TENANT, manage, write};
use crate::limits::{COMMAND_TRIES_MAX, GROUP_WAIT_MAX, LOG_ZONES};

/// So many resets and finishes of zones that are not of the log fail.
fn fail_management(rig: &mut Rig, times: u32) {
    let matches = |operation: &Operation| {
        matches!(operation, Operation::ManageZones { target: ZoneTarget::Zone(start), .. }
            if start.0 / 32 >= u64::from(LOG_ZONES))
    };
    rig.drive().faults.push(Fault { matches: Box::new(matches), times, status: Status::InternalError });
}

#[test]
fn a_reset_that_fails_fewer_times_than_it_is_tried_retires_no_zone() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::Success);
    fail_management(&mut rig, u32::from(COMMAND_TRIES_MAX) - 1);
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Reset)).status, Status::Success);
    assert_eq!(rig.device().pool().unwrap().zone_counts().retired, 0);
    rig.check();
}

#[test]
fn a_finish_that_fails_once_leaves_no_zone_active() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::Success);
    fail_management(&mut rig, 1);
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status, Status::Success);
    assert_eq!(rig.active_zones_of(TENANT, 0), 0);
}

#[test]
fn a_write_that_no_active_zone_is_left_for_fails_after_a_while() {
    let mut rig = Rig::tenant();
    fail_management(&mut rig, u32::MAX);
    for round in 0..100 {
        rig.submit(TENANT, write(0, 4, 7));
        let ended = rig.quiesce();
        rig.check();
        if let [ended] = ended.as_slice() {
            assert_eq!(ended.status, Status::Success, "round {round}");
            assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Reset)).status, Status::Success);
            continue;
        }
        // No zone that was reset has become inactive.
        rig.now += Duration::from_secs(1);
        assert!(rig.quiesce().is_empty(), "it may only take a moment");
        rig.now += GROUP_WAIT_MAX;
        let ended = rig.quiesce();
        assert_eq!(ended.iter().map(|it| it.status).collect::<Vec<_>>(), [Status::TooManyActiveZones], "round {round}");
        assert_eq!(rig.state(0), ZoneState::Empty, "nothing of it was written");
        rig.check();
        return;
    }
    panic!("zones that stay active are not counted");
}

#[test]
fn a_v_zone_that_one_mount_cannot_read_is_whole_at_the_next() {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::Success);
    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Finish)).status, Status::Success);
    let zone = rig.zones_of(TENANT, 0)[0];
    let header = u64::from(zone.0) * 32;
    rig.mount_after(|drive| {
        drive.power_cycle();
        drive.damaged.extend([(header, Damage::Unreadable), (header + 1, Damage::Unreadable)]);
    });
    assert_eq!(rig.state(0), ZoneState::Offline);
    rig.mount_after(|drive| {
        drive.power_cycle();
        drive.damaged.clear();
    });
    assert_eq!(rig.state(0), ZoneState::Full);
    let found = rig.execute(TENANT, Operation::Read { start: Lba(0), blocks: Blocks(4) });
    let Outcome::Data(Payload::Bytes(buffer)) = found.outcome else { panic!("{found:?}") };
    assert!(buffer.data.iter().all(|byte| *byte == 7));
}

#[test]
fn a_record_of_a_group_that_survives_unflushed_names_no_zone_that_is_lost() {
    for completions in 0..80 {
        let mut rig = Rig::tenant();
        // A mount reserves zones behind its last flush.
        rig.mount_again();
        rig.drive().completions_left = completions;
        rig.submit(TENANT, write(0, 4, 7));
        rig.quiesce();
        // The log keeps all that was written, and other zones what was flushed.
        rig.mount_after(|drive| drive.lose_power(|zone, flushed, all| if zone.0 < LOG_ZONES { all } else { flushed }));
        assert_ne!(rig.state(0), ZoneState::Offline, "after {completions} completions");
        rig.check();
    }
}

#[test]
fn a_zone_whose_reservation_fails_after_it_was_written_is_counted_until_it_is_reset() {
    let mut rig = Rig::with_active_zones(12, 4);
    rig.create("tenant", 10, 3);
    let is_reservation = |operation: &Operation| {
        matches!(operation, Operation::Write { start, blocks, .. } if start.0 % 32 == 0 && blocks.0 == 1
            && start.0 / 32 >= u64::from(LOG_ZONES))
    };
    rig.drive().faults.push(Fault { matches: Box::new(is_reservation), times: 2, status: Status::WriteFault });
    let size = rig.zone_size(TENANT);
    for zone in 0..3 {
        assert_eq!(rig.execute(TENANT, write(zone * size, 8, 7)).status, Status::Success, "zone {zone}");
        assert_eq!(rig.execute(TENANT, manage(zone * size, ZoneAction::Reset)).status, Status::Success);
    }
    rig.check();
    assert_eq!(rig.device().pool().unwrap().zone_counts().retired, 2);
}
