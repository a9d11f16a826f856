//! What latencies show: the samples of two situations, and the evidence of a measurement.
//!
//! A latency is compared with two distributions that were measured on the same drive with the same
//! number of loaded zones: that of zones that are loaded themselves, and that of zones that are not.
//! Both are described by the median and the spread of their logarithms, and have heavy tails, so
//! that one delayed command is weak evidence.
//!
//! How much zones delay each other depends on what they share: a zone is slowed down most by its own
//! reads, a little less by those of its die, and less again by those of its channel. As long as no
//! other zones are known to share hardware, reads of the zone itself stand for them, with a
//! distribution that is wide enough for all of that ([`References::widen`]).

use zonda_zoned::Duration;

use crate::limits::{MINOR_SLOWDOWN, SPREAD_MIN, WIDE_CENTER, WIDE_SPREAD};

/// Degrees of freedom of the distributions: few, for heavy tails.
const FREEDOM: f64 = 5.0;
/// The standard deviation of a normal distribution over its median absolute deviation.
const DEVIATION: f64 = 1.4826;

/// Latencies in one situation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    logs: Vec<f64>,
    center: f64,
    spread: f64,
}

impl Samples {
    pub(crate) fn add(&mut self, latency: Duration) {
        self.logs.push(log(latency));
    }

    pub(crate) fn len(&self) -> usize {
        self.logs.len()
    }

    /// Estimates median and spread from the samples so far.
    fn fit(&mut self) {
        self.center = median(&mut self.logs.clone());
        let mut deviations: Vec<f64> = self.logs.iter().map(|log| (log - self.center).abs()).collect();
        self.spread = (DEVIATION * median(&mut deviations)).max(SPREAD_MIN);
    }

    /// The logarithm of the density, without its constant.
    fn log_density(&self, log: f64) -> f64 {
        let deviations = (log - self.center) / self.spread;
        -(FREEDOM + 1.0) / 2.0 * libm::log(1.0 + deviations * deviations / FREEDOM) - libm::log(self.spread)
    }
}

/// Latencies of zones that are not loaded, and of zones that are, beside the same number of loaded
/// zones.
#[derive(Clone, Debug, Default)]
pub(crate) struct References {
    pub(crate) free: Samples,
    pub(crate) shared: Samples,
    /// By how much reads of a zone delay other reads of the zone, as a logarithm. Everything from
    /// `shared` to here is as good a sign of shared hardware.
    reach: f64,
}

impl References {
    /// Estimates both distributions from the samples so far.
    pub(crate) fn fit(&mut self) {
        self.free.fit();
        self.shared.fit();
        self.reach = self.gap();
    }

    /// The logarithm of the slowdown.
    pub(crate) fn gap(&self) -> f64 {
        self.shared.center - self.free.center
    }

    /// The samples of zones that share hardware are those of zones that load themselves: other zones
    /// share less. And a minor slowdown is none.
    pub(crate) fn widen(&mut self) {
        let gap = self.gap();
        self.shared.center = self.free.center + gap * WIDE_CENTER;
        self.shared.spread = self.shared.spread.max(gap * WIDE_SPREAD);
        self.free.spread = self.free.spread.max(gap * MINOR_SLOWDOWN);
    }

    /// Extends what counts as shared up to this slowdown.
    pub(crate) fn reach_to(&mut self, gap: f64) {
        self.reach = self.reach.max(gap);
    }

    /// The distance of the two situations, in standard deviations; negative if zones are faster
    /// under load.
    pub(crate) fn separation(&self) -> f64 {
        let spread = libm::sqrt((self.free.spread * self.free.spread + self.shared.spread * self.shared.spread) / 2.0);
        (self.shared.center - self.free.center) / spread
    }

    /// How much slower zones are that share hardware.
    pub(crate) fn ratio(&self) -> f64 {
        libm::exp(self.shared.center - self.free.center)
    }

    /// The evidence that the zone shares hardware with a loaded one, in nats: the logarithm of the
    /// likelihood ratio. It is bounded by the number of samples, because rarer exceptions cannot
    /// be excluded by them.
    pub(crate) fn evidence(&self, latency: Duration) -> f64 {
        let bound = libm::log(self.free.len().min(self.shared.len()) as f64 + 1.0);
        // What is faster than free zones is free, and does not count less for that.
        let mut log = log(latency).max(self.free.center);
        if log > self.shared.center {
            let end = self.free.center + self.reach;
            log = self.shared.center + (log - end.max(self.shared.center)).max(0.0);
        }
        (self.shared.log_density(log) - self.free.log_density(log)).clamp(-bound, bound)
    }
}

fn log(latency: Duration) -> f64 {
    libm::log(latency.0.max(1) as f64)
}

fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(free_us: &[u64], shared_us: &[u64]) -> References {
        let mut references = References::default();
        free_us.iter().for_each(|us| references.free.add(Duration::from_micros(*us)));
        shared_us.iter().for_each(|us| references.shared.add(Duration::from_micros(*us)));
        references.fit();
        references
    }

    #[test]
    fn a_latency_is_evidence_for_the_situation_whose_samples_it_resembles() {
        let references = references(&[100, 101, 99, 100, 104], &[200, 205, 190, 201, 199]);
        let bound = libm::log(6.0);
        assert_eq!(references.evidence(Duration::from_micros(200)), bound);
        assert_eq!(references.evidence(Duration::from_micros(100)), -bound);
        assert_eq!(references.evidence(Duration::from_micros(20)), -bound, "faster than any sample");
        assert!((1.9..2.1).contains(&references.ratio()));
    }

    #[test]
    fn a_latency_far_beyond_both_situations_is_weak_evidence() {
        let of = |from: u64| (0..101).map(|number| from + number / 5).collect::<Vec<_>>();
        let references = references(&of(100), &of(200));
        assert!(references.evidence(Duration::from_millis(50)).abs() < 3.0, "{references:?}");
        assert!(references.evidence(Duration::from_micros(205)) > 4.0);
    }

    #[test]
    fn wide_references_cover_zones_that_share_less_than_a_zone_with_itself() {
        let mut references = references(&[100, 101, 99, 100, 102], &[200, 205, 195, 201, 199]);
        assert!(references.evidence(Duration::from_micros(145)) < 0.5, "between two narrow situations");
        references.widen();
        for (us, is_shared) in [(104, false), (140, true), (160, true), (200, true), (210, true)] {
            let evidence = references.evidence(Duration::from_micros(us));
            assert!((evidence > 1.5) == is_shared && (evidence < -1.5) != is_shared, "{us}: {evidence}");
        }
    }

    #[test]
    fn equal_samples_do_not_separate() {
        let references = references(&[100, 110, 90, 105, 95], &[101, 109, 91, 104, 96]);
        assert!(references.separation().abs() < 0.5);
        assert!(references.evidence(Duration::from_micros(100)).abs() < 0.5);
    }
}
