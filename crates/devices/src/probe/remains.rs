//! [`Remains`]: what identifies a drive of a volume or a pool whose newest metadata is damaged.
//!
//! A drive must not lose its protection with a few blocks. Where no superblock and no first block of
//! a log is intact, damaged ones still have their magic, and the zones behind have headers. The
//! formats are those of `docs/internals/volume-format.md` and `docs/internals/pool-format.md`, which
//! have the same first bytes:
//!
//! ```text
//! byte 0..4   magic     4..8   CRC-32C over byte 8 to the end
//! byte 16..32 UUID of the pool; of the volume in headers of segments
//! ```

use std::collections::VecDeque;

use zonda_elastic::MAGICS;
use zonda_elastic::limits::LOG_ZONES;
use zonda_nvme::tcp::crc32c;
use zonda_raid::{SEGMENT_MAGIC, SUPERBLOCK_MAGIC};
use zonda_zoned::{Lba, ZoneDescriptor};

use crate::probe::written_blocks;

/// Zones behind the log whose headers are read.
pub(crate) const HEADER_ZONES: usize = 8;
/// Blocks at the start of a zone that may be its headers.
const HEADER_BLOCKS: u64 = 2;
/// Blocks at each end of a zone of a log that are read. Damage usually is in one place.
const LOG_BLOCKS: u64 = 4;

/// Superblocks, and headers of segments, of a volume.
const OF_VOLUME: [[u8; 4]; 2] = [SUPERBLOCK_MAGIC, SEGMENT_MAGIC];

/// The volume or pool that has written a block, and its UUID if the block is intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    Volume(Option<[u8; 16]>),
    Pool(Option<[u8; 16]>),
}

impl Remains {
    /// What a block shows; `None` for a block of no volume or pool.
    pub(crate) fn of_block(block: &[u8]) -> Option<Remains> {
        let (magic, sum, uuid) = (block.get(..4)?, block.get(4..8)?, block.get(16..32)?);
        let is_one_of = |all: &[[u8; 4]]| all.iter().any(|one| one == magic);
        let is_intact = || crc32c(&block[8..]).to_le_bytes() == sum;
        let uuid = || uuid.try_into().ok().filter(|_| is_intact());
        if is_one_of(&MAGICS) {
            Some(Remains::Pool(uuid()))
        } else if is_one_of(&OF_VOLUME) {
            Some(Remains::Volume(if magic == SEGMENT_MAGIC { uuid() } else { None }))
        } else {
            None
        }
    }

    /// Whether the UUID is known, too.
    pub(crate) fn is_named(self) -> bool {
        matches!(self, Remains::Volume(Some(_)) | Remains::Pool(Some(_)))
    }
}

/// Whether enough zones behind the log are known.
pub(crate) fn are_enough(zones: &[ZoneDescriptor]) -> bool {
    written_behind(zones).count() >= HEADER_ZONES
}

/// Blocks that show who has written the drive, without the first ones of zones of a log: the others
/// of these zones, and headers of the first zones behind that are not empty.
pub(crate) fn places(zones: &[ZoneDescriptor]) -> VecDeque<Lba> {
    let log = zones.iter().take(LOG_ZONES as usize).flat_map(|zone| {
        let written = written_blocks(zone);
        let last = written.saturating_sub(LOG_BLOCKS).max(LOG_BLOCKS);
        (1..LOG_BLOCKS.min(written)).chain(last..written).map(|offset| Lba(zone.start.0 + offset))
    });
    let headers = written_behind(zones)
        .take(HEADER_ZONES)
        .flat_map(|zone| (0..HEADER_BLOCKS.min(written_blocks(zone))).map(|offset| Lba(zone.start.0 + offset)));
    // Headers name the pool in intact blocks, and are fewer.
    headers.chain(log).collect()
}

fn written_behind(zones: &[ZoneDescriptor]) -> impl Iterator<Item = &ZoneDescriptor> {
    zones.iter().skip(LOG_ZONES as usize).filter(|zone| written_blocks(zone) > 0)
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{Blocks, ZoneAttributes, ZoneState, ZoneType};

    use super::*;

    fn sealed(magic: [u8; 4]) -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..4].copy_from_slice(&magic);
        block[16..32].fill(7);
        let sum = crc32c(&block[8..]).to_le_bytes();
        block[4..8].copy_from_slice(&sum);
        block
    }

    #[test]
    fn a_damaged_block_is_recognized_by_its_magic_and_an_intact_one_names_its_owner() {
        for magic in MAGICS {
            assert_eq!(Remains::of_block(&sealed(magic)), Some(Remains::Pool(Some([7; 16]))));
        }
        assert_eq!(Remains::of_block(&sealed(*b"ZVSG")), Some(Remains::Volume(Some([7; 16]))));
        assert_eq!(Remains::of_block(&sealed(*b"ZVSB")), Some(Remains::Volume(None)), "its UUID is elsewhere");
        let mut damaged = sealed(*b"ZELG");
        damaged[400] ^= 1;
        assert_eq!(Remains::of_block(&damaged), Some(Remains::Pool(None)));
        damaged[0] = 0;
        assert_eq!(Remains::of_block(&damaged), None);
        assert_eq!(Remains::of_block(b"ZELG"), None, "it is no block");
    }

    #[test]
    fn each_block_is_read_once() {
        for written in 0..20 {
            let zone = |at: u64| ZoneDescriptor {
                zone_type: ZoneType::SequentialWriteRequired,
                state: ZoneState::Closed,
                attributes: ZoneAttributes::default(),
                capacity_blocks: Blocks(32),
                start: Lba(at * 32),
                write_pointer: Some(Lba(at * 32 + written)),
                extension: None,
            };
            let places = places(&(0..20).map(zone).collect::<Vec<ZoneDescriptor>>());
            let mut sorted: Vec<Lba> = places.iter().copied().collect();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), places.len(), "{written} blocks: {places:?}");
            let of_log = sorted.iter().filter(|lba| lba.0 < 6 * 32).count() as u64;
            assert_eq!(of_log, 6 * written.saturating_sub(1).min(7), "{written} blocks");
            let behind = HEADER_ZONES as u64 * written.min(2);
            assert_eq!(sorted.len() as u64 - of_log, behind, "{written} blocks");
        }
    }
}
