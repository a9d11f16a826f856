//! Runs the points of experiments on all processors.

use std::num::NonZero;
use std::time::Instant;

use zonda_lab::{LabExperiment, Outcome, Point};

use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::units;

/// Runs the points of these experiments in any order, which does not affect the results.
pub(super) fn measure(experiments: &[LabExperiment], threads: Option<NonZero<usize>>, quiet: bool) -> Vec<Outcome> {
    let work: Vec<(&LabExperiment, &Point)> =
        experiments.iter().flat_map(|of| of.points.iter().map(move |point| (of, point))).collect();
    let mut bar = Progress::new(quiet);
    let started = Instant::now();
    let clock = || started.elapsed().as_nanos() as u64;
    let run = |&(of, point): &(&LabExperiment, &Point)| point.measure(&of.metrics, of.seeds, Some(&clock));
    let measured = in_parallel(&work, threads, run, |count, (of, _)| {
        bar.show(Some(count as f64 / work.len() as f64), || {
            format!(
                "{} of {}: {}",
                units::count(count as u64),
                units::counted(work.len() as u64, "configuration"),
                of.title
            )
        });
    });
    bar.finish();
    let mut measured = measured.into_iter();
    experiments.iter().map(|of| Outcome { measurements: measured.by_ref().take(of.points.len()).collect() }).collect()
}
