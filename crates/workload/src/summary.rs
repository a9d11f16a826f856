//! Latencies of many requests in a few numbers.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Digits to which a quantile is exact.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Digits to which the quantiles of a time series are exact: a smaller histogram, which is emptied
/// for each sample.
const SIGNIFICANT_DIGITS_SAMPLE: u8 = 2;
/// The longest latency that is distinguished, 1000 s; longer ones count as this in quantiles.
const LATENCY_MAX_NS: u64 = 1_000_000_000_000;

/// Latencies in nanoseconds. Quantiles are exact to three significant digits, the rest to the
/// nanosecond; all are zero without requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Requests.
    pub count: u64,
    /// Mean, rounded down.
    pub mean_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Half of the requests took at most this.
    pub p50_ns: u64,
    /// 95 % took at most this.
    pub p95_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p99_9_ns: u64,
    /// 99.99 % took at most this.
    pub p99_99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl LatencySummary {
    /// Mean, p50, p95, p99, p99.9, p99.99 and maximum: the columns of a table.
    #[must_use]
    pub fn columns_ns(&self) -> [u64; 7] {
        [self.mean_ns, self.p50_ns, self.p95_ns, self.p99_ns, self.p99_9_ns, self.p99_99_ns, self.max_ns]
    }
}

/// Records latencies.
pub(crate) struct LatencyRecord {
    histogram: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
    count: u64,
}

impl LatencyRecord {
    pub(crate) fn new() -> LatencyRecord {
        LatencyRecord::with_digits(SIGNIFICANT_DIGITS)
    }

    /// A record for the samples of a time series.
    pub(crate) fn for_samples() -> LatencyRecord {
        LatencyRecord::with_digits(SIGNIFICANT_DIGITS_SAMPLE)
    }

    fn with_digits(digits: u8) -> LatencyRecord {
        let mut histogram = Histogram::new(digits).expect("two and three digits are allowed");
        histogram.auto(true);
        LatencyRecord { histogram, sum_ns: 0, min_ns: u64::MAX, max_ns: 0, count: 0 }
    }

    #[inline]
    pub(crate) fn record(&mut self, latency_ns: u64) {
        self.sum_ns += u128::from(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        self.count += 1;
        self.histogram.record(latency_ns.min(LATENCY_MAX_NS)).expect("the histogram grows as needed");
    }

    pub(crate) fn clear(&mut self) {
        if self.count > 0 {
            self.histogram.reset();
            (self.sum_ns, self.min_ns, self.max_ns, self.count) = (0, u64::MAX, 0, 0);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn mean_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { (self.sum_ns / u128::from(self.count)) as u64 }
    }

    /// The latency that a share `quantile` of all requests took at most. A histogram returns the
    /// upper edge of a bucket, which is clamped to the recorded range.
    pub(crate) fn quantile_ns(&self, quantile: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        self.histogram.value_at_quantile(quantile).clamp(self.min_ns, self.max_ns)
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        if self.count == 0 {
            return LatencySummary::default();
        }
        LatencySummary {
            count: self.count,
            mean_ns: self.mean_ns(),
            min_ns: self.min_ns,
            p50_ns: self.quantile_ns(0.5),
            p95_ns: self.quantile_ns(0.95),
            p99_ns: self.quantile_ns(0.99),
            p99_9_ns: self.quantile_ns(0.999),
            p99_99_ns: self.quantile_ns(0.9999),
            max_ns: self.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_three_digits_and_the_rest_to_the_nanosecond() {
        let mut record = LatencyRecord::new();
        (1..=100_000u64).for_each(|step| record.record(step * 100));
        let summary = record.summary();
        assert_eq!((summary.count, summary.min_ns, summary.max_ns), (100_000, 100, 10_000_000));
        assert_eq!(summary.mean_ns, 5_000_050);
        for (got, exact) in [
            (summary.p50_ns, 5_000_000),
            (summary.p95_ns, 9_500_000),
            (summary.p99_ns, 9_900_000),
            (summary.p99_9_ns, 9_990_000),
            (summary.p99_99_ns, 9_999_000),
        ] {
            assert!(got.abs_diff(exact) * 1000 <= exact, "{got} for {exact}");
        }
    }

    #[test]
    fn no_quantile_is_outside_the_recorded_range() {
        let mut record = LatencyRecord::new();
        record.record(93_001);
        let summary = record.summary();
        assert_eq!((summary.p50_ns, summary.p99_99_ns), (93_001, 93_001));
    }

    #[test]
    fn latencies_of_hours_and_of_zero_are_recorded() {
        let mut record = LatencyRecord::for_samples();
        record.record(0);
        record.record(5 * LATENCY_MAX_NS);
        assert_eq!((record.summary().min_ns, record.summary().max_ns), (0, 5 * LATENCY_MAX_NS));
        record.clear();
        assert_eq!(record.summary(), LatencySummary::default());
    }
}
