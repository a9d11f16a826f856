//! The points of experiments, run on all processors.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use zonda_lab::{LabExperiment, Measurement, Outcome};

use crate::progress::Progress;
use crate::units;

/// Threads where the machine does not tell how many processors it has.
const THREADS_DEFAULT: usize = 1;

/// Runs the points of these experiments, in any order; what comes of it does not depend on that.
pub(super) fn measure(experiments: &[LabExperiment], threads: Option<NonZero<usize>>, quiet: bool) -> Vec<Outcome> {
    let work: Vec<(usize, usize)> = experiments
        .iter()
        .enumerate()
        .flat_map(|(experiment, of)| (0..of.points.len()).map(move |point| (experiment, point)))
        .collect();
    let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(THREADS_DEFAULT, NonZero::get);
    let next = AtomicUsize::new(0);
    let measured: Mutex<Vec<Option<Measurement>>> = Mutex::new(vec![None; work.len()]);
    let (done, is_done) = mpsc::channel();
    let mut bar = Progress::new(quiet);
    thread::scope(|scope| {
        for _ in 0..threads.min(work.len()) {
            let done = done.clone();
            let (work, next, measured) = (&work, &next, &measured);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(experiment, point)) = work.get(index) else { break };
                    let experiment = &experiments[experiment];
                    let measurement = experiment.points[point].measure(&experiment.metrics, experiment.seeds);
                    measured.lock().expect("no thread panics with the lock")[index] = Some(measurement);
                    // Nobody listens any more only if the main thread has panicked.
                    let _ = done.send(index);
                }
            });
        }
        drop(done);
        for (count, index) in is_done.iter().enumerate() {
            let experiment = &experiments[work[index].0];
            bar.show(Some((count + 1) as f64 / work.len() as f64), || {
                format!("{} of {}: {}", count + 1, units::counted(work.len() as u64, "point"), experiment.title)
            });
        }
    });
    bar.finish();
    let mut measured = measured.into_inner().expect("no thread panicked").into_iter();
    let mut next = || measured.next().flatten().expect("every point was run");
    experiments.iter().map(|of| Outcome { measurements: of.points.iter().map(|_| next()).collect() }).collect()
}
