//! Read, Write, WriteZeroes, Append and Deallocate. The numbers are those of the rules.

use crate::limits::DEALLOCATE_RANGES_MAX;
use crate::{Blocks, Lba, LbaRange, Outcome, Payload, Status, ZoneIndex, ZoneState};

use super::ReferenceDevice;

impl ReferenceDevice {
    /// Read.
    pub(super) fn read(&self, start: Lba, blocks: Blocks) -> Result<Outcome, Status> {
        // 1. No blocks, or too many.
        if blocks == Blocks::ZERO || blocks > self.geometry.max_transfer_blocks {
            return Err(Status::InvalidField);
        }
        // 2. Beyond the namespace.
        let end = self.end_of_range(start, blocks)?;
        // 3. The first zone is offline.
        let first = self.zone_holding(start);
        if self.zone(first).state == ZoneState::Offline {
            return Err(Status::ZoneIsOffline);
        }
        // 4. Into another zone; conventional zones have no boundaries among them.
        let last = self.zone_holding(Lba(end.0 - 1));
        if last != first && end > self.conventional_end() {
            if !self.geometry.read_across_zones {
                return Err(Status::ZoneBoundaryError);
            }
            for index in first.0..=last.0 {
                if self.zone(ZoneIndex(index)).state == ZoneState::Offline {
                    return Err(Status::ZoneIsOffline);
                }
            }
        }
        // 5. Success.
        Ok(Outcome::Data(self.contents.read(start, blocks)))
    }

    /// Write; without payload WriteZeroes.
    pub(super) fn write(&mut self, start: Lba, blocks: Blocks, payload: Option<&Payload>) -> Result<Outcome, Status> {
        // 1. No blocks, or (Write only) too many.
        if blocks == Blocks::ZERO || (payload.is_some() && blocks > self.geometry.max_transfer_blocks) {
            return Err(Status::InvalidField);
        }
        // 2. Beyond the namespace.
        let end = self.end_of_range(start, blocks)?;
        // 3. (Write only) the payload does not fit.
        let payload = payload.unwrap_or(&Payload::None);
        if !self.contents.fits(payload, blocks) {
            return Err(Status::InvalidField);
        }
        // 4. Conventional zones take writes anywhere.
        let zone = self.zone_holding(start);
        if self.zone(zone).state == ZoneState::NotWritePointer {
            if end > self.conventional_end() {
                return Err(Status::ZoneBoundaryError);
            }
            self.contents.replace(start, blocks, payload);
            return Ok(Outcome::None);
        }
        // 5. States that take no write.
        self.refuse_unwritable(zone)?;
        // 6. Not where the zone is to be written.
        let write_pointer = self.zone(zone).write_pointer;
        if self.zone(zone).zrwa {
            let size = self.zrwa_geometry().size_blocks;
            if start < write_pointer || end > write_pointer + size + size {
                return Err(Status::ZoneInvalidWrite);
            }
        } else if start != write_pointer {
            return Err(Status::ZoneInvalidWrite);
        }
        // 7. Past the zone's capacity.
        if end > self.capacity_end(zone) {
            return Err(Status::ZoneBoundaryError);
        }
        // 8. The zone must be open.
        self.open_implicitly(zone)?;
        // 9. Success.
        self.take_write(zone, start, blocks, payload);
        Ok(Outcome::None)
    }

    /// Append.
    pub(super) fn append(&mut self, zone_start: Lba, blocks: Blocks, payload: &Payload) -> Result<Outcome, Status> {
        // 1. No blocks, or too many.
        if blocks == Blocks::ZERO || blocks > self.geometry.max_append_blocks {
            return Err(Status::InvalidField);
        }
        // 2. Beyond the namespace.
        let zone = self.geometry.zone_of(zone_start).ok_or(Status::LbaOutOfRange)?;
        // 3. Not the start of a zone, or a conventional zone.
        if zone_start != self.geometry.zone_start(zone) || self.zone(zone).state == ZoneState::NotWritePointer {
            return Err(Status::InvalidField);
        }
        // 4. The payload does not fit.
        if !self.contents.fits(payload, blocks) {
            return Err(Status::InvalidField);
        }
        // 5. States that take no write.
        self.refuse_unwritable(zone)?;
        // 6. The zone has a ZRWA.
        if self.zone(zone).zrwa {
            return Err(Status::InvalidZoneOperation);
        }
        // 7. Past the zone's capacity.
        let start = self.zone(zone).write_pointer;
        if start + blocks > self.capacity_end(zone) {
            return Err(Status::ZoneBoundaryError);
        }
        // 8. The zone must be open.
        self.open_implicitly(zone)?;
        // 9. Success.
        self.take_write(zone, start, blocks, payload);
        Ok(Outcome::Appended(start))
    }

    /// Deallocate.
    pub(super) fn deallocate(&mut self, ranges: &[LbaRange]) -> Result<Outcome, Status> {
        // 1. No range, or too many.
        if ranges.is_empty() || ranges.len() > DEALLOCATE_RANGES_MAX {
            return Err(Status::InvalidField);
        }
        // 2. Each range: no blocks, or beyond the namespace.
        for range in ranges {
            if range.blocks == Blocks::ZERO {
                return Err(Status::InvalidField);
            }
            self.end_of_range(range.start, range.blocks)?;
        }
        // 3. Each range, each zone it touches.
        for range in ranges {
            let last_block = Lba(range.start.0 + range.blocks.0 - 1);
            for index in self.zone_holding(range.start).0..=self.zone_holding(last_block).0 {
                match self.zone(ZoneIndex(index)).state {
                    ZoneState::ReadOnly => return Err(Status::ZoneIsReadOnly),
                    ZoneState::Offline => return Err(Status::ZoneIsOffline),
                    _ => {}
                }
            }
        }
        // 4. Success.
        for range in ranges {
            self.contents.erase(range.start, range.start + range.blocks);
        }
        Ok(Outcome::None)
    }

    /// Write 5: state full, read only, offline.
    pub(super) fn refuse_unwritable(&self, zone: ZoneIndex) -> Result<(), Status> {
        match self.zone(zone).state {
            ZoneState::Full => Err(Status::ZoneIsFull),
            ZoneState::ReadOnly => Err(Status::ZoneIsReadOnly),
            ZoneState::Offline => Err(Status::ZoneIsOffline),
            _ => Ok(()),
        }
    }

    /// Write 9: contents are replaced, the write pointer moves, and at the capacity the zone is
    /// full.
    fn take_write(&mut self, zone: ZoneIndex, start: Lba, blocks: Blocks, payload: &Payload) {
        self.contents.replace(start, blocks, payload);
        let end = start + blocks;
        let capacity_end = self.capacity_end(zone);
        let mut write_pointer = self.zone(zone).write_pointer;
        if self.zone(zone).zrwa {
            let zrwa = self.zrwa_geometry();
            while end > write_pointer + zrwa.size_blocks && write_pointer < capacity_end {
                write_pointer = write_pointer + zrwa.flush_granularity_blocks;
            }
        } else {
            write_pointer = end;
        }
        self.move_write_pointer(zone, write_pointer);
    }

    /// Moves the write pointer; at the capacity the zone is full.
    pub(super) fn move_write_pointer(&mut self, zone: ZoneIndex, write_pointer: Lba) {
        assert!(write_pointer <= self.capacity_end(zone), "the write pointer of zone {zone} leaves its capacity");
        self.zone_mut(zone).write_pointer = write_pointer;
        if write_pointer == self.capacity_end(zone) {
            self.become_full(zone);
        }
    }

    /// The first block behind a range within the namespace.
    fn end_of_range(&self, start: Lba, blocks: Blocks) -> Result<Lba, Status> {
        let end = start.0.checked_add(blocks.0).ok_or(Status::LbaOutOfRange)?;
        if end > self.geometry.namespace_blocks().0 {
            return Err(Status::LbaOutOfRange);
        }
        Ok(Lba(end))
    }

    /// The zone that holds a block of the namespace.
    fn zone_holding(&self, lba: Lba) -> ZoneIndex {
        self.geometry.zone_of(lba).expect("the block has been found to be within the namespace")
    }

    /// The first block behind the conventional zones.
    fn conventional_end(&self) -> Lba {
        self.geometry.zone_start(ZoneIndex(self.geometry.conventional_zone_count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::testing::{
        append, close, deallocate, device, manage, open, read, run, state, with_conventional, with_zrwa, write,
        write_payload, write_pointer, write_zeroes,
    };
    use crate::{Geometry, Operation, ZERO_FINGERPRINT, ZoneAction};

    #[test]
    fn a_read_of_no_blocks_or_more_than_the_limit_is_an_invalid_field() {
        let mut device = device(Geometry::tiny());
        assert_eq!(read(&mut device, 0, 0), Status::InvalidField);
        assert_eq!(read(&mut device, 0, 9), Status::InvalidField);
        assert_eq!(read(&mut device, 0, 8), Status::Success);
    }

    #[test]
    fn ranges_beyond_the_namespace_are_out_of_range_even_where_they_overflow() {
        let mut device = device(Geometry::tiny());
        for start in [127, 128, u64::MAX - 1, u64::MAX] {
            assert_eq!(read(&mut device, start, 2), Status::LbaOutOfRange, "read at {start}");
            assert_eq!(write(&mut device, start, 2), Status::LbaOutOfRange, "write at {start}");
            assert_eq!(write_zeroes(&mut device, start, 2), Status::LbaOutOfRange, "zeroes at {start}");
            assert_eq!(deallocate(&mut device, &[(0, 1), (start, 2)]), Status::LbaOutOfRange, "deallocate at {start}");
        }
        assert_eq!(append(&mut device, 128, 1).status, Status::LbaOutOfRange);
        assert_eq!(append(&mut device, u64::MAX, 1).status, Status::LbaOutOfRange);
        assert_eq!(write_zeroes(&mut device, 1, u64::MAX), Status::LbaOutOfRange);
    }

    #[test]
    fn a_read_over_a_zones_end_needs_the_namespace_to_allow_it() {
        let mut allowed = device(Geometry::tiny());
        assert_eq!(read(&mut allowed, 14, 4), Status::Success);
        let mut forbidden = device(Geometry { read_across_zones: false, ..Geometry::tiny() });
        assert_eq!(read(&mut forbidden, 14, 4), Status::ZoneBoundaryError);
        assert_eq!(read(&mut forbidden, 14, 2), Status::Success);
    }

    #[test]
    fn a_read_over_a_zones_end_meets_the_offline_zone_behind_it() {
        let mut device = device(Geometry::tiny());
        device.degrade(ZoneIndex(1), ZoneState::Offline);
        assert_eq!(read(&mut device, 14, 2), Status::Success);
        assert_eq!(read(&mut device, 14, 3), Status::ZoneIsOffline);
        assert_eq!(read(&mut device, 20, 1), Status::ZoneIsOffline);
    }

    #[test]
    fn an_offline_first_zone_comes_before_the_boundary() {
        let mut device = device(Geometry { read_across_zones: false, ..Geometry::tiny() });
        device.degrade(ZoneIndex(1), ZoneState::Offline);
        assert_eq!(read(&mut device, 30, 4), Status::ZoneIsOffline);
        assert_eq!(read(&mut device, 14, 4), Status::ZoneBoundaryError);
    }

    #[test]
    fn a_sequential_zone_is_written_at_its_write_pointer_only() {
        let mut device = device(Geometry::tiny());
        assert_eq!(write(&mut device, 1, 1), Status::ZoneInvalidWrite);
        assert_eq!(write(&mut device, 0, 4), Status::Success);
        assert_eq!(write(&mut device, 3, 1), Status::ZoneInvalidWrite);
        assert_eq!(write(&mut device, 5, 1), Status::ZoneInvalidWrite);
        assert_eq!(write_zeroes(&mut device, 4, 1), Status::Success);
        assert_eq!(write_pointer(&device, 0), Some(Lba(5)));
    }

    #[test]
    fn a_write_past_the_capacity_is_a_boundary_error_and_changes_nothing() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 8);
        assert_eq!(write(&mut device, 8, 5), Status::ZoneBoundaryError);
        assert_eq!(write_pointer(&device, 0), Some(Lba(8)));
        assert_eq!(append(&mut device, 0, 4).status, Status::Success);
        assert_eq!(state(&device, 0), ZoneState::Full);
    }

    #[test]
    fn a_full_zone_refuses_a_write() {
        let mut device = device(Geometry::tiny());
        assert_eq!(write_zeroes(&mut device, 0, 12), Status::Success, "zeroes are not bound by the transfer limit");
        assert_eq!(write(&mut device, 12, 1), Status::ZoneIsFull);
        assert_eq!(append(&mut device, 0, 1).status, Status::ZoneIsFull);
    }

    #[test]
    fn read_only_and_offline_zones_refuse_writes_appends_and_deallocation() {
        for (to, status) in [(ZoneState::ReadOnly, Status::ZoneIsReadOnly), (ZoneState::Offline, Status::ZoneIsOffline)]
        {
            let mut device = device(Geometry::tiny());
            device.degrade(ZoneIndex(1), to);
            assert_eq!(write(&mut device, 16, 1), status);
            assert_eq!(write_zeroes(&mut device, 16, 1), status);
            assert_eq!(append(&mut device, 16, 1).status, status);
            assert_eq!(deallocate(&mut device, &[(0, 1), (0, 17)]), status);
        }
    }

    #[test]
    fn a_payload_that_does_not_fit_is_an_invalid_field_before_the_zone_is_looked_at() {
        let mut device = device(Geometry::tiny());
        device.degrade(ZoneIndex(0), ZoneState::Offline);
        let payload = || Payload::Fingerprints(vec![1, 2].into());
        assert_eq!(write_payload(&mut device, 5, 1, payload()), Status::InvalidField);
        assert_eq!(write_payload(&mut device, 5, 2, payload()), Status::ZoneIsOffline);
        let append = Operation::Append { zone_start: Lba(0), blocks: Blocks(1), payload: payload() };
        assert_eq!(run(&mut device, append).status, Status::InvalidField);
    }

    #[test]
    fn an_append_names_the_start_of_a_sequential_zone() {
        let mut device = device(with_conventional());
        assert_eq!(append(&mut device, 0, 1).status, Status::InvalidField, "conventional");
        assert_eq!(append(&mut device, 33, 1).status, Status::InvalidField);
        assert_eq!(append(&mut device, 32, 5).status, Status::InvalidField, "more than the append limit");
        assert_eq!(append(&mut device, 32, 0).status, Status::InvalidField);
        assert_eq!(append(&mut device, 32, 4).status, Status::Success);
    }

    #[test]
    fn conventional_zones_take_writes_anywhere_and_have_no_boundary_among_them() {
        let mut device = device(Geometry { read_across_zones: false, ..with_conventional() });
        assert_eq!(write(&mut device, 12, 8), Status::Success);
        assert_eq!(write(&mut device, 3, 1), Status::Success);
        assert_eq!(read(&mut device, 12, 8), Status::Success);
        assert_eq!(state(&device, 0), ZoneState::NotWritePointer);
        assert_eq!(write(&mut device, 30, 3), Status::ZoneBoundaryError);
        assert_eq!(read(&mut device, 30, 3), Status::ZoneBoundaryError);
        assert_ne!(device.block(Lba(19)), ZERO_FINGERPRINT);
    }

    #[test]
    fn a_zrwa_takes_writes_in_any_order_within_twice_its_size() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        assert_eq!(write(&mut device, 3, 1), Status::Success);
        assert_eq!(write(&mut device, 0, 2), Status::Success);
        assert_eq!(write(&mut device, 0, 1), Status::Success);
        assert_eq!(write_pointer(&device, 0), Some(Lba(0)), "nothing is committed yet");
        assert_eq!(write(&mut device, 8, 1), Status::ZoneInvalidWrite);
        assert_eq!(append(&mut device, 0, 1).status, Status::InvalidZoneOperation);
        assert_ne!(device.block(Lba(3)), ZERO_FINGERPRINT);
        assert_eq!(device.block(Lba(2)), ZERO_FINGERPRINT);
    }

    #[test]
    fn a_write_beyond_the_zrwa_commits_whole_granules_and_no_more_than_it_must() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        assert_eq!(write(&mut device, 4, 1), Status::Success);
        assert_eq!(write_pointer(&device, 0), Some(Lba(2)), "a block beyond needs a granule of two");
        assert_eq!(write(&mut device, 1, 1), Status::ZoneInvalidWrite);
        assert_eq!(write(&mut device, 6, 4), Status::Success);
        assert_eq!(write_pointer(&device, 0), Some(Lba(6)));
        assert_eq!(write(&mut device, 12, 1), Status::ZoneBoundaryError, "in the window, past the capacity");
        assert_eq!(write(&mut device, 10, 2), Status::Success);
        assert_eq!(write_pointer(&device, 0), Some(Lba(8)));
        assert_eq!(state(&device, 0), ZoneState::ExplicitlyOpened);
    }

    #[test]
    fn a_write_to_a_closed_zone_opens_it_implicitly_and_one_to_an_explicitly_opened_zone_does_not() {
        let mut device = device(Geometry::tiny());
        open(&mut device, 0);
        write(&mut device, 0, 1);
        assert_eq!(state(&device, 0), ZoneState::ExplicitlyOpened);
        close(&mut device, 0);
        write(&mut device, 1, 1);
        assert_eq!(state(&device, 0), ZoneState::ImplicitlyOpened);
    }

    #[test]
    fn deallocated_blocks_read_as_zeros_and_the_write_pointer_stays() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 4);
        assert_eq!(deallocate(&mut device, &[(1, 2), (6, 100)]), Status::Success);
        let zeros: Vec<bool> = (0..4).map(|lba| device.block(Lba(lba)) == ZERO_FINGERPRINT).collect();
        assert_eq!(zeros, [false, true, true, false]);
        assert_eq!(write_pointer(&device, 0), Some(Lba(4)));
    }

    #[test]
    fn a_deallocation_has_1_to_256_ranges_none_of_them_empty_and_is_done_wholly_or_not_at_all() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 4);
        assert_eq!(deallocate(&mut device, &[]), Status::InvalidField);
        assert_eq!(deallocate(&mut device, &[(0, 1); 257]), Status::InvalidField);
        assert_eq!(deallocate(&mut device, &[(0, 1), (0, 0)]), Status::InvalidField);
        assert_eq!(deallocate(&mut device, &[(0, 1), (128, 1), (0, 0)]), Status::LbaOutOfRange, "in order");
        assert_ne!(device.block(Lba(0)), ZERO_FINGERPRINT);
        assert_eq!(deallocate(&mut device, &[(0, 1); 256]), Status::Success);
    }

    #[test]
    fn a_finished_zone_reads_as_zeros_after_the_written_blocks() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 2);
        manage(&mut device, ZoneAction::Finish, 0);
        assert_eq!(read(&mut device, 0, 8), Status::Success);
        assert_ne!(device.block(Lba(1)), ZERO_FINGERPRINT);
        assert_eq!(device.block(Lba(2)), ZERO_FINGERPRINT);
    }
}
