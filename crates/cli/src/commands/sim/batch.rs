//! Runs many seeds on several threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use zonda_sim::{Options, Outcome};

use crate::progress::Progress;
use crate::units;

/// Number of threads that the machine runs in parallel.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs all seeds. The outcomes are in the order of the seeds, independent of the threads.
pub(crate) fn run(seeds: Range<u64>, options: &Options, threads: usize, quiet: bool) -> Vec<Outcome> {
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    let next = AtomicU64::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut progress = Progress::new(quiet);
    thread::scope(|scope| {
        for _ in 0..threads.min(count as usize) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    // If the receiver is closed, its thread has panicked, which is reported
                    // elsewhere.
                    if index >= count || sender.send(zonda_sim::run(first + index, options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut failures = 0;
        for outcome in receiver {
            failures += u64::from(!outcome.is_good());
            outcomes.push(outcome);
            let done = outcomes.len() as u64;
            progress.show(Some(done as f64 / count as f64), || {
                format!(
                    "{} of {}, {}",
                    units::count(done),
                    units::counted(count, "seed"),
                    units::counted(failures, "failure")
                )
            });
        }
    });
    progress.finish();
    outcomes.sort_by_key(|outcome| outcome.seed);
    outcomes
}
