//! The first block of a metadata zone.
//!
//! ```text
//! payload 0..4    version, 1
//!         4..20   UUID of the store
//!         20..24  bytes of a block
//!         24..32  zone size, blocks
//!         32..40  zone capacity, blocks
//!         40..44  zones of the namespace
//!         44..48  conventional zones
//!         48..52  metadata zones
//! ```

use zonda_zoned::Geometry;

use super::block::{Block, BlockKind};
use super::{Fields, VERSION};
use crate::FileError;

/// The contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) uuid: [u8; 16],
    pub(crate) facts: Facts,
}

/// The properties of a drive that a store depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    block_bytes: u32,
    zone_size_blocks: u64,
    zone_capacity_blocks: u64,
    zones: u32,
    conventional_zones: u32,
    log_zones: u32,
}

impl Facts {
    pub(crate) fn new(geometry: &Geometry, log_zones: u32) -> Facts {
        Facts {
            block_bytes: geometry.block_size_bytes,
            zone_size_blocks: geometry.zone_size_blocks.0,
            zone_capacity_blocks: geometry.zone_capacity_blocks.0,
            zones: geometry.zone_count,
            conventional_zones: geometry.conventional_zone_count,
            log_zones,
        }
    }
}

impl Superblock {
    pub(crate) fn encode(&self, sequence: u64, block_bytes: usize, blocks: &mut Vec<u8>) {
        let facts = &self.facts;
        let mut payload = Vec::with_capacity(52);
        payload.extend_from_slice(&VERSION.to_le_bytes());
        payload.extend_from_slice(&self.uuid);
        payload.extend_from_slice(&facts.block_bytes.to_le_bytes());
        payload.extend_from_slice(&facts.zone_size_blocks.to_le_bytes());
        payload.extend_from_slice(&facts.zone_capacity_blocks.to_le_bytes());
        payload.extend_from_slice(&facts.zones.to_le_bytes());
        payload.extend_from_slice(&facts.conventional_zones.to_le_bytes());
        payload.extend_from_slice(&facts.log_zones.to_le_bytes());
        Block { kind: BlockKind::Superblock, sequence, place: 0, payload: &payload }.encode(block_bytes, blocks);
    }

    /// The superblock in a zone's first block, and its sequence.
    ///
    /// # Errors
    /// [`FileError::NotAFileStore`] without a superblock, [`FileError::OtherVersion`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<(u64, Superblock), FileError> {
        let block = Block::decode(bytes).filter(|block| block.kind == BlockKind::Superblock && block.place == 0);
        let block = block.ok_or(FileError::NotAFileStore)?;
        let mut fields = Fields(block.payload);
        match fields.u32() {
            Some(VERSION) => {}
            Some(found) => return Err(FileError::OtherVersion { found }),
            None => return Err(FileError::NotAFileStore),
        }
        let read = |fields: &mut Fields<'_>| {
            let mut uuid = [0; 16];
            uuid.copy_from_slice(fields.take(16)?);
            let facts = Facts {
                block_bytes: fields.u32()?,
                zone_size_blocks: fields.u64()?,
                zone_capacity_blocks: fields.u64()?,
                zones: fields.u32()?,
                conventional_zones: fields.u32()?,
                log_zones: fields.u32()?,
            };
            Some(Superblock { uuid, facts })
        };
        read(&mut fields).map(|superblock| (block.sequence, superblock)).ok_or(FileError::NotAFileStore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_reads_back_and_another_version_is_refused() {
        let superblock = Superblock { uuid: [9; 16], facts: Facts::new(&Geometry::tiny(), 2) };
        let mut bytes = Vec::new();
        superblock.encode(7, 512, &mut bytes);
        assert_eq!(Superblock::decode(&bytes), Ok((7, superblock)));

        let mut payload = Block::decode(&bytes).unwrap().payload.to_vec();
        payload[0] = 2;
        let mut other = Vec::new();
        Block { kind: BlockKind::Superblock, sequence: 7, place: 0, payload: &payload }.encode(512, &mut other);
        assert_eq!(Superblock::decode(&other), Err(FileError::OtherVersion { found: 2 }));
        assert_eq!(Superblock::decode(&[0; 512]), Err(FileError::NotAFileStore));
    }
}
