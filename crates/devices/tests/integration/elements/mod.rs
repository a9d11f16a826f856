//! Storage elements of images: over restarts in order, over crashes at any time, and without their file.

mod bed;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bed::{Bed, SECOND, ZONES, check_owners, image, make, standings, used};
use zonda_devices::{Drive, ELEMENTS_FILE, FileBacked, FoundElements, Model, PacedDrive};
use zonda_ssd::allocation::{ElementBook, ElementState};
use zonda_ssd::profile::Profile;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Instant, Lba, NamespaceId, Operation, Payload, Prng, Status,
    ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::images::SmallDisk;

#[test]
fn whatever_is_killed_when_the_elements_are_those_that_were_saved() {
    for (seed, allocation) in (0..).zip(["block", "vchunk-2", "hchunk-2", "vchunk-4", "block"]) {
        let (_directory, path) = image(allocation);
        let mut prng = Prng::new(seed);
        let mut bed = Bed::open(&path);
        let (mut kills_after_changes, mut kept) = (0, 0);
        for _ in 0..15 {
            for _ in 0..prng.below(30) {
                let operation = bed.draw(&mut prng);
                bed.execute(operation);
            }
            bed.settle(&path);
            let (saved, padding_bytes) = (bed.book().table(), bed.book().padding_bytes());
            let before = standings(bed.drive.image());
            let changes = bed.book().changes();
            let mut was_reset = [false; ZONES as usize];
            for _ in 0..prng.below(6) {
                for _ in 0..=prng.below(4) {
                    let operation = bed.draw(&mut prng);
                    match operation {
                        Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) } => {
                            let zone = bed.drive.image().geometry().zone_of(start).expect("it is a zone's");
                            was_reset[zone.as_usize()] = true;
                        }
                        Operation::ManageZones { action: ZoneAction::Reset, .. } => was_reset.fill(true),
                        _ => {}
                    }
                    bed.submit(operation);
                }
                // Some have ended, some are under way, some have not begun; a save may be under way too.
                bed.now += Duration(prng.below(SECOND.0));
                if prng.chance(2, 3) {
                    bed.poll();
                }
                if prng.chance(1, 2) {
                    bed.turn();
                }
            }
            kills_after_changes += u32::from(bed.book().changes() > changes);
            drop(bed);
            bed = Bed::open(&path);
            assert_eq!(bed.drive.elements_began_anew(), None);
            bed.book().check_invariants();
            let found = bed.book().table();
            check_owners(&found, bed.drive.image());
            for zone in 0..ZONES as usize {
                let ((written, _), elements) = (before[zone], &found.zones[zone]);
                if was_reset[zone] || written == 0 {
                    continue;
                }
                kept += 1;
                // What is written stays where it is. The rest may be given back by a FINISH, and had anew where that was saved
                // and the image lost it.
                let had = &saved.zones[zone];
                let is_written = |element: &&u32| saved.elements[**element as usize].state == ElementState::Written;
                let written_elements = had.iter().filter(is_written).count();
                let stays =
                    elements.len() >= written_elements && elements[..written_elements] == had[..written_elements];
                assert!(stays && written_elements > 0, "zone {zone}, seed {seed}: {elements:?} and had {had:?}");
            }
            for (before, after) in saved.elements.iter().zip(&found.elements) {
                assert!(after.erases >= before.erases, "wear does not go back behind what was saved");
            }
            assert!(bed.book().padding_bytes() >= padding_bytes);
        }
        assert!(kills_after_changes > 3 && kept > 20, "{kills_after_changes} and {kept} are worth the test");
        assert!(bed.book().wear().erases > 0, "elements were used again");
    }
}

#[test]
fn after_a_stop_in_order_everything_is_as_it_was() {
    let (_directory, path) = image("hchunk-2");
    let mut prng = Prng::new(11);
    let mut bed = Bed::open(&path);
    for _ in 0..6 {
        for _ in 0..prng.below(60) {
            let operation = bed.draw(&mut prng);
            bed.execute(operation);
        }
        let (record, facts) = (bed.book().record(), bed.drive.facts());
        let (spec, zones) = (bed.drive.image().spec().clone(), bed.drive.image().zones().clone());
        bed.close();
        let found = FoundElements::look(&path, &spec, &zones).expect("it is of this version").expect("it has elements");
        assert_eq!(found.book.changes(), 0, "nothing has to be made up for");
        bed = Bed::open(&path);
        assert!(bed.was_clean);
        assert_eq!(bed.book().record(), record);
        assert_eq!(bed.drive.facts().life, facts.life);
        assert_eq!((bed.book().changes(), bed.drive.take_trouble()), (0, None));
    }
    let life = bed.drive.facts().life.expect("an image counts");
    let elements = bed.drive.facts().elements.expect("zones are built of elements");
    assert_eq!((elements.elements, life.worn_units), (u64::from(ZONES) * 4, elements.elements));
    assert!(life.erases_total > 0 && life.device_write_bytes > 0 && life.dlwa() > 1.0, "{life:?}");
}

#[test]
fn elements_are_saved_once_a_second_at_most_and_only_when_something_has_happened() {
    let (_directory, path) = image("block");
    let mut bed = Bed::open(&path);
    let file = path.join(ELEMENTS_FILE);
    let new = std::fs::read(&file).unwrap();
    bed.now = Instant(5 * SECOND.0);
    bed.execute(bed.write(3, 16));
    bed.settle(&path);
    let first = std::fs::read(&file).unwrap();
    assert_ne!(first, new);
    assert_eq!(bed.drive.next_wakeup(), None, "there is nothing to be woken for");

    bed.execute(bed.write(3, 16));
    assert_eq!(bed.drive.next_wakeup(), None, "more of a zone is found by its write pointer");
    bed.now += SECOND;
    bed.execute(bed.write(4, 16));
    let save_at = bed.now + SECOND;
    for _ in 0..50 {
        bed.turn();
    }
    let second = std::fs::read(&file).unwrap();
    assert_ne!(second, first, "the last save is more than a second ago");
    bed.execute(bed.manage(ZoneAction::Finish, 4));
    assert_eq!(bed.drive.next_wakeup(), Some(save_at), "the next one has to wait");
    for _ in 0..50 {
        bed.turn();
    }
    assert_eq!(std::fs::read(&file).unwrap(), second);
    bed.settle(&path);
}

#[test]
fn a_drive_with_fixed_zones_has_no_elements_and_counts_as_ever() {
    let (_directory, path) = image("fixed");
    assert!(!path.join(ELEMENTS_FILE).exists());
    let mut bed = Bed::open(&path);
    bed.execute(bed.write(0, 32));
    bed.execute(bed.manage(ZoneAction::Finish, 0));
    bed.execute(bed.manage(ZoneAction::Reset, 0));
    assert_eq!(bed.drive.next_wakeup(), None);
    let facts = bed.drive.facts();
    let life = facts.life.expect("an image counts");
    assert_eq!((facts.elements, bed.drive.elements_began_anew()), (None, None));
    assert_eq!((life.worn_units, life.erases_total, life.device_write_bytes), (u64::from(ZONES), 1, 96 * 4096));
    bed.close();
    assert!(!path.join(ELEMENTS_FILE).exists());
}

#[test]
fn dlwa_counts_what_the_policy_pads_and_wear_is_that_of_elements() {
    // Half a zone is its first segment; a quarter is half of that.
    for (allocation, at_a_half, at_a_quarter) in [("block", 0, 32), ("vchunk-4", 0, 32), ("hchunk-2", 64, 96)] {
        let (_directory, path) = image(allocation);
        let mut bed = Bed::open(&path);
        for (zone, blocks, padded) in [(0, 64, at_a_half), (1, 32, at_a_half + at_a_quarter)] {
            assert_eq!(bed.execute(bed.write(zone, blocks)), Status::Success);
            assert_eq!(bed.execute(bed.manage(ZoneAction::Finish, zone)), Status::Success);
            let life = bed.drive.facts().life.expect("an image counts");
            assert_eq!(life.device_write_bytes, padded * 4096, "{allocation} at {blocks}");
            assert_eq!(life.zone_resets, 0);
        }
        bed.close();
        let bed = Bed::open(&path);
        let life = bed.drive.facts().life.expect("an image counts");
        assert_eq!(life.host_write_bytes + life.device_write_bytes, (96 + at_a_half + at_a_quarter) * 4096);
    }
}

#[test]
fn without_its_file_a_drive_has_new_elements_says_so_and_has_all_its_data() {
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
        (letter, "it holds something else"),
        (of_another, "it belongs to another image"),
    ] {
        let (_directory, path) = used("block");
        damage(&path);
        let mut bed = Bed::open(&path);
        let why = bed.drive.elements_began_anew().expect("they begin anew").to_owned();
        assert!(why.contains(words), "{why}");
        let trouble = bed.drive.take_trouble().expect("it is told");
        assert!(trouble.starts_with("the storage elements begin anew, without wear") && trouble.contains(words));
        assert_eq!(bed.drive.media_errors(), 0, "data are not at stake");
        assert_eq!((bed.book().wear().erases, standings(bed.drive.image())[0]), (0, (40, false)));
        check_owners(&bed.book().table(), bed.drive.image());
        assert_eq!(bed.execute(bed.write(0, 10)), Status::Success);
        let record = bed.book().record();
        bed.close();
        let mut bed = Bed::open(&path);
        assert_eq!((bed.drive.take_trouble(), bed.book().record()), (None, record), "{words}: they are kept again");
    }
    // One slot, and then the other one.
    let (_directory, path) = used("block");
    let mut bed = Bed::open(&path);
    bed.settle_twice(&path);
    let wear = bed.book().wear();
    bed.close();
    let half = std::fs::metadata(path.join(ELEMENTS_FILE)).unwrap().len() / 2;
    for offset in [100, half + 100] {
        alter(&path, &[offset]);
        let mut bed = Bed::open(&path);
        assert_eq!((bed.drive.elements_began_anew(), bed.book().wear().erases_min), (None, wear.erases_min));
        let trouble = bed.drive.take_trouble().expect("it is told");
        assert!(trouble.contains("an earlier one serves"), "{trouble}");
        bed.execute(bed.write(0, 1));
        bed.settle_twice(&path);
        bed.close();
    }
}

#[test]
fn elements_of_a_later_version_are_left_as_they_are() {
    let (_directory, path) = used("block");
    let file = path.join(ELEMENTS_FILE);
    let half = std::fs::metadata(&file).unwrap().len() / 2;
    let opened = OpenOptions::new().write(true).open(&file).unwrap();
    [8, half + 8].iter().for_each(|offset| opened.write_all_at(&[2], *offset).unwrap());
    let before = std::fs::read(&file).unwrap();
    let mut bed = Bed::open(&path);
    let trouble = bed.drive.take_trouble().expect("it is told");
    assert!(trouble.contains("is left as it is: it is of version 2") && trouble.contains("use the zonda"), "{trouble}");
    assert!(bed.drive.elements().is_none() && bed.drive.facts().elements.is_none());
    bed.execute(bed.write(1, 10));
    bed.close();
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn elements_that_cannot_be_saved_last_as_long_as_the_drive_is_open() {
    let (_directory, path) = used("block");
    std::fs::remove_file(path.join(ELEMENTS_FILE)).unwrap();
    std::fs::create_dir(path.join(ELEMENTS_FILE)).unwrap();
    let mut bed = Bed::open(&path);
    let trouble = bed.drive.take_trouble().expect("it is told");
    assert!(trouble.contains("cannot be opened") && trouble.contains("cannot be kept"), "{trouble}");
    assert_eq!(bed.execute(bed.write(1, 10)), Status::Success);
    assert_eq!((bed.drive.next_wakeup(), bed.book().table().zones[1].len()), (None, 8));
    bed.close();
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
    // As a copy has it that leaves zeros out.
    let sparse: fn(&Path, u64) = |file, length| {
        let content = std::fs::read(file).unwrap();
        let copy = std::fs::File::create(file).unwrap();
        copy.set_len(length).unwrap();
        copy.write_all_at(&content[..64.min(content.len())], 0).unwrap();
    };
    for (what, damage) in [("whole", whole), ("missing", missing), ("sparse", sparse)] {
        damage(&file, length);
        let mut bed = Bed::open(&path);
        while bed.drive.take_trouble().is_some() {}
        let ballast = disk.fill();
        bed.execute(bed.manage(ZoneAction::Finish, 3));
        bed.settle(&path);
        bed.execute(bed.manage(ZoneAction::Reset, 3));
        bed.settle(&path);
        assert_eq!(bed.drive.take_trouble(), None, "{what}");
        std::fs::remove_file(ballast).unwrap();
        bed.close();
    }
}

#[test]
fn a_zone_that_goes_offline_takes_its_elements_along_for_ever() {
    let (_directory, path) = image("block");
    let mut bed = Bed::open(&path);
    bed.execute(bed.write(2, 100));
    bed.drive.degrade(ZoneIndex(2), ZoneState::Offline);
    assert_eq!(bed.book().facts().retired, 8);
    bed.execute(Operation::Flush);
    bed.settle(&path);
    drop(bed);
    let bed = Bed::open(&path);
    assert_eq!(bed.drive.image().zones().zone(ZoneIndex(2)).state, ZoneState::Offline);
    let table = bed.book().table();
    assert!(table.zones[2].iter().all(|element| table.elements[*element as usize].state == ElementState::Retired));
    assert_eq!(table.zones[2].len(), 8);
}

/// How long a command takes on a model, in nanoseconds.
fn time_of(model: &mut Model, operation: Operation) -> u64 {
    let command = Command { id: CommandId(1), namespace: NamespaceId::FIRST, operation };
    model.submit(Instant::ZERO, command).expect("it is idle");
    let mut completions = CompletionQueue::new();
    let mut now = Instant::ZERO;
    while completions.is_empty() {
        now = now.max(model.next_wakeup().expect("a command is under way"));
        model.poll(now, &mut completions);
    }
    assert_eq!(completions.pop().expect("it has ended").status, Status::Success);
    now.0
}

fn model_of(drive: &FileBacked, with_elements: bool) -> Model {
    let profile = Profile::parse(&drive.image().spec().profile).expect("it was read before");
    let table = drive.elements().filter(|_| with_elements).map(ElementBook::table);
    Model::standing_as(&profile, drive.image().zones(), table.as_ref(), &Prng::new(1))
}

#[test]
fn after_a_restart_a_paced_drive_pads_and_erases_as_it_would_have_without_one() {
    let (program_ns, erase_ns) = (500_000, 5_000_000);
    let (_directory, path) = used("block");
    let mut bed = Bed::open(&path);
    bed.execute(bed.write(0, 24));
    assert_eq!(standings(bed.drive.image())[0].0, 64, "half of zone 0 is its first segment");
    bed.execute(bed.write(1, 32));
    bed.settle(&path);
    drop(bed);

    let bed = Bed::open(&path);
    let finish = |zone| bed.manage(ZoneAction::Finish, zone);
    let at_a_half = time_of(&mut model_of(&bed.drive, true), finish(0));
    let at_a_quarter = time_of(&mut model_of(&bed.drive, true), finish(1));
    assert!(at_a_half < program_ns, "no element is written in part: {at_a_half} ns");
    // Of each die's 64 KiB half is written: eight pages are to be programmed.
    assert!((8 * program_ns..9 * program_ns).contains(&at_a_quarter), "{at_a_quarter} ns");

    let worn = time_of(&mut model_of(&bed.drive, true), bed.write(2, 4));
    let new = time_of(&mut model_of(&bed.drive, false), bed.write(2, 4));
    assert!(worn >= erase_ns + program_ns, "all elements were used: the first write erases: {worn} ns");
    assert!(new < erase_ns, "{new} ns");
}

#[test]
fn a_paced_drive_keeps_the_elements_of_the_drive_in_it() {
    let (_directory, path) = image("block");
    let bed = Bed::open(&path);
    let model = model_of(&bed.drive, true);
    let mut paced = PacedDrive::new(Box::new(bed.drive), model);
    let ring = bed.ring;
    let write = Operation::Append { zone_start: Lba(0), blocks: Blocks(64), payload: Payload::None };
    let finish = Operation::ManageZones { action: ZoneAction::Finish, target: ZoneTarget::Zone(Lba(0)) };
    for (id, operation) in (1..).zip([write, finish]) {
        let command = Command { id: CommandId(id), namespace: NamespaceId::FIRST, operation };
        paced.submit(ring.now(), command).expect("there is room");
        let mut completions = CompletionQueue::new();
        while completions.is_empty() {
            paced.poll(ring.now(), &mut completions);
            ring.turn(Some(ring.now() + Duration(100_000))).expect("the ring works");
        }
        assert_eq!(completions.pop().expect("it has ended").status, Status::Success);
    }
    let facts = paced.facts();
    let elements = facts.elements.expect("zones are built of elements");
    assert_eq!((elements.written, elements.allocated, facts.life.expect("it counts").device_write_bytes), (4, 0, 0));
    paced.close(ring.now());
    while !paced.is_closed() {
        paced.poll(ring.now(), &mut CompletionQueue::new());
        ring.turn(Some(ring.now() + Duration(100_000))).expect("the ring works");
    }
    drop(paced);
    assert_eq!(Bed::open(&path).book().facts().written, 4);
}
