//! A crash makes only blocks uncertain that were being overwritten.

use std::collections::BTreeSet;

use zonda_zoned::{
    BlockBuffer, Blocks, Geometry, Lba, LbaRange, Operation, Payload, Prng, Status, ZoneAction, ZoneIndex, ZrwaGeometry,
};

use crate::format::Generation;
use crate::format::record::{Kind, MARKS_BYTES, Place, Record};
use crate::format::superblock::COPY_BYTES;
use crate::testing::{Disk, Drive, Fault, spec};
use crate::{FileOperation, Finding, ImageFile, check};

const BLOCK: u64 = 512;

/// One conventional zone of 512 blocks, which are overwritten in place without being journaled.
fn conventional() -> Geometry {
    Geometry {
        metadata_bytes: 0,
        conventional_zone_count: 1,
        zone_size_blocks: Blocks(512),
        zone_capacity_blocks: Blocks(512),
        max_transfer_blocks: Blocks(512),
        ..Geometry::tiny()
    }
}

fn with_zrwa() -> Geometry {
    let zrwa = ZrwaGeometry {
        size_blocks: Blocks(8),
        flush_granularity_blocks: Blocks(1),
        resources: 1,
        explicit_flush: true,
    };
    Geometry {
        conventional_zone_count: 0,
        metadata_bytes: 0,
        zone_size_blocks: Blocks(16),
        zone_capacity_blocks: Blocks(16),
        zrwa: Some(zrwa),
        ..Geometry::tiny()
    }
}

/// Four bytes of a block of the first zone rot.
fn rot(disk: &mut Disk, block: u64) {
    disk.bytes(ImageFile::Data)[(block * BLOCK) as usize..][..4].copy_from_slice(b"rot!");
}

/// The blocks that a check finds damaged, and how many it accepts because of an intent.
fn checked(disk: &Disk) -> (Vec<u64>, u64) {
    let report = check(&mut disk.clone(), &mut |_| {}).unwrap();
    let blocks = report.findings.iter().map(|finding| match finding {
        Finding::Block { lba, .. } => lba.0,
        other => panic!("{other}"),
    });
    (blocks.collect(), report.accepted_blocks)
}

#[test]
fn rot_in_a_flushed_block_is_found_though_its_neighbour_was_being_overwritten() {
    let mut drive = Drive::create(&spec(conventional()));
    assert!(drive.write(0, 100, 1).is_success());
    let mut drive = Drive::open(drive.close());
    assert!(drive.write(200, 1, 7).is_success());
    let mut disk = drive.kill(&mut Prng::new(1));
    rot(&mut disk, 5);
    assert_eq!(checked(&disk), (vec![5], 0));
    let mut drive = Drive::open(disk);
    assert_eq!(drive.marks(5, 2), [Err(Status::UnrecoveredReadError), Ok(7)]);
    assert_eq!(drive.report.accepted_blocks, 0);
}

#[test]
fn a_check_reports_how_many_blocks_it_accepts_as_they_are() {
    let mut drive = Drive::create(&spec(conventional()));
    assert!(drive.write(0, 100, 1).is_success());
    assert!(drive.run(Operation::Flush).status.is_success());
    assert!(drive.write(40, 3, 1).is_success());
    assert!(drive.write(40, 3, 7).is_success());
    let mut disk = drive.kill(&mut Prng::new(1));
    rot(&mut disk, 41);
    rot(&mut disk, 43);
    assert_eq!(checked(&disk), (vec![43], 1));
    let mut drive = Drive::open(disk);
    assert_eq!(drive.marks(40, 4), [Ok(7), Ok(b'r'), Ok(9), Err(Status::UnrecoveredReadError)]);
    assert_eq!(drive.report.accepted_blocks, 1);
}

#[test]
fn rot_is_found_in_a_block_whose_overwrite_was_in_flight_when_a_flush_began() {
    for (is_flushed_before, is_overwritten_after) in [(false, false), (true, false), (true, true)] {
        let mut drive = Drive::create(&spec(conventional()));
        if is_flushed_before {
            assert!(drive.write(5, 1, 1).is_success());
            assert!(drive.run(Operation::Flush).status.is_success());
        }
        assert!(drive.write(5, 1, 2).is_success());
        drive.submit(drive.write_of(5, 1, 3));
        drive.submit(Operation::Flush);
        assert!(drive.complete_all().iter().all(|completion| completion.status.is_success()));
        if is_overwritten_after {
            assert!(drive.write(5, 1, 4).is_success());
        }
        let mut disk = drive.kill(&mut Prng::new(1));
        rot(&mut disk, 5);
        assert_eq!(checked(&disk), (vec![5], 0));
        let mut drive = Drive::open(disk);
        assert_eq!(drive.marks(5, 1), [Err(Status::UnrecoveredReadError)]);
    }
}

#[test]
fn blocks_that_are_overwritten_while_a_flush_runs_are_old_or_new_after_a_power_loss() {
    for seed in 0..300 {
        let mut prng = Prng::new(seed);
        let mut drive = Drive::create(&spec(conventional()));
        assert!(drive.write(5, 2, 1).is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        assert!(drive.write(5, 2, 10).is_success());
        drive.submit(drive.write_of(5, 2, 20));
        let flush = drive.submit(Operation::Flush);
        let mut is_flushed = false;
        for _ in 0..prng.below(14) {
            drive.step_any(&mut prng);
            is_flushed |= drive.poll().iter().any(|completion| completion.id == flush);
        }
        let mut drive =
            Drive::open(if prng.chance(1, 2) { drive.kill(&mut prng) } else { drive.lose_power(&mut prng) });
        for (block, mark) in (0..).zip(drive.marks(5, 2)) {
            let possible = if is_flushed { &[10, 20][..] } else { &[1, 10, 20] };
            let is_possible = possible.iter().any(|first| mark == Ok(first + block));
            assert!(is_possible, "seed {seed}: block {block} is {mark:?}, flushed: {is_flushed}");
        }
    }
}

#[test]
fn blocks_zeroed_while_a_flush_runs_and_written_again_are_readable_after_a_power_loss() {
    for seed in 0..300 {
        let mut prng = Prng::new(seed);
        let mut drive = Drive::create(&spec(conventional()));
        assert!(drive.write(5, 2, 1).is_success());
        drive.submit(Operation::WriteZeroes { start: Lba(5), blocks: Blocks(2) });
        drive.submit(Operation::Flush);
        drive.submit(drive.write_of(5, 2, 20));
        for _ in 0..10 + prng.below(14) {
            drive.step_any(&mut prng);
        }
        let mut drive = Drive::open(drive.lose_power(&mut prng));
        for (block, mark) in (0..).zip(drive.marks(5, 2)) {
            let is_possible = mark == Ok(0) || [1, 20].iter().any(|first| mark == Ok(first + block));
            assert!(is_possible, "seed {seed}: block {block} is {mark:?}");
        }
    }
}

#[test]
fn damage_that_a_read_has_found_is_not_accepted_after_a_kill() {
    for is_overwritten in [false, true] {
        let mut drive = Drive::create(&spec(conventional()));
        assert!(drive.write(4, 3, 1).is_success());
        assert!(drive.write(4, 3, 10).is_success());
        rot(&mut drive.disk, 5);
        assert_eq!(drive.marks(4, 3), [Ok(10), Err(Status::UnrecoveredReadError), Ok(12)]);
        if is_overwritten {
            drive = overwritten_in_part(drive, 5, false, true);
        } else {
            let disk = drive.kill(&mut Prng::new(1));
            assert_eq!(checked(&disk), (vec![5], 0));
            drive = Drive::open(disk);
        }
        assert_eq!(drive.marks(4, 3), [Ok(10), Err(Status::UnrecoveredReadError), Ok(12)]);
        assert!(drive.write(5, 1, 50).is_success());
        assert_eq!(drive.marks(4, 3), [Ok(10), Ok(50), Ok(12)]);
    }
}

#[test]
fn damage_that_is_read_again_and_again_is_recorded_once() {
    let mut drive = Drive::create(&spec(conventional()));
    for mark in [1, 2] {
        assert!(drive.write(4, 1, mark).is_success());
    }
    rot(&mut drive.disk, 4);
    let mut journals = Vec::new();
    for _ in 0..3 {
        journals.push(drive.disk.bytes(ImageFile::Journal).clone());
        assert_eq!(drive.marks(4, 1), [Err(Status::UnrecoveredReadError)]);
    }
    assert_ne!(journals[0], journals[1]);
    assert_eq!(journals[1], journals[2]);
    assert_eq!(&journals[2], drive.disk.bytes(ImageFile::Journal));
    // New damage of the block is recorded after it was overwritten.
    assert!(drive.write(4, 1, 3).is_success());
    assert!(drive.write(4, 1, 4).is_success());
    rot(&mut drive.disk, 4);
    assert_eq!(drive.marks(4, 1), [Err(Status::UnrecoveredReadError)]);
    let mut drive = Drive::open(drive.kill(&mut Prng::new(1)));
    assert_eq!(drive.marks(4, 1), [Err(Status::UnrecoveredReadError)]);
}

#[test]
fn a_trimmed_block_stays_zeros_when_overwrites_fail_for_lack_of_space_beside_a_flush() {
    // Blocks 8 to 15 are a page of the file system, which the trim frees.
    let zeros: Vec<Result<u8, Status>> = [4, 0, 0, 0, 0, 0, 0, 0, 0, 13].map(Ok).to_vec();
    for tries in 1..4 {
        let mut drive = Drive::create(&spec(conventional()));
        assert!(drive.write(4, 20, 1).is_success());
        let ranges = Box::new([LbaRange { start: Lba(8), blocks: Blocks(8) }]);
        assert!(drive.run(Operation::Deallocate { ranges }).status.is_success());
        drive.disk.fault = Some(Fault::NoSpace(None));
        for at in 0..tries {
            let write = drive.submit(drive.write_of(8, 8, 40 + at));
            if at > 0 {
                drive.submit(Operation::Flush);
            }
            for completion in drive.complete_all() {
                let expected = if completion.id == write { Status::CapacityExceeded } else { Status::Success };
                assert_eq!(completion.status, expected);
            }
            assert_eq!(drive.marks(7, 10), zeros);
        }
        drive.disk.fault = None;
        let mut drive = Drive::open(drive.kill(&mut Prng::new(1)));
        assert_eq!(drive.marks(7, 10), zeros);
    }
}

#[test]
fn rot_in_a_flushed_block_of_a_zrwa_is_found_and_an_overwrite_of_it_is_accepted() {
    for overwritten in [false, true] {
        let mut drive = Drive::create(&spec(with_zrwa()));
        assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
        assert!(drive.write(0, 6, 1).is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        assert!(drive.write(4, 1, 50).is_success());
        if overwritten {
            assert!(drive.write(2, 1, 30).is_success());
            assert!(drive.write(2, 1, 60).is_success());
        }
        let mut disk = drive.kill(&mut Prng::new(1));
        rot(&mut disk, 2);
        let (found, accepted) = if overwritten { (vec![], 1) } else { (vec![2], 0) };
        assert_eq!(checked(&disk), (found, accepted));
        let mut drive = Drive::open(disk);
        let expected = if overwritten { Ok(b'r') } else { Err(Status::UnrecoveredReadError) };
        assert_eq!(drive.marks(1, 5), [Ok(2), expected, Ok(4), Ok(50), Ok(6)]);
    }
}

#[test]
fn a_flush_persists_a_zrwa_only_up_to_a_write_that_is_in_flight() {
    let mut drive = Drive::create(&spec(with_zrwa()));
    assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
    assert!(drive.write(0, 6, 1).is_success());
    drive.submit(drive.write_of(3, 1, 90));
    let write = drive.out.len();
    drive.submit(Operation::Flush);
    while drive.out.len() > write {
        drive.step(write);
    }
    // The data of the write are on file, and the program is killed.
    let data = drive.out.iter().position(|(command, _)| command.operation.file() == ImageFile::Data);
    drive.step(data.expect("a block of a ZRWA that was not flushed is written at once"));
    let mut drive = Drive::open(drive.disk);
    assert_eq!(drive.marks(2, 3), [Ok(3), Ok(90), Ok(5)]);
}

#[test]
fn a_block_that_is_written_while_a_flush_persists_it_has_an_intent() {
    let mut drive = Drive::create(&spec(with_zrwa()));
    assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
    assert!(drive.write(0, 6, 1).is_success());
    drive.submit(Operation::Flush);
    let syncs = drive.out.len();
    drive.submit(drive.write_of(3, 1, 90));
    assert!(drive.out[syncs..].iter().all(|(command, _)| matches!(command.operation, FileOperation::Read { .. })));
    (0..=syncs).for_each(|_| drive.step(0));
    while let Some(next) = drive.out.iter().position(|(command, _)| command.operation.file() == ImageFile::Journal) {
        drive.step(next);
    }
    let data = drive.out.iter().position(|(command, _)| command.operation.file() == ImageFile::Data);
    drive.step(data.expect("the intent is recorded, so the write continues"));
    let mut drive = Drive::open(drive.disk);
    assert_eq!(drive.marks(2, 3), [Ok(3), Ok(90), Ok(5)]);
}

#[test]
fn an_intent_ends_with_the_zone_that_it_was_for() {
    let mut drive = Drive::create(&spec(with_zrwa()));
    for round in 0..2 {
        assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
        assert!(drive.write(0, 4, 10 * round).is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        if round == 0 {
            assert!(drive.write(2, 1, 7).is_success());
            assert!(drive.manage(ZoneAction::Reset, 0).is_success());
        }
    }
    // The intent of the first round does not apply to block 2 now.
    let mut disk = drive.disk.clone();
    rot(&mut disk, 2);
    assert_eq!(checked(&disk), (vec![2], 0));
    drive.submit(drive.write_of(2, 1, 90));
    let is_read = |operation: &FileOperation| matches!(operation, FileOperation::Read { .. });
    assert!(drive.out.iter().all(|(command, _)| is_read(&command.operation)), "the tag before: {:?}", drive.out);
}

/// The first block of the zone was written and flushed, and rots; then it is overwritten, and the
/// program is killed when these operations of the overwrite are complete: data, tags.
fn killed_over_rot(data: bool, tags: bool) -> Drive {
    let mut drive = Drive::create(&spec(conventional()));
    assert!(drive.write(0, 2, 1).is_success());
    assert!(drive.run(Operation::Flush).status.is_success());
    rot(&mut drive.disk, 0);
    assert_eq!(drive.marks(0, 1), [Err(Status::UnrecoveredReadError)]);
    overwritten_in_part(drive, 0, data, tags)
}

/// Overwrites a block until data or tags, or both, are on file.
fn overwritten_in_part(mut drive: Drive, block: u64, data: bool, tags: bool) -> Drive {
    drive.submit(drive.write_of(block, 1, 90));
    let is_to_come = |operation: &FileOperation| match operation {
        FileOperation::Write { file: ImageFile::Data, .. } => data,
        FileOperation::Write { file: ImageFile::Tags, .. } => tags,
        _ => true,
    };
    while let Some(next) = drive.out.iter().position(|(command, _)| is_to_come(&command.operation)) {
        drive.step(next);
    }
    assert_eq!(drive.out.len(), usize::from(!data) + usize::from(!tags), "the rest is outstanding");
    Drive::open(drive.disk)
}

#[test]
fn an_unreadable_block_is_new_or_an_error_after_an_interrupted_overwrite() {
    for (data, tags) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut drive = killed_over_rot(data, tags);
        let expected = if data { Ok(90) } else { Err(Status::UnrecoveredReadError) };
        assert_eq!(drive.marks(0, 2), [expected, Ok(2)], "data {data}, tags {tags}");
        assert_eq!(drive.report.accepted_blocks, 0);
    }
}

#[test]
fn a_block_is_old_or_new_after_an_interrupted_overwrite() {
    for (data, tags) in [(false, false), (true, false), (false, true), (true, true)] {
        for first in [1, 0] {
            let mut drive = Drive::create(&spec(conventional()));
            if first > 0 {
                assert!(drive.write(0, 1, first).is_success());
                assert!(drive.run(Operation::Flush).status.is_success());
            }
            let mut drive = overwritten_in_part(drive, 0, data, tags);
            let expected = if data { 90 } else { first };
            assert_eq!(drive.marks(0, 1), [Ok(expected)], "data {data}, tags {tags}, over {first}");
            assert_eq!(drive.report.accepted_blocks, 0);
            assert_eq!(checked(&drive.disk), (vec![], 0), "and its tag fits from then on");
        }
    }
}

#[test]
fn a_block_that_rots_while_it_is_overwritten_is_an_error() {
    let mut drive = Drive::create(&spec(conventional()));
    assert!(drive.write(0, 3, 1).is_success());
    let mut disk = drive.kill(&mut Prng::new(1));
    rot(&mut disk, 1);
    assert_eq!(checked(&disk), (vec![1], 0));
    assert_eq!(Drive::open(disk).marks(0, 3), [Ok(1), Err(Status::UnrecoveredReadError), Ok(3)]);
}

#[test]
fn an_unreadable_block_stays_an_error_after_a_failed_overwrite_unless_its_data_are_on_file() {
    let mut seen = BTreeSet::new();
    for seed in 0..8 {
        let mut drive = Drive::create(&spec(conventional()));
        assert!(drive.write(0, 2, 1).is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        rot(&mut drive.disk, 0);
        drive.disk.prng = Some(Prng::new(seed));
        drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
        assert_eq!(drive.write(0, 1, 50), Status::WriteFault);
        let is_on_file = drive.disk.bytes(ImageFile::Data)[0] == 50;
        let expected = if is_on_file { Ok(50) } else { Err(Status::UnrecoveredReadError) };
        assert_eq!(drive.marks(0, 2), [expected, Ok(2)], "seed {seed}");
        // Another interrupted overwrite does not make it readable either.
        let mut drive = overwritten_in_part(drive, 0, false, false);
        assert_eq!(drive.marks(0, 2), [expected, Ok(2)], "seed {seed}");
        seen.insert(is_on_file);
    }
    assert_eq!(seen.len(), 2, "data that are on file, and data that are not");
}

#[test]
fn a_flush_repeats_the_intent_of_a_write_that_is_in_flight() {
    for (data, tags) in [(true, false), (false, true)] {
        let mut drive = Drive::create(&spec(conventional()));
        assert!(drive.write(0, 1, 1).is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        drive.submit(drive.write_of(0, 1, 90));
        let is_file = |operation: &FileOperation, file| operation.file() == file;
        while drive
            .out
            .iter()
            .all(|(command, _)| !matches!(command.operation, FileOperation::Write { file: ImageFile::Data, .. }))
        {
            drive.step(0);
        }
        let write = drive.out.len();
        drive.submit(Operation::Flush);
        while drive.out.len() > write {
            drive.step(write);
        }
        for (file, is_done) in [(ImageFile::Data, data), (ImageFile::Tags, tags)] {
            let at =
                drive.out.iter().position(|(command, _)| is_file(&command.operation, file)).expect("it is outstanding");
            if is_done {
                drive.step(at);
            }
        }
        let expected = if data { 90 } else { 1 };
        assert_eq!(Drive::open(drive.disk).marks(0, 1), [Ok(expected)]);
    }
}

#[test]
fn lost_tags_are_an_error_where_data_contradict_them() {
    for clean in [true, false] {
        let mut drive = Drive::create(&spec(conventional()));
        assert!(drive.write(0, 100, 1).is_success());
        assert!(drive.write(100, 1, 0).is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        let mut disk = if clean { drive.close() } else { drive.kill(&mut Prng::new(1)) };
        disk.bytes(ImageFile::Tags)[..4096].fill(0);
        assert_eq!(checked(&disk), ((0..100).collect(), 0), "clean shutdown: {clean}");
        let mut drive = Drive::open(disk);
        assert_eq!(
            drive.marks(98, 4),
            [Err(Status::UnrecoveredReadError), Err(Status::UnrecoveredReadError), Ok(0), Ok(0)]
        );
    }
}

#[test]
fn lost_tags_are_an_error_where_only_metadata_show_that_a_block_was_written() {
    let mut drive = Drive::create(&spec(Geometry { metadata_bytes: 8, ..conventional() }));
    let write = |data: u8, metadata: u8, lba: u64| {
        let payload = BlockBuffer { data: vec![data; 2 * 512].into(), metadata: vec![metadata; 2 * 8].into() };
        Operation::Write { start: Lba(lba), blocks: Blocks(2), payload: Payload::Bytes(Box::new(payload)) }
    };
    for (data, metadata, lba) in [(0, 7, 0), (0, 0, 2), (9, 0, 4)] {
        assert!(drive.run(write(data, metadata, lba)).status.is_success());
        let read = drive.read(lba, 2).unwrap();
        assert_eq!((&read.data[..], &read.metadata[..]), (&[data; 1024][..], &[metadata; 16][..]));
    }
    for clean in [true, false] {
        let mut drive = Drive::open(drive.disk.clone());
        let read = drive.read(0, 2).unwrap();
        assert_eq!((&read.data[..], &read.metadata[..]), (&[0; 1024][..], &[7; 16][..]), "after a restart");
        let mut disk = if clean { drive.close() } else { drive.kill(&mut Prng::new(1)) };
        disk.bytes(ImageFile::Tags)[..4096].fill(0);
        assert_eq!(checked(&disk), (vec![0, 1, 4, 5], 0), "clean shutdown: {clean}");
        let mut drive = Drive::open(disk);
        let expected =
            [0, 1, 2, 3, 4, 5].map(|lba| if [2, 3].contains(&lba) { Ok(0) } else { Err(Status::UnrecoveredReadError) });
        assert_eq!(drive.marks(0, 6), expected);
    }
}

/// A journal that begins with this record, as versions 1 and 2 wrote it.
fn with_region_intent(mut disk: Disk) -> Disk {
    let loaded = crate::load::load(&mut disk).unwrap();
    let payload = [&[][..], &[]];
    let record =
        Record { kind: Kind::RegionIntent, zone: ZoneIndex(0), generation: Generation(0), a: 0, b: 1, c: 0, payload };
    let place = Place { epoch: loaded.sequence, sequence: 1, previous: 0, failed_batches: 0 };
    let head = record.encode(place).head;
    disk.bytes(ImageFile::Journal)[MARKS_BYTES as usize..][..head.len()].copy_from_slice(&head);
    for copy in 0..2 {
        disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES + 16] = 2;
    }
    disk
}

#[test]
fn an_image_of_version_2_is_opened_with_its_intents_of_256_blocks_and_converted() {
    let mut drive = Drive::create(&spec(conventional()));
    assert!(drive.write(0, 300, 1).is_success());
    let mut disk = with_region_intent(Drive::open(drive.close()).kill(&mut Prng::new(1)));
    rot(&mut disk, 255);
    rot(&mut disk, 256);
    assert_eq!(checked(&disk), (vec![256], 1));
    let mut drive = Drive::open(disk);
    assert!(drive.report.converted);
    assert_eq!(drive.marks(254, 3), [Ok(255), Ok(b'r'), Err(Status::UnrecoveredReadError)]);
    assert!(!Drive::open(drive.close()).report.converted);
}

#[test]
fn a_repaired_block_of_zeros_keeps_the_metadata_beside_it() {
    let mut drive = Drive::create(&spec(Geometry { metadata_bytes: 8, ..conventional() }));
    let payload = BlockBuffer { data: vec![0; 512].into(), metadata: vec![7; 8].into() };
    let payload = Payload::Bytes(Box::new(payload));
    assert!(drive.run(Operation::Write { start: Lba(3), blocks: Blocks(1), payload }).status.is_success());
    let mut to = Disk::new();
    crate::repair(&mut drive.close(), &mut to, [9; 16], &mut |_| {}).unwrap();
    assert_eq!(to.bytes(ImageFile::Data)[3 * 512..][..512], [0xff; 512]);
    let read = Drive::open(to).read(3, 1).unwrap();
    assert_eq!((&read.data[..], &read.metadata[..]), (&[0; 512][..], &[7; 8][..]));
}

#[test]
fn lost_tags_of_the_last_blocks_of_a_zrwa_do_not_make_it_shorter() {
    for metadata_bytes in [0, 8] {
        let mut drive = Drive::create(&spec(Geometry { metadata_bytes, ..with_zrwa() }));
        assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
        assert!(drive.write(4, 2, 1).is_success());
        assert!(drive.run(Operation::Flush).status.is_success());
        drive.image.checkpoint();
        drive.collect();
        drive.complete_all();
        let mut disk = drive.kill(&mut Prng::new(1));
        disk.bytes(ImageFile::Tags).fill(0);
        assert_eq!(checked(&disk), (vec![4, 5], 0));
        let mut drive = Drive::open(disk);
        let expected = [Ok(0), Err(Status::UnrecoveredReadError), Err(Status::UnrecoveredReadError), Ok(0)];
        assert_eq!(drive.marks(3, 4), expected);
    }
}

#[test]
fn tags_lost_under_an_overwrite_are_recovered_from_its_intent() {
    let mut drive = Drive::create(&spec(conventional()));
    assert!(drive.write(0, 2, 1).is_success());
    assert!(drive.run(Operation::Flush).status.is_success());
    assert!(drive.write(1, 1, 70).is_success());
    let mut disk = drive.kill(&mut Prng::new(1));
    disk.bytes(ImageFile::Tags)[..4096].fill(0);
    assert_eq!(checked(&disk), (vec![0], 0), "the flush has ended the intent of the first");
    assert_eq!(Drive::open(disk).marks(0, 2), [Err(Status::UnrecoveredReadError), Ok(70)]);
}

#[test]
fn an_interrupted_overwrite_with_an_intent_because_of_a_failed_flush_is_old_or_new() {
    for fails_first in [true, false] {
        let mut drive = Drive::create(&spec(with_zrwa()));
        assert!(drive.manage(ZoneAction::Open { zrwa: true }, 0).is_success());
        assert!(drive.write(2, 1, 1).is_success());
        drive.submit(Operation::Flush);
        let syncs = drive.out.len();
        drive.submit(drive.write_of(1, 1, 90));
        drive.disk.fault = Some(Fault::Sync(ImageFile::Data, 0));
        if fails_first {
            (0..syncs).for_each(|_| drive.step(0));
        }
        let is_data =
            |operation: &FileOperation| matches!(operation, FileOperation::Write { file: ImageFile::Data, .. });
        while drive.out.iter().all(|(command, _)| !is_data(&command.operation)) {
            drive.step(drive.out.len() - 1);
        }
        let data = drive.out.iter().position(|(command, _)| is_data(&command.operation)).expect("it was looked for");
        drive.step(data);
        if !fails_first {
            (0..syncs).for_each(|_| drive.step(0));
        }
        let marks = Drive::open(drive.disk).marks(0, 4);
        assert!(matches!(marks[..], [Ok(0), Ok(0 | 90), Ok(1), Ok(0)]), "{marks:?}");
    }
}

#[test]
fn a_block_overwritten_during_a_flush_is_verified_against_its_own_intent() {
    for overwrites in [1, 2] {
        let mut drive = Drive::create(&spec(conventional()));
        // Before the flush the block is written so often that any contents would be accepted, or
        // not yet.
        (0..overwrites).for_each(|mark| assert!(drive.write(0, 1, 10 + mark).is_success()));
        let flush = drive.submit(Operation::Flush);
        let write = drive.submit(drive.write_of(0, 1, 90));
        let ended: Vec<_> = drive.complete_all().iter().map(|completion| completion.id).collect();
        assert!(ended.contains(&flush) && ended.contains(&write));
        let mut disk = drive.kill(&mut Prng::new(1));
        assert_eq!(Drive::open(disk.clone()).marks(0, 1), [Ok(90)]);
        rot(&mut disk, 0);
        assert_eq!(checked(&disk), (vec![0], 0), "{overwrites} before");
    }
}
