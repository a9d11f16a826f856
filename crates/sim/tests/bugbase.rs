//! Every entry of the bugbase replays as it says.
#![allow(clippy::disallowed_methods, reason = "the entries are files, and only tests and the command line read them")]

use std::fs;
use std::path::PathBuf;

use zonda_sim::{BugbaseEntry, Options, bugs, run, shrink};

/// Seeds within which every planted bug must be found; of volumes, some take more than 500.
const SEEDS: u64 = 1000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../sim/bugbase")
}

#[test]
fn every_entry_replays() {
    let mut files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= bugs().len(), "each planted bug has an entry");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let entry = BugbaseEntry::parse(&text).unwrap_or_else(|error| panic!("{}: {error:?}", file.display()));
        entry.check().unwrap_or_else(|what| panic!("{}: {what}", file.display()));
    }
}

/// Seeds make other worlds when anything about worlds or the drive changes: then the entries of planted bugs are made
/// again, with `cargo test --release -p zonda-sim --test bugbase -- --ignored`.
#[test]
#[ignore = "writes files"]
fn the_entries_of_planted_bugs_are_made_again() {
    for (name, bug) in bugs() {
        let old = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        for file in old.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with(name)) {
            fs::remove_file(file).unwrap();
        }
        let options = Options::default().with_bug(bug);
        let found = (0..SEEDS).find_map(|seed| Some((seed, run(seed, &options).failure?)));
        let (seed, failure) = found.unwrap_or_else(|| panic!("{name} is not found within {SEEDS} seeds"));
        let shrunk = shrink(seed, &options, failure.kind).expect("it has just failed");
        let entry = BugbaseEntry::new(seed, &shrunk);
        fs::write(folder().join(entry.file_name()), entry.to_toml()).unwrap();
    }
}
