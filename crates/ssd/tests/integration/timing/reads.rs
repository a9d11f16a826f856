//! Reads, alone and during programs.

use super::*;
use zonda_ssd::profile::PageTypeSpec;

// Reads.

#[test]
fn a_lone_read_of_4_kib_takes_the_sum_of_its_parts() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.prefill(0, CAPACITY);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 5, 1)), READ_US + 40 + 4 + 1);
    assert_eq!(rig.drive.counters().flash_read_bytes, 4 * KIB);
}

#[test]
fn pages_of_one_read_on_one_die_come_one_after_the_other_with_or_without_a_cache_register() {
    for cache_read in [false, true] {
        let mut profile = drive_of_constants();
        profile.flash.cache_read = cache_read;
        let mut rig = Rig::new(&profile);
        rig.prefill(0, CAPACITY);
        assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 3 * PAGE)), READ_US + 3 * (50 + 16) + 4);
    }
}

#[test]
fn a_read_that_begins_and_ends_within_pages_pays_for_the_bytes_it_wants_of_each() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.prefill(0, CAPACITY);
    // The last block of a page, a whole page, the first block of a third; the last goes over the
    // link in 1.
    let expected = READ_US + (40 + 4) + (50 + 16) + (40 + 4) + 1;
    assert_eq!(rig.alone_us(|rig| rig.read(0, PAGE - 1, 1 + PAGE + 1)), expected);
    assert_eq!(rig.drive.counters().flash_read_bytes, 24 * KIB);
}

#[test]
fn pages_on_several_dies_are_sensed_together_and_share_channels_and_link() {
    let mut rig = Rig::new(&wide_drive());
    rig.prefill(0, CAPACITY);
    // Each channel brings up two pages, one after the other; of the last two, one waits for the
    // other on the link.
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 4 * PAGE)), READ_US + 50 + 16 + 16 + 4 + 4);
}

#[test]
fn two_reads_on_one_die_queue_and_a_cache_register_overlaps_the_transfer() {
    for (cache_read, second_ends) in [(false, 7 + 43 + 40 + 4 + 1), (true, 7 + 39 + 40 + 4 + 1)] {
        let mut profile = drive_of_constants();
        profile.flash.cache_read = cache_read;
        let mut rig = Rig::new(&profile);
        rig.prefill(0, CAPACITY);
        let (first, second) = (rig.read(0, 0, 1), rig.read(0, 100, 1));
        rig.run();
        assert_eq!(rig.end_us(first), 51);
        assert_eq!(rig.end_us(second), second_ends, "cache read: {cache_read}");
    }
}

#[test]
fn two_dies_of_one_channel_overlap_sensing_but_not_transfer() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.prefill(0, CAPACITY);
    rig.prefill(2, CAPACITY);
    let (first, second) = (rig.read(0, 0, PAGE), rig.read(2, 0, PAGE));
    rig.run();
    assert_eq!(rig.end_us(first), READ_US + 50 + 16 + 4);
    assert_eq!(rig.end_us(second), READ_US + 50 + 16 + 16 + 4, "1 later on its die, and yet 16 behind on the channel");
}

#[test]
fn the_command_to_sense_a_page_waits_for_the_channel_like_a_transfer() {
    let mut profile = drive_of_constants();
    profile.channel.read_command = us(10);
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    rig.prefill(2, CAPACITY);
    let first = rig.read(0, 0, PAGE);
    rig.run_until_us(65);
    let second = rig.read(2, 0, PAGE);
    rig.run();
    assert_eq!(rig.end_us(first), READ_US + 10 + 50 + 16 + 4);
    let channel_is_free = READ_US + 10 + 50 + 16;
    assert_eq!(rig.end_us(second), channel_is_free + 10 + 50 + 16 + 4, "its die was free, and its command had to wait");
}

#[test]
fn buffered_and_never_written_blocks_need_no_die() {
    let mut rig = Rig::new(&drive_of_constants());
    let write = rig.write(0, 0, 2);
    rig.run_until_end_of(write);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 1, 1)), READ_US + 1, "buffered");
    assert_eq!(rig.alone_us(|rig| rig.read(0, 8, 1)), READ_US + 1, "past the write pointer");
    assert_eq!(rig.alone_us(|rig| rig.read(9, 0, 4)), READ_US + 4, "of an empty zone");
    assert_eq!(rig.drive.counters().flash_read_bytes, 0);
    assert_eq!(rig.drive.utilisation().die_busy_ns, [0; 4]);
}

#[test]
fn a_unit_is_read_from_the_buffer_until_its_program_ends() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.write(0, 0, UNIT);
    rig.run_until_us(600);
    let during = rig.read(0, 0, 1);
    rig.run();
    assert_eq!(rig.end_us(during), 600 + READ_US + 1);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 1)), 51, "and from flash afterwards");
}

#[test]
fn a_read_across_zones_goes_to_the_dies_of_each() {
    let mut profile = drive_of_constants();
    profile.geometry.zone_size = profile.geometry.zone_capacity;
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    rig.prefill(1, CAPACITY);
    let expected = READ_US + 50 + 16 + 4 + 4;
    assert_eq!(rig.alone_us(|rig| rig.read(0, CAPACITY - PAGE, 2 * PAGE)), expected, "two channels, one link");
}

#[test]
fn a_read_over_the_gap_between_capacity_and_size_needs_no_die_there() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.prefill(0, CAPACITY);
    rig.prefill(1, CAPACITY);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 512 - PAGE, 2 * PAGE)), READ_US + 50 + 16 + 4);
    assert_eq!(rig.drive.counters().flash_read_bytes, 16 * KIB);
}

#[test]
fn the_link_bounds_large_reads() {
    let mut profile = wide_drive();
    profile.link.read_bandwidth = Bandwidth(409_600_000);
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    // Four dies bring a page every 16.5, the link takes 40 for one: it never waits after the first.
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 16 * PAGE)), READ_US + 50 + 16 + 16 * 40);
}

#[test]
fn the_links_overhead_is_paid_once_a_command() {
    let mut profile = wide_drive();
    profile.link.read_overhead = us(3);
    profile.link.write_overhead = us(7);
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    rig.read(0, 0, 4 * PAGE);
    rig.write(1, 0, 4 * PAGE);
    rig.run();
    let busy = rig.drive.utilisation();
    assert_eq!((busy.link_out_busy_ns, busy.link_in_busy_ns), ((3 + 4 * 4) * 1_000, (7 + 4 * 4) * 1_000));
}

// Reads beside programs.

/// Ends of a write that is programmed from 62 to 662, and of a read of its die that is submitted at
/// an instant.
fn read_during_a_program(read_at_us: u64) -> (u64, u64) {
    let mut rig = Rig::new(&without_early_completion());
    rig.prefill(4, CAPACITY);
    let write = rig.write(0, 0, UNIT);
    rig.run_until_us(read_at_us);
    let read = rig.read(4, 0, 1);
    rig.run();
    (rig.end_us(write), rig.end_us(read))
}

#[test]
fn a_read_waits_for_one_slice_of_a_program_which_ends_later_by_the_read() {
    assert_eq!(read_during_a_program(100), (662 + 44 + 5, 262 + 45));
    assert_eq!(read_during_a_program(300), (662 + 44 + 5, 462 + 45));
    assert_eq!(read_during_a_program(500), (662 + 5, 662 + 45), "in the last slice, it waits for the end");
}

#[test]
fn a_read_never_waits_for_more_than_a_slice_wherever_it_meets_the_program() {
    for read_at in (57..656).step_by(7) {
        let (write, read) = read_during_a_program(read_at);
        assert!(read <= read_at + READ_US + 200 + 45, "submitted at {read_at}, ends at {read}");
        let meets_last_slice = read_at + READ_US >= 462;
        assert_eq!(write, 667 + if meets_last_slice { 0 } else { 44 }, "read at {read_at}");
    }
}

#[test]
fn a_read_during_the_transfer_of_a_program_waits_for_that_and_one_slice() {
    assert_eq!(read_during_a_program(20), (662 + 44 + 5, 62 + 200 + 45));
}

#[test]
fn without_slices_a_read_waits_for_the_end_of_the_program() {
    let mut profile = without_early_completion();
    profile.flash.suspend_slice = us(0);
    let mut rig = Rig::new(&profile);
    rig.prefill(4, CAPACITY);
    let write = rig.write(0, 0, UNIT);
    rig.run_until_us(100);
    let read = rig.read(4, 0, 1);
    rig.run();
    assert_eq!((rig.end_us(write), rig.end_us(read)), (667, 662 + 45));
    assert_eq!(rig.drive.counters().suspensions, 0);
}

#[test]
fn a_flood_of_reads_does_not_starve_a_program_nor_programs_the_reads() {
    let mut rig = Rig::new(&without_early_completion());
    rig.prefill(4, CAPACITY);
    for unit in 0..4 {
        rig.write(0, unit * UNIT, UNIT);
    }
    let mut reads: Vec<(u64, u64)> = Vec::new();
    let mut block = 0;
    let mut worst_us = 0;
    while rig.now_us() < 30_000 {
        for slot in 0..8 {
            if reads.len() <= slot || rig.has_ended(reads[slot].1) {
                if let Some((at, id)) = reads.get(slot) {
                    worst_us = worst_us.max(rig.end_us(*id) - at);
                }
                block = (block + 5) % CAPACITY;
                let read = (rig.now_us(), rig.read(4, block, 1));
                if reads.len() <= slot { reads.push(read) } else { reads[slot] = read }
            }
        }
        rig.step();
    }
    // At worst, a round of eight reads and a slice, then the next round; and the load of a unit
    // once.
    assert!(worst_us <= READ_US + LOAD_US + 2 * (8 * 44 + 200) + 45, "{worst_us}");
    // Each program needs three slices, and a round of reads comes before each of them.
    let programmed_by_us = 4 * (LOAD_US + PROGRAM_US + 4 * 9 * 44);
    assert!(programmed_by_us < 30_000);
    assert_eq!(rig.drive.counters().programs, 4);
}

// Pages of cells with several bits.

/// Lower, center and upper pages, with what each takes longer to sense and to program.
fn three_page_types(extra_us: [(u64, u64); 3]) -> Vec<PageTypeSpec> {
    extra_us.map(|(read, program)| PageTypeSpec { read_extra: us(read), program_extra: us(program) }).into()
}

#[test]
fn a_page_is_sensed_in_the_time_of_its_type() {
    let mut profile = drive_of_constants();
    let ends_us = |profile: &Profile| {
        let read = |page| {
            let mut rig = Rig::new(profile);
            rig.prefill(0, CAPACITY);
            rig.alone_us(|rig| rig.read(0, page * PAGE, 1))
        };
        (0..6).map(read).collect::<Vec<u64>>()
    };
    let alike = ends_us(&profile);
    profile.flash.page_types = three_page_types([(0, 0), (20, 0), (50, 0)]);
    let longer: Vec<u64> = ends_us(&profile).iter().zip(alike).map(|(end, before)| end - before).collect();
    assert_eq!(longer, [0, 20, 50, 0, 20, 50]);
}

#[test]
fn a_read_of_several_pages_of_a_die_takes_the_sum_of_their_types() {
    let mut profile = drive_of_constants();
    let read_us = |profile: &Profile| {
        let mut rig = Rig::new(profile);
        rig.prefill(0, CAPACITY);
        rig.alone_us(|rig| rig.read(0, PAGE, 3 * PAGE))
    };
    let alike = read_us(&profile);
    profile.flash.page_types = three_page_types([(5, 0), (20, 0), (50, 0)]);
    assert_eq!(read_us(&profile) - alike, 20 + 50 + 5);
}

#[test]
fn a_page_that_is_programmed_alone_takes_the_time_of_its_type() {
    let mut profile = drive_of_constants();
    profile.write_buffer.early_completion = false;
    profile.flash.program_unit = profile.flash.read_unit;
    let ends_us = |profile: &Profile| {
        let mut rig = Rig::new(profile);
        (0..4).map(|page| rig.alone_us(|rig| rig.write(0, page * PAGE, PAGE))).collect::<Vec<u64>>()
    };
    let alike = ends_us(&profile);
    profile.flash.page_types = three_page_types([(0, 0), (0, 1_400), (0, 4_900)]);
    let longer: Vec<u64> = ends_us(&profile).iter().zip(alike).map(|(end, before)| end - before).collect();
    assert_eq!(longer, [0, 1_400, 4_900, 0]);
}
