//! Header and data digests: CRC-32C (NVMe/TCP 1.0, section 3.3.1.1).

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// Bytes of a digest on the wire.
pub(super) const DIGEST_BYTES: usize = 4;

/// Which digests both sides agreed on in ICReq and ICResp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// HDGST_ENABLE: CRC-32C after each header.
    pub header: bool,
    /// DDGST_ENABLE: CRC-32C after the data.
    pub data: bool,
}

/// The result of checking a data digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestCheck {
    /// No data digest, by agreement or because there is no data.
    Absent,
    /// It is the CRC of the data.
    Good,
    /// It is not: the command fails with a transient transport error, the connection stays (section
    /// 3.3.1.1).
    Bad,
}

impl Digests {
    /// None.
    pub const NONE: Digests = Digests { header: false, data: false };
    /// Both.
    pub const BOTH: Digests = Digests { header: true, data: true };

    /// The DGST byte of ICReq and ICResp: header in bit 0, data in bit 1.
    #[must_use]
    pub fn code(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    /// Reads the DGST byte.
    #[must_use]
    pub fn from_code(code: u8) -> Digests {
        Digests { header: code & 1 != 0, data: code & 2 != 0 }
    }

    /// The digests that both sides enable.
    #[must_use]
    pub fn and(self, other: Digests) -> Digests {
        Digests { header: self.header && other.header, data: self.data && other.data }
    }
}

/// CRC-32C of consecutive bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of bytes in several pieces.
pub(super) fn crc32c_of_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digests_match_the_check_values_of_rfc_3720() {
        // RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and ascending.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: [u8; 32] = std::array::from_fn(|i| i as u8);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c_of_pieces(ascending.chunks(5)), 0x46dd_794e);
    }

    #[test]
    fn the_header_digest_is_bit_0_the_data_digest_bit_1_and_the_rest_is_reserved() {
        for (code, header, data) in [(0, false, false), (1, true, false), (2, false, true), (3, true, true)] {
            let digests = Digests { header, data };
            assert_eq!(digests.code(), code);
            for reserved in [0, 0x04, 0x80, 0xfc] {
                assert_eq!(Digests::from_code(code | reserved), digests, "{code:x}h, reserved bits {reserved:x}h");
            }
        }
    }
}
