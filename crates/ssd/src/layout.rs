//! Layout of a zone: striped over its dies in read units.
//!
//! Slot `s` is the `s`-th die of the zone's stripe. The bytes of a slot, taken together, are cut
//! into program units (rows), and into erase units.

use crate::profile::Profile;

/// Layout arithmetic of a drive's zones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) slots: u64,
    read_unit_bytes: u64,
    program_unit_bytes: u64,
    erase_unit_bytes: u64,
    zone_capacity_bytes: u64,
    page_types: u64,
}

impl Layout {
    pub(crate) fn new(profile: &Profile) -> Layout {
        Layout {
            slots: u64::from(profile.zones.parallelism),
            read_unit_bytes: profile.flash.read_unit.0,
            program_unit_bytes: profile.flash.program_unit.0,
            erase_unit_bytes: profile.flash.erase_unit.0,
            zone_capacity_bytes: profile.geometry.zone_capacity.0,
            page_types: profile.flash.page_types.len() as u64,
        }
    }

    /// Writable bytes of a zone.
    #[inline]
    pub(crate) fn zone_capacity_bytes(&self) -> u64 {
        self.zone_capacity_bytes
    }

    /// Bytes of a slot when the zone is full.
    pub(crate) fn slot_capacity_bytes(&self) -> u64 {
        self.zone_capacity_bytes / self.slots
    }

    /// The slot of a page.
    #[inline]
    pub(crate) fn slot_of_page(&self, page: u64) -> u16 {
        if self.slots == 1 { 0 } else { (page % self.slots) as u16 }
    }

    /// The number of a page among those of its slot; 0 where all pages take the same times.
    #[inline]
    pub(crate) fn page_of_slot(&self, page: u64) -> u32 {
        if self.page_types == 0 { 0 } else { (page / self.slots) as u32 }
    }

    /// The type of a page of a slot, from the start of its erase unit.
    pub(crate) fn type_of_page(&self, page_of_slot: u32) -> usize {
        let pages_per_erase_unit = self.erase_unit_bytes / self.read_unit_bytes;
        (u64::from(page_of_slot) % pages_per_erase_unit % self.page_types) as usize
    }

    /// The slot of a page, and the row of the program unit it is in.
    #[inline]
    pub(crate) fn place_of_page(&self, page: u64) -> (u16, u32) {
        if self.slots == 1 {
            return (0, (page * self.read_unit_bytes / self.program_unit_bytes) as u32);
        }
        let (round, slot) = (page / self.slots, page % self.slots);
        (slot as u16, (round * self.read_unit_bytes / self.program_unit_bytes) as u32)
    }

    /// How many of a zone's first `bytes` bytes lie on a slot.
    #[inline]
    pub(crate) fn bytes_on_slot(&self, bytes: u64, slot: u16) -> u64 {
        let stripe_bytes = self.read_unit_bytes * self.slots;
        let (stripes, rest) = (bytes / stripe_bytes, bytes % stripe_bytes);
        stripes * self.read_unit_bytes
            + rest.saturating_sub(u64::from(slot) * self.read_unit_bytes).min(self.read_unit_bytes)
    }

    /// The row in which a slot's next byte will lie, when `bytes` of the zone are written.
    #[inline]
    pub(crate) fn row_at(&self, bytes: u64, slot: u16) -> u32 {
        (self.bytes_on_slot(bytes, slot) / self.program_unit_bytes) as u32
    }

    /// The erase unit that a row is in.
    #[inline]
    pub(crate) fn erase_unit_of_row(&self, row: u32) -> u32 {
        (u64::from(row) * self.program_unit_bytes / self.erase_unit_bytes) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        slots: 3,
        read_unit_bytes: 16,
        program_unit_bytes: 32,
        erase_unit_bytes: 64,
        zone_capacity_bytes: 3 * 128,
        page_types: 3,
    };

    #[test]
    fn pages_go_round_the_slots_and_fill_rows() {
        let places: Vec<(u16, u32)> = (0..8).map(|page| LAYOUT.place_of_page(page)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (2, 0), (0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]);
    }

    #[test]
    fn the_bytes_on_all_slots_add_up() {
        for bytes in 0..200 {
            let on_slots: Vec<u64> = (0..3).map(|slot| LAYOUT.bytes_on_slot(bytes, slot)).collect();
            assert_eq!(on_slots.iter().sum::<u64>(), bytes, "{bytes}: {on_slots:?}");
        }
        assert_eq!([0, 1, 2].map(|slot| LAYOUT.bytes_on_slot(16 * 3 + 20, slot)), [32, 20, 16]);
    }

    #[test]
    fn the_types_of_pages_begin_again_with_each_erase_unit() {
        let types: Vec<usize> = (0..9).map(|page| LAYOUT.type_of_page(page)).collect();
        assert_eq!(types, [0, 1, 2, 0, 0, 1, 2, 0, 0], "an erase unit has four pages");
        assert_eq!([0, 2, 3, 14].map(|page| LAYOUT.page_of_slot(page)), [0, 0, 1, 4]);
    }

    #[test]
    fn two_rows_share_an_erase_unit() {
        assert_eq!([0, 1, 2, 3, 4].map(|row| LAYOUT.erase_unit_of_row(row)), [0, 0, 1, 1, 2]);
    }
}
