//! Zone Random Write Areas (5.7). An area is a third of a zone, and is committed in halves of that;
//! two zones can have one.

use zonda_zoned::{Operation, Status, ZoneAction, ZoneState, ZoneTarget};

use super::{Check, checks};
use crate::rig::{Rig, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    let zrwa = checks![Zrwa:
        a_zrwa_is_allocated_by_opening_an_empty_zone_and_is_reported,
        a_zrwa_is_written_and_overwritten_in_any_order,
        a_write_out_of_the_range_of_a_zrwa_is_refused,
        a_write_beyond_a_zrwa_commits_as_much_as_it_needs,
        a_zrwa_is_committed_up_to_a_block_that_ends_a_granule,
        a_commit_elsewhere_is_refused,
        a_zone_with_a_zrwa_refuses_appends,
        a_zrwa_is_only_for_empty_zones,
        the_number_of_zrwas_is_limited,
        a_zone_is_filled_through_its_zrwa,
        the_contents_of_a_zrwa_stay_readable_when_the_zone_is_finished,
        a_zone_without_a_zrwa_has_nothing_to_commit,
        setting_a_descriptor_extension_may_allocate_a_zrwa,
    ];
    let others = checks![ZrwaWithoutFlush: an_explicit_commit_is_refused_if_the_namespace_does_not_allow_it];
    let none = checks![Full: a_namespace_without_zrwas_refuses_to_allocate_one];
    zrwa.into_iter().chain(others).chain(none).collect()
}

const OPEN: ZoneAction = ZoneAction::Open { zrwa: true };

/// Blocks of an area, and of a granule.
fn sizes(rig: &Rig) -> (u64, u64) {
    let zrwa = rig.geometry.zrwa.expect("the shape has ZRWAs");
    (zrwa.size_blocks.0, zrwa.flush_granularity_blocks.0)
}

fn flush(rig: &mut Rig, zone: u32, block: u64, status: Status) -> Verdict {
    let target = ZoneTarget::Zone(rig.lba(zone, block));
    rig.expect(Operation::ManageZones { action: ZoneAction::FlushZrwa, target }, status)
}

fn a_zrwa_is_allocated_by_opening_an_empty_zone_and_is_reported(rig: &mut Rig) -> Verdict {
    rig.manage(OPEN, 0, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(0))?;
    ensure!(rig.zone(0)?.attributes.zrwa_valid, "the zone is not reported to have a ZRWA");
    rig.manage(ZoneAction::Open { zrwa: false }, 1, Status::Success)?;
    ensure!(!rig.zone(1)?.attributes.zrwa_valid, "a zone opened without a ZRWA is reported to have one");
    rig.manage(ZoneAction::Reset, 0, Status::Success)?;
    ensure!(!rig.zone(0)?.attributes.zrwa_valid, "a zone that was reset is reported to have a ZRWA");
    Ok(())
}

fn a_zrwa_is_written_and_overwritten_in_any_order(rig: &mut Rig) -> Verdict {
    rig.manage(OPEN, 0, Status::Success)?;
    rig.write(0, 2, 2, 20, Status::Success)?;
    rig.write(0, 0, 1, 10, Status::Success)?;
    rig.write(0, 2, 1, 90, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(0))?;
    rig.expect_blocks(0, 0, &[10, 0, 90, 21])
}

fn a_write_out_of_the_range_of_a_zrwa_is_refused(rig: &mut Rig) -> Verdict {
    let (size, granularity) = sizes(rig);
    rig.manage(OPEN, 0, Status::Success)?;
    rig.write(0, 2 * size, 1, 1, Status::ZoneInvalidWrite)?;
    rig.write(0, 2 * size - 1, 2, 1, Status::ZoneInvalidWrite)?;
    rig.write(0, granularity - 1, 1, 1, Status::Success)?;
    flush(rig, 0, granularity - 1, Status::Success)?;
    rig.write(0, granularity - 1, 1, 1, Status::ZoneInvalidWrite)
}

fn a_write_beyond_a_zrwa_commits_as_much_as_it_needs(rig: &mut Rig) -> Verdict {
    let (size, granularity) = sizes(rig);
    rig.manage(OPEN, 0, Status::Success)?;
    rig.write(0, size, 1, 7, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(granularity))?;
    rig.write(0, size + granularity, 1, 8, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(2 * granularity))?;
    rig.expect_blocks(0, size, &[7])?;
    rig.expect_blocks(0, size + granularity, &[8])
}

fn a_zrwa_is_committed_up_to_a_block_that_ends_a_granule(rig: &mut Rig) -> Verdict {
    let (_, granularity) = sizes(rig);
    rig.manage(OPEN, 0, Status::Success)?;
    rig.write(0, 0, 1, 7, Status::Success)?;
    flush(rig, 0, granularity - 1, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(granularity))?;
    rig.manage(ZoneAction::Close, 0, Status::Success)?;
    flush(rig, 0, 2 * granularity - 1, Status::Success)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(2 * granularity))?;
    rig.expect_blocks(0, 0, &[7, 0])
}

fn a_commit_elsewhere_is_refused(rig: &mut Rig) -> Verdict {
    let (size, granularity) = sizes(rig);
    rig.manage(OPEN, 0, Status::Success)?;
    flush(rig, 0, granularity - 1, Status::Success)?;
    for block in [granularity - 1, granularity, granularity + size] {
        flush(rig, 0, block, Status::InvalidField)?;
    }
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(granularity))
}

fn a_zone_with_a_zrwa_refuses_appends(rig: &mut Rig) -> Verdict {
    rig.manage(OPEN, 0, Status::Success)?;
    rig.append(0, 1, 1, Status::InvalidZoneOperation)
}

fn a_zrwa_is_only_for_empty_zones(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 1, 1)?;
    rig.manage(OPEN, 0, Status::InvalidZoneOperation)?;
    rig.manage(ZoneAction::Finish, 0, Status::Success)?;
    rig.manage(OPEN, 0, Status::InvalidZoneOperation)?;
    rig.manage(OPEN, 1, Status::Success)?;
    rig.manage(OPEN, 1, Status::InvalidZoneOperation)
}

fn the_number_of_zrwas_is_limited(rig: &mut Rig) -> Verdict {
    for zone in 0..2 {
        rig.manage(OPEN, zone, Status::Success)?;
        rig.manage(ZoneAction::Close, zone, Status::Success)?;
    }
    rig.manage(OPEN, 2, Status::ZrwaResourcesUnavailable)?;
    rig.expect_zone(2, ZoneState::Empty, Some(0))?;
    rig.manage(ZoneAction::Finish, 0, Status::Success)?;
    rig.manage(OPEN, 2, Status::Success)
}

fn a_zone_is_filled_through_its_zrwa(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.manage(OPEN, 0, Status::Success)?;
    rig.fill(0, 0, capacity, 100)?;
    let (size, _) = sizes(rig);
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(capacity - size))?;
    rig.write(0, capacity - 1, 2, 7, Status::ZoneBoundaryError)?;
    flush(rig, 0, capacity - 1, Status::Success)?;
    rig.expect_zone(0, ZoneState::Full, None)?;
    rig.expect_blocks(0, capacity - 2, &[100 + capacity - 2, 100 + capacity - 1])
}

fn the_contents_of_a_zrwa_stay_readable_when_the_zone_is_finished(rig: &mut Rig) -> Verdict {
    rig.manage(OPEN, 0, Status::Success)?;
    rig.write(0, 1, 1, 33, Status::Success)?;
    rig.manage(ZoneAction::Finish, 0, Status::Success)?;
    rig.expect_zone(0, ZoneState::Full, None)?;
    rig.expect_blocks(0, 0, &[0, 33, 0])
}

fn a_zone_without_a_zrwa_has_nothing_to_commit(rig: &mut Rig) -> Verdict {
    let (_, granularity) = sizes(rig);
    rig.fill(0, 0, 1, 1)?;
    flush(rig, 0, granularity, Status::InvalidZoneOperation)?;
    rig.manage(ZoneAction::Finish, 0, Status::Success)?;
    flush(rig, 0, granularity, Status::ZoneIsFull)
}

fn setting_a_descriptor_extension_may_allocate_a_zrwa(rig: &mut Rig) -> Verdict {
    let extension = vec![4; rig.geometry.descriptor_extension_bytes as usize].into();
    rig.manage(ZoneAction::SetDescriptorExtension { extension, zrwa: true }, 0, Status::Success)?;
    rig.expect_zone(0, ZoneState::Closed, Some(0))?;
    let attributes = rig.zone(0)?.attributes;
    ensure!(attributes.zrwa_valid && attributes.extension_valid, "{attributes:?}");
    rig.write(0, 1, 1, 6, Status::Success)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(0))
}

fn an_explicit_commit_is_refused_if_the_namespace_does_not_allow_it(rig: &mut Rig) -> Verdict {
    let (_, granularity) = sizes(rig);
    rig.manage(OPEN, 0, Status::Success)?;
    flush(rig, 0, granularity - 1, Status::InvalidField)
}

fn a_namespace_without_zrwas_refuses_to_allocate_one(rig: &mut Rig) -> Verdict {
    rig.manage(OPEN, 0, Status::InvalidField)?;
    flush(rig, 0, 0, Status::InvalidField)?;
    rig.expect_zone(0, ZoneState::Empty, Some(0))
}
