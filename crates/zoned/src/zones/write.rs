//! Write, Write Zeroes and Append: their blocks, and their effects on a zone.

use crate::{Blocks, Lba, Status, ZoneIndex, ZoneState};

use super::{WriteGrant, Zone, ZoneTable};

impl ZoneTable {
    /// Applies a write (3.3.7). `payload_fits` is whether the payload has the right size; this is
    /// checked between the range and the zone.
    ///
    /// # Errors
    /// In the order of the rules of Write; nothing has changed then.
    pub fn write(&mut self, start: Lba, blocks: Blocks, payload_fits: bool) -> Result<WriteGrant, Status> {
        if blocks.0 == 0 || blocks > self.geometry.max_transfer_blocks {
            return Err(Status::InvalidField);
        }
        self.write_range(start, blocks, payload_fits)
    }

    /// Applies a write of zeros (3.3.9), which has no payload and may be longer than a transfer.
    ///
    /// # Errors
    /// In the order of the rules of WriteZeroes; nothing has changed then.
    pub fn write_zeroes(&mut self, start: Lba, blocks: Blocks) -> Result<WriteGrant, Status> {
        if blocks.0 == 0 {
            return Err(Status::InvalidField);
        }
        self.write_range(start, blocks, true)
    }

    /// Applies an append (3.4.1) and chooses its LBA, which is the grant's `start`. `payload_fits`
    /// is as for [`write`](ZoneTable::write).
    ///
    /// # Errors
    /// In the order of the rules of Append; nothing has changed then.
    pub fn append(&mut self, zone_start: Lba, blocks: Blocks, payload_fits: bool) -> Result<WriteGrant, Status> {
        if blocks.0 == 0 || blocks > self.geometry.max_append_blocks {
            return Err(Status::InvalidField);
        }
        if zone_start.0 >= self.namespace_blocks {
            return Err(Status::LbaOutOfRange);
        }
        let (zone, offset) = self.locate(zone_start.0);
        if offset != 0 || self.is_conventional(zone) || !payload_fits {
            return Err(Status::InvalidField);
        }
        let entry = self.entry(zone);
        check_writable(entry)?;
        if entry.has_zrwa {
            return Err(Status::InvalidZoneOperation);
        }
        let write_pointer = entry.write_pointer;
        // The write pointer is at most the capacity, and an append at most 65,536 blocks: no
        // overflow.
        let end = write_pointer + blocks.0;
        if end > self.geometry.zone_capacity_blocks.0 {
            return Err(Status::ZoneBoundaryError);
        }
        self.write_sequential(zone, write_pointer, end)
    }

    fn write_range(&mut self, start: Lba, blocks: Blocks, payload_fits: bool) -> Result<WriteGrant, Status> {
        let end = self.range_end(start, blocks).ok_or(Status::LbaOutOfRange)?;
        if !payload_fits {
            return Err(Status::InvalidField);
        }
        let (zone, offset) = self.locate(start.0);
        let entry = self.entry(zone);
        if entry.state == ZoneState::NotWritePointer {
            return self.write_conventional(zone, offset, end - 1);
        }
        check_writable(entry)?;
        let write_pointer = entry.write_pointer;
        let end = offset + blocks.0;
        let in_reach = if entry.has_zrwa {
            offset >= write_pointer && end <= write_pointer + 2 * self.zrwa_size()
        } else {
            offset == write_pointer
        };
        if !in_reach {
            return Err(Status::ZoneInvalidWrite);
        }
        if end > self.geometry.zone_capacity_blocks.0 {
            return Err(Status::ZoneBoundaryError);
        }
        self.write_sequential(zone, offset, end)
    }

    /// Writes from `offset` to `end` of a zone; everything except the resources is checked.
    #[inline]
    fn write_sequential(&mut self, zone: ZoneIndex, offset: u64, end: u64) -> Result<WriteGrant, Status> {
        let opened = !self.entry(zone).state.is_open();
        let closed = if opened { self.open_implicitly(zone)? } else { None };
        let entry = self.entry_mut(zone);
        let overwrites = entry.has_zrwa;
        let write_pointer = entry.write_pointer;
        entry.written = entry.written.max(end);
        let to = if overwrites { self.pointer_after_implicit_commit(write_pointer, end) } else { end };
        let filled = self.move_write_pointer(zone, to);
        let start = self.geometry.zone_start(zone) + Blocks(offset);
        Ok(WriteGrant { zone, start, offset_blocks: Blocks(offset), closed, opened, filled, overwrites })
    }

    /// Writes from `offset` in a conventional zone up to and including the block `last` of the
    /// namespace.
    fn write_conventional(&mut self, zone: ZoneIndex, offset: u64, last: u64) -> Result<WriteGrant, Status> {
        let (last_zone, last_offset) = self.locate(last);
        if !self.is_conventional(last_zone) {
            return Err(Status::ZoneBoundaryError);
        }
        let zone_size = self.geometry.zone_size_blocks.0;
        for entry in &mut self.zones[zone.as_usize()..last_zone.as_usize()] {
            entry.written = zone_size;
        }
        let entry = self.entry_mut(last_zone);
        entry.written = entry.written.max(last_offset + 1);
        Ok(WriteGrant {
            zone,
            start: self.geometry.zone_start(zone) + Blocks(offset),
            offset_blocks: Blocks(offset),
            closed: None,
            opened: false,
            filled: false,
            overwrites: true,
        })
    }

    /// Moves the write pointer of an active zone, which becomes full at its capacity. Returns
    /// whether it did.
    pub(super) fn move_write_pointer(&mut self, zone: ZoneIndex, to: u64) -> bool {
        self.entry_mut(zone).write_pointer = to;
        let filled = to == self.geometry.zone_capacity_blocks.0;
        if filled {
            self.change_state(zone, ZoneState::Full);
        }
        filled
    }

    /// The write pointer after a write in the ZRWA that ends at `end`.
    fn pointer_after_implicit_commit(&self, write_pointer: u64, end: u64) -> u64 {
        let Some(zrwa) = self.geometry.zrwa else { return write_pointer };
        let beyond = end.saturating_sub(write_pointer + zrwa.size_blocks.0);
        let committed = beyond.next_multiple_of(zrwa.flush_granularity_blocks.0);
        (write_pointer + committed).min(self.geometry.zone_capacity_blocks.0)
    }

    /// Blocks of a ZRWA; 0 without any in the namespace.
    pub(super) fn zrwa_size(&self) -> u64 {
        self.geometry.zrwa.map_or(0, |zrwa| zrwa.size_blocks.0)
    }
}

/// The status of a write, append or commit to a zone in a state that does not allow it.
#[inline]
pub(super) fn check_writable(zone: &Zone) -> Result<(), Status> {
    match zone.state {
        ZoneState::Full => Err(Status::ZoneIsFull),
        ZoneState::ReadOnly => Err(Status::ZoneIsReadOnly),
        ZoneState::Offline => Err(Status::ZoneIsOffline),
        _ => Ok(()),
    }
}
