//! Verifies that reads return the written data.
//!
//! A host may rely on writes acknowledged before it sent a read; writes in flight at the same time
//! may be visible or not. No more is required of a device here, so that any path to a drive can be
//! verified.
//!
//! In a sequential zone a block is written once between two resets, so its address and the number
//! of previous resets ([`ZoneRecord::generation`]) identify the write: a zone needs one record,
//! whatever its size. Blocks of conventional zones have a record each.

use std::collections::BTreeMap;

use zonda_zoned::{Blocks, CommandId, Geometry, Lba, Outcome, Payload, Status, ZoneIndex, ZoneType};

use super::block_records::BlockRecords;
use crate::limits::VERIFY_DISPLACED_MAX;
use crate::result::{Finding, VerifyError};
use crate::stamp::{Holding, Stamp, Stamper};

/// The expected contents of all zones.
pub(super) struct Verifier {
    stamper: Stamper,
    block_bytes: usize,
    metadata_bytes: usize,
    zone_size: u64,
    zones: Vec<ZoneRecord>,
    /// By the id of the command in flight.
    marks: Vec<Mark>,
    /// Blocks with known contents that were verified.
    pub(super) blocks_checked: u64,
}

/// The expected contents of one zone.
struct ZoneRecord {
    /// Resets that have succeeded: the sequence of the stamps in it.
    generation: u64,
    /// Resets issued: a read during which this changes has run concurrently with a reset.
    resets: u32,
    is_resetting: bool,
    /// A write ran concurrently with the reset in flight.
    reset_is_crossed: bool,
    /// Its contents are unknown until it is reset, because writes ran concurrently with a reset.
    is_unsure: bool,
    writes_outstanding: u32,
    /// Every block before this offset is acknowledged.
    acknowledged: u64,
    /// Acknowledged runs of blocks beyond: start and end.
    early: BTreeMap<u64, u64>,
    /// Blocks that an append wrote to an unexpected offset: offset, and the offset in the stamp.
    displaced: BTreeMap<u64, u64>,
    /// Records of a conventional zone.
    blocks: Option<BlockRecords>,
}

/// The state when a command was issued.
#[derive(Clone, Debug, Default)]
struct Mark {
    zone: u32,
    offset: u64,
    blocks: u64,
    generation: u64,
    resets: u32,
    is_resetting: bool,
    acknowledged: u64,
    /// For a read of a conventional zone, the oldest write that each block may contain; 0 for
    /// earlier contents.
    floors: Box<[u32]>,
}

impl Verifier {
    /// The contents of zones before the run are unknown, unless `prepared`: then they contain
    /// `prefill` blocks of this seed.
    pub(super) fn new(geometry: &Geometry, seed: u64, prefill: &[(ZoneIndex, Blocks)], prepared: bool) -> Verifier {
        let zones = (0..geometry.zone_count).map(|zone| {
            let is_conventional = geometry.zone_type(ZoneIndex(zone)) == ZoneType::Conventional;
            ZoneRecord::new(is_conventional.then(|| BlockRecords::new(geometry.zone_capacity_blocks.0)))
        });
        let mut verifier = Verifier {
            stamper: Stamper::new(geometry, seed),
            block_bytes: geometry.block_size_bytes as usize,
            metadata_bytes: usize::from(geometry.metadata_bytes),
            zone_size: geometry.zone_size_blocks.0,
            zones: zones.collect(),
            marks: Vec::new(),
            blocks_checked: 0,
        };
        for (zone, blocks) in prefill.iter().filter(|_| prepared) {
            let record = &mut verifier.zones[zone.as_usize()];
            match &mut record.blocks {
                Some(records) => records.prepared(blocks.0),
                None => record.acknowledged = blocks.0,
            }
        }
        verifier
    }

    /// A write or append is issued: returns its payload. `start` is its first block, for an append
    /// the expected one.
    pub(super) fn write(&mut self, id: CommandId, zone: ZoneIndex, start: Lba, blocks: u64) -> Payload {
        let mark = self.mark(zone, start, blocks);
        let record = &mut self.zones[zone.as_usize()];
        record.writes_outstanding += 1;
        if record.is_resetting {
            record.is_unsure = true;
            record.reset_is_crossed = true;
        }
        let payload = match &mut record.blocks {
            None => {
                self.stamper.payload(blocks, |block| Stamp { lba: start + Blocks(block), sequence: mark.generation })
            }
            Some(records) => self.stamper.payload(blocks, |block| Stamp {
                lba: start + Blocks(block),
                sequence: u64::from(records.begin_write(mark.offset + block)),
            }),
        };
        self.keep(id, mark);
        payload
    }

    /// A read is issued.
    pub(super) fn read(&mut self, id: CommandId, zone: ZoneIndex, start: Lba, blocks: u64) {
        let mut mark = self.mark(zone, start, blocks);
        if let Some(records) = &self.zones[zone.as_usize()].blocks {
            mark.floors = (mark.offset..mark.offset + blocks).map(|block| records.floor(block)).collect();
        }
        self.keep(id, mark);
    }

    /// A reset is issued.
    pub(super) fn reset(&mut self, zone: ZoneIndex) {
        let record = &mut self.zones[zone.as_usize()];
        record.resets = record.resets.wrapping_add(1);
        record.is_resetting = true;
        record.reset_is_crossed = record.writes_outstanding > 0;
        record.acknowledged = 0;
        record.early.clear();
    }

    /// A reset has ended. After one that failed, the zone may be empty or not.
    pub(super) fn reset_ended(&mut self, zone: ZoneIndex, is_success: bool) {
        let record = &mut self.zones[zone.as_usize()];
        record.is_resetting = false;
        record.is_unsure |= record.reset_is_crossed;
        if is_success {
            record.generation += 1;
            record.is_unsure = record.reset_is_crossed;
            record.displaced.clear();
        }
    }

    /// A write or append has ended. Returns an error if an append returned an address outside its
    /// zone.
    pub(super) fn write_ended(&mut self, id: CommandId, status: Status, outcome: &Outcome) -> Option<VerifyError> {
        let mark = std::mem::take(&mut self.marks[id.0 as usize]);
        let zone_start = u64::from(mark.zone) * self.zone_size;
        let record = &mut self.zones[mark.zone as usize];
        record.writes_outstanding -= 1;
        if let Some(records) = &mut record.blocks {
            (mark.offset..mark.offset + mark.blocks).for_each(|block| records.end_write(block, status.is_success()));
            return None;
        }
        if !status.is_success() || mark.resets != record.resets || record.is_resetting {
            return None;
        }
        let offset = match outcome {
            Outcome::Appended(lba) => match lba.0.checked_sub(zone_start) {
                Some(offset) if offset + mark.blocks <= self.zone_size => offset,
                _ => {
                    record.is_unsure = true;
                    return Some(VerifyError { lba: lba.0, zone: mark.zone, at_ns: 0, found: Finding::Misplaced });
                }
            },
            _ => mark.offset,
        };
        if offset != mark.offset {
            record.displaced.extend((0..mark.blocks).map(|block| (offset + block, mark.offset + block)));
            record.is_unsure |= record.displaced.len() > VERIFY_DISPLACED_MAX;
        }
        record.acknowledge(offset, offset + mark.blocks);
        None
    }

    /// A read has succeeded: returns the number of wrong blocks, and the first.
    pub(super) fn read_ended(&mut self, id: CommandId, outcome: &Outcome) -> (u64, Option<VerifyError>) {
        let mark = std::mem::take(&mut self.marks[id.0 as usize]);
        let (mut wrong, mut first) = (0, None);
        let buffer = match outcome {
            Outcome::Data(Payload::Bytes(buffer))
                if buffer.data.len() as u64 == mark.blocks * self.block_bytes as u64
                    && buffer.metadata.len() as u64 == mark.blocks * self.metadata_bytes as u64 =>
            {
                Some(buffer)
            }
            _ => None,
        };
        for block in 0..mark.blocks {
            let finding = match buffer {
                None => Some(Finding::Nothing),
                Some(buffer) => {
                    let data = &buffer.data[block as usize * self.block_bytes..][..self.block_bytes];
                    let metadata = &buffer.metadata[block as usize * self.metadata_bytes..][..self.metadata_bytes];
                    self.check(&mark, block, data, metadata)
                }
            };
            if let Some(found) = finding {
                wrong += 1;
                let lba = u64::from(mark.zone) * self.zone_size + mark.offset + block;
                first.get_or_insert(VerifyError { lba, zone: mark.zone, at_ns: 0, found });
            }
        }
        (wrong, first)
    }

    /// A read has failed, and is not verified.
    pub(super) fn forget(&mut self, id: CommandId) {
        self.marks[id.0 as usize] = Mark::default();
    }

    /// Verifies one block of a read.
    fn check(&mut self, mark: &Mark, block: u64, data: &[u8], metadata: &[u8]) -> Option<Finding> {
        let record = &self.zones[mark.zone as usize];
        let zone_start = u64::from(mark.zone) * self.zone_size;
        let offset = mark.offset + block;
        let lba = Lba(zone_start + offset);
        if let Some(records) = &record.blocks {
            let (floor, latest) = (mark.floors[block as usize], records.latest(offset));
            if floor == 0 {
                return None;
            }
            self.blocks_checked += 1;
            if self.stamper.holds(Stamp { lba, sequence: u64::from(latest) }, data, metadata) {
                return None;
            }
            return match self.stamper.read(data, metadata) {
                Holding::Stamp(stamp)
                    if stamp.lba == lba && (u64::from(floor)..=u64::from(latest)).contains(&stamp.sequence) =>
                {
                    None
                }
                holding => Some(finding(holding, lba)),
            };
        }
        self.blocks_checked += 1;
        let is_crossed = record.is_unsure || mark.is_resetting || mark.resets != record.resets;
        if !is_crossed {
            let expected = record.displaced.get(&offset).map_or(lba, |expected| Lba(zone_start + expected));
            if self.stamper.holds(Stamp { lba: expected, sequence: mark.generation }, data, metadata) {
                return None;
            }
        }
        let holding = self.stamper.read(data, metadata);
        let is_possible = match holding {
            Holding::Zeros => true,
            Holding::Stamp(stamp) => {
                let is_of_zone = (zone_start..zone_start + self.zone_size).contains(&stamp.lba.0);
                is_of_zone
                    && if is_crossed { stamp.sequence <= record.generation } else { stamp.sequence == mark.generation }
            }
            Holding::Damaged | Holding::Foreign => false,
        };
        let is_acknowledged = !is_crossed && offset < mark.acknowledged;
        if is_possible && !is_acknowledged { None } else { Some(finding(holding, lba)) }
    }

    fn mark(&self, zone: ZoneIndex, start: Lba, blocks: u64) -> Mark {
        let record = &self.zones[zone.as_usize()];
        Mark {
            zone: zone.0,
            offset: start.0 - u64::from(zone.0) * self.zone_size,
            blocks,
            generation: record.generation,
            resets: record.resets,
            is_resetting: record.is_resetting,
            acknowledged: record.acknowledged,
            floors: Box::default(),
        }
    }

    fn keep(&mut self, id: CommandId, mark: Mark) {
        let index = id.0 as usize;
        if self.marks.len() <= index {
            self.marks.resize_with(index + 1, Mark::default);
        }
        self.marks[index] = mark;
    }
}

impl ZoneRecord {
    fn new(blocks: Option<BlockRecords>) -> ZoneRecord {
        ZoneRecord {
            generation: 0,
            resets: 0,
            is_resetting: false,
            reset_is_crossed: false,
            is_unsure: false,
            writes_outstanding: 0,
            acknowledged: 0,
            early: BTreeMap::new(),
            displaced: BTreeMap::new(),
            blocks,
        }
    }

    /// Blocks from `start` to `end` are acknowledged.
    fn acknowledge(&mut self, mut start: u64, mut end: u64) {
        if start > self.acknowledged {
            if let Some((&before, &before_end)) = self.early.range(..=start).next_back()
                && before_end >= start
            {
                (start, end) = (before, end.max(before_end));
            }
            while let Some((&after, &after_end)) = self.early.range(start..=end).next_back() {
                self.early.remove(&after);
                end = end.max(after_end);
            }
            self.early.insert(start, end);
            return;
        }
        self.acknowledged = self.acknowledged.max(end);
        while let Some(first) = self.early.first_entry()
            && *first.key() <= self.acknowledged
        {
            self.acknowledged = self.acknowledged.max(first.remove());
        }
    }
}

/// The finding for a block with wrong contents.
fn finding(holding: Holding, lba: Lba) -> Finding {
    match holding {
        Holding::Zeros => Finding::Zeros,
        Holding::Stamp(stamp) if stamp.lba == lba => Finding::OtherWrite { sequence: stamp.sequence },
        Holding::Stamp(stamp) => Finding::OtherBlock { of_lba: stamp.lba.0 },
        Holding::Damaged => Finding::Damaged,
        Holding::Foreign => Finding::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::BlockBuffer;

    use super::*;

    #[test]
    fn acknowledged_runs_are_merged_in_any_order() {
        let mut zone = ZoneRecord::new(None);
        for (start, end) in [(8, 12), (16, 20), (12, 16), (4, 8)] {
            zone.acknowledge(start, end);
        }
        assert_eq!((zone.acknowledged, zone.early.clone()), (0, BTreeMap::from([(4, 20)])));
        zone.acknowledge(0, 4);
        assert_eq!((zone.acknowledged, zone.early.len()), (20, 0));
    }

    const ZONE: ZoneIndex = ZoneIndex(1);

    fn verifier() -> Verifier {
        Verifier::new(&Geometry::tiny(), 1, &[], false)
    }

    /// Writes the first block of a zone.
    fn write(verifier: &mut Verifier) -> Outcome {
        let payload = verifier.write(CommandId(0), ZONE, Lba(16), 1);
        verifier.write_ended(CommandId(0), Status::Success, &Outcome::None);
        Outcome::Data(payload)
    }

    fn reset(verifier: &mut Verifier) {
        verifier.reset(ZONE);
        verifier.reset_ended(ZONE, true);
    }

    /// The finding for a read of the first block with this outcome.
    fn read(verifier: &mut Verifier, outcome: &Outcome) -> Option<Finding> {
        verifier.read(CommandId(1), ZONE, Lba(16), 1);
        verifier.read_ended(CommandId(1), outcome).1.map(|error| error.found)
    }

    #[test]
    fn contents_from_before_a_reset_are_wrong_after_it() {
        let mut verifier = verifier();
        let before = write(&mut verifier);
        assert_eq!(read(&mut verifier, &before), None);
        reset(&mut verifier);
        assert_eq!(read(&mut verifier, &before), Some(Finding::OtherWrite { sequence: 0 }));
        let after = write(&mut verifier);
        assert_eq!(read(&mut verifier, &after), None);
        assert_eq!(read(&mut verifier, &before), Some(Finding::OtherWrite { sequence: 0 }));
    }

    #[test]
    fn a_write_concurrent_with_a_reset_may_be_before_or_after_it() {
        let mut verifier = verifier();
        let crossing = Outcome::Data(verifier.write(CommandId(0), ZONE, Lba(16), 1));
        reset(&mut verifier);
        verifier.write_ended(CommandId(0), Status::Success, &Outcome::None);
        let zeros = Outcome::Data(Payload::Bytes(Box::new(BlockBuffer {
            data: vec![0; 512].into(),
            metadata: vec![0; 8].into(),
        })));
        assert_eq!((read(&mut verifier, &crossing), read(&mut verifier, &zeros)), (None, None));
        reset(&mut verifier);
        assert_eq!(
            read(&mut verifier, &crossing),
            Some(Finding::OtherWrite { sequence: 0 }),
            "the contents are known again"
        );
    }
}
