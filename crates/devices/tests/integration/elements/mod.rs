//! Storage elements of images: over orderly restarts, over crashes at any time, and without their
//! file.

mod testbed;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use testbed::{SECOND, Testbed, ZONES, check_owners, image, make, standings, used};
use zonda_devices::{Drive, ELEMENTS_FILE, FileBacked, LoadedElements, Model, PacedDrive};
use zonda_ssd::allocation::{ElementState, ElementTracker};
use zonda_ssd::profile::Profile;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Instant, Lba, NamespaceId, Operation, Payload, Prng, Status,
    ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::images::SmallDisk;

#[test]
fn after_a_kill_at_any_time_the_elements_are_at_least_as_saved() {
    for (seed, allocation) in (0..).zip(["block", "vchunk-2", "hchunk-2", "vchunk-4", "block"]) {
        let (_directory, path) = image(allocation);
        let mut prng = Prng::new(seed);
        let mut testbed = Testbed::open(&path);
        let (mut kills_after_changes, mut kept) = (0, 0);
        for _ in 0..15 {
            for _ in 0..prng.below(30) {
                let operation = testbed.random_operation(&mut prng);
                testbed.execute(operation);
            }
            testbed.wait_until_saved(&path);
            let (saved, padding_bytes) = (testbed.tracker().table(), testbed.tracker().padding_bytes());
            let before = standings(testbed.drive.image());
            let changes = testbed.tracker().changes();
            let mut was_reset = [false; ZONES as usize];
            for _ in 0..prng.below(6) {
                for _ in 0..=prng.below(4) {
                    let operation = testbed.random_operation(&mut prng);
                    match operation {
                        Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) } => {
                            let zone = testbed.drive.image().geometry().zone_of(start).expect("it is a zone's");
                            was_reset[zone.as_usize()] = true;
                        }
                        Operation::ManageZones { action: ZoneAction::Reset, .. } => was_reset.fill(true),
                        _ => {}
                    }
                    testbed.submit(operation);
                }
                // Some commands have completed, some are in flight, some are not submitted; a save
                // may be in flight, too.
                testbed.now += Duration(prng.below(SECOND.0));
                if prng.chance(2, 3) {
                    testbed.poll();
                }
                if prng.chance(1, 2) {
                    testbed.run_once();
                }
            }
            kills_after_changes += u32::from(testbed.tracker().changes() > changes);
            drop(testbed);
            testbed = Testbed::open(&path);
            assert_eq!(testbed.drive.elements_reset_reason(), None);
            testbed.tracker().check_invariants();
            let found = testbed.tracker().table();
            check_owners(&found, testbed.drive.image());
            for zone in 0..ZONES as usize {
                let ((written, _), elements) = (before[zone], &found.zones[zone]);
                if was_reset[zone] || written == 0 {
                    continue;
                }
                kept += 1;
                // Written elements are kept. The others may be freed by a FINISH, and reallocated
                // if that was saved and the image lost it.
                let had = &saved.zones[zone];
                let is_written = |element: &&u32| saved.elements[**element as usize].state == ElementState::Written;
                let written_elements = had.iter().filter(is_written).count();
                let stays =
                    elements.len() >= written_elements && elements[..written_elements] == had[..written_elements];
                assert!(stays && written_elements > 0, "zone {zone}, seed {seed}: has {elements:?}, had {had:?}");
            }
            for (before, after) in saved.elements.iter().zip(&found.elements) {
                assert!(after.erases >= before.erases, "wear is not less than saved");
            }
            assert!(testbed.tracker().padding_bytes() >= padding_bytes);
        }
        assert!(kills_after_changes > 3 && kept > 20, "{kills_after_changes} kills and {kept} zones are enough");
        assert!(testbed.tracker().wear().erases > 0, "elements were reused");
    }
}

#[test]
fn an_orderly_restart_restores_everything() {
    let (_directory, path) = image("hchunk-2");
    let mut prng = Prng::new(11);
    let mut testbed = Testbed::open(&path);
    for _ in 0..6 {
        for _ in 0..prng.below(60) {
            let operation = testbed.random_operation(&mut prng);
            testbed.execute(operation);
        }
        let (record, facts) = (testbed.tracker().record(), testbed.drive.facts());
        let (spec, zones) = (testbed.drive.image().spec().clone(), testbed.drive.image().zones().clone());
        testbed.close();
        let found =
            LoadedElements::inspect(&path, &spec, &zones).expect("it is of this version").expect("it has elements");
        assert_eq!(found.tracker.changes(), 0, "there are no unsaved changes");
        testbed = Testbed::open(&path);
        assert!(testbed.was_clean);
        assert_eq!(testbed.tracker().record(), record);
        assert_eq!(testbed.drive.facts().life, facts.life);
        assert_eq!((testbed.tracker().changes(), testbed.drive.take_warning()), (0, None));
    }
    let life = testbed.drive.facts().life.expect("an image counts");
    let elements = testbed.drive.facts().elements.expect("zones are built of elements");
    assert_eq!((elements.elements, life.wear_units), (u64::from(ZONES) * 4, elements.elements));
    assert!(life.erases_total > 0 && life.device_write_bytes > 0 && life.dlwa() > 1.0, "{life:?}");
}

#[test]
fn elements_are_saved_at_most_once_per_second_and_only_after_changes() {
    let (_directory, path) = image("block");
    let mut testbed = Testbed::open(&path);
    let file = path.join(ELEMENTS_FILE);
    let new = std::fs::read(&file).unwrap();
    testbed.now = Instant(5 * SECOND.0);
    testbed.execute(testbed.write(3, 16));
    testbed.wait_until_saved(&path);
    let first = std::fs::read(&file).unwrap();
    assert_ne!(first, new);
    assert_eq!(testbed.drive.next_timeout(), None, "no wakeup is needed");

    testbed.execute(testbed.write(3, 16));
    assert_eq!(testbed.drive.next_timeout(), None, "further writes to a zone follow from its write pointer");
    testbed.now += SECOND;
    testbed.execute(testbed.write(4, 16));
    let save_at = testbed.now + SECOND;
    for _ in 0..50 {
        testbed.run_once();
    }
    let second = std::fs::read(&file).unwrap();
    assert_ne!(second, first, "the last save is more than a second ago");
    testbed.execute(testbed.manage(ZoneAction::Finish, 4));
    assert_eq!(testbed.drive.next_timeout(), Some(save_at), "the next one has to wait");
    for _ in 0..50 {
        testbed.run_once();
    }
    assert_eq!(std::fs::read(&file).unwrap(), second);
    testbed.wait_until_saved(&path);
}

#[test]
fn a_drive_with_fixed_zones_has_no_elements_and_counts_by_zone() {
    let (_directory, path) = image("fixed");
    assert!(!path.join(ELEMENTS_FILE).exists());
    let mut testbed = Testbed::open(&path);
    testbed.execute(testbed.write(0, 32));
    testbed.execute(testbed.manage(ZoneAction::Finish, 0));
    testbed.execute(testbed.manage(ZoneAction::Reset, 0));
    assert_eq!(testbed.drive.next_timeout(), None);
    let facts = testbed.drive.facts();
    let life = facts.life.expect("an image counts");
    assert_eq!((facts.elements, testbed.drive.elements_reset_reason()), (None, None));
    assert_eq!((life.wear_units, life.erases_total, life.device_write_bytes), (u64::from(ZONES), 1, 96 * 4096));
    testbed.close();
    assert!(!path.join(ELEMENTS_FILE).exists());
}

#[test]
fn dlwa_includes_the_padding_of_the_policy_and_wear_is_by_element() {
    // Half a zone is its first segment; a quarter is half of that.
    for (allocation, at_a_half, at_a_quarter) in [("block", 0, 32), ("vchunk-4", 0, 32), ("hchunk-2", 64, 96)] {
        let (_directory, path) = image(allocation);
        let mut testbed = Testbed::open(&path);
        for (zone, blocks, padded) in [(0, 64, at_a_half), (1, 32, at_a_half + at_a_quarter)] {
            assert_eq!(testbed.execute(testbed.write(zone, blocks)), Status::Success);
            assert_eq!(testbed.execute(testbed.manage(ZoneAction::Finish, zone)), Status::Success);
            let life = testbed.drive.facts().life.expect("an image counts");
            assert_eq!(life.device_write_bytes, padded * 4096, "{allocation} at {blocks}");
            assert_eq!(life.zone_resets, 0);
        }
        testbed.close();
        let testbed = Testbed::open(&path);
        let life = testbed.drive.facts().life.expect("an image counts");
        assert_eq!(life.host_write_bytes + life.device_write_bytes, (96 + at_a_half + at_a_quarter) * 4096);
    }
}

#[test]
fn without_its_file_a_drive_resets_its_elements_logs_it_and_has_all_its_data() {
    type Damage = fn(&Path);
    let alter = |path: &Path, offsets: &[u64]| {
        let file = OpenOptions::new().write(true).open(path.join(ELEMENTS_FILE)).unwrap();
        offsets.iter().for_each(|offset| file.write_all_at(b"\xa5\x5a", *offset).unwrap());
    };
    let both: Damage = |path| {
        let file = OpenOptions::new().read(true).write(true).open(path.join(ELEMENTS_FILE)).unwrap();
        let half = file.metadata().unwrap().len() / 2;
        file.write_all_at(b"\xa5", 70).unwrap();
        file.write_all_at(b"\xa5", half + 70).unwrap();
    };
    let missing: Damage = |path| std::fs::remove_file(path.join(ELEMENTS_FILE)).unwrap();
    let cut: Damage =
        |path| OpenOptions::new().write(true).open(path.join(ELEMENTS_FILE)).unwrap().set_len(50).unwrap();
    let empty: Damage = |path| std::fs::write(path.join(ELEMENTS_FILE), b"").unwrap();
    let letter: Damage = |path| std::fs::write(path.join(ELEMENTS_FILE), "a letter, ".repeat(10_000)).unwrap();
    let of_another: Damage = |path| {
        let (_directory, other) = used("block");
        std::fs::copy(other.join(ELEMENTS_FILE), path.join(ELEMENTS_FILE)).unwrap();
    };
    for (damage, words) in [
        (missing, "is missing"),
        (both, "it is damaged"),
        (cut, "it is damaged"),
        (empty, "it was never written"),
        (letter, "it is not a table of storage elements"),
        (of_another, "it belongs to another image"),
    ] {
        let (_directory, path) = used("block");
        damage(&path);
        let mut testbed = Testbed::open(&path);
        let why = testbed.drive.elements_reset_reason().expect("they are reset").to_owned();
        assert!(why.contains(words), "{why}");
        let warning = testbed.drive.take_warning().expect("there is a warning");
        assert!(
            warning.starts_with("the storage elements are reset, and their wear is lost") && warning.contains(words)
        );
        assert_eq!(testbed.drive.media_errors(), 0, "data are not affected");
        assert_eq!((testbed.tracker().wear().erases, standings(testbed.drive.image())[0]), (0, (40, false)));
        check_owners(&testbed.tracker().table(), testbed.drive.image());
        assert_eq!(testbed.execute(testbed.write(0, 10)), Status::Success);
        let record = testbed.tracker().record();
        testbed.close();
        let mut testbed = Testbed::open(&path);
        assert_eq!(
            (testbed.drive.take_warning(), testbed.tracker().record()),
            (None, record),
            "{words}: they are saved again"
        );
    }
    // One slot, and then the other one.
    let (_directory, path) = used("block");
    let mut testbed = Testbed::open(&path);
    testbed.fill_both_slots(&path);
    let wear = testbed.tracker().wear();
    testbed.close();
    let half = std::fs::metadata(path.join(ELEMENTS_FILE)).unwrap().len() / 2;
    for offset in [100, half + 100] {
        alter(&path, &[offset]);
        let mut testbed = Testbed::open(&path);
        assert_eq!(
            (testbed.drive.elements_reset_reason(), testbed.tracker().wear().erases_min),
            (None, wear.erases_min)
        );
        let warning = testbed.drive.take_warning().expect("there is a warning");
        assert!(warning.contains("the earlier one is used"), "{warning}");
        testbed.execute(testbed.write(0, 1));
        testbed.fill_both_slots(&path);
        testbed.close();
    }
}

#[test]
fn elements_of_a_later_version_are_not_changed() {
    let (_directory, path) = used("block");
    let file = path.join(ELEMENTS_FILE);
    let half = std::fs::metadata(&file).unwrap().len() / 2;
    let opened = OpenOptions::new().write(true).open(&file).unwrap();
    [8, half + 8].iter().for_each(|offset| opened.write_all_at(&[2], *offset).unwrap());
    let before = std::fs::read(&file).unwrap();
    let mut testbed = Testbed::open(&path);
    let warning = testbed.drive.take_warning().expect("there is a warning");
    assert!(
        warning.contains("is not used and not changed: it has version 2") && warning.contains("use the zonda"),
        "{warning}"
    );
    assert!(testbed.drive.elements().is_none() && testbed.drive.facts().elements.is_none());
    testbed.execute(testbed.write(1, 10));
    testbed.close();
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn elements_that_cannot_be_saved_are_used_while_the_drive_is_open() {
    let (_directory, path) = used("block");
    std::fs::remove_file(path.join(ELEMENTS_FILE)).unwrap();
    std::fs::create_dir(path.join(ELEMENTS_FILE)).unwrap();
    let mut testbed = Testbed::open(&path);
    let warning = testbed.drive.take_warning().expect("there is a warning");
    assert!(warning.contains("cannot be opened") && warning.contains("cannot save the storage elements"), "{warning}");
    assert_eq!(testbed.execute(testbed.write(1, 10)), Status::Success);
    assert_eq!((testbed.drive.next_timeout(), testbed.tracker().table().zones[1].len()), (None, 8));
    testbed.close();
}

#[test]
fn elements_are_saved_on_a_file_system_that_is_full() {
    let Some(disk) = SmallDisk::new(16 << 20) else {
        println!("skipped: a small file system cannot be mounted here");
        return;
    };
    let path = disk.0.path().join("drive");
    make(&path, "block");
    let file = path.join(ELEMENTS_FILE);
    let length = std::fs::metadata(&file).unwrap().len();
    let whole: fn(&Path, u64) = |_, _| ();
    let missing: fn(&Path, u64) = |file, _| std::fs::remove_file(file).unwrap();
    // As a copy that is sparse.
    let sparse: fn(&Path, u64) = |file, length| {
        let content = std::fs::read(file).unwrap();
        let copy = std::fs::File::create(file).unwrap();
        copy.set_len(length).unwrap();
        copy.write_all_at(&content[..64.min(content.len())], 0).unwrap();
    };
    for (what, damage) in [("whole", whole), ("missing", missing), ("sparse", sparse)] {
        damage(&file, length);
        let mut testbed = Testbed::open(&path);
        while testbed.drive.take_warning().is_some() {}
        let ballast = disk.fill();
        testbed.execute(testbed.manage(ZoneAction::Finish, 3));
        testbed.wait_until_saved(&path);
        testbed.execute(testbed.manage(ZoneAction::Reset, 3));
        testbed.wait_until_saved(&path);
        assert_eq!(testbed.drive.take_warning(), None, "{what}");
        std::fs::remove_file(ballast).unwrap();
        testbed.close();
    }
}

#[test]
fn the_elements_of_an_offline_zone_are_retired() {
    let (_directory, path) = image("block");
    let mut testbed = Testbed::open(&path);
    testbed.execute(testbed.write(2, 100));
    testbed.drive.degrade(ZoneIndex(2), ZoneState::Offline);
    assert_eq!(testbed.tracker().facts().retired, 8);
    testbed.execute(Operation::Flush);
    testbed.wait_until_saved(&path);
    drop(testbed);
    let testbed = Testbed::open(&path);
    assert_eq!(testbed.drive.image().zones().zone(ZoneIndex(2)).state, ZoneState::Offline);
    let table = testbed.tracker().table();
    assert!(table.zones[2].iter().all(|element| table.elements[*element as usize].state == ElementState::Retired));
    assert_eq!(table.zones[2].len(), 8);
}

/// How long a command takes on a model, in nanoseconds.
fn time_of(model: &mut Model, operation: Operation) -> u64 {
    let command = Command::new(CommandId(1), NamespaceId::FIRST, operation);
    model.submit(Instant::ZERO, command).expect("it is idle");
    let mut completions = CompletionQueue::new();
    let mut now = Instant::ZERO;
    while completions.is_empty() {
        now = now.max(model.next_timeout().expect("a command is in flight"));
        model.poll(now, &mut completions);
    }
    assert_eq!(completions.pop().expect("it has ended").status, Status::Success);
    now.0
}

fn model_of(drive: &FileBacked, with_elements: bool) -> Model {
    let profile = Profile::parse(&drive.image().spec().profile).expect("it was read before");
    let table = drive.elements().filter(|_| with_elements).map(ElementTracker::table);
    Model::from_zones(&profile, drive.image().zones(), table.as_ref(), &Prng::new(1))
}

#[test]
fn a_paced_drive_pads_and_erases_after_a_restart_as_without_one() {
    let (program_ns, erase_ns) = (500_000, 5_000_000);
    let (_directory, path) = used("block");
    let mut testbed = Testbed::open(&path);
    testbed.execute(testbed.write(0, 24));
    assert_eq!(standings(testbed.drive.image())[0].0, 64, "half of zone 0 is its first segment");
    testbed.execute(testbed.write(1, 32));
    testbed.wait_until_saved(&path);
    drop(testbed);

    let testbed = Testbed::open(&path);
    let finish = |zone| testbed.manage(ZoneAction::Finish, zone);
    let at_a_half = time_of(&mut model_of(&testbed.drive, true), finish(0));
    let at_a_quarter = time_of(&mut model_of(&testbed.drive, true), finish(1));
    assert!(at_a_half < program_ns, "no element is written in part: {at_a_half} ns");
    // Half of the 64 KiB of each die is written: eight pages have to be programmed.
    assert!((8 * program_ns..9 * program_ns).contains(&at_a_quarter), "{at_a_quarter} ns");

    let worn = time_of(&mut model_of(&testbed.drive, true), testbed.write(2, 4));
    let new = time_of(&mut model_of(&testbed.drive, false), testbed.write(2, 4));
    assert!(worn >= erase_ns + program_ns, "all elements were used, so the first write erases: {worn} ns");
    assert!(new < erase_ns, "{new} ns");
}

#[test]
fn a_paced_drive_updates_the_elements_of_its_drive() {
    let (_directory, path) = image("block");
    let testbed = Testbed::open(&path);
    let model = model_of(&testbed.drive, true);
    let mut paced = PacedDrive::new(Box::new(testbed.drive), model);
    let ring = testbed.ring;
    let write = Operation::Append { zone_start: Lba(0), blocks: Blocks(64), payload: Payload::None };
    let finish = Operation::ManageZones { action: ZoneAction::Finish, target: ZoneTarget::Zone(Lba(0)) };
    for (id, operation) in (1..).zip([write, finish]) {
        let command = Command::new(CommandId(id), NamespaceId::FIRST, operation);
        paced.submit(ring.now(), command).expect("there is a queue slot");
        let mut completions = CompletionQueue::new();
        while completions.is_empty() {
            paced.poll(ring.now(), &mut completions);
            ring.run_once(Some(ring.now() + Duration(100_000))).expect("the ring works");
        }
        assert_eq!(completions.pop().expect("it has ended").status, Status::Success);
    }
    let facts = paced.facts();
    let elements = facts.elements.expect("zones are built of elements");
    assert_eq!((elements.written, elements.allocated, facts.life.expect("it counts").device_write_bytes), (4, 0, 0));
    paced.close(ring.now());
    while !paced.is_closed() {
        paced.poll(ring.now(), &mut CompletionQueue::new());
        ring.run_once(Some(ring.now() + Duration(100_000))).expect("the ring works");
    }
    drop(paced);
    assert_eq!(Testbed::open(&path).tracker().facts().written, 4);
}
