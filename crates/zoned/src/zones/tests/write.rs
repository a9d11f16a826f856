//! Write, Write Zeroes and Append, without ZRWA.

use super::*;

#[test]
fn a_write_at_the_write_pointer_moves_it_and_opens_the_zone() {
    let mut table = tiny();
    let grant = write(&mut table, 3, 0, 5);
    let expected = WriteGrant {
        zone: ZoneIndex(3),
        start: at(3, 0),
        offset_blocks: Blocks(0),
        closed: None,
        opened: true,
        filled: false,
        overwrites: false,
    };
    assert_eq!(grant, expected);
    let next = write(&mut table, 3, 5, 2);
    assert_eq!(next, WriteGrant { start: at(3, 5), offset_blocks: Blocks(5), opened: false, ..expected });
    assert_eq!((state(&table, 3), write_pointer(&table, 3)), (ZoneState::ImplicitlyOpened, 7));
    table.check_invariants();
}

#[test]
fn a_write_up_to_the_capacity_fills_the_zone_and_returns_its_resources() {
    let mut table = tiny();
    fill(&mut table, 0);
    assert_eq!((state(&table, 0), write_pointer(&table, 0), written(&table, 0)), (ZoneState::Full, 12, 12));
    assert_eq!((table.active_zones(), table.open_zones()), (0, 0));
    table.check_invariants();
}

#[test]
fn an_explicitly_opened_zone_stays_so_through_a_write_and_a_closed_one_is_opened() {
    let mut table = tiny();
    bring(&mut table, 0, ZoneState::ExplicitlyOpened);
    assert!(!write(&mut table, 0, 4, 1).opened);
    assert_eq!(state(&table, 0), ZoneState::ExplicitlyOpened);
    bring(&mut table, 1, ZoneState::Closed);
    assert!(write(&mut table, 1, 4, 1).opened);
    assert_eq!(state(&table, 1), ZoneState::ImplicitlyOpened);
}

#[test]
fn each_fault_of_a_write_comes_before_the_next_in_the_rules() {
    let mut table = tiny();
    let refused =
        |table: &mut ZoneTable, start, blocks, fits| refusal(table, |table| table.write(start, Blocks(blocks), fits));
    assert_eq!(refused(&mut table, Lba(1000), 0, false), Status::InvalidField);
    assert_eq!(refused(&mut table, Lba(1000), 9, false), Status::InvalidField);
    assert_eq!(refused(&mut table, at(7, 15), 2, false), Status::LbaOutOfRange);
    assert_eq!(refused(&mut table, Lba(u64::MAX), 1, true), Status::LbaOutOfRange);
    bring(&mut table, 0, ZoneState::Full);
    assert_eq!(refused(&mut table, at(0, 4), 1, false), Status::InvalidField, "the payload comes before the state");
    assert_eq!(refused(&mut table, at(0, 4), 1, true), Status::ZoneIsFull);
    bring(&mut table, 1, ZoneState::ReadOnly);
    assert_eq!(refused(&mut table, at(1, 3), 1, true), Status::ZoneIsReadOnly);
    bring(&mut table, 2, ZoneState::Offline);
    assert_eq!(refused(&mut table, at(2, 3), 1, true), Status::ZoneIsOffline);
    assert_eq!(refused(&mut table, at(3, 8), 8, true), Status::ZoneInvalidWrite, "the pointer before the boundary");
    write(&mut table, 3, 0, 8);
    assert_eq!(refused(&mut table, at(3, 7), 1, true), Status::ZoneInvalidWrite);
    assert_eq!(refused(&mut table, at(3, 9), 1, true), Status::ZoneInvalidWrite);
    assert_eq!(refused(&mut table, at(3, 8), 5, true), Status::ZoneBoundaryError);
    assert_eq!(refused(&mut table, at(3, 12), 1, true), Status::ZoneInvalidWrite, "the gap behind the capacity");
}

#[test]
fn a_write_past_the_capacity_meets_the_boundary_before_the_resources() {
    let mut table = table(|geometry| geometry.max_transfer_blocks = Blocks(20));
    for zone in 0..3 {
        bring(&mut table, zone, ZoneState::Closed);
    }
    let mut refused = |blocks| refusal(&mut table, |table| table.write(at(3, 0), Blocks(blocks), true));
    assert_eq!(refused(13), Status::ZoneBoundaryError);
    assert_eq!(refused(20), Status::ZoneBoundaryError, "past the zone's size just so");
    assert_eq!(refused(12), Status::TooManyActiveZones);
}

#[test]
fn a_write_of_zeros_is_not_bound_by_the_transfer_size() {
    let mut table = tiny();
    assert_eq!(refusal(&mut table, |table| table.write_zeroes(at(0, 0), Blocks(0))), Status::InvalidField);
    assert_eq!(refusal(&mut table, |table| table.write_zeroes(at(0, 0), Blocks(129))), Status::LbaOutOfRange);
    assert_eq!(refusal(&mut table, |table| table.write_zeroes(at(0, 1), Blocks(u64::MAX))), Status::LbaOutOfRange);
    assert_eq!(refusal(&mut table, |table| table.write_zeroes(at(0, 0), Blocks(13))), Status::ZoneBoundaryError);
    assert_eq!(refusal(&mut table, |table| table.write_zeroes(at(0, 1), Blocks(11))), Status::ZoneInvalidWrite);
    let grant = table.write_zeroes(at(0, 0), Blocks(12)).unwrap();
    assert!(grant.filled && grant.opened);
    assert_eq!(state(&table, 0), ZoneState::Full);
}

#[test]
fn a_zone_written_full_at_once_still_needs_its_resources_for_that_moment() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    write(&mut table, 1, 0, 1);
    let grant = table.write_zeroes(at(2, 0), Blocks(12)).unwrap();
    assert_eq!((grant.closed, grant.filled), (Some(ZoneIndex(0)), true));
    assert_eq!((state(&table, 0), table.open_zones(), table.active_zones()), (ZoneState::Closed, 1, 2));
}

#[test]
fn conventional_zones_are_written_anywhere_and_across_each_other() {
    let mut table = with_conventional();
    let grant = write(&mut table, 0, 12, 8);
    assert_eq!((grant.zone, grant.offset_blocks, grant.start), (ZoneIndex(0), Blocks(12), at(0, 12)));
    assert!(grant.overwrites && !grant.opened && !grant.filled);
    assert_eq!(write(&mut table, 0, 12, 8), grant, "and again");
    assert_eq!((written(&table, 0), written(&table, 1)), (16, 4));
    write(&mut table, 1, 1, 1);
    assert_eq!((written(&table, 1), write_pointer(&table, 1)), (4, 0));
    assert_eq!((table.open_zones(), state(&table, 1)), (0, ZoneState::NotWritePointer));
    table.check_invariants();
}

#[test]
fn a_write_that_leaves_the_conventional_zones_meets_a_boundary() {
    let mut table = with_conventional();
    assert_eq!(refusal(&mut table, |table| table.write(at(1, 9), Blocks(8), true)), Status::ZoneBoundaryError);
    assert_eq!(refusal(&mut table, |table| table.write_zeroes(at(0, 0), Blocks(33))), Status::ZoneBoundaryError);
    assert_eq!(refusal(&mut table, |table| table.write(at(1, 9), Blocks(8), false)), Status::InvalidField);
    table.write_zeroes(at(0, 0), Blocks(32)).unwrap();
    write(&mut table, 1, 8, 8);
}

#[test]
fn an_append_lands_at_the_write_pointer() {
    let mut table = tiny();
    let first = table.append(at(2, 0), Blocks(3), true).unwrap();
    let second = table.append(at(2, 0), Blocks(4), true).unwrap();
    assert_eq!((first.start, first.opened), (at(2, 0), true));
    assert_eq!((second.start, second.offset_blocks, second.opened), (at(2, 3), Blocks(3), false));
    write(&mut table, 2, 7, 2);
    assert!(table.append(at(2, 0), Blocks(3), true).unwrap().filled);
    assert_eq!(state(&table, 2), ZoneState::Full);
    table.check_invariants();
}

#[test]
fn each_fault_of_an_append_comes_before_the_next_in_the_rules() {
    let mut table = table(|geometry| {
        geometry.conventional_zone_count = 1;
        geometry.zone_capacity_blocks = Blocks(16);
    });
    let refused =
        |table: &mut ZoneTable, start, blocks, fits| refusal(table, |table| table.append(start, Blocks(blocks), fits));
    assert_eq!(refused(&mut table, Lba(1000), 0, true), Status::InvalidField);
    assert_eq!(refused(&mut table, Lba(1000), 5, true), Status::InvalidField);
    assert_eq!(refused(&mut table, Lba(1001), 4, false), Status::LbaOutOfRange);
    assert_eq!(refused(&mut table, Lba(128), 1, true), Status::LbaOutOfRange);
    for (zone, to, status) in [
        (1, ZoneState::Full, Status::ZoneIsFull),
        (2, ZoneState::ReadOnly, Status::ZoneIsReadOnly),
        (3, ZoneState::Offline, Status::ZoneIsOffline),
    ] {
        bring(&mut table, zone, to);
        assert_eq!(refused(&mut table, at(zone, 1), 1, true), Status::InvalidField, "not the start of a zone");
        assert_eq!(refused(&mut table, at(zone, 0), 1, false), Status::InvalidField, "the payload");
        assert_eq!(refused(&mut table, at(zone, 0), 1, true), status);
    }
    assert_eq!(refused(&mut table, at(0, 0), 1, true), Status::InvalidField, "conventional");
    write(&mut table, 4, 0, 8);
    write(&mut table, 4, 8, 6);
    for zone in 5..7 {
        manage(&mut table, &OPEN, zone);
    }
    assert_eq!(refused(&mut table, at(4, 0), 3, true), Status::ZoneBoundaryError, "before the resources");
    assert_eq!(refused(&mut table, at(4, 0), 2, true), Status::TooManyOpenZones);
    assert_eq!(refused(&mut table, at(7, 0), 2, true), Status::TooManyActiveZones);
}
