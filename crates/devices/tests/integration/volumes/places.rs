//! Entries of `volume.toml` for drives that are used otherwise, and operations that wait until it
//! can be written.

use super::*;

fn fail(bench: &Bench, volume: &mut VolumeDrive, member: &str) {
    bench.ask(volume, &VolumeRequest::Fail { member: member.to_owned() }).expect("it is redundant");
    // Its device is detached.
    volume.poll(bench.ring.now(), &mut CompletionQueue::new());
}

fn copies(bench: &Bench, members: &[&str]) -> VolumeDrive {
    let parity = members.len() as u8 - 1;
    let scheme = Scheme::over(members.len(), None, Some(parity)).expect("there are enough");
    let new = NewVolume { scheme, ..bench.new_volume(members, &[]) };
    VolumeDrive::create(&bench.at("vol"), &new, &bench.ring).expect("the members are suitable")
}

#[test]
fn hosts_wait_until_the_file_has_the_epoch_in_which_members_changed() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = copies(&bench, &["a", "b", "c"]);
    bench.write(&mut volume, 10, 1);
    let in_the_way = bench.at("vol/volume.toml.new");
    std::fs::create_dir(&in_the_way).expect("there is space");
    volume.fail_unsaved(0, &bench.ring);
    volume.poll(bench.ring.now(), &mut CompletionQueue::new());
    let payload = Payload::Bytes(Box::new(BlockBuffer { data: vec![2; 65_536].into(), metadata: Vec::new().into() }));
    let operation = Operation::Write { start: Lba(0), blocks: Blocks(16), payload };
    let command = Command::new(CommandId(7), NamespaceId::FIRST, operation);
    volume.submit(bench.ring.now(), command).expect("there is a queue slot");
    let mut completions = CompletionQueue::new();
    let until = bench.ring.now() + zonda_zoned::Duration::from_millis(1500);
    while bench.ring.now() < until {
        volume.poll(bench.ring.now(), &mut completions);
        assert!(completions.pop().is_none(), "after a crash now the first member could be mounted as the volume");
        bench.ring.run_once(Some(bench.ring.now() + zonda_zoned::Duration::from_millis(50))).expect("the loop works");
    }
    assert_eq!(volume.report().state, VolumeState::Suspended);
    assert!(notices(&mut volume).contains("I/O is suspended: members have changed, and volume.toml cannot be written"));
    std::fs::remove_dir(&in_the_way).expect("it is empty");
    let completion = loop {
        volume.poll(bench.ring.now(), &mut completions);
        if let Some(completion) = completions.pop() {
            break completion;
        }
        bench.ring.run_once(volume.next_timeout()).expect("the loop works");
    };
    assert_eq!((completion.id, completion.status), (CommandId(7), Status::Success));
    assert_eq!(volume.report().state, VolumeState::Degraded);
    assert!(notices(&mut volume).contains("I/O is resumed: volume.toml is written"));
    drop(volume);
    remove(&bench.at("b"));
    remove(&bench.at("c"));
    let error = VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("only a stale member is left");
    assert!(error.message.contains("out of date"), "{error}");
}

#[test]
fn the_drive_of_a_member_that_has_failed_can_be_used_by_another_volume() {
    let bench = Bench::with(&["a", "b", "c", "y"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 20, 1);
    fail(&bench, &mut volume, "b");
    bench.close(volume);
    let new = NewVolume { may_wipe: true, credentials: Default::default(), ..bench.new_volume(&["b", "y"], &[]) };
    let mut other = VolumeDrive::create(&bench.at("other"), &new, &bench.ring).expect("it may be wiped");
    bench.write(&mut other, 20, 2);
    // Whether the other volume is open or not.
    let mut volume = bench.open();
    assert!(notices(&mut volume).contains("member 1 (../b) is missing: "));
    bench.check(&mut volume, 20, 1);
    bench.close(volume);
    bench.close(other);
    let mut volume = bench.open();
    let log = notices(&mut volume);
    assert!(log.contains("member 1 (../b) is missing: the drive is member 0 of the volume \"other\""), "{log}");
    bench.check(&mut volume, 20, 1);
    assert_eq!(volume.report().state, VolumeState::Degraded);
    drop(volume);
    let mut other = VolumeDrive::open(&bench.at("other"), &bench.ring).expect("it is intact");
    assert_eq!(other.report().state, VolumeState::Healthy);
    bench.check(&mut other, 20, 2);
}

#[test]
fn a_joining_drive_that_became_a_member_of_another_volume_is_not_wiped() {
    let bench = Bench::with(&["a", "b", "c", "x", "y"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 20, 1);
    fail(&bench, &mut volume, "b");
    bench.close(volume);
    let mut other = bench.create_at("other", &["x", "y"], &[]);
    bench.write(&mut other, 20, 2);
    bench.close(other);
    // As left by a program that was killed before it wiped the drive.
    let file = bench.at("vol/volume.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    let joining = text.replace("at = \"../b\"\nstate = \"failed\"", "at = \"../x\"\nstate = \"joining\"");
    assert_ne!(joining, text);
    std::fs::write(&file, joining).expect("there is space");
    let mut volume = bench.open();
    let log = notices(&mut volume);
    assert!(log.contains("member 1 (../x) is missing: the drive is member 0 of the volume \"other\""), "{log}");
    bench.check(&mut volume, 20, 1);
    drop(volume);
    let mut other = VolumeDrive::open(&bench.at("other"), &bench.ring).expect("it is intact");
    assert_eq!(other.report().state, VolumeState::Healthy);
    bench.check(&mut other, 20, 2);
}

/// Members b and c fail, and c is added as a spare.
fn c_replaces_b(bench: &Bench, volume: &mut VolumeDrive) {
    fail(bench, volume, "b");
    fail(bench, volume, "c");
    let spare = VolumeRequest::AddSpare {
        spare: bench.at("c").display().to_string(),
        may_wipe: true,
        credentials: Default::default(),
    };
    bench.ask(volume, &spare).expect("it may be wiped");
    bench.wait_until_quiescent(volume);
}

#[test]
fn a_drive_that_replaces_another_member_is_removed_from_its_own_entry() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = copies(&bench, &["a", "b", "c"]);
    bench.write(&mut volume, 20, 1);
    c_replaces_b(&bench, &mut volume);
    let places: Vec<String> = volume.report().members.into_iter().map(|member| member.at).collect();
    assert_eq!(places, ["../a", "../c", "missing"]);
    drop(volume);
    let mut volume = bench.open();
    bench.check(&mut volume, 20, 1);
    bench.close(volume);
    // A file that has it in both entries, as older programs wrote it.
    let file = bench.at("vol/volume.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    std::fs::write(&file, text.replace("\"missing\"", "\"../c\"")).expect("there is space");
    let mut volume = bench.open();
    assert!(notices(&mut volume).contains("member 2 (../c) is missing: that drive is another member"));
    let states: Vec<String> = volume.report().members.into_iter().map(|member| member.state).collect();
    assert_eq!(states, ["active", "active", "failed"]);
    bench.check(&mut volume, 20, 1);
}

#[test]
fn status_reports_the_error_of_a_mount_for_a_foreign_drive() {
    let bench = Bench::with(&["a", "b", "c", "x", "y"]);
    bench.close(bench.create_at("other", &["x", "y"], &[]));
    bench.close(bench.create(&["a", "b", "c"], &[]));
    let refused = |shown: &str| {
        let mounted = VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("it is refused");
        let looked = zonda_devices::VolumeReport::inspect(&bench.at("vol")).expect("its members can be read");
        assert_eq!((looked.state, looked.refusal), (VolumeState::Incomplete, Some(mounted.message.clone())));
        assert!(mounted.message.contains(shown), "{mounted}");
    };
    let rename = |from: &str, to: &str| std::fs::rename(bench.at(from), bench.at(to)).expect("it exists");
    rename("b", "away");
    rename("x", "b");
    // The others are enough: the member is treated as missing.
    let looked = zonda_devices::VolumeReport::inspect(&bench.at("vol")).expect("its members can be read");
    assert_eq!((looked.state, looked.refusal), (VolumeState::Degraded, None));
    assert_eq!(looked.members[1].state, "missing");
    rename("a", "away-a");
    rename("y", "a");
    refused("/a belongs to another volume");
    rename("a", "y");
    rename("away-a", "a");
    rename("b", "x");
    rename("a", "b");
    rename("away", "a");
    refused("it is member ");
    rename("a", "away");
    rename("b", "a");
    rename("away", "b");
    // A mount uses an empty drive at the location of a member as a new one.
    remove(&bench.at("b"));
    bench.make_drive("b");
    let looked = zonda_devices::VolumeReport::inspect(&bench.at("vol")).expect("its members can be read");
    assert_eq!((looked.state, looked.refusal), (VolumeState::Degraded, None));
    bench.wait_until_quiescent(&mut bench.open());
}

#[test]
fn status_with_a_file_from_before_a_change_of_members_shows_them_as_a_mount_does() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = copies(&bench, &["a", "b", "c"]);
    bench.write(&mut volume, 20, 1);
    let file = bench.at("vol/volume.toml");
    let older = std::fs::read_to_string(&file).expect("it exists");
    c_replaces_b(&bench, &mut volume);
    bench.close(volume);
    std::fs::write(&file, older).expect("there is space");
    let members = |report: zonda_devices::VolumeReport| -> Vec<(String, String)> {
        report.members.into_iter().map(|member| (member.at, member.state)).collect()
    };
    let looked = zonda_devices::VolumeReport::inspect(&bench.at("vol")).expect("its members can be read");
    assert_eq!((looked.state, looked.refusal.clone()), (VolumeState::Degraded, None));
    let looked = members(looked);
    assert_eq!(looked[..2], [("../a", "active"), ("../c", "active")].map(|(at, state)| (at.into(), state.into())));
    let mut volume = bench.open();
    assert!(notices(&mut volume).contains("member 2 (../c) is member 1 now: volume.toml is updated"));
    assert_eq!(members(volume.report())[..2], looked[..2]);
    bench.check(&mut volume, 20, 1);
}

#[test]
fn requests_are_refused_while_volume_toml_cannot_be_written() {
    let bench = Bench::with(&["a", "b", "c", "e"]);
    let mut volume = bench.create(&["a", "b", "c"], &["e"]);
    // A file cannot be renamed over a directory.
    let file = bench.at("vol/volume.toml");
    let moved = bench.at("volume.toml");
    std::fs::rename(&file, &moved).expect("it exists");
    std::fs::create_dir_all(file.join("in-the-way")).expect("there is space");
    let rate = zonda_devices::RateLimit::AtMost("1 MiB/s".parse().expect("a rate"));
    for request in [
        VolumeRequest::Fail { member: "b".to_owned() },
        VolumeRequest::RemoveSpare { spare: "e".to_owned() },
        VolumeRequest::Rates { rebuild: Some(rate), scrub: None },
    ] {
        let error = bench.ask(&mut volume, &request).expect_err("it cannot be saved");
        assert!(error.message.contains("cannot write"), "{request}: {error}");
    }
    let report = volume.report();
    assert_eq!((report.state, report.spares.len(), report.rates.rebuild), (VolumeState::Healthy, 1, None));
    remove(&file);
    std::fs::rename(&moved, &file).expect("it exists");
    bench.ask(&mut volume, &VolumeRequest::RemoveSpare { spare: "e".to_owned() }).expect("it can be written");
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it can be written");
    assert_eq!(volume.report().state, VolumeState::Degraded);
}

#[test]
fn a_volume_that_is_opened_with_keeps_members_starts_no_rebuild() {
    let bench = Bench::with(&["a", "b", "c", "e"]);
    let mut volume = bench.create(&["a", "b", "c"], &["e"]);
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    std::fs::rename(bench.at("b"), bench.at("away")).expect("it exists");
    let options = VolumeOpenOptions { keeps_members: true, ..VolumeOpenOptions::default() };
    let open = || VolumeDrive::open_with(&bench.at("vol"), &options, &bench.ring).expect("one member is redundant");
    let rate = zonda_devices::RateLimit::AtMost("1 MiB/s".parse().expect("a rate"));
    for is_back in [false, true] {
        if is_back {
            std::fs::rename(bench.at("away"), bench.at("b")).expect("it exists");
        }
        let mut volume = open();
        let request = VolumeRequest::Rates { rebuild: Some(rate), scrub: None };
        bench.ask(&mut volume, &request).expect("it is open");
        bench.wait_until_quiescent(&mut volume);
        let report = volume.report();
        assert_eq!((report.state, report.members[1].state.as_str()), (VolumeState::Degraded, "failed"));
        assert_eq!(report.spares, ["../e"]);
        bench.close(volume);
    }
    // A request is executed.
    let mut volume = open();
    bench.ask(&mut volume, &VolumeRequest::Readd { member: "b".to_owned() }).expect("it is the member");
    bench.wait_until_quiescent(&mut volume);
    assert_eq!((volume.report().state, volume.report().spares.len()), (VolumeState::Healthy, 1));
}

#[test]
fn an_absent_rate_is_unchanged() {
    let bench = Bench::with(&["a", "b"]);
    let mut volume = bench.create(&["a", "b"], &[]);
    let limit = |text: &str| Some(zonda_devices::RateLimit::AtMost(text.parse().expect("a rate")));
    let mut set = |rebuild, scrub| {
        let report = bench.ask(&mut volume, &VolumeRequest::Rates { rebuild, scrub }).expect("it can be written");
        [report.rates.rebuild, report.rates.scrub].map(|rate| rate.map(|rate| rate.to_string()))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(set(limit("10 MiB/s"), None), [some("10 MiB/s"), None]);
    assert_eq!(set(None, limit("20 MiB/s")), [some("10 MiB/s"), some("20 MiB/s")]);
    assert_eq!(set(Some(zonda_devices::RateLimit::Default), None), [None, some("20 MiB/s")]);
    bench.close(volume);
    let looked = zonda_devices::VolumeReport::inspect(&bench.at("vol")).expect("it can be read");
    assert_eq!(looked.rates.scrub.map(|rate| rate.to_string()), some("20 MiB/s"));
}

#[test]
fn a_check_reads_open_segments_and_accepts_a_member_without_a_location() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 20, 1);
    bench.close(volume);
    let check = || zonda_devices::CheckReport::of(&bench.at("vol"), &mut |_| {}).expect("it can be read");
    let report = check();
    // 20 pieces of 16 blocks, and half as much parity.
    assert!(report.is_healthy() && report.blocks >= 480, "{report:?}");
    let file = bench.at("vol/volume.toml");
    let text = std::fs::read_to_string(&file).expect("it exists");
    std::fs::write(&file, text.replace("\"../b\"", "\"missing\"")).expect("there is space");
    let report = check();
    assert_eq!((report.refusal.as_ref(), report.members[1].state.as_str()), (None, "missing"));
    assert!(report.blocks >= 320, "{report:?}");
}

#[test]
fn a_member_without_readable_superblocks_is_known_by_the_headers_of_its_segments() {
    use std::os::unix::fs::FileExt;

    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = copies(&bench, &["a", "b", "c"]);
    let array = zonda_devices::random::uuid_text(&volume.array());
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    let is_member = |user: Option<DriveUser>| matches!(user, Some(DriveUser::Volume(_)));
    assert!(is_member(user_of_image(&bench.at("a"))));
    let file = std::fs::OpenOptions::new().write(true).open(bench.at("a/data.zonda")).expect("it exists");
    for block in 0..2 * 256 {
        file.write_all_at(&[0xee], block * 4096 + 300).expect("there is space");
    }
    assert_eq!(user_of_image(&bench.at("a")), Some(DriveUser::DamagedVolume(Some(array))));
    file.write_all_at(&[0xee; 2 << 20], 0).expect("there is space");
    let user = user_of_image(&bench.at("a"));
    assert!(matches!(user, Some(DriveUser::DamagedVolume(Some(_)))), "{user:?}");
}

#[test]
fn a_volume_is_opened_through_a_symbolic_link_to_its_directory() {
    let bench = Bench::with(&["a", "b", "c"]);
    drop(copies(&bench, &["a", "b", "c"]));
    std::fs::create_dir(bench.at("links")).expect("there is space");
    std::os::unix::fs::symlink("../vol", bench.at("links/vol")).expect("there is space");
    let volume = VolumeDrive::open(&bench.at("links/vol"), &bench.ring).expect("its members are beside the real one");
    assert_eq!(volume.report().state, VolumeState::Healthy);
}

#[test]
fn an_image_that_two_members_are_through_a_symbolic_link_is_refused_with_the_names_of_both() {
    let bench = Bench::with(&["a", "b", "c"]);
    drop(copies(&bench, &["a", "b", "c"]));
    std::os::unix::fs::symlink("b", bench.at("link")).expect("there is space");
    let path = bench.at("vol/volume.toml");
    let file = std::fs::read_to_string(&path).expect("it exists");
    std::fs::write(&path, file.replace("\"../a\"", "\"../link\"")).expect("there is space");
    let error = VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("it cannot be both");
    let (link, b) = (bench.at("link"), bench.at("b"));
    let expected = format!("member 0 ({}) and member 1 ({}) are the same image", link.display(), b.display());
    assert!(error.message.starts_with(&expected), "{error}");
}
