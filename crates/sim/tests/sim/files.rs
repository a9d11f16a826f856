//! File stores over many seeds: without bugs they pass, and every seeded bug is found.

use zonda_sim::{FilesBug, Options, Part, ScenarioKind};

use crate::common::{assert_found, assert_good, shrunk_stored_and_traced};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 500;

/// Runs this number of seeds, which must pass and meet a minimum of faults.
fn stores_pass(seeds: u64) {
    let options = Options::of_scenario(ScenarioKind::Files);
    let (mut requests, mut faults, mut losses, mut without_losses) = (0, 0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.scenario, ScenarioKind::Files);
        requests += outcome.commands;
        faults += outcome.faults;
        losses += outcome.power_losses;
        without_losses += u64::from(outcome.power_losses == 0);
    }
    assert!(requests > 100 * seeds, "{requests} requests");
    assert!(faults > 2 * seeds && losses > 10 * seeds / 3, "{faults} faults, {losses} power losses and kills");
    assert!(without_losses < seeds / 3, "none in {without_losses}");
}

#[test]
fn file_stores_pass() {
    stores_pass(60);
}

#[test]
#[ignore = "soak"]
fn soak_file_stores_pass() {
    stores_pass(300);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_a_file_store_is_found() {
    assert_found(FilesBug::ALL.map(|(name, bug)| (name, bug.into())), SEEDS);
}

fn stores_without_faults_pass(seeds: u64) {
    let without = [Part::PowerLoss, Part::Deaths, Part::Faults, Part::Degradation].into();
    let options = Options { without, ..Options::of_scenario(ScenarioKind::Files) };
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_file_store_without_fault_parts_passes_and_meets_none() {
    stores_without_faults_pass(20);
}

#[test]
#[ignore = "soak"]
fn soak_file_stores_without_fault_parts_pass_and_meet_none() {
    stores_without_faults_pass(60);
}

#[test]
fn a_failure_of_a_file_store_is_shrunk_stored_and_traced() {
    let options = Options::default().with_bug(FilesBug::EarlySync);
    let (shrunk, text) = shrunk_stored_and_traced(SEEDS, &options, "--bug early-sync");
    let file = shrunk.failure.file.expect("a file is lost");
    assert!(text.contains(&format!("File {file}:")), "{text}");
}
