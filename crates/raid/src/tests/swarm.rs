//! Everything at once, from seeds.

use crate::testing::{Outcome, Swarm};

/// Names the seed and the step of a run that panics.
struct Here {
    seed: u64,
    step: u64,
}

impl Drop for Here {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}", self.seed, self.step);
        }
    }
}

fn run(seed: u64) -> Outcome {
    let mut here = Here { seed, step: 0 };
    let swarm = Swarm::draw(seed);
    match swarm.run_steps(&mut here.step) {
        Ok(outcome) => outcome,
        Err(violation) => panic!("seed {seed}, step {}: {violation}", here.step),
    }
}

#[test]
fn whatever_happens_within_the_promise_is_survived() {
    let (mut sum, mut unsuited) = (Outcome::default(), 0);
    for seed in 0..500 {
        let outcome = run(seed);
        unsuited += u64::from(outcome.is_unsuited);
        sum.requests += outcome.requests;
        sum.failed_commands += outcome.failed_commands;
        sum.blows += outcome.blows;
        sum.given_up += outcome.given_up;
        sum.collected += outcome.collected;
        sum.reconstructed += outcome.reconstructed;
        sum.mounts += outcome.mounts;
        sum.healed += outcome.healed;
    }
    // What never happens is not tested.
    assert!(unsuited < 60, "{unsuited} of 500 worlds cannot be");
    let met = [sum.mounts, sum.healed, sum.given_up, sum.blows, sum.failed_commands, sum.collected, sum.reconstructed];
    assert!(met.iter().all(|&times| times > 100), "{sum:?}");
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
