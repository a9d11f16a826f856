//! Conventional zones: the first three of the namespace, before sequential ones. Helpers of the rig
//! count zones after them.

use zonda_zoned::{Blocks, Lba, Operation, ReportFilter, Status, ZoneAction, ZoneState, ZoneTarget, ZoneType};

use super::{Check, checks};
use crate::rig::{Rig, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    checks![Conventional:
        a_conventional_zone_has_no_write_pointer_and_no_state_to_change,
        a_conventional_zone_is_written_and_overwritten_anywhere,
        a_write_may_cross_conventional_zones,
        a_write_may_not_leave_conventional_zones,
        a_read_within_conventional_zones_crosses_no_boundary,
        a_read_may_not_leave_conventional_zones,
        a_conventional_zone_refuses_appends_and_zone_actions,
        an_action_on_all_zones_skips_conventional_ones,
        conventional_zones_support_write_zeroes_and_deallocation,
        conventional_zones_use_no_resources,
    ]
    .into()
}

/// A block of a conventional zone.
fn lba(rig: &Rig, zone: u64, block: u64) -> Lba {
    Lba(zone * rig.geometry.zone_size_blocks.0 + block)
}

fn write(rig: &mut Rig, start: Lba, blocks: u64, mark: u64, status: Status) -> Verdict {
    let operation = rig.write_at(start, blocks, mark);
    rig.expect(operation, status)
}

fn a_conventional_zone_has_no_write_pointer_and_no_state_to_change(rig: &mut Rig) -> Verdict {
    let start = lba(rig, 1, 3);
    write(rig, start, 1, 5, Status::Success)?;
    let report = rig.report(Lba(0), ReportFilter::All, false, true, 4)?;
    for zone in &report.zones[..3] {
        ensure!(
            zone.zone_type == ZoneType::Conventional
                && zone.state == ZoneState::NotWritePointer
                && zone.write_pointer.is_none(),
            "a conventional zone is reported as {zone:?}"
        );
    }
    let first = &report.zones[3];
    ensure!(first.zone_type == ZoneType::SequentialWriteRequired && first.state == ZoneState::Empty, "{first:?}");
    Ok(())
}

pub(super) fn a_conventional_zone_is_written_and_overwritten_anywhere(rig: &mut Rig) -> Verdict {
    let start = lba(rig, 1, 0);
    rig.expect_marks(start, &[0; 8])?;
    write(rig, start + Blocks(5), 2, 50, Status::Success)?;
    write(rig, start + Blocks(1), 2, 10, Status::Success)?;
    write(rig, start + Blocks(6), 1, 90, Status::Success)?;
    rig.expect_marks(start, &[0, 10, 11, 0, 0, 50, 90, 0])
}

pub(super) fn a_write_may_cross_conventional_zones(rig: &mut Rig) -> Verdict {
    let size = rig.geometry.zone_size_blocks.0;
    let start = lba(rig, 0, size - 2);
    write(rig, start, 4, 30, Status::Success)?;
    rig.expect_marks(start, &[30, 31])?;
    rig.expect_marks(start + Blocks(2), &[32, 33])
}

fn a_write_may_not_leave_conventional_zones(rig: &mut Rig) -> Verdict {
    let size = rig.geometry.zone_size_blocks.0;
    let end = lba(rig, 2, size - 2);
    write(rig, end, 3, 60, Status::ZoneBoundaryError)?;
    rig.expect_marks(end, &[0, 0])?;
    write(rig, end, 2, 60, Status::Success)
}

pub(super) fn a_read_within_conventional_zones_crosses_no_boundary(rig: &mut Rig) -> Verdict {
    let size = rig.geometry.zone_size_blocks.0;
    let start = lba(rig, 0, size - 1);
    write(rig, start, 2, 30, Status::Success)?;
    rig.expect_marks(start, &[30, 31, 0])
}

fn a_read_may_not_leave_conventional_zones(rig: &mut Rig) -> Verdict {
    rig.forbids_reads_across_zones()?;
    let size = rig.geometry.zone_size_blocks.0;
    let end = lba(rig, 2, size - 1);
    rig.expect(Operation::Read { start: end, blocks: Blocks(2) }, Status::ZoneBoundaryError)
}

pub(super) fn a_conventional_zone_refuses_appends_and_zone_actions(rig: &mut Rig) -> Verdict {
    let start = lba(rig, 1, 0);
    let append = Operation::Append { zone_start: start, blocks: Blocks(1), payload: rig.payload(1, 1) };
    rig.expect(append, Status::InvalidField)?;
    for action in [ZoneAction::Reset, ZoneAction::Finish, ZoneAction::Close, ZoneAction::Open { zrwa: false }] {
        rig.expect(Operation::ManageZones { action, target: ZoneTarget::Zone(start) }, Status::InvalidField)?;
    }
    Ok(())
}

fn an_action_on_all_zones_skips_conventional_ones(rig: &mut Rig) -> Verdict {
    let start = lba(rig, 1, 0);
    write(rig, start, 2, 30, Status::Success)?;
    rig.fill(0, 0, 2, 70)?;
    rig.manage_all(ZoneAction::Reset, Status::Success)?;
    rig.expect_marks(start, &[30, 31])?;
    rig.expect_blocks(0, 0, &[0, 0])
}

pub(super) fn conventional_zones_support_write_zeroes_and_deallocation(rig: &mut Rig) -> Verdict {
    let start = lba(rig, 1, 0);
    write(rig, start, 6, 30, Status::Success)?;
    rig.expect(Operation::WriteZeroes { start: start + Blocks(1), blocks: Blocks(2) }, Status::Success)?;
    let ranges = [zonda_zoned::LbaRange { start: start + Blocks(4), blocks: Blocks(1) }].into();
    rig.expect(Operation::Deallocate { ranges }, Status::Success)?;
    rig.expect_marks(start, &[30, 0, 0, 33, 0, 35])?;
    write(rig, start + Blocks(4), 1, 80, Status::Success)?;
    rig.expect_marks(start + Blocks(3), &[33, 80, 35])
}

fn conventional_zones_use_no_resources(rig: &mut Rig) -> Verdict {
    rig.has_limits()?;
    for zone in 0..3 {
        let start = lba(rig, zone, 0);
        write(rig, start, 1, 5, Status::Success)?;
    }
    for zone in 0..3 {
        rig.write(zone, 0, 1, 1, Status::Success)?;
    }
    rig.write(3, 0, 1, 1, Status::TooManyActiveZones)?;
    let start = lba(rig, 2, 5);
    write(rig, start, 1, 5, Status::Success)
}
