//! Namespaces of conventional zones only, as volumes and conventional drives have them. Most rules
//! are those of other namespaces; helpers of the rig count zones from the first one.

use zonda_zoned::{Blocks, Lba, Operation, ReportFilter, Status, ZoneAction, ZoneState, ZoneTarget, ZoneType};

use super::{Check, checks, marks};
use crate::rig::{Rig, Verdict, ensure};

/// Checks of other modules, on a namespace without sequential zones.
macro_rules! shared {
    ($($module:ident::$name:ident),+ $(,)?) => {
        [$(Check {
            sentence: concat!("without_sequential_zones_", stringify!($name)),
            shape: crate::shapes::Shape::ConventionalOnly,
            body: super::$module::$name,
        }),+]
    };
}

pub(super) fn checks() -> Vec<Check> {
    let own = checks![ConventionalOnly:
        a_report_of_conventional_zones_lists_all_of_them_and_no_write_pointer,
        conventional_zones_match_no_filter_of_a_state,
        an_unwritten_conventional_zone_reads_as_zeros,
        appends_of_any_kind_to_conventional_zones_are_refused,
        an_action_on_all_of_only_conventional_zones_is_a_success_and_changes_nothing,
        actions_on_single_conventional_zones_are_refused,
        write_zeroes_of_all_blocks_empties_conventional_zones,
        a_flush_of_conventional_zones_succeeds_and_changes_nothing,
        an_overwrite_in_flight_with_the_write_before_it_replaces_it,
    ];
    let shared = shared![
        appends::an_append_of_no_blocks_is_refused,
        appends::an_append_past_the_namespace_is_out_of_range,
        contents::deallocation_accepts_ranges_over_zones_and_beyond_write_pointers,
        contents::a_deallocation_without_ranges_or_with_too_many_is_refused,
        contents::a_deallocation_past_the_namespace_is_out_of_range_and_changes_nothing,
        conventional::a_conventional_zone_is_written_and_overwritten_anywhere,
        conventional::a_write_may_cross_conventional_zones,
        conventional::a_read_within_conventional_zones_crosses_no_boundary,
        conventional::a_conventional_zone_refuses_appends_and_zone_actions,
        conventional::conventional_zones_support_write_zeroes_and_deallocation,
        namespace::a_command_to_another_namespace_is_refused,
        namespace::a_new_device_has_no_changed_zones,
        power::conventional_zones_survive_a_power_loss,
        reads::a_read_of_no_blocks_is_refused,
        reads::a_read_longer_than_a_transfer_is_refused,
        reads::a_read_past_the_namespace_is_out_of_range,
        reports::a_report_without_descriptors_still_counts_zones,
        reports::a_report_past_the_namespace_is_out_of_range,
        reports::an_extended_report_needs_descriptor_extensions,
        writes::writes_in_flight_together_take_effect_in_the_order_of_their_submission,
        writes::a_write_without_contents_is_a_write_of_zeros,
        writes::a_write_of_no_blocks_is_refused,
        writes::a_write_longer_than_a_transfer_is_refused,
        writes::a_write_past_the_namespace_is_out_of_range,
    ];
    own.into_iter().chain(shared).collect()
}

fn a_report_of_conventional_zones_lists_all_of_them_and_no_write_pointer(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 3, 7)?;
    let report = rig.report(Lba(0), ReportFilter::All, false, false, u32::MAX)?;
    let count = rig.geometry.zone_count as usize;
    ensure!(report.zones.len() == count, "{} zones are listed, not {count}", report.zones.len());
    for (zone, descriptor) in report.zones.iter().enumerate() {
        ensure!(
            descriptor.start == rig.lba(zone as u32, 0)
                && descriptor.capacity_blocks == rig.geometry.zone_capacity_blocks
                && descriptor.zone_type == ZoneType::Conventional
                && descriptor.state == ZoneState::NotWritePointer
                && descriptor.write_pointer.is_none(),
            "the descriptor of zone {zone} is {descriptor:?}"
        );
    }
    Ok(())
}

fn conventional_zones_match_no_filter_of_a_state(rig: &mut Rig) -> Verdict {
    for state in [ZoneState::Empty, ZoneState::ImplicitlyOpened, ZoneState::Full, ZoneState::Offline] {
        let report = rig.report(Lba(0), ReportFilter::State(state), false, false, u32::MAX)?;
        ensure!(report.zones.is_empty() && report.matching_zones == 0, "zones that are {state}: {report:?}");
    }
    Ok(())
}

fn an_unwritten_conventional_zone_reads_as_zeros(rig: &mut Rig) -> Verdict {
    let (size, transfer) = (rig.geometry.zone_size_blocks.0, rig.geometry.max_transfer_blocks.0);
    rig.expect_blocks(0, 0, &vec![0; size.min(4 * transfer) as usize])?;
    rig.expect_blocks(1, size - 2, &[0, 0])
}

fn appends_of_any_kind_to_conventional_zones_are_refused(rig: &mut Rig) -> Verdict {
    let most = rig.geometry.max_append_blocks.0;
    for blocks in [1, most, most + 1] {
        rig.append(1, blocks, 1, Status::InvalidField)?;
    }
    let payload = rig.payload(1, 1);
    rig.expect(Operation::Append { zone_start: rig.lba(1, 1), blocks: Blocks(1), payload }, Status::InvalidField)?;
    rig.expect_blocks(1, 0, &[0, 0])
}

fn an_action_on_all_of_only_conventional_zones_is_a_success_and_changes_nothing(rig: &mut Rig) -> Verdict {
    rig.fill(1, 0, 2, 30)?;
    for action in [ZoneAction::Reset, ZoneAction::Finish, ZoneAction::Close, ZoneAction::Open { zrwa: false }] {
        rig.manage_all(action, Status::Success)?;
    }
    rig.expect_blocks(1, 0, &[30, 31, 0])
}

fn actions_on_single_conventional_zones_are_refused(rig: &mut Rig) -> Verdict {
    let end = Lba(0) + rig.geometry.namespace_blocks();
    for action in [ZoneAction::Reset, ZoneAction::Finish, ZoneAction::Close, ZoneAction::Open { zrwa: false }] {
        rig.manage(action.clone(), 0, Status::InvalidField)?;
        let target = ZoneTarget::Zone(end);
        rig.expect(Operation::ManageZones { action, target }, Status::LbaOutOfRange)?;
    }
    Ok(())
}

fn write_zeroes_of_all_blocks_empties_conventional_zones(rig: &mut Rig) -> Verdict {
    let (all, size) = (rig.geometry.namespace_blocks(), rig.geometry.zone_size_blocks.0);
    rig.fill(0, size - 2, size + 2, 30)?;
    rig.expect(Operation::WriteZeroes { start: Lba(0), blocks: Blocks(all.0 + 1) }, Status::LbaOutOfRange)?;
    rig.expect(Operation::WriteZeroes { start: Lba(0), blocks: Blocks(0) }, Status::InvalidField)?;
    rig.expect_blocks(0, size - 2, &[30, 31, 32, 33])?;
    rig.expect(Operation::WriteZeroes { start: Lba(0), blocks: all }, Status::Success)?;
    rig.expect_blocks(0, size - 2, &[0; 4])
}

fn a_flush_of_conventional_zones_succeeds_and_changes_nothing(rig: &mut Rig) -> Verdict {
    rig.expect(Operation::Flush, Status::Success)?;
    rig.fill(1, 3, 5, 20)?;
    rig.expect(Operation::Flush, Status::Success)?;
    rig.expect_blocks(1, 2, &[0, 20, 21, 0])
}

fn an_overwrite_in_flight_with_the_write_before_it_replaces_it(rig: &mut Rig) -> Verdict {
    let writes = (0..16).map(|round| rig.write_at(rig.lba(1, round % 4), 2, 100 * (round + 1))).collect();
    let ended = rig.run_all(writes, 16)?;
    ensure!(ended.iter().all(|completion| completion.status.is_success()), "{ended:?}");
    let last = [marks(1300, 1), marks(1400, 1), marks(1500, 1), marks(1600, 2)].concat();
    rig.expect_blocks(1, 0, &last)
}
