//! Writes, and their admission to the buffer.

use super::*;

// Writes.

#[test]
fn a_cached_write_ends_without_waiting_for_its_program() {
    let mut rig = Rig::new(&drive_of_constants());
    let write = rig.write(0, 0, UNIT);
    rig.run();
    assert_eq!(rig.end_us(write), 2 + 12 + 5);
    assert_eq!(rig.now_us(), 2 + 12 + LOAD_US + PROGRAM_US, "the program continues after it");
}

#[test]
fn a_write_without_early_completion_ends_at_the_end_of_its_last_program() {
    let mut rig = Rig::new(&without_early_completion());
    assert_eq!(rig.alone_us(|rig| rig.write(0, 0, UNIT)), 2 + 12 + LOAD_US + PROGRAM_US + 5);
    let two_units_and_a_page = 2 + 28 + 2 * (LOAD_US + PROGRAM_US) + 16 + PROGRAM_US + 5;
    assert_eq!(rig.alone_us(|rig| rig.write(0, UNIT, 2 * UNIT + PAGE)), two_units_and_a_page);
}

#[test]
fn writes_and_appends_pay_their_own_firmware_and_write_zeroes_no_transfer() {
    let mut rig = Rig::new(&drive_of_constants());
    assert_eq!(rig.alone_us(|rig| rig.write(0, 0, 1)), 2 + 1 + 5);
    assert_eq!(rig.alone_us(|rig| rig.append(0, 1)), 3 + 1 + 5);
    assert_eq!(rig.alone_us(|rig| rig.write_zeroes(0, 2, 1)), 2 + 5);
    rig.write_zeroes(0, 3, UNIT - 3);
    rig.run();
    assert_eq!(rig.drive.counters().programs, 1, "zeros are programmed as other data");
    assert_eq!(rig.drive.counters().programmed_host_bytes, 48 * KIB);
}

#[test]
fn the_write_that_opens_a_zone_pays_for_it_with_or_without_other_serial_work() {
    for serial in [2, 0] {
        let mut profile = drive_of_constants();
        profile.firmware.zone_open_extra = us(10);
        if serial == 0 {
            profile.firmware.write.serial = zonda_ssd::service_time::BySize::default();
        }
        let mut rig = Rig::new(&profile);
        assert_eq!(rig.alone_us(|rig| rig.write(0, 0, 1)), serial + 10 + 1 + 5);
        assert_eq!(rig.alone_us(|rig| rig.write(0, 1, 1)), serial + 1 + 5);
        rig.manage(0, ZoneAction::Close);
        assert_eq!(rig.alone_us(|rig| rig.write(0, 2, 1)), serial + 10 + 1 + 5, "closed, it is opened again");
        rig.manage(1, ZoneAction::Open { zrwa: false });
        assert_eq!(
            rig.alone_us(|rig| rig.write(1, 0, 1)),
            serial + 10 + 1 + 5,
            "the first in a zone opened by the host"
        );
    }
}

#[test]
fn a_zone_is_written_at_one_program_unit_for_each_die_a_cycle() {
    let mut profile = wide_drive();
    (profile.flash.channels, profile.flash.dies_per_channel) = (4, 1);
    let mut rig = Rig::new(&profile);
    for row in 0..8 {
        rig.write(0, row * 4 * UNIT, 4 * UNIT);
    }
    rig.run();
    // The first row arrives whole; from then on no die ever waits.
    assert_eq!(rig.now_us(), 2 + 48 + 8 * (LOAD_US + PROGRAM_US));
    assert_eq!(rig.drive.utilisation().die_busy_ns, [8 * (LOAD_US + PROGRAM_US) * 1_000; 4]);
    assert_eq!(rig.drive.buffered_bytes(), 0);
}

#[test]
fn a_write_larger_than_the_buffer_flows_through_it() {
    let mut profile = drive_of_constants();
    profile.write_buffer.capacity = kib(96);
    let mut rig = Rig::new(&profile);
    let write = rig.write(0, 0, 64);
    rig.run();
    // 96 KiB at once, 48 more as each of the first three programs ends, the last 16 with the
    // fourth.
    assert_eq!(rig.end_us(write), 2 + 24 + 4 * (LOAD_US + PROGRAM_US) + 4 + 5);
}

#[test]
fn a_full_buffer_delays_a_writer_by_the_time_to_program_a_unit() {
    let mut profile = drive_of_constants();
    profile.write_buffer.capacity = kib(96);
    let mut rig = Rig::new(&profile);
    rig.write(0, 0, 2 * UNIT);
    let delayed = rig.write(1, 0, UNIT);
    rig.run();
    assert_eq!(rig.end_us(delayed), 2 + 24 + LOAD_US + PROGRAM_US + 12 + 5);
    assert_eq!(rig.drive.counters().buffer_waits, 1);
}

// Admission.

/// Ends of two writes to zone 0, capped at one unit, and one to zone 1 behind them; and the writes
/// that waited.
fn ends_with_a_capped_writer(admission: Admission) -> ([u64; 3], u64) {
    let mut profile = drive_of_constants();
    profile.write_buffer.cap = Some(kib(48));
    profile.write_buffer.admission = admission;
    let mut rig = Rig::new(&profile);
    let writes = [rig.write(0, 0, UNIT), rig.write(0, UNIT, UNIT), rig.write(1, 0, UNIT)];
    rig.run();
    (writes.map(|write| rig.end_us(write)), rig.drive.counters().buffer_waits)
}

#[test]
fn a_capped_writer_blocks_others_under_strict_admission_only() {
    let released = 2 + 12 + LOAD_US + PROGRAM_US;
    assert_eq!(ends_with_a_capped_writer(Admission::FirstCome), ([19, released + 12 + 5, 14 + 12 + 5], 1));
    assert_eq!(ends_with_a_capped_writer(Admission::Strict), ([19, released + 12 + 5, released + 24 + 5], 2));
    // In turn, a page at a time: zone 1 is not held up by the writer at its cap.
    assert_eq!(ends_with_a_capped_writer(Admission::RoundRobin), ([19, released + 12 + 5, 14 + 12 + 5], 1));
}

/// Bytes that two zones got programmed within 100 ms; the first keeps eight writes in flight, the
/// second one.
fn shares(admission: Admission) -> [u64; 2] {
    let mut profile = drive_of_constants();
    // Both zones on die 0, so that it is the dies that are short of time.
    profile.write_buffer.admission = admission;
    profile.write_buffer.capacity = kib(96);
    profile.geometry.zone_size = kib(1 << 20);
    profile.geometry.zone_capacity = kib(1 << 20);
    let mut rig = Rig::new(&profile);
    let mut at = [0, 0];
    let mut ended = [0, 0];
    let mut in_flight: Vec<(usize, u64)> = Vec::new();
    for (zone, depth) in [(0, 8), (1, 1)] {
        for _ in 0..depth {
            in_flight.push((zone, rig.write(4 * zone as u32, at[zone], UNIT)));
            at[zone] += UNIT;
        }
    }
    while rig.now < Instant(100_000_000) {
        rig.step();
        for entry in &mut in_flight {
            if rig.has_ended(entry.1) {
                let zone = entry.0;
                ended[zone] += UNIT * 4 * KIB;
                entry.1 = rig.write(4 * zone as u32, at[zone], UNIT);
                at[zone] += UNIT;
            }
        }
    }
    ended
}

#[test]
fn round_robin_shares_the_buffer_between_zones_and_first_come_between_writes() {
    let [deep, shallow] = shares(Admission::RoundRobin);
    assert!(shallow * 10 >= deep * 8, "round robin: {deep} and {shallow}");
    let [deep, shallow] = shares(Admission::FirstCome);
    assert!(shallow * 4 <= deep, "first come: {deep} and {shallow}");
    assert!(shallow * 12 >= deep, "but no zone starves: {deep} and {shallow}");
}

#[test]
fn more_zones_with_partial_units_than_the_buffer_can_hold_do_not_hang() {
    for admission in [Admission::FirstCome, Admission::Strict, Admission::RoundRobin] {
        let mut profile = drive_of_constants();
        profile.write_buffer.capacity = kib(96);
        profile.write_buffer.admission = admission;
        let mut rig = Rig::new(&profile);
        for zone in 0..16 {
            rig.write(zone, 0, 3);
        }
        rig.run();
        let spilled = rig.drive.counters().programmed_spill_bytes;
        assert!((96 * KIB..=192 * KIB).contains(&spilled), "{spilled}");
        assert_eq!(rig.drive.counters().dlwa(), (192 * KIB + spilled) as f64 / (192 * KIB) as f64);
        for zone in 0..16 {
            rig.write(zone, 3, UNIT - 3);
        }
        rig.run();
        let counters = rig.drive.counters();
        assert_eq!(counters.programmed_host_bytes, 16 * 48 * KIB, "every byte comes to its place in the end");
        assert_eq!(rig.drive.buffered_bytes(), 0);
    }
}

/// Lets zones 1 to 3 write on and on, each on its own die, until a command has ended.
fn end_with_busy_writers(rig: &mut Rig, waiting: u64) {
    let mut at = [0; 3];
    let mut busy: Vec<(u32, u64)> = Vec::new();
    while !rig.has_ended(waiting) {
        busy.retain(|(_, id)| !rig.has_ended(*id));
        for (zone, at) in (1..).zip(&mut at) {
            while busy.iter().filter(|(busy, _)| *busy == zone).count() < 4 {
                assert!(*at + UNIT <= CAPACITY, "the write waits as long as the other dies are busy");
                busy.push((zone, rig.write(zone, *at, UNIT)));
                *at += UNIT;
            }
        }
        assert!(rig.step());
    }
    rig.run();
}

#[test]
fn a_cap_full_of_a_partial_unit_does_not_starve_its_die_while_others_are_busy() {
    for admission in [Admission::FirstCome, Admission::Strict, Admission::RoundRobin] {
        let mut profile = drive_of_constants();
        profile.write_buffer.cap = Some(kib(48));
        profile.write_buffer.cap_scope = CapScope::Die;
        profile.write_buffer.admission = admission;
        let mut rig = Rig::new(&profile);
        rig.write(0, 0, UNIT - 1);
        let waiting = rig.write(4, 0, UNIT);
        end_with_busy_writers(&mut rig, waiting);
        assert_eq!(rig.drive.counters().programmed_spill_bytes, 48 * KIB, "{admission:?}");
    }
}

#[test]
fn a_zone_just_below_its_cap_takes_a_large_write_while_others_are_busy() {
    for admission in [Admission::FirstCome, Admission::Strict, Admission::RoundRobin] {
        let mut profile = drive_of_constants();
        profile.write_buffer.cap = Some(kib(48));
        profile.write_buffer.admission = admission;
        let mut rig = Rig::new(&profile);
        rig.write(0, 0, UNIT - 1);
        let waiting = rig.write(0, UNIT - 1, 64);
        end_with_busy_writers(&mut rig, waiting);
        assert_eq!(rig.drive.counters().programmed_spill_bytes, 0, "{admission:?}: the 4 KiB that are left will do");
    }
}
