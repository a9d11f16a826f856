//! Active and open resources (2.1.1.4). The namespace has three active and two open zones.

use zonda_zoned::{Status, ZoneAction, ZoneState};

use super::{Check, checks};
use crate::rig::{Rig, Verdict};

pub(super) fn checks() -> Vec<Check> {
    checks![Full:
        no_more_zones_become_active_than_the_limit_allows,
        a_zone_that_becomes_full_or_empty_releases_its_active_resource,
        the_zone_that_has_been_implicitly_opened_the_longest_is_closed_to_free_a_resource,
        an_explicitly_opened_zone_is_never_closed_to_free_a_resource,
        a_zone_opened_explicitly_leaves_the_order_of_the_implicitly_opened,
        a_refused_opening_closes_no_zone,
    ]
    .into()
}

const OPEN: ZoneAction = ZoneAction::Open { zrwa: false };

fn no_more_zones_become_active_than_the_limit_allows(rig: &mut Rig) -> Verdict {
    for zone in 0..3 {
        rig.write(zone, 0, 1, 1, Status::Success)?;
    }
    rig.write(3, 0, 1, 1, Status::TooManyActiveZones)?;
    rig.append(3, 1, 1, Status::TooManyActiveZones)?;
    rig.manage(OPEN, 3, Status::TooManyActiveZones)?;
    let extension = vec![1; rig.geometry.descriptor_extension_bytes as usize].into();
    rig.manage(ZoneAction::SetDescriptorExtension { extension, zrwa: false }, 3, Status::TooManyActiveZones)?;
    rig.expect_zone(3, ZoneState::Empty, Some(0))?;
    rig.manage(ZoneAction::Finish, 3, Status::Success)?;
    rig.write(1, 1, 1, 2, Status::Success)
}

fn a_zone_that_becomes_full_or_empty_releases_its_active_resource(rig: &mut Rig) -> Verdict {
    for zone in 0..3 {
        rig.write(zone, 0, 1, 1, Status::Success)?;
    }
    rig.manage(ZoneAction::Finish, 0, Status::Success)?;
    rig.write(3, 0, 1, 1, Status::Success)?;
    rig.manage(ZoneAction::Reset, 1, Status::Success)?;
    rig.write(4, 0, 1, 1, Status::Success)?;
    let capacity = rig.capacity();
    rig.fill(2, 1, capacity, 50)?;
    rig.write(5, 0, 1, 1, Status::Success)?;
    rig.write(6, 0, 1, 1, Status::TooManyActiveZones)
}

fn the_zone_that_has_been_implicitly_opened_the_longest_is_closed_to_free_a_resource(rig: &mut Rig) -> Verdict {
    rig.write(0, 0, 1, 1, Status::Success)?;
    rig.write(1, 0, 1, 1, Status::Success)?;
    rig.write(0, 1, 1, 1, Status::Success)?;
    rig.write(2, 0, 1, 1, Status::Success)?;
    rig.expect_zone(0, ZoneState::Closed, Some(2))?;
    rig.expect_zone(1, ZoneState::ImplicitlyOpened, Some(1))?;
    rig.write(0, 2, 1, 1, Status::Success)?;
    rig.expect_zone(1, ZoneState::Closed, Some(1))?;
    rig.expect_zone(2, ZoneState::ImplicitlyOpened, Some(1))
}

fn an_explicitly_opened_zone_is_never_closed_to_free_a_resource(rig: &mut Rig) -> Verdict {
    rig.manage(OPEN, 0, Status::Success)?;
    rig.write(1, 0, 1, 1, Status::Success)?;
    rig.manage(OPEN, 2, Status::Success)?;
    rig.expect_zone(1, ZoneState::Closed, Some(1))?;
    rig.write(1, 1, 1, 1, Status::TooManyOpenZones)?;
    rig.append(1, 1, 1, Status::TooManyOpenZones)?;
    rig.manage(OPEN, 1, Status::TooManyOpenZones)?;
    rig.expect_zone(1, ZoneState::Closed, Some(1))?;
    rig.manage(ZoneAction::Close, 0, Status::Success)?;
    rig.write(1, 1, 1, 1, Status::Success)
}

fn a_zone_opened_explicitly_leaves_the_order_of_the_implicitly_opened(rig: &mut Rig) -> Verdict {
    rig.write(0, 0, 1, 1, Status::Success)?;
    rig.write(1, 0, 1, 1, Status::Success)?;
    rig.manage(OPEN, 0, Status::Success)?;
    rig.write(2, 0, 1, 1, Status::Success)?;
    rig.expect_zone(0, ZoneState::ExplicitlyOpened, Some(1))?;
    rig.expect_zone(1, ZoneState::Closed, Some(1))
}

fn a_refused_opening_closes_no_zone(rig: &mut Rig) -> Verdict {
    for zone in 0..3 {
        rig.write(zone, 0, 1, 1, Status::Success)?;
    }
    rig.write(3, 0, 1, 1, Status::TooManyActiveZones)?;
    rig.write(0, 0, 1, 1, Status::ZoneInvalidWrite)?;
    rig.expect_zone(0, ZoneState::Closed, Some(1))?;
    rig.expect_zone(1, ZoneState::ImplicitlyOpened, Some(1))?;
    rig.expect_zone(2, ZoneState::ImplicitlyOpened, Some(1))
}
