//! The consequences of a failed sync.

use zonda_zoned::{Lba, Operation, Prng, Status, ZoneAction, ZoneState, ZoneTarget};

use super::promises::{drive, killed, mixed, out, plain, pointer, state, step};
use crate::testing::{Drive, Fault};
use crate::{FileOperation, ImageFile};

#[test]
fn a_finish_after_a_sync_that_failed_is_not_acknowledged() {
    let mut drive = drive(mixed());
    drive.write(48, 2, 1);
    drive.write(64, 2, 1);
    drive.disk.fault = Some(Fault::Sync(ImageFile::Data, 0));
    assert_eq!(drive.manage(ZoneAction::Finish, 48), Status::WriteFault);
    // The pages of the other zone are clean now, and need not be on the medium.
    assert_eq!(drive.manage(ZoneAction::Finish, 64), Status::WriteFault);
    assert_eq!((pointer(&drive, 4), state(&drive, 4)), (2, ZoneState::ImplicitlyOpened));
}

#[test]
fn a_flush_after_cleared_tags_that_could_not_be_synced_fails() {
    let mut drive = drive(mixed());
    drive.write(64, 2, 1);
    drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
    let write = drive.submit(drive.write_of(48, 1, 1));
    while out(&drive, |operation| *operation == FileOperation::Sync { file: ImageFile::Tags }) == 0 {
        drive.step(0);
    }
    drive.disk.fault = Some(Fault::Sync(ImageFile::Tags, 0));
    let completions = drive.complete_all();
    assert_eq!((completions[0].id, completions[0].status), (write, Status::WriteFault));
    assert_eq!(drive.run(Operation::Flush).status, Status::WriteFault);
}

#[test]
fn management_whose_record_could_not_be_synced_has_no_effect_after_a_loss_of_power_either() {
    let mut drive = drive(mixed());
    drive.write(48, 2, 1);
    drive.disk.fault = Some(Fault::Sync(ImageFile::Journal, 0));
    assert_eq!(drive.manage(ZoneAction::Reset, 48), Status::WriteFault);
    assert_eq!(drive.write(50, 1, 3), Status::Success);
    assert_eq!(drive.run(Operation::Flush).status, Status::Success);
    let disk = drive.kill(&mut Prng::new(1));
    for seed in 0..100 {
        let mut disk = disk.clone();
        disk.lose_power(&mut Prng::new(seed));
        assert_eq!(Drive::open(disk).marks(48, 3), [Ok(1), Ok(2), Ok(3)], "seed {seed}");
    }
}

#[test]
fn a_zone_whose_tags_could_not_be_cleared_is_read_only_when_a_reset_behind_the_failed_write_fails_too() {
    let mut drive = drive(mixed());
    drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
    drive.submit(drive.write_of(48, 2, 1));
    let reset = drive.submit(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(48)) });
    let is_hole = |operation: &FileOperation| matches!(operation, FileOperation::PunchHole { .. });
    while out(&drive, is_hole) == 0 {
        drive.step(0);
    }
    drive.disk.fault = Some(Fault::Write(ImageFile::Tags, 0));
    step(&mut drive, is_hole);
    drive.disk.fault = Some(Fault::Write(ImageFile::Journal, 0));
    let completions = drive.complete_all();
    let status = completions.iter().find(|completion| completion.id == reset).unwrap().status;
    assert_eq!((status, state(&drive, 3)), (Status::WriteFault, ZoneState::ReadOnly));
    drive.image.check_invariants();
}

#[test]
fn an_acknowledged_flush_is_recorded_whenever_the_kill_comes() {
    for is_dirty in [true, false] {
        let mut drive = drive(plain());
        drive.write(48, 3, 10);
        let mut flushes = vec![drive.submit(Operation::Flush)];
        while drive.out.iter().any(|(command, _)| matches!(command.operation, FileOperation::Sync { .. })) {
            drive.step(0);
        }
        if !is_dirty {
            // Nothing was written since: it has nothing to sync.
            flushes.push(drive.submit(Operation::Flush));
        }
        let mut ended = Vec::new();
        while ended.len() < flushes.len() {
            ended.extend(drive.poll());
            if ended.is_empty() {
                drive.step(0);
            }
        }
        drive.out.clear();
        let offset = drive.disk.bytes(ImageFile::Data).iter().rposition(|byte| *byte == 12).expect("the third block");
        drive.disk.bytes(ImageFile::Data)[offset] ^= 1;
        let mut drive = killed(drive);
        assert_eq!(drive.marks(48, 3), [Ok(10), Ok(11), Err(Status::UnrecoveredReadError)], "dirty: {is_dirty}");
    }
}
