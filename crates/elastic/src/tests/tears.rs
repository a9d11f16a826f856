//! V-zones that power losses have torn more often than their last group has jumps.

use zonda_zoned::zones::ZoneView;
use zonda_zoned::{Blocks, Lba, Operation, Outcome, Payload, ReportFilter, Status, ZoneAction, ZoneIndex, ZoneState};

use super::drive::TestDrive;
use super::rig::{Rig, TENANT, manage, write};

/// The byte of each of the first blocks of the first v-zone.
fn first_blocks(rig: &mut Rig, blocks: u64) -> Vec<u8> {
    let byte = |at| match rig.execute(TENANT, Operation::Read { start: Lba(at), blocks: Blocks(1) }).outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data[0],
        other => panic!("a read returns bytes, not {other:?}"),
    };
    (0..blocks).map(byte).collect()
}

/// The first zone of the v-zone loses what was not flushed: the others are further on.
fn lose(drive: &mut TestDrive, first: ZoneIndex) {
    drive.lose_power(|zone, flushed, written| if zone == first { flushed } else { written });
}

fn view(rig: &mut Rig) -> ZoneView {
    rig.device().pool().unwrap().table(TENANT).unwrap().zone(ZoneIndex(0))
}

/// Tears the first v-zone so many times, and repairs it each time. Then more is in flight, and the power is
/// not lost yet.
fn torn(tears: u8) -> Rig {
    let mut rig = Rig::tenant();
    assert_eq!(rig.execute(TENANT, write(0, 4, 1)).status, Status::Success);
    for tear in 0..=tears {
        assert_eq!(rig.execute(TENANT, Operation::Flush).status, Status::Success);
        let pointer = view(&mut rig).write_pointer_blocks.0;
        assert_eq!(rig.execute(TENANT, write(pointer, 8, 2 + tear)).status, Status::Success);
        if tear == tears {
            break;
        }
        let first = rig.zones_of(TENANT, 0)[0];
        rig.mount_after(|drive| lose(drive, first));
        assert_eq!(rig.state(0), ZoneState::Closed, "after {} tears", tear + 1);
        // The repair, which takes a jump.
        let pointer = view(&mut rig).write_pointer_blocks.0;
        assert_eq!(rig.execute(TENANT, write(pointer, 1, 2 + tear)).status, Status::Success);
    }
    rig
}

/// Tears for which the last group has jumps.
const TEARS: u8 = 7;

/// Tears the first v-zone until its last group has no jump left.
fn torn_to_the_end() -> Rig {
    let mut rig = torn(TEARS);
    let first = rig.zones_of(TENANT, 0)[0];
    rig.mount_after(|drive| lose(drive, first));
    rig
}

#[test]
fn a_v_zone_without_jumps_left_is_full_can_be_read_and_can_be_written_after_a_reset() {
    let mut rig = torn_to_the_end();
    assert_eq!(rig.state(0), ZoneState::Full);
    let stands = view(&mut rig).written_blocks.0;
    assert!(stands > 4, "{stands}");
    assert_eq!(rig.execute(TENANT, write(stands, 1, 99)).status, Status::ZoneIsFull);
    let before = first_blocks(&mut rig, stands);
    assert!(before.iter().all(|byte| *byte != 0), "{before:?}");
    assert_eq!(rig.active_zones_of(TENANT, 0), 0, "its zones are finished");
    assert_eq!(rig.device().pool().unwrap().table(TENANT).unwrap().active_zones(), 0);

    let report = rig.device().pool().unwrap().table(TENANT).unwrap();
    let report = report.report(Lba(0), ReportFilter::All, false, true, 2).unwrap();
    assert!(report.zones[0].attributes.finished_by_controller && !report.zones[1].attributes.finished_by_controller);
    rig.check();

    rig.mount_again();
    assert_eq!(rig.state(0), ZoneState::Full);
    assert!(view(&mut rig).attributes.finished_by_controller, "the record has it");
    assert_eq!(first_blocks(&mut rig, stands), before);

    assert_eq!(rig.execute(TENANT, manage(0, ZoneAction::Reset)).status, Status::Success);
    assert_eq!(rig.execute(TENANT, write(0, 4, 7)).status, Status::Success);
    rig.mount_again();
    assert_eq!(first_blocks(&mut rig, 8), [7, 7, 7, 7, 0, 0, 0, 0]);
    let view = view(&mut rig);
    assert!(!view.attributes.finished_by_controller && view.state == ZoneState::Closed, "{view:?}");
    rig.check();
}

#[test]
fn a_mount_that_is_cut_anywhere_while_it_makes_a_v_zone_full_loses_nothing_of_it() {
    let stands = view(&mut torn_to_the_end()).written_blocks.0;
    for cut in 0.. {
        let mut rig = torn(TEARS);
        let first = rig.zones_of(TENANT, 0)[0];
        rig.mount_after(|drive| {
            lose(drive, first);
            drive.completions_left = cut;
        });
        let was_cut = rig.drive().completions_left == 0;
        rig.mount_after(|drive| drive.lose_power(|_, flushed, _| flushed));
        // What is behind the missing block may be lost now, and then the group can be written.
        let state = rig.state(0);
        assert!(matches!(state, ZoneState::Full | ZoneState::Closed), "{cut}: {state}");
        let blocks = first_blocks(&mut rig, stands);
        assert!(blocks.iter().all(|byte| *byte != 0), "{cut}: {blocks:?}");
        rig.check();
        if !was_cut {
            assert_eq!(state, ZoneState::Full);
            return;
        }
    }
}
