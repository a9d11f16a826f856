//! The checks of Read and of Deallocate, which change no zone.

use crate::limits::DEALLOCATE_RANGES_MAX;
use crate::{Blocks, Lba, LbaRange, Status, ZoneIndex, ZoneState};

use super::ZoneTable;

impl ZoneTable {
    /// Whether a read is valid (3.3.5).
    ///
    /// # Errors
    /// InvalidField, LbaOutOfRange, ZoneIsOffline or ZoneBoundaryError, checked in the order of the
    /// rules of Read.
    pub fn check_read(&self, start: Lba, blocks: Blocks) -> Result<(), Status> {
        if blocks.0 == 0 || blocks > self.geometry.max_transfer_blocks {
            return Err(Status::InvalidField);
        }
        let end = self.range_end(start, blocks).ok_or(Status::LbaOutOfRange)?;
        let (first, offset) = self.locate(start.0);
        // While no zone has failed, a read needs nothing of its zone: large tables are not in the
        // cache.
        if self.degraded > 0 && self.entry(first).state == ZoneState::Offline {
            return Err(Status::ZoneIsOffline);
        }
        if offset + blocks.0 <= self.geometry.zone_size_blocks.0 {
            return Ok(());
        }
        let (last, _) = self.locate(end - 1);
        if self.is_conventional(last) {
            return Ok(());
        }
        if !self.geometry.read_across_zones {
            return Err(Status::ZoneBoundaryError);
        }
        let mut others = self.zones[first.as_usize() + 1..=last.as_usize()].iter();
        if others.any(|zone| zone.state == ZoneState::Offline) { Err(Status::ZoneIsOffline) } else { Ok(()) }
    }

    /// Where a read begins in its zone, if it is valid, and all its blocks are written ones of this
    /// zone.
    #[inline]
    #[must_use]
    pub fn locate_written(&self, start: Lba, blocks: Blocks) -> Option<(ZoneIndex, u64)> {
        if blocks.0 == 0 || blocks > self.geometry.max_transfer_blocks {
            return None;
        }
        self.range_end(start, blocks)?;
        let (zone, offset) = self.locate(start.0);
        let entry = self.entry(zone);
        let is_written = entry.state != ZoneState::Offline && offset + blocks.0 <= entry.written;
        is_written.then_some((zone, offset))
    }

    /// Whether a deallocation is valid (3.3.3). It changes no state and no write pointer.
    ///
    /// # Errors
    /// InvalidField, LbaOutOfRange, ZoneIsReadOnly or ZoneIsOffline, checked in the order of the
    /// rules of Deallocate.
    pub fn check_deallocate(&self, ranges: &[LbaRange]) -> Result<(), Status> {
        if !(1..=DEALLOCATE_RANGES_MAX).contains(&ranges.len()) {
            return Err(Status::InvalidField);
        }
        for range in ranges {
            if range.blocks.0 == 0 {
                return Err(Status::InvalidField);
            }
            self.range_end(range.start, range.blocks).ok_or(Status::LbaOutOfRange)?;
        }
        if self.degraded == 0 {
            return Ok(());
        }
        for range in ranges {
            let (first, _) = self.locate(range.start.0);
            let (last, _) = self.locate(range.start.0 + (range.blocks.0 - 1));
            for zone in first.0..=last.0 {
                match self.entry(ZoneIndex(zone)).state {
                    ZoneState::ReadOnly => return Err(Status::ZoneIsReadOnly),
                    ZoneState::Offline => return Err(Status::ZoneIsOffline),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;

    #[test]
    fn a_read_is_located_if_it_is_valid_and_all_its_blocks_are_written_ones_of_a_zone() {
        let mut table = ZoneTable::new(Geometry::tiny());
        let size = table.geometry().zone_size_blocks.0;
        table.write(Lba(size), Blocks(3), true).unwrap();
        let located = |table: &ZoneTable, start, blocks| table.locate_written(Lba(start), Blocks(blocks));
        assert_eq!(located(&table, size + 1, 2), Some((ZoneIndex(1), 1)));
        assert_eq!(located(&table, size + 1, 3), None, "one is not written");
        assert_eq!(located(&table, size - 1, 2), None, "it begins in another zone");
        assert_eq!(located(&table, size, 0), None);
        assert_eq!(located(&table, u64::MAX, 1), None);
        table.degrade(ZoneIndex(1), ZoneState::Offline);
        assert_eq!(located(&table, size + 1, 2), None);
    }
}
