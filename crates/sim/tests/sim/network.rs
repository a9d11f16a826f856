//! Networks over many seeds: without bugs they pass, and every seeded bug is found.

use zonda_sim::{NetworkBug, Options, Part, ScenarioKind, run};

use crate::common::{assert_found, assert_good, shrunk_stored_and_traced};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 500;

/// Runs this number of seeds, which must pass and meet a minimum of faults.
fn many_networks_pass(seeds: u64) {
    let options = Options::of_scenario(ScenarioKind::Network);
    let (mut commands, mut faults, mut kills) = (0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.scenario, ScenarioKind::Network);
        commands += outcome.commands;
        faults += outcome.faults;
        kills += outcome.power_losses;
    }
    assert!(commands > 100 * seeds, "{commands} commands");
    assert!(faults > 5 * seeds && kills > seeds / 2, "{faults} faults, {kills} kills of servers");
}

#[test]
fn networks_pass() {
    many_networks_pass(60);
}

#[test]
#[ignore = "soak"]
fn soak_networks_pass() {
    many_networks_pass(300);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_a_network_is_found() {
    assert_found(NetworkBug::ALL.map(|(name, bug)| (name, bug.into())), SEEDS);
}

fn networks_without_faults_pass(seeds: u64) {
    let without = [Part::Cuts, Part::Blackholes, Part::Deaths, Part::Stalls, Part::Crashes, Part::RogueClients];
    let without = without.into_iter().chain([Part::PowerLoss, Part::Faults]).collect();
    let options = Options { without, ..Options::of_scenario(ScenarioKind::Network) };
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_network_without_fault_parts_passes_and_meets_none() {
    networks_without_faults_pass(20);
}

#[test]
#[ignore = "soak"]
fn soak_networks_without_fault_parts_pass_and_meet_none() {
    networks_without_faults_pass(60);
}

/// Leaving out the hosts that share a namespace by reservations changes no other part of a
/// scenario.
#[test]
fn reservations_are_in_some_networks_and_can_be_left_out() {
    let with = Options::of_scenario(ScenarioKind::Network);
    let without = Options { without: [Part::Reservations].into(), ..with.clone() };
    let differs = |seed: &u64| run(*seed, &with) != run(*seed, &without);
    let differing = (0..24).filter(differs).count();
    assert!((2..12).contains(&differing), "{differing}");
}

#[test]
fn with_all_kinds_one_seed_of_six_makes_each_kind() {
    use ScenarioKind::{Drive, Elastic, Files, Images, Network, Volumes};
    let all = Options::of_scenario(ScenarioKind::All);
    for kind in [Drive, Network, Files, Volumes, Images, Elastic] {
        assert_eq!((0..48).filter(|seed| all.scenario_of(*seed) == kind).count(), 8);
    }
    for seed in [1, 7, 13, 19] {
        assert_eq!(run(seed, &all), run(seed, &Options::default()));
    }
    for (seed, kind) in [(6, Network), (8, Files), (9, Volumes), (10, Images), (11, Elastic)] {
        assert_eq!(run(seed, &all), run(seed, &Options::of_scenario(kind)));
    }
}

#[test]
fn a_failure_of_a_network_is_shrunk_stored_and_traced() {
    let options = Options::default().with_bug(NetworkBug::DroppedChunk);
    shrunk_stored_and_traced(SEEDS, &options, "--bug dropped-chunk");
}
