//! Openings that are interrupted while only one copy of the checkpoint is good.

use zonda_zoned::{Blocks, Geometry, Operation, Prng, Status, ZoneAction};

use crate::format::checkpoint::SLOT_HEADER_BYTES;
use crate::format::layout::Layout;
use crate::testing::{Disk, Drive, spec};
use crate::{FileOperation, ImageFile, check, create, open};

/// The number of random choices of what an interruption leaves of the operation in progress and of
/// unsynced pages.
const SEEDS: u64 = 12;

fn geometry() -> Geometry {
    Geometry { conventional_zone_count: 1, zone_count: 5, zone_capacity_blocks: Blocks(16), ..Geometry::tiny() }
}

/// How the drive was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Closed,
    Killed,
    /// Killed when the first copy of a checkpoint was written and not synced.
    KilledInCheckpoint,
}

/// A drive with contents that are all durable.
fn used(stop: Stop) -> Disk {
    let mut drive = Drive::create(&spec(geometry()));
    for (start, mark) in [(0, 10), (16, 20), (32, 30), (48, 40)] {
        assert_eq!(drive.write(start, 6, mark), Status::Success);
    }
    drive.manage(ZoneAction::Finish, 32);
    drive.manage(ZoneAction::Reset, 48);
    drive.manage(ZoneAction::SetDescriptorExtension { extension: vec![3; 64].into(), zrwa: false }, 64);
    drive.run(Operation::Flush);
    match stop {
        Stop::Closed => drive.close(),
        Stop::Killed => drive.kill(&mut Prng::new(1)),
        Stop::KilledInCheckpoint => {
            drive.image.checkpoint();
            drive.collect();
            let is_sync = |operation: &FileOperation| *operation == FileOperation::Sync { file: ImageFile::State };
            while !drive.out.iter().any(|(command, _)| is_sync(&command.operation)) {
                drive.step(0);
            }
            drive.kill(&mut Prng::new(1))
        }
    }
}

/// Damages the body of one copy of the checkpoint, as a write that was not completed leaves it.
fn tear(disk: &mut Disk, slot: u64) {
    let spec = spec(geometry());
    let layout = Layout::new(&spec.geometry, spec.journal_bytes);
    let from = layout.slot_offset(slot) as usize + SLOT_HEADER_BYTES;
    let end = (layout.slot_offset(slot) + layout.checkpoint_bytes()) as usize;
    disk.bytes(ImageFile::State)[from..end].iter_mut().for_each(|byte| *byte ^= 0x55);
}

/// Asserts that the opening of this disk can be interrupted at every change of a file, by a kill or
/// a loss of power, and that the next opening recovers all contents.
fn assert_opening_can_be_cut(disk: &Disk, what: &str) {
    let expected = Drive::open(disk.clone()).observe();
    let mut counted = disk.clone();
    counted.changes_left = Some(u64::MAX);
    assert!(open(&mut counted).is_ok(), "{what}");
    let changes = u64::MAX - counted.changes_left.expect("it was set");
    assert!(changes >= 6, "two copies of the checkpoint and the journal are each written and synced");
    for cut in 1..=changes {
        for seed in 0..SEEDS {
            let mut left = disk.clone();
            left.changes_left = Some(cut);
            left.prng = Some(Prng::new(seed));
            assert!(open(&mut left).is_err(), "{what}: change {cut} does not happen");
            left.changes_left = None;
            let (mut dropped, mut mixed) = (left.clone(), left.clone());
            dropped.forget_unsynced();
            mixed.lose_power(&mut Prng::new(seed).fork("power"));
            for (loss, mut after) in [("kill", left), ("all unsynced lost", dropped), ("some unsynced lost", mixed)] {
                let when = format!("{what}, {loss} at change {cut} of {changes}, seed {seed}");
                if let Err(error) = open(&mut after.clone()) {
                    panic!("{when}: {error}");
                }
                after.prng = None;
                let found = Drive::open(after).observe();
                assert_eq!(found.zones, expected.zones, "{when}");
                assert!(found.blocks == expected.blocks, "{when}: the blocks differ");
            }
        }
    }
}

#[test]
fn while_one_copy_of_the_checkpoint_is_torn_an_opening_does_not_touch_the_other() {
    for stop in [Stop::Closed, Stop::Killed] {
        for slot in 0..2 {
            let mut disk = used(stop);
            tear(&mut disk, slot);
            assert_opening_can_be_cut(&disk, &format!("{stop:?}, copy {slot} torn"));
        }
    }
}

#[test]
fn an_opening_syncs_the_newest_checkpoint_before_it_overwrites_the_older_one() {
    assert_opening_can_be_cut(&used(Stop::KilledInCheckpoint), "one copy written and not synced");
}

#[test]
fn an_opening_syncs_the_journal_before_it_rewrites_contents_from_it() {
    let mut drive = Drive::create(&spec(geometry()));
    assert_eq!(drive.write(3, 1, 50), Status::Success);
    drive.run(Operation::Flush);
    drive.image.checkpoint();
    drive.collect();
    drive.complete_all();
    drive.submit(drive.write_of(3, 1, 60));
    while drive.out[0].0.operation != (FileOperation::Sync { file: ImageFile::Journal }) {
        drive.step(0);
    }
    drive.out.clear();
    let disk = drive.kill(&mut Prng::new(1));
    for cut in 1..20 {
        for seed in 0..SEEDS {
            let mut left = disk.clone();
            left.changes_left = Some(cut);
            left.prng = Some(Prng::new(seed));
            drop(open(&mut left));
            left.changes_left = None;
            left.lose_power(&mut Prng::new(seed).fork("power"));
            let mark = Drive::open(left).marks(3, 1)[0];
            assert!(mark == Ok(50) || mark == Ok(60), "change {cut}, seed {seed}: {mark:?}");
        }
    }
}

#[test]
fn an_image_whose_creation_was_killed_before_its_last_sync_is_durable_once_opened() {
    let mut counted = Disk::new();
    counted.changes_left = Some(u64::MAX);
    create(&spec(geometry()), &mut counted).unwrap();
    let changes = u64::MAX - counted.changes_left.expect("it was set");
    let mut disk = Disk::new();
    disk.changes_left = Some(changes);
    assert!(create(&spec(geometry()), &mut disk).is_err(), "the superblock is not synced");
    disk.changes_left = None;
    let drive = Drive::open(disk);
    let mut disk = drive.kill(&mut Prng::new(1));
    disk.forget_unsynced();
    assert_eq!(open(&mut disk).map(|(image, _)| image.spec().clone()), Ok(spec(geometry())));
}

#[test]
fn a_block_that_cannot_be_read_during_an_opening_does_not_end_its_zone() {
    let geometry = Geometry { conventional_zone_count: 0, metadata_bytes: 0, ..Geometry::tiny() };
    let mut drive = Drive::create(&spec(geometry));
    assert_eq!(drive.write(0, 6, 1), Status::Success);
    let mut disk = drive.kill(&mut Prng::new(1));
    disk.unreadable = Some((ImageFile::Data, 2 * 512..3 * 512));
    let report = check(&mut disk, &mut |_| {}).unwrap();
    assert_eq!((report.blocks, report.findings.len()), (6, 1));
    let mut drive = Drive::open(disk);
    assert_eq!(drive.report.dropped_blocks, 0);
    drive.disk.unreadable = None;
    assert_eq!(drive.marks(0, 6), [1, 2, 3, 4, 5, 6].map(Ok), "it can be read again");
}
