//! Host blocks in the write buffer, until their program units are full.

use super::shape::Shape;

/// Blocks in the write buffer that wait for their program unit to fill.
#[derive(Debug)]
pub(super) struct Gathering {
    /// The program units of the stripe that is being filled.
    units: Vec<Vec<u32>>,
    /// Blocks of the stripe that have arrived.
    filled_blocks: u32,
}

impl Gathering {
    pub(super) fn new(shape: Shape) -> Gathering {
        Gathering { units: vec![Vec::new(); shape.stripe_units as usize], filled_blocks: 0 }
    }

    /// Adds a block; returns the program unit that it fills, if it does.
    pub(super) fn add(&mut self, lba: u32, shape: Shape) -> Option<Vec<u32>> {
        let page = self.filled_blocks / shape.page_blocks;
        let (round, unit) = (page / shape.stripe_units, (page % shape.stripe_units) as usize);
        self.units[unit].push(lba);
        self.filled_blocks += 1;
        let ends_page = self.filled_blocks.is_multiple_of(shape.page_blocks);
        let is_last_round = (round + 1) * shape.page_blocks == shape.program_blocks;
        if self.filled_blocks == shape.stripe_units * shape.program_blocks {
            self.filled_blocks = 0;
        }
        (ends_page && is_last_round).then(|| std::mem::take(&mut self.units[unit]))
    }

    /// Removes all blocks, in units that are not full.
    pub(super) fn take(&mut self) -> Vec<Vec<u32>> {
        self.filled_blocks = 0;
        let units = self.units.iter_mut().map(std::mem::take);
        units.filter(|blocks| !blocks.is_empty()).collect()
    }
}
