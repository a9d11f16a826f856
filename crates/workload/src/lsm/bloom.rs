//! Bloom filters: real bits, with real false positives.

use super::entry::{Entry, Key};

/// Tests whether a key may be in a set, or is not.
///
/// A key sets `probes` bits, at positions by double hashing (Kirsch and Mitzenmacher, "Less
/// hashing, same performance", ESA 2006). With `k` probes and `b` bits a key, a share of `(1 -
/// e^(-k/b))^k` of the keys that are not in the set passes: 0.0082 with 10 bits and 7 probes.
#[derive(Clone, Debug)]
pub(super) struct Bloom {
    words: Vec<u64>,
    bits: u64,
    probes: u32,
}

impl Bloom {
    /// A filter of the keys of `entries`; `None` with no bits a key.
    pub(super) fn new(entries: &[Entry], bits_per_key: u32) -> Option<Bloom> {
        if bits_per_key == 0 {
            return None;
        }
        let words = (entries.len() as u64 * u64::from(bits_per_key)).div_ceil(64).max(1);
        // The number of probes with the fewest false positives is bits x ln 2, here in thousandths.
        let probes = ((bits_per_key * 693 + 500) / 1000).clamp(1, 30);
        let mut bloom = Bloom { words: vec![0; words as usize], bits: words * 64, probes };
        for entry in entries {
            let (mut place, step) = bloom.start(entry.key);
            for _ in 0..probes {
                let bit = bloom.bit(place);
                bloom.words[(bit / 64) as usize] |= 1 << (bit % 64);
                place = place.wrapping_add(step);
            }
        }
        Some(bloom)
    }

    #[inline]
    pub(super) fn may_contain(&self, key: Key) -> bool {
        let (mut place, step) = self.start(key);
        for _ in 0..self.probes {
            let bit = self.bit(place);
            if self.words[(bit / 64) as usize] & (1 << (bit % 64)) == 0 {
                return false;
            }
            place = place.wrapping_add(step);
        }
        true
    }

    /// The size of a filter of so many keys in a file: the bits, and five bytes more.
    pub(super) fn file_bytes(keys: u64, bits_per_key: u32) -> u64 {
        if bits_per_key == 0 { 0 } else { (keys * u64::from(bits_per_key)).div_ceil(64) * 8 + 5 }
    }

    /// Two independent hashes of a key.
    #[inline]
    fn start(&self, key: Key) -> (u64, u64) {
        let mut hash = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^= hash >> 32;
        (hash, hash.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29) | 1)
    }

    /// Selects by the upper bits: a product instead of a remainder.
    #[inline]
    fn bit(&self, place: u64) -> u64 {
        ((u128::from(place) * u128::from(self.bits)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::entry::Stamp;
    use zonda_zoned::Prng;

    fn entries(keys: impl Iterator<Item = u64>) -> Vec<Entry> {
        keys.map(|key| Entry { key: Key(key), stamp: Stamp::put(key) }).collect()
    }

    /// The share of foreign keys that pass.
    fn false_positive_share(inside: &[Entry], bits_per_key: u32, foreign: impl Fn(u64) -> Key) -> f64 {
        const CHECKS: u64 = 400_000;
        let bloom = Bloom::new(inside, bits_per_key).expect("the filter has bits");
        let passed = (0..CHECKS).filter(|&index| bloom.may_contain(foreign(index))).count();
        passed as f64 / CHECKS as f64
    }

    #[test]
    fn every_key_inside_passes() {
        for (count, bits) in [(1, 1), (10, 10), (5_000, 10), (5_000, 3)] {
            let inside = entries((0..count).map(|key| key * 977));
            let bloom = Bloom::new(&inside, bits).expect("the filter has bits");
            assert!(inside.iter().all(|entry| bloom.may_contain(entry.key)), "{count} keys of {bits} bits");
        }
    }

    #[test]
    fn the_share_of_false_positives_is_that_of_the_formula() {
        for (bits, probes) in [(5, 3), (10, 7), (16, 11)] {
            let expected = (1.0 - (-f64::from(probes) / f64::from(bits)).exp()).powi(probes);
            // Keys in a row, and keys spread out at random.
            let in_a_row = false_positive_share(&entries(0..100_000), bits as u32, |index| Key(1_000_000 + index));
            let mut prng = Prng::new(5);
            let spread = entries((0..100_000).map(|_| prng.next_u64() >> 2));
            let at_random =
                false_positive_share(&spread, bits as u32, |index| Key(index.wrapping_mul(0x9e37_79b9_7f4a)));
            for got in [in_a_row, at_random] {
                assert!((got / expected - 1.0).abs() < 0.1, "{bits} bits: {got} for {expected}");
            }
        }
    }

    #[test]
    fn with_ten_bits_eight_foreign_keys_of_a_thousand_pass() {
        let share = false_positive_share(&entries(0..200_000), 10, |index| Key(10_000_000 + index));
        assert!((share - 0.0082).abs() < 0.0005, "{share}");
    }

    #[test]
    fn zero_bits_make_no_filter_and_take_no_space() {
        assert!(Bloom::new(&entries(0..10), 0).is_none());
        assert_eq!((Bloom::file_bytes(1_000, 0), Bloom::file_bytes(1_000, 10)), (0, 1_261));
    }
}
