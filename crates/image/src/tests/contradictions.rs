//! Tags of zeros with other data: an error where blocks of zeros are holes in the data, and allowed
//! elsewhere.

use zonda_zoned::{Blocks, Geometry, Lba, LbaRange, Operation, Prng, Status};

use crate::testing::{Disk, Drive, Fault, spec};
use crate::{FileOperation, Finding, ImageFile, check, repair};

const LOST: Result<u8, Status> = Err(Status::UnrecoveredReadError);

/// Two conventional zones, which are written in place, or journaled if blocks have metadata.
fn conventional(metadata_bytes: u16) -> Geometry {
    Geometry { conventional_zone_count: 2, zone_size_blocks: Blocks(12), metadata_bytes, ..Geometry::tiny() }
}

fn deallocate(start: u64, blocks: u64) -> Operation {
    Operation::Deallocate { ranges: [LbaRange { start: Lba(start), blocks: Blocks(blocks) }].into() }
}

/// The blocks that a check finds damaged.
fn damaged(disk: &Disk) -> Vec<u64> {
    let report = check(&mut disk.clone(), &mut |_| {}).unwrap();
    let blocks = report.findings.iter().map(|finding| match finding {
        Finding::Block { lba, .. } => lba.0,
        other => panic!("{other}"),
    });
    blocks.collect()
}

/// The image that a repair makes, and the blocks that it could not read.
fn repaired(disk: &Disk) -> (Disk, Vec<u64>) {
    let mut new = Disk::new();
    let report = repair(&mut disk.clone(), &mut new, [9; 16], &mut |_| {}).unwrap();
    (new, report.unreadable.iter().flat_map(|run| run.start.0..run.end.0).collect())
}

/// Four blocks, of which the middle two are deallocated; then one of these is written. Its tags are
/// those before that.
fn with_older_tags(geometry: Geometry, clean: bool) -> Disk {
    let mut drive = Drive::create(&spec(geometry));
    assert!(drive.write(0, 4, 1).is_success());
    assert!(drive.run(deallocate(1, 2)).status.is_success());
    let mut disk = drive.close();
    let tags = disk.bytes(ImageFile::Tags).clone();
    let mut drive = Drive::open(disk);
    assert!(drive.write(1, 1, 50).is_success());
    assert!(drive.run(Operation::Flush).status.is_success());
    let mut disk = if clean { drive.close() } else { drive.kill(&mut Prng::new(1)) };
    *disk.bytes(ImageFile::Tags) = tags;
    disk
}

#[test]
fn older_tags_of_zeros_beside_newer_data_are_an_error_in_reads_checks_and_repairs() {
    for clean in [true, false] {
        let disk = with_older_tags(conventional(0), clean);
        assert_eq!(damaged(&disk), [1], "clean shutdown: {clean}");
        assert_eq!(Drive::open(disk.clone()).marks(0, 4), [Ok(1), LOST, Ok(0), Ok(4)], "clean shutdown: {clean}");
        let (new, unreadable) = repaired(&disk);
        assert_eq!(unreadable, [1]);
        assert_eq!(damaged(&new), [1]);
        assert_eq!(Drive::open(new).marks(0, 4), [Ok(1), LOST, Ok(0), Ok(4)]);
    }
}

#[test]
fn an_interrupted_overwrite_of_a_block_that_contradicts_a_tag_of_zeros_leaves_an_error_or_the_new_contents() {
    for seed in 0..100 {
        let mut prng = Prng::new(seed);
        let mut drive = Drive::open(with_older_tags(conventional(0), true));
        assert_eq!(drive.marks(1, 1), [LOST]);
        drive.submit(drive.write_of(1, 1, 70));
        for _ in 0..prng.below(6) {
            drive.step_any(&mut prng);
        }
        let disk = drive.kill(&mut prng);
        let found = Drive::open(disk.clone()).marks(1, 1)[0];
        assert!(found == LOST || found == Ok(70), "seed {seed}: {found:?}");
        assert_eq!(Drive::open(repaired(&disk).0).marks(1, 1), [found], "seed {seed}");
    }
}

#[test]
fn blocks_whose_data_an_older_journal_with_zeros_discards_are_counted() {
    let mut drive = Drive::create(&spec(conventional(0)));
    assert!(drive.run(deallocate(0, 4)).status.is_success());
    let old = drive.kill(&mut Prng::new(1));
    let mut drive = Drive::open(old.clone());
    assert!(drive.write(0, 4, 50).is_success());
    assert!(drive.run(Operation::Flush).status.is_success());
    let mut disk = drive.close();
    for file in [ImageFile::Tags, ImageFile::Journal, ImageFile::State] {
        *disk.bytes(file) = old.clone().bytes(file).clone();
    }
    // It looks like a kill before the holes were punched.
    assert_eq!(check(&mut disk.clone(), &mut |_| {}).unwrap().accepted_blocks, 4);
    let report = repair(&mut disk.clone(), &mut Disk::new(), [9; 16], &mut |_| {}).unwrap();
    assert_eq!((report.accepted_blocks, report.unreadable_blocks), (4, 0));
    let mut drive = Drive::open(disk);
    assert_eq!((drive.report.accepted_blocks, drive.marks(0, 1)), (4, vec![Ok(0)]));
}

#[test]
fn zeros_over_an_overwritten_block_that_got_an_older_tag_of_zeros_are_no_earlier_contents() {
    for is_read in [false, true] {
        let mut drive = Drive::open(with_older_tags(conventional(0), true));
        if is_read {
            assert_eq!(drive.marks(1, 1), [LOST]);
        }
        assert!(drive.write(1, 2, 70).is_success());
        let mut disk = drive.kill(&mut Prng::new(1));
        disk.bytes(ImageFile::Data)[512..1536].fill(0);
        assert_eq!(damaged(&disk), [1], "the other block was zeros before");
        let (new, unreadable) = repaired(&disk);
        assert_eq!(unreadable, [1]);
        for disk in [disk, new] {
            assert_eq!(Drive::open(disk).marks(0, 4), [Ok(1), LOST, Ok(0), Ok(4)]);
        }
    }
}

#[test]
fn a_read_of_several_blocks_fails_if_data_contradict_one_tag_of_zeros() {
    let mut drive = Drive::open(with_older_tags(conventional(0), true));
    assert_eq!(drive.read(0, 4).unwrap_err(), Status::UnrecoveredReadError);
    assert!(drive.write(1, 1, 60).is_success());
    assert_eq!(drive.marks(0, 4), [Ok(1), Ok(60), Ok(0), Ok(4)]);
}

#[test]
fn data_may_lie_under_tags_of_zeros_if_contents_are_journaled() {
    let mut drive = Drive::create(&spec(conventional(8)));
    assert!(drive.write(0, 4, 1).is_success());
    assert!(drive.run(deallocate(1, 2)).status.is_success());
    let mut disk = drive.close();
    assert_eq!(disk.bytes(ImageFile::Data)[512], 2, "a deallocation writes tags alone");
    assert_eq!(damaged(&disk), [0; 0]);
    let (new, unreadable) = repaired(&disk);
    assert_eq!((unreadable, damaged(&new)), (vec![], vec![]));
    for disk in [disk, new] {
        assert_eq!(Drive::open(disk).marks(0, 4), [Ok(1), Ok(0), Ok(0), Ok(4)]);
    }
}

#[test]
fn deallocated_blocks_of_a_sequential_zone_may_keep_their_data() {
    let mut drive = Drive::create(&spec(conventional(0)));
    let zone = drive.image.geometry().zone_size_blocks.0 * 2;
    assert!(drive.write(zone, 4, 1).is_success());
    assert!(drive.run(deallocate(zone + 1, 2)).status.is_success());
    let disk = drive.close();
    assert_eq!(damaged(&disk), [0; 0]);
    assert_eq!(Drive::open(disk).marks(zone, 4), [Ok(1), Ok(0), Ok(0), Ok(4)]);
}

/// Kills the drive when this operation has been carried out on one of the files.
fn killed_after(mut drive: Drive, operation: Operation, done: ImageFile) -> Disk {
    drive.submit(operation);
    let next = |drive: &Drive, wanted: fn(&FileOperation) -> bool| {
        drive.out.iter().position(|(command, _)| wanted(&command.operation))
    };
    let is_of_intent = |operation: &FileOperation| {
        operation.file() == ImageFile::Journal || matches!(operation, FileOperation::Read { .. })
    };
    while let Some(first) = next(&drive, is_of_intent) {
        drive.step(first);
    }
    let of_file = drive.out.iter().position(|(command, _)| command.operation.file() == done);
    let change = of_file.expect("its intent is recorded");
    drive.step(change);
    drive.disk
}

#[test]
fn a_crash_between_a_tag_of_zeros_and_its_hole_leaves_no_contradiction() {
    let mut drive = Drive::create(&spec(conventional(0)));
    assert!(drive.write(0, 4, 1).is_success());
    assert!(drive.run(Operation::Flush).status.is_success());
    let disk = killed_after(drive, deallocate(1, 2), ImageFile::Tags);
    assert_eq!(damaged(&disk), [0; 0]);
    let (new, unreadable) = repaired(&disk);
    assert_eq!((unreadable, damaged(&new)), (vec![], vec![]));
    let mut drive = Drive::open(disk);
    assert_eq!(drive.marks(0, 4), [Ok(1), Ok(0), Ok(0), Ok(4)]);
    assert_eq!(damaged(&drive.close()), [0; 0]);
    assert_eq!(Drive::open(new).marks(0, 4), [Ok(1), Ok(0), Ok(0), Ok(4)]);
}

#[test]
fn a_deallocation_whose_tags_cannot_be_written_leaves_the_data() {
    let mut drive = Drive::create(&spec(conventional(0)));
    assert!(drive.write(0, 4, 1).is_success());
    assert!(drive.run(Operation::Flush).status.is_success());
    drive.disk.fault = Some(Fault::File(ImageFile::Tags));
    assert_eq!(drive.run(deallocate(1, 2)).status, Status::WriteFault);
    assert_eq!(drive.marks(0, 4), [Ok(1), Ok(2), Ok(3), Ok(4)]);
    drive.disk.fault = None;
    let disk = drive.kill(&mut Prng::new(1));
    assert_eq!(damaged(&disk), [0; 0]);
    assert_eq!(Drive::open(disk).marks(0, 4), [Ok(1), Ok(2), Ok(3), Ok(4)]);
}

#[test]
fn zeros_over_an_overwritten_block_that_had_lost_its_tag_are_no_earlier_contents() {
    for is_read in [false, true] {
        let mut drive = Drive::create(&spec(conventional(0)));
        assert!(drive.write(0, 4, 1).is_success());
        let mut disk = drive.close();
        disk.bytes(ImageFile::Tags)[8..16].fill(0);
        let mut drive = Drive::open(disk);
        if is_read {
            assert_eq!(drive.marks(1, 1), [LOST]);
        }
        assert!(drive.write(0, 3, 50).is_success());
        let mut disk = drive.kill(&mut Prng::new(1));
        disk.bytes(ImageFile::Data)[512..1024].fill(0);
        assert_eq!(damaged(&disk), [1]);
        let (new, unreadable) = repaired(&disk);
        assert_eq!(unreadable, [1]);
        for disk in [disk, new] {
            assert_eq!(Drive::open(disk).marks(0, 4), [Ok(50), LOST, Ok(52), Ok(4)]);
        }
    }
}

#[test]
fn a_crash_between_data_and_their_tag_leaves_the_old_zeros_or_the_data() {
    for done in [ImageFile::Data, ImageFile::Tags] {
        let mut drive = Drive::create(&spec(conventional(0)));
        assert!(drive.write(0, 4, 1).is_success());
        assert!(drive.run(deallocate(1, 2)).status.is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        let operation = drive.write_of(1, 2, 50);
        let disk = killed_after(drive, operation, done);
        assert_eq!(damaged(&disk), [0; 0], "only the change of {done} was made");
        let mut drive = Drive::open(disk);
        let middle = if done == ImageFile::Data { [Ok(50), Ok(51)] } else { [Ok(0), Ok(0)] };
        assert_eq!(drive.marks(1, 2), middle, "only the change of {done} was made");
        assert_eq!(damaged(&drive.close()), [0; 0]);
    }
}

#[test]
fn a_write_of_zeros_whose_hole_fails_leaves_readable_blocks() {
    let mut drive = Drive::create(&spec(conventional(0)));
    assert!(drive.write(0, 4, 1).is_success());
    drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
    assert_eq!(drive.run(deallocate(1, 2)).status, Status::WriteFault);
    for (mark, old) in drive.marks(1, 2).into_iter().zip([2, 3]) {
        assert!(mark == Ok(0) || mark == Ok(old), "{mark:?}");
    }
    assert_eq!(damaged(&drive.close()), [0; 0]);
}
