//! The time series of a run, reduced to the resolution of a chart.

use zonda_plot::{Pieces, Point};
use zonda_workload::{JobResult, JobSample, RunResult, Sample};

/// Maximum number of points of a line in a chart: fewer if there are many lines, which overlap.
fn points_max(lines: usize) -> usize {
    match lines {
        0..=3 => 200,
        4..=5 => 120,
        _ => 60,
    }
}

/// A time series in which neighbouring intervals are merged.
pub(super) struct Thinned {
    /// The intervals.
    pub(super) samples: Vec<Sample>,
    /// Number of intervals of the run that were merged into one.
    pub(super) merged: usize,
}

impl Thinned {
    /// The series of `run` for a chart with this number of lines.
    pub(super) fn of(run: &RunResult, lines: usize) -> Thinned {
        let merged = run.series.len().div_ceil(points_max(lines)).max(1);
        let mut samples: Vec<Sample> = run.series.chunks(merged).map(merge).collect();
        // A rate over a short last interval would be a meaningless spike.
        if let [.., before, last] = &samples[..]
            && last.length_ns < before.length_ns / 2
        {
            let both = merge(&samples[samples.len() - 2..]);
            samples.truncate(samples.len() - 2);
            samples.push(both);
        }
        Thinned { samples, merged }
    }

    /// When the series ends.
    pub(super) fn end_ns(&self) -> u64 {
        self.samples.last().map_or(0, |last| last.start_ns + last.length_ns)
    }

    /// The sum of `of` over the jobs `indexes`, per second, in intervals in which one of them ran.
    /// Each interval is a point at its middle.
    pub(super) fn rate(&self, jobs: &[JobResult], indexes: &[usize], of: fn(&JobSample) -> u64) -> Pieces {
        self.pieces(|sample| {
            let end_ns = sample.start_ns + sample.length_ns;
            let ran = |index: &&usize| jobs[**index].started_ns < end_ns && jobs[**index].ended_ns > sample.start_ns;
            let has_run = sample.length_ns > 0 && indexes.iter().any(|index| ran(&index));
            let total: u64 = indexes.iter().map(|index| of(&sample.jobs[*index])).sum();
            has_run.then(|| total as f64 * 1e9 / sample.length_ns as f64)
        })
    }

    /// A latency of a job, with a gap where nothing completed.
    pub(super) fn latency(&self, index: usize, of: fn(&JobSample) -> u64) -> Pieces {
        self.pieces(|sample| {
            let job = &sample.jobs[index];
            (job.operations > 0).then(|| of(job) as f64)
        })
    }

    /// The times of the points are in nanoseconds.
    fn pieces(&self, value: impl Fn(&Sample) -> Option<f64>) -> Pieces {
        let mut pieces = vec![Vec::new()];
        for sample in &self.samples {
            match value(sample) {
                Some(value) => {
                    let middle = sample.start_ns as f64 + sample.length_ns as f64 / 2.0;
                    pieces.last_mut().expect("there is always a piece").push(Point::new(middle, value));
                }
                None => pieces.push(Vec::new()),
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

/// Merges adjacent intervals. The mean latency is exact; the p99 is the maximum of the intervals,
/// an upper bound.
fn merge(samples: &[Sample]) -> Sample {
    let jobs = (0..samples[0].jobs.len()).map(|index| {
        let parts = || samples.iter().map(|sample| &sample.jobs[index]);
        let operations: u64 = parts().map(|part| part.operations).sum();
        let latency_ns: u128 = parts().map(|part| u128::from(part.mean_latency_ns) * u128::from(part.operations)).sum();
        JobSample {
            operations,
            bytes: parts().map(|part| part.bytes).sum(),
            errors: parts().map(|part| part.errors).sum(),
            mean_latency_ns: (latency_ns / u128::from(operations.max(1))) as u64,
            p99_latency_ns: parts().map(|part| part.p99_latency_ns).max().unwrap_or(0),
        }
    });
    Sample {
        start_ns: samples[0].start_ns,
        length_ns: samples.iter().map(|sample| sample.length_ns).sum(),
        jobs: jobs.collect(),
    }
}
