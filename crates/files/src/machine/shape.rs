//! Values derived from a drive's geometry and the configuration.

use bytes::Bytes;
use zonda_zoned::{BlockBuffer, Geometry, Lba, Payload, PayloadKind, ZoneIndex};

use crate::catalog::DataZones;
use crate::format::block::HEADER_BYTES;
use crate::format::record::{RECORD_BYTES_MAX, SNAPSHOT_END_BYTES, ZONE_COST_BYTES};
use crate::format::superblock::Facts;
use crate::limits::{RESERVE_FROM_ACTIVE_ZONES, SNAPSHOT_BYTES_MAX, THREE_LOG_ZONES_FROM};
use crate::{FileError, FilesConfig};

/// Constants of a store.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) block_bytes: u32,
    pub(super) capacity_blocks: u32,
    zone_size_blocks: u64,
    zone_count: u32,
    /// The first metadata zone; the zones before are conventional and not used.
    pub(super) first_log: u32,
    pub(super) log_zones: u32,
    /// Active zones available for data.
    pub(super) active_max: Option<u32>,
    /// One of them is reserved for short-lived files.
    pub(super) has_reserve: bool,
    pub(super) write_blocks: u32,
    pub(super) read_blocks: u32,
    /// Maximum size of the records of a snapshot: half of a metadata zone, less the unused ends of
    /// blocks.
    pub(super) snapshot_bytes_max: u64,
    pub(super) facts: Facts,
    keeps_bytes: bool,
    block_metadata_bytes: usize,
    /// Enough for the largest write.
    zeros: Bytes,
}

impl Shape {
    pub(super) fn new(geometry: &Geometry, config: &FilesConfig) -> Result<Shape, FileError> {
        config.check(geometry)?;
        let block_bytes = geometry.block_size_bytes;
        let sequential = geometry.zone_count - geometry.conventional_zone_count;
        let log_zones = if sequential >= THREE_LOG_ZONES_FROM { 3 } else { 2 };
        let transfer = geometry.max_transfer_blocks.0 as u32;
        let write_blocks = (config.write_unit_bytes / block_bytes).min(transfer);
        let capacity_blocks = geometry.zone_capacity_blocks.0 as u32;
        let block_payload_bytes = u64::from(block_bytes) - (HEADER_BYTES + RECORD_BYTES_MAX) as u64;
        let snapshot_blocks = u64::from(capacity_blocks / 2 - 1);
        let snapshot_bytes_max = (snapshot_blocks * block_payload_bytes).min(SNAPSHOT_BYTES_MAX);
        let zones_bytes = u64::from(sequential - log_zones) * ZONE_COST_BYTES;
        if zones_bytes > snapshot_bytes_max / 2 {
            return Err(FileError::Config(format!(
                "a zone of {capacity_blocks} blocks is too small for the metadata of {sequential} zones: use larger zones, \
                 or fewer of them"
            )));
        }
        let block_metadata_bytes = usize::from(geometry.metadata_bytes);
        Ok(Shape {
            block_bytes,
            capacity_blocks,
            zone_size_blocks: geometry.zone_size_blocks.0,
            zone_count: geometry.zone_count,
            first_log: geometry.conventional_zone_count,
            log_zones,
            active_max: geometry.max_active_zones.map(|zones| zones - 1),
            has_reserve: geometry.max_active_zones.is_some_and(|zones| zones >= RESERVE_FROM_ACTIVE_ZONES),
            write_blocks,
            read_blocks: (config.read_unit_bytes / block_bytes).min(transfer),
            snapshot_bytes_max,
            facts: Facts::new(geometry, log_zones),
            keeps_bytes: config.keeps == PayloadKind::Bytes,
            block_metadata_bytes,
            zeros: vec![0; block_metadata_bytes * write_blocks as usize].into(),
        })
    }

    pub(super) fn data_zones(&self) -> DataZones {
        let first = self.first_log + self.log_zones;
        DataZones {
            first,
            count: self.zone_count - first,
            capacity_blocks: self.capacity_blocks,
            block_bytes: self.block_bytes,
        }
    }

    /// The size of a snapshot without files.
    pub(super) fn empty_snapshot_bytes(&self) -> u64 {
        u64::from(self.data_zones().count) * ZONE_COST_BYTES + SNAPSHOT_END_BYTES
    }

    pub(super) fn keeps_bytes(&self) -> bool {
        self.keeps_bytes
    }

    /// The first block of a zone.
    pub(super) fn zone_start(&self, zone: ZoneIndex) -> Lba {
        Lba(self.zone_size_blocks * u64::from(zone.0))
    }

    /// A block of a zone.
    pub(super) fn lba(&self, zone: ZoneIndex, block: u32) -> Lba {
        Lba(self.zone_start(zone).0 + u64::from(block))
    }

    pub(super) fn bytes(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.block_bytes)
    }

    /// Whole blocks as a payload.
    pub(super) fn payload(&self, data: Bytes) -> Payload {
        if !self.keeps_bytes {
            return Payload::None;
        }
        let blocks = data.len() / self.block_bytes as usize;
        let metadata = self.zeros.slice(..blocks * self.block_metadata_bytes);
        Payload::Bytes(Box::new(BlockBuffer { data, metadata }))
    }
}
