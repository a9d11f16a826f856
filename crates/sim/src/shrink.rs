//! Shrinking: finds a smaller scenario with the same kind of failure.
//!
//! Parts of the scenario are left out one by one, the queue depth and the number of commands are
//! reduced, as long as a failure of the same kind remains. Each part takes its random numbers from
//! its own fork of the seed, so that the remaining parts do not change.

use crate::event_trace::EventTrace;
use crate::options::{Mode, Options, Part};
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::simulate::{AnySimulation, run, run_once};

/// A smaller run that fails in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The options that generate it, with the seed.
    pub options: Options,
    /// The failure.
    pub failure: Failure,
    /// The number of commands until the failure.
    pub commands: u64,
    /// The number of runs of the search.
    pub runs: u32,
}

/// Shrinks a failing run; `None` if it does not fail with this kind.
#[must_use]
pub fn shrink(seed: u64, options: &Options, kind: FailureKind) -> Option<Shrunk> {
    let mut search = Search { seed, kind, runs: 0 };
    let mut best = search.try_run(options.clone())?;
    let most = best.commands + 1;
    loop {
        let before = best.options.clone();
        search.leave_out_parts(&mut best, most);
        search.shorten_queue(&mut best);
        search.cut_commands(&mut best);
        if best.options == before {
            search.restore_parts(&mut best);
            return Some(Shrunk { runs: search.runs, ..best });
        }
    }
}

struct Search {
    seed: u64,
    kind: FailureKind,
    runs: u32,
}

impl Search {
    /// Runs once; returns the run if it fails with the same kind.
    fn try_run(&mut self, options: Options) -> Option<Shrunk> {
        self.runs += 1;
        let Outcome { failure, commands, .. } = if self.kind == FailureKind::NotRepeatable {
            run(self.seed, &options)
        } else {
            let simulation = AnySimulation::new(self.seed, &options);
            run_once(self.seed, &simulation, &options, EventTrace::default()).0
        };
        let failure = failure.filter(|failure| failure.kind == self.kind)?;
        // Commands after the failure are not needed, but the load must not end before the failure
        // unless it did.
        let commands_max = Some(options.commands_max.map_or(commands + 1, |most| most.min(commands + 1)));
        Some(Shrunk { options: Options { commands_max, ..options }, failure, commands, runs: 0 })
    }

    fn leave_out_parts(&mut self, best: &mut Shrunk, most: u64) {
        let kind = best.options.scenario_of(self.seed);
        for part in Part::ALL.map(|(_, part)| part).into_iter().filter(|part| part.is_in(kind)) {
            if best.options.mode != Mode::Swarm || !best.options.has(part) {
                continue;
            }
            let mut without = best.options.without.clone();
            without.insert(part);
            // Without the part, the scenario may need a few more commands to fail.
            let commands_max = best.options.commands_max.map(|commands| (commands + commands / 4).min(most));
            let tried = Options { without, commands_max, ..best.options.clone() };
            if let Some(smaller) = self.try_run(tried) {
                *best = smaller;
            }
        }
    }

    /// Removes parts from the list that the scenario does not have anyway.
    fn restore_parts(&mut self, best: &mut Shrunk) {
        for part in best.options.without.clone() {
            let mut without = best.options.without.clone();
            without.remove(&part);
            let tried = self.try_run(Options { without, ..best.options.clone() });
            if let Some(same) = tried.filter(|tried| (tried.commands, &tried.failure) == (best.commands, &best.failure))
            {
                *best = same;
            }
        }
    }

    fn shorten_queue(&mut self, best: &mut Shrunk) {
        let now = best.options.queue_depth_max.unwrap_or(32);
        for depth in [1, 2, 3, 4, 8, 16].into_iter().filter(|depth| *depth < now) {
            let tried = Options { queue_depth_max: Some(depth), ..best.options.clone() };
            if let Some(smaller) = self.try_run(tried) {
                *best = smaller;
                return;
            }
        }
    }

    /// Bisects the smallest number of commands that fails, assuming that every larger number fails
    /// too.
    fn cut_commands(&mut self, best: &mut Shrunk) {
        let (mut too_few, mut enough) = (0, best.options.commands_max.unwrap_or(best.commands));
        while too_few + 1 < enough {
            let middle = too_few + (enough - too_few) / 2;
            let tried = Options { commands_max: Some(middle), ..best.options.clone() };
            match self.try_run(tried) {
                Some(smaller) => {
                    *best = smaller;
                    enough = best.options.commands_max.unwrap_or(middle);
                }
                None => too_few = middle,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zonda_ssd::SeededBug;

    use super::*;

    fn first_failure(bug: SeededBug) -> (u64, Options, Failure) {
        let options = Options::default().with_bug(bug);
        let found = (0..500).find_map(|seed| Some((seed, run(seed, &options).failure?)));
        let (seed, failure) = found.expect("the bug is found");
        (seed, options, failure)
    }

    #[test]
    fn a_shrunk_run_fails_in_the_same_way_with_fewer_commands() {
        for bug in [SeededBug::FinishForgetsTail, SeededBug::EarlyAcknowledgement, SeededBug::LostWakeup] {
            let (seed, options, failure) = first_failure(bug);
            let whole = run(seed, &options);
            let shrunk = shrink(seed, &options, failure.kind).expect("it fails");
            assert!(shrunk.commands <= whole.commands, "{} for {}", shrunk.commands, whole.commands);
            assert_ne!(shrunk.options, options);
            assert_eq!(run(seed, &shrunk.options).failure, Some(shrunk.failure));
        }
    }

    #[test]
    fn only_parts_that_matter_are_left_out() {
        let (seed, options, failure) = first_failure(SeededBug::ResetKeepsContents);
        let shrunk = shrink(seed, &options, failure.kind).expect("it fails");
        for part in &shrunk.options.without {
            let mut more = shrunk.options.clone();
            more.without.remove(part);
            assert_ne!(run(seed, &more), run(seed, &shrunk.options), "{}", part.name());
        }
    }

    #[test]
    fn a_run_that_does_not_fail_cannot_be_shrunk() {
        assert_eq!(shrink(1, &Options::default(), FailureKind::LostWrite), None);
    }
}
