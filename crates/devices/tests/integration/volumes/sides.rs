//! Volumes that have split: members were written independently.

use zonda_devices::{ImportOptions, ImportReport};

use super::*;

fn away(bench: &Bench, name: &str) {
    std::fs::rename(bench.at(name), bench.at(&format!("away-{name}"))).expect("it exists");
}

fn back(bench: &Bench, name: &str) {
    std::fs::rename(bench.at(&format!("away-{name}")), bench.at(name)).expect("it exists");
}

/// A mirror that has split: "a" was written alone with salt 2, and "b" with salt 3.
fn split() -> Bench {
    let bench = Bench::with(&["a", "b"]);
    let mut volume = bench.create(&["a", "b"], &[]);
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    let file = bench.at("vol/volume.toml");
    let before = std::fs::read(&file).expect("it exists");
    for (gone, salt) in [("b", 2), ("a", 3)] {
        std::fs::write(&file, &before).expect("there is space");
        away(&bench, gone);
        let mut volume = bench.open();
        bench.write(&mut volume, 20, salt);
        bench.close(volume);
        back(&bench, gone);
    }
    bench
}

fn refusal(bench: &Bench, side: Option<&str>) -> DriveError {
    let accepted = VolumeOpenOptions { accepts_side: side.map(str::to_owned), ..VolumeOpenOptions::default() };
    VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).map(|_| ()).expect_err("it is refused")
}

#[test]
fn a_side_is_chosen_after_a_split_brain_and_the_other_one_is_wiped_and_rebuilt() {
    for (kept, left, salt) in [("a", "b", 2), ("b", "a", 3)] {
        let bench = split();
        let error = refusal(&bench, None);
        assert!(error.message.starts_with("split brain: "), "{error}");
        for words in ["/a (epoch ", "/b (epoch ", "--keep-side"] {
            assert!(error.to_string().contains(words), "{words}: {error}");
        }
        assert!(refusal(&bench, Some("z")).message.contains("has no member z"));
        let accepted = VolumeOpenOptions { accepts_side: Some(kept.to_owned()), ..VolumeOpenOptions::default() };
        let mut volume = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).expect("a side is chosen");
        let log = notices(&mut volume);
        assert!(log.contains("is accepted; member") && log.contains(&format!("(../{left}, epoch ")), "{log}");
        bench.check(&mut volume, 20, salt);
        bench.write(&mut volume, 25, 7);
        assert_eq!(volume.report().state, VolumeState::Degraded);
        drop(volume);
        // From now on nothing has to be accepted, whether the other side is missing or not.
        bench.check(&mut bench.open(), 25, 7);
        away(&bench, left);
        bench.check(&mut bench.open(), 25, 7);
        back(&bench, left);
        away(&bench, kept);
        assert!(refusal(&bench, None).message.contains("out of date"));
        back(&bench, kept);
        let mut volume = bench.open();
        let with = bench.at(left).display().to_string();
        let replace = |may_wipe| VolumeRequest::Replace {
            member: left.to_owned(),
            with: with.clone(),
            may_wipe,
            credentials: Default::default(),
        };
        bench.ask(&mut volume, &replace(false)).expect_err("it is not empty");
        bench.ask(&mut volume, &replace(true)).expect("it may be wiped");
        bench.wait_until_quiescent(&mut volume);
        assert_eq!(volume.report().state, VolumeState::Healthy);
        bench.close(volume);
        away(&bench, kept);
        bench.check(&mut bench.open(), 25, 7);
    }
}

#[test]
fn drives_of_a_split_volume_are_not_imported_together_unless_forced() {
    let bench = split();
    remove(&bench.at("vol"));
    let members = |names: &[&str]| names.iter().map(|name| Location::Image(bench.at(name))).collect();
    let both = ImportOptions { members: members(&["b", "a"]), ..ImportOptions::default() };
    let error = ImportReport::of(&bench.at("vol"), &both).expect_err("both were written independently");
    for words in ["split brain: ", "/a (member 0, epoch ", "/b (member 1, epoch ", "--keep-side"] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    let one = ImportOptions { members: members(&["b"]), ..ImportOptions::default() };
    let report = ImportReport::of(&bench.at("one"), &one).expect("one copy is enough");
    assert_eq!(report.members[0].state, "failed");
    let mut volume = VolumeDrive::open(&bench.at("one"), &bench.ring).expect("one copy is enough");
    bench.check(&mut volume, 20, 3);
    bench.close(volume);
    ImportReport::of(&bench.at("vol"), &ImportOptions { force: true, ..both }).expect("a side is chosen later");
    assert!(refusal(&bench, None).message.starts_with("split brain: "));
    let accepted = VolumeOpenOptions { accepts_side: Some("a".to_owned()), ..VolumeOpenOptions::default() };
    let mut volume = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).expect("a side is chosen");
    bench.check(&mut volume, 20, 2);
}

#[test]
fn a_member_that_is_failed_in_volume_toml_does_not_prove_that_the_epoch_is_the_newest() {
    let bench = Bench::with(&["a", "b"]);
    let mut volume = bench.create(&["a", "b"], &[]);
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    let file = bench.at("vol/volume.toml");
    let before = std::fs::read(&file).expect("it exists");
    // A copy of the directory is used with "b" alone.
    away(&bench, "a");
    let mut volume = bench.open();
    bench.write(&mut volume, 10, 2);
    let fork = volume.report().epoch;
    bench.close(volume);
    back(&bench, "a");
    away(&bench, "b");
    std::fs::write(&file, &before).expect("there is space");
    let mut volume = bench.open();
    bench.write(&mut volume, 10, 3);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it must not be re-added");
    assert_eq!(volume.report().epoch, fork, "both sides have reached the same epoch");
    bench.close(volume);
    back(&bench, "b");
    away(&bench, "a");
    let error = refusal(&bench, None);
    assert!(
        error.message.contains(&format!("volume.toml has 1 ({}) as failed in epoch", bench.at("b").display())),
        "{error}"
    );
    assert!(
        error.help.contains(&format!("0 ({})", bench.at("a").display())) && error.help.contains("--accept-older"),
        "{error}"
    );
    let looked = zonda_devices::VolumeReport::inspect(&bench.at("vol")).expect("it can be read");
    assert_eq!((looked.state, looked.refusal.as_ref()), (VolumeState::Incomplete, Some(&error.message)));
    let checked = zonda_devices::CheckReport::of(&bench.at("vol"), &mut |_| {}).expect("it can be read");
    assert_eq!(checked.refusal.map(|(message, _)| message), Some(error.message));
    let accepted = VolumeOpenOptions { accepts_older: true, ..VolumeOpenOptions::default() };
    let mut volume = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).expect("it is accepted");
    bench.check(&mut volume, 10, 2);
    assert!(volume.report().epoch > fork, "it is newer than what is left behind");
}

#[test]
fn accepting_a_side_while_the_other_one_is_missing_has_no_effect_and_is_logged() {
    let bench = split();
    away(&bench, "b");
    let accepted = VolumeOpenOptions { accepts_side: Some("a".to_owned()), ..VolumeOpenOptions::default() };
    let open = || {
        let mut volume = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).expect("one copy is enough");
        let log = notices(&mut volume);
        bench.close(volume);
        log
    };
    assert!(open().contains("--keep-side 0 has no effect"));
    back(&bench, "b");
    assert!(refusal(&bench, None).message.starts_with("split brain: "), "nothing was chosen");
    assert!(!open().contains("has no effect"), "now there are two sides");
    bench.close(bench.open());
}
