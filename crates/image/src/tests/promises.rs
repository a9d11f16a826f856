//! One test for each guarantee, and for each rule that it depends on.

use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, LbaRange, NamespaceId, Operation, Outcome,
    Prng, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZrwaGeometry,
};

use crate::testing::{Disk, Drive, Fault, spec};
use crate::{FileOperation, ImageError, ImageFile, ImageSpec, create, inspect, open};

/// The tiny geometry, with all of each zone writable, two conventional zones, and ZRWAs of four
/// blocks.
pub(super) fn mixed() -> Geometry {
    Geometry {
        conventional_zone_count: 2,
        zone_capacity_blocks: Blocks(16),
        zrwa: Some(ZrwaGeometry {
            size_blocks: Blocks(4),
            flush_granularity_blocks: Blocks(2),
            resources: 2,
            explicit_flush: true,
        }),
        ..Geometry::tiny()
    }
}

/// As [`mixed`], with blocks that are overwritten in place without being journaled.
pub(super) fn plain() -> Geometry {
    Geometry { metadata_bytes: 0, ..mixed() }
}

pub(super) fn drive(geometry: Geometry) -> Drive {
    Drive::create(&spec(geometry))
}

pub(super) fn killed(drive: Drive) -> Drive {
    Drive::open(drive.kill(&mut Prng::new(1)))
}

/// The power fails, and all unsynced changes are lost.
pub(super) fn unplugged(drive: Drive) -> Drive {
    let mut disk = drive.kill(&mut Prng::new(1));
    disk.forget_unsynced();
    Drive::open(disk)
}

pub(super) fn pointer(drive: &Drive, zone: u32) -> u64 {
    drive.image.zones().zone(ZoneIndex(zone)).write_pointer_blocks.0
}

pub(super) fn state(drive: &Drive, zone: u32) -> ZoneState {
    drive.image.zones().zone(ZoneIndex(zone)).state
}

/// The number of outstanding operations of this kind.
pub(super) fn out(drive: &Drive, wanted: impl Fn(&FileOperation) -> bool) -> usize {
    drive.out.iter().filter(|(command, _)| wanted(&command.operation)).count()
}

pub(super) fn is_write(file: ImageFile) -> impl Fn(&FileOperation) -> bool {
    move |operation| matches!(operation, FileOperation::Write { file: other, .. } if *other == file)
}

/// Carries out the first operation of a kind.
pub(super) fn step(drive: &mut Drive, wanted: impl Fn(&FileOperation) -> bool) {
    let place = drive.out.iter().position(|(command, _)| wanted(&command.operation)).expect("it is outstanding");
    drive.step(place);
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    for geometry in [mixed(), plain()] {
        let mut drive = drive(geometry);
        assert_eq!(drive.write(48, 3, 10), Status::Success);
        assert_eq!(drive.write(0, 2, 20), Status::Success);
        assert_eq!(drive.manage(ZoneAction::Open { zrwa: true }, 64), Status::Success);
        assert_eq!(drive.write(66, 2, 30), Status::Success);
        let mut drive = killed(drive);
        assert!(!drive.report.clean);
        assert_eq!((pointer(&drive, 3), state(&drive, 3)), (3, ZoneState::Closed));
        assert_eq!(drive.marks(48, 4), [Ok(10), Ok(11), Ok(12), Ok(0)]);
        assert_eq!(drive.marks(0, 2), [Ok(20), Ok(21)]);
        assert_eq!(drive.marks(65, 3), [Ok(0), Ok(30), Ok(31)]);
    }
}

#[test]
fn flushed_writes_survive_a_loss_of_power_and_others_need_not() {
    for geometry in [mixed(), plain()] {
        let mut drive = drive(geometry);
        drive.write(48, 3, 10);
        drive.write(0, 2, 20);
        assert_eq!(drive.run(Operation::Flush).status, Status::Success);
        drive.write(51, 2, 13);
        let mut drive = unplugged(drive);
        assert_eq!(pointer(&drive, 3), 3, "the flushed blocks, and none of the others");
        assert_eq!(drive.marks(48, 3), [Ok(10), Ok(11), Ok(12)]);
        assert_eq!(drive.marks(0, 2), [Ok(20), Ok(21)]);
    }
}

#[test]
fn management_survives_a_loss_of_power_without_a_flush() {
    let mut drive = drive(mixed());
    let extension: Box<[u8]> = vec![9; 64].into();
    drive.write(32, 5, 1);
    drive.write(48, 5, 2);
    drive.run(Operation::Flush);
    assert_eq!(drive.manage(ZoneAction::Reset, 32), Status::Success);
    assert_eq!(drive.manage(ZoneAction::Finish, 48), Status::Success);
    let set = ZoneAction::SetDescriptorExtension { extension: extension.clone(), zrwa: true };
    assert_eq!(drive.manage(set, 64), Status::Success);
    assert_eq!(drive.manage(ZoneAction::FlushZrwa, 65), Status::Success);
    drive.image.degrade(ZoneIndex(5), ZoneState::ReadOnly);
    drive.collect();
    drive.complete_all();
    let mut drive = unplugged(drive);
    assert_eq!(
        (2..6).map(|zone| state(&drive, zone)).collect::<Vec<_>>(),
        [ZoneState::Empty, ZoneState::Full, ZoneState::Closed, ZoneState::ReadOnly]
    );
    assert_eq!((pointer(&drive, 3), pointer(&drive, 4)), (5, 2));
    let zone = drive.image.zones().zone(ZoneIndex(4));
    assert!(zone.attributes.zrwa_valid && zone.attributes.extension_valid);
    assert_eq!(drive.marks(32, 2), [Ok(0), Ok(0)]);
    assert_eq!(drive.image.wear(ZoneIndex(2)), 1);
}

#[test]
fn writes_acknowledged_before_a_zone_became_read_only_survive_a_kill() {
    for geometry in [mixed(), plain()] {
        let mut drive = drive(geometry);
        assert_eq!(drive.write(48, 3, 10), Status::Success);
        assert_eq!(drive.manage(ZoneAction::Open { zrwa: true }, 64), Status::Success);
        assert_eq!(drive.write(64, 3, 20), Status::Success);
        assert_eq!(drive.manage(ZoneAction::FlushZrwa, 65), Status::Success);
        for zone in [3, 4] {
            drive.image.degrade(ZoneIndex(zone), ZoneState::ReadOnly);
        }
        drive.collect();
        drive.complete_all();
        let mut drive = killed(drive);
        assert_eq!((state(&drive, 3), pointer(&drive, 3)), (ZoneState::ReadOnly, 3));
        assert_eq!((state(&drive, 4), pointer(&drive, 4)), (ZoneState::ReadOnly, 2));
        assert_eq!(drive.marks(48, 4), [Ok(10), Ok(11), Ok(12), Ok(0)]);
        assert_eq!(drive.marks(64, 3), [Ok(20), Ok(21), Ok(22)]);
    }
}

#[test]
fn a_finish_makes_earlier_writes_to_its_zone_durable() {
    let mut drive = drive(mixed());
    drive.write(48, 5, 2);
    drive.manage(ZoneAction::Finish, 48);
    let mut drive = unplugged(drive);
    assert_eq!((state(&drive, 3), pointer(&drive, 3)), (ZoneState::Full, 5));
    assert_eq!(drive.marks(51, 3), [Ok(5), Ok(6), Ok(0)]);
    assert_eq!(drive.image.counters().padding_blocks, 11);
    assert_eq!(drive.image.counters().dlwa_thousandths(), 3200);
}

#[test]
fn a_write_is_acknowledged_only_when_those_before_it_are_on_file() {
    let mut drive = drive(mixed());
    let first = drive.submit(drive.write_of(48, 1, 1));
    let second = drive.submit(drive.write_of(49, 1, 2));
    assert_eq!(drive.out.len(), 4, "both are in flight at the same time");
    drive.step(3);
    drive.step(2);
    assert_eq!(drive.poll(), [], "the second write is on file");
    drive.step(1);
    assert_eq!(drive.poll(), []);
    drive.step(0);
    let ended: Vec<CommandId> = drive.poll().iter().map(|completion| completion.id).collect();
    assert_eq!(ended, [first, second]);
}

#[test]
fn a_write_whose_predecessor_is_lost_is_not_found_again_when_the_zone_is_written_up_to_it() {
    let mut drive = drive(mixed());
    drive.submit(drive.write_of(48, 1, 1));
    drive.submit(drive.write_of(49, 1, 2));
    drive.step(3);
    drive.step(2);
    let out = std::mem::take(&mut drive.out);
    assert_eq!(out.len(), 2);
    let mut drive = killed(drive);
    assert_eq!((pointer(&drive, 3), drive.report.dropped_blocks), (0, 1));
    drive.write(48, 1, 7);
    let mut drive = killed(drive);
    assert_eq!(pointer(&drive, 3), 1);
    assert_eq!(drive.marks(48, 2), [Ok(7), Ok(0)]);
}

#[test]
fn a_read_returns_the_newest_data_submitted_and_an_overwrite_does_not_disturb_an_earlier_read() {
    for geometry in [mixed(), plain()] {
        let mut drive = drive(geometry);
        drive.write(3, 1, 50);
        let before = drive.submit(Operation::Read { start: Lba(3), blocks: Blocks(1) });
        drive.submit(drive.write_of(3, 1, 60));
        let after = drive.submit(Operation::Read { start: Lba(3), blocks: Blocks(1) });
        assert_eq!(drive.out.len(), 2, "only the first read is in flight");
        let completions = drive.complete_all();
        let mark = |id| match &completions.iter().find(|completion| completion.id == id).unwrap().outcome {
            Outcome::Data(zonda_zoned::Payload::Bytes(buffer)) => buffer.data[0],
            other => panic!("{other:?}"),
        };
        assert_eq!((mark(before), mark(after)), (50, 60));
    }
}

#[test]
fn reads_and_writes_of_other_blocks_do_not_wait() {
    let mut drive = drive(plain());
    drive.write(0, 8, 1);
    drive.write(0, 8, 2);
    drive.submit(drive.write_of(0, 2, 9));
    drive.submit(Operation::Read { start: Lba(2), blocks: Blocks(4) });
    drive.submit(drive.write_of(6, 2, 9));
    assert_eq!(drive.out.len(), 6);
}

#[test]
fn a_reset_is_synced_before_it_is_acknowledged_and_before_the_zone_is_written_again() {
    let mut drive = drive(mixed());
    drive.write(48, 2, 1);
    drive.submit(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(48)) });
    drive.submit(drive.write_of(48, 1, 5));
    assert_eq!(drive.out.len(), 1, "only the journal record");
    step(&mut drive, is_write(ImageFile::Journal));
    assert_eq!(out(&drive, |operation| matches!(operation, FileOperation::Sync { file: ImageFile::Journal })), 1);
    assert_eq!((drive.out.len(), drive.poll().len()), (1, 0));
    drive.complete_all();
    assert_eq!(drive.marks(48, 2), [Ok(5), Ok(0)]);
}

#[test]
fn a_reset_whose_record_is_lost_has_no_effect() {
    let mut drive = drive(mixed());
    drive.write(48, 2, 1);
    drive.submit(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(48)) });
    drive.out.clear();
    let mut drive = killed(drive);
    assert_eq!(pointer(&drive, 3), 2);
    assert_eq!(drive.marks(48, 2), [Ok(1), Ok(2)]);
}

#[test]
fn the_first_two_overwrites_of_a_block_wait_for_their_intents_and_later_ones_do_not() {
    let mut drive = drive(plain());
    let is_tag_read =
        |operation: &FileOperation| matches!(operation, FileOperation::Read { file: ImageFile::Tags, .. });
    for (mark, reads, records) in [(1, 1, 1), (2, 0, 1), (3, 0, 0), (4, 0, 0)] {
        drive.submit(drive.write_of(0, 1, mark));
        assert_eq!(out(&drive, is_tag_read), reads, "the first intent contains the previous tag: {mark}");
        if reads > 0 {
            drive.step(0);
            let is_data_read =
                |operation: &FileOperation| matches!(operation, FileOperation::Read { file: ImageFile::Data, .. });
            assert_eq!(out(&drive, is_data_read), 1, "the tag is that of an unwritten block");
            drive.step(0);
        }
        assert_eq!(out(&drive, is_write(ImageFile::Journal)), records, "{mark}");
        assert_eq!(out(&drive, is_write(ImageFile::Data)), 1 - records, "{mark}");
        drive.complete_all();
    }
    drive.submit(drive.write_of(0, 2, 5));
    assert_eq!(out(&drive, is_tag_read), 1, "the next block has no intent");
    drive.complete_all();
    drive.run(Operation::Flush);
    drive.submit(drive.write_of(1, 1, 1));
    assert_eq!(out(&drive, is_tag_read), 1, "the flush ended the intents");
}

#[test]
fn a_block_torn_between_data_and_metadata_is_recovered_completely() {
    let mut drive = drive(mixed());
    drive.write(3, 1, 50);
    drive.run(Operation::Flush);
    drive.submit(drive.write_of(3, 1, 60));
    while out(&drive, is_write(ImageFile::Data)) == 0 {
        drive.step(0);
    }
    step(&mut drive, is_write(ImageFile::Data));
    drive.out.clear();
    let mut drive = killed(drive);
    let block = drive.read(3, 1).unwrap();
    assert_eq!((block.data[0], block.metadata[0]), (60, !60));
    assert!(drive.report.rewritten_blocks >= 1);
}

#[test]
fn a_block_that_was_overwritten_twice_and_does_not_match_its_tag_after_a_crash_is_accepted_as_it_is() {
    let mut drive = drive(plain());
    drive.write(3, 1, 50);
    drive.write(3, 1, 55);
    drive.submit(drive.write_of(3, 1, 60));
    step(&mut drive, is_write(ImageFile::Data));
    drive.out.clear();
    let mut drive = killed(drive);
    assert_eq!((drive.marks(3, 1), drive.report.accepted_blocks), (vec![Ok(60)], 1));
}

#[test]
fn after_a_flush_an_overwritten_block_that_rots_is_found_even_after_a_crash() {
    let mut drive = drive(plain());
    drive.write(3, 1, 50);
    drive.run(Operation::Flush);
    let offset = 3 * 512;
    drive.disk.bytes(ImageFile::Data)[offset] ^= 1;
    let mut drive = killed(drive);
    assert_eq!(drive.read(3, 1), Err(Status::UnrecoveredReadError));
}

#[test]
fn a_clean_shutdown_needs_no_scan_and_keeps_counters_wear_and_zones() {
    let mut drive = drive(mixed());
    drive.write(48, 5, 2);
    drive.read(48, 3).unwrap();
    drive.manage(ZoneAction::Reset, 48);
    drive.write(48, 3, 2);
    drive.manage(ZoneAction::Open { zrwa: true }, 64);
    drive.write(64, 3, 2);
    drive.manage(ZoneAction::FlushZrwa, 65);
    let counters = drive.image.counters();
    assert_eq!((counters.host_written_blocks, counters.host_read_blocks, counters.erases), (11, 3, 1));
    let drive = Drive::open(drive.close());
    assert!(drive.report.clean);
    assert_eq!(drive.image.counters(), counters);
    assert_eq!(drive.image.wear(ZoneIndex(3)), 1);
    assert_eq!((pointer(&drive, 3), pointer(&drive, 4)), (3, 2));
    assert_eq!(drive.report.found_blocks, 0);
}

#[test]
fn a_full_disk_fails_only_the_write_and_those_behind_it() {
    for file in [ImageFile::Data, ImageFile::Tags] {
        let mut drive = drive(mixed());
        drive.write(48, 2, 1);
        drive.disk.fault = Some(Fault::Write(file, 1));
        let ids = [50, 51, 52].map(|lba| drive.submit(drive.write_of(lba, 1, lba as u8)));
        let other = drive.submit(drive.write_of(64, 1, 99));
        let completions = drive.complete_all();
        let status = |id| completions.iter().find(|completion| completion.id == id).unwrap().status;
        assert_eq!(ids.map(status), [Status::Success, Status::WriteFault, Status::WriteFault]);
        assert_eq!(status(other), Status::Success);
        assert_eq!((pointer(&drive, 3), state(&drive, 3)), (3, ZoneState::ImplicitlyOpened));
        assert_eq!(drive.marks(48, 5), [Ok(1), Ok(2), Ok(50), Ok(0), Ok(0)]);
        assert_eq!(drive.write(51, 2, 70), Status::Success, "the drive continues");
        let mut drive = killed(drive);
        assert_eq!(pointer(&drive, 3), 5);
        assert_eq!(drive.marks(48, 6), [Ok(1), Ok(2), Ok(50), Ok(70), Ok(71), Ok(0)]);
    }
}

#[test]
fn a_full_file_system_fails_writes_with_capacity_exceeded_and_no_zone() {
    let mut drive = drive(mixed());
    drive.write(48, 2, 1);
    drive.disk.fault = Some(Fault::Full);
    let ids = [50, 51].map(|lba| drive.submit(drive.write_of(lba, 1, lba as u8)));
    let completions = drive.complete_all();
    let status = |id| completions.iter().find(|completion| completion.id == id).unwrap().status;
    assert_eq!(ids.map(status), [Status::CapacityExceeded; 2]);
    assert_eq!((pointer(&drive, 3), state(&drive, 3)), (2, ZoneState::ImplicitlyOpened));
    assert_eq!(drive.marks(48, 3), [Ok(1), Ok(2), Ok(0)]);
    assert_eq!(drive.write(50, 1, 60), Status::CapacityExceeded, "there is still no space");
    drive.disk.fault = None;
    assert_eq!(drive.write(50, 2, 70), Status::Success, "space was freed");
    let mut drive = killed(drive);
    assert_eq!((pointer(&drive, 3), state(&drive, 3)), (4, ZoneState::Closed));
    assert_eq!(drive.marks(48, 5), [Ok(1), Ok(2), Ok(70), Ok(71), Ok(0)]);
}

#[test]
fn a_recovery_does_not_find_remains_of_a_failed_write() {
    let mut drive = drive(mixed());
    drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
    drive.submit(drive.write_of(48, 1, 1));
    drive.submit(drive.write_of(49, 1, 2));
    drive.complete_all();
    assert_eq!(drive.write(48, 1, 5), Status::Success);
    let mut drive = unplugged({
        drive.run(Operation::Flush);
        drive
    });
    assert_eq!((pointer(&drive, 3), drive.marks(48, 2)), (1, vec![Ok(5), Ok(0)]));
}

#[test]
fn a_zone_whose_last_write_failed_is_closed_again_or_full_where_no_active_resource_is_left() {
    for active in [2, 1] {
        let geometry =
            Geometry { max_active_zones: Some(active), max_open_zones: Some(1), zone_count: 3, ..Geometry::tiny() };
        let mut drive = drive(geometry);
        drive.write(0, 8, 1);
        drive.disk.fault = Some(Fault::Write(ImageFile::Data, 0));
        drive.submit(drive.write_of(8, 4, 2));
        let other = drive.submit(drive.write_of(16, 1, 3));
        let completions = drive.complete_all();
        assert_eq!(completions.iter().find(|completion| completion.id == other).unwrap().status, Status::Success);
        let expected = if active == 2 { ZoneState::Closed } else { ZoneState::Full };
        assert_eq!((state(&drive, 0), pointer(&drive, 0)), (expected, 8));
        assert_eq!(drive.marks(7, 2), [Ok(8), Ok(0)]);
        drive.image.check_invariants();
        let mut drive = killed(drive);
        assert_eq!((state(&drive, 0), pointer(&drive, 0)), (expected, 8));
        assert_eq!(drive.marks(7, 2), [Ok(8), Ok(0)]);
        assert_eq!(drive.report.finished_zones, []);
    }
}

#[test]
fn a_failed_overwrite_leaves_old_or_new_blocks_that_can_be_read() {
    for geometry in [mixed(), plain()] {
        for file in [ImageFile::Data, ImageFile::Tags] {
            let mut drive = drive(geometry.clone());
            drive.write(3, 2, 50);
            drive.disk.fault = Some(Fault::Write(file, 0));
            assert_eq!(drive.write(3, 2, 60), Status::WriteFault);
            for (mark, old) in drive.marks(3, 2).into_iter().zip([50, 51]) {
                assert!(mark == Ok(old) || mark == Ok(old + 10), "{mark:?}");
            }
            assert_eq!(drive.write(3, 2, 70), Status::Success);
            assert_eq!(drive.marks(3, 2), [Ok(70), Ok(71)]);
        }
    }
}

#[test]
fn management_that_cannot_be_recorded_has_no_effect() {
    for fault in [Fault::Write(ImageFile::Journal, 0), Fault::Sync(ImageFile::Journal, 0)] {
        let mut drive = drive(mixed());
        drive.write(48, 2, 1);
        drive.disk.fault = Some(fault);
        let reset =
            drive.submit(Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(Lba(48)) });
        let write = drive.submit(drive.write_of(48, 1, 5));
        let completions = drive.complete_all();
        let status = |id| completions.iter().find(|completion| completion.id == id).unwrap().status;
        assert_eq!((status(reset), status(write)), (Status::WriteFault, Status::WriteFault));
        assert_eq!((pointer(&drive, 3), drive.marks(48, 2)), (2, vec![Ok(1), Ok(2)]));
        assert_eq!(drive.write(50, 1, 3), Status::Success);
        drive.image.check_invariants();
        let mut drive = killed(drive);
        assert_eq!((pointer(&drive, 3), drive.marks(48, 3)), (3, vec![Ok(1), Ok(2), Ok(3)]));
        assert_eq!(drive.manage(ZoneAction::Reset, 48), Status::Success);
        assert_eq!(drive.marks(48, 2), [Ok(0), Ok(0)]);
    }
}

#[test]
fn a_later_flush_does_not_make_up_for_a_failed_one() {
    let mut drive = drive(mixed());
    drive.write(48, 2, 1);
    drive.disk.fault = Some(Fault::Sync(ImageFile::Data, 0));
    assert_eq!(drive.run(Operation::Flush).status, Status::WriteFault);
    assert_eq!(drive.run(Operation::Flush).status, Status::WriteFault);
    assert_eq!(drive.marks(48, 2), [Ok(1), Ok(2)]);
}

#[test]
fn a_checkpoint_that_fails_stops_management_until_one_succeeds() {
    let mut drive = drive(mixed());
    for slot in 0..2 {
        drive.write(48, 1, 1);
        drive.disk.fault = Some(Fault::Write(ImageFile::State, slot));
        drive.image.checkpoint();
        drive.collect();
        drive.complete_all();
        drive.disk.fault = Some(Fault::Write(ImageFile::State, 0));
        assert_eq!(drive.manage(ZoneAction::Reset, 48), Status::WriteFault, "it tries, and fails with the checkpoint");
        assert_eq!(drive.marks(48, 1), [Ok(1)]);
        assert_eq!(drive.manage(ZoneAction::Reset, 48), Status::Success);
        drive = killed(drive);
        assert_eq!(drive.marks(48, 1), [Ok(0)]);
    }
}

#[test]
fn a_flush_whose_record_does_not_fit_behind_a_failed_checkpoint_begins_another_checkpoint() {
    for geometry in [mixed(), plain()] {
        let mut drive = drive(geometry);
        drive.write(48, 1, 10);
        drive.disk.fault = Some(Fault::Write(ImageFile::State, 0));
        drive.image.checkpoint();
        drive.collect();
        drive.complete_all();
        drive.write(49, 2, 11);
        assert_eq!(drive.run(Operation::Flush).status, Status::Success);
        // Neither journal nor checkpoint would record that the block was flushed: it would count as
        // never written.
        drive.disk.bytes(ImageFile::Data)[50 * 512] ^= 1;
        let mut drive = killed(drive);
        assert_eq!((pointer(&drive, 3), drive.report.found_blocks), (3, 0));
        assert_eq!(drive.marks(48, 3), [Ok(10), Ok(11), Err(Status::UnrecoveredReadError)]);
    }
}

#[test]
fn a_full_journal_is_restarted() {
    let mut drive = drive(mixed());
    for round in 0..1000 {
        assert_eq!(drive.write(48, 1, round as u8), Status::Success);
        assert_eq!(drive.manage(ZoneAction::Reset, 48), Status::Success);
    }
    drive.write(48, 1, 77);
    let mut drive = killed(drive);
    assert_eq!(drive.marks(48, 1), [Ok(77)]);
    assert_eq!((drive.image.wear(ZoneIndex(3)), drive.image.counters().host_written_blocks), (1000, 1001));
    assert!(drive.report.journal_records < 1000, "{}", drive.report.journal_records);
}

#[test]
fn a_deallocated_block_reads_as_zeros_after_every_kind_of_stop() {
    for geometry in [mixed(), plain()] {
        let mut drive = drive(geometry);
        drive.write(3, 2, 50);
        drive.write(48, 4, 60);
        let ranges = [(3, 1), (49, 2)].map(|(start, blocks)| LbaRange { start: Lba(start), blocks: Blocks(blocks) });
        assert_eq!(drive.run(Operation::Deallocate { ranges: ranges.into() }).status, Status::Success);
        drive.run(Operation::Flush);
        let mut drive = unplugged(drive);
        assert_eq!(drive.marks(3, 2), [Ok(0), Ok(51)]);
        assert_eq!(drive.marks(48, 4), [Ok(60), Ok(0), Ok(0), Ok(63)]);
        assert_eq!(pointer(&drive, 3), 4);
    }
}

#[test]
fn a_full_machine_returns_the_command() {
    let mut drive = drive(mixed());
    let read =
        |id| Command::new(CommandId(id), NamespaceId::FIRST, Operation::Read { start: Lba(0), blocks: Blocks(1) });
    for id in 0..crate::limits::COMMANDS_MAX as u64 {
        drive.image.submit(Instant::ZERO, read(id)).unwrap();
    }
    let refused = drive.image.submit(Instant::ZERO, read(1 << 20)).unwrap_err();
    assert_eq!(refused.0, read(1 << 20));
    drive.collect();
    assert_eq!(drive.complete_all().len(), crate::limits::COMMANDS_MAX);
    drive.image.poll(&mut CompletionQueue::new());
    assert!(drive.image.is_idle());
}

#[test]
fn an_existing_image_is_not_overwritten_and_invalid_specifications_are_refused() {
    let mut disk = Disk::new();
    create(&spec(mixed()), &mut disk).unwrap();
    assert_eq!(create(&spec(mixed()), &mut disk), Err(ImageError::Exists));
    let refuse = |spec: ImageSpec| create(&spec, &mut Disk::new()).unwrap_err().to_string();
    let spec = ImageSpec::new(mixed(), String::new(), [1; 16]);
    assert!(refuse(ImageSpec { profile: "#".repeat(40_000), ..spec.clone() }).contains("exceed the maximum"));
    assert!(refuse(ImageSpec { journal_bytes: 4096, ..spec.clone() }).contains("journal_bytes"));
    let geometry = Geometry { block_size_bytes: 520, ..mixed() };
    assert!(refuse(ImageSpec { geometry, ..spec }).contains("block_size_bytes"));
}

#[test]
fn a_partly_created_image_is_refused_and_can_be_created_again() {
    for changes in 1..40 {
        let mut disk = Disk::new();
        disk.changes_left = Some(changes);
        let created = create(&spec(mixed()), &mut disk).is_ok();
        disk.changes_left = None;
        match open(&mut disk) {
            Ok((image, _)) => assert_eq!(image.spec(), &spec(mixed()), "one copy of the superblock is enough"),
            Err(error) => {
                assert!(!created);
                assert_eq!(error, ImageError::NotAnImage);
                disk.bytes(ImageFile::Superblock).clear();
                create(&spec(mixed()), &mut disk).unwrap();
                open(&mut disk).unwrap();
            }
        }
    }
}

#[test]
fn an_image_is_inspected_without_being_changed() {
    let mut drive = drive(mixed());
    drive.write(48, 3, 1);
    drive.manage(ZoneAction::Reset, 48);
    drive.write(48, 2, 1);
    let mut disk = drive.kill(&mut Prng::new(1));
    let before: Vec<Vec<u8>> = ImageFile::ALL.map(|file| disk.bytes(file).clone()).into();
    let inspection = inspect(&mut disk).unwrap();
    let after: Vec<Vec<u8>> = ImageFile::ALL.map(|file| disk.bytes(file).clone()).into();
    assert!(before == after);
    assert!(!inspection.clean);
    assert_eq!(inspection.spec, spec(mixed()));
    assert_eq!(inspection.zones.zone(ZoneIndex(3)).write_pointer_blocks, Blocks(2));
    assert_eq!((inspection.wear[3], inspection.counters.host_written_blocks), (1, 5));
    let drive = Drive::open(disk);
    assert_eq!(drive.image.zones(), &inspection.zones);
    assert_eq!(drive.image.counters(), inspection.counters);
    let mut disk = drive.close();
    assert!(inspect(&mut disk).unwrap().clean);
}
