//! The parts of random commands: addresses, lengths and payloads.

use crate::{BlockBuffer, Blocks, Lba, Payload, PayloadKind, ZERO_FINGERPRINT, ZoneIndex, ZoneState};

use super::CommandSource;
use crate::reference::ReferenceDevice;

impl CommandSource {
    /// The start of a write to the zone, and the number of free blocks from there.
    pub(super) fn place(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> (Lba, u64) {
        let write_pointer = oracle.zone(zone).write_pointer;
        let capacity_end = oracle.capacity_end(zone);
        let (start, end) = match (oracle.zone(zone).state, self.geometry.zrwa) {
            (ZoneState::NotWritePointer, _) => {
                let start = write_pointer + Blocks(self.prng.below(self.geometry.zone_size_blocks.0));
                (start, self.geometry.zone_start(ZoneIndex(self.geometry.conventional_zone_count)))
            }
            (_, Some(zrwa)) if oracle.zone(zone).zrwa => {
                let end = Lba(capacity_end.0.min(write_pointer.0 + 2 * zrwa.size_blocks.0));
                let reach = if self.prng.chance(1, 4) { 2 * zrwa.size_blocks.0 } else { zrwa.size_blocks.0 };
                let offset = self.prng.below(reach.min((end - write_pointer).0));
                if self.prng.chance(1, 20) {
                    return (Lba(write_pointer.0.saturating_sub(1)), (end - write_pointer).0);
                }
                (write_pointer + Blocks(offset), end)
            }
            _ => (write_pointer, capacity_end),
        };
        (start, (end - start).0)
    }

    /// The number of blocks: mostly at most `free` and `most`, often exactly that, and sometimes
    /// one or many more.
    pub(super) fn length(&mut self, free: u64, most: u64) -> u64 {
        let fitting = free.min(most).max(1);
        match self.prng.below(48) {
            0 => self.one_of(&[0, most + 1, u64::from(u16::MAX) + 2, 1 << 32, u64::MAX]),
            1 | 2 if free < most => free + 1 + self.prng.below(most - free),
            1 => free + 1,
            2..12 => fitting,
            _ => 1 + self.prng.below(fitting),
        }
    }

    /// Mostly the block itself, sometimes one near a boundary.
    pub(super) fn perhaps_elsewhere(&mut self, lba: Lba, zone: ZoneIndex) -> Lba {
        if !self.prng.chance(1, 20) {
            return lba;
        }
        let zone_start = self.geometry.zone_start(zone).0;
        let capacity_end = zone_start + self.geometry.zone_capacity_blocks.0;
        let zone_end = zone_start + self.geometry.zone_size_blocks.0;
        let namespace_end = self.geometry.namespace_blocks().0;
        let anywhere = self.prng.below(namespace_end);
        let nearly_all = u64::MAX - self.prng.below(20);
        Lba(self.one_of(&[
            lba.0.saturating_sub(1),
            lba.0 + 1,
            lba.0 + 2,
            zone_start,
            capacity_end - 1,
            capacity_end,
            zone_end - 1,
            zone_end,
            namespace_end - 1,
            namespace_end,
            anywhere,
            nearly_all,
            u64::MAX,
        ]))
    }

    /// A payload for so many blocks, mostly of the kind that is kept; rarely one of a wrong size.
    pub(super) fn payload(&mut self, blocks: u64) -> Payload {
        // No device accepts so many blocks: the payload need not be generated.
        if blocks > self.geometry.max_transfer_blocks.0 + 1 {
            return Payload::None;
        }
        let blocks =
            if self.prng.chance(1, 40) { self.one_of(&[0, blocks + 1, blocks.saturating_sub(1)]) } else { blocks };
        match (self.keeps, self.prng.below(32)) {
            (_, 0) => Payload::None,
            (PayloadKind::None, 3..) => Payload::None,
            (PayloadKind::None | PayloadKind::Bytes, 1) | (PayloadKind::Fingerprints, 3..) => {
                Payload::Fingerprints((0..blocks).map(|_| self.random_print()).collect())
            }
            _ => {
                let spoilt = self.prng.chance(1, 40);
                let data = self.random_blocks(blocks, u64::from(self.geometry.block_size_bytes));
                let metadata = self.random_blocks(blocks, u64::from(self.geometry.metadata_bytes) + u64::from(spoilt));
                Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.into() }))
            }
        }
    }

    fn random_print(&mut self) -> u64 {
        if self.prng.chance(1, 16) { ZERO_FINGERPRINT } else { self.prng.next_u64() }
    }

    /// Random bytes block after block, some blocks of zeros among them.
    fn random_blocks(&mut self, blocks: u64, block_bytes: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            let zeros = self.prng.chance(1, 8);
            bytes.extend(if zeros { vec![0; block_bytes as usize] } else { self.random_bytes(block_bytes) });
        }
        bytes
    }

    pub(super) fn random_bytes(&mut self, count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < count {
            bytes.extend(self.prng.next_u64().to_le_bytes());
        }
        bytes.truncate(count as usize);
        bytes
    }
}
