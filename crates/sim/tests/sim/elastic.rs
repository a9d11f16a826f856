//! Pools over many seeds: without bugs they pass, and every seeded bug is found.

use zonda_sim::{ElasticBug, Options, Part, ScenarioKind};

use crate::common::{assert_found, assert_good, shrunk_stored_and_traced};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 1000;

/// Runs this number of seeds, which must pass and meet a minimum of faults.
fn many_pools_pass(seeds: u64) {
    let options = Options::of_scenario(ScenarioKind::Elastic);
    let (mut commands, mut faults, mut crashes) = (0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.scenario, ScenarioKind::Elastic);
        commands += outcome.commands;
        faults += outcome.faults;
        crashes += outcome.power_losses;
    }
    println!("{commands} commands, {faults} faults, {crashes} crashes");
    assert!(commands > 100 * seeds, "{commands} commands");
    assert!(faults > seeds && crashes > 2 * seeds, "{faults} faults, {crashes} kills and power losses");
}

#[test]
fn pools_pass() {
    many_pools_pass(60);
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored soak_ten_thousand`, after a change to
/// pools.
#[test]
#[ignore = "soak"]
fn soak_ten_thousand_pools_pass() {
    many_pools_pass(10_000);
}

fn found_by_seeds(bug: ElasticBug) -> bool {
    !ElasticBug::ENUMERATED.contains(&bug)
}

/// Bugs that are found by the first seeds; finding all bugs takes longer.
#[test]
fn some_bugs_of_a_pool_are_found_within_40_seeds() {
    let soon = [ElasticBug::EarlyGroup, ElasticBug::UnrecordedFinish, ElasticBug::UnreadableAsZeros];
    let bugs = ElasticBug::ALL.into_iter().filter(|(_, bug)| soon.contains(bug));
    assert_found(bugs.map(|(name, bug)| (name, bug.into())), 40);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_a_pool_is_found() {
    let bugs = ElasticBug::ALL.into_iter().filter(|(_, bug)| found_by_seeds(*bug));
    assert_found(bugs.map(|(name, bug)| (name, bug.into())), SEEDS);
}

#[test]
fn a_pool_without_fault_parts_passes_and_meets_none() {
    let parts = [Part::PowerLoss, Part::Deaths, Part::CutOpenings, Part::Faults, Part::Degradation];
    let options = Options { without: parts.into(), ..Options::of_scenario(ScenarioKind::Elastic) };
    for outcome in assert_good(&options, 0..40) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_failure_of_a_pool_is_shrunk_stored_and_traced() {
    let options = Options::default().with_bug(ElasticBug::EarlyGroup);
    let (_, text) = shrunk_stored_and_traced(SEEDS, &options, "--bug early-group");
    assert!(text.contains("mounted, epoch"), "{text}");
}
