//! Worlds with a network over many seeds: without bugs they are good, and every planted bug is found.

mod common;

use common::made_small_and_kept_and_told;
use zonda_sim::{NetworkBug, Options, Part, WorldKind, run};

/// Seeds within which every planted bug must be found.
const SEEDS: u64 = 500;

#[test]
fn networks_are_good() {
    let options = Options::of_world(WorldKind::Network);
    let (mut commands, mut faults, mut deaths) = (0, 0, 0);
    for seed in 0..300 {
        let outcome = run(seed, &options);
        assert!(outcome.is_good(), "{}", outcome.verdict(&options));
        assert_eq!(outcome.world, WorldKind::Network);
        commands += outcome.commands;
        faults += outcome.faults;
        deaths += outcome.power_losses;
    }
    assert!(commands > 30_000, "{commands} commands");
    assert!(faults > 1_500 && deaths > 150, "{faults} faults, {deaths} deaths of servers");
}

#[test]
fn every_bug_of_a_network_is_found() {
    for (name, bug) in NetworkBug::ALL {
        let options = Options::default().with_bug(bug);
        assert!((0..SEEDS).any(|seed| !run(seed, &options).is_good()), "{name} is not found within {SEEDS} seeds");
    }
}

#[test]
fn a_network_without_disturbances_is_good_and_has_none() {
    let without = [Part::Cuts, Part::Blackholes, Part::Deaths, Part::Stalls, Part::Crashes, Part::Strangers];
    let without = without.into_iter().chain([Part::PowerLoss, Part::Faults]).collect();
    let options = Options { without, ..Options::of_world(WorldKind::Network) };
    for seed in 0..60 {
        let outcome = run(seed, &options);
        assert!(outcome.is_good(), "{}", outcome.verdict(&options));
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn of_all_kinds_of_worlds_there_is_one_in_four_and_drives_are_those_of_always() {
    let all = Options::of_world(WorldKind::All);
    for kind in [WorldKind::Drive, WorldKind::Network, WorldKind::Files, WorldKind::Volumes] {
        assert_eq!((0..40).filter(|seed| all.world_of(*seed) == kind).count(), 10);
    }
    for seed in [1, 5, 9, 13] {
        assert_eq!(run(seed, &all), run(seed, &Options::default()));
    }
    assert_eq!(run(8, &all), run(8, &Options::of_world(WorldKind::Network)));
    assert_eq!(run(6, &all), run(6, &Options::of_world(WorldKind::Files)));
    assert_eq!(run(7, &all), run(7, &Options::of_world(WorldKind::Volumes)));
}

#[test]
fn a_failure_of_a_network_is_made_small_and_kept_and_told() {
    let options = Options::default().with_bug(NetworkBug::DroppedChunk);
    made_small_and_kept_and_told(SEEDS, &options, "--bug dropped-chunk");
}
