//! Common header of all blocks that describe others.
//!
//! ```text
//! byte 0..4   magic: which structure it is
//!      4..8   CRC-32C over byte 8 to the end of the block
//!      8..10  version of this structure
//! ```
//!
//! These ten bytes have the same meaning in every version, so that a block of a later version can
//! be distinguished from a damaged one. Each structure has its own version: superblocks and segment
//! headers are written in version 2, everything else in version 1.

use super::bytes::{put_u16, put_u32, u16_at, u32_at};
use super::{BLOCK_BYTES_MIN, crc};

const MAGIC_AT: usize = 0;
const CRC_AT: usize = 4;
const VERSION_AT: usize = 8;
/// The first version of every structure.
pub(super) const FIRST_VERSION: u16 = 1;
/// Offset of the structure's own fields.
pub(super) const FIELDS_AT: usize = 10;

/// Why a block is not the expected structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Nothing but zeros: the block was never written.
    Blank,
    /// It begins otherwise: it belongs to another program, or its first four bytes are damaged.
    NotOurs,
    /// An undamaged block of a version that this crate does not support.
    OtherVersion {
        /// Its version.
        found: u16,
    },
    /// Damaged: its checksum does not match, or a field has a value that no writer writes.
    Damaged,
}

/// Zeros the block and writes the header of a structure that has only one version.
pub(super) fn begin(out: &mut [u8], magic: [u8; 4]) {
    begin_version(out, magic, FIRST_VERSION);
}

/// Zeros the block and writes the header of a version of the structure.
pub(super) fn begin_version(out: &mut [u8], magic: [u8; 4], version: u16) {
    assert!(out.len() >= BLOCK_BYTES_MIN, "a member has blocks of at least 512 bytes");
    out.fill(0);
    out[MAGIC_AT..CRC_AT].copy_from_slice(&magic);
    put_u16(out, VERSION_AT, version);
}

/// Computes the checksum of the block, once all fields are written.
pub(super) fn seal(out: &mut [u8]) {
    let sum = crc(&out[VERSION_AT..]);
    put_u32(out, CRC_AT, sum);
}

/// Checks that the block is undamaged, and has the only version of the structure.
pub(super) fn check(block: &[u8], magic: [u8; 4]) -> Result<(), HeaderError> {
    check_version(block, magic, FIRST_VERSION).map(|_| ())
}

/// Checks that the block is undamaged; returns its version, at most `newest`.
pub(super) fn check_version(block: &[u8], magic: [u8; 4], newest: u16) -> Result<u16, HeaderError> {
    if block.len() < BLOCK_BYTES_MIN {
        return Err(HeaderError::Damaged);
    }
    if block[MAGIC_AT..CRC_AT] != magic {
        let is_blank = block.iter().all(|&byte| byte == 0);
        return Err(if is_blank { HeaderError::Blank } else { HeaderError::NotOurs });
    }
    if crc(&block[VERSION_AT..]) != u32_at(block, CRC_AT) {
        return Err(HeaderError::Damaged);
    }
    match u16_at(block, VERSION_AT) {
        version if (FIRST_VERSION..=newest).contains(&version) => Ok(version),
        found => Err(HeaderError::OtherVersion { found }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Flips every bit of the block, one at a time: the reader must refuse each.
    pub(crate) fn every_flipped_bit_is_noticed(block: &[u8], is_refused: impl Fn(&[u8]) -> bool) {
        let mut block = block.to_vec();
        assert!(!is_refused(&block), "the block is whole before a bit is flipped");
        for bit in 0..8 * block.len() {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(&block), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(is_refused(&block[..block.len() / 2]), "half of a block is none");
        assert!(is_refused(&[]), "nothing is no block");
    }

    /// The bytes in hexadecimal, sixteen per line, without trailing zeros.
    pub(crate) fn hex(bytes: &[u8]) -> String {
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let lines = bytes[..used].chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect());
        lines.collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn a_block_of_another_version_is_distinguished_from_a_damaged_a_blank_and_a_foreign_one() {
        let mut block = [0; 512];
        begin(&mut block, *b"TEST");
        seal(&mut block);
        assert_eq!(check(&block, *b"TEST"), Ok(()));
        assert_eq!(check(&block, *b"TSET"), Err(HeaderError::NotOurs));
        assert_eq!(check(&[0; 512], *b"TEST"), Err(HeaderError::Blank));
        put_u16(&mut block, VERSION_AT, 2);
        assert_eq!(check(&block, *b"TEST"), Err(HeaderError::Damaged));
        seal(&mut block);
        assert_eq!(check(&block, *b"TEST"), Err(HeaderError::OtherVersion { found: 2 }));
        assert_eq!(check_version(&block, *b"TEST", 2), Ok(2));
        begin_version(&mut block, *b"TEST", 3);
        seal(&mut block);
        assert_eq!(check_version(&block, *b"TEST", 2), Err(HeaderError::OtherVersion { found: 3 }));
    }
}
