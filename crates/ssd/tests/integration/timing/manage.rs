//! FINISH, RESET and Zone Random Write Areas.

use super::*;

// FINISH.

#[test]
fn finishing_an_almost_empty_zone_takes_its_base_and_the_padding_at_the_program_rate() {
    let mut rig = Rig::new(&wide_drive());
    rig.write(0, 0, 1);
    rig.run();
    // The die with the block brings one page down, then all four dies program eight units.
    assert_eq!(rig.alone_us(|rig| rig.finish(0)), 50 + 16 + 8 * PROGRAM_US);
    let counters = rig.drive.counters();
    assert_eq!(counters.programmed_padding_bytes, (1536 - 4) * KIB);
    assert_eq!(counters.programmed_host_bytes, 4 * KIB);
    assert_eq!((counters.programs, counters.zone_finishes), (32, 1));
    assert_eq!(counters.dlwa(), 1536.0 / 4.0);
    assert_eq!(rig.drive.buffered_bytes(), 0);
}

#[test]
fn finishing_an_empty_zone_pads_all_of_it_and_a_full_one_nothing() {
    let mut rig = Rig::new(&wide_drive());
    assert_eq!(rig.alone_us(|rig| rig.finish(0)), 50 + 8 * PROGRAM_US);
    assert_eq!(rig.drive.counters().programmed_padding_bytes, 1536 * KIB);
    rig.prefill(1, CAPACITY);
    assert_eq!(rig.alone_us(|rig| rig.finish(1)), 10, "as any short command");
    assert_eq!(rig.drive.counters().zone_finishes, 1);
}

#[test]
fn a_finish_waits_for_the_writes_in_flight_and_pads_the_rest() {
    let mut rig = Rig::new(&wide_drive());
    let write = rig.write(0, 0, 64);
    let finish = rig.finish(0);
    rig.run();
    // The 50 us of the finish on the core end long before the 64 us of the write on the link.
    assert_eq!(rig.end_us(write), 2 + 64 + 5);
    assert!(rig.end_us(finish) >= 71 + 7 * PROGRAM_US);
    let counters = rig.drive.counters();
    assert_eq!(counters.programmed_host_bytes, 256 * KIB);
    assert_eq!(counters.programmed_padding_bytes, (1536 - 256) * KIB);
    assert_eq!(counters.programs, 32);
}

#[test]
fn host_writes_during_a_finish_get_every_second_program() {
    let mut rig = Rig::new(&drive_of_constants());
    let finish = rig.finish(0);
    rig.run_until_us(60);
    let first = rig.now_us();
    for unit in 0..8 {
        rig.write(4, unit * UNIT, UNIT);
    }
    while rig.drive.counters().programmed_host_bytes < 8 * 48 * KIB {
        rig.step();
    }
    // Padding, host, padding, host: eight of each on die 0.
    let alternating = 8 * (PROGRAM_US + LOAD_US + PROGRAM_US);
    assert!(rig.now_us() - first <= alternating, "{}", rig.now_us());
    rig.run();
    assert_eq!(rig.end_us(finish), 50 + 32 * PROGRAM_US + 8 * (LOAD_US + PROGRAM_US), "and the finish waits for them");
}

#[test]
fn a_reset_ends_a_finish_that_is_padding_and_the_zone_can_be_written_again() {
    let mut rig = Rig::new(&wide_drive());
    let finish = rig.finish(0);
    rig.run_until_us(1_000);
    let reset = rig.reset(0);
    rig.run();
    assert_eq!(rig.end_us(finish), 50 + 2 * PROGRAM_US, "at the end of the piece in progress");
    assert_eq!(rig.end_us(reset), 1_000 + 50 + 100);
    assert_eq!(rig.drive.counters().programmed_padding_bytes, 8 * 48 * KIB);
    let write = rig.write(0, 0, 4 * UNIT);
    rig.run();
    assert!(rig.has_ended(write));
    assert_eq!(rig.drive.counters().erases, 4, "what was padded is erased before it is programmed again");
}

#[test]
fn a_commit_concurrent_with_a_finish_in_the_firmware_is_counted_once() {
    let mut profile = drive_of_constants();
    profile.firmware.servers = [("core".to_owned(), 1), ("slow".to_owned(), 1)].into();
    profile.firmware.manage.server = "slow".to_owned();
    profile.firmware.manage.serial = always(1_000);
    let mut rig = Rig::new(&profile);
    rig.manage(0, ZoneAction::Open { zrwa: true });
    rig.run();
    rig.write(0, 0, 16);
    rig.run();
    // The commit takes longer than the finish behind it.
    let target = ZoneTarget::Zone(Lba(15));
    rig.submit(Operation::ManageZones { action: ZoneAction::FlushZrwa, target });
    rig.finish(0);
    rig.run();
    let counters = rig.drive.counters();
    assert_eq!(counters.programmed_host_bytes, 64 * KIB);
    assert_eq!(counters.programmed_padding_bytes, (1536 - 64) * KIB);
    assert_eq!(rig.drive.buffered_bytes(), 0);
}

// RESET.

#[test]
fn a_reset_costs_what_the_host_wrote_and_not_the_padding() {
    let mut profile = wide_drive();
    profile.firmware.reset.serial_partly_written = us(30);
    let mut rig = Rig::new(&profile);
    rig.prefill(0, CAPACITY);
    assert_eq!(rig.alone_us(|rig| rig.reset(0)), 50 + 100 + 100, "written whole");
    rig.prefill(0, CAPACITY / 2);
    assert_eq!(rig.alone_us(|rig| rig.reset(0)), 50 + 50 + 30 + 100, "half written");
    rig.prefill(0, CAPACITY / 2);
    rig.finish(0);
    assert_eq!(rig.alone_us(|rig| rig.reset(0)), 50 + 50 + 100, "half written and finished");
    assert_eq!(rig.alone_us(|rig| rig.reset(0)), 10, "empty: as any short command");
    assert_eq!(rig.drive.counters().zone_resets, 3);
}

#[test]
fn a_reset_in_pieces_lets_a_write_through_and_one_in_a_single_piece_does_not() {
    for (piece, write_ends, reset_ends) in [(20, 20 + 8, 50 + 100 + 2 + 100), (0, 150 + 8, 50 + 100 + 100)] {
        let mut profile = drive_of_constants();
        profile.firmware.reset.piece = us(piece);
        let mut rig = Rig::new(&profile);
        rig.prefill(0, CAPACITY);
        let (reset, write) = (rig.reset(0), rig.write(1, 0, 1));
        rig.run();
        assert_eq!((rig.end_us(write), rig.end_us(reset)), (write_ends, reset_ends), "in pieces of {piece} us");
    }
}

#[test]
fn an_erase_happens_at_the_next_program_and_once_a_unit() {
    let mut profile = without_early_completion();
    profile.firmware.reset.serial_whole_zone = us(0);
    let mut rig = Rig::new(&profile);
    let program = 2 + 12 + LOAD_US + PROGRAM_US + 5;
    assert_eq!(rig.alone_us(|rig| rig.write(0, 0, UNIT)), program);
    rig.alone_us(|rig| rig.reset(0));
    assert_eq!(rig.drive.counters().erases, 0, "a reset erases nothing");
    assert_eq!(rig.alone_us(|rig| rig.write(0, 0, UNIT)), program + 3_000);
    assert_eq!(rig.alone_us(|rig| rig.write(0, UNIT, UNIT)), program, "the rest of the unit is erased already");
    for unit in 2..CAPACITY / UNIT {
        rig.write(0, unit * UNIT, UNIT);
    }
    rig.run();
    assert_eq!(rig.drive.counters().erases, 1, "its second erase unit had not been written before the reset");
    assert_eq!((rig.drive.wear().erases, rig.drive.wear().erases_max), (1, 1));
}

#[test]
fn a_reset_releases_the_buffer_space_of_the_zone() {
    let mut rig = Rig::new(&drive_of_constants());
    for round in 0..100 {
        let write = rig.write(0, 0, UNIT + 5);
        if round % 2 == 0 {
            rig.run_until_end_of(write);
        } else {
            rig.step(); // The data are on their way.
        }
        rig.reset(0);
    }
    rig.run();
    assert_eq!(rig.drive.buffered_bytes(), 0);
}

// Zone Random Write Areas.

#[test]
fn blocks_in_a_random_write_area_are_programmed_once_they_are_committed() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.manage(0, ZoneAction::Open { zrwa: true });
    rig.run();
    for _ in 0..5 {
        rig.write(0, 0, 16);
    }
    rig.run();
    assert_eq!((rig.drive.counters().programs, rig.drive.buffered_bytes()), (0, 0));
    let target = ZoneTarget::Zone(Lba(UNIT - 1));
    rig.submit(Operation::ManageZones { action: ZoneAction::FlushZrwa, target });
    rig.run();
    assert_eq!((rig.drive.counters().programs, rig.drive.counters().programmed_host_bytes), (1, 48 * KIB));
    // The area now begins behind the first unit: a write one unit past its end pushes one unit out.
    rig.write(0, UNIT + 16, UNIT);
    rig.run();
    assert_eq!((rig.drive.counters().programs, rig.drive.counters().programmed_host_bytes), (2, 96 * KIB));
}

#[test]
fn a_zone_that_becomes_read_only_keeps_nothing_in_the_buffer() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.write(0, 0, 7);
    rig.drive.degrade(ZoneIndex(0), ZoneState::ReadOnly);
    rig.run();
    assert_eq!(rig.drive.buffered_bytes(), 0);
}
