//! The layout of the metadata zones. A byte map precedes each structure;
//! `docs/internals/file-store.md` has all of them, and explains why the format is safe. All numbers
//! are little-endian.

pub(crate) mod block;
pub(crate) mod record;
pub(crate) mod superblock;

/// The version of the format on the media, and the only supported one.
pub const VERSION: u32 = 1;

/// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 section 12.1).
#[inline]
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Reads numbers from the front of bytes; `None` at their end.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.0.split_first_chunk().map(|(bytes, rest)| {
            self.0 = rest;
            u16::from_le_bytes(*bytes)
        })
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.0.split_first_chunk().map(|(bytes, rest)| {
            self.0 = rest;
            u32::from_le_bytes(*bytes)
        })
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.0.split_first_chunk().map(|(bytes, rest)| {
            self.0 = rest;
            u64::from_le_bytes(*bytes)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
