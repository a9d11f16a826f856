//! Images over many seeds: without bugs they pass, and every seeded bug is found.

use zonda_sim::{ImageBug, Options, Part, ScenarioKind};

use crate::common::{assert_found, assert_good, shrunk_stored_and_traced};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 1000;

/// Runs this number of seeds, which must pass and meet a minimum of faults.
fn many_images_pass(seeds: u64) {
    let options = Options::of_scenario(ScenarioKind::Images);
    let (mut commands, mut faults, mut crashes) = (0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.scenario, ScenarioKind::Images);
        commands += outcome.commands;
        faults += outcome.faults;
        crashes += outcome.power_losses;
    }
    assert!(commands > 100 * seeds, "{commands} commands");
    assert!(faults > 2 * seeds && crashes > 2 * seeds, "{faults} faults, {crashes} kills and power losses");
}

/// The simulation step of `make test` runs 600 other seeds.
#[test]
fn images_pass() {
    many_images_pass(100);
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored soak_twenty_thousand`, after a change
/// to images.
#[test]
#[ignore = "soak"]
fn soak_twenty_thousand_images_pass() {
    many_images_pass(20_000);
}

/// Bugs that are found by the first seeds; finding all bugs takes longer.
#[test]
fn some_bugs_of_an_image_are_found_within_40_seeds() {
    let soon = [ImageBug::EarlyWrite, ImageBug::UnsyncedRecord, ImageBug::HalfFlush, ImageBug::KeptPointer];
    let soon = |bug: &ImageBug| soon.contains(bug);
    assert_found(ImageBug::ALL.into_iter().filter(|(_, bug)| soon(bug)).map(|(name, bug)| (name, bug.into())), 40);
}

#[test]
#[ignore = "soak"]
fn soak_every_bug_of_an_image_is_found() {
    assert_found(ImageBug::ALL.map(|(name, bug)| (name, bug.into())), SEEDS);
}

#[test]
fn an_image_without_fault_parts_passes_and_meets_none() {
    let parts = [
        Part::PowerLoss,
        Part::Deaths,
        Part::CutOpenings,
        Part::Faults,
        Part::FullDisk,
        Part::Degradation,
        Part::Rot,
        Part::Truncation,
        Part::OldCopies,
    ];
    let options = Options { without: parts.into(), ..Options::of_scenario(ScenarioKind::Images) };
    for outcome in assert_good(&options, 0..40) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_failure_of_an_image_is_shrunk_stored_and_traced() {
    let options = Options::default().with_bug(ImageBug::UnsyncedFinish);
    let (_, text) = shrunk_stored_and_traced(SEEDS, &options, "--bug unsynced-finish");
    assert!(text.contains("opened: "), "{text}");
}
