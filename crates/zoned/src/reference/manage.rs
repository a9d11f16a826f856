//! ManageZones: one action on one zone, or on all that it applies to.

use crate::{Lba, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use super::ReferenceDevice;

impl ReferenceDevice {
    /// ManageZones.
    pub(super) fn manage(&mut self, action: &ZoneAction, target: ZoneTarget) -> Result<(), Status> {
        let ZoneTarget::Zone(lba) = target else { return self.manage_all(action) };
        // 1. Beyond the namespace.
        let zone = self.geometry.zone_of(lba).ok_or(Status::LbaOutOfRange)?;
        // 2. Not the start of a zone (FlushZrwa: any block will do), or a conventional zone.
        if *action != ZoneAction::FlushZrwa && lba != self.geometry.zone_start(zone) {
            return Err(Status::InvalidField);
        }
        if self.zone(zone).state == ZoneState::NotWritePointer {
            return Err(Status::InvalidField);
        }
        match action {
            ZoneAction::Close => self.close(zone),
            ZoneAction::Finish => self.finish(zone),
            ZoneAction::Open { zrwa: false } => self.open(zone),
            ZoneAction::Open { zrwa: true } => self.open_with_zrwa(zone),
            ZoneAction::Reset => self.reset(zone),
            ZoneAction::Offline => self.offline(zone),
            ZoneAction::SetDescriptorExtension { extension, zrwa } => self.set_extension(zone, extension, *zrwa),
            ZoneAction::FlushZrwa => self.flush_zrwa(zone, lba),
        }
    }

    fn close(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        match self.zone(zone).state {
            ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened => {
                self.zone_mut(zone).state = ZoneState::Closed;
                Ok(())
            }
            ZoneState::Closed => Ok(()),
            _ => Err(Status::InvalidZoneStateTransition),
        }
    }

    fn finish(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        match self.zone(zone).state {
            ZoneState::Empty | ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed => {
                self.become_full(zone);
                Ok(())
            }
            ZoneState::Full => Ok(()),
            _ => Err(Status::InvalidZoneStateTransition),
        }
    }

    fn open(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        match self.zone(zone).state {
            ZoneState::Empty | ZoneState::Closed | ZoneState::ImplicitlyOpened => {
                self.take_resources(zone, false)?;
                self.zone_mut(zone).state = ZoneState::ExplicitlyOpened;
                Ok(())
            }
            ZoneState::ExplicitlyOpened => Ok(()),
            _ => Err(Status::InvalidZoneStateTransition),
        }
    }

    /// Open with `zrwa`.
    fn open_with_zrwa(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        if self.geometry.zrwa.is_none() {
            return Err(Status::InvalidField);
        }
        match self.zone(zone).state {
            ZoneState::Empty => {
                self.take_resources(zone, true)?;
                self.zone_mut(zone).state = ZoneState::ExplicitlyOpened;
                self.zone_mut(zone).zrwa = true;
                Ok(())
            }
            ZoneState::ReadOnly | ZoneState::Offline => Err(Status::InvalidZoneStateTransition),
            _ => Err(Status::InvalidZoneOperation),
        }
    }

    fn reset(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        match self.zone(zone).state {
            ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed | ZoneState::Full => {
                self.become_empty(zone);
                Ok(())
            }
            ZoneState::Empty => Ok(()),
            _ => Err(Status::InvalidZoneStateTransition),
        }
    }

    fn offline(&mut self, zone: ZoneIndex) -> Result<(), Status> {
        match self.zone(zone).state {
            ZoneState::ReadOnly => {
                self.become_offline(zone);
                Ok(())
            }
            ZoneState::Offline => Ok(()),
            _ => Err(Status::InvalidZoneStateTransition),
        }
    }

    /// SetDescriptorExtension.
    fn set_extension(&mut self, zone: ZoneIndex, extension: &[u8], zrwa: bool) -> Result<(), Status> {
        let expected_bytes = self.geometry.descriptor_extension_bytes as usize;
        if expected_bytes == 0 || extension.len() != expected_bytes || (zrwa && self.geometry.zrwa.is_none()) {
            return Err(Status::InvalidField);
        }
        if self.zone(zone).state != ZoneState::Empty {
            return Err(Status::InvalidZoneStateTransition);
        }
        self.require_active_resource(zone)?;
        if zrwa {
            self.require_zrwa_resource()?;
        }
        let zone = self.zone_mut(zone);
        zone.state = ZoneState::Closed;
        zone.extension = Some(extension.into());
        zone.zrwa = zrwa;
        Ok(())
    }

    /// FlushZrwa(block).
    fn flush_zrwa(&mut self, zone: ZoneIndex, block: Lba) -> Result<(), Status> {
        let Some(zrwa) = self.geometry.zrwa else { return Err(Status::InvalidField) };
        if !zrwa.explicit_flush {
            return Err(Status::InvalidField);
        }
        self.refuse_unwritable(zone)?;
        if !self.zone(zone).zrwa {
            return Err(Status::InvalidZoneOperation);
        }
        let write_pointer = self.zone(zone).write_pointer;
        if block < write_pointer || block >= write_pointer + zrwa.size_blocks || block >= self.capacity_end(zone) {
            return Err(Status::InvalidField);
        }
        if !(block.0 + 1 - write_pointer.0).is_multiple_of(zrwa.flush_granularity_blocks.0) {
            return Err(Status::InvalidField);
        }
        self.open_implicitly(zone)?;
        self.move_write_pointer(zone, Lba(block.0 + 1));
        Ok(())
    }

    /// Select All. Conventional zones are in none of the states asked for.
    fn manage_all(&mut self, action: &ZoneAction) -> Result<(), Status> {
        match action {
            ZoneAction::SetDescriptorExtension { .. } | ZoneAction::FlushZrwa | ZoneAction::Open { zrwa: true } => {
                return Err(Status::InvalidField);
            }
            ZoneAction::Open { zrwa: false } => {
                let open_and_closed = self.count(|zone| zone.state.is_open() || zone.state == ZoneState::Closed);
                if self.geometry.max_open_zones.is_some_and(|max| open_and_closed > max) {
                    return Err(Status::TooManyOpenZones);
                }
            }
            _ => {}
        }
        for zone in (0..self.geometry.zone_count).map(ZoneIndex) {
            let state = self.zone(zone).state;
            match action {
                ZoneAction::Close if state.is_open() => self.zone_mut(zone).state = ZoneState::Closed,
                ZoneAction::Finish if state.is_active() => self.become_full(zone),
                ZoneAction::Reset if state.is_active() || state == ZoneState::Full => self.become_empty(zone),
                ZoneAction::Offline if state == ZoneState::ReadOnly => self.become_offline(zone),
                ZoneAction::Open { zrwa: false } if state == ZoneState::Closed => {
                    self.zone_mut(zone).state = ZoneState::ExplicitlyOpened;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::testing::{
        append, close, device, manage, manage_all, open, state, with_conventional, with_zrwa, write, write_pointer,
    };
    use crate::{Blocks, Geometry, ZERO_FINGERPRINT, ZrwaGeometry};
    use ZoneState::{Closed, Empty, ExplicitlyOpened, Full, ImplicitlyOpened, Offline, ReadOnly};

    /// A tiny device whose zone 1 has been brought to a state.
    fn in_state(geometry: Geometry, wanted: ZoneState) -> ReferenceDevice {
        let mut device = device(geometry);
        match wanted {
            Empty => {}
            ImplicitlyOpened => drop(append(&mut device, 16, 2)),
            ExplicitlyOpened => drop(open(&mut device, 16)),
            Closed => {
                append(&mut device, 16, 2);
                close(&mut device, 16);
            }
            Full => drop(manage(&mut device, ZoneAction::Finish, 16)),
            other => device.degrade(ZoneIndex(1), other),
        }
        assert_eq!(state(&device, 1), wanted);
        device
    }

    fn extension(first: u8, zrwa: bool) -> ZoneAction {
        let mut extension = vec![0; 64];
        extension[0] = first;
        ZoneAction::SetDescriptorExtension { extension: extension.into(), zrwa }
    }

    #[test]
    fn each_action_leads_from_each_state_where_the_table_says() {
        let refused = Err(Status::InvalidZoneStateTransition);
        // In the order of ZoneState::SEQUENTIAL: empty, implicitly, explicitly opened, closed, read
        // only, full, offline.
        let table = [
            (ZoneAction::Close, [refused, Ok(Closed), Ok(Closed), Ok(Closed), refused, refused, refused]),
            (ZoneAction::Finish, [Ok(Full), Ok(Full), Ok(Full), Ok(Full), refused, Ok(Full), refused]),
            (
                ZoneAction::Open { zrwa: false },
                [
                    Ok(ExplicitlyOpened),
                    Ok(ExplicitlyOpened),
                    Ok(ExplicitlyOpened),
                    Ok(ExplicitlyOpened),
                    refused,
                    refused,
                    refused,
                ],
            ),
            (ZoneAction::Reset, [Ok(Empty), Ok(Empty), Ok(Empty), Ok(Empty), refused, Ok(Empty), refused]),
            (ZoneAction::Offline, [refused, refused, refused, refused, Ok(Offline), refused, Ok(Offline)]),
            (extension(1, false), [Ok(Closed), refused, refused, refused, refused, refused, refused]),
        ];
        for (action, row) in table {
            for (from, expected) in ZoneState::SEQUENTIAL.into_iter().zip(row) {
                let mut device = in_state(Geometry::tiny(), from);
                let status = manage(&mut device, action.clone(), 16);
                assert_eq!(status, expected.err().unwrap_or(Status::Success), "{action:?} from {from}");
                assert_eq!(state(&device, 1), expected.unwrap_or(from), "{action:?} from {from}");
            }
        }
    }

    #[test]
    fn a_zrwa_is_allocated_only_to_empty_zones() {
        for from in ZoneState::SEQUENTIAL {
            let mut device = in_state(with_zrwa(), from);
            let expected = match from {
                Empty => Status::Success,
                ReadOnly | Offline => Status::InvalidZoneStateTransition,
                _ => Status::InvalidZoneOperation,
            };
            assert_eq!(manage(&mut device, ZoneAction::Open { zrwa: true }, 16), expected, "from {from}");
            assert_eq!(device.image(ZoneIndex(1)).zrwa, from == Empty, "from {from}");
        }
        let mut without = device(Geometry::tiny());
        assert_eq!(manage(&mut without, ZoneAction::Open { zrwa: true }, 16), Status::InvalidField);
        assert_eq!(manage(&mut without, extension(1, true), 16), Status::InvalidField);
    }

    #[test]
    fn an_action_names_the_start_of_a_sequential_zone() {
        let mut device = device(with_conventional());
        assert_eq!(manage(&mut device, ZoneAction::Reset, 33), Status::InvalidField);
        assert_eq!(manage(&mut device, ZoneAction::Reset, 0), Status::InvalidField, "conventional");
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 5), Status::InvalidField, "conventional");
        assert_eq!(manage(&mut device, ZoneAction::Reset, 128), Status::LbaOutOfRange);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, u64::MAX), Status::LbaOutOfRange);
    }

    #[test]
    fn a_reset_removes_contents_extension_and_zrwa() {
        let mut device = device(with_zrwa());
        manage(&mut device, extension(7, true), 0);
        write(&mut device, 0, 2);
        assert_eq!(manage(&mut device, ZoneAction::Reset, 0), Status::Success);
        let image = device.image(ZoneIndex(0));
        assert_eq!((image.zrwa, image.extension), (false, None));
        assert_eq!(device.block(Lba(0)), ZERO_FINGERPRINT);
        assert_eq!(write_pointer(&device, 0), Some(Lba(0)));
    }

    #[test]
    fn an_extension_takes_an_active_resource_and_no_open_one() {
        let mut device = device(Geometry::tiny());
        open(&mut device, 0);
        open(&mut device, 16);
        assert_eq!(manage(&mut device, extension(7, false), 32), Status::Success);
        assert_eq!(state(&device, 2), Closed);
        assert_eq!(manage(&mut device, extension(7, false), 48), Status::TooManyActiveZones);
    }

    #[test]
    fn an_extension_of_the_wrong_length_or_in_a_namespace_without_is_an_invalid_field() {
        let mut device = device(Geometry::tiny());
        for bytes in [0, 63, 128] {
            let action = ZoneAction::SetDescriptorExtension { extension: vec![1; bytes].into(), zrwa: false };
            assert_eq!(manage(&mut device, action, 0), Status::InvalidField, "{bytes} bytes");
        }
        let mut without =
            crate::reference::testing::device(Geometry { descriptor_extension_bytes: 0, ..Geometry::tiny() });
        let empty = ZoneAction::SetDescriptorExtension { extension: Box::default(), zrwa: false };
        assert_eq!(manage(&mut without, empty, 0), Status::InvalidField);
    }

    #[test]
    fn an_extension_with_a_zrwa_needs_one_to_be_left() {
        let mut device = device(with_zrwa());
        assert_eq!(manage(&mut device, extension(7, true), 0), Status::Success);
        assert_eq!(manage(&mut device, extension(7, true), 16), Status::ZrwaResourcesUnavailable);
        assert_eq!(state(&device, 1), Empty);
    }

    #[test]
    fn a_flush_moves_the_write_pointer_behind_its_block() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        write(&mut device, 0, 4);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 0), Status::InvalidField, "half a granule");
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 1), Status::Success);
        assert_eq!(write_pointer(&device, 0), Some(Lba(2)));
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 1), Status::InvalidField, "before the write pointer");
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 6), Status::InvalidField, "beyond the area");
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 5), Status::Success, "written or not");
    }

    #[test]
    fn a_flush_up_to_the_capacity_fills_the_zone_and_none_goes_beyond() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        for block in [3, 7] {
            assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, block), Status::Success);
        }
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 9), Status::Success);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 13), Status::InvalidField);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 11), Status::Success);
        assert_eq!(state(&device, 0), Full);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 11), Status::ZoneIsFull);
    }

    #[test]
    fn a_flush_ends_at_the_last_block_of_the_area_even_in_granules_of_one() {
        let zrwa = with_zrwa().zrwa.map(|zrwa| ZrwaGeometry { flush_granularity_blocks: Blocks(1), ..zrwa });
        let mut device = device(Geometry { zrwa, ..Geometry::tiny() });
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 4), Status::InvalidField);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 3), Status::Success);
    }

    #[test]
    fn a_flush_of_a_closed_zone_opens_it_implicitly_if_it_can() {
        let mut device = device(with_zrwa());
        manage(&mut device, extension(1, true), 0);
        open(&mut device, 16);
        open(&mut device, 32);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 1), Status::TooManyOpenZones);
        close(&mut device, 16);
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 1), Status::Success);
        assert_eq!(state(&device, 0), ImplicitlyOpened);
    }

    #[test]
    fn a_flush_needs_a_zrwa_that_the_host_may_flush() {
        let mut device = device(with_zrwa());
        assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 1), Status::InvalidZoneOperation);
        for (to, status) in [(ReadOnly, Status::ZoneIsReadOnly), (Offline, Status::ZoneIsOffline)] {
            device.degrade(ZoneIndex(0), to);
            assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 1), status);
        }
        let zrwa = with_zrwa().zrwa.map(|zrwa| ZrwaGeometry { explicit_flush: false, ..zrwa });
        for zrwa in [zrwa, None] {
            let mut device = crate::reference::testing::device(Geometry { zrwa, ..Geometry::tiny() });
            assert_eq!(manage(&mut device, ZoneAction::FlushZrwa, 1), Status::InvalidField);
        }
    }

    #[test]
    fn select_all_acts_on_the_zones_whose_state_allows_it() {
        let mixed = || {
            let mut device = device(Geometry { max_active_zones: Some(5), ..Geometry::tiny() });
            write(&mut device, 16, 1);
            open(&mut device, 32);
            write(&mut device, 48, 1);
            manage(&mut device, ZoneAction::Finish, 64);
            device.degrade(ZoneIndex(5), ReadOnly);
            device.degrade(ZoneIndex(6), Offline);
            device
        };
        let states = |device: &ReferenceDevice| -> Vec<ZoneState> { (0..7).map(|zone| state(device, zone)).collect() };
        let start = [Empty, Closed, ExplicitlyOpened, ImplicitlyOpened, Full, ReadOnly, Offline];
        assert_eq!(states(&mixed()), start);
        let table = [
            (ZoneAction::Close, [Empty, Closed, Closed, Closed, Full, ReadOnly, Offline]),
            (ZoneAction::Finish, [Empty, Full, Full, Full, Full, ReadOnly, Offline]),
            (ZoneAction::Reset, [Empty, Empty, Empty, Empty, Empty, ReadOnly, Offline]),
            (ZoneAction::Offline, [Empty, Closed, ExplicitlyOpened, ImplicitlyOpened, Full, Offline, Offline]),
        ];
        for (action, expected) in table {
            let mut device = mixed();
            assert_eq!(manage_all(&mut device, action.clone()), Status::Success);
            assert_eq!(states(&device), expected, "{action:?}");
        }
        let mut device = mixed();
        assert_eq!(manage_all(&mut device, ZoneAction::Open { zrwa: false }), Status::TooManyOpenZones);
        assert_eq!(states(&device), start);
    }

    #[test]
    fn select_all_opens_all_closed_zones_if_resources_suffice_for_all() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 1);
        write(&mut device, 16, 1);
        close(&mut device, 0);
        assert_eq!(manage_all(&mut device, ZoneAction::Open { zrwa: false }), Status::Success);
        assert_eq!([state(&device, 0), state(&device, 1)], [ExplicitlyOpened, ImplicitlyOpened]);
    }

    #[test]
    fn select_all_refuses_actions_for_one_zone_and_skips_conventional_zones() {
        let mut device = device(Geometry { zrwa: with_zrwa().zrwa, ..with_conventional() });
        for action in [extension(1, false), ZoneAction::FlushZrwa, ZoneAction::Open { zrwa: true }] {
            assert_eq!(manage_all(&mut device, action), Status::InvalidField);
        }
        write(&mut device, 0, 1);
        assert_eq!(manage_all(&mut device, ZoneAction::Reset), Status::Success);
        assert_ne!(device.block(Lba(0)), ZERO_FINGERPRINT);
    }
}
