//! What holds for any kind of scenario.

use std::ops::Range;

use zonda_sim::{Bug, BugbaseEntry, Options, Outcome, Shrunk, run, shrink, story};

/// Runs seeds, all of which must be good.
pub(crate) fn assert_good(options: &Options, seeds: Range<u64>) -> Vec<Outcome> {
    let run_one = |seed| {
        let outcome = run(seed, options);
        assert!(outcome.is_good(), "{}", outcome.verdict(options));
        outcome
    };
    seeds.map(run_one).collect()
}

/// Every one of these bugs must be found within so many seeds.
pub(crate) fn assert_found(bugs: impl IntoIterator<Item = (&'static str, Bug)>, seeds: u64) {
    let mut taken = Vec::new();
    for (name, bug) in bugs {
        let options = Options::default().with_bug(bug);
        taken.push((name, (0..seeds).find(|seed| !run(*seed, &options).is_good())));
    }
    // With `--nocapture`: how many seeds were good before one was not.
    println!("{taken:?}");
    assert!(taken.iter().all(|(_, found)| found.is_some()), "not all are found within {seeds} seeds: {taken:?}");
}

/// The first of `seeds` in which the options' bug shows is made small, kept, and told. Returns what it was made to, and the story.
pub(crate) fn made_small_and_kept_and_told(seeds: u64, options: &Options, flag: &str) -> (Shrunk, String) {
    let found = (0..seeds).find_map(|seed| Some((seed, run(seed, options).failure?)));
    let (seed, failure) = found.expect("the bug is found");
    let shrunk = shrink(seed, options, failure.kind).expect("it fails");
    assert_ne!(shrunk.options, *options);
    assert_eq!(run(seed, &shrunk.options).failure.as_ref(), Some(&shrunk.failure));
    let entry = BugbaseEntry::new(seed, &shrunk);
    assert_eq!(BugbaseEntry::parse(&entry.to_toml()), Ok(entry.clone()));
    assert_eq!(entry.check(), Ok(()));
    let told = story(seed, &shrunk.options);
    assert!(told.contains("FAILED") && told.contains(flag), "{told}");
    (shrunk, told)
}
