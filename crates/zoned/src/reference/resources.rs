//! Resources: which zones may become open or active, counted each time over all zones.

use crate::{Status, ZoneIndex, ZoneState, ZrwaGeometry};

use super::{ReferenceDevice, Zone};

impl ReferenceDevice {
    /// Makes a zone that is not open implicitly opened, if resources allow.
    pub(super) fn open_implicitly(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        if self.zone(zone).state.is_open() {
            return Ok(());
        }
        self.take_resources(zone, false)?;
        let opening = self.implicit_openings;
        self.implicit_openings += 1;
        self.zone_mut(zone).state = ZoneState::ImplicitlyOpened;
        self.zone_mut(zone).implicit_opening = opening;
        Ok(())
    }

    /// Resources 1 to 3 for opening a zone, with a new ZRWA or not; closes another zone if
    /// necessary.
    pub(super) fn take_resources(&mut self, zone: ZoneIndex, new_zrwa: bool) -> Result<(), Status> {
        // 1. Active resources.
        self.require_active_resource(zone)?;
        // 2. Open resources; the zone to close is only chosen here.
        let mut to_close = None;
        let all_open = self.geometry.max_open_zones.is_some_and(|max| self.count(|zone| zone.state.is_open()) >= max);
        if !self.zone(zone).state.is_open() && all_open {
            to_close = self.longest_implicitly_opened();
            if to_close.is_none() {
                return Err(Status::TooManyOpenZones);
            }
        }
        // 3. ZRWAs, before any zone is closed.
        if new_zrwa {
            self.require_zrwa_resource()?;
        }
        if let Some(to_close) = to_close {
            self.zone_mut(to_close).state = ZoneState::Closed;
        }
        Ok(())
    }

    /// Resources 1.
    pub(super) fn require_active_resource(&self, zone: ZoneIndex) -> Result<(), Status> {
        let all_active =
            self.geometry.max_active_zones.is_some_and(|max| self.count(|zone| zone.state.is_active()) >= max);
        if !self.zone(zone).state.is_active() && all_active {
            return Err(Status::TooManyActiveZones);
        }
        Ok(())
    }

    /// Resources 3.
    pub(super) fn require_zrwa_resource(&self) -> Result<(), Status> {
        if self.count(|zone| zone.zrwa) >= self.zrwa_geometry().resources {
            return Err(Status::ZrwaResourcesUnavailable);
        }
        Ok(())
    }

    /// The zone that has been implicitly opened for longest, if any is.
    fn longest_implicitly_opened(&self) -> Option<ZoneIndex> {
        (0..self.geometry.zone_count)
            .map(ZoneIndex)
            .filter(|zone| self.zone(*zone).state == ZoneState::ImplicitlyOpened)
            .min_by_key(|zone| self.zone(*zone).implicit_opening)
    }

    /// The number of zones that match.
    pub(super) fn count(&self, is: impl Fn(&Zone) -> bool) -> u32 {
        self.zones.iter().filter(|zone| is(zone)).count() as u32
    }

    /// The geometry of ZRWAs, which the namespace supports.
    pub(super) fn zrwa_geometry(&self) -> ZrwaGeometry {
        self.geometry.zrwa.expect("only a namespace with ZRWAs has a zone with one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::testing::{append, close, device, manage, open, state, with_zrwa, write};
    use crate::{Geometry, ZoneAction};

    #[test]
    fn the_zone_implicitly_opened_for_longest_is_closed_to_free_an_open_resource() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 16, 1);
        write(&mut device, 0, 1);
        write(&mut device, 17, 1);
        assert_eq!(write(&mut device, 32, 1), Status::Success);
        assert_eq!(state(&device, 1), ZoneState::Closed, "it was opened first, though written last");
        assert_eq!([state(&device, 0), state(&device, 2)], [ZoneState::ImplicitlyOpened; 2]);
    }

    #[test]
    fn a_zone_closed_and_opened_again_goes_to_the_end_of_the_order() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 1);
        write(&mut device, 16, 1);
        close(&mut device, 0);
        write(&mut device, 1, 1);
        write(&mut device, 32, 1);
        assert_eq!([state(&device, 0), state(&device, 1)], [ZoneState::ImplicitlyOpened, ZoneState::Closed]);
    }

    #[test]
    fn explicitly_opened_zones_are_not_closed_to_free_an_open_resource() {
        let mut device = device(Geometry::tiny());
        open(&mut device, 0);
        open(&mut device, 16);
        assert_eq!(write(&mut device, 32, 1), Status::TooManyOpenZones);
        assert_eq!(append(&mut device, 32, 1).status, Status::TooManyOpenZones);
        assert_eq!(open(&mut device, 32), Status::TooManyOpenZones);
        assert_eq!(state(&device, 2), ZoneState::Empty);
    }

    #[test]
    fn a_zone_opened_explicitly_after_a_write_is_no_longer_closed_by_the_controller() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 1);
        write(&mut device, 16, 1);
        assert_eq!(open(&mut device, 0), Status::Success);
        assert_eq!(write(&mut device, 32, 1), Status::Success);
        assert_eq!([state(&device, 0), state(&device, 1)], [ZoneState::ExplicitlyOpened, ZoneState::Closed]);
    }

    #[test]
    fn too_many_active_zones_come_before_too_many_open_ones_and_close_none() {
        let mut device = device(Geometry::tiny());
        for zone in 0..3 {
            write(&mut device, zone * 16, 1);
        }
        let before: Vec<ZoneState> = (0..8).map(|zone| state(&device, zone)).collect();
        assert_eq!(write(&mut device, 48, 1), Status::TooManyActiveZones);
        assert_eq!((0..8).map(|zone| state(&device, zone)).collect::<Vec<_>>(), before);
    }

    #[test]
    fn a_missing_zrwa_resource_is_detected_before_a_zone_is_closed() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        write(&mut device, 16, 1);
        let open_with_zrwa = ZoneAction::Open { zrwa: true };
        assert_eq!(manage(&mut device, open_with_zrwa.clone(), 32), Status::ZrwaResourcesUnavailable);
        assert_eq!(state(&device, 1), ZoneState::ImplicitlyOpened);
        open(&mut device, 16);
        assert_eq!(manage(&mut device, open_with_zrwa, 32), Status::TooManyOpenZones, "which is checked first");
    }

    #[test]
    fn a_full_zone_has_released_its_resources_and_its_zrwa() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        manage(&mut device, ZoneAction::Finish, 0);
        for zone in 1..=3 {
            let zrwa = zone == 1;
            assert_eq!(manage(&mut device, ZoneAction::Open { zrwa }, zone * 16), Status::Success);
            close(&mut device, zone * 16);
        }
    }

    #[test]
    fn without_limits_every_zone_can_be_open() {
        let mut device = device(Geometry { max_active_zones: None, max_open_zones: None, ..Geometry::tiny() });
        for zone in 0..8 {
            assert_eq!(open(&mut device, zone * 16), Status::Success);
        }
    }
}
