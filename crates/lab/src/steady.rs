//! Automatic detection of the end of the warm-up.
//!
//! The rule is MSER-5 (White, Cobb and Spratt, "A comparison of five steady-state truncation
//! heuristics for simulation", Winter Simulation Conference 2000): a series is truncated where the
//! standard error of the mean of the rest is smallest, after averaging groups of five samples. A
//! cut in the second half means that the run was too short. It is applied to operations and to mean
//! latency, and the later cut counts: a writer with a fixed rate shows a full buffer in its latency
//! alone.

use zonda_workload::{RunResult, Sample};

/// Samples averaged to one.
const BATCH: usize = 5;
/// Minimum number of remaining batches, to estimate the error.
const LEFT_MIN: usize = 5;
/// A cut that reduces the standard error by less than this share is noise; the earlier cut is used.
const GAIN_MIN: f64 = 0.05;

/// The warm-up of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// Ended this long after the start of the run.
    Ended {
        /// Nanoseconds from the start of the run.
        after_ns: u64,
    },
    /// Not ended in the first half of the run.
    NotSeen,
}

/// Applies the rule to the series of a run, from the start of its last job to the first end of a
/// job after that, so that each job has samples left.
#[must_use]
pub(crate) fn warm_up(run: &RunResult) -> WarmUp {
    let begin_ns = run.jobs.iter().map(|job| job.started_ns).max().unwrap_or(0);
    let ends_ns = run.jobs.iter().map(|job| job.ended_ns).filter(|ended_ns| *ended_ns > begin_ns);
    let end_ns = ends_ns.min().unwrap_or(begin_ns);
    let first = run.series.iter().position(|sample| sample.start_ns >= begin_ns).unwrap_or(run.series.len());
    let count = run.series[first..].iter().take_while(|sample| sample.start_ns < end_ns).count();
    let samples = &run.series[first..first + count];
    let operations = |sample: &Sample| {
        sample.jobs.iter().map(|job| job.operations).sum::<u64>() as f64 / sample.length_ns.max(1) as f64
    };
    let latency = |sample: &Sample| {
        let of_all = sample.jobs.iter().map(|job| job.mean_latency_ns as f64 * job.operations as f64).sum::<f64>();
        let count = sample.jobs.iter().map(|job| job.operations).sum::<u64>();
        of_all / count.max(1) as f64
    };
    let cuts = [cut(&batches(samples, operations)), cut(&batches(samples, latency))];
    let [Some(by_rate), Some(by_latency)] = cuts else { return WarmUp::NotSeen };
    match samples.get(by_rate.max(by_latency) * BATCH) {
        Some(sample) => WarmUp::Ended { after_ns: sample.start_ns.max(begin_ns) },
        None => WarmUp::Ended { after_ns: begin_ns },
    }
}

fn batches(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Vec<f64> {
    samples.chunks_exact(BATCH).map(|batch| batch.iter().map(&of).sum::<f64>() / BATCH as f64).collect()
}

/// The number of batches to truncate; `None` if the best cut is in the second half.
fn cut(batches: &[f64]) -> Option<usize> {
    let last = batches.len().checked_sub(LEFT_MIN)?;
    // From the end, so that each cut is one step: count, sum and sum of squares of the rest.
    let mut errors = vec![0.0; batches.len()];
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for (index, value) in batches.iter().enumerate().rev() {
        count += 1.0;
        let step = value - mean;
        mean += step / count;
        squares += step * (value - mean);
        errors[index] = squares / (count * count);
    }
    let best = (0..=last).min_by(|a, b| errors[*a].total_cmp(&errors[*b]))?;
    // The error is squared, so the share counts twice.
    let enough = errors[best] * (1.0 + GAIN_MIN).powi(2);
    let earliest = (0..=best).find(|index| errors[*index] <= enough)?;
    (earliest <= batches.len() / 2).then_some(earliest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_that_is_steady_from_its_start_is_not_cut() {
        let steady: Vec<f64> = (0..100).map(|index| 100.0 + f64::from(index * 7 % 5)).collect();
        assert_eq!(cut(&steady), Some(0));
        assert_eq!(cut(&[3.0; 20]), Some(0));
    }

    #[test]
    fn samples_before_the_steady_state_are_cut() {
        let warming: Vec<f64> =
            (0..100).map(|index| if index < 17 { 300.0 } else { 100.0 + f64::from(index * 7 % 5) }).collect();
        let after = cut(&warming).expect("there is a steady state");
        assert!((17..=22).contains(&after), "{after}");
    }

    #[test]
    fn a_series_without_a_steady_state_has_no_cut() {
        let rising: Vec<f64> = (0..100).map(|index| f64::from(index * index)).collect();
        assert_eq!(cut(&rising), None);
        assert_eq!(cut(&[1.0, 2.0]), None, "too short");
    }
}
