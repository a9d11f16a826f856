//! Schedulers over drives with hidden conflict groups, over many seeds: without bugs they pass, and
//! every seeded bug is found.

use zonda_sim::{GroupsBug, Options, Part, ScenarioKind};

use crate::common::{assert_found, assert_good, shrunk_stored_and_traced};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 1000;

fn many_pass(seeds: u64) {
    let options = Options::of_scenario(ScenarioKind::Groups);
    let outcomes = assert_good(&options, 0..seeds);
    assert!(outcomes.iter().all(|outcome| outcome.scenario == ScenarioKind::Groups));
    let commands: u64 = outcomes.iter().map(|outcome| outcome.commands).sum();
    assert!(commands > 500 * seeds, "{commands} commands");
}

#[test]
fn schedulers_over_hidden_groups_pass() {
    many_pass(100);
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored soak_ten_thousand`, after a change to
/// the scheduler.
#[test]
#[ignore = "soak"]
fn soak_ten_thousand_schedulers_over_hidden_groups_pass() {
    many_pass(10_000);
}

#[test]
fn every_bug_of_a_scheduler_by_groups_is_found() {
    assert_found(GroupsBug::ALL.into_iter().map(|(name, bug)| (name, bug.into())), SEEDS);
}

#[test]
fn parts_can_be_left_out() {
    let parts = [Part::Faults, Part::Delays, Part::Degradation, Part::Scheduler];
    let options = Options { without: parts.into(), ..Options::of_scenario(ScenarioKind::Groups) };
    assert_good(&options, 0..20);
}

#[test]
fn a_failure_of_a_scheduler_is_shrunk_stored_and_traced() {
    let options = Options::default().with_bug(GroupsBug::GreedyGroup);
    shrunk_stored_and_traced(SEEDS, &options, "--bug greedy-group");
}
