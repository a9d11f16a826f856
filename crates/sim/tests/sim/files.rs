//! Stores of files over many seeds: without bugs they are good, and every seeded bug is found.

use zonda_sim::{FilesBug, Options, Part, WorldKind};

use crate::common::{assert_found, assert_good, made_small_and_kept_and_told};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 500;

/// So many stores are good, and every hundred of them meet this much.
fn stores_are_good(seeds: u64) {
    let options = Options::of_world(WorldKind::Files);
    let (mut requests, mut faults, mut losses, mut without_losses) = (0, 0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.world, WorldKind::Files);
        requests += outcome.commands;
        faults += outcome.faults;
        losses += outcome.power_losses;
        without_losses += u64::from(outcome.power_losses == 0);
    }
    assert!(requests > 100 * seeds, "{requests} requests");
    assert!(faults > 2 * seeds && losses > 10 * seeds / 3, "{faults} faults, {losses} power losses and deaths");
    assert!(without_losses < seeds / 3, "none in {without_losses}");
}

#[test]
fn stores_of_files_are_good() {
    stores_are_good(60);
}

#[test]
#[ignore = "soak"]
fn soak_stores_of_files_are_good() {
    stores_are_good(300);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_a_store_of_files_is_found() {
    assert_found(FilesBug::ALL.map(|(name, bug)| (name, bug.into())), SEEDS);
}

fn undisturbed_stores_are_good(seeds: u64) {
    let without = [Part::PowerLoss, Part::Deaths, Part::Faults, Part::Degradation].into();
    let options = Options { without, ..Options::of_world(WorldKind::Files) };
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_store_of_files_without_disturbances_is_good_and_has_none() {
    undisturbed_stores_are_good(20);
}

#[test]
#[ignore = "soak"]
fn soak_stores_of_files_without_disturbances_are_good_and_have_none() {
    undisturbed_stores_are_good(60);
}

#[test]
fn a_failure_of_a_store_of_files_is_made_small_and_kept_and_told() {
    let options = Options::default().with_bug(FilesBug::EarlySync);
    let (shrunk, told) = made_small_and_kept_and_told(SEEDS, &options, "--bug early-sync");
    let file = shrunk.failure.file.expect("a file is lost");
    assert!(told.contains(&format!("File {file}:")), "{told}");
}
