//! What operations do to each other: shares of the program bandwidth, suspends, resets that hold
//! back programs, pages that serve several reads, and read-ahead.

use super::*;
use zonda_ssd::profile::ProgramOrder;

// Shares of the program bandwidth.

/// The time of a finish on a die with this much of another zone in the write buffer.
fn finish_beside_buffered_us(order: ProgramOrder, buffered_units: u64) -> u64 {
    let mut profile = drive_of_constants();
    profile.flash.program_order = order;
    profile.write_buffer.capacity = kib(64 * KIB);
    let mut rig = Rig::new(&profile);
    for unit in 0..buffered_units {
        rig.write(4, unit * UNIT, UNIT);
    }
    let finish = rig.finish(0);
    rig.run();
    rig.end_us(finish)
}

#[test]
fn in_fair_order_a_finish_does_not_wait_for_what_is_buffered_but_takes_turns_with_it() {
    let [few, many] = [8, 32].map(|units| finish_beside_buffered_us(ProgramOrder::Fair, units));
    let unit_us = LOAD_US + PROGRAM_US;
    assert!((many - few).abs_diff(24 * unit_us) <= unit_us, "one unit of data for one of padding: {few}, {many}");
    let fair = finish_beside_buffered_us(ProgramOrder::Fair, 4);
    assert!(fair.abs_diff(50 + 32 * PROGRAM_US + 4 * unit_us) <= unit_us, "{fair}");
}

#[test]
fn in_fair_order_zones_get_equal_shares_whatever_each_has_buffered() {
    let mut profile = drive_of_constants();
    profile.flash.program_order = ProgramOrder::Fair;
    profile.write_buffer.capacity = kib(64 * KIB);
    let mut rig = Rig::new(&profile);
    for unit in 0..24 {
        rig.write(0, unit * UNIT, UNIT);
    }
    rig.run_until_us(1_500);
    let late = (0..4).map(|unit| rig.write(4, unit * UNIT, UNIT)).collect::<Vec<u64>>();
    rig.run_until_us(1_700);
    assert!(late.iter().all(|id| rig.has_ended(*id)), "they are in the buffer");
    let before = rig.drive.counters().programs;
    while rig.drive.counters().programs < before + 8 {
        rig.step();
    }
    // A read of the late zone comes from flash: its four units were programmed among eight.
    let (now, read) = (rig.now_us(), rig.read(4, 3 * UNIT, 1));
    rig.run();
    assert!(rig.end_us(read) - now > 45, "its last unit is on flash");
}

#[test]
fn padding_that_is_transferred_takes_the_channel_like_data() {
    let mut profile = wide_drive();
    let alone_us = |profile: &Profile| Rig::new(profile).alone_us(|rig| rig.finish(0));
    assert_eq!(alone_us(&profile), 50 + 8 * PROGRAM_US);
    profile.flash.transfers_padding = true;
    // Two dies share a channel, page by page: a unit is loaded in up to twice the time.
    let loaded_us = alone_us(&profile) - 50 - 8 * PROGRAM_US;
    assert!((8 * LOAD_US..=16 * LOAD_US).contains(&loaded_us), "{loaded_us}");
}

// Suspends.

/// The ends of a write that fills a unit at once, and of a read submitted at a time during its
/// program.
fn read_during_a_program(profile: &Profile, read_at_us: u64) -> (u64, u64) {
    let mut rig = Rig::new(profile);
    rig.prefill(4, CAPACITY);
    let write = rig.write(0, 0, UNIT);
    rig.run_until_us(read_at_us);
    let read = rig.read(4, 0, 1);
    rig.run();
    (rig.end_us(write), rig.end_us(read))
}

#[test]
fn a_suspend_delays_the_read_by_its_latency_and_the_program_by_both_latencies() {
    let mut profile = without_early_completion();
    let [(write, read), (write_with, read_with)] = [0, 20].map(|suspend_us| {
        profile.flash.suspend_latency = us(suspend_us);
        profile.flash.resume_latency = us(suspend_us * 3 / 2);
        read_during_a_program(&profile, 100)
    });
    assert_eq!((write_with - write, read_with - read), (20 + 30, 20));
}

/// The ends of a write that waits for an erase, and of a read submitted during the erase.
fn read_during_an_erase(profile: &Profile) -> (u64, u64) {
    let mut rig = Rig::new(profile);
    rig.prefill(0, CAPACITY);
    rig.prefill(4, CAPACITY);
    rig.reset(0);
    rig.run();
    let start = rig.now_us();
    let write = rig.write(0, 0, UNIT);
    rig.run_until_us(start + 1_000);
    let read = rig.read(4, 0, 1);
    rig.run();
    (rig.end_us(write), rig.end_us(read))
}

#[test]
fn a_suspended_erase_delays_the_read_and_itself_by_its_own_latency_or_by_that_of_programs() {
    let mut profile = without_early_completion();
    let (write, read) = read_during_an_erase(&profile);
    profile.flash.suspend_latency = us(20);
    profile.flash.resume_latency = us(30);
    let delays = |(write_with, read_with)| (write_with - write, read_with - read);
    assert_eq!(delays(read_during_an_erase(&profile)), (20 + 30, 20));
    profile.flash.erase_suspend_latency = Some(us(150));
    assert_eq!(delays(read_during_an_erase(&profile)), (150 + 30, 150));
    let program = read_during_a_program(&profile, 100);
    profile.flash.erase_suspend_latency = None;
    assert_eq!(program, read_during_a_program(&profile, 100), "programs keep theirs");
}

#[test]
fn an_operation_that_was_suspended_often_enough_runs_to_its_end() {
    let mut profile = without_early_completion();
    profile.flash.suspends_max = 1;
    let mut rig = Rig::new(&profile);
    rig.prefill(4, CAPACITY);
    let write = rig.write(0, 0, UNIT);
    rig.run_until_us(100);
    let first = rig.read(4, 0, 1);
    rig.run_until_us(350);
    let second = rig.read(4, 4, 1);
    rig.run();
    assert_eq!(rig.end_us(first), 262 + 45);
    assert_eq!(rig.end_us(write), 662 + 44 + 5);
    assert_eq!(rig.end_us(second), 662 + 44 + 45, "it waits for the end of the program");
}

// Resets that hold back programs.

/// A drive whose resets of a whole zone take 1 ms, the last 600 us of it without programs of data.
fn exclusive_resets() -> Profile {
    let mut profile = drive_of_constants();
    let reset = &mut profile.firmware.reset;
    reset.serial = zonda_ssd::service_time::ServiceTimeSpec::default();
    reset.parallel = zonda_ssd::service_time::ServiceTimeSpec::default();
    reset.piece = us(0);
    reset.serial_whole_zone = us(1_000);
    reset.exclusive_share = 0.6;
    profile
}

#[test]
fn an_exclusive_reset_alone_takes_its_work() {
    let mut rig = Rig::new(&exclusive_resets());
    rig.prefill(0, CAPACITY);
    assert_eq!(rig.alone_us(|rig| rig.reset(0)), 1_000);
    rig.prefill(0, CAPACITY / 2);
    let partly_us = rig.alone_us(|rig| rig.reset(0));
    assert!(partly_us >= 500, "{partly_us}");
}

#[test]
fn an_exclusive_reset_waits_for_the_data_before_it_and_holds_back_the_data_after_it() {
    let mut rig = Rig::new(&exclusive_resets());
    rig.prefill(3, CAPACITY);
    for unit in 0..3 {
        rig.write(0, unit * UNIT, UNIT);
    }
    rig.run_until_us(700);
    let reset = rig.reset(3);
    rig.run_until_us(710);
    rig.write(1, 0, UNIT);
    rig.run();
    let drained_us = rig.end_us(reset) - 600;
    assert!(drained_us.abs_diff(3 * (LOAD_US + PROGRAM_US)) < 100, "{drained_us}");
    // Die 1 was idle all the time, and is programmed after the reset.
    assert!(rig.now_us() >= rig.end_us(reset) + LOAD_US + PROGRAM_US, "{}", rig.now_us());
}

#[test]
fn an_exclusive_reset_and_commands_do_not_delay_each_other() {
    let mut rig = Rig::new(&exclusive_resets());
    rig.prefill(3, CAPACITY);
    let reset = rig.reset(3);
    let mut writes = Vec::new();
    for block in 0..20 {
        rig.run_until_us(10 + block * 10);
        writes.push((rig.now_us(), rig.write(0, block, 1)));
    }
    rig.run();
    for (at, write) in &writes {
        assert_eq!(rig.end_us(*write) - at, 2 + 1 + 5, "a write does not wait for the reset");
    }
    assert_eq!(rig.end_us(reset), 1_000);
}

#[test]
fn a_reset_programs_the_mapping_of_what_the_host_wrote() {
    let mut profile = exclusive_resets();
    profile.firmware.reset.mapping_bytes_per_block = 32;
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    rig.reset(0);
    rig.run();
    assert_eq!(rig.drive.counters().programs, (CAPACITY * 32).div_ceil(48 * KIB));
}

// One page for several reads.

#[test]
fn a_page_that_is_sensed_serves_all_reads_that_wait_for_it() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.prefill(0, CAPACITY);
    let reads: Vec<u64> = (0..4).map(|block| rig.read(0, block, 1)).collect();
    rig.run();
    // 1 and 5 us of firmware, one sensing of 40 us, 4 us on the channel for each, 1 us on the link.
    let ends: Vec<u64> = reads.iter().map(|id| rig.end_us(*id)).collect();
    assert_eq!(ends, [6 + 40 + 4 + 1, 6 + 40 + 8 + 1, 6 + 40 + 12 + 1, 6 + 40 + 16 + 1]);
}

#[test]
fn a_page_in_the_register_is_not_sensed_again_until_the_die_did_something_else() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.prefill(0, CAPACITY);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 1)), 6 + 45);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 1, 1)), 6 + 5);
    assert_eq!(rig.alone_us(|rig| rig.read(0, PAGE, 1)), 6 + 45, "another page");
    assert_eq!(rig.alone_us(|rig| rig.read(0, 2, 1)), 6 + 45, "which is in the register now");
    rig.write(4, 0, UNIT);
    rig.run();
    assert_eq!(rig.alone_us(|rig| rig.read(0, 3, 1)), 6 + 45, "the die programmed");
}

// Read-ahead.

#[test]
fn a_sequential_reader_is_served_from_memory_and_a_random_one_is_not() {
    let mut profile = wide_drive();
    profile.flash.read_ahead = kib(64);
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    let times: Vec<u64> = (0..48).map(|block| rig.alone_us(|rig| rig.read(0, block, 1))).collect();
    let from_memory = times.iter().filter(|&&time| time == 6 + 1).count();
    assert!(from_memory >= 40, "{times:?}");
    let random: Vec<u64> = [200, 100, 300].map(|block| rig.alone_us(|rig| rig.read(0, block, 1))).into();
    assert!(random.iter().all(|&time| time >= 6 + 45), "{random:?}");
}

#[test]
fn readers_that_start_again_wait_for_the_pages_that_are_on_their_way() {
    let mut profile = wide_drive();
    profile.flash.read_ahead = kib(64);
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    for _ in 0..3 {
        for block in 0..8 {
            rig.read(0, block, 1);
        }
    }
    rig.run();
}

#[test]
fn what_is_read_ahead_is_forgotten_with_a_reset() {
    let mut profile = wide_drive();
    profile.flash.read_ahead = kib(64);
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    for block in 0..8 {
        rig.read(0, block, 1);
    }
    rig.reset(0);
    rig.run();
    rig.prefill(0, CAPACITY);
    assert!(rig.alone_us(|rig| rig.read(0, 8, 1)) >= 6 + 45);
}
