//! Assertions for any kind of scenario.

use std::ops::Range;

use zonda_sim::{Bug, BugbaseEntry, Options, Outcome, Shrunk, event_trace, run, shrink};

/// Runs seeds, all of which must pass.
pub(crate) fn assert_good(options: &Options, seeds: Range<u64>) -> Vec<Outcome> {
    let run_one = |seed| {
        let outcome = run(seed, options);
        assert!(outcome.is_good(), "{}", outcome.verdict(options));
        outcome
    };
    seeds.map(run_one).collect()
}

/// Every one of these bugs must be found within this number of seeds.
pub(crate) fn assert_found(bugs: impl IntoIterator<Item = (&'static str, Bug)>, seeds: u64) {
    let mut taken = Vec::new();
    for (name, bug) in bugs {
        let options = Options::default().with_bug(bug);
        taken.push((name, (0..seeds).find(|seed| !run(*seed, &options).is_good())));
    }
    // With `--nocapture`: the first seed that finds each bug.
    println!("{taken:?}");
    assert!(taken.iter().all(|(_, found)| found.is_some()), "not all bugs are found within {seeds} seeds: {taken:?}");
}

/// Shrinks the first of `seeds` that finds the options' bug, stores it as an entry, and traces it.
/// Returns the shrunk run and its event trace.
pub(crate) fn shrunk_stored_and_traced(seeds: u64, options: &Options, flag: &str) -> (Shrunk, String) {
    let found = (0..seeds).find_map(|seed| Some((seed, run(seed, options).failure?)));
    let (seed, failure) = found.expect("the bug is found");
    let shrunk = shrink(seed, options, failure.kind).expect("it fails");
    assert_ne!(shrunk.options, *options);
    assert_eq!(run(seed, &shrunk.options).failure.as_ref(), Some(&shrunk.failure));
    let entry = BugbaseEntry::new(seed, &shrunk);
    assert_eq!(BugbaseEntry::parse(&entry.to_toml()), Ok(entry.clone()));
    assert_eq!(entry.check(), Ok(()));
    let text = event_trace(seed, &shrunk.options);
    assert!(text.contains("FAILED") && text.contains(flag), "{text}");
    (shrunk, text)
}
