//! The tag of a block, which verifies that the block is the one last written there.
//!
//! ```text
//! byte 0..4   checksum: CRC-32C over the 24 bytes and the metadata below, 1 in place of 0
//!      4..8   generation (bits 0 to 29: how many times the zone was reset), kind (bits 30 and 31: 1 data, 2 zeros)
//!      8..    metadata; then zeros up to the next power of two
//!
//! what the checksum covers:
//!      0..4   CRC-32C of the block's data; 0 for a block of zeros
//!      4..8   generation and kind, as in the tag
//!      8..16  LBA within the namespace
//!      16..24 the first 8 bytes of the image's UUID
//!      24..   metadata
//! ```
//! A tag of zeros is the tag of a block that was never written. A tag of kind 3 matches no block: a
//! repair writes it where a block was lost.

use bytes::{Bytes, BytesMut};

use super::Generation;
use super::crc;

/// Bytes of a tag without metadata.
pub(crate) const TAG_BYTES: usize = 8;

const KIND_SHIFT: u32 = Generation::TAG_BITS;
/// The byte that fills the data file where a block of zeros has metadata.
const NOT_ZERO: u8 = 0xff;
/// All bytes of a tag that matches no block: its kind is 3.
pub(crate) const LOST_BYTE: u8 = 0xff;
/// The tags of one block before and after an overwrite, as an intent records them.
pub(crate) type TagPair = [u8; 2 * TAG_BYTES];
/// Any contents of a block with this pair are accepted: no overwrite has such a tag.
pub(crate) const ANYTHING: TagPair = [LOST_BYTE; 2 * TAG_BYTES];
/// A tag that fits nothing. After a block's own tag in a pair: the block is damaged, and earlier
/// intents do not apply to it.
pub(crate) const LOST: [u8; TAG_BYTES] = [LOST_BYTE; TAG_BYTES];
const METADATA_MAX: usize = zonda_zoned::limits::METADATA_BYTES_MAX as usize;

/// Encodes and verifies the tags of one image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagCodec {
    salt: [u8; 8],
    metadata_bytes: usize,
    tag_bytes: usize,
    block_bytes: usize,
}

/// The result of verifying a block against its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All of the tag is zero.
    Unwritten,
    /// The data are those last written.
    Data,
    /// The block was written as zeros; the data file does not matter.
    Zeros,
    /// A tag of this generation that does not match its data.
    Mismatch,
    /// A tag that no write of this generation has made.
    Foreign,
}

/// The kind of a tag, before it is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data = 1,
    Zeros = 2,
}

impl TagCodec {
    pub(crate) fn new(uuid: &[u8; 16], block_bytes: u64, metadata_bytes: u16, tag_bytes: u64) -> TagCodec {
        let mut salt = [0; 8];
        salt.copy_from_slice(&uuid[..8]);
        TagCodec {
            salt,
            metadata_bytes: usize::from(metadata_bytes),
            tag_bytes: tag_bytes as usize,
            block_bytes: block_bytes as usize,
        }
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    pub(crate) fn tag_bytes(&self) -> usize {
        self.tag_bytes
    }

    /// The tags of consecutive blocks with these contents.
    pub(crate) fn of_data(&self, lba: u64, generation: Generation, data: &[u8], metadata: &[u8]) -> Bytes {
        let blocks = data.len() / self.block_bytes;
        let mut tags = BytesMut::zeroed(blocks * self.tag_bytes);
        for (i, tag) in tags.chunks_exact_mut(self.tag_bytes).enumerate() {
            let data = &data[i * self.block_bytes..][..self.block_bytes];
            let metadata = &metadata[i * self.metadata_bytes..][..self.metadata_bytes];
            self.encode(tag, lba + i as u64, generation, Some(data), metadata);
        }
        tags.freeze()
    }

    /// Data and tags, as they are stored, of consecutive blocks that may be written where no block
    /// was written before. There a lost tag looks like the tag of an unwritten block, and only the
    /// data contradict it. So metadata never accompany data of zeros: the data file gets a filler.
    pub(crate) fn of_overwrite(
        &self,
        lba: u64,
        generation: Generation,
        data: Bytes,
        metadata: &[u8],
    ) -> (Bytes, Bytes) {
        let tags = self.of_data(lba, generation, &data, metadata);
        let zeros = data.chunks_exact(self.block_bytes).map(is_zero);
        let has_metadata = metadata.chunks_exact(self.metadata_bytes.max(1)).map(|metadata| !is_zero(metadata));
        let hidden: Vec<usize> =
            zeros.zip(has_metadata).enumerate().filter(|(_, pair)| *pair == (true, true)).map(|(i, _)| i).collect();
        if hidden.is_empty() {
            return (data, tags);
        }
        let (mut data, mut tags) = (BytesMut::from(&data[..]), BytesMut::from(&tags[..]));
        for i in hidden {
            data[i * self.block_bytes..][..self.block_bytes].fill(NOT_ZERO);
            let tag = &mut tags[i * self.tag_bytes..][..self.tag_bytes];
            self.encode(
                tag,
                lba + i as u64,
                generation,
                None,
                &metadata[i * self.metadata_bytes..][..self.metadata_bytes],
            );
        }
        (data.freeze(), tags.freeze())
    }

    /// The tags of consecutive blocks of zeros.
    pub(crate) fn of_zeros(&self, lba: u64, generation: Generation, blocks: u64) -> Bytes {
        let mut tags = BytesMut::zeroed(blocks as usize * self.tag_bytes);
        let metadata = [0; METADATA_MAX];
        for (i, tag) in tags.chunks_exact_mut(self.tag_bytes).enumerate() {
            self.encode(tag, lba + i as u64, generation, None, &metadata[..self.metadata_bytes]);
        }
        tags.freeze()
    }

    /// Consecutive tags that match no block: reads end with UnrecoveredReadError until the blocks
    /// are written again.
    pub(crate) fn of_lost(&self, blocks: u64) -> Vec<u8> {
        vec![LOST_BYTE; blocks as usize * self.tag_bytes]
    }

    /// The generation in a tag, whether it matches its block or not. `None`: no write has made this
    /// tag.
    pub(crate) fn claimed_generation(&self, tag: &[u8]) -> Option<Generation> {
        let word = u32::from_le_bytes([tag[4], tag[5], tag[6], tag[7]]);
        matches!(word >> KIND_SHIFT, 1 | 2).then_some(Generation(word).as_in_tags())
    }

    /// Encodes one tag; `None` is a block of zeros.
    #[inline]
    fn encode(&self, tag: &mut [u8], lba: u64, generation: Generation, data: Option<&[u8]>, metadata: &[u8]) {
        let kind = if data.is_some() { Kind::Data } else { Kind::Zeros };
        let word = generation.as_in_tags().0 | (kind as u32) << KIND_SHIFT;
        let sum = self.sum(data.map_or(0, crc), word, lba, metadata);
        tag[0..4].copy_from_slice(&sum.to_le_bytes());
        tag[4..8].copy_from_slice(&word.to_le_bytes());
        tag[8..8 + metadata.len()].copy_from_slice(metadata);
    }

    /// Rewrites a tag so that it matches the data, and keeps its metadata.
    pub(crate) fn accept(&self, tag: &mut [u8], lba: u64, generation: Generation, data: &[u8]) {
        let mut metadata = [0; METADATA_MAX];
        let metadata = &mut metadata[..self.metadata_bytes];
        metadata.copy_from_slice(&tag[8..8 + self.metadata_bytes]);
        self.encode(tag, lba, generation, Some(data), metadata);
    }

    /// Verifies a block against its tag.
    #[inline]
    pub(crate) fn verify(&self, tag: &[u8], lba: u64, generation: Generation, data: &[u8]) -> Verdict {
        let word = u32::from_le_bytes([tag[4], tag[5], tag[6], tag[7]]);
        let sum = u32::from_le_bytes([tag[0], tag[1], tag[2], tag[3]]);
        if word == 0 && sum == 0 && tag.iter().all(|&byte| byte == 0) {
            return Verdict::Unwritten;
        }
        let (kind, verdict) = match word >> KIND_SHIFT {
            1 => (Kind::Data, Verdict::Data),
            2 => (Kind::Zeros, Verdict::Zeros),
            _ => return Verdict::Foreign,
        };
        if Generation(word).as_in_tags() != generation.as_in_tags() {
            return Verdict::Foreign;
        }
        let data_crc = if kind == Kind::Data { crc(data) } else { 0 };
        let metadata = &tag[8..8 + self.metadata_bytes];
        if self.sum(data_crc, word, lba, metadata) == sum { verdict } else { Verdict::Mismatch }
    }

    /// Whether a read of a block with this tag returns these data: a tag without contents stands
    /// for zeros.
    pub(crate) fn fits(&self, tag: &[u8], lba: u64, generation: Generation, data: &[u8]) -> bool {
        match self.verify(tag, lba, generation, data) {
            Verdict::Data => true,
            Verdict::Unwritten | Verdict::Zeros => is_zero(data),
            Verdict::Mismatch | Verdict::Foreign => false,
        }
    }

    #[inline]
    fn sum(&self, data_crc: u32, word: u32, lba: u64, metadata: &[u8]) -> u32 {
        let mut covered = [0; 24 + METADATA_MAX];
        covered[0..4].copy_from_slice(&data_crc.to_le_bytes());
        covered[4..8].copy_from_slice(&word.to_le_bytes());
        covered[8..16].copy_from_slice(&lba.to_le_bytes());
        covered[16..24].copy_from_slice(&self.salt);
        covered[24..24 + metadata.len()].copy_from_slice(metadata);
        crc(&covered[..24 + metadata.len()]).max(1)
    }
}

/// Whether all bytes are zero.
#[inline]
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Compares words: called for whole blocks.
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|word| u64::from_ne_bytes(*word) == 0) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec(metadata_bytes: u16) -> TagCodec {
        let tag_bytes = (TAG_BYTES as u64 + u64::from(metadata_bytes)).next_power_of_two();
        TagCodec::new(&[7; 16], 512, metadata_bytes, tag_bytes)
    }

    #[test]
    fn a_tag_fits_its_block_and_no_other_place_generation_or_image() {
        let codec = codec(8);
        let data = [3; 512];
        let tag = codec.of_data(40, Generation(5), &data, &[9; 8]);
        assert_eq!(tag.len(), 16);
        assert_eq!(codec.verify(&tag, 40, Generation(5), &data), Verdict::Data);
        assert_eq!(codec.verify(&tag, 41, Generation(5), &data), Verdict::Mismatch);
        assert_eq!(codec.verify(&tag, 40, Generation(6), &data), Verdict::Foreign);
        assert_eq!(codec.verify(&tag, 40, Generation(5), &[4; 512]), Verdict::Mismatch);
        let other = TagCodec::new(&[8; 16], 512, 8, 16);
        assert_eq!(other.verify(&tag, 40, Generation(5), &data), Verdict::Mismatch);
    }

    #[test]
    fn a_tag_with_any_bit_of_its_meaning_flipped_fits_nothing() {
        for metadata_bytes in [0, 8, 64] {
            let codec = codec(metadata_bytes);
            let data = [1; 512];
            let zeros = codec.of_zeros(3, Generation(1), 1);
            let written = codec.of_data(3, Generation(1), &data, &vec![6; usize::from(metadata_bytes)]);
            for tag in [zeros, written] {
                for bit in 0..8 * (TAG_BYTES + usize::from(metadata_bytes)) {
                    let mut tag = tag.to_vec();
                    tag[bit / 8] ^= 1 << (bit % 8);
                    let verdict = codec.verify(&tag, 3, Generation(1), &data);
                    assert!(matches!(verdict, Verdict::Mismatch | Verdict::Foreign), "bit {bit}: {verdict:?}");
                }
            }
        }
    }

    #[test]
    fn a_block_of_zeros_needs_no_data_and_an_unwritten_one_no_tag() {
        let codec = codec(64);
        assert_eq!(codec.verify(&codec.of_zeros(9, Generation(2), 1), 9, Generation(2), &[0xaa; 512]), Verdict::Zeros);
        assert_eq!(codec.verify(&[0; 128], 9, Generation(2), &[0xaa; 512]), Verdict::Unwritten);
    }

    #[test]
    fn a_tag_of_zeros_with_metadata_is_not_an_unwritten_one() {
        let codec = codec(8);
        let mut tag = [0; 16];
        for at in [8, 15] {
            tag[at] = 1;
            assert_eq!(codec.verify(&tag, 9, Generation(0), &[0; 512]), Verdict::Foreign, "byte {at}");
            tag[at] = 0;
        }
    }

    #[test]
    fn the_tag_of_a_lost_block_fits_nothing_in_any_generation() {
        let codec = codec(8);
        let tags = codec.of_lost(2);
        assert_eq!(tags.len(), 32);
        for generation in [0, 7, u32::MAX >> 2, u32::MAX].map(Generation) {
            assert_eq!(codec.verify(&tags[16..], 1, generation, &[0; 512]), Verdict::Foreign);
        }
        assert_eq!(codec.claimed_generation(&tags[..16]), None);
        assert_eq!(codec.claimed_generation(&codec.of_zeros(1, Generation(1 << 30 | 7), 1)), Some(Generation(7)));
    }

    #[test]
    fn a_block_accepted_as_it_is_keeps_its_metadata() {
        let codec = codec(8);
        let mut tag = codec.of_data(1, Generation(0), &[1; 512], &[5; 8]).to_vec();
        codec.accept(&mut tag, 1, Generation(0), &[2; 512]);
        assert_eq!(codec.verify(&tag, 1, Generation(0), &[2; 512]), Verdict::Data);
        assert_eq!(tag[8..], [5; 8]);
    }
}
