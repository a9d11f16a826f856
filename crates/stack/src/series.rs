//! [`Series`]: samples over the time of a run, in bounded memory.

use crate::limits::SERIES_SAMPLES_MAX;

/// What a series is made of.
pub(crate) trait Sampled {
    /// Time since the start of the run.
    fn at_ns(&self) -> u64;
}

/// Collects samples. At the maximum number, drops every second one and halves the sampling rate.
#[derive(Debug)]
pub(crate) struct Series<S> {
    samples: Vec<S>,
    /// Observations per sample.
    stride: u64,
    observed: u64,
}

impl<S: Sampled> Series<S> {
    pub(crate) fn new() -> Series<S> {
        Series { samples: Vec::new(), stride: 1, observed: 0 }
    }

    /// Takes a sample, unless the sampling rate was halved and this observation is left out.
    pub(crate) fn observe(&mut self, sample: impl FnOnce() -> S) {
        self.observed += 1;
        if self.observed.is_multiple_of(self.stride) {
            self.keep(sample());
        }
    }

    /// The series, with a last sample at the end.
    pub(crate) fn end(mut self, last: S) -> Vec<S> {
        if self.samples.last().is_some_and(|sample| sample.at_ns() >= last.at_ns()) {
            self.samples.pop();
        }
        self.keep(last);
        self.samples
    }

    fn keep(&mut self, sample: S) {
        self.samples.push(sample);
        if self.samples.len() > SERIES_SAMPLES_MAX {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.stride *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct At(u64);

    impl Sampled for At {
        fn at_ns(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_long_series_keeps_its_shape_in_a_bounded_number_of_samples() {
        let mut series = Series::new();
        for at_ns in 1..=5_000 {
            series.observe(|| At(at_ns));
        }
        assert!(series.samples.len() <= SERIES_SAMPLES_MAX && series.samples.len() > SERIES_SAMPLES_MAX / 4);
        let steps: Vec<u64> = series.samples.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(steps.iter().all(|step| *step == series.stride), "{steps:?}");
    }

    #[test]
    fn the_sample_at_the_end_replaces_one_of_the_same_time() {
        let mut series = Series::new();
        series.observe(|| At(10));
        series.observe(|| At(20));
        let times: Vec<u64> = series.end(At(20)).into_iter().map(|sample| sample.0).collect();
        assert_eq!(times, [10, 20]);
    }
}
