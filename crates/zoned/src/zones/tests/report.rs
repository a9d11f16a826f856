//! Zone Management Receive, and the Changed Zone List.

use super::*;
use crate::{ChangedZoneList, ReportFilter};

fn zones_of(table: &ZoneTable, start: Lba, filter: ReportFilter) -> Vec<u64> {
    let report = table.report(start, filter, false, false, 100).unwrap();
    assert_eq!(report.matching_zones, report.zones.len() as u64);
    report.zones.iter().map(|zone| zone.start.0 / 16).collect()
}

#[test]
fn a_report_starts_with_the_zone_that_holds_its_block() {
    let table = tiny();
    assert_eq!(zones_of(&table, at(0, 0), ReportFilter::All), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(zones_of(&table, at(5, 15), ReportFilter::All), [5, 6, 7]);
}

#[test]
fn a_report_past_the_namespace_is_out_of_range_before_its_fields_are_looked_at() {
    let table = table(|geometry| geometry.descriptor_extension_bytes = 0);
    assert_eq!(table.report(Lba(128), ReportFilter::All, true, false, 1), Err(Status::LbaOutOfRange));
    assert_eq!(table.report(Lba(127), ReportFilter::All, true, false, 1), Err(Status::InvalidField));
    assert!(table.report(Lba(127), ReportFilter::All, false, false, 1).is_ok());
}

#[test]
fn a_filter_leaves_zones_in_other_states_out() {
    let table = one_zone_in_each_state();
    for (zone, wanted) in (0..).zip(ZoneState::SEQUENTIAL) {
        let expected = if wanted == ZoneState::Empty { vec![0, 7] } else { vec![zone] };
        assert_eq!(zones_of(&table, at(0, 0), ReportFilter::State(wanted)), expected, "{wanted}");
    }
}

#[test]
fn conventional_zones_match_only_all() {
    let table = with_conventional();
    assert_eq!(zones_of(&table, at(0, 0), ReportFilter::State(ZoneState::NotWritePointer)), [0; 0]);
    let all = table.report(at(0, 0), ReportFilter::All, false, false, 3).unwrap();
    let types: Vec<ZoneType> = all.zones.iter().map(|zone| zone.zone_type).collect();
    use ZoneType::{Conventional, SequentialWriteRequired};
    assert_eq!(types, [Conventional, Conventional, SequentialWriteRequired]);
    assert_eq!(all.zones[1].write_pointer, None);
    assert_eq!(all.zones[2].write_pointer, Some(at(2, 0)));
}

#[test]
fn a_partial_report_counts_its_descriptors_and_another_all_zones_that_match() {
    let mut table = tiny();
    bring(&mut table, 3, ZoneState::Full);
    let count = |partial, descriptors_max| {
        let filter = ReportFilter::State(ZoneState::Empty);
        let report = table.report(at(2, 0), filter, false, partial, descriptors_max).unwrap();
        (report.matching_zones, report.zones.len())
    };
    assert_eq!(count(false, 2), (5, 2));
    assert_eq!(count(true, 2), (2, 2));
    assert_eq!(count(false, 0), (5, 0));
    assert_eq!(count(true, 0), (0, 0));
    assert_eq!(count(true, u32::MAX), (5, 5));
}

#[test]
fn the_write_pointer_is_absent_where_the_state_has_none() {
    let table = one_zone_in_each_state();
    let report = table.report(at(0, 0), ReportFilter::All, false, false, 7).unwrap();
    let pointers: Vec<Option<Lba>> = report.zones.iter().map(|zone| zone.write_pointer).collect();
    assert_eq!(pointers, [Some(at(0, 0)), Some(at(1, 4)), Some(at(2, 4)), Some(at(3, 4)), None, None, None]);
    assert!(report.zones.iter().all(|zone| zone.capacity_blocks == Blocks(12) && zone.extension.is_none()));
}

#[test]
fn an_extended_report_has_what_was_set_or_zeros() {
    let mut table = with_zrwa();
    manage(&mut table, &set_extension(5, true), 1);
    let report = table.report(at(0, 0), ReportFilter::All, true, false, 2).unwrap();
    assert_eq!(report.zones[0].extension.as_deref(), Some(&[0; 64][..]));
    assert_eq!(report.zones[0].attributes, ZoneAttributes::default());
    assert_eq!(report.zones[1].extension.as_deref(), Some(&[5; 64][..]));
    assert_eq!(
        report.zones[1].attributes,
        ZoneAttributes { zrwa_valid: true, extension_valid: true, ..ZoneAttributes::default() }
    );
    manage(&mut table, &ZoneAction::Reset, 1);
    let report = table.report(at(1, 0), ReportFilter::All, true, false, 1).unwrap();
    assert_eq!(report.zones[0].extension.as_deref(), Some(&[0; 64][..]));
}

#[test]
fn changed_zones_are_listed_once_in_order_and_then_no_more() {
    let mut table = tiny();
    table.degrade(ZoneIndex(6), ZoneState::Offline);
    table.degrade(ZoneIndex(2), ZoneState::ReadOnly);
    table.degrade(ZoneIndex(2), ZoneState::Offline);
    let listed = ChangedZoneList { overflowed: false, zones: vec![ZoneIndex(2), ZoneIndex(6)] };
    assert_eq!(table.take_changed_zones(), listed);
    assert_eq!(table.take_changed_zones(), ChangedZoneList::default());
}

#[test]
fn a_zone_that_the_host_takes_offline_is_not_a_changed_one() {
    let mut table = tiny();
    table.degrade(ZoneIndex(2), ZoneState::ReadOnly);
    table.take_changed_zones();
    manage(&mut table, &ZoneAction::Offline, 2);
    assert_eq!(table.take_changed_zones(), ChangedZoneList::default());
}

#[test]
fn more_changed_zones_than_the_page_holds_overflow_it() {
    for (count, overflowed, listed) in [(511, false, 511), (512, true, 0)] {
        let mut table = table(|geometry| geometry.zone_count = 1000);
        for zone in 0..count {
            table.degrade(ZoneIndex(zone), ZoneState::ReadOnly);
        }
        let list = table.take_changed_zones();
        assert_eq!((list.overflowed, list.zones.len()), (overflowed, listed));
        assert_eq!(table.take_changed_zones(), ChangedZoneList::default());
    }
}
