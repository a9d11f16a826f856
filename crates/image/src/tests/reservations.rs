//! Saved reservations are always the last bytes or the previous ones, and never a mixture.

use bytes::Bytes;
use zonda_zoned::{Blocks, Geometry, Prng, Status, ZoneAction};

use crate::format::record::MARKS_BYTES;
use crate::format::superblock::COPY_BYTES;
use crate::limits::RESERVATIONS_BYTES_MAX;
use crate::testing::{Disk, Drive, Fault, spec};
use crate::{FileOperation, ImageFile, check, inspect, open};

/// Bytes that identify their value.
fn value(mark: u8) -> Bytes {
    (0..300 + u16::from(mark)).map(|i| mark ^ i as u8).collect::<Vec<u8>>().into()
}

fn drive() -> Drive {
    Drive::create(&spec(Geometry::tiny()))
}

impl Drive {
    fn begin_saving(&mut self, bytes: Bytes) {
        self.image.save_reservations(bytes);
        self.collect();
    }

    /// Saves the bytes. Returns whether that succeeded.
    fn save(&mut self, bytes: Bytes) -> bool {
        self.begin_saving(bytes);
        assert!(self.complete_all().is_empty(), "no command has ended");
        self.image.take_reservations_saved().expect("every change ends")
    }
}

fn saved_after(disk: Disk) -> Bytes {
    Bytes::copy_from_slice(Drive::open(disk).image.reservations())
}

#[test]
fn saved_reservations_survive_a_kill_a_loss_of_power_a_checkpoint_and_a_clean_shutdown() {
    let mut prng = Prng::new(1);
    let mut drive = drive();
    assert_eq!(drive.image.reservations(), b"", "a new drive has no reservations");
    for (round, end) in (1..=40).zip(["kill", "power", "checkpoint", "close"].into_iter().cycle()) {
        assert!(drive.save(value(round)));
        if end == "checkpoint" {
            drive.image.checkpoint();
            drive.collect();
            drive.complete_all();
        }
        let disk = match end {
            "kill" => drive.kill(&mut prng),
            "close" => drive.close(),
            _ => drive.lose_power(&mut prng),
        };
        drive = Drive::open(disk);
        assert_eq!(drive.image.reservations(), value(round), "after {end}");
    }
    assert!(drive.save(Bytes::new()));
    assert_eq!(saved_after(drive.lose_power(&mut prng)), b""[..], "the reservations are removed");
}

#[test]
fn a_change_is_reported_when_its_record_is_synced_and_not_before() {
    let mut drive = drive();
    drive.begin_saving(value(1));
    let mut done = Vec::new();
    while drive.image.take_reservations_saved().is_none() {
        done.push(match &drive.out[0].0.operation {
            FileOperation::Write { file, .. } => ("write", *file),
            FileOperation::Sync { file } => ("sync", *file),
            other => panic!("{other:?}"),
        });
        drive.step(0);
    }
    assert_eq!(done, [("write", ImageFile::Journal), ("sync", ImageFile::Journal)]);
    drive.disk.forget_unsynced();
    assert_eq!(saved_after(drive.disk), value(1));
}

#[test]
fn a_crash_in_the_middle_of_a_change_leaves_the_bytes_before_or_those_after() {
    let mut found = [0, 0];
    for seed in 0..400 {
        let mut prng = Prng::new(seed);
        let mut drive = drive();
        assert!(drive.save(value(1)));
        // Records of others come before, behind and between.
        drive.submit(drive.write_of(0, 4, 9));
        if prng.chance(1, 3) {
            drive.image.checkpoint();
        }
        drive.begin_saving(value(2));
        for _ in 0..prng.below(12) {
            drive.step_any(&mut prng);
        }
        let reported = drive.image.take_reservations_saved();
        let disk = if prng.chance(1, 2) { drive.kill(&mut prng) } else { drive.lose_power(&mut prng) };
        let kept = saved_after(disk);
        assert!(kept == value(2) || (kept == value(1) && reported.is_none()), "seed {seed}, reported {reported:?}");
        found[usize::from(kept == value(2))] += 1;
    }
    assert!(found.iter().all(|&times| times > 40), "both happen: {found:?}");
}

#[test]
fn an_interrupted_opening_loses_no_reservations() {
    for changes in 1..12 {
        let mut prng = Prng::new(changes);
        let mut drive = drive();
        assert!(drive.save(value(7)));
        let mut disk = drive.lose_power(&mut prng);
        (disk.prng, disk.changes_left) = (Some(prng.fork("recovery")), Some(changes));
        let _ = open(&mut disk);
        disk.changes_left = None;
        disk.lose_power(&mut prng);
        assert_eq!(inspect(&mut disk.clone()).map(|_| ()), Ok(()));
        assert_eq!(saved_after(disk), value(7), "interrupted at change {changes}");
    }
}

#[test]
fn a_change_whose_record_fails_is_refused_and_the_old_reservations_stay() {
    for fault in [Fault::Write(ImageFile::Journal, 0), Fault::Sync(ImageFile::Journal, 0)] {
        for seed in 0..400 {
            let mut drive = drive();
            assert!(drive.save(value(1)));
            (drive.disk.fault, drive.disk.prng) = (Some(fault), Some(Prng::new(seed)));
            assert!(!drive.save(value(2)), "{fault:?}");
            assert_eq!(drive.image.reservations(), value(1));
            drive.image.check_invariants();
            let mut prng = Prng::new(seed);
            if seed % 2 == 0 {
                // The checkpoint that follows ensures this.
                assert_eq!(saved_after(drive.lose_power(&mut prng)), value(1), "{fault:?}");
            } else {
                assert!(drive.save(value(3)), "the next change succeeds");
                assert_eq!(saved_after(drive.lose_power(&mut prng)), value(3), "{fault:?}");
            }
        }
    }
}

#[test]
fn behind_a_checkpoint_that_failed_a_change_waits_for_another_one() {
    let mut drive = drive();
    assert!(drive.save(value(1)));
    drive.disk.fault = Some(Fault::Write(ImageFile::State, 0));
    drive.image.checkpoint();
    drive.begin_saving(value(2));
    drive.complete_all();
    assert_eq!(drive.image.take_reservations_saved(), Some(false), "it waited for the one that failed");
    drive.disk.fault = None;
    assert!(drive.save(value(3)));
    assert_eq!(saved_after(drive.lose_power(&mut Prng::new(1))), value(3));
}

#[test]
fn a_full_journal_is_restarted_with_the_saved_reservations() {
    let mut drive = drive();
    let longest = |mark: u8| Bytes::from(vec![mark; RESERVATIONS_BYTES_MAX]);
    for mark in 0..50 {
        assert!(drive.save(longest(mark)));
        drive.image.check_invariants();
    }
    assert_eq!(saved_after(drive.lose_power(&mut Prng::new(1))), longest(49));
}

#[test]
fn a_drive_is_closed_when_its_last_change_has_ended() {
    let mut drive = drive();
    drive.image.checkpoint();
    drive.begin_saving(value(1));
    let disk = drive.close_during_reservations_change();
    assert_eq!(saved_after(disk), value(1));
}

#[test]
fn an_altered_byte_leaves_the_saved_reservations_or_the_image_is_refused() {
    let mut drive = Drive::create(&spec(Geometry { zone_count: 2, ..Geometry::tiny() }));
    assert!(drive.save(value(1)));
    assert!(drive.save(value(2)));
    let disk = drive.kill(&mut Prng::new(1));
    let journal = MARKS_BYTES as usize..MARKS_BYTES as usize + 900;
    let (mut refused, mut kept) = (0, 0);
    for (file, byte) in journal.map(|byte| (ImageFile::Journal, byte)).chain((0..5000).map(|at| (ImageFile::State, at)))
    {
        let mut damaged = disk.clone();
        damaged.bytes(file)[byte] ^= 1 << (byte % 8);
        match open(&mut damaged) {
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains(file.name()), "{error}");
            }
            Ok((image, _)) => {
                kept += 1;
                assert_eq!(image.reservations(), value(2), "byte {byte} of {file}");
            }
        }
    }
    assert!(refused > 700 && kept > 5000, "both records, of 370 bytes each: {refused} refused, {kept} kept");
    // In the checkpoint one copy is enough.
    let disk = Drive::open(disk).close();
    for byte in 0..4096 {
        let mut damaged = disk.clone();
        damaged.bytes(ImageFile::State)[byte] ^= 1 << (byte % 8);
        assert_eq!(saved_after(damaged), value(2), "byte {byte} of the first copy");
    }
}

/// The files as a program of version 1 would have written them.
fn of_version_1(mut disk: Disk) -> Disk {
    for copy in 0..2 {
        disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES + 16] = 1;
    }
    disk
}

#[test]
fn an_image_of_version_1_is_converted_only_when_it_is_opened() {
    let mut drive = drive();
    drive.write(0, 4, 1);
    assert_eq!(drive.manage(ZoneAction::Finish, 0), Status::Success);
    let mut disk = of_version_1(drive.kill(&mut Prng::new(1)));
    let before = disk.bytes(ImageFile::Superblock).clone();
    assert_eq!(check(&mut disk, &mut |_| {}).unwrap().findings, []);
    inspect(&mut disk).unwrap();
    assert_eq!(*disk.bytes(ImageFile::Superblock), before, "inspecting changes nothing");
    let mut drive = Drive::open(disk);
    assert!(drive.report.converted && !drive.report.superblock_repaired);
    assert_eq!((drive.marks(0, 2), drive.image.reservations()), (vec![Ok(1), Ok(2)], &b""[..]));
    assert!(drive.save(value(1)));
    let mut disk = drive.lose_power(&mut Prng::new(1));
    for copy in 0..2 {
        assert_eq!(disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES + 16..][..4], [3, 0, 0, 0]);
    }
    let drive = Drive::open(disk);
    assert!(!drive.report.converted);
    assert_eq!(drive.image.reservations(), value(1));
}

#[test]
fn an_interrupted_conversion_is_repeated() {
    let geometry = Geometry { zone_count: 2, zone_capacity_blocks: Blocks(4), ..Geometry::tiny() };
    let mut converted = 0;
    for changes in 1..16 {
        for damaged_copy in [None, Some(0), Some(1)] {
            let mut prng = Prng::new(changes);
            let mut disk = of_version_1(Drive::create(&spec(geometry.clone())).close());
            if let Some(copy) = damaged_copy {
                disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES + 30] ^= 1;
            }
            (disk.prng, disk.changes_left) = (Some(prng.fork("opening")), Some(changes));
            let _ = open(&mut disk);
            disk.changes_left = None;
            disk.lose_power(&mut prng);
            let drive = Drive::open(disk);
            converted += u32::from(drive.report.converted);
            let disk = drive.close();
            let report = Drive::open(disk).report;
            assert!(!report.converted && !report.superblock_repaired, "{report:?}");
        }
    }
    assert!(converted > 10, "some were interrupted before: {converted}");
}
