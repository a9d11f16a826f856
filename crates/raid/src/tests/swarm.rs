//! All features combined, from seeds.

use crate::testing::{Incident, Outcome, Swarm, SwarmRun};

/// Reports the seed and the step of a run that panics.
struct PanicContext(SwarmRun, u64);

impl Drop for PanicContext {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}", self.1, self.0.steps());
        }
    }
}

fn run(seed: u64) -> Outcome {
    let mut context = PanicContext(Swarm::generate(seed).begin(), seed);
    if let Err(violation) = context.0.run() {
        panic!("{violation}");
    }
    context.0.outcome()
}

/// Runs with this many seeds keep all guarantees. Injected faults are rare: fewer than a hundred
/// runs have too few of them.
fn survives(seeds: u64) {
    let mut sum = Outcome::default();
    for seed in 0..seeds {
        let outcome = run(seed);
        sum.requests += outcome.requests;
        sum.failed_commands += outcome.failed_commands;
        sum.injected_faults += outcome.injected_faults;
        sum.failed_members += outcome.failed_members;
        sum.collected += outcome.collected;
        sum.reconstructed += outcome.reconstructed;
        sum.mounts += outcome.mounts;
        sum.healed += outcome.healed;
    }
    // Events that never happen are not tested.
    let met = [
        sum.mounts,
        sum.healed,
        sum.failed_members,
        sum.injected_faults,
        sum.failed_commands,
        sum.collected,
        sum.reconstructed,
    ];
    assert!(met.iter().all(|&times| times > 20), "{sum:?}");
}

#[test]
fn volumes_survive_faults_within_tolerance() {
    survives(100);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_survive_faults_within_tolerance() {
    survives(1_000);
}

fn repeats(seeds: u64) {
    for seed in 0..seeds {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// A seed's run with damage beyond tolerance.
fn is_survived_with_damage(seed: u64) {
    let mut swarm = Swarm::generate(seed);
    let round = seed % (swarm.crashes + 1);
    swarm.hazards.incidents = vec![(round, Incident::Damage)];
    swarm.run().unwrap_or_else(|violation| panic!("{violation}"));
}

/// Some blocks of a segment cannot be read when it is collected, and are read after all, or
/// recorded as lost, before the collection of the segment ends.
#[test]
fn a_segment_is_collected_again_once_its_unreadable_blocks_are_resolved() {
    is_survived_with_damage(21217);
}

/// A scrub waits for a segment that is emptied at the pace of hosts, which are idle.
#[test]
fn a_scrub_completes_without_host_io_while_a_segment_is_collected() {
    is_survived_with_damage(5488);
}

/// Segments with lost blocks stay: no zone is left to rebuild a member, nor to move anything to.
#[test]
fn requests_complete_where_a_rebuild_and_collection_wait_for_space() {
    is_survived_with_damage(8990);
}

#[test]
fn a_seed_determines_a_run() {
    repeats(5);
}

#[test]
#[ignore = "soak"]
fn soak_a_seed_determines_a_run() {
    repeats(20);
}
