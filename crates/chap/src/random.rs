//! Random bytes from a seed that the caller provides.

use std::fmt;

use crate::hash::{Digest, Hash, wipe};

/// Bytes of a seed.
pub const SEED_BYTES: usize = 32;

/// A generator of bytes: block `n` is HMAC-SHA256(seed, `n` as 64 bits, little endian).
///
/// The caller must take a new seed from the operating system for each run: challenges and private
/// exponents are generated from it, so reusing a seed repeats them. The same seed gives the same
/// bytes, so that tests are reproducible. Hidden from `Debug`, overwritten on drop.
pub struct Random {
    seed: [u8; SEED_BYTES],
    block: u64,
}

impl Random {
    /// A generator that depends only on `seed`.
    #[must_use]
    pub fn new(seed: [u8; SEED_BYTES]) -> Random {
        Random { seed, block: 0 }
    }

    /// An independent generator, seeded with the next bytes of this one.
    #[must_use]
    pub fn fork(&mut self) -> Random {
        let mut seed = [0; SEED_BYTES];
        self.fill(&mut seed);
        Random::new(seed)
    }

    /// Fills `bytes`. The rest of a block of 32 bytes is discarded.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(SEED_BYTES) {
            let block: Digest = Hash::Sha256.hmac(&self.seed, &[&self.block.to_le_bytes()]);
            chunk.copy_from_slice(&block[..chunk.len()]);
            self.block = self.block.checked_add(1).expect("2^64 blocks are more than a run can use");
        }
    }

    /// A nonzero number: the start of a series of sequence numbers.
    pub(crate) fn nonzero_u32(&mut self) -> u32 {
        loop {
            let mut bytes = [0; 4];
            self.fill(&mut bytes);
            let number = u32::from_le_bytes(bytes);
            if number != 0 {
                return number;
            }
        }
    }

    /// A challenge for `hash`.
    pub(crate) fn challenge(&mut self, hash: Hash) -> Vec<u8> {
        let mut challenge = vec![0; hash.length_bytes()];
        self.fill(&mut challenge);
        challenge
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random(..)")
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        wipe(&mut self.seed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's `hmac` module.
    #[test]
    fn the_bytes_are_hmac_sha256_in_counter_mode() {
        let mut bytes = [0; 40];
        Random::new([7; 32]).fill(&mut bytes);
        assert_eq!(bytes, RANDOM_40);
    }

    #[test]
    fn a_fork_repeats_nothing_of_its_parent() {
        let mut parent = Random::new([1; 32]);
        let mut draws = Vec::new();
        for _ in 0..3 {
            let mut bytes = [0; 32];
            parent.fork().fill(&mut bytes);
            draws.push(bytes);
            parent.fill(&mut bytes);
            draws.push(bytes);
        }
        draws.sort_unstable();
        draws.dedup();
        assert_eq!(draws.len(), 6);
    }

    #[test]
    fn the_seed_is_not_printed() {
        assert_eq!(format!("{:?}", Random::new([0xab; 32])), "Random(..)");
    }

    const RANDOM_40: [u8; 40] = [
        0x6f, 0x99, 0xc7, 0xf5, 0x19, 0x64, 0xfb, 0xcc, 0x44, 0x21, 0x64, 0xd5, 0x3b, 0x5f, 0xa9, 0xdc, 0x92, 0x7a,
        0x76, 0x5f, 0x0c, 0xb5, 0xcf, 0x3c, 0xbc, 0x17, 0x60, 0xdc, 0x28, 0x3b, 0xd0, 0xb4, 0x79, 0x8c, 0x2a, 0xc4,
        0x14, 0xb1, 0x6e, 0x21,
    ];
}
