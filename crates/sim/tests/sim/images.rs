//! Images over many seeds: without bugs they are good, and every seeded bug is found.

use zonda_sim::{ImageBug, Options, Part, WorldKind};

use crate::common::{assert_found, assert_good, made_small_and_kept_and_told};

/// Seeds within which every seeded bug must be found.
const SEEDS: u64 = 1000;

/// So many images are good, and every hundred of them meet this much.
fn many_images_are_good(seeds: u64) {
    let options = Options::of_world(WorldKind::Images);
    let (mut commands, mut faults, mut crashes) = (0, 0, 0);
    for outcome in assert_good(&options, 0..seeds) {
        assert_eq!(outcome.world, WorldKind::Images);
        commands += outcome.commands;
        faults += outcome.faults;
        crashes += outcome.power_losses;
    }
    assert!(commands > 100 * seeds, "{commands} commands");
    assert!(faults > 2 * seeds && crashes > 2 * seeds, "{faults} faults, {crashes} kills and losses of power");
}

/// The simulation beside the tests runs 600 more of other seeds.
#[test]
fn images_are_good() {
    many_images_are_good(100);
}

/// `cargo test --release -p zonda-sim --test sim -- --ignored soak_twenty_thousand`, after a change to images.
#[test]
#[ignore = "soak"]
fn soak_twenty_thousand_images_are_good() {
    many_images_are_good(20_000);
}

/// The bugs that the first seeds find; all of them take longer.
#[test]
fn most_bugs_of_an_image_are_found_at_once() {
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
fn an_image_without_disturbances_is_good_and_has_none() {
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
    let options = Options { without: parts.into(), ..Options::of_world(WorldKind::Images) };
    for outcome in assert_good(&options, 0..40) {
        assert_eq!((outcome.faults, outcome.power_losses), (0, 0));
    }
}

#[test]
fn a_failure_of_an_image_is_made_small_and_kept_and_told() {
    let options = Options::default().with_bug(ImageBug::UnsyncedFinish);
    let (_, told) = made_small_and_kept_and_told(SEEDS, &options, "--bug unsynced-finish");
    assert!(told.contains("opened: "), "{told}");
}
