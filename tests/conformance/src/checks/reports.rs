//! Zone Management Receive (3.4.2).

use zonda_zoned::{Lba, Operation, ReportFilter, Status, ZoneAction, ZoneState};

use super::{Check, checks};
use crate::rig::{Rig, Stop, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    let full = checks![Full:
        a_report_lists_all_zones_in_order_with_their_starts_and_capacities,
        a_report_begins_with_the_zone_that_holds_its_first_block,
        a_filter_lists_the_zones_of_one_state,
        a_partial_report_counts_its_descriptors_and_a_whole_one_all_that_match,
        a_report_without_descriptors_still_counts_zones,
        a_report_past_the_namespace_is_out_of_range,
        a_report_changes_nothing,
    ];
    full.into_iter().chain(checks![Bare: an_extended_report_needs_descriptor_extensions]).collect()
}

fn a_report_lists_all_zones_in_order_with_their_starts_and_capacities(rig: &mut Rig) -> Verdict {
    let report = rig.report(Lba(0), ReportFilter::All, false, false, u32::MAX)?;
    let count = u64::from(rig.geometry.zone_count);
    ensure!(report.matching_zones == count, "{} zones match, not {count}", report.matching_zones);
    ensure!(report.zones.len() as u64 == count, "{} zones are listed, not {count}", report.zones.len());
    for (zone, descriptor) in report.zones.iter().enumerate() {
        let start = rig.lba(zone as u32, 0);
        ensure!(
            descriptor.start == start
                && descriptor.capacity_blocks == rig.geometry.zone_capacity_blocks
                && descriptor.state == ZoneState::Empty
                && descriptor.zone_type == rig.geometry.zone_type(rig.index(zone as u32))
                && descriptor.extension.is_none(),
            "the descriptor of zone {zone} is {descriptor:?}"
        );
    }
    Ok(())
}

fn a_report_begins_with_the_zone_that_holds_its_first_block(rig: &mut Rig) -> Verdict {
    let last = rig.geometry.zone_size_blocks.0 - 1;
    for block in [0, 1, last] {
        let report = rig.report(rig.lba(3, block), ReportFilter::All, false, false, 2)?;
        let starts: Vec<Lba> = report.zones.iter().map(|zone| zone.start).collect();
        ensure!(starts == [rig.lba(3, 0), rig.lba(4, 0)], "a report from block {block} lists {starts:?}");
        let left = u64::from(rig.geometry.zone_count) - 3;
        ensure!(report.matching_zones == left, "{} zones match, not {left}", report.matching_zones);
    }
    Ok(())
}

/// Zones of a state, as a report lists them.
fn listed(rig: &mut Rig, state: ZoneState) -> Result<Vec<Lba>, Stop> {
    let report = rig.report(Lba(0), ReportFilter::State(state), false, false, u32::MAX)?;
    Ok(report.zones.iter().map(|zone| zone.start).collect())
}

fn a_filter_lists_the_zones_of_one_state(rig: &mut Rig) -> Verdict {
    rig.fill(1, 0, 1, 1)?;
    rig.manage(ZoneAction::Close, 1, Status::Success)?;
    rig.manage(ZoneAction::Finish, 2, Status::Success)?;
    rig.manage(ZoneAction::Finish, 5, Status::Success)?;
    rig.fill(3, 0, 1, 1)?;
    rig.manage(ZoneAction::Open { zrwa: false }, 4, Status::Success)?;
    let empty: Vec<Lba> = (0..rig.geometry.zone_count)
        .filter(|zone| ![1, 2, 3, 4, 5].contains(zone))
        .map(|zone| rig.lba(zone, 0))
        .collect();
    let expected = [
        (ZoneState::Empty, empty),
        (ZoneState::ImplicitlyOpened, vec![rig.lba(3, 0)]),
        (ZoneState::ExplicitlyOpened, vec![rig.lba(4, 0)]),
        (ZoneState::Closed, vec![rig.lba(1, 0)]),
        (ZoneState::Full, vec![rig.lba(2, 0), rig.lba(5, 0)]),
        (ZoneState::ReadOnly, vec![]),
        (ZoneState::Offline, vec![]),
    ];
    for (state, zones) in expected {
        let got = listed(rig, state)?;
        ensure!(got == zones, "zones that are {state}: {got:?}, not {zones:?}");
    }
    Ok(())
}

fn a_partial_report_counts_its_descriptors_and_a_whole_one_all_that_match(rig: &mut Rig) -> Verdict {
    rig.manage(ZoneAction::Finish, 1, Status::Success)?;
    rig.manage(ZoneAction::Finish, 3, Status::Success)?;
    rig.manage(ZoneAction::Finish, 4, Status::Success)?;
    for (partial, count) in [(true, 2), (false, 3)] {
        let report = rig.report(Lba(0), ReportFilter::State(ZoneState::Full), false, partial, 2)?;
        ensure!(report.zones.len() == 2, "{} descriptors, not 2", report.zones.len());
        ensure!(report.matching_zones == count, "partial {partial}: {} zones, not {count}", report.matching_zones);
    }
    Ok(())
}

pub(super) fn a_report_without_descriptors_still_counts_zones(rig: &mut Rig) -> Verdict {
    let report = rig.report(Lba(0), ReportFilter::All, false, false, 0)?;
    let count = u64::from(rig.geometry.zone_count);
    ensure!(report.zones.is_empty() && report.matching_zones == count, "{report:?}");
    Ok(())
}

pub(super) fn a_report_past_the_namespace_is_out_of_range(rig: &mut Rig) -> Verdict {
    let start = Lba(0) + rig.geometry.namespace_blocks();
    rig.expect(report(start, false), Status::LbaOutOfRange)
}

fn a_report_changes_nothing(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 2, 4)?;
    let first = rig.report(Lba(0), ReportFilter::All, false, false, u32::MAX)?;
    let second = rig.report(Lba(0), ReportFilter::All, false, false, u32::MAX)?;
    ensure!(first == second, "two reports differ");
    Ok(())
}

pub(super) fn an_extended_report_needs_descriptor_extensions(rig: &mut Rig) -> Verdict {
    rig.expect(report(Lba(0), true), Status::InvalidField)
}

fn report(start: Lba, extended: bool) -> Operation {
    Operation::ReportZones { start, filter: ReportFilter::All, extended, partial: false, descriptors_max: 4 }
}
