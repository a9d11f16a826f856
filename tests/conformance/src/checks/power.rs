//! Power cycles while no command is in flight, or closing and reopening of a device.

use zonda_zoned::{ReportFilter, Status, ZoneAction, ZoneState};

use super::{Check, checks, marks};
use crate::rig::{Rig, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    let full = checks![Full:
        after_a_power_loss_open_zones_are_closed_and_other_zones_unchanged,
        a_zone_that_was_only_opened_is_empty_after_a_power_loss,
        a_zone_that_was_closed_before_a_write_stays_closed_after_a_power_loss,
        contents_survive_a_power_loss,
        resets_survive_a_power_loss,
        descriptor_extensions_survive_a_power_loss,
        writes_continue_after_a_power_loss,
    ];
    full.into_iter()
        .chain(checks![Zrwa: a_zrwa_and_its_contents_survive_a_power_loss])
        .chain(checks![Conventional: conventional_zones_survive_a_power_loss])
        .collect()
}

const OPEN: ZoneAction = ZoneAction::Open { zrwa: false };

fn after_a_power_loss_open_zones_are_closed_and_other_zones_unchanged(rig: &mut Rig) -> Verdict {
    rig.fill(2, 0, 3, 1)?;
    rig.manage(ZoneAction::Close, 2, Status::Success)?;
    rig.fill(0, 0, 1, 1)?;
    rig.manage(OPEN, 1, Status::Success)?;
    rig.fill(1, 0, 2, 1)?;
    rig.manage(ZoneAction::Finish, 3, Status::Success)?;
    rig.cycle_power()?;
    for (zone, pointer) in [(0, 1), (1, 2), (2, 3)] {
        rig.expect_zone(zone, ZoneState::Closed, Some(pointer))?;
    }
    rig.expect_zone(3, ZoneState::Full, None)?;
    rig.expect_zone(4, ZoneState::Empty, Some(0))
}

fn a_zone_that_was_only_opened_is_empty_after_a_power_loss(rig: &mut Rig) -> Verdict {
    rig.manage(OPEN, 0, Status::Success)?;
    rig.cycle_power()?;
    rig.expect_zone(0, ZoneState::Empty, Some(0))
}

fn a_zone_that_was_closed_before_a_write_stays_closed_after_a_power_loss(rig: &mut Rig) -> Verdict {
    rig.remembers_untouched_zones()?;
    rig.manage(OPEN, 1, Status::Success)?;
    rig.manage(ZoneAction::Close, 1, Status::Success)?;
    rig.cycle_power()?;
    rig.expect_zone(1, ZoneState::Closed, Some(0))
}

fn contents_survive_a_power_loss(rig: &mut Rig) -> Verdict {
    let capacity = rig.capacity();
    rig.fill(0, 0, capacity, 100)?;
    rig.fill(1, 0, 3, 500)?;
    rig.cycle_power()?;
    rig.expect_blocks(0, 0, &marks(100, capacity))?;
    rig.expect_blocks(1, 0, &[500, 501, 502, 0])
}

fn resets_survive_a_power_loss(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 4, 100)?;
    rig.manage(ZoneAction::Reset, 0, Status::Success)?;
    rig.cycle_power()?;
    rig.expect_zone(0, ZoneState::Empty, Some(0))?;
    rig.expect_blocks(0, 0, &[0; 4])?;
    rig.fill(0, 0, 1, 7)?;
    rig.cycle_power()?;
    rig.expect_blocks(0, 0, &[7, 0, 0, 0])
}

fn descriptor_extensions_survive_a_power_loss(rig: &mut Rig) -> Verdict {
    let bytes = vec![8; rig.geometry.descriptor_extension_bytes as usize];
    let set = ZoneAction::SetDescriptorExtension { extension: bytes.clone().into(), zrwa: false };
    rig.manage(set, 0, Status::Success)?;
    rig.manage(OPEN, 0, Status::Success)?;
    rig.cycle_power()?;
    rig.expect_zone(0, ZoneState::Closed, Some(0))?;
    let report = rig.report(rig.lba(0, 0), ReportFilter::All, true, true, 1)?;
    ensure!(report.zones[0].extension.as_deref() == Some(&bytes[..]), "{:?}", report.zones[0]);
    Ok(())
}

fn writes_continue_after_a_power_loss(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 2, 10)?;
    rig.cycle_power()?;
    rig.write(0, 0, 1, 1, Status::ZoneInvalidWrite)?;
    rig.fill(0, 2, 5, 50)?;
    rig.expect_zone(0, ZoneState::ImplicitlyOpened, Some(5))?;
    rig.cycle_power()?;
    rig.expect_blocks(0, 0, &[10, 11, 50, 51, 52, 0])
}

fn a_zrwa_and_its_contents_survive_a_power_loss(rig: &mut Rig) -> Verdict {
    rig.manage(ZoneAction::Open { zrwa: true }, 0, Status::Success)?;
    rig.write(0, 1, 1, 60, Status::Success)?;
    rig.cycle_power()?;
    rig.expect_zone(0, ZoneState::Closed, Some(0))?;
    ensure!(rig.zone(0)?.attributes.zrwa_valid, "the ZRWA was lost");
    rig.expect_blocks(0, 0, &[0, 60, 0])?;
    rig.write(0, 0, 2, 80, Status::Success)?;
    rig.expect_blocks(0, 0, &[80, 81, 0])
}

pub(super) fn conventional_zones_survive_a_power_loss(rig: &mut Rig) -> Verdict {
    let start = zonda_zoned::Lba(rig.geometry.zone_size_blocks.0 + 3);
    rig.expect(rig.write_at(start, 2, 40), Status::Success)?;
    rig.cycle_power()?;
    rig.expect_marks(start, &[40, 41, 0])
}
