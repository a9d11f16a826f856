//! [`Evidence`]: whether the latencies of reads agree with the table of groups.
//!
//! If the table is right, a read takes longer the more requests are in flight in its own group, and
//! the same number in other groups matters less. Requests of its own zone do not count: they disturb it
//! whatever the table. Of sampled reads, the numbers in flight at their
//! release and their latencies are kept as sums, and least squares give the *effect*: how much longer
//! a read takes with one more request in its own group rather than in another one.
//!
//! If all of the latency came from the queue of its group, the effect would be the mean latency
//! divided by the requests in that queue. A table whose effect is surely below a sixth of that is
//! contradicted; one whose effect is surely above is confirmed. Otherwise the verdict waits for more
//! reads: in particular, as long as all groups have as many requests in flight as each other.
//!
//! All of this is in integers: latencies in units of 64 ns, results in 256ths of them. The sums are
//! halved after a number of reads, so that old ones fade, and a drive whose groups have changed is
//! noticed.

use zonda_zoned::Duration;

use crate::limits::{INTERFERENCE_SAMPLES_MAX, INTERFERENCE_SAMPLES_MIN};
use crate::{Request, RequestKind};

/// Reads that are sampled at a time.
const SAMPLED_MAX: usize = 16;
/// Reads between two verdicts.
const PERIOD: u32 = 256;
/// Limits of what is added up, so that no sum overflows.
const OWN_MAX: u32 = 255;
const TOTAL_MAX: u32 = 1023;
const LATENCY_MAX: u64 = (1 << 26) - 1;
const LATENCY_UNIT_NS: u64 = 64;
/// Fractions of a unit in results.
const SCALE: i128 = 256;
/// Standard errors that make a difference certain, squared.
const CERTAIN: i128 = 16;
/// The part of the greatest possible effect below which groups do not matter.
const PART: i128 = 6;

/// What the reads so far show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Requests of a group disturb each other more than those of others.
    Confirmed,
    /// They do not.
    Contradicted,
}

/// Sums over sampled reads.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    sampled: Vec<Sampled>,
    sums: Sums,
    /// Only reads of one size are comparable: that of the first one, in powers of two.
    size_class: Option<u32>,
    since_finding: u32,
    /// Reads of other sizes since one of this size.
    other_sizes: u32,
}

/// A read in flight.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    number: u64,
    own: u32,
    total: u32,
}

/// Sums of: in flight in the own group (x), in flight in all groups (t), latency (l). Only those of squared
/// latencies need more than 64 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: u64,
    x: u64,
    t: u64,
    l: u64,
    xx: u64,
    tt: u64,
    ll: u128,
    xt: u64,
    xl: u64,
    tl: u64,
}

const _: () = assert!(
    LATENCY_MAX * TOTAL_MAX as u64 <= u64::MAX / (2 * INTERFERENCE_SAMPLES_MAX as u64 + PERIOD as u64),
    "no sum overflows"
);

impl Evidence {
    /// A request of a known group is released; `own` and `total` do not include it.
    pub(super) fn on_released(&mut self, number: u64, bytes: u64, own: u32, total: u32) {
        if self.sampled.len() >= SAMPLED_MAX {
            return;
        }
        let class = bytes.max(1).ilog2();
        if *self.size_class.get_or_insert(class) != class {
            // The load has changed.
            self.other_sizes += 1;
            if self.other_sizes >= INTERFERENCE_SAMPLES_MIN {
                self.size_class = Some(class);
                self.sums = Sums::default();
                self.other_sizes = 0;
            }
            return;
        }
        self.other_sizes = 0;
        self.sampled.push(Sampled { number, own: own.min(OWN_MAX), total: total.min(TOTAL_MAX) });
    }

    /// It was refused.
    pub(super) fn on_refused(&mut self, number: u64) {
        self.sampled.retain(|sampled| sampled.number != number);
    }

    /// It has ended; returns a finding if there is one.
    pub(super) fn on_completion(&mut self, request: &Request, latency: Duration, is_success: bool) -> Option<Finding> {
        if request.kind != RequestKind::Read {
            return None;
        }
        let place = self.sampled.iter().position(|sampled| sampled.number == request.number)?;
        let Sampled { own, total, .. } = self.sampled.swap_remove(place);
        if !is_success {
            return None;
        }
        self.sums.add(own, total, latency.as_nanos());
        self.since_finding += 1;
        if self.since_finding < PERIOD || self.sums.n < u64::from(INTERFERENCE_SAMPLES_MIN) {
            return None;
        }
        self.since_finding = 0;
        let finding = self.sums.finding();
        if self.sums.n >= u64::from(INTERFERENCE_SAMPLES_MAX) {
            self.sums.halve();
        }
        finding
    }

    /// Forgets the reads so far: those under another order say less about the next.
    pub(super) fn restart(&mut self) {
        self.sums = Sums::default();
        self.since_finding = 0;
    }
}

impl Sums {
    fn add(&mut self, own: u32, total: u32, latency_ns: u64) {
        let (x, t) = (u64::from(own), u64::from(total));
        let l = (latency_ns / LATENCY_UNIT_NS).min(LATENCY_MAX);
        self.n += 1;
        self.x += x;
        self.t += t;
        self.l += l;
        self.xx += x * x;
        self.tt += t * t;
        self.ll += u128::from(l * l);
        self.xt += x * t;
        self.xl += x * l;
        self.tl += t * l;
    }

    fn halve(&mut self) {
        let Sums { n, x, t, l, xx, tt, ll, xt, xl, tl } = self;
        *ll /= 2;
        [n, x, t, l, xx, tt, xt, xl, tl].into_iter().for_each(|sum| *sum /= 2);
    }

    fn finding(&self) -> Option<Finding> {
        let [n, x, t, l] = [self.n, self.x, self.t, self.l].map(i128::from);
        // Sums of products of deviations from the mean.
        let centered = |sum: u64, a: i128, b: i128| i128::from(sum) - a * b / n;
        let xx = centered(self.xx, x, x);
        let xt = centered(self.xt, x, t);
        let (xl, tl) = (centered(self.xl, x, l), centered(self.tl, t, l));
        let ll = i128::try_from(self.ll).expect("squares of 26 bits are added up") - l * l / n;
        // If the number in flight never varies, this leaves the regression on the own group alone.
        let tt = centered(self.tt, t, t) + n / 4 + 1;
        let determinant = xx * tt - xt * xt;
        if determinant <= 0 {
            return None;
        }
        let effect = (xl * tt - tl * xt) * SCALE / determinant;
        let of_total = (tl * xx - xl * xt) * SCALE / determinant;
        let rest = (ll - (effect * xl + of_total * tl) / SCALE).max(0);
        let variance = rest * tt / determinant * SCALE * SCALE / (n - 3);
        // Rounding: a variance below one is not certainty.
        let variance = variance + 1;
        let threshold = l * SCALE / ((x + n) * PART);
        let distance = effect - threshold;
        let is_certain = distance * distance > CERTAIN * variance;
        // Where requests of a group hardly ever meet, the table cannot be tested, and does no harm.
        let do_meet = x * 2 >= n;
        match (is_certain, distance > 0) {
            (true, true) => Some(Finding::Confirmed),
            (true, false) if do_meet => Some(Finding::Contradicted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::Prng;

    /// Findings of reads whose latency is `latency` of (own, total), with noise of 40 us.
    fn finding(seed: u64, total_max: u64, latency: fn(u64, u64) -> u64) -> Option<Finding> {
        let mut prng = Prng::new(seed);
        let mut sums = Sums::default();
        for _ in 0..4000 {
            let total = prng.below(total_max + 1);
            let own = (0..total).filter(|_| prng.chance(1, 8)).count() as u64;
            sums.add(own as u32, total as u32, latency(own, total) + prng.below(40_000));
        }
        sums.finding()
    }

    #[test]
    fn a_table_is_confirmed_if_the_own_group_delays_reads() {
        for seed in 0..20 {
            assert_eq!(finding(seed, 32, |own, _| 70_000 * (own + 1)), Some(Finding::Confirmed));
            assert_eq!(finding(seed, 32, |own, total| 90_000 + 40_000 * own + 3_000 * total), Some(Finding::Confirmed));
        }
    }

    #[test]
    fn a_table_is_contradicted_if_all_groups_delay_reads_alike_or_none_does() {
        for seed in 0..20 {
            assert_eq!(finding(seed, 32, |_, total| 70_000 + 20_000 * total), Some(Finding::Contradicted));
            assert_eq!(finding(seed, 32, |_, _| 70_000), Some(Finding::Contradicted));
        }
    }

    #[test]
    fn without_contrast_there_is_no_finding() {
        assert_eq!(finding(1, 0, |_, _| 70_000), None, "one read at a time");
        let mut sums = Sums::default();
        let mut prng = Prng::new(3);
        (0..4000).for_each(|_| sums.add(2, 16, 70_000 + prng.below(90_000)));
        assert_eq!(sums.finding(), None, "groups have as many requests as each other");
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let mut sums = Sums::default();
        let mut prng = Prng::new(4);
        for _ in 0..2 * INTERFERENCE_SAMPLES_MAX {
            let is_large = prng.chance(1, 2);
            let own = if is_large { OWN_MAX } else { 0 };
            sums.add(own, if prng.chance(1, 2) { TOTAL_MAX } else { own }, if is_large { u64::MAX } else { 0 });
        }
        assert_eq!(sums.finding(), Some(Finding::Confirmed));
    }

    #[test]
    fn reads_of_another_size_are_left_out_until_there_are_no_others() {
        let mut evidence = Evidence::default();
        evidence.on_released(1, 4096, 0, 0);
        evidence.on_released(2, 65_536, 0, 0);
        assert_eq!(evidence.sampled.len(), 1);
        (0..INTERFERENCE_SAMPLES_MIN).for_each(|number| evidence.on_released(u64::from(number) + 10, 65_536, 0, 0));
        assert_eq!(evidence.size_class, Some(16));
    }
}
