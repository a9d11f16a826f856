//! Zones whose medium fails.

use zonda_zoned::{Blocks, ChangedZoneList, LbaRange, Operation, Outcome, Status, ZoneAction, ZoneState};

use super::{Check, checks};
use crate::rig::{Rig, Verdict, ensure};

pub(super) fn checks() -> Vec<Check> {
    checks![Full:
        a_read_only_zone_is_read_and_refuses_everything_else,
        an_offline_zone_refuses_everything_and_has_lost_its_contents,
        a_degraded_zone_releases_its_resources,
        a_read_only_zone_goes_offline,
        zones_that_degraded_are_listed_once,
        a_read_into_an_offline_zone_is_refused,
    ]
    .into()
}

fn deallocate(rig: &Rig, zone: u32) -> Operation {
    Operation::Deallocate { ranges: [LbaRange { start: rig.lba(zone, 0), blocks: Blocks(1) }].into() }
}

fn refuses(rig: &mut Rig, zone: u32, status: Status) -> Verdict {
    rig.write(zone, 2, 1, 1, status)?;
    rig.append(zone, 1, 1, status)?;
    rig.expect(Operation::WriteZeroes { start: rig.lba(zone, 2), blocks: Blocks(1) }, status)?;
    rig.expect(deallocate(rig, zone), status)?;
    for action in [ZoneAction::Reset, ZoneAction::Finish, ZoneAction::Close, ZoneAction::Open { zrwa: false }] {
        rig.manage(action, zone, Status::InvalidZoneStateTransition)?;
    }
    Ok(())
}

fn a_read_only_zone_is_read_and_refuses_everything_else(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 2, 30)?;
    rig.degrade(0, ZoneState::ReadOnly)?;
    rig.expect_zone(0, ZoneState::ReadOnly, None)?;
    refuses(rig, 0, Status::ZoneIsReadOnly)?;
    rig.expect_blocks(0, 0, &[30, 31, 0])
}

fn an_offline_zone_refuses_everything_and_has_lost_its_contents(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 2, 30)?;
    rig.degrade(0, ZoneState::Offline)?;
    rig.expect_zone(0, ZoneState::Offline, None)?;
    refuses(rig, 0, Status::ZoneIsOffline)?;
    rig.expect(Operation::Read { start: rig.lba(0, 0), blocks: Blocks(1) }, Status::ZoneIsOffline)
}

fn a_degraded_zone_releases_its_resources(rig: &mut Rig) -> Verdict {
    for zone in 0..3 {
        rig.write(zone, 0, 1, 1, Status::Success)?;
    }
    rig.degrade(0, ZoneState::ReadOnly)?;
    rig.degrade(1, ZoneState::Offline)?;
    rig.write(3, 0, 1, 1, Status::Success)?;
    rig.write(4, 0, 1, 1, Status::Success)?;
    rig.write(5, 0, 1, 1, Status::TooManyActiveZones)
}

fn a_read_only_zone_goes_offline(rig: &mut Rig) -> Verdict {
    rig.degrade(0, ZoneState::ReadOnly)?;
    rig.degrade(1, ZoneState::ReadOnly)?;
    rig.manage(ZoneAction::Offline, 0, Status::Success)?;
    rig.manage(ZoneAction::Offline, 0, Status::Success)?;
    rig.expect_zone(0, ZoneState::Offline, None)?;
    rig.expect_zone(1, ZoneState::ReadOnly, None)?;
    rig.manage_all(ZoneAction::Offline, Status::Success)?;
    rig.expect_zone(1, ZoneState::Offline, None)
}

fn zones_that_degraded_are_listed_once(rig: &mut Rig) -> Verdict {
    rig.degrade(5, ZoneState::ReadOnly)?;
    rig.degrade(2, ZoneState::Offline)?;
    let expected = ChangedZoneList { overflowed: false, zones: vec![rig.index(2), rig.index(5)] };
    for expected in [expected, ChangedZoneList::default()] {
        let outcome = rig.run(Operation::ReadChangedZones)?.outcome;
        ensure!(outcome == Outcome::ChangedZones(Box::new(expected.clone())), "{outcome:?}, not {expected:?}");
    }
    Ok(())
}

fn a_read_into_an_offline_zone_is_refused(rig: &mut Rig) -> Verdict {
    rig.degrade(1, ZoneState::Offline)?;
    let last = rig.geometry.zone_size_blocks.0 - 1;
    rig.expect(Operation::Read { start: rig.lba(0, last), blocks: Blocks(2) }, Status::ZoneIsOffline)
}
