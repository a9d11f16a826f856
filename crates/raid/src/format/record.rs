//! The record of a block, in its metadata.
//!
//! ```text
//! byte 0..8  LBA         8..16  timestamp         16..20  CRC-32C of the data
//! ```
//!
//! ZapRAID, section 3.1, stores LBA, timestamp and stripe with each block; here the stripe is
//! stored beside the record, and the checksum is an addition. In a parity chunk the 20 bytes are
//! the erasure code of those of the data chunks.

use super::bytes::{put_u32, put_u64, u32_at, u64_at};

const LBA_AT: usize = 0;
const TIMESTAMP_AT: usize = 8;
const DATA_CRC_AT: usize = 16;
/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 20;

/// The LBA of padding, which fills a stripe up.
pub(crate) const PADDING_LBA: u64 = u64::MAX;
/// The LBA of a block of tombstones.
pub(crate) const TOMBSTONE_LBA: u64 = u64::MAX - 1;

/// Logical block, version and checksum of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) lba: u64,
    pub(crate) timestamp: u64,
    pub(crate) data_crc: u32,
}

impl Record {
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        put_u64(&mut bytes, LBA_AT, self.lba);
        put_u64(&mut bytes, TIMESTAMP_AT, self.timestamp);
        put_u32(&mut bytes, DATA_CRC_AT, self.data_crc);
        bytes
    }

    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Record {
        Record {
            lba: u64_at(bytes, LBA_AT),
            timestamp: u64_at(bytes, TIMESTAMP_AT),
            data_crc: u32_at(bytes, DATA_CRC_AT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::hex;

    #[test]
    fn a_record_is_twenty_bytes_and_reads_back() {
        let record = Record { lba: 0x0102_0304_0506_0708, timestamp: 0x1112_1314_1516_1718, data_crc: 0x2122_2324 };
        assert_eq!(hex(&record.to_bytes()), "08070605040302011817161514131211\n24232221");
        assert_eq!(Record::from_bytes(&record.to_bytes()), record);
    }
}
