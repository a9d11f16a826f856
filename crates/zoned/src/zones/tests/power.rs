//! Degradation, power loss, snapshots, truncation, and filling ahead.

use super::*;
use crate::ChangedZoneList;

#[test]
fn a_zone_degrades_from_any_state_but_offline_and_returns_its_resources() {
    for from in ZoneState::SEQUENTIAL {
        for to in [ZoneState::ReadOnly, ZoneState::Offline] {
            let mut table = tiny();
            bring(&mut table, 0, from);
            table.take_changed_zones();
            table.degrade(ZoneIndex(0), to);
            table.check_invariants();
            let stays = from == ZoneState::Offline;
            assert_eq!(state(&table, 0), if stays { from } else { to }, "{from} to {to}");
            assert_eq!((table.active_zones(), table.open_zones()), (0, 0), "{from} to {to}");
            assert_eq!(table.take_changed_zones().zones.is_empty(), stays, "{from} to {to}");
        }
    }
}

#[test]
fn a_zone_that_the_controller_finishes_is_full_says_so_and_is_empty_after_a_reset() {
    for from in [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed] {
        let mut table = tiny();
        bring(&mut table, 0, from);
        let pointer = write_pointer(&table, 0);
        table.take_changed_zones();
        table.finish_by_controller(ZoneIndex(0));
        table.check_invariants();
        let view = table.zone(ZoneIndex(0));
        assert_eq!((view.state, view.attributes.code()), (ZoneState::Full, 1), "{from}");
        assert_eq!(table.readable_blocks(ZoneIndex(0)).0, pointer, "{from}");
        assert_eq!((table.active_zones(), table.open_zones()), (0, 0), "{from}");
        assert_eq!(table.take_changed_zones().zones, [ZoneIndex(0)], "{from}");
        table.power_cycle();
        assert_eq!(table.zone(ZoneIndex(0)).attributes.code(), 1, "{from}");
        manage(&mut table, &ZoneAction::Reset, 0);
        table.check_invariants();
        let view = table.zone(ZoneIndex(0));
        assert_eq!((view.state, view.attributes.code()), (ZoneState::Empty, 0), "{from}");
    }
}

#[test]
fn a_zone_that_cannot_be_closed_is_finished_where_its_blocks_end() {
    for from in [ZoneState::Empty, ZoneState::Full] {
        let mut table = tiny();
        let written = if from == ZoneState::Full { table.geometry().zone_capacity_blocks } else { Blocks(0) };
        table.set_written(ZoneIndex(0), written).expect("no other zone is active");
        table.finish_by_controller_at(ZoneIndex(0), Blocks(3));
        table.check_invariants();
        let view = table.zone(ZoneIndex(0));
        assert_eq!((view.state, view.attributes.code()), (ZoneState::Full, 1), "{from}");
        assert_eq!(table.readable_blocks(ZoneIndex(0)), Blocks(3), "{from}");
        assert_eq!(table.active_zones(), 0, "{from}");
        manage(&mut table, &ZoneAction::Reset, 0);
        assert_eq!(table.zone(ZoneIndex(0)).state, ZoneState::Empty, "{from}");
    }
}

#[test]
#[should_panic(expected = "zone 1 is empty, and cannot be finished by the controller")]
fn the_controller_finishes_no_zone_that_is_not_active() {
    tiny().finish_by_controller(ZoneIndex(1));
}

#[test]
#[should_panic(expected = "zone 1 is conventional")]
fn a_conventional_zone_does_not_degrade() {
    with_conventional().degrade(ZoneIndex(1), ZoneState::ReadOnly);
}

#[test]
#[should_panic(expected = "zone 1 cannot degrade to full")]
fn full_is_no_degradation() {
    tiny().degrade(ZoneIndex(1), ZoneState::Full);
}

#[test]
fn a_power_cycle_closes_open_zones_and_leaves_all_others() {
    use ZoneState::{Closed, Empty, ExplicitlyOpened, Full, ImplicitlyOpened, Offline, ReadOnly};
    for from in ZoneState::SEQUENTIAL {
        let mut table = tiny();
        bring(&mut table, 0, from);
        let pointer = write_pointer(&table, 0);
        table.power_cycle();
        table.check_invariants();
        let expected = match from {
            ImplicitlyOpened | ExplicitlyOpened | Closed => Closed,
            Empty | Full | ReadOnly | Offline | ZoneState::NotWritePointer => from,
        };
        assert_eq!((state(&table, 0), write_pointer(&table, 0)), (expected, pointer), "{from}");
        assert_eq!(table.open_zones(), 0);
        assert_eq!(table.take_changed_zones(), ChangedZoneList::default());
    }
}

#[test]
fn an_explicitly_opened_zone_with_nothing_in_it_is_empty_after_a_power_cycle() {
    let mut table = with_zrwa();
    manage(&mut table, &OPEN, 0);
    manage(&mut table, &OPEN_WITH_ZRWA, 1);
    manage(&mut table, &set_extension(1, false), 2);
    manage(&mut table, &ZoneAction::Close, 0);
    manage(&mut table, &OPEN, 2);
    table.power_cycle();
    assert_eq!(state(&table, 0), ZoneState::Closed, "the host had closed it");
    assert_eq!(state(&table, 1), ZoneState::Closed, "it has a ZRWA");
    assert_eq!(state(&table, 2), ZoneState::Closed, "it has an extension");
    assert_eq!((table.zrwa_in_use(), table.active_zones()), (1, 3));
    manage(&mut table, &ZoneAction::Reset, 0);
    manage(&mut table, &OPEN, 0);
    table.power_cycle();
    assert_eq!((state(&table, 0), table.active_zones()), (ZoneState::Empty, 2));
    table.check_invariants();
}

#[test]
fn a_zrwa_and_its_blocks_survive_a_power_cycle() {
    let mut table = with_zrwa();
    manage(&mut table, &OPEN_WITH_ZRWA, 0);
    write(&mut table, 0, 1, 2);
    table.power_cycle();
    assert_eq!((table.readable_blocks(ZoneIndex(0)), write_pointer(&table, 0)), (Blocks(3), 0));
    assert!(write(&mut table, 0, 0, 1).overwrites);
    table.check_invariants();
}

#[test]
fn a_restored_zone_is_as_it_was_with_its_extension_and_its_zrwa() {
    let mut table = with_zrwa();
    manage(&mut table, &set_extension(3, true), 0);
    write(&mut table, 0, 1, 2);
    manage(&mut table, &ZoneAction::Close, 0);
    let before = table.clone();
    let snapshot = table.snapshot(ZoneIndex(0));
    for action in [ZoneAction::Finish, ZoneAction::Reset, OPEN_WITH_ZRWA] {
        manage(&mut table, &action, 0);
        let mut restored = table.clone();
        assert!(restored.restore(ZoneIndex(0), &snapshot));
        restored.check_invariants();
        assert_eq!(restored, before, "after {action:?}");
    }
}

#[test]
fn a_zone_restored_to_a_time_without_an_extension_has_none() {
    let mut table = tiny();
    bring(&mut table, 0, ZoneState::Closed);
    let before = table.clone();
    let snapshot = table.snapshot(ZoneIndex(0));
    manage(&mut table, &ZoneAction::Reset, 0);
    manage(&mut table, &set_extension(1, false), 0);
    assert!(table.restore(ZoneIndex(0), &snapshot));
    table.check_invariants();
    assert_eq!(table, before);
}

#[test]
fn a_zone_can_be_restored_to_empty_and_out_of_offline() {
    let mut table = tiny();
    let snapshot = table.snapshot(ZoneIndex(0));
    let before = table.clone();
    bring(&mut table, 0, ZoneState::ImplicitlyOpened);
    manage(&mut table, &ZoneAction::Finish, 0);
    table.degrade(ZoneIndex(0), ZoneState::Offline);
    assert!(table.restore(ZoneIndex(0), &snapshot));
    assert_eq!(table.take_changed_zones().zones, [ZoneIndex(0)], "the list stays");
    assert_eq!(table, before);
}

#[test]
fn a_zone_is_not_restored_past_the_active_limit() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    let snapshot = table.snapshot(ZoneIndex(0));
    manage(&mut table, &ZoneAction::Reset, 0);
    for zone in 1..4 {
        bring(&mut table, zone, ZoneState::Closed);
    }
    let before = table.clone();
    assert!(!table.restore(ZoneIndex(0), &snapshot));
    assert_eq!(table, before);
    manage(&mut table, &ZoneAction::Reset, 1);
    assert!(table.restore(ZoneIndex(0), &snapshot));
    assert!(table.restore(ZoneIndex(0), &snapshot), "its own resources count as free");
    assert_eq!((state(&table, 0), table.active_zones()), (ZoneState::ImplicitlyOpened, 3));
    table.check_invariants();
}

#[test]
fn a_zone_is_not_restored_past_the_zrwa_resources() {
    let mut table = table(|geometry| geometry.zrwa = Some(ZrwaGeometry { resources: 1, ..zrwa() }));
    manage(&mut table, &OPEN_WITH_ZRWA, 0);
    let snapshot = table.snapshot(ZoneIndex(0));
    assert!(table.restore(ZoneIndex(0), &snapshot));
    manage(&mut table, &ZoneAction::Finish, 0);
    manage(&mut table, &OPEN_WITH_ZRWA, 1);
    let before = table.clone();
    assert!(!table.restore(ZoneIndex(0), &snapshot));
    assert_eq!(table, before);
}

#[test]
fn a_zone_restored_past_the_open_limit_comes_back_closed() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    let snapshot = table.snapshot(ZoneIndex(0));
    manage(&mut table, &ZoneAction::Reset, 0);
    write(&mut table, 1, 0, 1);
    write(&mut table, 2, 0, 1);
    assert!(table.restore(ZoneIndex(0), &snapshot));
    assert_eq!((state(&table, 0), write_pointer(&table, 0), table.open_zones()), (ZoneState::Closed, 1, 2));
    table.check_invariants();
}

#[test]
fn a_restored_zone_is_the_newest_of_the_implicitly_opened_unless_it_was_among_them() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    let snapshot = table.snapshot(ZoneIndex(0));
    write(&mut table, 1, 0, 1);
    write(&mut table, 0, 1, 1);
    assert!(table.restore(ZoneIndex(0), &snapshot));
    assert_eq!(table.opening_order().next(), Some(ZoneIndex(0)));
    manage(&mut table, &ZoneAction::Close, 0);
    assert!(table.restore(ZoneIndex(0), &snapshot));
    assert_eq!(table.opening_order().next(), Some(ZoneIndex(1)));
    table.check_invariants();
}

#[test]
fn a_conventional_zone_is_restored_to_its_high_water_mark() {
    let mut table = with_conventional();
    let before = table.clone();
    let snapshot = table.snapshot(ZoneIndex(1));
    write(&mut table, 1, 3, 3);
    assert!(table.restore(ZoneIndex(1), &snapshot));
    assert_eq!(table, before);
}

#[test]
#[should_panic(expected = "another type than zone 2")]
fn a_snapshot_of_a_conventional_zone_fits_no_sequential_one() {
    let mut table = with_conventional();
    let snapshot = table.snapshot(ZoneIndex(1));
    let _ = table.restore(ZoneIndex(2), &snapshot);
}

#[test]
fn a_truncated_zone_has_its_write_pointer_further_back_in_the_same_state() {
    for from in [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed] {
        let mut table = tiny();
        bring(&mut table, 0, from);
        assert!(table.truncate(ZoneIndex(0), Blocks(3)));
        table.check_invariants();
        assert_eq!((state(&table, 0), write_pointer(&table, 0), written(&table, 0)), (from, 3, 3), "{from}");
        write(&mut table, 0, 3, 1);
    }
}

#[test]
fn a_zone_truncated_to_its_start_is_empty_unless_it_has_an_extension() {
    let mut table = tiny();
    write(&mut table, 0, 0, 4);
    assert!(table.truncate(ZoneIndex(0), Blocks(0)));
    assert_eq!((state(&table, 0), table.active_zones()), (ZoneState::Empty, 0));
    manage(&mut table, &set_extension(1, false), 0);
    write(&mut table, 0, 0, 4);
    assert!(table.truncate(ZoneIndex(0), Blocks(0)));
    assert_eq!((state(&table, 0), write_pointer(&table, 0)), (ZoneState::ImplicitlyOpened, 0));
    assert!(table.zone(ZoneIndex(0)).attributes.extension_valid);
    table.check_invariants();
}

#[test]
fn a_zone_written_full_is_closed_again_if_an_active_resource_is_free() {
    let mut table = tiny();
    fill(&mut table, 0);
    for zone in 1..4 {
        bring(&mut table, zone, ZoneState::Closed);
    }
    let before = table.clone();
    assert!(!table.truncate(ZoneIndex(0), Blocks(11)));
    assert!(table.truncate(ZoneIndex(0), Blocks(12)), "nothing to take back");
    assert_eq!(table, before);
    manage(&mut table, &ZoneAction::Reset, 3);
    assert!(table.truncate(ZoneIndex(0), Blocks(11)));
    assert_eq!((state(&table, 0), write_pointer(&table, 0)), (ZoneState::Closed, 11));
    table.check_invariants();
}

#[test]
fn a_zone_written_full_needs_no_resource_to_be_empty_again() {
    let mut table = tiny();
    table.write_zeroes(at(0, 0), Blocks(12)).unwrap();
    for zone in 1..4 {
        bring(&mut table, zone, ZoneState::Closed);
    }
    assert!(table.truncate(ZoneIndex(0), Blocks(0)));
    assert_eq!(state(&table, 0), ZoneState::Empty);
    table.check_invariants();
}

#[test]
fn a_read_only_or_offline_zone_stays_so_when_truncated() {
    let mut table = tiny();
    write(&mut table, 0, 0, 4);
    table.degrade(ZoneIndex(0), ZoneState::ReadOnly);
    assert!(table.truncate(ZoneIndex(0), Blocks(0)));
    assert_eq!((state(&table, 0), table.readable_blocks(ZoneIndex(0))), (ZoneState::ReadOnly, Blocks(0)));
    table.check_invariants();
}

#[test]
#[should_panic(expected = "zone 0 was finished by the host")]
fn a_finished_zone_is_not_truncated() {
    let mut table = tiny();
    bring(&mut table, 0, ZoneState::Full);
    let _ = table.truncate(ZoneIndex(0), Blocks(1));
}

#[test]
#[should_panic(expected = "zone 0 has a ZRWA or had one")]
fn a_zone_with_a_zrwa_is_not_truncated() {
    let mut table = with_zrwa();
    manage(&mut table, &OPEN_WITH_ZRWA, 0);
    let _ = table.truncate(ZoneIndex(0), Blocks(0));
}

#[test]
#[should_panic(expected = "zone 0 cannot be truncated forward to 1")]
fn truncation_does_not_move_the_write_pointer_on() {
    let _ = tiny().truncate(ZoneIndex(0), Blocks(1));
}

#[test]
fn filling_ahead_makes_zones_full_or_closed_or_leaves_them_empty() {
    let mut table = tiny();
    for (zone, blocks, expected) in
        [(0, 12, ZoneState::Full), (1, 5, ZoneState::Closed), (2, 0, ZoneState::Empty), (3, 12, ZoneState::Full)]
    {
        table.set_written(ZoneIndex(zone), Blocks(blocks)).unwrap();
        assert_eq!(
            (state(&table, zone), write_pointer(&table, zone), written(&table, zone)),
            (expected, blocks, blocks)
        );
    }
    assert_eq!((table.active_zones(), table.open_zones()), (1, 0));
    write(&mut table, 1, 5, 1);
    table.check_invariants();
}

#[test]
fn filling_ahead_takes_active_resources_for_zones_that_are_not_full() {
    let mut table = tiny();
    for zone in 0..3 {
        table.set_written(ZoneIndex(zone), Blocks(1)).unwrap();
    }
    assert_eq!(refusal(&mut table, |table| table.set_written(ZoneIndex(3), Blocks(1))), Status::TooManyActiveZones);
    table.set_written(ZoneIndex(3), Blocks(12)).unwrap();
    table.check_invariants();
}

#[test]
fn filling_a_conventional_zone_ahead_raises_its_high_water_mark() {
    let mut table = with_conventional();
    table.set_written(ZoneIndex(0), Blocks(9)).unwrap();
    table.set_written(ZoneIndex(0), Blocks(5)).unwrap();
    assert_eq!(table.readable_blocks(ZoneIndex(0)), Blocks(9));
    table.check_invariants();
}

#[test]
#[should_panic(expected = "zone 0 is closed: only an empty zone can be filled")]
fn only_an_empty_zone_is_filled_ahead() {
    let mut table = tiny();
    bring(&mut table, 0, ZoneState::Closed);
    let _ = table.set_written(ZoneIndex(0), Blocks(5));
}

#[test]
#[should_panic(expected = "zone 4: write pointer 99")]
fn a_violated_invariant_is_reported_with_its_zone() {
    let mut table = tiny();
    table.zones[4].write_pointer = 99;
    table.check_invariants();
}

#[test]
#[should_panic(expected = "zone 2 is implicitly opened and missing from the order of opening")]
fn a_zone_missing_from_the_order_of_opening_is_found() {
    let mut table = tiny();
    write(&mut table, 2, 0, 1);
    table.implicitly_opened = OpeningOrder::EMPTY;
    table.check_invariants();
}
