//! Samples of the counters of a drive.

use serde::Serialize;
use zonda_ssd::Ssd;
use zonda_zoned::Duration;

use crate::limits::DRIVE_SAMPLES_MAX;

/// The counters of a drive at one moment of a run; all count from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DriveSample {
    /// Time since the start of the run.
    pub at_ns: u64,
    /// Bytes that the host wrote.
    pub host_write_bytes: u64,
    /// Bytes that the drive wrote in addition.
    pub device_write_bytes: u64,
    /// Of these, padding of finished zones.
    pub padding_bytes: u64,
    /// Erase units erased.
    pub erases: u64,
    /// Device-level write amplification so far.
    pub dlwa: f64,
}

/// Collects samples. At the maximum number, drops every second one and halves the sampling rate.
#[derive(Debug)]
pub(crate) struct DriveSeries {
    samples: Vec<DriveSample>,
    /// Observations per sample.
    stride: u64,
    observed: u64,
}

impl DriveSample {
    fn of(at: Duration, drive: &Ssd) -> DriveSample {
        let counters = drive.counters();
        DriveSample {
            at_ns: at.0,
            host_write_bytes: counters.host_write_bytes,
            device_write_bytes: counters.device_write_bytes(),
            padding_bytes: counters.programmed_padding_bytes,
            erases: counters.erases,
            dlwa: counters.dlwa(),
        }
    }
}

impl DriveSeries {
    pub(crate) fn new() -> DriveSeries {
        DriveSeries { samples: Vec::new(), stride: 1, observed: 0 }
    }

    /// Samples the drive at the time `at` after the start.
    pub(crate) fn observe(&mut self, at: Duration, drive: &Ssd) {
        self.observed += 1;
        if self.observed.is_multiple_of(self.stride) {
            self.keep(DriveSample::of(at, drive));
        }
    }

    /// The series, with a last sample at the end.
    pub(crate) fn end(mut self, at: Duration, drive: &Ssd) -> Vec<DriveSample> {
        let last = DriveSample::of(at, drive);
        if self.samples.last().is_some_and(|sample| sample.at_ns >= last.at_ns) {
            self.samples.pop();
        }
        self.keep(last);
        self.samples
    }

    fn keep(&mut self, sample: DriveSample) {
        self.samples.push(sample);
        if self.samples.len() > DRIVE_SAMPLES_MAX {
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

    #[test]
    fn a_long_series_keeps_its_shape_in_a_bounded_number_of_samples() {
        let mut series = DriveSeries::new();
        for at_ns in 1..=5_000 {
            series.observed += 1;
            if series.observed.is_multiple_of(series.stride) {
                series.keep(DriveSample { at_ns, ..DriveSample::default() });
            }
        }
        assert!(series.samples.len() <= DRIVE_SAMPLES_MAX && series.samples.len() > DRIVE_SAMPLES_MAX / 4);
        let steps: Vec<u64> = series.samples.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).collect();
        assert!(steps.iter().all(|step| *step == series.stride), "{steps:?}");
    }
}
