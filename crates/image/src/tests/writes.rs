//! Writes that fail, and zones that fail.

use zonda_zoned::{Blocks, Lba, LbaRange, Operation, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use super::promises::{drive, is_write, killed, mixed, pointer, state, step};
use crate::testing::Fault;
use crate::{FileOperation, ImageFile};

#[test]
fn a_failed_zone_stays_so_even_if_the_journal_fails_at_that_moment() {
    for fault in [Fault::Write(ImageFile::Journal, 0), Fault::Sync(ImageFile::Journal, 0)] {
        for behind_a_reset in [false, true] {
            let mut drive = drive(mixed());
            drive.write(48, 2, 1);
            drive.disk.fault = Some(fault);
            if behind_a_reset {
                drive.submit(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(48)) });
            }
            drive.image.degrade(ZoneIndex(3), ZoneState::ReadOnly);
            drive.collect();
            drive.complete_all();
            drive.image.check_invariants();
            assert_eq!(state(&drive, 3), ZoneState::ReadOnly);
            let mut drive = killed(drive);
            assert_eq!((state(&drive, 3), drive.marks(48, 2)), (ZoneState::ReadOnly, vec![Ok(1), Ok(2)]));
        }
    }
}

#[test]
fn bad_tags_that_cannot_be_cleared_make_a_zone_read_only() {
    let mut drive = drive(mixed());
    drive.write(48, 1, 1);
    drive.submit(drive.write_of(49, 1, 2));
    step(&mut drive, is_write(ImageFile::Tags));
    drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
    step(&mut drive, is_write(ImageFile::Data));
    drive.disk.fault = Some(Fault::Write(ImageFile::Tags, 0));
    drive.complete_all();
    assert_eq!((state(&drive, 3), pointer(&drive, 3)), (ZoneState::ReadOnly, 1));
    let mut drive = killed(drive);
    assert_eq!((state(&drive, 3), drive.marks(48, 2)), (ZoneState::ReadOnly, vec![Ok(1), Ok(0)]));
}

#[test]
fn a_deallocation_behind_a_failed_write_leaves_no_tag_there() {
    let mut drive = drive(mixed());
    drive.write(48, 1, 1);
    drive.submit(drive.write_of(49, 1, 2));
    drive.submit(drive.write_of(50, 2, 3));
    drive.step(3);
    drive.step(2);
    let ranges = Box::new([LbaRange { start: Lba(50), blocks: Blocks(2) }]);
    drive.submit(Operation::Deallocate { ranges: ranges.clone() });
    drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
    step(&mut drive, is_write(ImageFile::Data));
    drive.submit(Operation::Deallocate { ranges });
    while !drive.out.is_empty() {
        let last = drive.out.len() - 1;
        drive.step(last);
    }
    drive.poll();
    assert_eq!(pointer(&drive, 3), 1);
    assert_eq!(drive.write(49, 1, 9), Status::Success);
    let mut drive = killed(drive);
    assert_eq!((pointer(&drive, 3), drive.marks(48, 3)), (2, vec![Ok(1), Ok(9), Ok(0)]));
}

#[test]
fn an_extension_without_a_random_write_area_is_recorded_and_changes_no_block() {
    for zrwa in [true, false] {
        let mut drive = drive(mixed());
        drive.submit(Operation::ManageZones {
            action: ZoneAction::SetDescriptorExtension { extension: vec![9; 64].into(), zrwa },
            target: ZoneTarget::Zone(Lba(64)),
        });
        let mut holes = 0;
        while !drive.out.is_empty() {
            holes += usize::from(matches!(drive.out[0].0.operation, FileOperation::PunchHole { .. }));
            drive.step(0);
        }
        assert_eq!(drive.poll().len(), 1);
        assert_eq!(holes > 0, zrwa, "{holes} holes are punched");
    }
}
