//! Zones built of elements: padding and elements freed by FINISH, erases, locations of reads,
//! persistence over restarts.

use super::*;
use crate::support::elements::{Shape, profile_of};
use zonda_ssd::Ssd;
use zonda_ssd::allocation::{AllocationFacts, AllocationKind};
use zonda_zoned::{Blocks, Payload};

const KINDS: [&str; 6] = ["fixed", "superblock", "vchunk-4", "vchunk-2", "block", "hchunk-2"];

fn with_allocation(mut profile: Profile, allocation: &str) -> Profile {
    profile.zones.allocation = AllocationKind::from_text(allocation).expect("the name of a policy");
    profile
}

/// [`wide_drive`] with zones of two segments of 768 KiB, four erase units of 192 KiB each.
fn two_segments(allocation: &str) -> Profile {
    let mut profile = wide_drive();
    profile.flash.erase_unit = kib(192);
    with_allocation(profile, allocation)
}

fn write_to(rig: &mut Rig, zone: u32, blocks: u64) {
    for from in (0..blocks).step_by(64) {
        rig.write(zone, from, 64.min(blocks - from));
    }
    rig.run();
}

// FINISH.

#[test]
fn a_finish_pads_its_partly_written_elements_to_their_ends_and_no_others() {
    // Blocks written, and KiB padded by each kind.
    for (blocks, padded_kib) in [
        (0, [1_536, 0, 0, 0, 0, 0]),
        (1, [1_532, 764, 764, 380, 188, 380]),
        (9, [1_500, 732, 732, 732, 540, 1_116]),
        (154, [920, 152, 152, 152, 152, 920]),
        (192, [768, 0, 0, 0, 0, 768]),
        (193, [764, 764, 764, 380, 188, 764]),
        (384, [0, 0, 0, 0, 0, 0]),
    ] {
        for (kind, padded_kib) in KINDS.into_iter().zip(padded_kib) {
            let mut rig = Rig::new(&two_segments(kind));
            write_to(&mut rig, 0, blocks);
            rig.finish(0);
            rig.run();
            let counters = rig.drive.counters();
            assert_eq!(counters.programmed_padding_bytes, padded_kib * KIB, "{kind} after {blocks} blocks");
            assert_eq!(counters.programmed_host_bytes, blocks * 4 * KIB, "{kind} after {blocks} blocks");
        }
    }
}

#[test]
fn a_finish_takes_as_long_as_the_die_with_the_most_to_pad() {
    for (kind, units) in [("fixed", 8), ("superblock", 4), ("block", 4), ("hchunk-2", 8)] {
        let mut rig = Rig::new(&two_segments(kind));
        rig.write(0, 0, 1);
        rig.run();
        assert_eq!(rig.alone_us(|rig| rig.finish(0)), 50 + 16 + units * PROGRAM_US, "{kind}");
    }
    let mut rig = Rig::new(&two_segments("block"));
    assert_eq!(rig.alone_us(|rig| rig.finish(0)), 50, "nothing is written, and nothing is padded");
}

/// SilentZNS, Figure 8: pages finished in zones of 128 MiB over 8 LUNs of the custom drive.
#[test]
fn the_pages_finished_are_those_of_the_paper() {
    let mut profile = Profile::parse(builtin_text("silent-custom").expect("it is built in")).expect("and valid");
    profile.geometry.zone_size = kib(128 << 10);
    profile.geometry.zone_capacity = kib(128 << 10);
    profile.geometry.zones = 128;
    profile.zones.parallelism = 8;
    let kinds = ["fixed", "block", "vchunk-2", "vchunk-4", "hchunk-2"];
    // Of 32,768 pages: 0.01%, 10%, 50%, 90% and 99.99%.
    for (pages, finished) in [
        (4, [32_764, 8_188, 8_188, 8_188, 16_380]),
        (3_277, [29_491, 13_107, 13_107, 13_107, 29_491]),
        (16_384, [16_384, 0, 0, 0, 16_384]),
        (29_491, [3_277; 5]),
        (32_765, [3; 5]),
    ] {
        for (kind, finished) in kinds.into_iter().zip(finished) {
            let mut rig = Rig::new(&with_allocation(profile.clone(), kind));
            rig.prefill(0, pages);
            rig.finish(0);
            rig.run();
            assert_eq!(rig.drive.counters().programmed_padding_bytes / (4 * KIB), finished, "{kind} after {pages}");
        }
    }
}

#[test]
fn elements_that_a_finish_does_not_need_are_freed_when_it_completes_and_not_before() {
    let mut rig = Rig::new(&two_segments("block"));
    rig.write(0, 0, 1);
    rig.run();
    let facts = rig.drive.allocation();
    assert_eq!((facts.elements, facts.empty, facts.allocated, facts.written), (128, 120, 8, 0));
    let finish = rig.finish(0);
    while !rig.has_ended(finish) {
        assert_eq!(rig.drive.allocation().empty, 120);
        rig.step();
    }
    let facts = rig.drive.allocation();
    assert_eq!((facts.empty, facts.allocated, facts.written), (127, 0, 1));
    rig.reset(0);
    rig.run();
    assert_eq!((rig.drive.allocation().empty, rig.drive.allocation().invalid), (127, 1));
}

#[test]
fn a_reset_that_overtakes_a_finish_frees_everything_once() {
    let mut rig = Rig::new(&two_segments("vchunk-2"));
    rig.write(0, 0, 1);
    rig.finish(0);
    rig.run_until_us(1_000);
    rig.reset(0);
    rig.write(0, 0, 1);
    rig.run();
    let facts = rig.drive.allocation();
    assert_eq!((facts.elements, facts.allocated + facts.written, facts.invalid, facts.empty), (64, 4, 1, 59));
}

#[test]
fn a_finish_of_all_zones_frees_what_each_of_them_does_not_need() {
    let mut rig = Rig::new(&two_segments("superblock"));
    for zone in 0..3 {
        rig.write(zone, 0, 1 + 200 * u64::from(zone) / 2 % 64);
    }
    rig.prefill(3, 200);
    rig.run();
    assert_eq!(rig.drive.allocation().allocated + rig.drive.allocation().written, 8);
    rig.submit(Operation::ManageZones { action: ZoneAction::Finish, target: ZoneTarget::All });
    rig.run();
    assert_eq!((rig.drive.allocation().allocated, rig.drive.allocation().written), (0, 5), "zone 3 has two segments");
}

// Erases.

#[test]
fn an_element_is_erased_once_and_whole_before_its_first_program() {
    // The last program of a zone's first erase unit, and the first of its second: what a write has
    // to wait for in each.
    for (kind, at_once, later) in [("block", 1, 1), ("hchunk-2", 2, 0)] {
        let mut profile = with_allocation(without_early_completion(), kind);
        profile.geometry.zones = 4;
        profile.firmware.reset.serial_whole_zone = us(0);
        let mut rig = Rig::new(&profile);
        let program = 2 + 12 + LOAD_US + PROGRAM_US + 5;
        write_to(&mut rig, 0, CAPACITY);
        rig.reset(0);
        rig.run();
        assert_eq!(rig.drive.counters().erases, 0, "a reset erases nothing");
        for unit in 0..CAPACITY / UNIT {
            let erases = match unit {
                0 => at_once,
                16 => later,
                _ => 0,
            };
            let took = rig.alone_us(|rig| rig.write(0, unit * UNIT, UNIT));
            assert_eq!(took, program + 3_000 * erases, "{kind}, unit {unit}");
        }
        let wear = rig.drive.wear();
        assert_eq!((rig.drive.counters().erases, wear.erases, wear.erases_max), (2, 2, 1), "{kind}");
    }
}

#[test]
fn all_dies_of_a_chunk_erase_it_when_the_first_of_them_is_programmed() {
    for (kind, erases) in [("block", 1), ("vchunk-2", 2), ("vchunk-4", 4), ("superblock", 4), ("hchunk-2", 2)] {
        let mut profile = two_segments(kind);
        profile.geometry.zones = 1;
        let mut rig = Rig::new(&profile);
        write_to(&mut rig, 0, CAPACITY);
        rig.reset(0);
        // Nine pages: the first die has a program unit, the others wait for more.
        rig.write(0, 0, 9 * PAGE);
        rig.run();
        assert_eq!(rig.drive.counters().erases, erases, "{kind}");
        write_to_end(&mut rig, 9 * PAGE);
        assert_eq!(rig.drive.counters().erases, 8, "{kind}: and each unit once");
        let mut units = rig.drive.erases_of_units();
        units.sort_unstable();
        assert_eq!(units, [1; 8], "{kind}");
    }
}

fn write_to_end(rig: &mut Rig, from: u64) {
    let mut at = from;
    while at < CAPACITY {
        let blocks = 60.min(CAPACITY - at);
        rig.write(0, at, blocks);
        at += blocks;
    }
    rig.run();
}

#[test]
fn an_empty_element_is_preferred_to_one_that_has_to_be_erased() {
    let mut rig = Rig::new(&two_segments("superblock"));
    for round in 0..16 {
        write_to(&mut rig, 0, CAPACITY);
        rig.reset(0);
        rig.run();
        assert_eq!(rig.drive.counters().erases, 0, "round {round}: there are elements that were never used");
    }
    write_to(&mut rig, 0, CAPACITY);
    assert_eq!((rig.drive.counters().erases, rig.drive.wear().erases_max), (8, 1));
}

// Places.

#[test]
fn pages_of_an_uneven_zone_are_programmed_and_read_on_the_dies_that_have_its_elements() {
    let shape = Shape { luns: 4, slots: 2, rows: 3, zones: 4 };
    let mut profile = profile_of(shape, "allocation = \"block\"\nluns_eligible = 4\nluns_min = 1");
    profile.flash.read = always(50);
    profile.flash.program = crate::support::constant(600);
    let mut table = Rig::new(&profile).drive.elements();
    // The cheapest six: three on LUN 2, two on LUN 0 and one on LUN 3.
    for (element, erases) in [(0, 1), (1, 2), (12, 1), (13, 2), (14, 3), (18, 2)] {
        table.elements[element].erases = erases;
    }
    for element in table.elements.iter_mut().filter(|element| element.erases == 0) {
        element.erases = 9;
    }
    let drive = Ssd::with_elements(&profile, PayloadKind::Fingerprints, &Prng::new(1), &table).expect("its own table");
    let mut rig = Rig::of(drive);
    let blocks = profile.geometry().zone_capacity_blocks.0;
    for at in (0..blocks).step_by(12) {
        let prints = (at..at + 12).map(|block| block + 1).collect();
        rig.write_of(0, at, 12, Payload::Fingerprints(prints));
    }
    rig.run();
    // LUN by LUN down the slots: slot 0 has LUN 0 twice and LUN 2, slot 1 has LUN 2 twice and LUN 3.
    let dies = [[0, 2], [0, 2], [2, 3]];
    assert_eq!(
        rig.drive.utilisation().die_busy_ns.iter().map(|busy| *busy > 0).collect::<Vec<_>>(),
        [true, false, true, true]
    );
    for page in 0..blocks / PAGE {
        let busy = rig.drive.utilisation().die_busy_ns;
        let start = rig.lba(0, page * PAGE);
        assert_eq!(rig.prints(start, PAGE), (page * PAGE + 1..=page * PAGE + PAGE).collect::<Vec<u64>>());
        rig.run();
        let after = rig.drive.utilisation().die_busy_ns;
        let used: Vec<usize> = (0..4).filter(|die| after[*die] > busy[*die]).collect();
        // Three pages a slot and erase unit.
        assert_eq!(used, [dies[(page / 6) as usize][(page % 2) as usize]], "page {page}");
    }
    let whole = rig.prints(Lba(0), 12);
    assert_eq!(whole, (1..=12).collect::<Vec<u64>>());
}

#[test]
fn data_stay_in_place_when_elements_freed_by_a_finish_are_used_by_others() {
    for kind in ["superblock", "vchunk-2", "block", "hchunk-2"] {
        let mut profile = two_segments(kind);
        profile.geometry.zones = 4;
        let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
        let prints: Vec<u64> = (1..=20).collect();
        rig.write_of(0, 0, 20, Payload::Fingerprints(prints.clone().into()));
        rig.finish(0);
        rig.run();
        for _ in 0..6 {
            for zone in 1..4 {
                rig.reset(zone);
                write_to(&mut rig, zone, CAPACITY);
            }
        }
        assert_eq!(rig.prints(Lba(0), 20), prints, "{kind}");
        assert_eq!(rig.prints(Lba(20), 20), [0; 20], "{kind}: never written");
        assert!(rig.drive.counters().erases > 0);
    }
}

#[test]
fn elements_of_a_zone_that_goes_offline_are_never_used_again() {
    let mut profile = two_segments("block");
    profile.geometry.zones = 4;
    let mut rig = Rig::new(&profile);
    rig.write(0, 0, 20);
    rig.drive.degrade(ZoneIndex(0), ZoneState::Offline);
    rig.run();
    assert_eq!((rig.drive.allocation().retired, rig.drive.allocation().empty), (8, 24));
    for _ in 0..5 {
        for zone in 1..4 {
            rig.reset(zone);
            write_to(&mut rig, zone, CAPACITY);
        }
    }
    let facts = rig.drive.allocation();
    assert_eq!((facts.retired, facts.written, facts.relaxed_allocations), (8, 24, 0));
    assert_eq!(rig.drive.erases_of_units().iter().filter(|erases| **erases == 0).count(), 8);
}

// Restarts.

#[test]
fn a_drive_made_from_a_table_and_prefilled_is_in_the_state_of_the_drive_that_wrote_it() {
    // Rows of program units, so that nothing waits in the write buffer.
    const ROW: u64 = 4 * UNIT;
    for kind in KINDS {
        let mut rig = Rig::new(&two_segments(kind));
        for round in 0..30 {
            for (zone, blocks) in [(0, CAPACITY), (1, ROW), (2, 20), (3, ROW), (4, 5 * ROW)] {
                rig.reset(zone);
                write_to(&mut rig, zone, blocks + round % 3 * ROW * u64::from(zone % 2));
            }
        }
        rig.finish(2);
        rig.run();
        let table = rig.drive.elements();
        // Zone 3 was reset after the table was kept.
        let again = Ssd::with_elements(&two_segments(kind), PayloadKind::None, &Prng::new(1), &table);
        let mut again = Rig::of(again.expect("its own table"));
        for (zone, blocks) in [(0, CAPACITY), (1, 3 * ROW), (2, 20), (4, 5 * ROW)] {
            again.prefill(zone, blocks);
        }
        again.finish(2);
        again.run();
        again.drive.forget_unclaimed_elements();
        again.drive.check_invariants();

        rig.reset(3);
        rig.run();
        let (found, expected) = (again.drive.elements(), rig.drive.elements());
        for zone in 0..5 {
            assert_eq!(found.zones[zone], expected.zones[zone], "{kind}: zone {zone} has the elements that it had");
        }
        let sorted = |mut erases: Vec<u32>| {
            erases.sort_unstable();
            erases
        };
        let [found, expected] = [&again, &rig].map(|rig| (rig.drive.allocation(), rig.drive.erases_of_units()));
        assert_eq!(sorted(found.1), sorted(expected.1), "{kind}");
        let states = |facts: &AllocationFacts| (facts.empty, facts.allocated, facts.written, facts.invalid);
        assert_eq!(states(&found.0), states(&expected.0), "{kind}");
    }
}

#[test]
fn a_table_of_another_policy_is_refused_with_the_reason() {
    let table = Rig::new(&two_segments("block")).drive.elements();
    let error = Ssd::with_elements(&two_segments("superblock"), PayloadKind::None, &Prng::new(1), &table);
    let sentence = error.expect_err("blocks are no superblocks").to_string();
    assert!(sentence.contains("allocated by \"block\", not by \"superblock\""), "{sentence}");
}

#[test]
fn the_statistics_of_the_elements_add_up_for_every_kind() {
    for (kind, elements, each, element_kib, mapping) in [
        ("fixed", 128, 8, 192, 16),
        ("superblock", 32, 2, 768, 16 * 2),
        ("vchunk-2", 64, 4, 384, 16 * 4),
        ("block", 128, 8, 192, 16 * 8),
        ("hchunk-2", 64, 4, 384, 16 * 4),
    ] {
        let mut rig = Rig::new(&two_segments(kind));
        write_to(&mut rig, 0, CAPACITY);
        let facts = rig.drive.allocation();
        assert_eq!((facts.policy.as_str(), facts.elements, facts.elements_per_zone), (kind, elements, each));
        assert_eq!((facts.element_bytes, facts.mapping_bytes), (element_kib * KIB, mapping), "{kind}");
        assert_eq!((facts.written, facts.empty), (u64::from(each), elements - u64::from(each)), "{kind}");
        assert_eq!((facts.allocations, facts.relaxed_allocations), (1, 0), "{kind}");
        assert_eq!(rig.drive.erases_of_units().len() as u64, rig.drive.wear().units, "{kind}");
    }
}

#[test]
fn units_of_conventional_zones_are_among_the_units_of_their_luns() {
    let mut profile = two_segments("block");
    profile.geometry.zone_size = profile.geometry.zone_capacity;
    profile.geometry.conventional_zones = 4;
    profile.geometry.zrwa = None;
    let mut rig = Rig::new(&profile);
    for round in 0..40 {
        for at in (0..CAPACITY).step_by(64) {
            rig.submit(Operation::Write { start: Lba(at), blocks: Blocks(64), payload: Payload::None });
        }
        rig.reset(5);
        write_to(&mut rig, 5, 64 + round);
    }
    let (wear, units) = (rig.drive.wear(), rig.drive.erases_of_units());
    assert_eq!(units.len() as u64, wear.units);
    assert_eq!(units.iter().map(|erases| u64::from(*erases)).sum::<u64>(), wear.erases);
    assert_eq!((units.iter().max(), units.iter().min()), (Some(&wear.erases_max), Some(&wear.erases_min)));
}
