//! Counters of operations, and the time series.

use zonda_files::Usage;
use zonda_zoned::{Duration, Instant};

use super::meter::HostBytes;
use super::result::{OperationKind, OperationResult, StoreSample};
use super::store::Answer;
use crate::limits::SAMPLES_MAX;
use crate::summary::LatencyRecord;

/// The number of samples of the file store for its mean space amplification, without a time series.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Operations by kind.
pub(super) struct Figures {
    kinds: [KindFigures; OperationKind::ALL.len()],
}

struct KindFigures {
    latency: LatencyRecord,
    found: u64,
    not_found: u64,
}

/// The file store over time.
#[derive(Debug)]
pub(super) struct Series {
    every: Duration,
    is_kept: bool,
    next: Instant,
    /// Samples taken at this interval, stored or not.
    taken: u64,
    samples: Vec<StoreSample>,
    is_cut: bool,
    /// The time of the last update of the mean; `None` while operations are not counted.
    since: Option<Instant>,
    /// Space amplification times nanoseconds.
    weighted: f64,
    weight_ns: u64,
}

impl Figures {
    pub(super) fn new() -> Figures {
        let kind = |_| KindFigures { latency: LatencyRecord::new(), found: 0, not_found: 0 };
        Figures { kinds: std::array::from_fn(kind) }
    }

    /// Records an operation that has ended. `found` of a read-modify-write is the answer of its
    /// get.
    #[inline]
    pub(super) fn record(&mut self, kind: OperationKind, latency: Duration, found: Option<Answer>) {
        let figures = &mut self.kinds[kind as usize];
        figures.latency.record(latency.0);
        match found {
            Some(Answer::Found) => figures.found += 1,
            Some(Answer::NotFound) => figures.not_found += 1,
            Some(Answer::Scanned(keys)) => figures.found += u64::from(keys),
            Some(Answer::Written) | None => {}
        }
    }

    pub(super) fn results(&self) -> Vec<OperationResult> {
        let result = |kind: OperationKind| {
            let KindFigures { latency, found, not_found } = &self.kinds[kind as usize];
            let (found, not_found) = (*found, *not_found);
            OperationResult { kind, operations: latency.count(), found, not_found, latency: latency.summary() }
        };
        OperationKind::ALL.into_iter().map(result).filter(|result| result.operations > 0).collect()
    }
}

impl Series {
    /// A series with a sample each `every`, if requested.
    pub(super) fn new(start: Instant, every: Option<Duration>) -> Series {
        let interval = every.unwrap_or(LOOK_EVERY).max(Duration(1));
        Series {
            every: interval,
            is_kept: every.is_some(),
            next: start + interval,
            taken: 0,
            samples: Vec::new(),
            is_cut: false,
            since: None,
            weighted: 0.0,
            weight_ns: 0,
        }
    }

    /// When the next sample is due.
    #[inline]
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Whether a series was requested.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Adds the sample that was due.
    pub(super) fn add(&mut self, sample: StoreSample) {
        if self.taken == SAMPLES_MAX {
            self.take_fewer();
        }
        self.taken += 1;
        let at = self.next;
        self.next += self.every;
        if self.since.is_some() {
            self.weigh(at, sample.space_amplification);
            if self.is_kept {
                self.samples.push(sample);
            }
        }
    }

    pub(super) fn begin_counting(&mut self, now: Instant) {
        self.since = Some(now);
    }

    pub(super) fn end_counting(&mut self, now: Instant, usage: &Usage) {
        if self.since.is_some() {
            self.weigh(now, usage.space_amplification());
            self.since = None;
        }
    }

    /// Mean over the time in which operations were counted; 1.0 if no time passed.
    pub(super) fn space_amplification_mean(&self) -> f64 {
        if self.weight_ns == 0 { 1.0 } else { self.weighted / self.weight_ns as f64 }
    }

    pub(super) fn into_samples(self) -> (Vec<StoreSample>, bool) {
        (self.samples, self.is_cut)
    }

    /// Ends a series; without one, halves the sampling rate of the mean.
    fn take_fewer(&mut self) {
        self.taken = 0;
        self.every = if self.is_kept { self.every.max(LOOK_EVERY) } else { self.every * 2 };
        self.is_cut |= std::mem::replace(&mut self.is_kept, false);
    }

    fn weigh(&mut self, now: Instant, space_amplification: f64) {
        let since = self.since.replace(now).expect("called only while counting");
        let span_ns = now.since(since).0;
        self.weighted += space_amplification * span_ns as f64;
        self.weight_ns += span_ns;
    }
}

/// A sample without the fields that the runner sets.
pub(super) fn sample_of(usage: &Usage, host: HostBytes) -> StoreSample {
    StoreSample {
        live_bytes: usage.live_bytes,
        dead_bytes: usage.dead_bytes,
        space_amplification: usage.space_amplification(),
        zones_empty: usage.zones_empty,
        zones_active: usage.zones_active,
        zone_finishes: usage.zone_finishes,
        zone_resets: usage.zone_resets,
        migrated_bytes: usage.migrated_bytes,
        host_write_bytes: host.written,
        host_read_bytes: host.read,
        ..StoreSample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(live_bytes: u64, dead_bytes: u64) -> Usage {
        Usage { live_bytes, dead_bytes, ..Usage::default() }
    }

    #[test]
    fn the_mean_is_over_the_counted_time() {
        let mut series = Series::new(Instant::ZERO, Some(Duration(100)));
        let sample = |live, dead| sample_of(&usage(live, dead), HostBytes::default());
        series.add(sample(10, 90));
        series.begin_counting(Instant(150));
        series.add(sample(10, 10));
        series.end_counting(Instant(350), &usage(10, 30));
        // 50 ns at 2.0 and 150 ns at 4.0; the time before does not count.
        assert!((series.space_amplification_mean() - 3.5).abs() < 1e-9);
        assert_eq!(series.into_samples().0.len(), 1);
    }

    #[test]
    fn a_series_ends_when_it_is_too_long_and_the_mean_continues() {
        let mut series = Series::new(Instant::ZERO, Some(Duration(1)));
        series.begin_counting(Instant::ZERO);
        let sample = |live, dead| sample_of(&usage(live, dead), HostBytes::default());
        (0..2 * SAMPLES_MAX).for_each(|_| series.add(sample(10, 10)));
        let seconds = SAMPLES_MAX / 10;
        assert!(series.next().0.abs_diff(seconds * 1_000_000_000) < 200_000_000, "{:?}", series.next());
        series.end_counting(series.next(), &usage(10, 10));
        assert!((series.space_amplification_mean() - 2.0).abs() < 1e-9);
        let (samples, is_cut) = series.into_samples();
        assert!(samples.len() as u64 == SAMPLES_MAX && is_cut);
    }

    #[test]
    fn without_a_series_only_the_mean_is_recorded() {
        let mut series = Series::new(Instant::ZERO, None);
        series.begin_counting(Instant::ZERO);
        series.add(sample_of(&usage(10, 5), HostBytes::default()));
        assert!((series.space_amplification_mean() - 1.5).abs() < 1e-9);
        assert_eq!(series.into_samples(), (Vec::new(), false));
    }
}
