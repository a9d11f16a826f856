//! Faults of a drive's media: power loss, corruption, failing zones.

use bytes::Bytes;
use zonda_zoned::reference::ZoneImage;
use zonda_zoned::{
    Blocks, Command, CommandId, Lba, NamespaceId, Operation, Outcome, Payload, Prng, ZoneAction, ZoneIndex, ZoneState,
    ZoneTarget,
};

use super::Drive;
use super::drive::Presence;
use crate::limits::METADATA_ZONES;

impl Drive {
    /// Power loss and restart. Each command in flight has taken effect, completely, in part, or not
    /// at all; the contents of a volatile cache may be lost.
    pub fn crash(&mut self) {
        self.drop_all();
        self.lose_cache();
        self.device.power_cycle();
    }

    /// Its host was stopped: the drive executes them, and no one receives the
    /// completions.
    pub fn complete_orphaned(&mut self) {
        while self.step().is_some() || self.has_work() {}
    }

    /// Drops the commands in flight.
    pub(super) fn drop_all(&mut self) {
        self.ended.clear();
        let mut torn = Vec::new();
        let is_present = self.presence() == Presence::Present;
        while is_present && !self.waiting.is_empty() {
            let at = self.prng.below(self.waiting.len() as u64) as usize;
            let command = self.waiting.swap_remove(at);
            match self.prng.below(4) {
                0 => {}
                1 => torn.extend(self.tear(command)),
                // Appends that were not executed leave no gaps; writes behind a lost one are
                // refused.
                _ => drop(self.execute(&command)),
            }
        }
        // A partial write is the last one in its zone.
        let mut seen = Vec::new();
        for command in torn {
            let zone = self.zone_of(&command.operation);
            if !seen.contains(&zone) {
                seen.push(zone);
                drop(self.execute(&command));
            }
        }
        self.waiting.clear();
    }

    /// The beginning of a write.
    fn tear(&mut self, mut command: Command) -> Option<Command> {
        let (blocks, payload) = match &mut command.operation {
            Operation::Write { blocks, payload, .. } | Operation::Append { blocks, payload, .. } => (blocks, payload),
            _ => return None,
        };
        let left = self.prng.below(blocks.0);
        if left == 0 {
            return None;
        }
        *blocks = Blocks(left);
        if let Payload::Bytes(buffer) = payload {
            buffer.data.truncate(left as usize * self.geometry.block_size_bytes as usize);
            buffer.metadata.truncate(left as usize * usize::from(self.geometry.metadata_bytes));
        }
        Some(command)
    }

    /// A zone fails, as
    /// [`ReferenceDevice::degrade`](zonda_zoned::reference::ReferenceDevice::degrade).
    pub fn degrade(&mut self, zone: u32, to: ZoneState) {
        self.device.degrade(ZoneIndex(zone), to);
        self.discard_snapshots_of(zone);
    }

    /// The state of a zone.
    #[must_use]
    pub fn zone_state(&self, zone: u32) -> ZoneState {
        self.device.image(ZoneIndex(zone)).state
    }

    /// Whether one of the zones of superblocks cannot be written any more.
    #[must_use]
    pub fn lacks_metadata_zone(&self) -> bool {
        (0..METADATA_ZONES).any(|zone| matches!(self.zone_state(zone), ZoneState::ReadOnly | ZoneState::Offline))
    }

    /// A random written block in the zones from `first` on.
    pub fn some_block(&mut self, first: u32) -> Option<Lba> {
        let zones = self.zones_with_blocks(first);
        let &(zone, blocks) = self.prng.pick(&zones)?;
        Some(self.geometry.zone_start(ZoneIndex(zone)) + Blocks(self.prng.below(blocks)))
    }

    /// Zones from `first` on with readable contents, and how many blocks.
    fn zones_with_blocks(&self, first: u32) -> Vec<(u32, u64)> {
        let blocks = |zone: u32| {
            let image = self.device.image(ZoneIndex(zone));
            let is_readable = !matches!(image.state, ZoneState::Empty | ZoneState::Offline);
            (is_readable && image.write_pointer_blocks.0 > 0).then_some((zone, image.write_pointer_blocks.0))
        };
        (first..self.geometry.zone_count).filter_map(blocks).collect()
    }

    /// One of the same blocks: at the beginning of a zone, at its end, or anywhere.
    pub fn aimed_block(&self, prng: &mut Prng, first: u32) -> Option<Lba> {
        let &(zone, blocks) = prng.pick(&self.zones_with_blocks(first))?;
        let offset = match prng.below(3) {
            0 => prng.below(blocks.min(2)),
            1 => blocks - 1 - prng.below(blocks.min(4)),
            _ => prng.below(blocks),
        };
        Some(self.geometry.zone_start(ZoneIndex(zone)) + Blocks(offset))
    }

    /// Whether a block is written and readable.
    #[must_use]
    pub fn has_block(&self, lba: Lba) -> bool {
        let Some(zone) = self.geometry.zone_of(lba) else { return false };
        let image = self.device.image(zone);
        image.state != ZoneState::Offline && lba < self.geometry.zone_start(zone) + image.write_pointer_blocks
    }

    /// At random, writes go to another block and leave their own unwritten, or are written in part.
    pub(super) fn misdirect_some(&mut self, operation: &Operation, outcome: &Outcome) {
        let misdirected = self.faults.misdirected;
        let (start, blocks) = match (operation, outcome) {
            (Operation::Append { payload: Payload::Bytes(_), .. }, Outcome::Appended(lba)) => {
                (*lba, operation.blocks())
            }
            (Operation::Write { start, blocks, .. }, _) => (*start, *blocks),
            _ => return,
        };
        // Superblocks have their own faults.
        let is_superblock = self.geometry.zone_of(start).is_some_and(|zone| zone.0 < METADATA_ZONES);
        if misdirected == 0 || is_superblock || !self.prng.chance(misdirected, 1000) {
            return;
        }
        if self.prng.chance(1, 2) {
            let left = self.prng.below(blocks.0);
            return (left..blocks.0).for_each(|at| self.blank(start + Blocks(at)));
        }
        let Some(other) = self.some_block(METADATA_ZONES).filter(|&other| other != start) else { return };
        let Some((data, metadata)) = self.contents(start) else { return };
        self.damaged.insert(other);
        self.device.set_block_bytes(other, &data, &metadata);
        self.blank(start);
    }

    fn contents(&mut self, lba: Lba) -> Option<(Bytes, Bytes)> {
        let read = Operation::Read { start: lba, blocks: Blocks(1) };
        let command = Command::new(CommandId(0), NamespaceId::FIRST, read);
        match self.device.execute(&command).outcome {
            Outcome::Data(Payload::Bytes(buffer)) => Some((buffer.data, buffer.metadata)),
            _ => None,
        }
    }

    /// Unreadable blocks become readable.
    pub fn make_readable(&mut self) {
        self.unreadable.clear();
    }

    /// Flips a bit of a block, in its data or its metadata.
    pub fn rot(&mut self, lba: Lba) {
        let read = Operation::Read { start: lba, blocks: Blocks(1) };
        let completion = self.device.execute(&Command::new(CommandId(0), NamespaceId::FIRST, read));
        let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { return };
        let (mut data, mut metadata) = (buffer.data.to_vec(), buffer.metadata.to_vec());
        let bit = self.prng.below(8 * (data.len() + metadata.len()) as u64) as usize;
        let (byte, flipped) = (bit / 8, 1 << (bit % 8));
        if byte < data.len() {
            data[byte] ^= flipped;
        } else {
            metadata[byte - data.len()] ^= flipped;
        }
        self.damaged.insert(lba);
        self.device.set_block_bytes(lba, &data, &metadata);
    }

    /// Flips the first bit of a block's data.
    pub fn flip(&mut self, lba: Lba) {
        let read = Operation::Read { start: lba, blocks: Blocks(1) };
        let completion = self.device.execute(&Command::new(CommandId(0), NamespaceId::FIRST, read));
        let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { return };
        let mut data = buffer.data.to_vec();
        data[0] ^= 1;
        self.damaged.insert(lba);
        self.device.set_block_bytes(lba, &data, &buffer.metadata);
    }

    /// Changes the data of a block.
    #[cfg(test)]
    pub(crate) fn rewrite(&mut self, lba: Lba, change: impl FnOnce(&mut [u8])) {
        let read = Operation::Read { start: lba, blocks: Blocks(1) };
        let completion = self.device.execute(&Command::new(CommandId(0), NamespaceId::FIRST, read));
        let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { return };
        let mut data = buffer.data.to_vec();
        change(&mut data);
        self.damaged.insert(lba);
        self.device.set_block_bytes(lba, &data, &buffer.metadata);
    }

    /// Flips bits in the data of a block only.
    pub fn rot_data(&mut self, lba: Lba) {
        let read = Operation::Read { start: lba, blocks: Blocks(1) };
        let completion = self.device.execute(&Command::new(CommandId(0), NamespaceId::FIRST, read));
        let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { return };
        let mut data = buffer.data.to_vec();
        let middle = data.len() / 2;
        data[middle] ^= 0x55;
        self.damaged.insert(lba);
        self.device.set_block_bytes(lba, &data, &buffer.metadata);
    }

    /// A block loses its contents and its metadata: they read as zeros.
    pub fn blank(&mut self, lba: Lba) {
        let (data, metadata) = (self.geometry.block_size_bytes as usize, usize::from(self.geometry.metadata_bytes));
        self.damaged.insert(lba);
        self.device.set_block_bytes(lba, &vec![0; data], &vec![0; metadata]);
    }

    /// A block is written in place of the next one, and its own place stays blank. Returns whether
    /// both were written.
    #[cfg(test)]
    pub(crate) fn shift(&mut self, lba: Lba) -> bool {
        let behind = lba + Blocks(1);
        let Some((data, metadata)) = self.contents(lba).filter(|_| self.has_block(behind)) else { return false };
        self.damaged.insert(behind);
        self.device.set_block_bytes(behind, &data, &metadata);
        self.blank(lba);
        true
    }

    /// The written blocks of a zone, the last one first.
    #[must_use]
    pub fn written_blocks(&self, zone: u32) -> Vec<Lba> {
        let start = self.geometry.zone_start(ZoneIndex(zone));
        let blocks = self.device.image(ZoneIndex(zone)).write_pointer_blocks.0;
        (0..blocks).rev().map(|at| start + Blocks(at)).collect()
    }

    /// Overwrites a block, durably.
    pub fn overwrite(&mut self, lba: Lba, data: &[u8]) {
        let metadata = vec![0; usize::from(self.geometry.metadata_bytes)];
        self.damaged.insert(lba);
        self.device.set_block_bytes(lba, data, &metadata);
    }

    /// The data of a block.
    pub fn block(&mut self, lba: Lba) -> Option<Vec<u8>> {
        let read = Operation::Read { start: lba, blocks: Blocks(1) };
        let completion = self.device.execute(&Command::new(CommandId(0), NamespaceId::FIRST, read));
        let Outcome::Data(Payload::Bytes(buffer)) = completion.outcome else { return None };
        Some(buffer.data.to_vec())
    }

    /// Opens an empty zone, if another one may be active.
    pub fn open(&mut self, zone: u32) {
        let target = ZoneTarget::Zone(self.geometry.zone_start(ZoneIndex(zone)));
        let operation = Operation::ManageZones { action: ZoneAction::Open { zrwa: false }, target };
        drop(self.device.execute(&Command::new(CommandId(0), NamespaceId::FIRST, operation)));
    }

    /// A zone is erased.
    pub fn erase(&mut self, zone: u32) {
        self.device.set_zone(
            ZoneIndex(zone),
            ZoneImage { state: ZoneState::Empty, write_pointer_blocks: Blocks::ZERO, zrwa: false, extension: None },
        );
        self.discard_snapshots_of(zone);
    }

    /// The number of written blocks of a zone.
    #[must_use]
    pub fn count_written(&self, zone: u32) -> u64 {
        self.device.image(ZoneIndex(zone)).write_pointer_blocks.0
    }

    /// A block becomes unreadable until its zone is reset.
    pub fn lose_block(&mut self, lba: Lba) {
        self.damaged.insert(lba);
        self.unreadable.insert(lba);
    }
}
