//! Every entry of the bug base replays as recorded.
#![allow(clippy::disallowed_methods, reason = "the entries are files, and only tests and the command line read them")]

use std::fs;
use std::path::PathBuf;

use zonda_sim::{Bug, BugbaseEntry, ElasticBug, Failure, Options, Outcome, Scenario, VolumesBug, bugs, run, shrink};

/// Seeds within which every seeded bug must be found; of volumes, some take more than 500.
const SEEDS: u64 = 1000;

/// Seeded bugs that are found by runs from seeds.
fn bugs_found_by_seeds() -> impl Iterator<Item = (&'static str, Bug)> {
    let is_enumerated = |bug: &Bug| match bug {
        Bug::Volumes(bug) => VolumesBug::ENUMERATED.contains(bug),
        Bug::Elastic(bug) => ElasticBug::ENUMERATED.contains(bug),
        _ => false,
    };
    bugs().into_iter().filter(move |(_, bug)| !is_enumerated(bug))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../sim/bugbase")
}

/// Every entry, with its file.
fn entries() -> Vec<(PathBuf, BugbaseEntry)> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the bug base exists")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("it was just listed");
        let entry = BugbaseEntry::parse(&text).unwrap_or_else(|error| panic!("{}: {error:?}", file.display()));
        (file, entry)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn every_entry_replays() {
    let entries = entries();
    assert!(entries.len() >= bugs_found_by_seeds().count(), "each seeded bug has an entry");
    for (file, entry) in entries {
        entry.check().unwrap_or_else(|what| panic!("{}: {what}", file.display()));
    }
}

#[test]
fn every_seeded_bug_has_an_entry() {
    let entries = entries();
    for (name, bug) in bugs_found_by_seeds() {
        assert!(entries.iter().any(|(_, entry)| entry.options.bug == Some(bug)), "{name} has no entry in sim/bugbase");
    }
}

/// The generator may change: an entry replays its stored scenario, whatever its seed generates now.
/// Tests every `step`-th entry.
fn entries_replay_without_their_seeds(step: usize) {
    for (file, entry) in entries().into_iter().step_by(step) {
        let seed = entry.seed;
        let changed = BugbaseEntry { seed: seed ^ 0x5eed, ..entry.clone() };
        assert_ne!(Scenario::generate(changed.seed, &changed.options), changed.scenario, "{}", file.display());
        assert_eq!(Outcome { seed, ..changed.run() }, entry.run(), "{}", file.display());
    }
}

/// Entries are ordered by the names of their bugs, so that every kind of scenario is among them.
#[test]
fn entries_replay_without_the_seeds_that_generated_them() {
    entries_replay_without_their_seeds(4);
}

#[test]
#[ignore = "soak"]
fn soak_every_entry_replays_without_the_seed_that_generated_it() {
    entries_replay_without_their_seeds(1);
}

#[test]
fn every_entry_reads_back_as_it_would_be_written_and_has_the_name_of_its_file() {
    for (file, entry) in entries() {
        assert_eq!(BugbaseEntry::parse(&entry.to_toml()).as_ref(), Ok(&entry), "{}", file.display());
        assert_eq!(file.file_name().unwrap().to_string_lossy(), entry.file_name());
    }
}

/// An entry no longer fails when the drive, a layer or the run itself has changed so much that its
/// scenario takes another course. This regenerates the entries of all seeded bugs, from the first
/// seeds that find them:
/// `cargo test --release -p zonda-sim --test sim -- --ignored all_entries_of_seeded_bugs`.
#[test]
#[ignore = "writes files"]
fn all_entries_of_seeded_bugs_are_regenerated() {
    for (name, bug) in bugs_found_by_seeds() {
        let old = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        for file in old.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with(name)) {
            fs::remove_file(file).unwrap();
        }
        make_entry(name, bug);
    }
}

/// The same for seeded bugs without an entry, or with one that does not replay:
/// `cargo test -p zonda-sim --test sim -- --ignored missing_entries_of_seeded_bugs`.
#[test]
#[ignore = "writes files"]
fn missing_entries_of_seeded_bugs_are_generated() {
    let entries = entries();
    for (file, _) in entries.iter().filter(|(_, entry)| entry.options.bug.is_some() && entry.check().is_err()) {
        fs::remove_file(file).unwrap();
    }
    let is_kept = |bug| entries.iter().any(|(_, entry)| entry.options.bug == Some(bug) && entry.check().is_ok());
    bugs_found_by_seeds().filter(|(_, bug)| !is_kept(*bug)).for_each(|(name, bug)| make_entry(name, bug));
}

fn make_entry(name: &str, bug: Bug) {
    let options = Options::default().with_bug(bug);
    let failure_of = |seed| Some((seed, run(seed, &options).failure?));
    let entry_of = |(seed, failure): (u64, Failure)| {
        let shrunk = shrink(seed, &options, failure.kind).expect("it has just failed");
        let entry = BugbaseEntry::new(seed, &shrunk);
        // A scenario that fails without the bug, too, proves nothing.
        entry.check().is_ok().then_some((seed, entry, shrunk))
    };
    let found = (0..SEEDS).filter_map(failure_of).find_map(entry_of);
    let (seed, entry, shrunk) = found.unwrap_or_else(|| panic!("{name} is not found within {SEEDS} seeds"));
    fs::write(folder().join(entry.file_name()), entry.to_toml()).expect("the bug base can be written");
    println!("{name}: seed {seed}, {}", shrunk.failure.kind.name());
}
