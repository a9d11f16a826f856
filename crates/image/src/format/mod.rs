//! The layout of the five files. A byte map precedes each structure;
//! `docs/internals/image-format.md` has all of them, and explains why the format is safe. All
//! numbers are little-endian.

#[cfg(test)]
mod byte_tests;
pub(crate) mod checkpoint;
pub(crate) mod entry;
mod generation;
pub(crate) mod layout;
pub(crate) mod record;
pub(crate) mod superblock;
pub(crate) mod tag;

pub(crate) use generation::Generation;

/// The format that this crate writes. Opening an image of an older one converts it.
pub const VERSION: u32 = 3;
/// The oldest supported format. Version 1 has no reservations. Versions 1 and 2 have intents of 256
/// blocks, and none in a ZRWA.
pub(crate) const VERSION_OLDEST: u32 = 1;

/// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 section 12.1).
#[inline]
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}
