//! File systems that are full, and have free space again.

use zonda_zoned::{
    Blocks, Geometry, Lba, LbaRange, Operation, Prng, Status, ZoneAction, ZoneIndex, ZoneState, ZrwaGeometry,
};

use crate::testing::{Drive, Fault, spec};
use crate::{FileCommand, FileOperation, ImageFile, open};

fn plain() -> Geometry {
    Geometry { metadata_bytes: 0, conventional_zone_count: 0, ..Geometry::tiny() }
}

/// Conventional zones whose blocks are journaled.
fn logged() -> Geometry {
    conventional(8)
}

fn conventional(metadata_bytes: u16) -> Geometry {
    let (zone_size_blocks, zone_capacity_blocks) = (Blocks(16), Blocks(16));
    Geometry { metadata_bytes, conventional_zone_count: 2, zone_size_blocks, zone_capacity_blocks, ..Geometry::tiny() }
}

#[test]
fn zones_whose_first_block_finds_no_space_stay_writable() {
    let geometry = plain();
    let mut drive = Drive::create(&spec(geometry.clone()));
    let zones: Vec<u64> = (0..u64::from(geometry.zone_count)).map(|zone| zone * geometry.zone_size_blocks.0).collect();
    drive.disk.fault = Some(Fault::NoSpace(None));
    for &start in &zones {
        assert_eq!(drive.write(start, 1, 1), Status::CapacityExceeded);
    }
    // Commands that need no space succeed meanwhile, and after a restart.
    for restart in [false, true] {
        if restart {
            let fault = drive.disk.fault;
            drive = Drive::open(drive.kill(&mut Prng::new(3)));
            drive.disk.fault = fault;
        }
        for (zone, &start) in (0..).map(ZoneIndex).zip(&zones) {
            assert_eq!(
                drive.image.zones().zone(zone).state,
                if restart { ZoneState::Empty } else { drive.image.zones().zone(zone).state }
            );
            assert_ne!(drive.image.zones().zone(zone).state, ZoneState::ReadOnly);
            assert!(drive.manage(ZoneAction::Reset, start).is_success());
        }
        assert!(drive.run(Operation::Flush).status.is_success());
    }
    drive.disk.fault = None;
    for &start in &zones {
        assert!(drive.write(start, 1, 1).is_success());
        assert!(drive.manage(ZoneAction::Finish, start).is_success());
    }
}

#[test]
fn contents_are_journaled_only_if_their_space_is_allocated() {
    let mut drive = Drive::create(&spec(logged()));
    assert!(drive.write(2, 1, 5).is_success());
    drive.disk.fault = Some(Fault::NoSpace(None));
    assert!(drive.write(2, 1, 6).is_success(), "an allocated block is overwritten");
    assert_eq!(drive.write(8, 8, 20), Status::CapacityExceeded);
    assert_eq!(drive.marks(2, 1), [Ok(6)]);
    assert_eq!(drive.marks(8, 8), [Ok(0); 8]);
    drive.disk.fault = None;
    assert!(drive.write(8, 8, 20).is_success());
}

#[test]
fn an_image_with_journaled_contents_opens_on_a_full_file_system_after_a_kill() {
    for seed in 0..40 {
        let mut drive = Drive::create(&spec(logged()));
        assert!(drive.write(0, 2, 1).is_success());
        drive.submit(drive.write_of(3, 8, 30));
        drive.submit(drive.write_of(1, 4, 60));
        let mut prng = Prng::new(seed);
        for _ in 0..prng.below(12) {
            drive.step_any(&mut prng);
        }
        let mut disk = drive.kill(&mut prng);
        disk.fault = Some(Fault::NoSpace(None));
        open(&mut disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut drive = Drive::open(disk);
        assert_eq!(drive.marks(0, 1), [Ok(1)]);
        assert!(drive.marks(0, 12).iter().all(Result::is_ok));
    }
}

/// A drive that was killed while it wrote these blocks, and opened on a full file system.
fn killed_and_opened_without_space(mut drive: Drive, lbas: std::ops::Range<u64>, seed: u64) -> Drive {
    drive.submit(drive.write_of(lbas.start, lbas.end - lbas.start, 30));
    let mut prng = Prng::new(seed);
    for _ in 0..prng.below(8) {
        drive.step_any(&mut prng);
    }
    let mut disk = drive.kill(&mut prng);
    disk.fault = Some(Fault::NoSpace(None));
    let mut files = disk.clone();
    let (_, report) = open(&mut files).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let mut drive = Drive::open(disk);
    assert_eq!(drive.report, report);
    drive.disk.fault = None;
    drive
}

#[test]
fn blocks_in_place_whose_tags_have_no_space_are_old_or_new_after_a_kill() {
    let mut dropped_blocks = 0;
    for seed in 0..40 {
        let mut drive = killed_and_opened_without_space(Drive::create(&spec(conventional(0))), 2..6, seed);
        dropped_blocks += drive.report.dropped_blocks;
        for (mark, found) in (30..).zip(drive.marks(2, 4)) {
            assert!(found == Ok(0) || found == Ok(mark), "seed {seed}: {found:?}");
        }
        let before = drive.marks(0, 16);
        let mut drive = Drive::open(drive.kill(&mut Prng::new(seed)));
        assert_eq!(drive.marks(0, 16), before, "seed {seed}");
        assert!(drive.write(2, 4, 60).is_success());
    }
    assert!(dropped_blocks > 0);
}

#[test]
fn blocks_of_a_zrwa_whose_tags_have_no_space_are_old_or_new_after_a_kill() {
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(8),
        flush_granularity_blocks: Blocks(1),
        resources: 1,
        explicit_flush: true,
    };
    // The tags of blocks 508 to 511 are in the first page, those behind in the second.
    let (zone_size_blocks, zone_capacity_blocks) = (Blocks(1024), Blocks(1024));
    let geometry = Geometry { zrwa: Some(zrwa), zone_size_blocks, zone_capacity_blocks, ..plain() };
    for seed in 0..40 {
        let mut drive = Drive::create(&spec(geometry.clone()));
        assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
        for start in (0..504).step_by(8) {
            assert!(drive.write(start, 8, 1).is_success());
        }
        assert!(drive.write(504, 6, 1).is_success());
        let mut drive = killed_and_opened_without_space(drive, 510..518, seed);
        for (mark, found) in (30..).zip(drive.marks(510, 8)) {
            assert!(found == Ok(0) || found == Ok(mark), "seed {seed}: {found:?}");
        }
        assert!(drive.marks(504, 6).iter().all(Result::is_ok));
        let before = drive.observe();
        let mut drive = Drive::open(drive.kill(&mut Prng::new(seed)));
        assert_eq!(drive.observe(), before, "seed {seed}");
    }
}

#[test]
fn a_block_without_its_tag_whose_earlier_contents_are_lost_does_not_become_zeros() {
    let mut drive = Drive::create(&spec(conventional(0)));
    assert!(drive.write(2, 1, 5).is_success());
    let mut disk = drive.close();
    // All tags are lost, so that block 2 is unreadable.
    disk.lose_file(ImageFile::Tags);
    let mut drive = Drive::open(disk);
    drive.disk.fault = Some(Fault::NoSpace(Some(ImageFile::Tags)));
    drive.submit(drive.write_of(2, 1, 9));
    while drive.out.iter().all(|(command, _)| !is_write_of(command, ImageFile::Data)) {
        drive.step(0);
    }
    let at = drive.out.iter().position(|(command, _)| is_write_of(command, ImageFile::Data)).expect("it was found");
    drive.step(at);
    drive.out.clear();
    let mut disk = drive.kill(&mut Prng::new(1));
    disk.fault = Some(Fault::NoSpace(None));
    let refusal = open(&mut disk).map(|_| ()).unwrap_err();
    assert_eq!(refusal.to_string(), "cannot write tags.zonda: the file system is full");
    disk.fault = None;
    assert_eq!(Drive::open(disk).marks(2, 1), [Ok(9)]);
}

fn is_write_of(command: &FileCommand, file: ImageFile) -> bool {
    matches!(&command.operation, FileOperation::Write { file: written, .. } if *written == file)
}

#[test]
fn only_journaled_contents_may_need_space_after_a_power_loss_and_only_until_there_is_some() {
    for (metadata_bytes, is_refused_for_some) in [(0, false), (8, true)] {
        let mut refused = 0;
        for seed in 0..40 {
            let mut drive = Drive::create(&spec(conventional(metadata_bytes)));
            assert!(drive.write(2, 3, 30).is_success());
            assert!(drive.write(4, 3, 60).is_success());
            let mut disk = drive.lose_power(&mut Prng::new(seed));
            disk.fault = Some(Fault::NoSpace(None));
            let opened = open(&mut disk).map(|_| ());
            refused += u32::from(opened.is_err());
            disk.fault = None;
            let contents = Drive::open(disk).marks(2, 5);
            let is_allowed = (2..).zip(&contents).all(|(lba, found)| match found {
                Ok(mark) => [0, 28 + lba, 56 + lba].contains(mark),
                Err(_) => false,
            });
            assert!(is_allowed, "seed {seed}: {contents:?}");
        }
        assert_eq!(refused > 0, is_refused_for_some, "{metadata_bytes} bytes of metadata");
    }
}

#[test]
fn journaled_contents_of_an_offline_zone_need_no_space() {
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(8),
        flush_granularity_blocks: Blocks(1),
        resources: 1,
        explicit_flush: true,
    };
    let geometry = Geometry { zrwa: Some(zrwa), conventional_zone_count: 0, ..logged() };
    let mut drive = Drive::create(&spec(geometry));
    assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
    assert!(drive.write(0, 2, 1).is_success());
    // Its contents are in the journal, and its data and tags become holes.
    drive.image.degrade(ZoneIndex(0), ZoneState::Offline);
    drive.collect();
    drive.complete_all();
    let mut disk = drive.kill(&mut Prng::new(1));
    disk.fault = Some(Fault::NoSpace(None));
    let mut drive = Drive::open(disk);
    assert_eq!(drive.image.zones().zone(ZoneIndex(0)).state, ZoneState::Offline);
    assert_eq!(drive.marks(0, 1), [Err(Status::ZoneIsOffline)]);
}

#[test]
fn an_overwrite_that_finds_no_space_leaves_the_old_contents() {
    let geometry = conventional(0);
    // Data or tags of a block that was never written find no space.
    for file in [ImageFile::Data, ImageFile::Tags] {
        let mut drive = Drive::create(&spec(geometry.clone()));
        drive.disk.fault = Some(Fault::NoSpace(Some(file)));
        assert_eq!(drive.write(1, 2, 9), Status::CapacityExceeded);
        assert_eq!(drive.marks(0, 4), [Ok(0); 4], "{file}");
        assert!(drive.run(Operation::Flush).status.is_success());
        drive.disk.fault = None;
        let mut drive = Drive::open(drive.kill(&mut Prng::new(1)));
        assert_eq!(drive.marks(0, 4), [Ok(0); 4], "{file}");
        assert_eq!(drive.write(1, 2, 9), Status::Success);
        assert_eq!(drive.image.zones().zone(ZoneIndex(0)).written_blocks, Blocks(geometry.zone_capacity_blocks.0));
    }
}

#[test]
fn blocks_are_deallocated_without_space_whether_they_were_written_or_not() {
    let geometry = Geometry { zone_size_blocks: Blocks(1024), zone_capacity_blocks: Blocks(1024), ..conventional(0) };
    let mut drive = Drive::create(&spec(geometry));
    assert!(drive.write(4, 4, 1).is_success());
    assert!(drive.write(600, 2, 60).is_success());
    drive.disk.fault = Some(Fault::NoSpace(None));
    // The tags of block 1024 on have no space; those before do.
    for (start, blocks) in [(1024, 8), (0, 8), (1020, 8), (512, 1024)] {
        let ranges = [LbaRange { start: Lba(start), blocks: Blocks(blocks) }].into();
        assert!(drive.run(Operation::Deallocate { ranges }).status.is_success(), "from block {start}");
        assert!(drive.run(Operation::Flush).status.is_success());
    }
    let zeros = Operation::WriteZeroes { start: Lba(1500), blocks: Blocks(4) };
    assert!(drive.run(zeros).status.is_success());
    assert_eq!(drive.write(1500, 1, 7), Status::CapacityExceeded);
    for restart in [false, true] {
        if restart {
            drive = Drive::open(drive.kill(&mut Prng::new(3)));
        }
        assert_eq!(drive.marks(0, 9), [Ok(0); 9]);
        assert_eq!(drive.marks(600, 2), [Ok(0); 2]);
        assert_eq!(drive.marks(1500, 4), [Ok(0); 4]);
    }
}

#[test]
fn a_deallocation_whose_hole_cannot_be_made_fails() {
    let mut drive = Drive::create(&spec(conventional(0)));
    assert!(drive.write(0, 4, 1).is_success());
    drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
    let ranges = [LbaRange { start: Lba(0), blocks: Blocks(4) }].into();
    assert_eq!(drive.run(Operation::Deallocate { ranges }).status, Status::WriteFault);
}

#[test]
fn zeros_that_move_the_pointer_of_a_zrwa_and_have_no_space_for_their_tags_fail() {
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(4),
        flush_granularity_blocks: Blocks(1),
        resources: 1,
        explicit_flush: true,
    };
    let geometry = Geometry { zrwa: Some(zrwa), ..plain() };
    let mut drive = Drive::create(&spec(geometry));
    assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
    drive.disk.fault = Some(Fault::NoSpace(None));
    // The tags show how far a zone with a ZRWA is written, so zeros without tags are lost with the process.
    let zeros = Operation::WriteZeroes { start: Lba(4), blocks: Blocks(2) };
    let status = drive.run(zeros).status;
    let before = drive.image.zones().zone(ZoneIndex(0)).write_pointer_blocks;
    drive.disk.fault = None;
    let drive = Drive::open(drive.kill(&mut Prng::new(1)));
    let after = drive.image.zones().zone(ZoneIndex(0)).write_pointer_blocks;
    assert!(status == Status::CapacityExceeded || after == before, "{status}, the pointer was {before} and is {after}");
    assert_eq!(status, Status::CapacityExceeded);
}

#[test]
fn a_read_that_has_begun_behind_a_failed_write_ends_before_its_block_is_cleared() {
    let mut drive = Drive::create(&spec(plain()));
    drive.submit(drive.write_of(0, 1, 1));
    let first = drive.out.len();
    drive.submit(drive.write_of(1, 1, 2));
    // The second write is on file, so its block can be read; the first one is not.
    while drive.out.len() > first {
        drive.step(first);
    }
    drive.submit(Operation::Read { start: Lba(1), blocks: Blocks(1) });
    let data = drive.out.iter().position(|(command, _)| is_read_of(command, ImageFile::Data)).unwrap();
    drive.step(data);
    drive.disk.fault = Some(Fault::Full);
    for _ in 0..first {
        drive.step(0);
    }
    drive.disk.fault = None;
    let is_hole = |(command, _): &(FileCommand, u64)| matches!(command.operation, FileOperation::PunchHole { .. });
    assert!(!drive.out.iter().any(is_hole), "the tags are still being read");
    let statuses: Vec<Status> = drive.complete_all().iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::Success, Status::CapacityExceeded, Status::CapacityExceeded]);
    assert_eq!(drive.image.zones().zone(ZoneIndex(0)).write_pointer_blocks, Blocks(0));
}

fn is_read_of(command: &FileCommand, file: ImageFile) -> bool {
    matches!(command.operation, FileOperation::Read { .. }) && command.operation.file() == file
}
