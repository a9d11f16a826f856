//! Reproducible random numbers.
//!
//! One root seed, forked by label: `prng.fork("raid/member/2")` depends only on the seed and the
//! label, so that a new consumer does not change the numbers of others. The generator is
//! xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018),
//! seeded through SplitMix64 as its authors advise.

/// A seeded generator of 64-bit numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prng {
    seed: u64,
    state: [u64; 4],
}

/// Table entries of the logarithm behind [`Prng::exponential`]; a power of two.
const LOG2_STEPS: usize = 256;
/// `log2(1 + i / LOG2_STEPS)` in units of 2^-32.
static LOG2_TABLE: [u64; LOG2_STEPS + 1] = log2_table();
/// `ln 2` in units of 2^-32.
const LN2_Q32: u128 = 2_977_044_472;

impl Prng {
    /// A generator that depends on `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Prng {
        let mut mixer = seed;
        Prng { seed, state: std::array::from_fn(|_| splitmix64(&mut mixer)) }
    }

    /// A separate generator for the consumer called `label`, independent of the numbers generated
    /// from this one.
    #[must_use]
    pub fn fork(&self, label: &str) -> Prng {
        let mut hash = self.seed ^ 0xcbf2_9ce4_8422_2325;
        for byte in label.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Prng::new(splitmix64(&mut hash))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (s2, s3) = (s2 ^ s0, s3 ^ s1);
        self.state = [s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 17), s3.rotate_left(45)];
        result
    }

    /// A number in `0..bound`, each as likely as any other to within 2^-64 of its share.
    ///
    /// # Panics
    /// When `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be above zero");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `denominator` calls, `numerator` times over.
    #[inline]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// One of `items`, or `None` of an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.below(items.len() as u64) as usize) }
    }

    /// An exponentially distributed number with the given mean, by inversion in integer arithmetic,
    /// so that every machine generates the same. The largest is about 44 times the mean.
    #[inline]
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let uniform = self.next_u64() | 1;
        // uniform = 2^(63 - zeros) * (1 + fraction), so that -log2(uniform / 2^64) = zeros + 1 -
        // log2(1 + fraction).
        let zeros = u64::from(uniform.leading_zeros());
        let fraction = if zeros == 63 { 0 } else { uniform << (zeros + 1) };
        let step = (fraction >> 56) as usize;
        let rest = (fraction >> 24) & 0xffff_ffff;
        let (low, high) = (LOG2_TABLE[step], LOG2_TABLE[step + 1]);
        let log2 = low + (((high - low) * rest) >> 32);
        let negative_log2 = u128::from(((zeros + 1) << 32) - log2);
        ((u128::from(mean) * ((negative_log2 * LN2_Q32) >> 32)) >> 32) as u64
    }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `log2` digit by digit: squaring a number in [1, 2) doubles its logarithm, and carries out the
/// next binary digit.
const fn log2_table() -> [u64; LOG2_STEPS + 1] {
    let mut table = [0; LOG2_STEPS + 1];
    let mut i = 0;
    while i < LOG2_STEPS {
        let mut x = (1u128 << 62) + ((i as u128) << 54);
        let mut digits = 0u64;
        let mut bit = 0;
        while bit < 32 {
            x = (x * x) >> 62;
            digits <<= 1;
            if x >= 1u128 << 63 {
                digits |= 1;
                x >>= 1;
            }
            bit += 1;
        }
        table[i] = digits;
        i += 1;
    }
    table[LOG2_STEPS] = 1 << 32;
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_depends_on_seed_and_label_and_not_on_generated_numbers() {
        let mut root = Prng::new(7);
        let before = root.fork("die/3");
        root.next_u64();
        assert_eq!(before, root.fork("die/3"));
        assert_ne!(before, root.fork("die/4"));
        assert_ne!(before, Prng::new(8).fork("die/3"));
        for bit in 0..64 {
            assert_ne!(before, Prng::new(7 ^ 1 << bit).fork("die/3"), "bit {bit} of the seed");
        }
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // First outputs of the authors' reference generator from the state 1, 2, 3, 4.
        let mut prng = Prng { seed: 0, state: [1, 2, 3, 4] };
        assert_eq!([prng.next_u64(), prng.next_u64(), prng.next_u64()], [11_520, 0, 1_509_978_240]);
    }

    #[test]
    fn numbers_below_a_bound_cover_it_evenly() {
        let mut prng = Prng::new(1);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[prng.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
    }

    #[test]
    fn exponential_numbers_have_the_mean_and_the_quantiles_of_their_distribution() {
        let mut prng = Prng::new(2);
        let mut draws: Vec<u64> = (0..200_000).map(|_| prng.exponential(1_000_000)).collect();
        draws.sort_unstable();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!((990_000..1_010_000).contains(&mean), "mean {mean}");
        for (share, expected) in [(0.5, 693_147.0), (0.9, 2_302_585.0), (0.99, 4_605_170.0)] {
            let got = draws[(share * draws.len() as f64) as usize] as f64;
            assert!((got / expected - 1.0).abs() < 0.03, "quantile {share}: {got} for {expected}");
        }
    }
}
