//! Skewed random numbers, for addresses. Floating-point numbers determine the address of a request,
//! never its time.

use zonda_zoned::Prng;

use crate::Distribution;

/// Terms of the zeta sum that are added one by one; the rest is an integral with its first
/// corrections.
const ZETA_TERMS: u64 = 1000;

/// Generates numbers in `0..count` by popularity, and scatters the popular ones. The parameters are
/// computed once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skew {
    Zipf(Zipf, Scatter),
    Hot(Hot, Scatter),
}

/// Ranks by a Zipf distribution, after Gray et al., "Quickly generating billion-record synthetic
/// databases", SIGMOD 1994, Figure 5, which YCSB uses too: exact for ranks 0 and 1; up to any later
/// rank, the share of all requests is accurate to within 2 %.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    count: u64,
    zeta: f64,
    zeta_two: f64,
    alpha: f64,
    eta: f64,
}

/// Ranks of two kinds: below `hot_count` with a chance of `threshold / 2^64`, else above.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hot {
    count: u64,
    hot_count: u64,
    threshold: u64,
    always: bool,
}

/// A fixed permutation of `0..count`: it mixes the numbers below the next power of two, and repeats
/// that while the result is not below `count` (which ends, because a permutation returns to its
/// start).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
}

/// Generates numbers in `0..count` with the distributions of random jobs: all of them have the same
/// popular numbers.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    count: u64,
    skew: Option<Skew>,
}

impl Places {
    /// # Panics
    /// If `count` is 0.
    #[must_use]
    pub fn new(distribution: Distribution, count: u64) -> Places {
        assert!(count > 0, "the range of places must not be empty");
        Places { count, skew: Skew::new(distribution, count) }
    }

    /// The next random place.
    pub fn sample(&self, prng: &mut Prng) -> u64 {
        match &self.skew {
            None => prng.below(self.count),
            Some(skew) => skew.sample(prng),
        }
    }
}

impl Skew {
    /// `None` for the uniform distribution, which needs no skew.
    pub(crate) fn new(distribution: Distribution, count: u64) -> Option<Skew> {
        match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf(theta) => Some(Skew::Zipf(Zipf::new(theta, count), Scatter::new(count))),
            Distribution::Hot { hot, of } => Some(Skew::Hot(Hot::new(hot, of, count), Scatter::new(count))),
        }
    }

    #[inline]
    pub(crate) fn sample(&self, prng: &mut Prng) -> u64 {
        match self {
            Skew::Zipf(zipf, scatter) => scatter.place(zipf.rank(prng)),
            Skew::Hot(hot, scatter) => scatter.place(hot.rank(prng)),
        }
    }
}

impl Zipf {
    pub(crate) fn new(theta: f64, count: u64) -> Zipf {
        assert!(count > 0 && theta > 0.0 && theta < 1.0, "checked when the distribution was read");
        let zeta = zeta(count, theta);
        let zeta_two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta);
        Zipf { count, zeta, zeta_two, alpha: 1.0 / (1.0 - theta), eta }
    }

    #[inline]
    pub(crate) fn rank(&self, prng: &mut Prng) -> u64 {
        let uniform = unit(prng);
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < self.zeta_two {
            1
        } else {
            (self.count as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
        };
        rank.min(self.count - 1)
    }
}

impl Hot {
    fn new(hot: f64, of: f64, count: u64) -> Hot {
        let hot_count = ((hot * count as f64).round() as u64).clamp(1, count);
        Hot { count, hot_count, threshold: (of * 2f64.powi(64)) as u64, always: of >= 1.0 || hot_count == count }
    }

    #[inline]
    fn rank(&self, prng: &mut Prng) -> u64 {
        if prng.next_u64() < self.threshold || self.always {
            prng.below(self.hot_count)
        } else {
            self.hot_count + prng.below(self.count - self.hot_count)
        }
    }
}

impl Scatter {
    pub(crate) fn new(count: u64) -> Scatter {
        assert!(count > 0, "the range of numbers must not be empty");
        let mask = count.checked_next_power_of_two().map_or(u64::MAX, |power| power - 1);
        Scatter { count, mask, shift: (mask.count_ones() / 2).max(1) }
    }

    #[inline]
    pub(crate) fn place(&self, rank: u64) -> u64 {
        let mut x = rank;
        loop {
            // Adding, multiplying by an odd number and folding the upper half in can each be
            // undone: a permutation.
            x = x.wrapping_add(0x2545_f491_4f6c_dd1d) & self.mask;
            for factor in [0x9e37_79b9_7f4a_7c15u64, 0xbf58_476d_1ce4_e5b9] {
                x = x.wrapping_mul(factor) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.count {
                return x;
            }
        }
    }
}

/// A number in [0, 1), with 53 random bits.
#[inline]
fn unit(prng: &mut Prng) -> f64 {
    (prng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// `1 + 1/2^theta + ... + 1/count^theta`, by the Euler-Maclaurin formula beyond the first terms;
/// the error is far below the rounding of a double.
fn zeta(count: u64, theta: f64) -> f64 {
    let head: f64 = (1..=count.min(ZETA_TERMS)).map(|k| (k as f64).powf(-theta)).sum();
    if count <= ZETA_TERMS {
        return head;
    }
    let (from, to) = (ZETA_TERMS as f64, count as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    let slopes = theta * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0)) / 12.0;
    head + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact_probabilities(theta: f64, count: u64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=count).map(|k| (k as f64).powf(-theta)).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    #[test]
    fn zipf_ranks_have_the_probabilities_of_the_distribution() {
        const DRAWS: u64 = 1_000_000;
        for (theta, count) in [(0.5, 100), (0.99, 1_000), (0.8, 5_000)] {
            let zipf = Zipf::new(theta, count);
            let mut prng = Prng::new(1);
            let mut seen = vec![0u64; count as usize];
            (0..DRAWS).for_each(|_| seen[zipf.rank(&mut prng) as usize] += 1);
            let exact = exact_probabilities(theta, count);
            for rank in 0..2 {
                let got = seen[rank] as f64 / DRAWS as f64;
                assert!(
                    (got / exact[rank] - 1.0).abs() < 0.02,
                    "theta {theta}, rank {rank}: {got} for {}",
                    exact[rank]
                );
            }
            // Beyond the first two the method is an approximation: cumulative shares are compared
            // with the exact ones.
            let (mut got, mut expected) = (0.0, 0.0);
            for rank in 0..count as usize {
                got += seen[rank] as f64 / DRAWS as f64;
                expected += exact[rank];
                assert!((got - expected).abs() < 0.02, "theta {theta}, up to rank {rank}: {got} for {expected}");
            }
        }
    }

    #[test]
    fn the_formula_of_the_zeta_sum_matches_the_sum() {
        for theta in [0.1, 0.5, 0.99] {
            let added: f64 = (1..=1_000_000u64).map(|k| (k as f64).powf(-theta)).sum();
            let got = zeta(1_000_000, theta);
            assert!((got / added - 1.0).abs() < 1e-11, "theta {theta}: {got} for {added}");
        }
    }

    #[test]
    fn scattering_is_a_permutation() {
        for count in [1, 2, 3, 7, 64, 100, 1_000] {
            let scatter = Scatter::new(count);
            let mut places: Vec<u64> = (0..count).map(|rank| scatter.place(rank)).collect();
            places.sort_unstable();
            assert_eq!(places, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn popular_addresses_are_scattered() {
        let scatter = Scatter::new(100_000);
        let mut first: Vec<u64> = (0..100).map(|rank| scatter.place(rank)).collect();
        first.sort_unstable();
        let nearest = first.windows(2).map(|pair| pair[1] - pair[0]).min();
        let in_first_half = first.iter().filter(|&&place| place < 50_000).count();
        assert!(nearest > Some(0) && (30..70).contains(&in_first_half), "{in_first_half}");
    }

    #[test]
    fn the_hot_share_gets_its_share_of_requests() {
        let hot = Hot::new(0.2, 0.8, 1_000);
        let mut prng = Prng::new(3);
        let hits = (0..100_000).filter(|_| hot.rank(&mut prng) < 200).count();
        assert!((79_500..80_500).contains(&hits), "{hits}");
        let all = Hot::new(0.5, 1.0, 10);
        assert!((0..1_000).all(|_| all.rank(&mut prng) < 5));
    }

    #[test]
    fn the_smallest_counts_work() {
        let mut prng = Prng::new(4);
        for count in 1..=3 {
            for distribution in [Distribution::Zipf(0.99), Distribution::Hot { hot: 0.5, of: 0.5 }] {
                let skew = Skew::new(distribution, count).expect("these are skewed");
                let mut seen: Vec<u64> = (0..1_000).map(|_| skew.sample(&mut prng)).collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len() as u64, count, "{distribution:?}");
            }
        }
    }
}
