//! Zone Descriptor Extensions (3.4.3, Set Zone Descriptor Extension; 3.4.2, Extended Report Zones).

use zonda_zoned::{ReportFilter, Status, ZoneAction, ZoneState};

use super::{Check, checks};
use crate::rig::{Rig, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    let full = checks![Full:
        a_descriptor_extension_closes_an_empty_zone_and_is_reported,
        a_descriptor_extension_is_for_empty_zones_and_has_one_length,
        a_descriptor_extension_stays_until_the_zone_is_reset,
    ];
    full.into_iter().chain(checks![Bare: a_namespace_without_descriptor_extensions_refuses_them]).collect()
}

fn set(bytes: Vec<u8>) -> ZoneAction {
    ZoneAction::SetDescriptorExtension { extension: bytes.into(), zrwa: false }
}

fn bytes(rig: &Rig) -> Vec<u8> {
    (0..rig.geometry.descriptor_extension_bytes).map(|place| place as u8 + 3).collect()
}

fn expect_extension(rig: &mut Rig, zone: u32, expected: &[u8], is_valid: bool) -> Verdict {
    let report = rig.report(rig.lba(zone, 0), ReportFilter::All, true, true, 1)?;
    let got = report.zones.first().and_then(|zone| zone.extension.clone());
    ensure!(got.as_deref() == Some(expected), "the extension of zone {zone} is {got:?}");
    let is_shown = report.zones[0].attributes.extension_valid;
    ensure!(is_shown == is_valid, "the attribute of a valid extension is {is_shown}");
    Ok(())
}

fn a_descriptor_extension_closes_an_empty_zone_and_is_reported(rig: &mut Rig) -> Verdict {
    let bytes = bytes(rig);
    rig.manage(set(bytes.clone()), 2, Status::Success)?;
    rig.expect_zone(2, ZoneState::Closed, Some(0))?;
    expect_extension(rig, 2, &bytes, true)?;
    expect_extension(rig, 1, &vec![0; bytes.len()], false)
}

fn a_descriptor_extension_is_for_empty_zones_and_has_one_length(rig: &mut Rig) -> Verdict {
    let bytes = bytes(rig);
    rig.fill(0, 0, 1, 1)?;
    rig.manage(set(bytes.clone()), 0, Status::InvalidZoneStateTransition)?;
    rig.manage(ZoneAction::Finish, 1, Status::Success)?;
    rig.manage(set(bytes.clone()), 1, Status::InvalidZoneStateTransition)?;
    rig.manage(set([bytes.clone(), bytes].concat()), 2, Status::InvalidField)?;
    rig.expect_zone(2, ZoneState::Empty, Some(0))
}

fn a_descriptor_extension_stays_until_the_zone_is_reset(rig: &mut Rig) -> Verdict {
    let bytes = bytes(rig);
    rig.manage(set(bytes.clone()), 0, Status::Success)?;
    rig.fill(0, 0, 2, 5)?;
    expect_extension(rig, 0, &bytes, true)?;
    rig.manage(ZoneAction::Finish, 0, Status::Success)?;
    expect_extension(rig, 0, &bytes, true)?;
    rig.manage(ZoneAction::Reset, 0, Status::Success)?;
    expect_extension(rig, 0, &vec![0; bytes.len()], false)
}

fn a_namespace_without_descriptor_extensions_refuses_them(rig: &mut Rig) -> Verdict {
    rig.manage(set(vec![1; 64]), 0, Status::InvalidField)
}
