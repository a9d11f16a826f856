//! Repair: blocks that verify are copied, and lost ones are unreadable, never zeros and never
//! older.

use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{Geometry, Lba, Operation, PayloadKind, Prng, Status, ZoneAction, ZoneIndex};

use super::damage::{all, checkpoint_of, set_checkpoint, small, used_of};
use crate::format::layout::Layout;
use crate::format::record::{MARK_STRIDE, MARKS_BYTES};
use crate::format::superblock::COPY_BYTES;
use crate::testing::{Crash, Disk, Drive, Observed, spec};
use crate::{FileError, Files, Finding, ImageError, ImageFile, RepairReport, ZoneDoubt, check, open, repair};

const NEW_UUID: [u8; 16] = *b"another uuid ...";

fn repaired(damaged: &Disk) -> (Disk, RepairReport) {
    let (mut damaged, mut new) = (damaged.clone(), Disk::new());
    let before = all(&mut damaged);
    let report = repair(&mut damaged, &mut new, NEW_UUID, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(all(&mut damaged) == before, "the damaged image is not written");
    // Unsynced changes are lost: there must be none.
    new.forget_unsynced();
    (new, report)
}

/// Repairs an image; each block is as before or unreadable, as the report and a check of the new
/// image show.
fn assert_right(damaged: &Disk, before: &Observed, what: &str) -> (Drive, RepairReport) {
    let (mut new, report) = repaired(damaged);
    let checked = check(&mut new, &mut |_| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(checked.clean, "{what}");
    let mut drive = Drive::open(new);
    assert!(drive.report.clean && drive.report.finished_zones.is_empty(), "{what}");
    let mut found = drive.observe();
    for (lba, found) in found.blocks.iter_mut().filter(|(_, found)| found.is_err()) {
        // It may be another block of the same transfer.
        *found = drive.read(lba.0, 1).map(|buffer| (buffer.data, buffer.metadata));
    }
    let mut unreadable = Vec::new();
    for ((lba, found), (_, before)) in found.blocks.iter().zip(&before.blocks) {
        match found {
            Ok(_) => assert!(found == before || before.is_err(), "{what}: block {lba}, {report:?}"),
            Err(Status::UnrecoveredReadError) => unreadable.push(*lba),
            Err(status) => assert_eq!(Err(*status), *before, "{what}: block {lba}"),
        }
    }
    let listed: Vec<Lba> = report.unreadable.iter().flat_map(|run| (run.start.0..run.end.0).map(Lba)).collect();
    assert_eq!(listed, unreadable, "{what}");
    assert_eq!(report.unreadable_blocks, unreadable.len() as u64, "{what}");
    let findings: Vec<Finding> = unreadable
        .iter()
        .map(|&lba| {
            let zone = ZoneIndex((lba.0 / drive.image.geometry().zone_size_blocks.0) as u32);
            Finding::Block { zone, lba }
        })
        .collect();
    assert_eq!(checked.findings, findings, "{what}");
    (drive, report)
}

/// Zones and blocks of the image as opening it recovers them.
fn observed(disk: &Disk) -> Observed {
    Drive::open(disk.clone()).observe()
}

/// Unreadable blocks can be rewritten, in place or after a reset, and survive a kill.
fn assert_usable(mut drive: Drive, what: &str) {
    let geometry = drive.image.geometry().clone();
    let size = geometry.zone_size_blocks.0;
    for zone in 0..u64::from(geometry.zone_count) {
        if zone >= u64::from(geometry.conventional_zone_count) {
            assert_eq!(drive.manage(ZoneAction::Reset, zone * size), Status::Success, "{what}: zone {zone}");
        }
        assert_eq!(drive.write(zone * size, 2, 7 + zone as u8), Status::Success, "{what}: zone {zone}");
        if zone >= u64::from(geometry.conventional_zone_count) {
            assert_eq!(drive.manage(ZoneAction::Finish, zone * size), Status::Success, "{what}: zone {zone}");
        }
    }
    let mut drive = Drive::open(drive.kill(&mut Prng::new(1)));
    for zone in 0..u64::from(geometry.zone_count) {
        let mark = 7 + zone as u8;
        assert_eq!(drive.marks(zone * size, 2), [Ok(mark), Ok(mark + 1)], "{what}: zone {zone}");
    }
}

/// Blocks with metadata: overwrites are journaled.
fn small_with_metadata() -> Geometry {
    Geometry { metadata_bytes: 8, ..small() }
}

/// Changes bytes of these files, and repairs the images that an opening refuses. Returns their
/// number.
fn refused_and_repaired(
    disk: &Disk,
    before: &Observed,
    cases: impl Iterator<Item = usize>,
    what: &str,
    change: impl Fn(&mut Disk, usize),
) -> usize {
    let mut refused = 0;
    for case in cases {
        let mut damaged = disk.clone();
        change(&mut damaged, case);
        if open(&mut damaged.clone()).is_ok() {
            continue;
        }
        refused += 1;
        let what = format!("{what}, {case}");
        let (drive, report) = assert_right(&damaged, before, &what);
        assert!(!report.damage.is_empty(), "{what}");
        if case % 50 == 0 {
            assert_usable(drive, &what);
        }
    }
    refused
}

/// Every damage, or one in `step`, of images that were used and killed or shut down cleanly.
fn damage_all(step: usize) {
    for (clean, geometry) in
        [(true, small()), (false, small()), (true, small_with_metadata()), (false, small_with_metadata())]
    {
        let (disk, _) = used_of(geometry.clone(), clean);
        let before = observed(&disk);
        let layout = Layout::new(&geometry, spec(geometry.clone()).journal_bytes);
        let name = |what: &str| format!("{what}, clean {clean}, metadata {}", geometry.metadata_bytes);
        let copy = layout.checkpoint_bytes() as usize;
        let second = layout.slot_offset(1) as usize;
        let refused =
            refused_and_repaired(&disk, &before, (0..copy).step_by(step), &name("both checkpoints"), |disk, at| {
                disk.bytes(ImageFile::State)[at] ^= 1 << (at % 8);
                disk.bytes(ImageFile::State)[second + at] ^= 1 << (at % 7);
            });
        assert!(refused > copy / step / 2);
        let journal = layout.journal_bytes as usize;
        let refused = refused_and_repaired(&disk, &before, (0..journal).step_by(step), &name("journal"), |disk, at| {
            disk.bytes(ImageFile::Journal)[at] ^= 1 << (at % 8);
        });
        assert_eq!(refused > 0, !clean);
        let refused = refused_and_repaired(&disk, &before, (0..40).step_by(step), &name("both marks"), |disk, at| {
            disk.bytes(ImageFile::Journal)[at] ^= 1 << (at % 8);
            disk.bytes(ImageFile::Journal)[MARK_STRIDE as usize + 39 - at] ^= 1;
        });
        assert_eq!(refused, if clean { 0 } else { 40_usize.div_ceil(step) });
        for file in ImageFile::ALL.into_iter().skip(1) {
            let length = layout.length(file) as usize;
            // Few of the many lengths within a block differ in anything.
            let step = if step == 1 && file == ImageFile::Data { 7 } else { step };
            let refused =
                refused_and_repaired(&disk, &before, (0..length).step_by(step), &name(file.name()), |disk, at| {
                    disk.bytes(file).truncate(at);
                });
            assert_eq!(refused, length.div_ceil(step));
        }
    }
}

#[test]
fn blocks_of_a_damaged_image_are_as_before_or_unreadable() {
    damage_all(97);
}

#[test]
#[ignore = "soak"]
fn soak_every_byte_of_an_image_may_be_damaged_and_its_blocks_are_as_before_or_unreadable() {
    damage_all(1);
}

/// The files after a random history, and at some moments before. With `quiet`, no command is
/// outstanding at the end.
fn history(geometry: &Geometry, seed: u64, quiet: bool) -> (Disk, Vec<Disk>) {
    let root = Prng::new(seed);
    let mut prng = root.fork("history");
    let mut source = CommandSource::new(geometry, PayloadKind::Bytes, root.fork("commands"));
    let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
    let mut drive = Drive::create(&spec(geometry.clone()));
    let mut earlier = Vec::new();
    for round in 0..4 {
        for _ in 0..prng.below(120) {
            let command = source.next(&oracle);
            oracle.execute(&command);
            drive.submit_command(command);
            while drive.out.len() > 4 || prng.chance(1, 3) && !drive.out.is_empty() {
                drive.step_any(&mut prng);
            }
            drive.poll();
            if prng.chance(1, 30) {
                drive.image.checkpoint();
                drive.collect();
            }
            if prng.chance(1, 20) {
                earlier.push(drive.disk.clone());
            }
        }
        let crashes: &[Crash] =
            if quiet { &[Crash::Kill, Crash::Close] } else { &[Crash::Kill, Crash::PowerLoss, Crash::Close] };
        let crash = *prng.pick(crashes).unwrap();
        if quiet || crash == Crash::Close {
            drive.complete_all();
        }
        let disk = match crash {
            Crash::Close => drive.close(),
            Crash::Kill | Crash::None => drive.kill(&mut prng),
            Crash::PowerLoss => drive.lose_power(&mut prng),
        };
        if round == 3 {
            return (disk, earlier);
        }
        drive = Drive::open(disk);
        oracle = drive.observe().oracle(geometry);
    }
    unreachable!("the last round returns")
}

fn histories(count: u64, quiet: bool, mut each: impl FnMut(&Geometry, u64, Disk, Vec<Disk>)) {
    let mut geometries = Prng::new(4);
    for seed in 0..count {
        let geometry = random_geometry(&mut geometries);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (disk, earlier) = history(&geometry, seed, quiet);
            each(&geometry, seed, disk, earlier);
        }));
        if let Err(cause) = result {
            eprintln!("history {seed}: {geometry:?}");
            std::panic::resume_unwind(cause);
        }
    }
}

fn repair_images_that_open(count: u64) {
    histories(count, false, |_, _, disk, _| {
        let (new, report) = repaired(&disk);
        let (mut opened, mut new) = (Drive::open(disk), Drive::open(new));
        assert!(new.report.clean && report.damage.is_empty());
        assert_eq!(report.unreadable_blocks, 0);
        assert_eq!(report.finished_zones, opened.report.finished_zones);
        assert_eq!(report.accepted_blocks, opened.report.accepted_blocks);
        let counters = (opened.image.counters(), new.image.counters());
        assert_eq!(counters.0, counters.1);
        assert_eq!(opened.image.reservations(), new.image.reservations());
        let (before, after) = (opened.observe(), new.observe());
        assert_eq!(before.zones, after.zones);
        assert_eq!(before.blocks, after.blocks);
    });
}

#[test]
fn an_image_that_can_be_opened_is_repaired_to_what_opening_it_finds() {
    repair_images_that_open(60);
}

#[test]
#[ignore = "soak"]
fn soak_images_that_can_be_opened_are_repaired_to_what_opening_them_finds() {
    repair_images_that_open(3000);
}

/// Damages random histories: files truncated, bytes altered, copies restored, one or several at a
/// time.
fn damage_histories(count: u64, cases: u64) {
    let mut refused = 0;
    histories(count, true, |geometry, seed, disk, earlier| {
        let mut prng = Prng::new(seed).fork("damage");
        let layout = Layout::new(geometry, spec(geometry.clone()).journal_bytes);
        let before = observed(&disk);
        for _ in 0..cases {
            let mut damaged = disk.clone();
            let mut what = format!("history {seed}");
            for _ in 0..1 + prng.below(2) {
                what += &damage(&mut damaged, &earlier, &layout, &mut prng);
            }
            if open(&mut damaged.clone()).is_ok() {
                continue;
            }
            refused += 1;
            assert_right(&damaged, &before, &what);
        }
    });
    assert!(refused > count * cases / 2, "{refused} of {count} x {cases}");
}

fn damage(disk: &mut Disk, earlier: &[Disk], layout: &Layout, prng: &mut Prng) -> String {
    let flip = |disk: &mut Disk, file: ImageFile, from: u64, length: u64, prng: &mut Prng| {
        let byte = (from + prng.below(length)) as usize;
        disk.bytes(file)[byte % (layout.length(file) as usize).max(1)] ^= 1 << prng.below(8);
        byte
    };
    let whole = ImageFile::ALL.into_iter().all(|file| disk.bytes(file).len() as u64 == layout.length(file));
    match prng.below(5) {
        0 => {
            let file = *prng.pick(&ImageFile::ALL[1..]).unwrap();
            let length = prng.below(disk.bytes(file).len() as u64 + 1) as usize;
            disk.bytes(file).truncate(length);
            format!(", {file} cut at {length}")
        }
        1 if whole => {
            let length = layout.checkpoint_bytes();
            let (first, second) = (
                flip(disk, ImageFile::State, 0, length, prng),
                flip(disk, ImageFile::State, layout.slot_offset(1), length, prng),
            );
            format!(", checkpoint damaged at {first} and {second}")
        }
        2 if whole => format!(", journal damaged at {}", flip(disk, ImageFile::Journal, 8192, 2000, prng)),
        3 if whole => {
            let bytes =
                (flip(disk, ImageFile::Journal, 0, 40, prng), flip(disk, ImageFile::Journal, MARK_STRIDE, 40, prng));
            format!(", marks damaged at {bytes:?}")
        }
        _ if !earlier.is_empty() => {
            let which = prng.below(earlier.len() as u64) as usize;
            *disk.bytes(ImageFile::State) = earlier[which].clone().bytes(ImageFile::State).clone();
            format!(", state.zonda as at moment {which}")
        }
        _ => String::new(),
    }
}

#[test]
fn a_journal_of_which_only_an_earlier_mark_is_left_does_not_prove_that_nothing_was_recorded() {
    let (disk, _) = used_of(small(), false);
    let before = observed(&disk);
    for cut in [40, 41, MARK_STRIDE as usize, MARK_STRIDE as usize + 40, MARKS_BYTES as usize] {
        let mut damaged = disk.clone();
        damaged.bytes(ImageFile::Journal).truncate(cut);
        let (_, report) = assert_right(&damaged, &before, &format!("cut at {cut}"));
        let words = report.damage.join("; ");
        assert!(words.contains("later zone management may be missing, including resets"), "{words}");
    }
}

#[test]
fn an_image_without_a_good_superblock_is_refused_and_nothing_is_made() {
    let (mut disk, _) = used_of(small(), true);
    for copy in 0..2 {
        disk.bytes(ImageFile::Superblock)[copy * COPY_BYTES + 60] ^= 1;
    }
    let mut new = Disk::new();
    let error = repair(&mut disk, &mut new, NEW_UUID, &mut |_| {}).unwrap_err();
    let words =
        "image.zonda: both copies of the superblock are damaged: restore the whole image directory from a backup";
    assert_eq!(error.to_string(), words);
    assert_eq!(new.length(ImageFile::Superblock), Err(FileError::Missing));
}

#[test]
fn a_zone_in_an_impossible_state_keeps_the_blocks_that_verify() {
    for clean in [true, false] {
        let (mut disk, _) = used_of(small(), true);
        let before = observed(&disk);
        let mut checkpoint = checkpoint_of(&mut disk);
        checkpoint.clean = clean;
        checkpoint.ledger.entries[1].finished = true;
        set_checkpoint(&mut disk, &checkpoint);
        let (_, report) = assert_right(&disk, &before, &format!("clean {clean}"));
        assert_eq!(report.damage, ["state.zonda: zone 1 is in a state that is not possible on this drive"]);
        assert_eq!((report.unreadable_blocks, report.zones[1].copied_blocks), (0, 3));
        assert_eq!(report.zones[1].doubt, Some(ZoneDoubt::Entry));
        assert_eq!(report.zones[0].doubt, None);
    }
}

#[test]
fn a_zone_whose_reset_is_lost_with_its_checkpoint_keeps_only_the_blocks_of_its_newest_generation() {
    let mut drive = Drive::open(used_of(small(), false).0);
    // Three blocks are in zone 1 at this checkpoint; after it the zone is reset, and two are
    // written.
    let old = drive.disk.bytes(ImageFile::State).clone();
    let layout = Layout::new(&small(), spec(small()).journal_bytes);
    let (data, tags) = (layout.data_offset(ZoneIndex(1), 2) as usize, layout.tag_offset(ZoneIndex(1), 2) as usize);
    let third = drive.disk.bytes(ImageFile::Data)[data..][..512].to_vec();
    let tag = drive.disk.bytes(ImageFile::Tags)[tags..][..8].to_vec();
    assert_eq!(drive.manage(ZoneAction::Reset, 8), Status::Success);
    assert_eq!(drive.write(8, 2, 90), Status::Success);
    drive.image.checkpoint();
    drive.collect();
    drive.complete_all();
    assert_eq!(drive.manage(ZoneAction::Reset, 24), Status::Success);
    let mut disk = drive.kill(&mut Prng::new(1));
    let before = observed(&disk);
    // The hole of the reset has not reached the medium everywhere.
    disk.bytes(ImageFile::Data)[data..][..512].copy_from_slice(&third);
    disk.bytes(ImageFile::Tags)[tags..][..8].copy_from_slice(&tag);
    *disk.bytes(ImageFile::State) = old;
    let (mut repaired, report) = assert_right(&disk, &before, "an older checkpoint");
    assert_eq!(repaired.marks(8, 3), [Ok(90), Ok(91), Ok(0)]);
    assert_eq!(report.unreadable_blocks, 0);
    assert_eq!(report.zones.iter().find(|zone| zone.zone.0 == 1).unwrap().doubt, Some(ZoneDoubt::Generation));
}

/// Zone 1 was written, reset and written further; then the journal, and after a clean shutdown the
/// checkpoint too, is replaced by the one from before the reset. An opening takes both for
/// complete.
fn with_older_management(clean: bool) -> (Disk, Observed) {
    let stopped = |drive: Drive| if clean { drive.close() } else { drive.kill(&mut Prng::new(1)) };
    let mut drive = Drive::create(&spec(small()));
    assert_eq!(drive.write(8, 3, 20), Status::Success);
    let disk = drive.close();
    let mut old = stopped(Drive::open(disk.clone()));
    let mut drive = Drive::open(disk);
    assert_eq!(drive.manage(ZoneAction::Reset, 8), Status::Success);
    assert_eq!(drive.write(8, 6, 90), Status::Success);
    assert_eq!(drive.write(0, 2, 5), Status::Success);
    assert_eq!(drive.run(Operation::Flush).status, Status::Success);
    let mut disk = stopped(drive);
    let before = observed(&disk);
    *disk.bytes(ImageFile::Journal) = old.bytes(ImageFile::Journal).clone();
    if clean {
        *disk.bytes(ImageFile::State) = old.bytes(ImageFile::State).clone();
    }
    (disk, before)
}

#[test]
fn blocks_that_are_newer_than_checkpoint_and_journal_are_copied() {
    for clean in [true, false] {
        let (disk, before) = with_older_management(clean);
        // An opening takes the first three blocks for damaged, and the others for unwritten.
        let mut opened = Drive::open(disk.clone());
        assert_eq!(opened.marks(13, 1), [Ok(0)], "clean shutdown: {clean}");
        let findings = check(&mut disk.clone(), &mut |_| {}).unwrap().findings;
        assert_eq!(findings.first(), Some(&Finding::Later { zone: ZoneIndex(1) }), "clean shutdown: {clean}");
        let (mut repaired, report) = assert_right(&disk, &before, "older management");
        let expected = [90, 91, 92, 93, 94, 95, 0].map(Ok);
        assert_eq!(repaired.marks(8, 7), expected, "clean shutdown: {clean}");
        assert_eq!(repaired.marks(0, 2), [Ok(5), Ok(6)]);
        assert_eq!(report.unreadable_blocks, 0);
        assert_eq!(report.zones[1].doubt, Some(ZoneDoubt::Generation));
        let words = "state.zonda and journal.zonda are older than blocks of zone 1: records written since are missing";
        assert_eq!(report.damage, [words]);
        assert_usable(repaired, "older management");
    }
}

#[test]
fn a_damaged_block_among_those_newer_than_checkpoint_and_journal_is_unreadable() {
    let (mut disk, before) = with_older_management(false);
    let layout = Layout::new(&small(), spec(small()).journal_bytes);
    disk.bytes(ImageFile::Data)[layout.data_offset(ZoneIndex(1), 4) as usize] ^= 1;
    let (mut repaired, report) = assert_right(&disk, &before, "older management");
    assert_eq!(repaired.marks(11, 3), [Ok(93), Err(Status::UnrecoveredReadError), Ok(95)]);
    assert_eq!(report.unreadable, [Lba(12)..Lba(13)]);
}

#[test]
fn an_interrupted_repair_leaves_no_image_or_a_complete_one() {
    let (mut disk, _) = used_of(small(), true);
    disk.bytes(ImageFile::Data).truncate(2000);
    let (mut complete, _) = repaired(&disk);
    let mut refused = 0;
    for changes in 0.. {
        let mut new = Disk::new();
        (new.changes_left, new.prng) = (Some(changes), Some(Prng::new(changes)));
        let is_done = repair(&mut disk, &mut new, NEW_UUID, &mut |_| {}).is_ok();
        new.changes_left = None;
        new.lose_power(&mut Prng::new(changes));
        match open(&mut new) {
            Ok(_) => {
                let blocks = [ImageFile::Data, ImageFile::Tags];
                assert!(blocks.iter().all(|&file| new.bytes(file) == complete.bytes(file)), "{changes} changes");
            }
            Err(error) => {
                assert!(matches!(error, ImageError::NotAnImage | ImageError::Damaged { .. }), "{changes}: {error}");
                assert!(!is_done, "{changes} changes: {error}");
                refused += 1;
            }
        }
        if is_done {
            break;
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn blocks_of_damaged_histories_are_as_before_or_unreadable() {
    damage_histories(40, 12);
}

#[test]
#[ignore = "soak"]
fn soak_blocks_of_many_damaged_histories_are_as_before_or_unreadable() {
    damage_histories(1000, 60);
}

#[test]
fn flushed_blocks_of_a_zrwa_whose_tags_are_lost_are_unreadable() {
    let mut drive = Drive::create(&spec(small()));
    assert_eq!(drive.manage(ZoneAction::Open { zrwa: true }, 8), Status::Success);
    assert_eq!(drive.write(8, 2, 20), Status::Success);
    assert_eq!(drive.run(Operation::Flush).status, Status::Success);
    let mut disk = drive.kill(&mut Prng::new(1));
    let before = observed(&disk);
    let layout = Layout::new(&small(), spec(small()).journal_bytes);
    disk.bytes(ImageFile::Tags)
        [layout.tag_offset(ZoneIndex(1), 0) as usize..layout.tag_offset(ZoneIndex(2), 0) as usize]
        .fill(0);
    let last_byte = layout.length(ImageFile::Data) as usize - 1;
    disk.bytes(ImageFile::Data).truncate(last_byte);
    let (_, report) = assert_right(&disk, &before, "lost tags");
    assert_eq!(report.unreadable, [Lba(8)..Lba(10)]);
}
