//! Verifies the superblocks of a member: all blocks of its metadata zones.

use zonda_raid::identify;
use zonda_raid::limits::METADATA_ZONES;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Instant, Lba, NamespaceId, Operation, Outcome, Payload,
    ZoneDescriptor, ZonedDevice,
};

use crate::look::Snapshot;
use crate::probe::written_blocks;

/// Damaged blocks of the metadata zones of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SuperblockDamage {
    /// The last blocks of their zone: a newer superblock may have been there.
    pub(super) newest: u64,
    /// A newer superblock follows in the same zone.
    pub(super) superseded: u64,
}

/// A block of a metadata zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Superblock,
    /// The rest of a zone that was finished.
    Blank,
    Damaged,
}

/// Reads the written blocks of the metadata zones of a member.
pub(super) fn damage(device: &mut Snapshot, zones: &[ZoneDescriptor]) -> SuperblockDamage {
    let mut damage = SuperblockDamage::default();
    for zone in zones.iter().take(METADATA_ZONES as usize) {
        let end = zone.start.0 + written_blocks(zone);
        let mut damaged = 0;
        for lba in zone.start.0..end {
            match read(device, Lba(lba)) {
                Found::Superblock => damage.superseded += std::mem::take(&mut damaged),
                Found::Blank => {}
                Found::Damaged => damaged += 1,
            }
        }
        damage.newest += damaged;
    }
    damage
}

fn read(device: &mut Snapshot, start: Lba) -> Found {
    let operation = Operation::Read { start, blocks: Blocks(1) };
    let mut completions = CompletionQueue::new();
    if device.submit(Instant::ZERO, Command::new(CommandId(0), NamespaceId::FIRST, operation)).is_err() {
        unreachable!("the commands of a snapshot complete at once, so its queue is empty");
    }
    device.poll(Instant::ZERO, &mut completions);
    match completions.pop().map(|completion| completion.outcome) {
        Some(Outcome::Data(Payload::Bytes(buffer))) if identify(&buffer.data).is_some() => Found::Superblock,
        Some(Outcome::Data(Payload::Bytes(buffer))) if buffer.data.iter().all(|byte| *byte == 0) => Found::Blank,
        _ => Found::Damaged,
    }
}
