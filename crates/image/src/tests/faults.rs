//! Files that fail repeatedly: no panic, no acknowledged write lost, and the drive continues.

use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{Blocks, Geometry, Lba, Operation, PayloadKind, Prng, Status, ZoneTarget};

use crate::ImageFile;
use crate::testing::{Crash, Drive, Fault, Ledger, spec};

/// Injects one fault in each round, then checks everything, on the running drive or after a kill.
fn run(geometry: &Geometry, seed: u64, rounds: u64) -> u64 {
    let root = Prng::new(seed);
    let mut prng = root.fork("run");
    let mut source = CommandSource::new(geometry, PayloadKind::Bytes, root.fork("commands"));
    let mut drive = Drive::create(&spec(geometry.clone()));
    let mut ledger = Ledger::new(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes), geometry);
    let mut faults = 0;
    for _ in 0..rounds {
        drive.disk.prng = Some(prng.fork("faults"));
        let file = *prng.pick(&[ImageFile::Data, ImageFile::Tags, ImageFile::Journal, ImageFile::State]).unwrap();
        let at = prng.below(12);
        drive.disk.fault = Some(match file {
            ImageFile::Journal if prng.chance(1, 2) => Fault::Sync(file, at / 2),
            ImageFile::State => Fault::Write(file, at / 6),
            _ => Fault::Write(file, at),
        });
        let depth = 1 + prng.below(24) as usize;
        let mut left = 100;
        let mut failed = false;
        while left > 0 && !failed {
            if ledger.outstanding() < depth && (drive.out.is_empty() || prng.chance(1, 3)) {
                left -= 1;
                let command = source.next(&ledger.oracle);
                // Select All may fail in one zone while it is in flight in others: the oracle
                // cannot follow.
                if matches!(command.operation, Operation::ManageZones { target: ZoneTarget::All, .. }) {
                    continue;
                }
                ledger.submitted(&command);
                drive.submit_command(command);
            } else {
                drive.step_any(&mut prng);
            }
            for completion in drive.poll() {
                failed |= !ledger.completed(&completion, true).unwrap();
            }
        }
        while drive.step_any(&mut prng) {}
        for completion in drive.poll() {
            failed |= !ledger.completed(&completion, true).unwrap();
        }
        assert_eq!(ledger.outstanding(), 0, "every accepted command has ended");
        drive.image.check_invariants();
        drive.disk.fault = None;
        faults += u64::from(failed);
        let crash = if prng.chance(1, 2) { Crash::Kill } else { Crash::None };
        if crash == Crash::Kill {
            drive = Drive::open(drive.kill(&mut prng));
        }
        let observed = drive.observe();
        // The active resource of a zone that lost its last write may be in use.
        let finished: Vec<_> = (0..geometry.zone_count).map(zonda_zoned::ZoneIndex).collect();
        ledger.judge(&observed, crash, &finished).unwrap();
        drive.image.check_invariants();
        // The oracle cannot follow what open zones were: a restart makes both the same.
        if crash == Crash::None {
            drive = Drive::open(drive.close());
        }
        ledger = Ledger::new(observed.oracle(geometry).clone(), geometry);
        ledger.oracle.power_cycle();
        let observed = drive.observe();
        ledger = Ledger::new(observed.oracle(geometry), geometry);
    }
    faults
}

/// Returns how many faults occurred on so many drives.
fn run_all(label: &str, drives: u64) -> u64 {
    let mut geometries = Prng::new(1).fork(label);
    let mut faults = 0;
    for seed in 0..drives {
        let geometry = random_geometry(&mut geometries);
        match std::panic::catch_unwind(|| run(&geometry, seed, 20)) {
            Ok(met) => faults += met,
            Err(cause) => {
                eprintln!("drive {seed} of {label}: {geometry:?}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    faults
}

#[test]
fn a_fault_fails_its_commands_and_no_acknowledged_one() {
    let faults = run_all("faults", 60);
    assert!(faults > 60 * 5, "{faults} faults on 60 drives");
}

/// On this drive a write waits behind a commit of the ZRWA whose record fails: it was counted as flushed,
/// and the next recovery moved the write pointer up to it.
#[test]
fn a_write_that_fails_behind_management_is_not_counted_as_flushed() {
    let mut geometries = Prng::new(1).fork("many faults");
    let geometry = (0..=153).map(|_| random_geometry(&mut geometries)).last().expect("there are drives");
    run(&geometry, 153, 20);
}

#[test]
#[ignore = "soak"]
fn soak_faults_on_many_drives() {
    run_all("many faults", 2000);
}

#[test]
fn a_drive_whose_every_file_fails_often_never_panics_and_can_be_opened() {
    let mut geometries = Prng::new(1).fork("chaos");
    for seed in 0..60 {
        let geometry = random_geometry(&mut geometries);
        let root = Prng::new(seed);
        let mut prng = root.fork("run");
        let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, root.fork("commands"));
        let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
        let mut drive = Drive::create(&spec(geometry.clone()));
        for _ in 0..8 {
            drive.disk.prng = Some(prng.fork("faults"));
            drive.disk.fault = Some(Fault::Often(2 + prng.below(60)));
            for _ in 0..200 {
                let command = source.next(&oracle);
                oracle.execute(&command);
                drive.submit_command(command);
                for _ in 0..prng.below(8) {
                    drive.step_any(&mut prng);
                }
                if prng.chance(1, 100) {
                    drive.image.check_invariants();
                }
            }
            while drive.step_any(&mut prng) {}
            drive.poll();
            drive.image.check_invariants();
            assert!(drive.image.is_idle(), "{:?}", drive.image);
            drive = Drive::open(drive.kill(&mut prng));
        }
    }
}

#[test]
fn a_failed_sync_fails_commands_that_wait_for_another_sync_of_the_file() {
    let geometry = Geometry { conventional_zone_count: 0, ..Geometry::tiny() };
    let mut drive = Drive::create(&spec(geometry.clone()));
    let second = geometry.zone_size_blocks.0;
    assert!(drive.write(0, 3, 1).is_success() && drive.write(second, 3, 1).is_success());
    drive.disk.fault = Some(Fault::Sync(ImageFile::Data, 0));
    let finish = |lba| {
        let target = ZoneTarget::Zone(zonda_zoned::Lba(lba));
        Operation::ManageZones { action: zonda_zoned::ZoneAction::Finish, target }
    };
    let first = drive.submit(finish(0));
    let other = drive.submit(finish(second));
    let completions = drive.complete_all();
    for id in [first, other] {
        let completion = completions.iter().find(|completion| completion.id == id).expect("it has ended");
        assert_eq!(completion.status, zonda_zoned::Status::WriteFault);
    }
    assert_eq!(drive.run(Operation::Flush).status, zonda_zoned::Status::WriteFault);
}

#[test]
fn a_read_that_finds_damage_behind_a_failed_write_uses_the_journal_once() {
    let capacity = Geometry::tiny().zone_capacity_blocks;
    let geometry =
        Geometry { metadata_bytes: 0, conventional_zone_count: 1, zone_size_blocks: capacity, ..Geometry::tiny() };
    let (zone, block_bytes) = (capacity.0, geometry.block_size_bytes as usize);
    let mut drive = Drive::create(&spec(geometry));
    // With an intent in the journal, a recovery could accept damage.
    assert!(drive.write(0, 1, 1).is_success());
    for write in [drive.write_of(zone, 2, 1), drive.write_of(zone + 2, 2, 5)] {
        drive.submit(write);
    }
    // Data and tags of the second write are on file, then damaged.
    (0..2).for_each(|_| drive.step(2));
    drive.disk.bytes(ImageFile::Data)[(zone as usize + 2) * block_bytes] ^= 1;
    drive.submit(Operation::Read { start: Lba(zone + 2), blocks: Blocks(2) });
    drive.disk.fault = Some(Fault::File(ImageFile::Data));
    (0..2).for_each(|_| drive.step(0));
    drive.disk.fault = None;
    // The read ends before the rollback, and starts again to record the damage.
    (0..2).for_each(|_| drive.step(0));
    drive.image.check_invariants();
    let statuses: Vec<Status> = drive.complete_all().iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::WriteFault, Status::WriteFault, Status::UnrecoveredReadError]);
    drive.image.check_invariants();
    drive.close();
}
