//! What holds for a failure in any world.

use zonda_sim::{BugbaseEntry, Options, Shrunk, run, shrink, story};

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
