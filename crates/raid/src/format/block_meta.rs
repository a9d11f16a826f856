//! Metadata of one block, stored in the member's metadata bytes of that block.
//!
//! ```text
//! byte 0..20   record (of a parity block: coded)         24..28  stripe, counted from the start of the segment
//!      20..24  CRC-32C of the block's own contents        28..32  seal: CRC-32C of the seed of the place and bytes 0..28
//!      32..    zeros
//! ```

use super::PlaceSeed;
use super::bytes::{array_at, put_u32, u32_at};
use super::crc;
use super::record::RECORD_BYTES;

const BLOCK_CRC_AT: usize = RECORD_BYTES;
const STRIPE_AT: usize = BLOCK_CRC_AT + 4;
/// Bytes of the metadata without their seal, as stored in a footer.
pub(super) const BARE_BYTES: usize = STRIPE_AT + 4;
/// Metadata bytes that a member needs with each block; further bytes are zeros.
pub(crate) const OOB_BYTES: usize = BARE_BYTES + 4;

const _: () = assert!(OOB_BYTES == 32 && OOB_BYTES <= zonda_zoned::limits::METADATA_BYTES_MAX as usize);

/// Metadata of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockMeta {
    /// A record's bytes; of a parity block the erasure code of those of its data blocks.
    pub(crate) record: [u8; RECORD_BYTES],
    /// CRC-32C of the block's own contents; of a data block that of its record too.
    pub(crate) block_crc: u32,
    /// Which stripe of its segment the block belongs to.
    pub(crate) stripe: u32,
}

impl BlockMeta {
    /// Metadata of a block that belongs to no stripe.
    pub(crate) const BLANK: BlockMeta = BlockMeta { record: [0; RECORD_BYTES], block_crc: 0, stripe: u32::MAX };

    /// Writes the metadata bytes of the block with this row within its chunk.
    #[inline]
    pub(crate) fn write_oob(&self, seed: PlaceSeed, row: u32, out: &mut [u8]) {
        let (sealed, rest) = out.split_at_mut(OOB_BYTES);
        self.write_bare(sealed);
        let sum = seal(seed.of_row(row), &array_at(sealed, 0));
        put_u32(sealed, BARE_BYTES, sum);
        rest.fill(0);
    }

    /// Reads metadata; `None` if they are damaged, or of another place. Further bytes are ignored.
    #[inline]
    pub(crate) fn read_oob(seed: PlaceSeed, row: u32, bytes: &[u8]) -> Option<BlockMeta> {
        let sealed: &[u8; OOB_BYTES] = bytes.first_chunk()?;
        let is_sealed = |seed: PlaceSeed| seal(seed, &array_at(sealed, 0)) == u32_at(sealed, BARE_BYTES);
        // Unwritten blocks are frequent, and not worth a checksum. Seals of older volumes have no
        // row.
        let is_ours = *sealed != [0; OOB_BYTES] && (is_sealed(seed.of_row(row)) || is_sealed(seed));
        is_ours.then(|| BlockMeta::read_bare(sealed))
    }

    /// Reads metadata of an unknown place: only the checksum of the contents can confirm them.
    pub(crate) fn read_unsealed(bytes: &[u8]) -> Option<BlockMeta> {
        let sealed: &[u8; OOB_BYTES] = bytes.first_chunk()?;
        (*sealed != [0; OOB_BYTES]).then(|| BlockMeta::read_bare(sealed))
    }

    #[inline]
    pub(super) fn write_bare(&self, out: &mut [u8]) {
        out[..RECORD_BYTES].copy_from_slice(&self.record);
        put_u32(out, BLOCK_CRC_AT, self.block_crc);
        put_u32(out, STRIPE_AT, self.stripe);
    }

    #[inline]
    pub(super) fn read_bare(bytes: &[u8]) -> BlockMeta {
        BlockMeta {
            record: array_at(bytes, 0),
            block_crc: u32_at(bytes, BLOCK_CRC_AT),
            stripe: u32_at(bytes, STRIPE_AT),
        }
    }
}

#[inline]
fn seal(seed: PlaceSeed, bare: &[u8; BARE_BYTES]) -> u32 {
    let mut covered = [0; 4 + BARE_BYTES];
    covered[..4].copy_from_slice(&seed.0.to_le_bytes());
    covered[4..].copy_from_slice(bare);
    crc(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::tests::{every_flipped_bit_is_noticed, hex};
    use crate::format::{Place, Record};

    const PLACE: Place = Place { array: *b"0123456789abcdef", segment: 0x0102_0304_0506_0708, member: 9 };

    fn meta() -> BlockMeta {
        let record = Record { lba: 1, timestamp: 2, data_crc: 3 };
        BlockMeta { record: record.to_bytes(), block_crc: 4, stripe: 5 }
    }

    #[test]
    fn metadata_read_back_at_their_place_and_at_no_other() {
        let mut bytes = [0xFF; 64];
        meta().write_oob(PLACE.seed(), 2, &mut bytes);
        assert_eq!(BlockMeta::read_oob(PLACE.seed(), 2, &bytes), Some(meta()));
        assert_eq!(BlockMeta::read_unsealed(&bytes), Some(meta()));
        assert_eq!(bytes[OOB_BYTES..], [0; 32], "longer metadata are filled with zeros");
        for other in [
            Place { member: 8, ..PLACE },
            Place { segment: PLACE.segment + 1, ..PLACE },
            Place { array: *b"0123456789abcdeg", ..PLACE },
        ] {
            assert_eq!(BlockMeta::read_oob(other.seed(), 2, &bytes), None);
        }
        for row in [0, 1, 3, 64] {
            assert_eq!(BlockMeta::read_oob(PLACE.seed(), row, &bytes), None, "it is not block {row} of its chunk");
        }
    }

    #[test]
    fn metadata_with_a_flipped_bit_are_none() {
        let mut bytes = [0; OOB_BYTES];
        meta().write_oob(PLACE.seed(), 0, &mut bytes);
        every_flipped_bit_is_noticed(&bytes, |bytes| BlockMeta::read_oob(PLACE.seed(), 0, bytes).is_none());
    }

    #[test]
    fn the_bytes_of_metadata_are_golden() {
        let mut bytes = [0; OOB_BYTES];
        meta().write_oob(PLACE.seed(), 3, &mut bytes);
        assert_eq!(hex(&bytes), concat!("01000000000000000200000000000000\n", "030000000400000005000000fe362416",));
    }

    #[test]
    fn metadata_whose_seal_is_of_no_row_are_read_in_each() {
        let old: Vec<u8> = concat!("01000000000000000200000000000000", "030000000400000005000000e910319e")
            .as_bytes()
            .chunks(2)
            .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).expect("digits"), 16).expect("digits"))
            .collect();
        for row in 0..4 {
            assert_eq!(BlockMeta::read_oob(PLACE.seed(), row, &old), Some(meta()));
        }
    }
}
