//! Zone Management Send with Select All.

use zonda_zoned::{Status, ZoneAction, ZoneState};

use super::{Check, checks};
use crate::rig::{Rig, Verdict};

pub(super) fn checks() -> Vec<Check> {
    checks![Full:
        close_all_closes_the_open_zones,
        finish_all_finishes_the_active_zones_and_not_the_empty_ones,
        reset_all_empties_the_active_and_full_zones,
        open_all_opens_the_closed_zones,
        open_all_opens_none_if_the_limit_does_not_allow_all,
        an_action_on_all_of_no_zones_is_a_success,
        extensions_and_zrwas_are_for_one_zone_at_a_time,
    ]
    .into()
}

/// Zone 0 implicitly opened, zone 1 closed, zone 2 full, zone 3 explicitly opened, the others
/// empty.
fn mixed(rig: &mut Rig) -> Verdict {
    rig.fill(1, 0, 1, 2)?;
    rig.manage(ZoneAction::Close, 1, Status::Success)?;
    rig.manage(ZoneAction::Finish, 2, Status::Success)?;
    rig.fill(0, 0, 1, 1)?;
    rig.manage(ZoneAction::Open { zrwa: false }, 3, Status::Success)
}

fn states(rig: &mut Rig, expected: [(ZoneState, Option<u64>); 5]) -> Verdict {
    for (zone, (state, pointer)) in expected.into_iter().enumerate() {
        rig.expect_zone(zone as u32, state, pointer)?;
    }
    Ok(())
}

const EMPTY: (ZoneState, Option<u64>) = (ZoneState::Empty, Some(0));
const FULL: (ZoneState, Option<u64>) = (ZoneState::Full, None);

fn close_all_closes_the_open_zones(rig: &mut Rig) -> Verdict {
    mixed(rig)?;
    rig.manage_all(ZoneAction::Close, Status::Success)?;
    let closed = |pointer| (ZoneState::Closed, Some(pointer));
    states(rig, [closed(1), closed(1), FULL, closed(0), EMPTY])
}

fn finish_all_finishes_the_active_zones_and_not_the_empty_ones(rig: &mut Rig) -> Verdict {
    mixed(rig)?;
    rig.manage_all(ZoneAction::Finish, Status::Success)?;
    states(rig, [FULL, FULL, FULL, FULL, EMPTY])
}

fn reset_all_empties_the_active_and_full_zones(rig: &mut Rig) -> Verdict {
    mixed(rig)?;
    rig.manage_all(ZoneAction::Reset, Status::Success)?;
    states(rig, [EMPTY; 5])?;
    rig.expect_blocks(0, 0, &[0])
}

fn open_all_opens_the_closed_zones(rig: &mut Rig) -> Verdict {
    rig.fill(0, 0, 1, 1)?;
    rig.fill(1, 0, 1, 2)?;
    rig.manage(ZoneAction::Close, 1, Status::Success)?;
    rig.manage_all(ZoneAction::Open { zrwa: false }, Status::Success)?;
    let (implicit, explicit) = ((ZoneState::ImplicitlyOpened, Some(1)), (ZoneState::ExplicitlyOpened, Some(1)));
    states(rig, [implicit, explicit, EMPTY, EMPTY, EMPTY])
}

fn open_all_opens_none_if_the_limit_does_not_allow_all(rig: &mut Rig) -> Verdict {
    mixed(rig)?;
    rig.manage_all(ZoneAction::Open { zrwa: false }, Status::TooManyOpenZones)?;
    rig.expect_zone(1, ZoneState::Closed, Some(1))
}

fn an_action_on_all_of_no_zones_is_a_success(rig: &mut Rig) -> Verdict {
    for action in [
        ZoneAction::Close,
        ZoneAction::Finish,
        ZoneAction::Open { zrwa: false },
        ZoneAction::Reset,
        ZoneAction::Offline,
    ] {
        rig.manage_all(action, Status::Success)?;
    }
    states(rig, [EMPTY; 5])
}

fn extensions_and_zrwas_are_for_one_zone_at_a_time(rig: &mut Rig) -> Verdict {
    let extension = vec![1; rig.geometry.descriptor_extension_bytes as usize].into();
    rig.manage_all(ZoneAction::SetDescriptorExtension { extension, zrwa: false }, Status::InvalidField)?;
    rig.manage_all(ZoneAction::Open { zrwa: true }, Status::InvalidField)?;
    rig.manage_all(ZoneAction::FlushZrwa, Status::InvalidField)?;
    states(rig, [EMPTY; 5])
}
