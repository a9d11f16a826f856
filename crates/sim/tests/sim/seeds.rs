//! Drives over many seeds: without bugs they pass, and every seeded bug is found.

use zonda_sim::{Mode, Options, run};
use zonda_ssd::SeededBug;

use crate::common::{assert_found, assert_good};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 500;

#[test]
fn lite_scenarios_pass() {
    assert_good(&Options::of(Mode::Lite), 0..100);
}

#[test]
#[ignore = "soak"]
fn soak_lite_scenarios_pass() {
    assert_good(&Options::of(Mode::Lite), 0..500);
}

#[test]
fn swarm_scenarios_pass() {
    assert_good(&Options::default(), 0..100);
}

#[test]
#[ignore = "soak"]
fn soak_swarm_scenarios_pass() {
    assert_good(&Options::default(), 0..500);
}

#[test]
fn performance_scenarios_pass() {
    assert_good(&Options { commands_max: Some(10_000), ..Options::of(Mode::Performance) }, 0..1);
}

#[test]
#[ignore = "soak"]
fn soak_performance_scenarios_pass() {
    assert_good(&Options { commands_max: Some(10_000), ..Options::of(Mode::Performance) }, 0..5);
}

#[test]
#[ignore = "soak"]
fn soak_every_seeded_bug_is_found() {
    assert_found(SeededBug::ALL.map(|(name, bug)| (name, bug.into())), SEEDS);
}

#[test]
fn swarm_scenarios_meet_power_losses_and_faults() {
    let mut without_power_loss = 0;
    let (mut power_losses, mut faults) = (0, 0);
    for seed in 0..100 {
        let outcome = run(seed, &Options::default());
        without_power_loss += u32::from(outcome.power_losses == 0);
        power_losses += outcome.power_losses;
        faults += outcome.faults;
        assert!(outcome.commands >= 100, "seed {seed} runs {} commands", outcome.commands);
    }
    assert!(without_power_loss < 50 && power_losses > 500, "{power_losses} power losses, none in {without_power_loss}");
    assert!(faults > 500, "{faults} faults");
}
