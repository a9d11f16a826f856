//! Active and open resources, and the zones that the controller closes.

use super::*;

#[test]
fn the_zone_implicitly_opened_for_longest_is_closed_to_free_an_open_resource() {
    let mut table = table(|geometry| geometry.max_active_zones = None);
    write(&mut table, 5, 0, 1);
    write(&mut table, 3, 0, 1);
    write(&mut table, 5, 1, 1);
    assert_eq!(write(&mut table, 4, 0, 1).closed, Some(ZoneIndex(5)), "a second write makes it no younger");
    assert_eq!(write(&mut table, 5, 2, 1).closed, Some(ZoneIndex(3)));
    assert_eq!(write(&mut table, 6, 0, 1).closed, Some(ZoneIndex(4)));
    assert_eq!(table.opening_order().collect::<Vec<_>>(), [ZoneIndex(5), ZoneIndex(6)]);
    table.check_invariants();
}

#[test]
fn a_zone_leaves_the_middle_of_the_order_when_it_is_closed_opened_filled_or_lost() {
    let mut table = table(|geometry| (geometry.max_active_zones, geometry.max_open_zones) = (None, None));
    for zone in 0..7 {
        write(&mut table, zone, 0, 8);
    }
    manage(&mut table, &ZoneAction::Close, 2);
    manage(&mut table, &OPEN, 4);
    write(&mut table, 0, 8, 4);
    table.degrade(ZoneIndex(6), ZoneState::ReadOnly);
    assert_eq!(table.opening_order().collect::<Vec<_>>(), [ZoneIndex(1), ZoneIndex(3), ZoneIndex(5)]);
    write(&mut table, 2, 8, 1);
    manage(&mut table, &ZoneAction::Reset, 1);
    assert_eq!(table.opening_order().collect::<Vec<_>>(), [ZoneIndex(3), ZoneIndex(5), ZoneIndex(2)]);
    table.check_invariants();
}

#[test]
fn explicitly_opened_zones_are_not_closed_to_free_an_open_resource() {
    let mut table = tiny();
    manage(&mut table, &OPEN, 0);
    manage(&mut table, &OPEN, 1);
    assert_eq!(refusal(&mut table, |table| table.write(at(2, 0), Blocks(1), true)), Status::TooManyOpenZones);
    assert_eq!(refused(&mut table, &OPEN, 2), Status::TooManyOpenZones);
    manage(&mut table, &ZoneAction::Close, 0);
    assert!(write(&mut table, 2, 0, 1).opened);
}

#[test]
fn an_explicitly_opened_zone_is_skipped_for_a_newer_implicitly_opened_one() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    write(&mut table, 1, 0, 1);
    manage(&mut table, &OPEN, 0);
    assert_eq!(write(&mut table, 2, 0, 1).closed, Some(ZoneIndex(1)));
}

#[test]
fn too_many_active_zones_comes_before_too_many_open_zones() {
    let mut table = tiny();
    bring(&mut table, 0, ZoneState::Closed);
    manage(&mut table, &OPEN, 1);
    manage(&mut table, &OPEN, 2);
    assert_eq!(refusal(&mut table, |table| table.write(at(3, 0), Blocks(1), true)), Status::TooManyActiveZones);
    assert_eq!(refused(&mut table, &OPEN, 3), Status::TooManyActiveZones);
    assert_eq!(refused(&mut table, &OPEN, 0), Status::TooManyOpenZones, "closed is active already");
}

#[test]
fn too_many_open_zones_comes_before_a_lack_of_zrwas_and_that_before_a_zone_is_closed() {
    let mut table = table(|geometry| {
        geometry.max_active_zones = Some(8);
        geometry.zrwa = Some(ZrwaGeometry { resources: 1, ..zrwa() });
    });
    manage(&mut table, &OPEN_WITH_ZRWA, 0);
    write(&mut table, 1, 0, 1);
    assert_eq!(refused(&mut table, &OPEN_WITH_ZRWA, 2), Status::ZrwaResourcesUnavailable);
    assert_eq!(state(&table, 1), ZoneState::ImplicitlyOpened);
    manage(&mut table, &OPEN, 1);
    assert_eq!(refused(&mut table, &OPEN_WITH_ZRWA, 2), Status::TooManyOpenZones);
    manage(&mut table, &ZoneAction::Finish, 0);
    assert_eq!(table.zrwa_in_use(), 0, "a full zone has returned its ZRWA");
    manage(&mut table, &OPEN_WITH_ZRWA, 2);
}

#[test]
fn opening_explicitly_closes_another_zone_before_it_opens() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    write(&mut table, 1, 0, 1);
    let effects = manage(&mut table, &OPEN, 2);
    assert_eq!(effects, [ZoneEffect::Closed { zone: ZoneIndex(0) }, ZoneEffect::Opened { zone: ZoneIndex(2) }]);
}

#[test]
fn opening_an_implicitly_opened_zone_explicitly_needs_no_free_resource() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    write(&mut table, 1, 0, 1);
    assert_eq!(manage(&mut table, &OPEN, 0), [ZoneEffect::Opened { zone: ZoneIndex(0) }]);
    assert_eq!((table.open_zones(), table.active_zones()), (2, 2));
}

#[test]
fn without_limits_every_zone_can_be_open() {
    let mut table = table(|geometry| (geometry.max_active_zones, geometry.max_open_zones) = (None, None));
    for zone in 0..8 {
        assert_eq!(write(&mut table, zone, 0, 1).closed, None);
    }
    assert_eq!((table.open_zones(), table.active_zones()), (8, 8));
    table.check_invariants();
}
