//! The simulator over many seeds: a drive without bugs is good, and every planted bug is found.

use zonda_sim::{Mode, Options, run};
use zonda_ssd::SeededBug;

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 500;

fn assert_good(options: &Options, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let outcome = run(seed, options);
        assert!(outcome.is_good(), "{}", outcome.verdict(options));
    }
}

#[test]
fn lite_worlds_are_good() {
    assert_good(&Options::of(Mode::Lite), 0..500);
}

#[test]
fn swarm_worlds_are_good() {
    assert_good(&Options::default(), 0..500);
}

#[test]
fn performance_worlds_are_good() {
    assert_good(&Options { commands_max: Some(10_000), ..Options::of(Mode::Performance) }, 0..5);
}

#[test]
fn every_seeded_bug_is_found() {
    for (name, bug) in SeededBug::ALL {
        let options = Options::default().with_bug(bug);
        assert!((0..SEEDS).any(|seed| !run(seed, &options).is_good()), "{name} is not found within {SEEDS} seeds");
    }
}

#[test]
fn swarm_worlds_meet_everything_they_are_made_of() {
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
