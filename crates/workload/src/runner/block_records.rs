//! Tracks which write each block of a conventional zone may contain.

/// One record for each block, once the zone is written.
pub(super) struct BlockRecords {
    zone_blocks: u64,
    records: Box<[BlockRecord]>,
}

/// Writes of one block are numbered from 1.
#[derive(Clone, Copy, Debug, Default)]
struct BlockRecord {
    /// The last write issued.
    latest: u32,
    /// The oldest write that the block may contain; 0 for contents from before the run.
    floor: u32,
    /// The first of the concurrent writes in flight, and whether any of them has succeeded: which
    /// of them remains in the end is unknown.
    together_from: u32,
    outstanding: u32,
    any_succeeded: bool,
}

impl BlockRecords {
    pub(super) fn new(zone_blocks: u64) -> BlockRecords {
        BlockRecords { zone_blocks, records: Box::default() }
    }

    /// Notes that the first `blocks` were written before the run, as the first write of each.
    pub(super) fn prepared(&mut self, blocks: u64) {
        let written = BlockRecord { latest: 1, floor: 1, ..BlockRecord::default() };
        self.all()[..blocks as usize].fill(written);
    }

    /// Notes a write of the block, and returns its number.
    pub(super) fn begin_write(&mut self, block: u64) -> u32 {
        let record = &mut self.all()[block as usize];
        record.latest += 1;
        if record.outstanding == 0 {
            record.together_from = record.latest;
            record.any_succeeded = false;
        }
        record.outstanding += 1;
        record.latest
    }

    pub(super) fn end_write(&mut self, block: u64, is_success: bool) {
        let record = &mut self.all()[block as usize];
        record.outstanding -= 1;
        record.any_succeeded |= is_success;
        if record.outstanding == 0 && record.any_succeeded {
            record.floor = record.together_from;
        }
    }

    pub(super) fn floor(&self, block: u64) -> u32 {
        self.records.get(block as usize).map_or(0, |record| record.floor)
    }

    pub(super) fn latest(&self, block: u64) -> u32 {
        self.records.get(block as usize).map_or(0, |record| record.latest)
    }

    fn all(&mut self) -> &mut [BlockRecord] {
        if self.records.is_empty() {
            self.records = vec![BlockRecord::default(); self.zone_blocks as usize].into();
        }
        &mut self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_flight_together_may_end_in_any_order_on_the_medium() {
        let mut blocks = BlockRecords::new(4);
        assert_eq!((blocks.floor(2), blocks.latest(2)), (0, 0));
        assert_eq!((blocks.begin_write(2), blocks.begin_write(2)), (1, 2));
        blocks.end_write(2, true);
        assert_eq!(blocks.floor(2), 0, "the other is still in flight");
        blocks.end_write(2, false);
        assert_eq!((blocks.floor(2), blocks.latest(2)), (1, 2));
        blocks.begin_write(2);
        blocks.end_write(2, false);
        assert_eq!((blocks.floor(2), blocks.latest(2)), (1, 3), "a failed write may have happened");
        assert_eq!((blocks.floor(1), blocks.latest(1)), (0, 0));
    }
}
