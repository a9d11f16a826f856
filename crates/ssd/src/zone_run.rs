//! A zone that holds data: where it lies, and which of its bytes are where on their way to flash.

use crate::allocation::Stripe;
use crate::layout::Layout;
use zonda_zoned::zones::ZoneView;

/// One zone since its first write after a reset.
#[derive(Debug)]
pub(crate) struct ZoneRun {
    pub(crate) stripe: Stripe,
    pub(crate) layout: Layout,
    /// Host bytes that have come over the link.
    pub(crate) arrived_bytes: u64,
    /// Of each slot, bytes in the buffer that wait for their program unit to fill.
    pub(crate) held_bytes: Box<[u32]>,
    /// Of each slot, bytes of that unit that have been spilled, and will be programmed again with the rest of it.
    pub(crate) spilled_bytes: Box<[u32]>,
    /// Program units between buffer and flash: they are still read from the buffer.
    pub(crate) on_the_way: Vec<(u32, u16)>,
    /// Writes taken and not yet completed.
    pub(crate) writes_in_flight: u32,
    /// Blocks from the start up to which writes are acknowledged.
    pub(crate) acknowledged_blocks: u64,
    /// Of a zone with a ZRWA, blocks from the start that have left it for the write buffer.
    pub(crate) committed_blocks: u64,
    /// No more host data will come: what is left of partial units has gone to flash.
    pub(crate) is_sealed: bool,
    /// A finish that waits for the writes in flight.
    pub(crate) waiting_finish: Option<u32>,
}

impl ZoneRun {
    pub(crate) fn new(stripe: Stripe, layout: Layout) -> ZoneRun {
        let held_bytes: Box<[u32]> = vec![0; stripe.len()].into();
        ZoneRun {
            stripe,
            layout,
            arrived_bytes: 0,
            spilled_bytes: held_bytes.clone(),
            held_bytes,
            on_the_way: Vec::new(),
            writes_in_flight: 0,
            acknowledged_blocks: 0,
            committed_blocks: 0,
            is_sealed: false,
            waiting_finish: None,
        }
    }

    /// A zone that was filled before power came on: all of it is on flash.
    pub(crate) fn programmed(stripe: Stripe, layout: Layout, bytes: u64, block_bytes: u64) -> ZoneRun {
        let mut run = ZoneRun::new(stripe, layout);
        run.arrived_bytes = bytes;
        run.acknowledged_blocks = bytes / block_bytes;
        run.committed_blocks = run.acknowledged_blocks;
        run
    }

    /// Whether a page has to be sensed; otherwise it is in the buffer.
    #[inline]
    pub(crate) fn is_on_flash(&self, page: u64) -> bool {
        let (slot, row) = self.layout.place_of_page(page);
        self.is_unit_on_flash(slot, row)
    }

    #[inline]
    fn is_unit_on_flash(&self, slot: u16, row: u32) -> bool {
        if !self.on_the_way.is_empty() && self.on_the_way.contains(&(row, slot)) {
            return false;
        }
        if self.held_bytes[usize::from(slot)] == 0 {
            return true;
        }
        // Something of this slot is held: it is of the slot's last row.
        row < self.layout.row_at(self.arrived_bytes, slot)
    }

    /// Bytes that the write pointer has passed in a ZRWA since the last call.
    pub(crate) fn take_committed_bytes(&mut self, view: &ZoneView, block_bytes: u64) -> u64 {
        let blocks = view.write_pointer_blocks.0 - self.committed_blocks;
        self.committed_blocks += blocks;
        blocks * block_bytes
    }

    pub(crate) fn unit_is_on_its_way(&mut self, slot: u16, row: u32) {
        self.on_the_way.push((row, slot));
    }

    pub(crate) fn unit_arrived(&mut self, slot: u16, row: u32) {
        let place = self.on_the_way.iter().position(|unit| *unit == (row, slot));
        self.on_the_way.swap_remove(place.expect("a unit that arrives on flash was on its way"));
    }

    pub(crate) fn check_invariants(&self) {
        let held: u64 = self.held_bytes.iter().map(|bytes| u64::from(*bytes)).sum();
        assert!(held <= self.arrived_bytes, "what is held has arrived");
        assert!(self.waiting_finish.is_none() || self.writes_in_flight > 0, "a finish waits for writes only");
    }
}
