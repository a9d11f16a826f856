//! Volumes over many seeds: without bugs they are good, and every seeded bug is found.

use zonda_sim::{Options, Part, VolumesBug, WorldKind, run};

use crate::common::{assert_found, assert_good, made_small_and_kept_and_told};

/// Seeds within which every seeded bug must be found. When this was written each was found within 280: the last ones are
/// [`VolumesBug::ScrubBelievesRot`] (272 seeds were good before), [`VolumesBug::UnflushedReset`] (124) and
/// [`VolumesBug::IgnoredChunkError`] (117); two of three within 15.
const SEEDS: u64 = 1000;

/// So many volumes are good, and every hundred of them meet this much.
fn many_volumes_are_good(seeds: u64) {
    let options = Options::of_world(WorldKind::Volumes);
    let (mut requests, mut faults, mut losses, mut without_losses) = (0, 0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.world, WorldKind::Volumes);
        requests += outcome.commands;
        faults += outcome.faults;
        losses += outcome.power_losses;
        without_losses += u64::from(outcome.power_losses == 0);
    }
    assert!(requests > 200 * seeds, "{requests} requests");
    assert!(faults > 3 * seeds && losses > seeds, "{faults} faults, {losses} power losses and deaths");
    assert!(without_losses < seeds / 2, "none in {without_losses}");
}

#[test]
fn volumes_are_good() {
    many_volumes_are_good(50);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_are_good() {
    many_volumes_are_good(500);
}

/// A seed that once failed.
fn is_good_now(seed: u64) {
    let options = Options::of_world(WorldKind::Volumes);
    let outcome = run(seed, &options);
    assert!(outcome.is_good(), "{}", outcome.verdict(&options));
}

#[test]
fn a_block_that_was_moved_too_late_takes_nobodys_place() {
    // A moved block took the place of a newer one that had come to its old address.
    is_good_now(6667);
}

#[test]
fn a_write_that_a_mount_has_left_out_does_not_come_back_after_a_rebuild() {
    // The last stripe of a segment was never complete, but the rebuilt member had its chunk, and got a footer.
    is_good_now(29_799_407);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_a_volume_is_found() {
    let of_worlds = VolumesBug::ALL.into_iter().filter(|(_, bug)| !VolumesBug::ENUMERATED.contains(bug));
    assert_found(of_worlds.map(|(name, bug)| (name, bug.into())), SEEDS);
}

fn undisturbed_volumes_are_good(seeds: u64) {
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
    let options = Options { without: parts.into(), ..Options::of_world(WorldKind::Volumes) };
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_volume_without_disturbances_is_good_and_has_none() {
    undisturbed_volumes_are_good(20);
}

#[test]
#[ignore = "soak"]
fn soak_volumes_without_disturbances_are_good_and_have_none() {
    undisturbed_volumes_are_good(60);
}

#[test]
fn a_failure_of_a_volume_is_made_small_and_kept_and_told() {
    let options = Options::default().with_bug(VolumesBug::StaleRelocation);
    let (shrunk, told) = made_small_and_kept_and_told(SEEDS, &options, "--bug stale-relocation");
    let block = shrunk.failure.block.expect("a block is lost");
    assert!(told.contains(&format!("Block {block}:")), "{told}");
    assert!(told.contains("to member"), "the writes of the block are told: {told}");
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored soak_ten_thousand`, after a change to volumes.
#[test]
#[ignore = "soak"]
fn soak_ten_thousand_volumes_are_good() {
    assert_good(&Options::of_world(WorldKind::Volumes), 0..10_000);
}
