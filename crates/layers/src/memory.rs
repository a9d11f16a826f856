//! [`Memory`]: a drive in memory.

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CompletionQueue, Geometry, Instant, Lba, Namespaces, Payload, QueueFull, ZoneIndex,
    ZoneState, ZonedDevice,
};

use crate::immediate::{Contents, Immediate};
use crate::limits::MEMORY_OUTSTANDING_MAX;
use crate::sparse::Sparse;

/// A zoned device of one namespace that stores every byte, data and metadata, in memory, without
/// latency. Use it to serve a volatile drive, and to measure the overhead of everything but a
/// drive.
///
/// Reads return [`Payload::Bytes`]; writes accept bytes, or [`Payload::None`] for zeros. Memory is
/// allocated in chunks of 64 KiB as zones are written, and released by Reset, Deallocate and Write
/// Zeroes: up to [`MEMORY_SPARE_BYTES_MAX`](crate::limits::MEMORY_SPARE_BYTES_MAX) are kept for the
/// next writes of this drive, the rest is returned to the system. A write that would exceed the
/// limit fails with [`WriteFault`](zonda_zoned::Status::WriteFault) and has no effect; an invalid
/// one fails with the status of the zone rules.
#[derive(Debug)]
pub struct Memory {
    inner: Immediate<Bytes>,
}

impl Memory {
    /// An empty drive that stores at most `bytes_max` bytes, counted in whole chunks.
    ///
    /// # Panics
    /// When the geometry is not valid.
    #[must_use]
    pub fn new(geometry: Geometry, bytes_max: u64) -> Memory {
        let contents = Bytes::new(&geometry, bytes_max);
        Memory { inner: Immediate::new(geometry, contents) }
    }

    /// The zone table.
    #[must_use]
    pub fn zones(&self) -> &ZoneTable {
        &self.inner.zones
    }

    /// Allocated memory in bytes: whole chunks, data and metadata, without the memory kept for the
    /// next writes.
    #[must_use]
    pub fn bytes_kept(&self) -> u64 {
        self.inner.contents.bytes()
    }

    /// Degrades a zone: it becomes read only or offline.
    ///
    /// # Panics
    /// For a conventional zone, and for a state other than read only and offline.
    pub fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        self.inner.zones.degrade(zone, to);
        if to == ZoneState::Offline {
            self.inner.contents.erase(zone);
        }
    }

    /// Simulates a power cycle: open zones are closed, contents stay. Completions that are not yet
    /// polled for are lost, though their commands have taken effect.
    pub fn power_cycle(&mut self) {
        self.inner.power_cycle();
    }
}

impl ZonedDevice for Memory {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.inner.submit(now, command)
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        self.inner.poll(completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

/// Data and metadata of all blocks.
#[derive(Debug)]
struct Bytes {
    zone_blocks: u64,
    block_bytes: usize,
    metadata_bytes: usize,
    chunk_blocks: u64,
    bytes_max: u64,
    data: Sparse,
    metadata: Sparse,
}

impl Bytes {
    fn new(geometry: &Geometry, bytes_max: u64) -> Bytes {
        let (block_bytes, metadata_bytes) = (geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
        let chunk_blocks = Sparse::chunk_blocks(block_bytes, geometry.zone_capacity_blocks.0);
        Bytes {
            zone_blocks: geometry.zone_size_blocks.0,
            block_bytes,
            metadata_bytes,
            chunk_blocks: chunk_blocks as u64,
            bytes_max,
            data: Sparse::new(geometry.zone_count, block_bytes, chunk_blocks),
            metadata: Sparse::new(geometry.zone_count, metadata_bytes, chunk_blocks),
        }
    }

    fn bytes(&self) -> u64 {
        self.data.bytes() + self.metadata.bytes()
    }

    /// Splits a range by zones: the zone, the offset of the first block, and the number of blocks.
    fn pieces(&self, start: Lba, blocks: Blocks) -> impl Iterator<Item = (usize, u64, u64)> + use<> {
        let zone_blocks = self.zone_blocks;
        let (mut at, mut left) = (start.0, blocks.0);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (zone, first) = (at / zone_blocks, at % zone_blocks);
            let count = left.min(zone_blocks - first);
            at += count;
            left -= count;
            Some((zone as usize, first, count))
        })
    }
}

impl Contents for Bytes {
    const OUTSTANDING_MAX: usize = MEMORY_OUTSTANDING_MAX;

    fn takes(&self, payload: &Payload) -> bool {
        !matches!(payload, Payload::Fingerprints(_))
    }

    fn has_ample_space(&self, payload: &Payload, blocks: Blocks) -> bool {
        if !matches!(payload, Payload::Bytes(_)) {
            return true;
        }
        // In each zone that the range covers, the chunks at both ends may be covered in part.
        let chunks = (blocks.0 / self.chunk_blocks).saturating_add(blocks.0 / self.zone_blocks).saturating_add(2);
        let chunk_bytes = self.chunk_blocks * (self.block_bytes + self.metadata_bytes) as u64;
        chunks.saturating_mul(2 * chunk_bytes).saturating_add(self.bytes()) <= self.bytes_max
    }

    fn has_space(&self, start: Lba, blocks: Blocks) -> bool {
        let missing = |(zone, first, count)| {
            self.data.missing_bytes(zone, first, count) + self.metadata.missing_bytes(zone, first, count)
        };
        self.bytes() + self.pieces(start, blocks).map(missing).sum::<u64>() <= self.bytes_max
    }

    #[inline]
    fn write(&mut self, start: Lba, blocks: Blocks, payload: &Payload) {
        let Payload::Bytes(buffer) = payload else { return self.zero(start, blocks) };
        let (mut data, mut metadata) = (&buffer.data[..], &buffer.metadata[..]);
        for (zone, first, count) in self.pieces(start, blocks) {
            let (now, later) = data.split_at(count as usize * self.block_bytes);
            self.data.write(zone, first, now);
            data = later;
            let (now, later) = metadata.split_at(count as usize * self.metadata_bytes);
            self.metadata.write(zone, first, now);
            metadata = later;
        }
    }

    #[inline]
    fn read(&self, start: Lba, blocks: Blocks) -> Payload {
        let mut data = Vec::with_capacity(blocks.0 as usize * self.block_bytes);
        let mut metadata = Vec::with_capacity(blocks.0 as usize * self.metadata_bytes);
        for (zone, first, count) in self.pieces(start, blocks) {
            self.data.read(zone, first, count, &mut data);
            if self.metadata_bytes > 0 {
                self.metadata.read(zone, first, count, &mut metadata);
            }
        }
        Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.into() }))
    }

    fn zero(&mut self, start: Lba, blocks: Blocks) {
        for (zone, first, count) in self.pieces(start, blocks) {
            self.data.zero(zone, first, count);
            self.metadata.zero(zone, first, count);
        }
    }

    fn erase(&mut self, zone: ZoneIndex) {
        self.data.erase(zone.as_usize());
        self.metadata.erase(zone.as_usize());
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
    use zonda_zoned::{
        Completion, LbaRange, Operation, Outcome, PayloadKind, Prng, Status, ZoneAction, ZoneTarget, ZoneType,
    };

    use super::*;
    use crate::testing::{command, poll_ids, read, run_one, write};

    const PLENTY: u64 = 1 << 30;

    fn bytes(fill: u8, blocks: usize) -> Payload {
        let buffer = BlockBuffer { data: vec![fill; 512 * blocks].into(), metadata: vec![fill; 8 * blocks].into() };
        Payload::Bytes(Box::new(buffer))
    }

    fn write_bytes(start: u64, blocks: u64, fill: u8) -> Command {
        let payload = bytes(fill, blocks as usize);
        command(1, Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload })
    }

    fn manage(action: ZoneAction, start: u64) -> Command {
        command(1, Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(start)) })
    }

    /// Bytes of the chunk that a zone of the tiny geometry takes.
    const TINY_CHUNK: u64 = 12 * (512 + 8);

    #[test]
    fn every_completion_and_byte_equals_the_oracles() {
        let mut prng = Prng::new(4);
        for seed in 0..60 {
            let geometry = random_geometry(&mut prng);
            let mut device = Memory::new(geometry.clone(), PLENTY);
            let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
            let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
            for _ in 0..2_000 {
                if prng.chance(1, 300) {
                    let zone = ZoneIndex(prng.below(u64::from(geometry.zone_count)) as u32);
                    if geometry.zone_type(zone) == ZoneType::SequentialWriteRequired {
                        let to = if prng.chance(2, 3) { ZoneState::ReadOnly } else { ZoneState::Offline };
                        device.degrade(zone, to);
                        oracle.degrade(zone, to);
                    }
                }
                if prng.chance(1, 500) {
                    device.power_cycle();
                    oracle.power_cycle();
                }
                let command = source.next(&oracle);
                let expected = oracle.execute(&command);
                assert_eq!(run_one(&mut device, command), expected, "{geometry:?}");
            }
            device.zones().check_invariants();
            for start in (0..geometry.namespace_blocks().0).step_by(geometry.max_transfer_blocks.0 as usize) {
                let blocks = geometry.max_transfer_blocks.0.min(geometry.namespace_blocks().0 - start);
                let read_back = read(7, start, blocks);
                let expected = oracle.execute(&read_back);
                assert_eq!(run_one(&mut device, read_back), expected);
            }
        }
    }

    #[test]
    fn writes_beyond_the_memory_limit_fail_without_effect_and_only_those() {
        let mut prng = Prng::new(5);
        let mut faults = 0;
        for seed in 0..40 {
            let geometry = random_geometry(&mut prng);
            let chunk = Memory::new(geometry.clone(), 0).inner.contents.chunk_blocks
                * u64::from(geometry.block_size_bytes + u32::from(geometry.metadata_bytes));
            let mut device = Memory::new(geometry.clone(), 3 * chunk);
            let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
            let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
            for _ in 0..2_000 {
                let command = source.next(&oracle);
                let id = command.id;
                let before = device.zones().clone();
                let ended = run_one(&mut device, command.clone());
                assert!(device.bytes_kept() <= 3 * chunk);
                if ended.status == Status::WriteFault {
                    faults += 1;
                    assert_eq!(ended, Completion::of(id, Status::WriteFault));
                    assert_eq!(*device.zones(), before);
                    assert!(oracle.clone().execute(&command).status.is_success(), "the zone rules are checked first");
                } else {
                    assert_eq!(ended, oracle.execute(&command));
                }
            }
        }
        assert!(faults > 1_000, "{faults} writes exceeded the limit");
    }

    #[test]
    fn reset_and_deallocate_release_memory() {
        let mut device = Memory::new(Geometry::tiny(), 2 * TINY_CHUNK);
        for start in [0, 16] {
            assert_eq!(run_one(&mut device, write_bytes(start, 4, 1)).status, Status::Success);
        }
        assert_eq!(device.bytes_kept(), 2 * TINY_CHUNK);
        assert_eq!(run_one(&mut device, write_bytes(32, 1, 1)).status, Status::WriteFault);
        assert_eq!(run_one(&mut device, write_bytes(4, 4, 1)).status, Status::Success, "in an allocated chunk");
        run_one(&mut device, manage(ZoneAction::Reset, 0));
        assert_eq!(device.bytes_kept(), TINY_CHUNK);
        let ranges = [LbaRange { start: Lba(16), blocks: Blocks(4) }].into();
        run_one(&mut device, command(1, Operation::Deallocate { ranges }));
        assert_eq!(device.bytes_kept(), 0);
        assert_eq!(run_one(&mut device, write_bytes(32, 1, 1)).status, Status::Success);
    }

    #[test]
    fn zeros_take_no_memory() {
        let mut device = Memory::new(Geometry::tiny(), 0);
        let zeros = Operation::Write { start: Lba(0), blocks: Blocks(4), payload: Payload::None };
        assert_eq!(run_one(&mut device, command(1, zeros)).status, Status::Success);
        assert_eq!(run_one(&mut device, write_bytes(4, 1, 1)).status, Status::WriteFault);
        assert_eq!(run_one(&mut device, read(1, 0, 4)).outcome, Outcome::Data(bytes(0, 4)));
    }

    #[test]
    fn a_drive_that_stores_bytes_refuses_fingerprints() {
        let mut device = Memory::new(Geometry::tiny(), PLENTY);
        assert_eq!(run_one(&mut device, write(1, 0, 1)).status, Status::InvalidField);
    }

    #[test]
    fn a_power_cycle_loses_unpolled_completions_and_no_contents() {
        let mut device = Memory::new(Geometry::tiny(), PLENTY);
        device.submit(Instant(3), write_bytes(0, 4, 9)).unwrap();
        assert_eq!(device.next_timeout(), Some(Instant(3)));
        device.power_cycle();
        assert_eq!(poll_ids(&mut device, Instant(3)), [0; 0]);
        assert_eq!(device.zones().zone(ZoneIndex(0)).state, ZoneState::Closed);
        assert_eq!(run_one(&mut device, read(1, 0, 4)).outcome, Outcome::Data(bytes(9, 4)));
    }
}
