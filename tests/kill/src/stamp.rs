//! Stamped blocks: each contains its LBA and the number of its write.
//!
//! ```text
//! bytes   0..8    mark of the run and the namespace
//!         8..16   logical block address for which it was written
//!        16..24   sequence of the write
//!        24..32   hash of these three
//!        32..     random bytes, by the hash
//! ```

use std::fmt;

use zonda_zoned::{BlockBuffer, Lba, Payload, Prng};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a stamp.
const STAMP_BYTES: usize = 32;
/// Places in the random bytes at which the rest of a block may begin, in steps of eight bytes.
const PLACES: u64 = 4096;

/// The number of a write in a run: its load (two per round, the second ended by SIGTERM), its host,
/// and its number of that host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Zeros: never written, or written with zeros.
    Zeros,
    /// A complete block of this write, at its LBA.
    Write(Sequence),
    /// A block of this write, for another LBA.
    Misplaced(Lba, Sequence),
    /// The beginning of a block of this write, with a different rest.
    Torn(Sequence),
    /// Bytes that this run did not write.
    Foreign,
}

/// Generates and recognizes the blocks of one namespace in one run.
#[derive(Clone, Debug)]
pub struct Stamper {
    mark: u64,
    random: Vec<u8>,
}

impl Sequence {
    const HOST_SHIFT: u32 = 32;
    const LOAD_SHIFT: u32 = 40;

    /// A host's first write of a load is number zero.
    ///
    /// # Panics
    /// When a host has written 2^32 times in one load, or there are more than 256 hosts.
    #[must_use]
    pub fn new(load: u32, host: u32, number: u64) -> Sequence {
        assert!(host < 256 && number < 1 << Self::HOST_SHIFT, "a load is short, and has few hosts");
        Sequence(u64::from(load) << Self::LOAD_SHIFT | u64::from(host) << Self::HOST_SHIFT | number)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (load, host) = (self.0 >> Self::LOAD_SHIFT, self.0 >> Self::HOST_SHIFT & 0xff);
        write!(f, "write {} of host {host} in load {load}", self.0 & 0xffff_ffff)
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contents::Zeros => f.write_str("zeros"),
            Contents::Write(sequence) => sequence.fmt(f),
            Contents::Misplaced(lba, sequence) => write!(f, "the block for LBA {lba} of {sequence}"),
            Contents::Torn(sequence) => write!(f, "a torn block of {sequence}"),
            Contents::Foreign => f.write_str("bytes that were never written"),
        }
    }
}

impl Stamper {
    /// Blocks of the namespace called `name`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Stamper {
        let mut prng = Prng::new(seed).fork("stamp").fork(name);
        let mark = prng.next_u64() | 1;
        let words = PLACES as usize + BLOCK_BYTES / 8;
        let random = std::iter::repeat_with(|| prng.next_u64().to_le_bytes()).take(words).flatten().collect();
        Stamper { mark, random }
    }

    /// Whether both stamp blocks of the same namespace.
    pub(crate) fn is_same(&self, other: &Stamper) -> bool {
        self.mark == other.mark
    }

    /// Consecutive blocks of one write.
    #[must_use]
    pub fn payload(&self, start: Lba, blocks: u64, sequence: Sequence) -> Payload {
        let mut data = Vec::with_capacity(blocks as usize * BLOCK_BYTES);
        for lba in start.0..start.0 + blocks {
            let (head, body) = self.parts(Lba(lba), sequence);
            data.extend_from_slice(&head);
            data.extend_from_slice(body);
        }
        Payload::Bytes(Box::new(BlockBuffer { data: data.into(), ..BlockBuffer::default() }))
    }

    /// The contents of the block at `lba`.
    #[must_use]
    pub fn read(&self, lba: Lba, block: &[u8]) -> Contents {
        if block.iter().all(|&byte| byte == 0) {
            return Contents::Zeros;
        }
        let word =
            |at: usize| u64::from_le_bytes(block[at * 8..][..8].try_into().expect("eight bytes make a word of eight"));
        let (place, sequence) = (Lba(word(1)), Sequence(word(2)));
        let (head, body) = self.parts(place, sequence);
        if block[..STAMP_BYTES] != head {
            Contents::Foreign
        } else if block[STAMP_BYTES..] != *body {
            Contents::Torn(sequence)
        } else if place != lba {
            Contents::Misplaced(place, sequence)
        } else {
            Contents::Write(sequence)
        }
    }

    fn parts(&self, lba: Lba, sequence: Sequence) -> ([u8; STAMP_BYTES], &[u8]) {
        let mut hash = self.mark;
        for word in [lba.0, sequence.0] {
            hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 32;
        }
        let mut head = [0; STAMP_BYTES];
        for (place, word) in head.chunks_exact_mut(8).zip([self.mark, lba.0, sequence.0, hash]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        (head, &self.random[(hash % PLACES) as usize * 8..][..BLOCK_BYTES - STAMP_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: Sequence = Sequence(7);

    fn block(stamper: &Stamper) -> Vec<u8> {
        let Payload::Bytes(buffer) = stamper.payload(Lba(5), 1, SEQUENCE) else { panic!("stamped blocks are bytes") };
        buffer.data.to_vec()
    }

    #[test]
    fn a_block_identifies_its_write_and_its_lba() {
        let stamper = Stamper::new(1, "a");
        let block = block(&stamper);
        assert_eq!(stamper.read(Lba(5), &block), Contents::Write(SEQUENCE));
        assert_eq!(stamper.read(Lba(6), &block), Contents::Misplaced(Lba(5), SEQUENCE));
        assert_eq!(Stamper::new(1, "b").read(Lba(5), &block), Contents::Foreign);
        assert_eq!(stamper.read(Lba(5), &[0; BLOCK_BYTES]), Contents::Zeros);
    }

    #[test]
    fn half_a_block_is_torn() {
        let stamper = Stamper::new(1, "a");
        let mut block = block(&stamper);
        block[BLOCK_BYTES / 2..].fill(0);
        assert_eq!(stamper.read(Lba(5), &block), Contents::Torn(SEQUENCE));
    }

    #[test]
    fn a_sequence_is_shown_by_its_parts() {
        assert_eq!(Sequence::new(3, 1, 77).to_string(), "write 77 of host 1 in load 3");
    }
}
