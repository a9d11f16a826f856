//! Zone Random Write Areas: four blocks, committed two by two, in zones of twelve.

use super::*;

/// Zone 0 explicitly opened with a ZRWA.
fn opened() -> ZoneTable {
    let mut table = with_zrwa();
    manage(&mut table, &OPEN_WITH_ZRWA, 0);
    assert_eq!(table.zrwa_in_use(), 1);
    assert!(table.zone(ZoneIndex(0)).attributes.zrwa_valid);
    table
}

#[track_caller]
fn flush(table: &mut ZoneTable, last: u64) -> Vec<ZoneEffect> {
    attempt(table, &ZoneAction::FlushZrwa, ZoneTarget::Zone(at(0, last))).unwrap()
}

#[track_caller]
fn flush_refused(table: &mut ZoneTable, last: u64) -> Status {
    refusal(table, |table| attempt(table, &ZoneAction::FlushZrwa, ZoneTarget::Zone(at(0, last))))
}

#[test]
fn within_the_area_blocks_are_written_in_any_order_and_again() {
    let mut table = opened();
    for (offset, blocks) in [(3, 1), (0, 2), (3, 1), (0, 4)] {
        let grant = write(&mut table, 0, offset, blocks);
        assert!(grant.overwrites && !grant.opened, "{grant:?}");
        assert_eq!(
            (write_pointer(&table, 0), written(&table, 0)),
            (0, 4),
            "no commit, and the mark stays at its highest"
        );
    }
    assert_eq!(table.readable_blocks(ZoneIndex(0)), Blocks(4));
    table.check_invariants();
}

#[test]
fn a_write_behind_the_area_commits_as_little_as_makes_it_fit() {
    for (offset, blocks, expected) in [(4, 1, 2), (4, 2, 2), (4, 3, 4), (2, 5, 4), (0, 8, 4), (7, 1, 4)] {
        let mut table = opened();
        write(&mut table, 0, offset, blocks);
        assert_eq!(write_pointer(&table, 0), expected, "{blocks} blocks at {offset}");
        assert_eq!(written(&table, 0), offset + blocks);
        table.check_invariants();
    }
}

#[test]
fn a_write_reaches_to_twice_the_area_and_not_before_the_write_pointer() {
    let mut table = opened();
    let refused = |table: &mut ZoneTable, offset, blocks| {
        refusal(table, |table| table.write(at(0, offset), Blocks(blocks), true))
    };
    assert_eq!(refused(&mut table, 7, 2), Status::ZoneInvalidWrite);
    assert_eq!(refused(&mut table, 8, 1), Status::ZoneInvalidWrite);
    write(&mut table, 0, 4, 1);
    assert_eq!(write_pointer(&table, 0), 2);
    assert_eq!(refused(&mut table, 1, 1), Status::ZoneInvalidWrite);
    write(&mut table, 0, 2, 1);
}

#[test]
fn the_capacity_bounds_the_area_near_the_end_of_the_zone() {
    let mut table = opened();
    write(&mut table, 0, 0, 8);
    write(&mut table, 0, 8, 4);
    assert_eq!((write_pointer(&table, 0), state(&table, 0)), (8, ZoneState::ExplicitlyOpened));
    let past = |table: &mut ZoneTable| table.write(at(0, 11), Blocks(2), true);
    assert_eq!(refusal(&mut table, past), Status::ZoneBoundaryError);
    assert!(!write(&mut table, 0, 11, 1).filled, "the last block is written, but not committed");
}

#[test]
fn an_explicit_commit_moves_the_write_pointer_behind_its_block() {
    let mut table = opened();
    write(&mut table, 0, 0, 3);
    assert_eq!(flush(&mut table, 1), [ZoneEffect::Committed { zone: ZoneIndex(0) }]);
    assert_eq!(write_pointer(&table, 0), 2);
    flush(&mut table, 5);
    assert_eq!((write_pointer(&table, 0), written(&table, 0)), (6, 3), "blocks never written are committed as zeros");
    table.check_invariants();
}

#[test]
fn a_commit_up_to_the_capacity_fills_the_zone_and_returns_the_area() {
    let mut table = opened();
    write(&mut table, 0, 0, 8);
    flush(&mut table, 7);
    write(&mut table, 0, 8, 4);
    assert_eq!(flush(&mut table, 11), [ZoneEffect::Committed { zone: ZoneIndex(0) }]);
    assert_eq!((state(&table, 0), write_pointer(&table, 0), table.zrwa_in_use()), (ZoneState::Full, 12, 0));
    assert_eq!(flush_refused(&mut table, 11), Status::ZoneIsFull);
    assert_eq!(
        manage(&mut table, &ZoneAction::Reset, 0),
        [ZoneEffect::Reset { zone: ZoneIndex(0), written_blocks: Blocks(12), was_full: true, finished_by_host: false }]
    );
}

#[test]
fn a_commit_ends_within_the_area_on_a_multiple_of_its_granularity() {
    let mut table = opened();
    for last in [0, 2, 4, 5, 12, 15] {
        assert_eq!(flush_refused(&mut table, last), Status::InvalidField, "block {last}");
    }
    flush(&mut table, 3);
    assert_eq!(flush_refused(&mut table, 3), Status::InvalidField, "before the write pointer");
    flush(&mut table, 7);
    flush(&mut table, 9);
    assert_eq!(flush_refused(&mut table, 13), Status::InvalidField, "past the capacity, within the area");
    flush(&mut table, 11);
    assert_eq!(state(&table, 0), ZoneState::Full);
}

#[test]
fn a_commit_opens_a_closed_zone_and_may_close_another_for_it() {
    let mut table = opened();
    write(&mut table, 0, 0, 2);
    manage(&mut table, &ZoneAction::Close, 0);
    assert_eq!(table.zrwa_in_use(), 1, "a closed zone keeps its area");
    write(&mut table, 1, 0, 1);
    write(&mut table, 2, 0, 1);
    let zone = ZoneIndex;
    assert_eq!(
        flush(&mut table, 1),
        [
            ZoneEffect::Closed { zone: zone(1) },
            ZoneEffect::Opened { zone: zone(0) },
            ZoneEffect::Committed { zone: zone(0) }
        ]
    );
    assert_eq!(state(&table, 0), ZoneState::ImplicitlyOpened);
    manage(&mut table, &ZoneAction::Close, 0);
    manage(&mut table, &OPEN, 1);
    manage(&mut table, &OPEN, 2);
    assert_eq!(flush_refused(&mut table, 3), Status::TooManyOpenZones);
    assert_eq!(flush_refused(&mut table, 4), Status::InvalidField, "the block comes before the resources");
}

#[test]
fn a_namespace_without_explicit_commit_or_without_areas_refuses_it_whatever_the_state() {
    let mut table = table(|geometry| geometry.zrwa = Some(ZrwaGeometry { explicit_flush: false, ..zrwa() }));
    manage(&mut table, &OPEN_WITH_ZRWA, 0);
    assert_eq!(flush_refused(&mut table, 1), Status::InvalidField);
    table.degrade(ZoneIndex(0), ZoneState::Offline);
    assert_eq!(flush_refused(&mut table, 1), Status::InvalidField);
    assert_eq!(flush_refused(&mut tiny(), 1), Status::InvalidField);
    let mut without = tiny();
    bring(&mut without, 0, ZoneState::ReadOnly);
    assert_eq!(refused(&mut without, &OPEN_WITH_ZRWA, 0), Status::InvalidField, "before the state");
}

#[test]
fn a_zone_with_an_area_refuses_an_append() {
    let mut table = opened();
    let append = |table: &mut ZoneTable| table.append(at(0, 0), Blocks(1), true);
    assert_eq!(refusal(&mut table, append), Status::InvalidZoneOperation);
    manage(&mut table, &ZoneAction::Finish, 0);
    assert_eq!(refusal(&mut table, append), Status::ZoneIsFull, "the state comes first");
    manage(&mut table, &ZoneAction::Reset, 0);
    append(&mut table).unwrap();
}

#[test]
fn finish_reset_and_a_failed_medium_release_the_area() {
    for to in [ZoneState::Full, ZoneState::Empty, ZoneState::ReadOnly, ZoneState::Offline] {
        let mut table = opened();
        write(&mut table, 0, 1, 2);
        match to {
            ZoneState::Full => manage(&mut table, &ZoneAction::Finish, 0),
            ZoneState::Empty => manage(&mut table, &ZoneAction::Reset, 0),
            _ => {
                table.degrade(ZoneIndex(0), to);
                vec![]
            }
        };
        assert_eq!((table.zrwa_in_use(), table.active_zones(), state(&table, 0)), (0, 0, to));
        let readable = if matches!(to, ZoneState::Full | ZoneState::ReadOnly) { 3 } else { 0 };
        assert_eq!(
            table.readable_blocks(ZoneIndex(0)),
            Blocks(readable),
            "{to}: what was written in it stays readable"
        );
        table.check_invariants();
    }
}

#[test]
fn an_extension_can_come_with_an_area() {
    let mut table = with_zrwa();
    manage(&mut table, &set_extension(1, true), 4);
    let attributes = table.zone(ZoneIndex(4)).attributes;
    assert!(attributes.zrwa_valid && attributes.extension_valid);
    assert_eq!((table.zrwa_in_use(), state(&table, 4)), (1, ZoneState::Closed));
    let grant = write(&mut table, 4, 2, 1);
    assert!(grant.opened && grant.overwrites);
}
