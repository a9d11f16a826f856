//! Media that are not as a store left them: reported by name, and never a panic.

use proptest::prelude::*;
use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{Blocks, Geometry, Instant, Lba, PayloadKind, ZoneAction, ZoneIndex, ZoneState};

use crate::format::block::{Block, BlockKind};
use crate::format::record::{Record, RecordBuffer};
use crate::testing::{Harness, pattern, small, units_of_two_blocks};
use crate::{FileError, FileId, FileStore, Lifetime};

/// A drive with three files, of which the first is in zone 2.
fn drive() -> ReferenceDevice {
    let geometry = small(12, 5);
    let device = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut harness = Harness::format(&geometry, units_of_two_blocks(), device);
    harness.write_file("a", Lifetime::Long, 20 * 512);
    harness.write_file("b", Lifetime::Short, 900);
    harness.write_file("c", Lifetime::NotSet, 2000);
    harness.into_drive()
}

fn mount(drive: ReferenceDevice) -> Result<Harness<ReferenceDevice>, FileError> {
    let harness = Harness::on(FileStore::mount(&small(12, 5), units_of_two_blocks())?, drive);
    match &harness.failed {
        Some(error) => Err(error.clone()),
        None => Ok(harness),
    }
}

fn set_zone(drive: &mut ReferenceDevice, zone: u32, state: ZoneState, blocks: u64) {
    let image = ZoneImage { state, write_pointer_blocks: Blocks(blocks), zrwa: false, extension: None };
    drive.set_zone(ZoneIndex(zone), image);
}

fn block(drive: &ReferenceDevice, lba: u64) -> Vec<u8> {
    use zonda_zoned::{Command, CommandId, NamespaceId, Operation, Outcome, Payload};
    let operation = Operation::Read { start: Lba(lba), blocks: Blocks(1) };
    let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
    match drive.clone().execute(&command).outcome {
        Outcome::Data(Payload::Bytes(buffer)) => buffer.data.to_vec(),
        other => panic!("a read ended with {other:?}"),
    }
}

fn set_block(drive: &mut ReferenceDevice, lba: u64, data: &[u8]) {
    drive.set_block_bytes(Lba(lba), data, &[0; 8]);
}

/// Appends a block of records to the metadata.
fn append_record(drive: &mut ReferenceDevice, record: &Record<'_>) {
    let written = drive.image(ZoneIndex(0)).write_pointer_blocks.0;
    let sequence = Block::decode(&block(drive, 0)).unwrap().sequence;
    let mut records = RecordBuffer::default();
    records.push(record);
    let blocks = records.pack(sequence, written as u32, 1, 512);
    set_zone(drive, 0, ZoneState::Closed, written + 1);
    set_block(drive, written, &blocks);
}

#[test]
fn a_drive_without_a_store_is_distinguished_from_a_damaged_one() {
    let empty = ReferenceDevice::new(small(12, 5), PayloadKind::Bytes);
    assert_eq!(mount(empty).err(), Some(FileError::NotAFileStore));
    let mut foreign = ReferenceDevice::new(small(12, 5), PayloadKind::Bytes);
    set_zone(&mut foreign, 0, ZoneState::Closed, 5);
    set_block(&mut foreign, 0, &[7; 512]);
    assert_eq!(mount(foreign).err(), Some(FileError::NotAFileStore));
}

#[test]
fn a_store_of_another_version_is_refused() {
    let mut drive = drive();
    let bytes = block(&drive, 0);
    let superblock = Block::decode(&bytes).unwrap();
    let mut payload = superblock.payload.to_vec();
    payload[0] = 9;
    let mut other = Vec::new();
    Block { payload: &payload, ..superblock }.encode(512, &mut other);
    set_block(&mut drive, 0, &other);
    assert_eq!(mount(drive).err(), Some(FileError::OtherVersion { found: 9 }));
}

#[test]
fn a_store_is_not_mounted_on_a_drive_of_another_geometry() {
    let geometry = Geometry { zone_count: 11, ..small(12, 5) };
    let mut drive = drive();
    let mut other = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    for block_number in 0..12 {
        set_zone(&mut other, 0, ZoneState::Closed, 12);
        let bytes = block(&drive, block_number);
        set_block(&mut other, block_number, &bytes);
    }
    let harness = Harness::on(FileStore::mount(&geometry, units_of_two_blocks()).unwrap(), other);
    assert!(matches!(&harness.failed, Some(FileError::Config(words)) if words.contains("another geometry")));
    set_zone(&mut drive, 11, ZoneState::Empty, 0);
    assert!(mount(drive).is_ok());
}

#[test]
fn a_write_pointer_behind_the_data_of_a_file_is_damage() {
    let mut lost = drive();
    set_zone(&mut lost, 2, ZoneState::Empty, 0);
    let words = mount(lost).err().expect("the file's data are lost").to_string();
    assert!(words.contains("file \"a\"") && words.contains("zone 2") && words.contains("damaged"), "{words}");
    let mut cut = drive();
    set_zone(&mut cut, 3, ZoneState::Closed, 5);
    let words = mount(cut).err().expect("some of the file's data are lost").to_string();
    assert!(words.contains("zone 3") && words.contains("up to block 5"), "{words}");
}

#[test]
fn a_torn_end_of_the_metadata_is_dropped_and_the_store_continues_in_another_zone() {
    let mut drive = drive();
    let written = drive.image(ZoneIndex(0)).write_pointer_blocks.0;
    set_zone(&mut drive, 0, ZoneState::Closed, written + 1);
    set_block(&mut drive, written, &[0xee; 512]);
    let mut harness = mount(drive).unwrap();
    assert_eq!(harness.store().names().count(), 3);
    harness.write_file("d", Lifetime::Long, 3000);
    let mut harness = harness.remount(units_of_two_blocks()).unwrap();
    for (name, length) in [("a", 20 * 512), ("b", 900), ("c", 2000), ("d", 3000)] {
        let file = harness.store().lookup(name).unwrap();
        assert_eq!(harness.contents(file), pattern(file.0, length), "{name}");
    }
}

#[test]
fn a_damaged_block_in_the_middle_of_the_metadata_is_damage() {
    let mut drive = drive();
    set_block(&mut drive, 2, &[0; 512]);
    let words = mount(drive).err().expect("records are lost").to_string();
    assert!(words.contains("block 2 of the metadata"), "{words}");
}

#[test]
fn a_damaged_superblock_next_to_an_older_one_is_damage() {
    let geometry = small(12, 5);
    let device = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut harness = Harness::format(&geometry, units_of_two_blocks(), device);
    // Until the metadata are in the second zone.
    for number in 0.. {
        harness.write_file("a", Lifetime::Long, 100);
        harness.delete("a");
        if harness.take_commands().iter().any(|seen| seen.name == "reset" && seen.zone == 1) {
            break;
        }
        assert!(number < 100);
    }
    let mut drive = harness.into_drive();
    set_block(&mut drive, 16, &[0; 512]);
    let words = mount(drive).err().expect("the newest metadata are lost").to_string();
    assert!(words.contains("metadata zone 1 has no superblock"), "{words}");
}

#[test]
fn a_metadata_zone_that_became_read_only_before_it_was_written_is_no_damage() {
    let mut drive = drive();
    set_zone(&mut drive, 1, ZoneState::ReadOnly, 0);
    let mut harness = mount(drive).expect("the other metadata zone is complete");
    let file = harness.store().lookup("a").expect("it was closed");
    assert_eq!(harness.contents(file), pattern(file.0, 20 * 512));
}

#[test]
fn files_in_a_read_only_zone_are_readable_and_those_in_an_offline_zone_fail() {
    let mut drive = drive();
    drive.degrade(ZoneIndex(2), ZoneState::ReadOnly);
    drive.degrade(ZoneIndex(4), ZoneState::Offline);
    let mut harness = mount(drive).unwrap();
    let [a, c] = ["a", "c"].map(|name| harness.store().lookup(name).unwrap());
    assert_eq!(harness.contents(a), pattern(a.0, 20 * 512));
    let read = harness.read(c, 0, 10);
    assert!(matches!(harness.error(read), FileError::Media { status: zonda_zoned::Status::ZoneIsOffline, .. }));
    assert_eq!(harness.store().usage().zones_empty, 7);
    for name in ["a", "c"] {
        let delete = harness.delete(name);
        harness.expect(delete);
    }
    assert_eq!(harness.store().usage().zones_empty, 7, "neither is used again");
}

#[test]
fn a_mount_resets_neither_read_only_nor_offline_zones() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let mut drive = drive();
        drive.degrade(ZoneIndex(4), state);
        let mut store = FileStore::mount(&small(12, 5), units_of_two_blocks()).unwrap();
        while let Some(command) = store.poll_command(Instant::ZERO) {
            assert_ne!(command.operation.name(), "reset", "zone 4 is {state}");
            let completion = drive.execute(&command);
            store.on_completion(Instant::ZERO, completion);
        }
        assert!(store.is_ready(), "zone 4 is {state}");
    }
}

#[test]
fn a_zone_is_written_up_to_the_end_of_its_extents_where_the_drive_reports_no_write_pointer() {
    for (zone, state) in [(2, ZoneState::ReadOnly), (2, ZoneState::Offline), (4, ZoneState::ReadOnly)] {
        let mut drive = drive();
        let usage = mount(drive.clone()).unwrap().store().usage();
        drive.degrade(ZoneIndex(zone), state);
        let mut harness = mount(drive).unwrap();
        let found = harness.store().usage();
        assert_eq!(
            (found.live_bytes, found.dead_bytes, found.written_bytes),
            (usage.live_bytes, usage.dead_bytes, usage.written_bytes),
            "zone {zone} is {state}"
        );
        // Data of a deleted file there stay dead, because the zone cannot be reset. Zone 3 has the
        // end of file a.
        let (name, blocks) = if zone == 2 { ("a", 20) } else { ("c", 4) };
        let delete = harness.delete(name);
        harness.expect(delete);
        assert_eq!(harness.store().usage().dead_bytes, blocks * 512);
    }
}

#[test]
fn a_zone_is_written_up_to_the_end_of_its_extents_whatever_its_finish_record_contains() {
    for (recorded, written) in [(0, 4), (3, 4), (4, 4), (6, 6)] {
        let mut drive = drive();
        let c = mount(drive.clone()).unwrap().store().lookup("c").unwrap();
        // File c has the first four blocks of zone 4.
        set_zone(&mut drive, 4, ZoneState::Full, 16);
        append_record(&mut drive, &Record::ZoneFinished { zone: ZoneIndex(4), written: recorded });
        let before = mount(drive.clone()).unwrap().store().usage();
        let mut harness = mount(drive).unwrap();
        let others = 20 + 2;
        assert_eq!(before.written_bytes, (others + written) * 512, "finished at block {recorded}");
        assert_eq!((before.zones_finished_early, before.dead_bytes), (1, (written - 4) * 512));
        assert_eq!(harness.contents(c), pattern(c.0, 2000));
    }
}

#[test]
fn a_zone_that_was_reset_behind_the_store_is_noticed_when_it_is_mounted() {
    let geometry = small(12, 5);
    let mut harness = Harness::new(geometry, units_of_two_blocks());
    harness.write_file("a", Lifetime::Long, 5000);
    harness.manage(2, ZoneAction::Reset);
    assert!(matches!(harness.remount(units_of_two_blocks()), Err(FileError::Corrupt(_))));
}

/// Exercises a mounted store, so that an undetected inconsistency of the metadata would show.
fn use_up(mut harness: Harness<ReferenceDevice>) {
    let names: Vec<(String, FileId)> = harness.store().names().map(|(name, file)| (name.to_owned(), file)).collect();
    for (_, file) in &names {
        harness.read(*file, 0, 100_000);
        harness.append(*file, &pattern(1, 700));
        harness.sync(*file);
    }
    if let Ok(file) = harness.store().create("new", Lifetime::Long) {
        harness.append(file, &pattern(1, 3000));
        harness.close(file);
    }
    for (name, _) in &names {
        harness.delete(name);
    }
    let _ = harness.remount(units_of_two_blocks());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_to_a_block_makes_a_mount_panic(place in 0..40u64, byte in 0..512usize, value in any::<u8>()) {
        let mut drive = drive();
        let mut bytes = block(&drive, place);
        bytes[byte] ^= value;
        set_block(&mut drive, place, &bytes);
        if let Ok(harness) = mount(drive) {
            use_up(harness);
        }
    }

    #[test]
    fn no_payload_with_a_right_checksum_makes_a_mount_panic(
        place in 0..8u32,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut drive = drive();
        let bytes = block(&drive, u64::from(place));
        if let Some(found) = Block::decode(&bytes)
            && !found.payload.is_empty()
        {
            let mut payload = found.payload.to_vec();
            for (at, value) in changes {
                let at = at.index(payload.len());
                payload[at] = value;
            }
            let mut other = Vec::new();
            Block { payload: &payload, ..found }.encode(512, &mut other);
            set_block(&mut drive, u64::from(place), &other);
        }
        if let Ok(harness) = mount(drive) {
            use_up(harness);
        }
    }

    #[test]
    fn no_records_from_anywhere_make_a_mount_panic(payload in prop::collection::vec(any::<u8>(), 0..480)) {
        let mut drive = drive();
        let written = drive.image(ZoneIndex(0)).write_pointer_blocks.0;
        let sequence = Block::decode(&block(&drive, 0)).unwrap().sequence;
        set_zone(&mut drive, 0, ZoneState::Closed, written + 1);
        let mut other = Vec::new();
        let place = written as u32;
        Block { kind: BlockKind::Records, sequence, place, payload: &payload }.encode(512, &mut other);
        set_block(&mut drive, written, &other);
        if let Ok(harness) = mount(drive) {
            use_up(harness);
        }
    }
}
