//! Stamped blocks, which identify their address and write: the payload of runs that verify.
//!
//! A block begins with a stamp, followed by random bytes that are derived from it, so that a block
//! can be checked for completeness and identified by itself.
//!
//! ```text
//! bytes   0..8    mark of the seed
//!         8..16   logical block address for which it was written
//!        16..24   sequence: the number of the write of the block, or of resets of its zone
//!        24..32   hash of these three
//!        32..     random bytes, by the hash; the metadata as well
//! ```

use zonda_zoned::{BlockBuffer, Geometry, Lba, Payload, Prng};

/// Bytes of a stamp.
const STAMP_BYTES: usize = 32;
/// Offsets in the random bytes at which a block may begin, in steps of eight bytes.
const PLACES: u64 = 8192;

const _: () = assert!(STAMP_BYTES <= 512, "a stamp fits in the smallest block");

/// The address of a block, and the sequence of its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) lba: Lba,
    pub(crate) sequence: u64,
}

/// The contents of a block that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    Zeros,
    /// A complete block of this run.
    Stamp(Stamp),
    /// The stamp is of this run, but the rest does not match it.
    Damaged,
    /// Neither zeros nor a block of this run.
    Foreign,
}

/// Generates and identifies the blocks of one seed.
pub(crate) struct Stamper {
    mark: u64,
    block_bytes: usize,
    metadata_bytes: usize,
    random: Vec<u8>,
}

impl Stamper {
    pub(crate) fn new(geometry: &Geometry, seed: u64) -> Stamper {
        let mut prng = Prng::new(seed).fork("workload/stamp");
        let mark = prng.next_u64() | 1;
        let (block_bytes, metadata_bytes) = (geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
        let words = PLACES as usize + (block_bytes + metadata_bytes).div_ceil(8);
        let random = std::iter::repeat_with(|| prng.next_u64().to_le_bytes()).take(words).flatten().collect();
        Stamper { mark, block_bytes, metadata_bytes, random }
    }

    /// Consecutive blocks, each with the stamp that `stamp` returns for its index.
    pub(crate) fn payload(&self, blocks: u64, mut stamp: impl FnMut(u64) -> Stamp) -> Payload {
        let mut data = Vec::with_capacity(blocks as usize * self.block_bytes);
        let mut metadata = Vec::with_capacity(blocks as usize * self.metadata_bytes);
        for block in 0..blocks {
            let (head, body, rest) = self.parts(stamp(block));
            data.extend_from_slice(&head);
            data.extend_from_slice(body);
            metadata.extend_from_slice(rest);
        }
        Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.into() }))
    }

    /// Whether a block is complete and has this stamp.
    #[inline]
    pub(crate) fn holds(&self, stamp: Stamp, data: &[u8], metadata: &[u8]) -> bool {
        let (head, body, rest) = self.parts(stamp);
        data[..STAMP_BYTES] == head && data[STAMP_BYTES..] == *body && metadata == rest
    }

    /// Identifies the contents of a block.
    pub(crate) fn read(&self, data: &[u8], metadata: &[u8]) -> Holding {
        if data.iter().chain(metadata).all(|&byte| byte == 0) {
            return Holding::Zeros;
        }
        let word = |index: usize| {
            u64::from_le_bytes(data[index * 8..][..8].try_into().expect("eight bytes make a word of eight"))
        };
        let stamp = Stamp { lba: Lba(word(1)), sequence: word(2) };
        if word(0) != self.mark || word(3) != self.hash(stamp) {
            return Holding::Foreign;
        }
        if self.holds(stamp, data, metadata) { Holding::Stamp(stamp) } else { Holding::Damaged }
    }

    /// A block: its stamp, its other bytes, its metadata.
    #[inline]
    fn parts(&self, stamp: Stamp) -> ([u8; STAMP_BYTES], &[u8], &[u8]) {
        let hash = self.hash(stamp);
        let mut head = [0; STAMP_BYTES];
        for (place, word) in head.chunks_exact_mut(8).zip([self.mark, stamp.lba.0, stamp.sequence, hash]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let random = &self.random[(hash % PLACES) as usize * 8..];
        let (body, rest) = random.split_at(self.block_bytes - STAMP_BYTES);
        (head, body, &rest[..self.metadata_bytes])
    }

    #[inline]
    fn hash(&self, stamp: Stamp) -> u64 {
        let mut hash = self.mark;
        for word in [stamp.lba.0, stamp.sequence] {
            hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 32;
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { lba: Lba(77), sequence: 3 };

    fn block(stamper: &Stamper) -> (Vec<u8>, Vec<u8>) {
        let Payload::Bytes(buffer) = stamper.payload(1, |_| STAMP) else { panic!("stamped blocks are bytes") };
        (buffer.data.to_vec(), buffer.metadata.to_vec())
    }

    #[test]
    fn a_stamp_reads_back_from_its_block() {
        let stamper = Stamper::new(&Geometry::tiny(), 1);
        let (data, metadata) = block(&stamper);
        assert_eq!((data.len(), metadata.len()), (512, 8));
        assert_eq!(stamper.read(&data, &metadata), Holding::Stamp(STAMP));
        assert!(stamper.holds(STAMP, &data, &metadata));
        assert!(!stamper.holds(Stamp { sequence: 4, ..STAMP }, &data, &metadata));
        assert_eq!(stamper.read(&[0; 512], &[0; 8]), Holding::Zeros);
        assert_eq!(stamper.read(&[0; 512], &[1; 8]), Holding::Foreign);
    }

    #[test]
    fn a_block_of_another_seed_is_foreign() {
        let (data, metadata) = block(&Stamper::new(&Geometry::tiny(), 1));
        assert_eq!(Stamper::new(&Geometry::tiny(), 2).read(&data, &metadata), Holding::Foreign);
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let stamper = Stamper::new(&Geometry::tiny(), 1);
        let (data, metadata) = block(&stamper);
        for byte in 0..520 {
            let (mut data, mut metadata) = (data.clone(), metadata.clone());
            *data.iter_mut().chain(&mut metadata).nth(byte).unwrap() ^= 1;
            let holding = stamper.read(&data, &metadata);
            let expected = if byte < STAMP_BYTES { Holding::Foreign } else { Holding::Damaged };
            assert_eq!(holding, expected, "byte {byte}");
        }
    }
}
