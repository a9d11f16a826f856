//! Sets the oracle to an observed state, for instance after a crash.

use crate::{BlockBuffer, Blocks, Lba, Payload, ZERO_FINGERPRINT, ZoneIndex, ZoneState, ZoneType};

use super::ReferenceDevice;

/// The state of a sequential zone, without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneImage {
    /// Its state; never [`ZoneState::NotWritePointer`] in an image that is set.
    pub state: ZoneState,
    /// Blocks from the zone's start to the write pointer: for a full or read only zone where it
    /// stood when the zone became so, 0 for an empty or conventional one. Without meaning for an
    /// offline zone.
    pub write_pointer_blocks: Blocks,
    /// Whether it has a Zone Random Write Area, which only an active zone can.
    pub zrwa: bool,
    /// The descriptor extension that was set, if any.
    pub extension: Option<Box<[u8]>>,
}

impl ReferenceDevice {
    /// Reads a zone out, in the form that [`set_zone`](ReferenceDevice::set_zone) takes.
    ///
    /// # Panics
    /// When the zone is beyond the namespace.
    #[must_use]
    pub fn image(&self, zone: ZoneIndex) -> ZoneImage {
        let held = self.zone(zone);
        ZoneImage {
            state: held.state,
            write_pointer_blocks: held.write_pointer - self.geometry.zone_start(zone),
            zrwa: held.zrwa,
            extension: held.extension.clone(),
        }
    }

    /// Sets a sequential zone. Its contents stay where the image can have any: nowhere in an empty
    /// or offline zone, before the write pointer or the end of the ZRWA in an active one, anywhere
    /// in a full or read only one. A zone set to implicitly opened is the last in the order of
    /// implicitly opened zones.
    ///
    /// Limits on active and open zones and on ZRWAs are not checked, since zones are set one after
    /// the other.
    ///
    /// # Panics
    /// When no sequence of commands could bring a zone of this namespace to the image, or the zone
    /// is conventional or beyond the namespace.
    pub fn set_zone(&mut self, zone: ZoneIndex, image: ZoneImage) {
        self.assert_possible(zone, &image);
        let start = self.geometry.zone_start(zone);
        let write_pointer = start + image.write_pointer_blocks;
        let contents_end = match image.state {
            ZoneState::Empty | ZoneState::Offline => start,
            ZoneState::Full | ZoneState::ReadOnly => self.capacity_end(zone),
            _ if image.zrwa => write_pointer + self.zrwa_geometry().size_blocks,
            _ => write_pointer,
        };
        let zone_end = start + self.geometry.zone_size_blocks;
        if contents_end < zone_end {
            self.contents.erase(contents_end, zone_end);
        }
        let opening = self.implicit_openings;
        self.implicit_openings += 1;
        let held = self.zone_mut(zone);
        held.state = image.state;
        held.write_pointer = write_pointer;
        held.implicit_opening = opening;
        held.zrwa = image.zrwa;
        held.extension = image.extension;
    }

    /// Sets what a block reads as, by its fingerprint. Nothing happens with
    /// [`crate::PayloadKind::None`].
    ///
    /// # Panics
    /// When the block is beyond the namespace or its zone's capacity; with
    /// [`crate::PayloadKind::Bytes`] when the fingerprint is not that of zeros, since no bytes can
    /// be made of it: then use [`set_block_bytes`](ReferenceDevice::set_block_bytes).
    pub fn set_block(&mut self, lba: Lba, print: u64) {
        let payload = if print == ZERO_FINGERPRINT { Payload::None } else { Payload::Fingerprints(vec![print].into()) };
        self.set_contents(lba, &payload);
    }

    /// Sets what a block reads as, data and metadata.
    ///
    /// # Panics
    /// When the block is beyond the namespace or its zone's capacity, or the bytes are not those of
    /// one block.
    pub fn set_block_bytes(&mut self, lba: Lba, data: &[u8], metadata: &[u8]) {
        let buffer = BlockBuffer { data: data.to_vec().into(), metadata: metadata.to_vec().into() };
        self.set_contents(lba, &Payload::Bytes(Box::new(buffer)));
    }

    fn set_contents(&mut self, lba: Lba, payload: &Payload) {
        let zone = self.geometry.zone_of(lba);
        assert!(zone.is_some_and(|zone| lba < self.capacity_end(zone)), "block {lba} cannot be written");
        assert!(self.contents.fits(payload, Blocks(1)), "the payload is not one block of the kind that is kept");
        self.contents.replace(lba, Blocks(1), payload);
    }

    fn assert_possible(&self, zone: ZoneIndex, image: &ZoneImage) {
        assert!(zone.0 < self.geometry.zone_count, "zone {zone} is beyond the namespace");
        assert_eq!(
            self.geometry.zone_type(zone),
            ZoneType::SequentialWriteRequired,
            "zone {zone} is conventional and has nothing to set"
        );
        let pointer = image.write_pointer_blocks;
        let pointer_possible = match image.state {
            ZoneState::NotWritePointer => panic!("sequential zone {zone} has a write pointer"),
            ZoneState::Empty => pointer == Blocks::ZERO,
            ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed => {
                pointer < self.geometry.zone_capacity_blocks
            }
            ZoneState::ReadOnly | ZoneState::Full | ZoneState::Offline => pointer <= self.geometry.zone_capacity_blocks,
        };
        assert!(pointer_possible, "a zone that is {} cannot have its write pointer at {pointer}", image.state);
        if image.zrwa {
            assert!(image.state.is_active(), "a zone that is {} has no ZRWA", image.state);
            let granularity = self.zrwa_geometry().flush_granularity_blocks;
            assert!(pointer.0.is_multiple_of(granularity.0), "a ZRWA is committed in units of {granularity} blocks");
        }
        if let Some(extension) = &image.extension {
            assert!(
                !matches!(image.state, ZoneState::Empty | ZoneState::Offline),
                "a zone that is {} has no descriptor extension",
                image.state
            );
            let bytes = self.geometry.descriptor_extension_bytes;
            assert!(bytes > 0 && extension.len() == bytes as usize, "descriptor extensions have {bytes} bytes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::testing::{device, manage, state, with_zrwa, write, write_pointer};
    use crate::{Geometry, PayloadKind, Status, ZoneAction, fingerprint};

    fn image(state: ZoneState, write_pointer_blocks: u64) -> ZoneImage {
        ZoneImage { state, write_pointer_blocks: Blocks(write_pointer_blocks), zrwa: false, extension: None }
    }

    #[test]
    fn a_zone_that_is_read_and_set_again_is_the_same() {
        let mut from = device(with_zrwa());
        let set = ZoneAction::SetDescriptorExtension { extension: vec![5; 64].into(), zrwa: true };
        manage(&mut from, set, 0);
        write(&mut from, 5, 1);
        let mut to = device(with_zrwa());
        to.set_zone(ZoneIndex(0), from.image(ZoneIndex(0)));
        for block in 0..12 {
            to.set_block(Lba(block), from.block(Lba(block)));
        }
        assert_eq!(to.image(ZoneIndex(0)), from.image(ZoneIndex(0)));
        assert_eq!(to.descriptor(ZoneIndex(0)), from.descriptor(ZoneIndex(0)));
        assert_eq!(to.block(Lba(5)), from.block(Lba(5)));
    }

    #[test]
    fn a_write_pointer_set_back_drops_the_blocks_behind_it() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 6);
        device.set_zone(ZoneIndex(0), image(ZoneState::Closed, 4));
        assert_ne!(device.block(Lba(3)), ZERO_FINGERPRINT);
        assert_eq!(device.block(Lba(4)), ZERO_FINGERPRINT);
        assert_eq!(write(&mut device, 4, 1), Status::Success);
        assert_eq!(write_pointer(&device, 0), Some(Lba(5)));
    }

    #[test]
    fn a_zone_set_with_a_zrwa_keeps_the_blocks_in_it() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        write(&mut device, 2, 2);
        device.set_zone(ZoneIndex(0), ZoneImage { zrwa: true, ..image(ZoneState::Closed, 0) });
        assert_ne!(device.block(Lba(3)), ZERO_FINGERPRINT);
        device.set_zone(ZoneIndex(0), image(ZoneState::Closed, 0));
        assert_eq!(device.block(Lba(3)), ZERO_FINGERPRINT);
    }

    #[test]
    fn a_zone_set_to_implicitly_opened_is_the_last_to_be_closed_by_the_controller() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 1);
        device.set_zone(ZoneIndex(1), image(ZoneState::ImplicitlyOpened, 1));
        write(&mut device, 32, 1);
        assert_eq!([state(&device, 0), state(&device, 1)], [ZoneState::Closed, ZoneState::ImplicitlyOpened]);
    }

    #[test]
    fn bytes_can_be_set_where_bytes_are_kept() {
        let mut device = ReferenceDevice::new(Geometry::tiny(), PayloadKind::Bytes);
        device.set_zone(ZoneIndex(0), image(ZoneState::Full, 12));
        device.set_block_bytes(Lba(11), &[3; 512], &[4; 8]);
        assert_eq!(device.block(Lba(11)), fingerprint(&[3; 512], &[4; 8]));
        device.set_block(Lba(11), ZERO_FINGERPRINT);
        assert_eq!(device.block(Lba(11)), ZERO_FINGERPRINT);
    }

    #[test]
    #[should_panic(expected = "cannot have its write pointer at 12")]
    fn a_closed_zone_cannot_be_written_to_its_capacity() {
        device(Geometry::tiny()).set_zone(ZoneIndex(0), image(ZoneState::Closed, 12));
    }

    #[test]
    #[should_panic(expected = "a zone that is full has no ZRWA")]
    fn a_full_zone_cannot_have_a_zrwa() {
        device(with_zrwa()).set_zone(ZoneIndex(0), ZoneImage { zrwa: true, ..image(ZoneState::Full, 12) });
    }
}
