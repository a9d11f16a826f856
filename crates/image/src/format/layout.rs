//! Offsets and lengths in the files.

use zonda_zoned::{Geometry, ZoneIndex};

use crate::ImageFile;
use crate::limits::{PAGE_BYTES, RESERVATIONS_BYTES_MAX};

use super::checkpoint::SLOT_HEADER_BYTES;
use super::entry::ENTRY_BYTES;
use super::record::{HEADER_BYTES, MARKS_BYTES};
use super::superblock::COPY_BYTES;
use super::tag::TAG_BYTES;

/// The longest record of the shortest possible journal has at least this many bytes of payload.
const LONGEST_PAYLOAD_BYTES_MIN: u64 = 1024;
/// How many of the longest records fit in the shortest journal.
const RECORDS_MIN: u64 = 8;

// Saved reservations fit in any empty journal.
const _: () = assert!(RESERVATIONS_BYTES_MAX as u64 <= RECORDS_MIN * LONGEST_PAYLOAD_BYTES_MIN);

/// Offsets and lengths that follow from the geometry and the journal's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) block_bytes: u64,
    pub(crate) tag_bytes: u64,
    pub(crate) capacity: u64,
    pub(crate) zones: u32,
    pub(crate) conventional: u32,
    pub(crate) extension_bytes: u64,
    pub(crate) journal_bytes: u64,
    /// Overwrites are journaled with their contents: see [`Layout::logs_contents`].
    pub(crate) logs_contents: bool,
}

impl Layout {
    pub(crate) fn new(geometry: &Geometry, journal_bytes: u64) -> Layout {
        let tag_bytes = (TAG_BYTES as u64 + u64::from(geometry.metadata_bytes)).next_power_of_two();
        Layout {
            block_bytes: u64::from(geometry.block_size_bytes),
            tag_bytes,
            capacity: geometry.zone_capacity_blocks.0,
            zones: geometry.zone_count,
            conventional: geometry.conventional_zone_count,
            extension_bytes: u64::from(geometry.descriptor_extension_bytes),
            journal_bytes,
            logs_contents: geometry.metadata_bytes > 0 || u64::from(geometry.block_size_bytes) > PAGE_BYTES,
        }
    }

    #[inline]
    pub(crate) fn is_conventional(&self, zone: ZoneIndex) -> bool {
        zone.0 < self.conventional
    }

    pub(crate) fn has_zone(&self, zone: ZoneIndex) -> bool {
        zone.0 < self.zones
    }

    /// The zones that are written at a write pointer.
    pub(crate) fn sequential_zones(&self) -> impl Iterator<Item = ZoneIndex> + use<> {
        (self.conventional..self.zones).map(ZoneIndex)
    }

    /// The offset of a block of a zone in the data file.
    #[inline]
    pub(crate) fn data_offset(&self, zone: ZoneIndex, block: u64) -> u64 {
        (u64::from(zone.0) * self.capacity + block) * self.block_bytes
    }

    /// The offset of the tag of a block in the tag file. A tag never spans two pages.
    #[inline]
    pub(crate) fn tag_offset(&self, zone: ZoneIndex, block: u64) -> u64 {
        (u64::from(zone.0) * self.capacity + block) * self.tag_bytes
    }

    /// Bytes of a checkpoint.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        SLOT_HEADER_BYTES as u64 + u64::from(self.zones) * (ENTRY_BYTES as u64 + self.extension_bytes)
    }

    /// The offset of one of the two copies of the checkpoint.
    pub(crate) fn slot_offset(&self, slot: u64) -> u64 {
        slot * self.checkpoint_bytes().next_multiple_of(PAGE_BYTES)
    }

    /// The length that a file must have.
    pub(crate) fn length(&self, file: ImageFile) -> u64 {
        match file {
            ImageFile::Superblock => 2 * COPY_BYTES as u64,
            ImageFile::State => self.slot_offset(2),
            ImageFile::Journal => self.journal_bytes,
            ImageFile::Data => self.data_offset(ZoneIndex(self.zones), 0),
            ImageFile::Tags => self.tag_offset(ZoneIndex(self.zones), 0),
        }
    }

    /// Whether the data of every block of zeros are zeros, too, so that a tag of zeros with other
    /// data is damage. This holds in conventional zones that are written in place. Elsewhere a tag
    /// of zeros may be written while the data file keeps its old data.
    #[inline]
    pub(crate) fn zeros_are_holes(&self, zone: ZoneIndex) -> bool {
        self.is_conventional(zone) && !self.logs_contents
    }

    /// Blocks whose contents fit in one journal record, where overwrites are journaled with their
    /// contents.
    pub(crate) fn logged_blocks(&self) -> u64 {
        let payload_bytes = (self.journal_bytes - MARKS_BYTES) / 8;
        (payload_bytes / (self.block_bytes + self.tag_bytes)).max(1)
    }

    /// Blocks whose tags before and after an overwrite fit in one intent.
    pub(crate) fn intended_blocks(&self) -> u64 {
        let payload_bytes = (self.journal_bytes - MARKS_BYTES) / 8 - HEADER_BYTES as u64;
        (payload_bytes / (2 * TAG_BYTES as u64)).max(1)
    }

    /// The shortest journal for this geometry: several of the longest records.
    pub(crate) fn journal_bytes_min(geometry: &Geometry) -> u64 {
        let block = u64::from(geometry.block_size_bytes) + 8 + 2 * u64::from(geometry.metadata_bytes);
        let longest = HEADER_BYTES as u64
            + block.max(u64::from(geometry.descriptor_extension_bytes)).max(LONGEST_PAYLOAD_BYTES_MIN);
        (MARKS_BYTES + RECORDS_MIN * longest).next_multiple_of(PAGE_BYTES)
    }
}
