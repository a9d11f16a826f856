//! Which commands wait for which others.

use zonda_zoned::{ReportFilter, ZoneAction};

use super::*;

fn lanes(order: Order, queues: u16) -> Lanes {
    Lanes::new(order, queues, &Geometry::tiny())
}

fn read(lanes: &Lanes, zone: u64) -> Access {
    lanes.access_of(&Operation::Read { start: Lba(zone * 16), blocks: Blocks(2) })
}

fn write(lanes: &Lanes, zone: u64) -> Access {
    lanes.access_of(&Operation::WriteZeroes { start: Lba(zone * 16), blocks: Blocks(2) })
}

fn append(lanes: &Lanes, zone: u64) -> Access {
    lanes.access_of(&Operation::Append { zone_start: Lba(zone * 16), blocks: Blocks(2), payload: Default::default() })
}

fn reset_all(lanes: &Lanes) -> Access {
    lanes.access_of(&Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All })
}

fn report(lanes: &Lanes) -> Access {
    lanes.access_of(&Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::All,
        extended: false,
        partial: false,
        descriptors_max: 1,
    })
}

fn flush(lanes: &Lanes) -> Access {
    lanes.access_of(&Operation::Flush)
}

#[test]
fn in_one_queue_of_an_ordered_target_commands_wait_only_for_solicited_data() {
    let mut lanes = lanes(Order::Arrival, 1);
    for access in [write(&lanes, 1), read(&lanes, 1), reset_all(&lanes), report(&lanes), flush(&lanes)] {
        assert!(lanes.may_start(&access, false, false));
        lanes.start(&access, true);
    }
    let solicited = write(&lanes, 2);
    assert!(lanes.may_start(&solicited, true, false));
    lanes.start(&solicited, false);
    assert!(lanes.may_start(&write(&lanes, 3), true, true), "its data is sent after the other's");
    assert!(!lanes.may_start(&write(&lanes, 3), false, true));
    assert!(!lanes.may_start(&read(&lanes, 2), false, true));
    assert!(!lanes.may_start(&report(&lanes), false, true));
    assert!(!lanes.may_start(&flush(&lanes), false, true));
    assert!(lanes.may_start(&read(&lanes, 3), false, true), "reads conflict only in their own zones");
    lanes.data_sent(&solicited);
    assert!(lanes.may_start(&read(&lanes, 2), false, false));
}

#[test]
fn a_command_to_all_zones_waits_for_other_queues_and_blocks_them() {
    let mut lanes = lanes(Order::Arrival, 2);
    let (of_first, of_second) = (write(&lanes, 2), write(&lanes, 3));
    assert_eq!((of_first.queue, of_second.queue), (0, 1));
    lanes.start(&of_first, true);
    assert!(lanes.may_start(&report(&lanes), false, false));
    lanes.start(&of_second, true);
    assert!(!lanes.may_start(&report(&lanes), false, false));
    assert!(!lanes.may_start(&reset_all(&lanes), false, false));
    lanes.end(&of_second, true);
    let all = reset_all(&lanes);
    assert!(lanes.may_start(&all, false, false));
    lanes.start(&all, true);
    assert!(lanes.may_start(&read(&lanes, 2), false, false), "it arrives after it");
    assert!(!lanes.may_start(&read(&lanes, 3), false, false));
    lanes.end(&all, true);
    assert!(lanes.may_start(&read(&lanes, 3), false, false));
    lanes.end(&of_first, true);
    lanes.check_idle();
}

#[test]
fn a_command_over_a_zone_boundary_conflicts_in_both_zones() {
    let mut lanes = lanes(Order::Arrival, 2);
    let across = lanes.access_of(&Operation::Read { start: Lba(2 * 16 + 14), blocks: Blocks(4) });
    assert_eq!(across.queue, 0);
    lanes.start(&across, true);
    assert!(lanes.may_start(&write(&lanes, 2), false, false));
    assert!(!lanes.may_start(&write(&lanes, 3), false, false));
    assert!(lanes.may_start(&read(&lanes, 3), false, false));
    assert!(lanes.may_start(&write(&lanes, 5), false, false));
    lanes.end(&across, true);
    lanes.check_idle();
}

#[test]
fn flush_waits_for_changes_and_no_command_waits_for_it() {
    let mut lanes = lanes(Order::Completion, 1);
    let (flush, write) = (flush(&lanes), write(&lanes, 1));
    lanes.start(&write, true);
    assert!(!lanes.may_start(&flush, false, false));
    lanes.end(&write, true);
    lanes.start(&flush, true);
    assert!(lanes.may_start(&write, false, false));
    lanes.end(&flush, true);
    lanes.check_idle();
}

#[test]
fn without_an_ordered_target_only_reads_and_appends_share_a_zone() {
    let mut lanes = lanes(Order::Completion, 1);
    let kinds = [read(&lanes, 1), write(&lanes, 1), append(&lanes, 1)];
    for (i, first) in kinds.iter().enumerate() {
        lanes.start(first, true);
        for (j, second) in kinds.iter().enumerate() {
            assert_eq!(lanes.may_start(second, false, false), i == j && i != 1, "{i} then {j}");
        }
        assert!(lanes.may_start(&write(&lanes, 2), false, false));
        lanes.end(first, true);
    }
    lanes.check_idle();
}

#[test]
fn no_command_overtakes_a_held_one_that_it_conflicts_with() {
    let mut lanes = lanes(Order::Completion, 1);
    let (first, second) = (read(&lanes, 1), write(&lanes, 1));
    lanes.start(&first, true);
    assert!(!lanes.may_start(&second, false, false));
    lanes.hold(&second);
    assert!(!lanes.may_start(&read(&lanes, 1), false, false));
    assert!(lanes.may_start(&read(&lanes, 2), false, false));
    lanes.clear_held([second].into_iter());
    lanes.end(&first, true);
    assert!(lanes.may_start(&second, false, false));
    lanes.check_idle();
}

#[test]
fn an_operation_of_several_rounds_conflicts_with_all_zones() {
    let mut lanes = lanes(Order::Arrival, 1);
    let rounds = lanes.lasting(write(&lanes, 1));
    let other = write(&lanes, 5);
    lanes.start(&other, true);
    assert!(!lanes.may_start(&rounds, false, false));
    lanes.end(&other, true);
    assert!(lanes.may_start(&rounds, false, false));
    lanes.start(&rounds, true);
    for access in [write(&lanes, 5), read(&lanes, 1), report(&lanes), flush(&lanes)] {
        assert!(!lanes.may_start(&access, false, false));
    }
    lanes.end(&rounds, true);
    lanes.check_idle();
}
