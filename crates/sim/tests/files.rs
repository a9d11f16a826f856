//! Worlds with files over many seeds: without bugs they are good, and every planted bug is found.

mod common;

use common::made_small_and_kept_and_told;
use zonda_sim::{FilesBug, Options, Part, WorldKind, run};

/// Seeds within which every planted bug must be found.
const SEEDS: u64 = 500;

#[test]
fn stores_of_files_are_good() {
    let options = Options::of_world(WorldKind::Files);
    let (mut requests, mut faults, mut losses, mut without_losses) = (0, 0, 0, 0);
    for seed in 0..300 {
        let outcome = run(seed, &options);
        assert!(outcome.is_good(), "{}", outcome.verdict(&options));
        assert_eq!(outcome.world, WorldKind::Files);
        requests += outcome.commands;
        faults += outcome.faults;
        losses += outcome.power_losses;
        without_losses += u32::from(outcome.power_losses == 0);
    }
    assert!(requests > 30_000, "{requests} requests");
    assert!(faults > 600 && losses > 1_000, "{faults} faults, {losses} power losses and deaths");
    assert!(without_losses < 100, "none in {without_losses}");
}

#[test]
fn every_bug_of_a_store_of_files_is_found() {
    for (name, bug) in FilesBug::ALL {
        let options = Options::default().with_bug(bug);
        assert!((0..SEEDS).any(|seed| !run(seed, &options).is_good()), "{name} is not found within {SEEDS} seeds");
    }
}

#[test]
fn a_store_of_files_without_disturbances_is_good_and_has_none() {
    let without = [Part::PowerLoss, Part::Deaths, Part::Faults, Part::Degradation].into();
    let options = Options { without, ..Options::of_world(WorldKind::Files) };
    for seed in 0..60 {
        let outcome = run(seed, &options);
        assert!(outcome.is_good(), "{}", outcome.verdict(&options));
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_failure_of_a_store_of_files_is_made_small_and_kept_and_told() {
    let options = Options::default().with_bug(FilesBug::EarlySync);
    let (shrunk, told) = made_small_and_kept_and_told(SEEDS, &options, "--bug early-sync");
    let file = shrunk.failure.file.expect("a file is lost");
    assert!(told.contains(&format!("File {file}:")), "{told}");
}
