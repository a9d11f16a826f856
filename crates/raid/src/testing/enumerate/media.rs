//! The media of a member at one moment; effects of power failures, and damage.

use std::cell::OnceCell;
use std::sync::Arc;

use zonda_zoned::{
    Blocks, Command, CommandId, Geometry, Lba, NamespaceId, Operation, Outcome, Payload, Prng, ZoneIndex, ZoneState,
};

use super::super::{Drive, Strictness};
use super::Damage;
use crate::limits::METADATA_ZONES;
use crate::machine::MediaRead;

/// The media of a member. Copies share memory until one of them is changed.
#[derive(Clone, Debug)]
pub(super) struct Media {
    drive: Arc<Drive>,
    /// See [`hash`](Media::hash).
    hash: OnceCell<u64>,
}

impl Media {
    pub(super) fn empty(geometry: Geometry) -> Media {
        Media { drive: Arc::new(Drive::new(geometry, Prng::new(1))), hash: OnceCell::new() }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }

    fn drive_mut(&mut self) -> &mut Drive {
        self.hash.take();
        Arc::make_mut(&mut self.drive)
    }

    /// Executes a command on the member.
    pub(super) fn execute(&mut self, command: &Command) -> zonda_zoned::Completion {
        self.drive_mut().execute(command)
    }

    /// Only the beginning of a write takes effect.
    pub(super) fn execute_first_block(&mut self, command: &Command) {
        let mut command = command.clone();
        let (blocks, payload) = match &mut command.operation {
            Operation::Write { blocks, payload, .. } | Operation::Append { blocks, payload, .. } => (blocks, payload),
            _ => return,
        };
        *blocks = Blocks(1);
        if let Payload::Bytes(buffer) = payload {
            buffer.data.truncate(self.geometry().block_size_bytes as usize);
            buffer.metadata.truncate(usize::from(self.geometry().metadata_bytes));
        }
        self.execute(&command);
    }

    pub(super) fn power_cycle(&mut self) {
        self.drive_mut().device.power_cycle();
    }

    /// Blocks that were written, in all zones.
    pub(super) fn written(&self) -> Vec<Lba> {
        let geometry = self.geometry();
        let blocks = |zone: u32| {
            let image = self.drive.device.image(ZoneIndex(zone));
            let start = geometry.zone_start(ZoneIndex(zone));
            // A finished zone keeps its old write pointer here.
            (0..image.write_pointer_blocks.0).map(move |at| start + Blocks(at))
        };
        (0..geometry.zone_count).flat_map(blocks).collect()
    }

    /// Whether no more zones are active than allowed.
    pub(super) fn is_possible(&self) -> bool {
        let is_active = |zone: &u32| self.drive.device.image(ZoneIndex(*zone)).state.is_active();
        let active = (0..self.geometry().zone_count).filter(is_active).count() as u32;
        self.geometry().max_active_zones.is_none_or(|most| active <= most)
    }

    /// Zones that differ from those of another member image.
    pub(super) fn zones_unlike(&self, other: &Media) -> Vec<u32> {
        let hash = |media: &Media, zone| media.hash_of_zone(zone, 0);
        (0..self.geometry().zone_count).filter(|&zone| hash(self, zone) != hash(other, zone)).collect()
    }

    /// Copies a zone from another member image.
    pub(super) fn copy_zone(&mut self, from: &Media, zone: u32) {
        let index = ZoneIndex(zone);
        let image = from.drive.device.image(index);
        let start = from.geometry().zone_start(index);
        let blocks: Vec<(Lba, Vec<u8>, Vec<u8>)> = (0..image.write_pointer_blocks.0)
            .map(|at| start + Blocks(at))
            .map(|lba| {
                let (data, metadata) = from.read(lba);
                (lba, data, metadata)
            })
            .collect();
        let device = &mut self.drive_mut().device;
        device.set_zone(index, image);
        for (lba, data, metadata) in blocks {
            device.set_block_bytes(lba, &data, &metadata);
        }
    }

    /// Data and metadata of a block.
    pub(super) fn read(&self, lba: Lba) -> (Vec<u8>, Vec<u8>) {
        let operation = Operation::Read { start: lba, blocks: Blocks(1) };
        let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
        match self.drive.device.clone().execute(&command).outcome {
            Outcome::Data(Payload::Bytes(buffer)) => (buffer.data.to_vec(), buffer.metadata.to_vec()),
            other => unreachable!("block {lba} was written, and reads as {other:?}"),
        }
    }

    pub(super) fn damage(&mut self, lba: Lba, damage: Damage) {
        if damage == Damage::Unreadable {
            return self.drive_mut().lose_block(lba);
        }
        let drive = self.drive_mut();
        let MediaRead::Block(data, metadata) = drive.read_block(lba, Strictness::Strict) else { return };
        let (mut data, mut metadata) = (data.to_vec(), metadata.to_vec());
        match damage {
            Damage::Data => data[0] ^= 1,
            Damage::Metadata => metadata[0] ^= 1,
            Damage::Both => {
                data[100] ^= 1;
                metadata.iter_mut().take(1).for_each(|byte| *byte ^= 1);
            }
            Damage::Unreadable => {}
        }
        drive.damaged.insert(lba);
        drive.device.set_block_bytes(lba, &data, &metadata);
    }

    /// Reads a block for inspection.
    pub(super) fn read_block(&mut self, lba: Lba, strictness: Strictness) -> MediaRead {
        Arc::make_mut(&mut self.drive).read_block(lba, strictness)
    }

    /// Whether a block is a header or a superblock, of which there are two copies.
    pub(super) fn is_described_twice(&mut self, lba: Lba) -> bool {
        let is_superblock = self.geometry().zone_of(lba).is_some_and(|zone| zone.0 < METADATA_ZONES);
        is_superblock
            || matches!(self.read_block(lba, Strictness::Strict), MediaRead::Block(data, _) if data.starts_with(b"ZVSG"))
    }

    /// A zone goes offline.
    pub(super) fn offline(&mut self, zone: u32) {
        self.drive_mut().device.degrade(ZoneIndex(zone), ZoneState::Offline);
    }

    /// Zones that are not empty.
    pub(super) fn used_zones(&self) -> Vec<u32> {
        let is_used = |zone: &u32| self.drive.device.image(ZoneIndex(*zone)).write_pointer_blocks.0 > 0;
        (0..self.geometry().zone_count).filter(is_used).collect()
    }

    /// Unreadable blocks become readable again.
    pub(super) fn heal(&mut self) {
        self.drive_mut().unreadable.clear();
    }

    /// A hash of the contents, equal for members with equal contents.
    pub(super) fn hash(&self) -> u64 {
        let all = || (0..self.geometry().zone_count).fold(0, |hash, zone| self.hash_of_zone(zone, hash));
        *self.hash.get_or_init(all)
    }

    fn hash_of_zone(&self, zone: u32, mut hash: u64) -> u64 {
        let image = self.drive.device.image(ZoneIndex(zone));
        let is_open = matches!(image.state, ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened);
        // A power loss closes zones.
        let state = if is_open { ZoneState::Closed } else { image.state };
        hash = mixed(hash, state as u64 ^ image.write_pointer_blocks.0 << 8);
        let start = self.geometry().zone_start(ZoneIndex(zone));
        for at in 0..image.write_pointer_blocks.0 {
            hash = mixed(hash, self.drive.device.block(start + Blocks(at)));
        }
        self.drive
            .unreadable
            .range(start..start + self.geometry().zone_size_blocks)
            .fold(hash, |hash, lba| mixed(hash, !lba.0))
    }
}

pub(super) fn mixed(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29)
}
