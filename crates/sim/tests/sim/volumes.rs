//! Volumes over many seeds: without bugs they pass, and every seeded bug is found.

use zonda_sim::{Options, Part, ScenarioKind, VolumesBug, run};

use crate::common::{assert_found, assert_good, shrunk_stored_and_traced};

/// Seeds within which every seeded bug must be found. When this was written each was found within
/// 280: the last ones are [`VolumesBug::ScrubBelievesRot`] (272 seeds passed before),
/// [`VolumesBug::UnflushedReset`] (124) and [`VolumesBug::IgnoredChunkError`] (117); two of three
/// within 15.
const SEEDS: u64 = 1000;

/// Runs this number of seeds, which must pass and meet a minimum of faults.
fn many_volumes_pass(seeds: u64) {
    let options = Options::of_scenario(ScenarioKind::Volumes);
    let (mut requests, mut faults, mut losses, mut without_losses) = (0, 0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.scenario, ScenarioKind::Volumes);
        requests += outcome.commands;
        faults += outcome.faults;
        losses += outcome.power_losses;
        without_losses += u64::from(outcome.power_losses == 0);
    }
    assert!(requests > 200 * seeds, "{requests} requests");
    assert!(faults > 3 * seeds && losses > seeds, "{faults} faults, {losses} power losses and kills");
    assert!(without_losses < seeds / 2, "none in {without_losses}");
}

#[test]
fn volumes_pass() {
    many_volumes_pass(50);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_pass() {
    many_volumes_pass(500);
}

/// A seed that failed before a fix.
fn passes_now(seed: u64) {
    let options = Options::of_scenario(ScenarioKind::Volumes);
    let outcome = run(seed, &options);
    assert!(outcome.is_good(), "{}", outcome.verdict(&options));
}

#[test]
fn a_late_relocation_does_not_overwrite_a_newer_block() {
    // A relocated block replaced a newer one that had been written to its old address.
    passes_now(6667);
}

#[test]
fn a_write_that_a_mount_discarded_does_not_reappear_after_a_rebuild() {
    // The last stripe of a segment was never complete, but the rebuilt member had its chunk, and
    // wrote a footer.
    passes_now(29_799_407);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_a_volume_is_found() {
    let found_by_seeds = VolumesBug::ALL.into_iter().filter(|(_, bug)| !VolumesBug::ENUMERATED.contains(bug));
    assert_found(found_by_seeds.map(|(name, bug)| (name, bug.into())), SEEDS);
}

fn volumes_without_faults_pass(seeds: u64) {
    let parts = [
        Part::PowerLoss,
        Part::Deaths,
        Part::Faults,
        Part::Degradation,
        Part::Rot,
        Part::MemberLosses,
        Part::BeyondTolerance,
        Part::SplitBrain,
        Part::OldCopies,
        Part::SharedFailures,
        Part::ScrubLosses,
        Part::RebuildFailures,
        Part::LongPauses,
        Part::ResetFaults,
        Part::IgnoredFlushes,
        Part::MisdirectedWrites,
    ];
    let options = Options { without: parts.into(), ..Options::of_scenario(ScenarioKind::Volumes) };
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_volume_without_fault_parts_passes_and_meets_none() {
    volumes_without_faults_pass(20);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_without_fault_parts_pass_and_meet_none() {
    volumes_without_faults_pass(60);
}

#[test]
fn a_failure_of_a_volume_is_shrunk_stored_and_traced() {
    let options = Options::default().with_bug(VolumesBug::StaleRelocation);
    let (shrunk, text) = shrunk_stored_and_traced(SEEDS, &options, "--bug stale-relocation");
    let block = shrunk.failure.block.expect("a block is lost");
    assert!(text.contains(&format!("Block {block}:")), "{text}");
    assert!(text.contains("to member"), "the trace has the writes of the block: {text}");
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored soak_ten_thousand`, after a change to
/// volumes.
#[test]
#[ignore = "soak"]
fn soak_ten_thousand_volumes_pass() {
    assert_good(&Options::of_scenario(ScenarioKind::Volumes), 0..10_000);
}
