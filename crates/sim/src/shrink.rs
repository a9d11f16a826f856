//! Shrinking: the same kind of failure in a smaller world.
//!
//! Parts of the world are left out one by one, the queue is made shorter, and the run is cut after fewer commands, as
//! long as a failure of the same kind is left. Each part of a world draws from its own fork of the seed, so that what is
//! left stays as it was.

use crate::options::{Mode, Options, Part};
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::simulate::{AnyWorld, run, run_once};
use crate::story::Teller;

/// A smaller run that fails in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// What makes it, with the seed.
    pub options: Options,
    /// How it fails.
    pub failure: Failure,
    /// The commands it takes.
    pub commands: u64,
    /// Runs that were tried.
    pub runs: u32,
}

/// Makes a failing run smaller; `None` if it does not fail in this way.
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
            search.put_back_parts(&mut best);
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
    /// Runs once; if it fails in the right way, what it took.
    fn try_run(&mut self, options: Options) -> Option<Shrunk> {
        self.runs += 1;
        let Outcome { failure, commands, .. } = if self.kind == FailureKind::NotRepeatable {
            run(self.seed, &options)
        } else {
            let world = AnyWorld::new(self.seed, &options);
            run_once(self.seed, &world, &options, Teller::default()).0
        };
        let failure = failure.filter(|failure| failure.kind == self.kind)?;
        // Commands after the failure are not needed; but the load must not be over when the failure comes, unless it was.
        let commands_max = Some(options.commands_max.map_or(commands + 1, |most| most.min(commands + 1)));
        Some(Shrunk { options: Options { commands_max, ..options }, failure, commands, runs: 0 })
    }

    fn leave_out_parts(&mut self, best: &mut Shrunk, most: u64) {
        let kind = best.options.world_of(self.seed);
        for part in Part::ALL.map(|(_, part)| part).into_iter().filter(|part| part.is_in(kind)) {
            if best.options.mode != Mode::Swarm || !best.options.has(part) {
                continue;
            }
            let mut without = best.options.without.clone();
            without.insert(part);
            // A world without the part may need a few more commands to fail.
            let commands_max = best.options.commands_max.map(|commands| (commands + commands / 4).min(most));
            let tried = Options { without, commands_max, ..best.options.clone() };
            if let Some(smaller) = self.try_run(tried) {
                *best = smaller;
            }
        }
    }

    /// What was never in the world need not be left out.
    fn put_back_parts(&mut self, best: &mut Shrunk) {
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

    /// Halves the distance to the least limit on commands that fails, as if a larger one always failed too.
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
    fn a_shrunk_run_fails_in_the_same_way_with_less_of_everything() {
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
    fn only_what_was_in_the_world_is_left_out_of_it() {
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
