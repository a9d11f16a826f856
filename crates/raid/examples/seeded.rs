//! Which of the seeded bugs random runs find, and by which violation:
//!
//! ```text
//! cargo run -p zonda-raid --example seeded -- 200 scrub-believes-rot skipped-barrier
//! ```
//!
//! The number is that of the seeds, from 0; without names of bugs all are tried, and `none` tries
//! the volume without one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zonda_raid::SeededBug;
use zonda_raid::testing::Swarm;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seeds: u64 = words.first().and_then(|word| word.parse().ok()).unwrap_or(100);
    let names = words.get(1..).unwrap_or_default();
    std::panic::set_hook(Box::new(|_| ()));
    if names.iter().any(|name| name == "none") {
        for seed in 0..seeds {
            if let Some(what) = failure_of(seed, None) {
                println!("seed {seed}: {what}");
            }
        }
        return;
    }
    for (name, bug) in
        SeededBug::ALL.into_iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name))
    {
        let found = (0..seeds).find_map(|seed| Some(format!("seed {seed}: {}", failure_of(seed, Some(bug))?)));
        println!("{name}: {}", found.unwrap_or_else(|| format!("not within {seeds} seeds")));
    }
}

/// The violation that a run finds.
fn failure_of(seed: u64, bug: Option<SeededBug>) -> Option<String> {
    let mut run = Swarm::generate(seed).begin();
    if let Some(bug) = bug {
        run.simulation_mut().seed_bug(bug);
    }
    let ended = catch_unwind(AssertUnwindSafe(|| run.run()));
    match ended {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(format!("{:?}: {}", violation.promise, violation.message)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Some(format!("panic: {}", text.unwrap_or("of another kind")))
        }
    }
}
