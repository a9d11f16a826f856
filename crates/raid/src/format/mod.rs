//! On-media format of a volume. Each structure begins with its byte map;
//! `docs/internals/volume-format.md` has all of them, and explains what each checksum protects. All
//! integers are little-endian.
//!
//! There is no policy here: which block is written where, and which of two copies counts, is
//! decided elsewhere. Readers accept any bytes and never panic; what they return is what a writer
//! of a supported version wrote, as far as CRC-32C can detect.

mod block;
mod block_meta;
mod bytes;
mod chunk_meta;
mod footer;
#[cfg(test)]
mod noise_tests;
mod place;
mod record;
mod segment_header;
mod superblock;
mod tombstone;

pub(crate) use block::HeaderError;
pub(crate) use block_meta::{BlockMeta, OOB_BYTES};
pub(crate) use chunk_meta::{chunk_meta_entries_max, read_chunk_meta, read_placed_chunk_meta, write_chunk_meta};
pub(crate) use footer::{footer_entries_per_block, read_footer_block, read_footer_place, write_footer_block};
pub(crate) use place::{Place, PlaceSeed};
pub(crate) use record::{PADDING_LBA, RECORD_BYTES, Record, TOMBSTONE_LBA};
pub use segment_header::MAGIC as SEGMENT_MAGIC;
pub(crate) use segment_header::{HEADER_COPIES, SegmentHeader};
pub(crate) use superblock::{EPOCH_MAX, MemberEntry, NAME_BYTES_MAX, Superblock};
pub use superblock::{MAGIC as SUPERBLOCK_MAGIC, MemberState};
pub(crate) use tombstone::{LostPlace, Tombstone, Tombstones, read_tombstones, tombstones_per_block, write_tombstones};

/// The on-media format version that this crate writes; it reads version 1 as well.
pub const VERSION: u16 = 2;
/// Members of an array.
pub(crate) const MEMBERS_MAX: usize = 16;
const _: () = assert!(crate::limits::MEMBERS_MAX <= MEMBERS_MAX, "headers and superblocks have space for all members");
/// The smallest supported block size: a superblock and a segment header fit it.
pub(crate) const BLOCK_BYTES_MIN: usize = 512;

/// Unique id of an array: generated once, when it is created.
pub type ArrayId = [u8; 16];
/// Metadata bytes per block that members need for metadata out of band.
pub const METADATA_BYTES: usize = OOB_BYTES;

/// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 section 12.1).
#[inline]
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}
