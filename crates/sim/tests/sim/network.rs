//! Networks over many seeds: without bugs they are good, and every seeded bug is found.

use zonda_sim::{NetworkBug, Options, Part, WorldKind, run};

use crate::common::{assert_found, assert_good, made_small_and_kept_and_told};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 500;

/// So many networks are good, and every hundred of them meet this much.
fn many_networks_are_good(seeds: u64) {
    let options = Options::of_world(WorldKind::Network);
    let (mut commands, mut faults, mut deaths) = (0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.world, WorldKind::Network);
        commands += outcome.commands;
        faults += outcome.faults;
        deaths += outcome.power_losses;
    }
    assert!(commands > 100 * seeds, "{commands} commands");
    assert!(faults > 5 * seeds && deaths > seeds / 2, "{faults} faults, {deaths} deaths of servers");
}

#[test]
fn networks_are_good() {
    many_networks_are_good(60);
}

#[test]
#[ignore = "soak"]
fn soak_networks_are_good() {
    many_networks_are_good(300);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_a_network_is_found() {
    assert_found(NetworkBug::ALL.map(|(name, bug)| (name, bug.into())), SEEDS);
}

fn undisturbed_networks_are_good(seeds: u64) {
    let without = [Part::Cuts, Part::Blackholes, Part::Deaths, Part::Stalls, Part::Crashes, Part::Strangers];
    let without = without.into_iter().chain([Part::PowerLoss, Part::Faults]).collect();
    let options = Options { without, ..Options::of_world(WorldKind::Network) };
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_network_without_disturbances_is_good_and_has_none() {
    undisturbed_networks_are_good(20);
}

#[test]
#[ignore = "soak"]
fn soak_networks_without_disturbances_are_good_and_have_none() {
    undisturbed_networks_are_good(60);
}

/// The hosts that share a namespace, and everything about it, can be left out; then no other part of a scenario changes.
#[test]
fn reservations_are_in_some_networks_and_can_be_left_out() {
    let with = Options::of_world(WorldKind::Network);
    let without = Options { without: [Part::Reservations].into(), ..with.clone() };
    let differs = |seed: &u64| run(*seed, &with) != run(*seed, &without);
    let differing = (0..24).filter(differs).count();
    assert!((2..12).contains(&differing), "{differing}");
}

#[test]
fn of_all_kinds_of_worlds_there_is_one_in_five_and_drives_are_those_of_always() {
    use WorldKind::{Drive, Files, Images, Network, Volumes};
    let all = Options::of_world(WorldKind::All);
    for kind in [Drive, Network, Files, Volumes, Images] {
        assert_eq!((0..40).filter(|seed| all.world_of(*seed) == kind).count(), 8);
    }
    for seed in [1, 6, 11, 16] {
        assert_eq!(run(seed, &all), run(seed, &Options::default()));
    }
    for (seed, kind) in [(5, Network), (7, Files), (8, Volumes), (9, Images)] {
        assert_eq!(run(seed, &all), run(seed, &Options::of_world(kind)));
    }
}

#[test]
fn a_failure_of_a_network_is_made_small_and_kept_and_told() {
    let options = Options::default().with_bug(NetworkBug::DroppedChunk);
    made_small_and_kept_and_told(SEEDS, &options, "--bug dropped-chunk");
}
