//! A zone with data: its layout, and the progress of its bytes to flash.

use crate::allocation::{DieIndex, Stripe, UnitOfZone};
use crate::layout::Layout;
use crate::pending::CommandKey;
use zonda_zoned::zones::ZoneView;

/// One zone since its first write after a reset.
#[derive(Debug)]
pub(crate) struct ZoneRun {
    pub(crate) stripe: Stripe,
    /// Host bytes received over the link.
    pub(crate) arrived_bytes: u64,
    pub(crate) slots: Box<[SlotRun]>,
    /// Program units between buffer and flash: they are still read from the buffer.
    pub(crate) on_the_way: Vec<(u32, u16)>,
    /// Outstanding writes.
    pub(crate) writes_in_flight: u32,
    /// Blocks from the start up to which writes are acknowledged.
    pub(crate) acknowledged_blocks: u64,
    /// Of a zone with a ZRWA, blocks from the start that were committed to the write buffer.
    pub(crate) committed_blocks: u64,
    /// No more host data will arrive: partial units were programmed.
    pub(crate) is_sealed: bool,
    /// A finish that waits for the writes in flight.
    pub(crate) waiting_finish: Option<CommandKey>,
}

/// One slot of a zone's stripe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotRun {
    /// Bytes in the buffer that wait for their program unit to fill.
    pub(crate) held_bytes: u32,
    /// Bytes of that unit that have been spilled, and will be programmed again with the rest of it.
    pub(crate) spilled_bytes: u32,
    /// Erase units, from the zone's start, that have been programmed since power-on.
    pub(crate) begun_units: u32,
}

impl ZoneRun {
    pub(crate) fn new(stripe: Stripe) -> ZoneRun {
        ZoneRun {
            slots: vec![SlotRun::default(); usize::from(stripe.slots())].into(),
            stripe,
            arrived_bytes: 0,
            on_the_way: Vec::new(),
            writes_in_flight: 0,
            acknowledged_blocks: 0,
            committed_blocks: 0,
            is_sealed: false,
            waiting_finish: None,
        }
    }

    /// A zone that was filled before power-on: all of it is on flash.
    pub(crate) fn programmed(stripe: Stripe, bytes: u64, block_bytes: u64) -> ZoneRun {
        let mut run = ZoneRun::new(stripe);
        run.arrived_bytes = bytes;
        run.acknowledged_blocks = bytes / block_bytes;
        run.committed_blocks = run.acknowledged_blocks;
        run
    }

    /// Whether a page has to be sensed; otherwise it is in the buffer.
    #[inline]
    pub(crate) fn is_on_flash(&self, layout: &Layout, page: u64) -> bool {
        let (slot, row) = layout.place_of_page(page);
        if !self.on_the_way.is_empty() && self.on_the_way.contains(&(row, slot)) {
            return false;
        }
        if self.slots[usize::from(slot)].held_bytes == 0 {
            return true;
        }
        // Something of this slot is held: it is of the slot's last row.
        row < layout.row_at(self.arrived_bytes, slot)
    }

    /// Whether the host has written all of the zone, and all of it is on flash.
    #[inline]
    pub(crate) fn is_complete(&self, layout: &Layout) -> bool {
        self.arrived_bytes == layout.zone_capacity_bytes() && self.on_the_way.is_empty() && self.held_bytes() == 0
    }

    /// Bytes that the write pointer has passed in a ZRWA since the last call.
    pub(crate) fn take_committed_bytes(&mut self, view: &ZoneView, block_bytes: u64) -> u64 {
        let blocks = view.write_pointer_blocks.0 - self.committed_blocks;
        self.committed_blocks += blocks;
        blocks * block_bytes
    }

    /// The die of a page.
    #[inline]
    pub(crate) fn die_of_page(&self, layout: &Layout, page: u64) -> u16 {
        if self.stripe.is_uniform() {
            return self.stripe.die(UnitOfZone { slot: layout.slot_of_page(page), row: 0 }).0;
        }
        let (slot, row) = layout.place_of_page(page);
        self.stripe.die(UnitOfZone { slot, row: layout.erase_unit_of_row(row) }).0
    }

    /// The die of the zone's first byte.
    pub(crate) fn first_die(&self) -> DieIndex {
        self.stripe.die(UnitOfZone { slot: 0, row: 0 })
    }

    /// Whether a program is the first in its erase unit, in this run.
    #[inline]
    pub(crate) fn begins(&mut self, unit: UnitOfZone) -> bool {
        let begun = &mut self.slots[usize::from(unit.slot)].begun_units;
        let is_first = unit.row >= *begun;
        *begun = (*begun).max(unit.row + 1);
        is_first
    }

    /// Bytes of all slots that wait for their program unit to fill.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.held_bytes)).sum()
    }

    pub(crate) fn unit_is_on_its_way(&mut self, slot: u16, row: u32) {
        self.on_the_way.push((row, slot));
    }

    pub(crate) fn unit_arrived(&mut self, slot: u16, row: u32) {
        let place = self.on_the_way.iter().position(|unit| *unit == (row, slot));
        self.on_the_way.swap_remove(place.expect("a unit that arrives on flash was in flight"));
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.held_bytes() <= self.arrived_bytes, "held data have arrived");
        assert!(self.waiting_finish.is_none() || self.writes_in_flight > 0, "a finish waits for writes only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn of_a_slot_that_holds_bytes_the_rows_before_its_last_are_on_flash() {
        let text = zonda_profiles::builtin_text("tiny").expect("a built-in profile");
        let profile = Profile::parse(text).expect("which is valid");
        let layout = Layout::new(&profile);
        let (page_bytes, row_bytes) = (profile.flash.read_unit.0, profile.flash.program_unit.0);
        let slots = layout.slots;
        let mut run = ZoneRun::new(Stripe::uniform((0..slots as u16).map(DieIndex)));
        // On each slot there are two rows and a page, which slot 0 holds.
        run.arrived_bytes = slots * (2 * row_bytes + page_bytes);
        run.slots[0].held_bytes = page_bytes as u32;
        let is_on_flash: Vec<bool> =
            (0..=2 * row_bytes / page_bytes).map(|page| run.is_on_flash(&layout, page * slots)).collect();
        let (held, rows) = is_on_flash.split_last().expect("there are pages");
        assert!(!held && rows.len() > 2 && rows.iter().all(|&is| is), "{is_on_flash:?}");
    }
}
