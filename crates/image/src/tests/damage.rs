//! Files that were truncated, and bytes that were altered.

use zonda_zoned::{Blocks, Geometry, Operation, Prng, Status, ZoneAction, ZoneIndex, ZoneTarget, ZrwaGeometry};

use crate::format::Generation;
use crate::format::checkpoint::{self, Checkpoint};
use crate::format::entry::{Entry, RecordedState};
use crate::format::layout::Layout;
use crate::format::record::{HEADER_BYTES, Kind, MARK_STRIDE, MARKS_BYTES, Place, Record, decode_mark, encode_mark};
use crate::format::superblock::COPY_BYTES;
use crate::testing::{Disk, Drive, spec};
use crate::{Counters, Finding, ImageError, ImageFile, check, inspect, open};

/// The contents of blocks, as a list of their marks.
pub(super) type Contents = Vec<Result<u8, Status>>;

pub(super) fn small() -> Geometry {
    Geometry {
        zone_count: 4,
        conventional_zone_count: 1,
        zone_size_blocks: Blocks(8),
        zone_capacity_blocks: Blocks(8),
        metadata_bytes: 0,
        zrwa: Some(ZrwaGeometry {
            size_blocks: Blocks(2),
            flush_granularity_blocks: Blocks(1),
            resources: 1,
            explicit_flush: true,
        }),
        ..Geometry::tiny()
    }
}

/// A drive with all kinds of zones and blocks, flushed, and with management after the flush; the
/// files after a kill, or after a clean shutdown.
pub(super) fn used(clean: bool) -> (Disk, Contents) {
    used_of(small(), clean)
}

/// The same with another geometry.
pub(super) fn used_of(geometry: Geometry, clean: bool) -> (Disk, Contents) {
    let mut drive = Drive::create(&spec(geometry));
    drive.write(0, 4, 1);
    drive.write(8, 8, 20);
    drive.manage(ZoneAction::Reset, 8);
    drive.write(8, 3, 40);
    drive.manage(ZoneAction::SetDescriptorExtension { extension: vec![3; 64].into(), zrwa: true }, 16);
    drive.write(16, 2, 60);
    drive.manage(ZoneAction::FlushZrwa, 16);
    drive.run(Operation::Flush);
    drive.write(24, 2, 80);
    drive.manage(ZoneAction::Finish, 24);
    let contents = drive.marks(0, 32);
    let disk = if clean { drive.close() } else { drive.kill(&mut Prng::new(1)) };
    (disk, contents)
}

/// Opens a copy of the files; returns the contents, or the error.
fn shown(disk: &Disk) -> Result<Contents, String> {
    match open(&mut disk.clone()) {
        Err(error) => Err(error.to_string()),
        Ok(_) => Ok(Drive::open(disk.clone()).marks(0, 32)),
    }
}

/// Flips a bit of each byte; the contents are unchanged, or the drive is refused with a remedy.
/// Returns how often it is refused.
fn flip(disk: &Disk, file: ImageFile, bytes: impl Iterator<Item = usize>, contents: &Contents) -> usize {
    let mut refused = 0;
    for byte in bytes {
        let mut damaged = disk.clone();
        damaged.bytes(file)[byte] ^= 1 << (byte % 8);
        match shown(&damaged) {
            Ok(found) => assert_eq!(found, *contents, "byte {byte} of {file}"),
            Err(words) => {
                refused += 1;
                assert!(words.contains(file.name()) && words.contains(": "), "byte {byte}: {words}");
            }
        }
    }
    refused
}

#[test]
fn any_byte_of_superblock_or_checkpoint_may_be_altered_without_loss() {
    for clean in [true, false] {
        let (disk, contents) = used(clean);
        let used_of_copy = 200;
        let superblock = (0..used_of_copy).chain(COPY_BYTES..COPY_BYTES + used_of_copy);
        assert_eq!(flip(&disk, ImageFile::Superblock, superblock, &contents), 0);
        let padding = (used_of_copy..2 * COPY_BYTES).step_by(97);
        assert_eq!(flip(&disk, ImageFile::Superblock, padding, &contents), 0);
        let state = disk.clone().bytes(ImageFile::State).len();
        assert_eq!(flip(&disk, ImageFile::State, 0..state, &contents), 0);
    }
}

#[test]
fn an_altered_byte_of_the_journal_does_no_harm_or_is_reported() {
    let (disk, contents) = used(true);
    let journal = spec(small()).journal_bytes as usize;
    assert_eq!(
        flip(&disk, ImageFile::Journal, 0..journal, &contents),
        0,
        "after a clean shutdown the journal is not needed"
    );
    let (disk, contents) = used(false);
    let refused = flip(&disk, ImageFile::Journal, 0..journal, &contents);
    assert!((500..1500).contains(&refused), "the synced records, of about 70 bytes each: {refused}");
}

#[test]
fn a_truncated_file_is_repaired_or_refused_by_its_length() {
    for clean in [true, false] {
        let (disk, contents) = used(clean);
        for file in ImageFile::ALL {
            let length = disk.clone().bytes(file).len();
            let step = if file == ImageFile::Superblock { 31 } else { 1 };
            for cut in (0..length).step_by(step) {
                let mut damaged = disk.clone();
                damaged.bytes(file).truncate(cut);
                match shown(&damaged) {
                    Ok(found) => {
                        assert_eq!(file, ImageFile::Superblock);
                        assert_eq!(found, contents);
                    }
                    Err(words) => assert!(words.contains(file.name()), "{file} cut at {cut}: {words}"),
                }
            }
        }
    }
}

#[test]
fn an_altered_byte_of_a_block_or_its_tag_makes_the_block_unreadable_and_is_found_by_a_check() {
    for clean in [true, false] {
        let (disk, contents) = used(clean);
        let layout = Layout::new(&small(), spec(small()).journal_bytes);
        for file in [ImageFile::Data, ImageFile::Tags] {
            let unit = if file == ImageFile::Data { layout.block_bytes } else { layout.tag_bytes } as usize;
            for byte in 0..disk.clone().bytes(file).len() {
                // Of a data block, test every thirteenth byte.
                if file == ImageFile::Data && byte % 13 != 0 {
                    continue;
                }
                let mut damaged = disk.clone();
                damaged.bytes(file)[byte] ^= 0x40;
                let block = byte / unit;
                let report = check(&mut damaged, &mut |_| {}).unwrap();
                let findings: Vec<u64> = report
                    .findings
                    .iter()
                    .map(|finding| match finding {
                        Finding::Block { lba, .. } => lba.0,
                        Finding::Copy { .. } | Finding::Later { .. } => panic!("{finding}"),
                    })
                    .collect();
                let found = shown(&damaged).unwrap();
                let unreadable: Vec<u64> =
                    (0..32).filter(|&lba| found[lba as usize] == Err(Status::UnrecoveredReadError)).collect();
                assert_eq!(findings, unreadable, "clean {clean}: byte {byte} of {file}");
                assert!(unreadable.is_empty() || unreadable == [block as u64]);
                for (lba, (found, expected)) in found.iter().zip(&contents).enumerate() {
                    assert!(found == expected || lba == block && found.is_err(), "block {lba} is {found:?}");
                }
                // A block without a tag is zeros, in the file too; data behind a write pointer are
                // ignored.
                let written = contents[block] != Ok(0);
                let is_looked_at = written || block < 8;
                if written || file == ImageFile::Data {
                    assert_eq!(unreadable.is_empty(), !is_looked_at, "clean {clean}: byte {byte} of {file}");
                }
            }
        }
    }
}

#[test]
fn a_check_of_a_good_image_finds_nothing_and_reports_its_progress() {
    for clean in [true, false] {
        let (mut disk, _) = used(clean);
        let before: Vec<Vec<u8>> = ImageFile::ALL.map(|file| disk.bytes(file).clone()).into();
        let mut steps = Vec::new();
        let report = check(&mut disk, &mut |progress| steps.push(progress)).unwrap();
        let after: Vec<Vec<u8>> = ImageFile::ALL.map(|file| disk.bytes(file).clone()).into();
        assert!(before == after, "a check changes nothing");
        assert_eq!((report.clean, report.findings.len(), report.blocks), (clean, 0, 8 + 3 + 2 + 2));
        assert_eq!(steps.iter().map(|step| step.zones).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(steps.last().unwrap().blocks, report.blocks);
        disk.bytes(ImageFile::State)[100] ^= 1;
        let report = check(&mut disk, &mut |_| {}).unwrap();
        assert_eq!(report.findings, [Finding::Copy { file: ImageFile::State }]);
        assert!(open(&mut disk).unwrap().1.checkpoint_repaired);
        let report = check(&mut disk, &mut |_| {}).unwrap();
        assert_eq!(report.findings, []);
    }
}

#[test]
fn an_image_with_another_magic_or_version_is_refused_with_its_reason() {
    let (mut disk, _) = used(true);
    for copy in 0..2 {
        disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES + 16] = 9;
    }
    let words = open(&mut disk).unwrap_err().to_string();
    assert!(words.contains("format version 9") && words.contains("versions up to 3"), "{words}");
    for copy in 0..2 {
        disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES] = b'Z';
    }
    assert_eq!(open(&mut disk).unwrap_err(), ImageError::NotAnImage);
    assert_eq!(open(&mut Disk::new()).unwrap_err(), ImageError::NotAnImage);
}

#[test]
fn files_of_two_images_are_not_mixed() {
    let (mut disk, _) = used(true);
    let mut other = Disk::new();
    crate::create(&crate::ImageSpec { uuid: [9; 16], ..spec(small()) }, &mut other).unwrap();
    *disk.bytes(ImageFile::State) = other.bytes(ImageFile::State).clone();
    let error = open(&mut disk).unwrap_err();
    assert_eq!(error, ImageError::OtherImage { file: ImageFile::State });
    assert!(error.to_string().contains("state.zonda does not belong to the same image as image.zonda"));
}

pub(super) fn all(disk: &mut Disk) -> [Vec<u8>; 5] {
    ImageFile::ALL.map(|file| disk.bytes(file).clone())
}

/// The checkpoint of an image.
pub(super) fn checkpoint_of(disk: &mut Disk) -> Checkpoint {
    let layout = Layout::new(&small(), spec(small()).journal_bytes);
    let copy = &disk.bytes(ImageFile::State)[..layout.checkpoint_bytes() as usize];
    checkpoint::decode(&layout, &spec(small()).uuid, copy).unwrap().unwrap()
}

/// Replaces both copies of the checkpoint.
pub(super) fn set_checkpoint(disk: &mut Disk, checkpoint: &Checkpoint) {
    let layout = Layout::new(&small(), spec(small()).journal_bytes);
    let Checkpoint { sequence, clean, ref ledger } = *checkpoint;
    let copy = checkpoint::encode(&layout, &spec(small()).uuid, sequence, clean, ledger);
    for slot in 0..2 {
        disk.bytes(ImageFile::State)[layout.slot_offset(slot) as usize..][..copy.len()].copy_from_slice(&copy);
    }
}

/// Asserts that open, inspect and check report that the checkpoint is older than the journal, and
/// change nothing.
fn assert_older_than_its_journal(disk: &Disk, sequence: u64, epoch: u64) {
    let mut disk = disk.clone();
    let before = all(&mut disk);
    let (checked, inspected) = (check(&mut disk, &mut |_| {}).unwrap_err(), inspect(&mut disk).unwrap_err());
    let opened = open(&mut disk).unwrap_err();
    assert_eq!((&checked, &inspected), (&opened, &opened));
    let words = format!(
        "state.zonda: checkpoint {sequence} is older than the journal, which follows checkpoint {epoch}: restore"
    );
    assert!(opened.to_string().starts_with(&words), "{opened}");
    assert!(all(&mut disk) == before, "a refused image is not changed");
}

#[test]
fn a_checkpoint_that_is_older_than_its_journal_is_refused_at_the_first_opening_without_a_change() {
    let operations = [
        ("a mark and a record", Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All }),
        ("a record that was not synced", Operation::Flush),
    ];
    for (what, operation) in operations {
        let is_marked = operation != Operation::Flush;
        let mut drive = Drive::open(used(false).0);
        let old = drive.disk.bytes(ImageFile::State).clone();
        drive.image.checkpoint();
        drive.collect();
        drive.complete_all();
        drive.write(11, 1, 43);
        assert_eq!(drive.run(operation).status, Status::Success, "{what}");
        let mut disk = drive.kill(&mut Prng::new(1));
        assert!(open(&mut disk.clone()).is_ok(), "{what}");
        let journal = disk.bytes(ImageFile::Journal);
        let marks = [0, MARK_STRIDE].map(|at| decode_mark(&journal[at as usize..], &spec(small()).uuid).unwrap());
        assert_eq!(marks.iter().any(|mark| mark.epoch == 4), is_marked, "{what}");
        *disk.bytes(ImageFile::State) = old;
        assert_older_than_its_journal(&disk, 3, 4);
    }
}

#[test]
fn a_checkpoint_from_before_the_last_opening_is_refused_even_if_nothing_was_recorded_since() {
    for clean in [true, false] {
        let (mut disk, _) = used(clean);
        let old = disk.bytes(ImageFile::State).clone();
        let mut disk = Drive::open(disk).lose_power(&mut Prng::new(1));
        *disk.bytes(ImageFile::State) = old;
        let sequence = checkpoint_of(&mut disk).sequence;
        assert_older_than_its_journal(&disk, sequence, sequence + 1);
    }
}

#[test]
fn an_image_without_a_good_mark_in_its_journal_is_refused_unless_it_was_shut_down_cleanly() {
    type Change = (&'static str, fn(&mut [u8]));
    let changes: [Change; 4] = [
        ("all of it is zero", |journal| journal.fill(0)),
        ("its marks and its first record are zero", |journal| journal[..MARKS_BYTES as usize + 4096].fill(0)),
        ("its marks are zero", |journal| journal[..MARKS_BYTES as usize].fill(0)),
        ("a bit of each mark has flipped", |journal| {
            journal[20] ^= 1;
            journal[MARK_STRIDE as usize + 20] ^= 1;
        }),
    ];
    for (what, change) in changes {
        for is_opened_before in [true, false] {
            // The zones reset and written here were empty at the last checkpoint.
            let (mut disk, contents) = used(false);
            if is_opened_before {
                disk = Drive::open(disk).kill(&mut Prng::new(2));
            }
            change(disk.bytes(ImageFile::Journal));
            let before = all(&mut disk);
            let refused = shown(&disk).expect_err(what);
            assert!(refused.starts_with("journal.zonda: both marks are damaged"), "{what}: {refused}");
            assert_eq!(check(&mut disk, &mut |_| {}).unwrap_err(), inspect(&mut disk).unwrap_err(), "{what}");
            assert!(all(&mut disk) == before, "a refused image is not changed");
            let (mut clean, _) = used(true);
            change(clean.bytes(ImageFile::Journal));
            assert_eq!(shown(&clean), Ok(contents), "{what}: the journal is not needed");
        }
    }
}

#[test]
fn a_good_mark_or_first_record_of_a_later_epoch_is_damage_even_after_a_clean_shutdown() {
    for clean in [true, false] {
        let (mut disk, contents) = used(clean);
        let sequence = checkpoint_of(&mut disk).sequence;
        for (epoch, refused) in [(sequence - 1, false), (sequence + 1, true), (sequence + 1000, true)] {
            let mark = encode_mark(&spec(small()).uuid, epoch, 20);
            let record = Record {
                kind: Kind::Zrwa,
                zone: ZoneIndex(1),
                generation: Generation(0),
                a: 0,
                b: 0,
                c: 0,
                payload: [&[], &[]],
            };
            let record = record.encode(Place { epoch, sequence: 1, previous: 0, failed_batches: 0 }).head;
            // The mark that is in use stays: without it a record of an earlier epoch in place of
            // the first one is the end.
            let places = [(0, &mark), (MARK_STRIDE, &mark), (MARKS_BYTES, &record)];
            for (at, bytes) in places.into_iter().filter(|(at, _)| refused || clean || *at == 0) {
                let mut disk = disk.clone();
                disk.bytes(ImageFile::Journal)[at as usize..][..bytes.len()].copy_from_slice(bytes);
                if refused {
                    assert_older_than_its_journal(&disk, sequence, epoch);
                } else {
                    assert_eq!(shown(&disk), Ok(contents.clone()), "clean {clean}: epoch {epoch} at {at}");
                }
            }
        }
    }
}

#[test]
fn a_drive_whose_checkpoint_has_the_last_sequence_can_be_opened_repeatedly() {
    for sequence in [(1 << 62) - 1, 1 << 62, (1 << 63) - 1, u64::MAX - 1, u64::MAX] {
        let (mut disk, contents) = used(true);
        let checkpoint = Checkpoint { sequence, ..checkpoint_of(&mut disk) };
        set_checkpoint(&mut disk, &checkpoint);
        if sequence > 1 << 63 {
            // The stale records are of an early epoch, which is about to come again.
            disk.bytes(ImageFile::Journal)[..MARKS_BYTES as usize + HEADER_BYTES].fill(0);
        }
        for opening in 0..4 {
            assert_eq!(shown(&disk), Ok(contents.clone()), "{sequence}, opening {opening}");
            let mut drive = Drive::open(disk);
            assert_eq!(drive.report.clean, opening != 2);
            // Each of them needs a record of the intent, and so a mark.
            assert_eq!(drive.write(0, 4, 1), Status::Success);
            drive.image.checkpoint();
            drive.collect();
            drive.complete_all();
            assert_eq!(drive.write(0, 4, 1), Status::Success);
            disk = if opening == 1 { drive.kill(&mut Prng::new(1)) } else { drive.close() };
        }
    }
}

#[test]
fn counters_saturate() {
    for distance in [0, 1, 5] {
        let (mut disk, _) = used(true);
        let mut checkpoint = checkpoint_of(&mut disk);
        let most = u64::MAX - distance;
        checkpoint.ledger.counters =
            Counters { host_written_blocks: most, padding_blocks: most, host_read_blocks: most, erases: most };
        set_checkpoint(&mut disk, &checkpoint);
        let mut drive = Drive::open(disk);
        for lba in [8, 16, 24] {
            assert_eq!(drive.manage(ZoneAction::Reset, lba), Status::Success);
        }
        for (lba, blocks) in [(0, 6), (8, 2), (24, 1)] {
            assert_eq!(drive.write(lba, blocks, 1), Status::Success);
        }
        assert_eq!(drive.manage(ZoneAction::Finish, 8), Status::Success);
        drive.marks(0, 8);
        drive.run(Operation::Flush);
        let ended = Counters {
            host_written_blocks: u64::MAX,
            padding_blocks: u64::MAX,
            host_read_blocks: u64::MAX,
            erases: most.saturating_add(3),
        };
        assert_eq!(drive.image.counters(), ended);
        drive.write(24 + 1, 2, 4);
        let drive = Drive::open(drive.kill(&mut Prng::new(1)));
        assert_eq!(drive.image.counters(), ended);
        assert_eq!(Drive::open(drive.close()).image.counters(), ended);
    }
}

#[test]
fn a_zone_in_an_impossible_state_is_refused_without_a_change() {
    let finished = Entry {
        state: RecordedState::Finished,
        finished: true,
        durable: 2,
        pointer: 2,
        written: 2,
        ..Entry::default()
    };
    let zrwa = Entry { has_zrwa: true, had_zrwa: true, pointer: 2, written: 4, ..Entry::default() };
    let cases = [
        ("finished", 1, finished, true),
        ("finished, then read only", 1, Entry { state: RecordedState::ReadOnly, ..finished }, true),
        ("finished, then writable", 1, Entry { state: RecordedState::Writable, ..finished }, false),
        ("finished without a Finish", 1, Entry { finished: false, ..finished }, false),
        ("finished, with a ZRWA", 1, Entry { has_zrwa: true, had_zrwa: true, ..finished }, false),
        ("finished, conventional", 0, finished, false),
        ("with a ZRWA", 1, zrwa, true),
        ("with a ZRWA, conventional", 0, zrwa, false),
        ("with a ZRWA that it never had", 1, Entry { had_zrwa: false, ..zrwa }, false),
        ("written beyond its ZRWA", 1, Entry { written: 5, ..zrwa }, false),
    ];
    for clean in [true, false] {
        for (what, zone, entry, possible) in cases {
            let (mut disk, _) = used(true);
            let mut checkpoint = checkpoint_of(&mut disk);
            checkpoint.clean = clean;
            checkpoint.ledger.entries[zone] = entry;
            // One zone has the drive's only ZRWA already.
            checkpoint.ledger.entries[2] = Entry::default();
            checkpoint.ledger.extensions.clear();
            set_checkpoint(&mut disk, &checkpoint);
            let before = all(&mut disk);
            match open(&mut disk) {
                Ok((image, _)) => {
                    image.check_invariants();
                    assert!(possible, "{what}, clean {clean}");
                }
                Err(error) => {
                    assert!(!possible && error.to_string().contains(&format!("zone {zone} is in a state")), "{error}");
                    assert!(all(&mut disk) == before, "{what}, clean {clean}");
                }
            }
        }
    }
}

#[test]
fn lost_tags_behind_the_last_remaining_one_do_not_make_a_zrwa_shorter() {
    for metadata_bytes in [0, 8] {
        let zrwa = ZrwaGeometry { size_blocks: Blocks(8), ..small().zrwa.unwrap() };
        let mut drive = Drive::create(&spec(Geometry { metadata_bytes, zrwa: Some(zrwa), ..small() }));
        assert!(drive.manage(ZoneAction::Open { zrwa: true }, 8).is_success());
        assert!(drive.write(8, 6, 1).is_success());
        let mut drive = Drive::open(drive.close());
        // If blocks have metadata, this one is rewritten from the journal.
        assert!(drive.write(11, 1, 50).is_success());
        let mut disk = drive.kill(&mut Prng::new(1));
        let lost_from = if metadata_bytes == 0 { 12 * 8 } else { 0 };
        disk.bytes(ImageFile::Tags)[lost_from..].fill(0);
        let findings = check(&mut disk, &mut |_| {}).unwrap().findings;
        assert_eq!(findings.len(), if metadata_bytes == 0 { 2 } else { 5 }, "{findings:?}");
        let lost = Err(Status::UnrecoveredReadError);
        let found = Drive::open(disk).marks(11, 4);
        assert_eq!(found, [Ok(50), lost, lost, Ok(0)], "{metadata_bytes} bytes of metadata");
    }
}
