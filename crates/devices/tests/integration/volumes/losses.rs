//! Volumes with damage: reports, refused mounts, and checks.

use zonda_devices::{CheckReport, LostRange, VolumeReport};

use super::*;

/// Damages a block of an image that is filled with `byte`: the one with index `number` among these.
fn damage(image: &Path, byte: u8, number: usize) {
    let path = image.join("data.zonda");
    let mut data = std::fs::read(&path).expect("it can be read");
    let filled = data.chunks(4096).enumerate().filter(|(_, block)| block.iter().all(|found| *found == byte));
    let at = filled.map(|(at, _)| at).nth(number).expect("it was written");
    data[at * 4096 + 7] ^= 0xff;
    std::fs::write(&path, data).expect("there is space");
}

#[test]
fn a_lost_block_is_reported_and_listed_until_it_is_written() {
    let bench = Bench::with(&[]);
    bench.make_drive_as("zn540-zapraid", "a");
    let mut volume = bench.create(&["a"], &[]);
    bench.write(&mut volume, 20, 0x40);
    bench.close(volume);
    damage(&bench.at("a"), 5 ^ 0x40, 3);
    let mut volume = bench.open();
    let first = Operation::Read { start: Lba(5 * 16), blocks: Blocks(16) };
    assert_ne!(bench.execute(&mut volume, first.clone()).status, Status::Success);
    bench.ask(&mut volume, &VolumeRequest::Scrub).expect("it can be read");
    bench.wait_until_quiescent(&mut volume);
    let report = bench.ask(&mut volume, &VolumeRequest::Lost { from: 0 }).expect("it is mounted");
    let range = LostRange { lba: 83, blocks: 1, offset_bytes: 83 * 4096 };
    assert_eq!((report.state, report.lost_blocks, report.lost), (VolumeState::DataLost, 1, Some(vec![range])));
    let report = bench.ask(&mut volume, &VolumeRequest::Lost { from: 84 }).expect("it is mounted");
    assert_eq!(report.lost, Some(Vec::new()), "no later block is lost");
    assert_eq!(volume.report().lost, None, "it was not requested");
    let log = notices(&mut volume);
    assert!(log.contains("data lost: block 83 (bytes 339968 to 344063 of the export)"), "{log}");
    bench.close(volume);
    let looked = VolumeReport::inspect(&bench.at("vol")).expect("it can be read");
    assert_eq!((looked.mounted, looked.state, looked.lost_blocks), (false, VolumeState::DataLost, 1));
    let mut volume = bench.open();
    let log = notices(&mut volume);
    assert!(log.contains("data lost: 1 block in total") && log.contains("--lost"), "{log}");
    assert_eq!((volume.report().state, volume.report().lost_blocks), (VolumeState::DataLost, 1));
    bench.write(&mut volume, 20, 0x41);
    assert_eq!(bench.execute(&mut volume, Operation::Flush).status, Status::Success);
    assert_eq!((volume.report().state, volume.report().lost_blocks), (VolumeState::Healthy, 0));
    bench.close(volume);
    let looked = VolumeReport::inspect(&bench.at("vol")).expect("it can be read");
    assert_eq!((looked.state, looked.lost_blocks), (VolumeState::Healthy, 0));
    bench.check(&mut bench.open(), 20, 0x41);
}

/// The bytes of all files of the bench.
fn files(bench: &Bench, names: &[&str]) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = names.iter().flat_map(|name| std::fs::read_dir(bench.at(name)).expect("it exists"));
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(&path).expect("it can be read"))).collect();
    files.sort();
    files
}

/// Checks the volume, and asserts that nothing is written.
fn checked(bench: &Bench, names: &[&str]) -> CheckReport {
    let before = files(bench, names);
    let report = CheckReport::of(&bench.at("vol"), &mut |_| {}).expect("it is not in use");
    assert!(files(bench, names) == before, "a check has changed a file");
    report
}

#[test]
fn a_check_finds_wrong_and_lost_blocks_and_writes_nothing() {
    let names = ["vol", "a", "b", "c"];
    let bench = Bench::with(&[]);
    ["a", "b", "c"].iter().for_each(|name| bench.make_drive_as("zn540-zapraid", name));
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 3, 0x40);
    let error = CheckReport::of(&bench.at("vol"), &mut |_| {}).expect_err("it is open");
    assert!(error.is_in_use, "{error}");
    // A mount recovers after a crash: here in memory.
    drop(volume);
    let report = checked(&bench, &names);
    assert!(report.is_healthy() && report.blocks > 3 * 16, "{report:?}");
    let mut volume = bench.open();
    bench.write(&mut volume, 60, 0x40);
    bench.close(volume);
    let report = checked(&bench, &names);
    assert!(report.is_healthy() && report.blocks > 60 * 16, "{report:?}");
    // A stripe of one piece has the same contents in its parity.
    let holds = |name: &&str| {
        let data = std::fs::read(bench.at(name).join("data.zonda")).expect("it can be read");
        data.chunks(4096).any(|block| block.iter().all(|byte| *byte == 5 ^ 0x40))
    };
    let holders: Vec<&str> = ["a", "b", "c"].into_iter().filter(holds).collect();
    damage(&bench.at(holders[0]), 5 ^ 0x40, 3);
    let report = checked(&bench, &names);
    assert!(!report.is_healthy() && report.wrong_blocks > 0, "{report:?}");
    assert_eq!((report.unreadable_blocks, report.lost_blocks), (0, 0), "the level tolerates it");
    assert_eq!(checked(&bench, &names), report, "nothing was repaired");
    remove(&bench.at(holders[1]));
    let left: Vec<&str> = names.into_iter().filter(|name| bench.at(name).exists()).collect();
    let report = checked(&bench, &left);
    assert!(!report.is_healthy(), "{report:?}");
    assert!(report.members.iter().any(|member| member.state == "missing" && member.reason.is_some()), "{report:?}");
    assert_eq!(
        (report.refusal, report.unreadable_blocks, report.lost_blocks),
        (None, 1, 0),
        "the missing member may have it"
    );
    remove(&bench.at(left[1]));
    let report = checked(&bench, &["vol", left[2]]);
    let (message, _) = report.refusal.clone().expect("two members are missing");
    assert!(!report.is_healthy() && message.contains("it can lose at most 1"), "{message}");
}

/// The number of blocks of an image that are filled with this byte.
fn filled(image: &Path, byte: u8) -> usize {
    let data = std::fs::read(image.join("data.zonda")).expect("it can be read");
    data.chunks(4096).filter(|block| block.iter().all(|found| *found == byte)).count()
}

#[test]
fn a_check_and_a_scrub_report_as_many_blocks_as_are_damaged() {
    let names = ["vol", "a", "b", "c"];
    for is_closed in [false, true] {
        let bench = Bench::with(&[]);
        ["a", "b", "c"].iter().for_each(|name| bench.make_drive_as("zn540-zapraid", name));
        let mut volume = bench.create(&["a", "b", "c"], &[]);
        bench.write(&mut volume, 60, 0x40);
        // Blocks that were not synced may be discarded as damaged.
        assert_eq!(bench.execute(&mut volume, Operation::Flush).status, Status::Success);
        if is_closed {
            bench.close(volume);
        } else {
            drop(volume);
        }
        // In segments with footers, and in those that a mount scans: one block of each of some
        // pieces.
        let held: Vec<u8> =
            (0..60).filter(|piece| piece % 4 == 1 && filled(&bench.at("b"), piece ^ 0x40) > 2).collect();
        assert!(held.len() > 4 && held.last() > Some(&50), "{held:?}");
        held.iter().for_each(|piece| damage(&bench.at("b"), piece ^ 0x40, usize::from(piece % 3)));
        let report = checked(&bench, &names);
        // Recovery of an image that was not closed discards damage in the last writes as an
        // incomplete write.
        let wrong_blocks = if is_closed { held.len() as u64 } else { report.wrong_blocks };
        let found = (report.wrong_blocks, report.unreadable_blocks, report.lost_blocks);
        assert_eq!(found, (wrong_blocks, 0, 0), "{report:?}");
        assert!((held.len() as u64 - 2..=held.len() as u64).contains(&wrong_blocks), "{report:?}");
        assert_eq!(checked(&bench, &names), report, "nothing was repaired");
        let mut volume = bench.open();
        bench.wait_until_quiescent(&mut volume);
        let before = volume.report().repaired_blocks;
        bench.ask(&mut volume, &VolumeRequest::Scrub).expect("it can be read");
        bench.wait_until_quiescent(&mut volume);
        let report = volume.report();
        let scrub = report.last_scrub.expect("it has ended");
        assert_eq!((before + scrub.repaired, scrub.unreadable, scrub.lost), (wrong_blocks, 0, 0), "{report:?}");
        assert_eq!((report.repaired_blocks, report.unreadable_blocks), (wrong_blocks, 0));
        bench.close(volume);
        let report = checked(&bench, &names);
        assert!(report.is_healthy(), "{report:?}");
    }
}

#[test]
fn a_member_that_was_failed_by_command_is_refused_alone_after_the_program_was_killed() {
    let bench = Bench::with(&["a", "b"]);
    let mut volume = bench.create(&["a", "b"], &[]);
    bench.write(&mut volume, 8, 0x40);
    assert_eq!(bench.execute(&mut volume, Operation::Flush).status, Status::Success);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "a".to_owned() }).expect("it is redundant");
    // From now on there are only writes in the new epoch.
    bench.write(&mut volume, 8, 0x41);
    drop(volume);
    std::fs::rename(bench.at("b"), bench.at("away")).expect("it can be moved");
    let error = VolumeDrive::open(&bench.at("vol"), &bench.ring).map(|_| ()).expect_err("it has older data");
    assert!(error.message.contains("out of date"), "{error}");
    std::fs::rename(bench.at("away"), bench.at("b")).expect("it can be moved");
    bench.check(&mut bench.open(), 8, 0x41);
}

#[test]
fn losses_that_are_not_identified_are_refused_until_they_are_accepted_once() {
    let bench = Bench::with(&[]);
    bench.make_drive_as("zn540-zapraid", "a");
    let mut volume = bench.create(&["a"], &[]);
    bench.write(&mut volume, 20, 0x40);
    bench.close(volume);
    // Its segment has no footer yet: the LBA is lost with the block.
    damage(&bench.at("a"), 18 ^ 0x40, 3);
    let refused = |accepted| VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).map(|_| ());
    let accepts_older = VolumeOpenOptions { accepts_older: true, ..VolumeOpenOptions::default() };
    for accepted in [VolumeOpenOptions::default(), accepts_older] {
        let error = refused(accepted).expect_err("a block is lost");
        assert!(
            error.message.contains("up to 1 block ") && error.message.contains(&bench.at("a").display().to_string()),
            "{error}"
        );
        assert!(error.help.contains("--accept-losses assembles it without up to 1 block:"), "{error}");
    }
    let accepted = VolumeOpenOptions { accepts_losses: true, ..VolumeOpenOptions::default() };
    let mut volume = VolumeDrive::open_with(&bench.at("vol"), &accepted, &bench.ring).expect("it is accepted");
    bench.check(&mut volume, 18, 0x40);
    bench.close(volume);
    bench.check(&mut bench.open(), 18, 0x40);
}

#[test]
fn a_check_shows_members_that_have_failed_also_if_the_volume_cannot_be_mounted() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.ask(&mut volume, &VolumeRequest::Fail { member: "b".to_owned() }).expect("it is redundant");
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    for (is_mounted, expected) in [(true, ["active", "failed", "active"]), (false, ["missing", "failed", "active"])] {
        if !is_mounted {
            std::fs::rename(bench.at("a"), bench.at("away")).expect("it can be moved");
        }
        let report = CheckReport::of(&bench.at("vol"), &mut |_| {}).expect("it is not in use");
        assert_eq!(report.refusal.is_none(), is_mounted, "{report:?}");
        let states: Vec<&str> = report.members.iter().map(|member| member.state.as_str()).collect();
        assert_eq!(states, expected);
    }
}
