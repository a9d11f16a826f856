//! Volumes whose directory is lost: `volume.toml` is recreated from the superblocks of the drives.

use zonda_devices::{ImportOptions, ImportReport, RateLimit, VolumeReport};

use super::*;

fn import(bench: &Bench, into: &str, drives: &[&str]) -> Result<ImportReport, DriveError> {
    import_with(bench, into, drives, ImportOptions::default())
}

fn import_with(bench: &Bench, into: &str, drives: &[&str], options: ImportOptions) -> Result<ImportReport, DriveError> {
    let members = drives.iter().map(|name| Location::Image(bench.at(name))).collect();
    ImportReport::of(&bench.at(into), &ImportOptions { members, ..options })
}

fn force() -> ImportOptions {
    ImportOptions { force: true, ..ImportOptions::default() }
}

fn open(bench: &Bench, name: &str) -> VolumeDrive {
    VolumeDrive::open(&bench.at(name), &bench.ring).unwrap_or_else(|error| panic!("{error}"))
}

fn places(report: &ImportReport) -> Vec<Option<&str>> {
    report.members.iter().map(|member| member.at.as_deref()).collect()
}

#[test]
fn a_volume_whose_directory_is_lost_is_imported_from_its_drives_in_any_order() {
    let bench = Bench::with(&["a", "b", "c", "e"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 30, 1);
    let array = volume.report().array;
    bench.close(volume);
    remove(&bench.at("vol"));
    std::fs::create_dir(bench.at("deep")).expect("there is space");
    std::fs::rename(bench.at("a"), bench.at("deep/x")).expect("it exists");
    let planned = ImportOptions { dry_run: true, scan: vec![bench.at("")], ..ImportOptions::default() };
    let report = import_with(&bench, "new", &[], planned).expect("they are a volume");
    assert!(!report.written && !bench.at("new").exists(), "nothing is written");
    assert_eq!(places(&report), [Some("../deep/x"), Some("../b"), Some("../c")]);
    let ignored: Vec<&str> = report.ignored.iter().map(|drive| drive.reason.as_str()).collect();
    assert_eq!(ignored, ["it is not a member of a volume"], "{report:?}");

    let written = import(&bench, "new", &["c", "deep/x", "b"]).expect("they are a volume");
    assert_eq!(
        (written.array.as_str(), written.name.as_str(), written.scheme.as_str()),
        (&*array, "vol", "RAID 5 (2+1)")
    );
    assert_eq!((places(&written), written.warnings.len()), (places(&report), 0));
    let looked = VolumeReport::inspect(&bench.at("new")).expect("it is a volume");
    assert_eq!((looked.state, looked.epoch), (VolumeState::Healthy, Some(written.epoch)));
    let mut volume = open(&bench, "new");
    bench.check(&mut volume, 30, 1);
    let error = import(&bench, "other", &["c", "b"]).expect_err("they are in use");
    assert!(error.is_in_use && error.message.contains("/c is in use"), "{error}");
    bench.close(volume);
    let error = import(&bench, "new", &["c", "b"]).expect_err("there is one");
    assert!(error.message.contains("holds a volume already"), "{error}");

    let degraded = import(&bench, "degraded", &["b", "deep/x"]).expect("two of three are enough");
    assert_eq!(places(&degraded), [Some("../deep/x"), Some("../b"), None]);
    assert!(degraded.warnings[0].starts_with("member 2 ("), "{:?}", degraded.warnings);
    let mut volume = open(&bench, "degraded");
    assert!(notices(&mut volume).contains("member 2 is missing: its location is not known"));
    assert_eq!(volume.report().state, VolumeState::Degraded);
    bench.check(&mut volume, 30, 1);
}

#[test]
fn drives_that_are_not_one_volume_are_refused_and_named() {
    let bench = Bench::with(&["a", "b", "c", "d", "e", "x", "y"]);
    bench.close(bench.create_at("other", &["x", "y"], &[]));
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 30, 2);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it is redundant");
    let with = bench.at("d").display().to_string();
    let replace =
        VolumeRequest::Replace { member: "1".to_owned(), with, may_wipe: false, credentials: Default::default() };
    bench.ask(&mut volume, &replace).expect("it is empty");
    bench.wait_until_quiescent(&mut volume);
    let array = volume.report().array;
    bench.close(volume);
    for (drives, words) in [
        (&["a", "x", "c", "y", "d"][..], &["of 2 volumes", "\"vol\"", "\"other\"", "/x (member 0", "--uuid"][..]),
        (&["a", "b", "c", "d"], &["/b (epoch", "/d (epoch", "each claim to be member 1", "--force"]),
        (&["a", "b", "c"], &["/b: another drive is member 1"]),
        (&["d"], &["too few members: 1 of 3", "needs 2", "0 (id ", "2 (id "]),
        (&["a", "d", "e"], &["/e is not a member of a volume"]),
        (&["a", "d", "a"], &["/a is named twice"]),
        (&["a", "d", "none"], &["none"]),
    ] {
        let error = import(&bench, "new", drives).expect_err("they are not one volume");
        let message = error.to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{drives:?}: {message}");
        assert!(!bench.at("new").exists(), "nothing is written");
    }
    let chosen = ImportOptions { uuid: Some(array), ..force() };
    let report = import_with(&bench, "new", &["a", "b", "c", "d", "x"], chosen).expect("the others are ignored");
    assert_eq!(places(&report), [Some("../a"), Some("../d"), Some("../c")]);
    let ignored: String = report.ignored.iter().map(|drive| format!("{}: {}\n", drive.at, drive.reason)).collect();
    assert!(ignored.contains("/x: it is member 0 of the volume \"other\""), "{ignored}");
    assert!(ignored.contains("/b: another drive is member 1: it was replaced after epoch"), "{ignored}");
    let mut volume = open(&bench, "new");
    assert_eq!(volume.report().state, VolumeState::Healthy);
    bench.check(&mut volume, 30, 2);
}

#[test]
fn members_that_are_older_are_imported_by_force_and_served_only_when_that_is_accepted() {
    let bench = Bench::with(&["a", "b", "c", "d"]);
    let new = NewVolume {
        scheme: Scheme::over(3, None, Some(2)).expect("three copies"),
        ..bench.new_volume(&["a", "b", "c"], &[])
    };
    let mut volume = VolumeDrive::create(&bench.at("vol"), &new, &bench.ring).expect("the members are suitable");
    bench.write(&mut volume, 30, 3);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it is redundant");
    bench.write(&mut volume, 30, 4);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "c".to_owned() }).expect("it is redundant");
    let slow = RateLimit::AtMost("64 KiB/s".parse().expect("a rate"));
    let slow = VolumeRequest::Rates { rebuild: Some(slow), scrub: None };
    bench.ask(&mut volume, &slow).expect("it is slow");
    let with = bench.at("d").display().to_string();
    let replace =
        VolumeRequest::Replace { member: "2".to_owned(), with, may_wipe: false, credentials: Default::default() };
    bench.ask(&mut volume, &replace).expect("it is empty");
    let mut completions = CompletionQueue::new();
    while volume.report().members[2].state != "rebuilding" {
        volume.poll(bench.ring.now(), &mut completions);
        bench.ring.run_once(volume.next_timeout()).expect("the loop works");
    }
    // Once this write completes, all members have recorded it.
    bench.write(&mut volume, 1, 4);
    drop(volume);
    // Member 0 is lost; the new member 2 has its epoch, and is not rebuilt.
    remove(&bench.at("a"));
    let error = import(&bench, "new", &["b", "d"]).expect_err("later writes are lost");
    for words in ["too few members: 0 of 3", "0 (id ", "not found)", "failed since epoch", "not rebuilt yet", "--force"]
    {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    let report = import_with(&bench, "new", &["b", "d"], force()).expect("one copy is enough");
    assert_eq!(places(&report), [None, Some("../b"), None]);
    assert!(report.found_epoch < report.epoch, "{report:?}");
    let numbers = format!("have epoch {}, the newest known epoch is {}", report.found_epoch, report.epoch);
    assert!(report.warnings.iter().any(|warning| warning.contains(&numbers)), "{:?}", report.warnings);
    assert!(report.ignored[0].at.ends_with("/d"), "{:?}", report.ignored);
    let error = VolumeDrive::open(&bench.at("new"), &bench.ring).map(|_| ()).expect_err("it is out of date");
    assert!(error.message.contains(&format!("the volume has reached {}", report.epoch)), "{error}");
    let accepted = VolumeOpenOptions { accepts_older: true, ..VolumeOpenOptions::default() };
    let mut volume = VolumeDrive::open_with(&bench.at("new"), &accepted, &bench.ring).expect("it is accepted");
    bench.check(&mut volume, 30, 3);
    assert!(volume.report().epoch > Some(report.epoch), "it is newer than what is left behind");
}

#[test]
fn a_copy_of_a_drive_is_not_imported_while_a_server_uses_the_current_one() {
    let bench = Bench::with(&["a", "x", "y"]);
    let mut volume = bench.create(&["a"], &[]);
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    bench.copy("a", "copy");
    let scan = || ImportOptions { scan: vec![bench.at("")], ..ImportOptions::default() };
    let mut volume = bench.open();
    bench.write(&mut volume, 10, 2);
    let error = import_with(&bench, "new", &[], scan()).expect_err("it is in use");
    assert!(error.is_in_use && error.message.contains("/a (member 0, epoch "), "{error}");
    let forced = ImportOptions { force: true, ..scan() };
    import_with(&bench, "new", &[], forced).expect_err("it is known to be in use");
    assert!(!bench.at("new").exists(), "nothing is written");
    bench.close(volume);
    remove(&bench.at("copy"));
    // Drives of another volume are ignored.
    let other = bench.create_at("other", &["x", "y"], &[]);
    let report = import_with(&bench, "new", &[], scan()).expect("it is a volume");
    assert_eq!(places(&report), [Some("../a")]);
    bench.close(other);
}

#[test]
fn an_import_treats_an_older_copy_of_a_member_as_a_mount_does() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    bench.copy("c", "older");
    // Two changes of members later.
    let mut volume = bench.open();
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "a".to_owned() }).expect("it is redundant");
    bench.write(&mut volume, 20, 2);
    bench.close(volume);
    remove(&bench.at("c"));
    std::fs::rename(bench.at("older"), bench.at("c")).expect("it exists");
    let looked = VolumeReport::inspect(&bench.at("vol")).expect("it is a volume");
    assert_eq!((looked.state, looked.members[2].state.as_str()), (VolumeState::Incomplete, "failed"));
    let error = VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("two members are missing");
    assert!(error.message.contains("missing or out of date"), "{error}");
    let error = import(&bench, "new", &["a", "b", "c"]).expect_err("two members are missing");
    assert!(error.message.contains("too few members: 1 of 3"), "{error}");
}
