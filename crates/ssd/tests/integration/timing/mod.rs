//! Latencies, compared with sums computed by hand from constant service times.
//!
//! The times are those of [`support::drive_of_constants`]; a comment beside an expectation is its
//! sum, in microseconds.

mod elements;
mod interference;
mod manage;
mod reads;
mod writes;

use crate::support::{CAPACITY, KIB, PAGE, Rig, UNIT, always, drive_of_constants, kib, tiny, us, wide_drive};
use zonda_profiles::{builtin_names, builtin_text};
use zonda_ssd::profile::{Admission, AllocationKind, Bandwidth, CapScope, Placement, Profile};
use zonda_zoned::{
    Instant, Lba, Operation, PayloadKind, Prng, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

/// Firmware of a read, and of a write: serial and parallel.
const READ_US: u64 = 1 + 5;
/// Transfer of a program unit to its die, and its program.
const LOAD_US: u64 = 3 * 16;
const PROGRAM_US: u64 = 600;

/// A drive whose writes complete when they are programmed.
fn without_early_completion() -> Profile {
    let mut profile = drive_of_constants();
    profile.write_buffer.early_completion = false;
    profile
}

// Counters and determinism.

#[test]
fn utilisation_adds_up() {
    let mut rig = Rig::new(&wide_drive());
    rig.prefill(0, CAPACITY);
    for block in 0..10 {
        rig.read(0, block * 7, 1);
    }
    rig.write(1, 0, 4 * UNIT);
    rig.run();
    let busy = rig.drive.utilisation();
    let (reads, loads) = (10 * (40 + 4), 4 * (LOAD_US + PROGRAM_US));
    let dies = busy.die_busy_ns.iter().sum::<u64>() / 1_000;
    assert!(dies >= reads + loads, "{dies}: and what dies are held for while others have the channel");
    assert_eq!(busy.channel_busy_ns.iter().sum::<u64>(), (10 * 4 + 4 * LOAD_US) * 1_000);
    assert_eq!((busy.link_out_busy_ns, busy.link_in_busy_ns), (10 * 1_000, 48 * 1_000));
    assert_eq!(busy.firmware_busy_ns, [(10 + 2) * 1_000]);
    let counters = rig.drive.counters();
    assert_eq!((counters.host_read_bytes, counters.host_write_bytes), (40 * KIB, 192 * KIB));
    assert_eq!((counters.commands_completed, counters.commands_refused), (11, 0));
    assert_eq!(counters.dlwa(), 1.0);
}

#[test]
fn a_die_is_busy_while_it_programs_and_not_only_afterwards() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.write(0, 0, UNIT);
    rig.run_until_us(514);
    assert_eq!(rig.drive.utilisation().die_busy_ns, [500_000, 0, 0, 0]);
}

/// Completion instants of a mixed run on a drive with random instead of constant times.
fn ends_of_a_mixed_run(seed: u64) -> Vec<Instant> {
    let profile = tiny();
    let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, seed);
    let mut ids = Vec::new();
    for round in 0..6 {
        for step in 0..5 {
            ids.push(rig.write(round % 3, (u64::from(round) / 3 * 5 + step) * 16, 16));
            ids.push(rig.read(round % 3, step * 3, 2));
        }
        rig.run_until_us(u64::from(round + 1) * 300);
    }
    ids.push(rig.finish(0));
    ids.push(rig.reset(1));
    rig.run();
    ids.iter().map(|id| rig.end(*id)).collect()
}

#[test]
fn the_same_seed_gives_the_same_times_and_another_seed_others() {
    assert_eq!(ends_of_a_mixed_run(1), ends_of_a_mixed_run(1));
    assert_ne!(ends_of_a_mixed_run(1), ends_of_a_mixed_run(2));
}

#[test]
fn every_built_in_drive_serves_the_commands_of_its_zones() {
    for name in builtin_names() {
        let profile = Profile::parse(builtin_text(name).unwrap()).unwrap();
        let mut rig = Rig::new(&profile);
        let geometry = rig.drive.geometry(zonda_zoned::NamespaceId::FIRST).clone();
        let is_zoned = geometry.conventional_zone_count == 0;
        let blocks = 8.min(geometry.max_transfer_blocks.0);
        let mut ids = vec![rig.write(0, 0, blocks), rig.read(0, 0, blocks)];
        if is_zoned {
            ids.extend([rig.append(1, 1), rig.manage(0, ZoneAction::Close), rig.reset(1)]);
        }
        rig.run();
        for id in ids {
            assert!(rig.completion(id).status.is_success(), "{name}: {:?}", rig.completion(id).status);
        }
    }
}

#[test]
fn erases_are_suspended_for_reads_as_programs_are() {
    let mut rig = Rig::new(&drive_of_constants());
    rig.prefill(0, CAPACITY);
    rig.prefill(4, CAPACITY);
    rig.reset(0);
    rig.run();
    let start = rig.now_us();
    rig.write(0, 0, UNIT);
    rig.run_until_us(start + 1_000);
    let read = rig.read(4, 0, 1);
    rig.run();
    // The erase runs from 14 on; the slice at 1006 ends at 1014.
    assert_eq!(rig.end_us(read), start + 14 + 5 * 200 + 45);
    assert_eq!(rig.now_us(), start + 14 + 3_000 + 44 + LOAD_US + PROGRAM_US);
}

/// Writes, appends, resets, finishes and reads of a few zones on a drive with a small buffer, for
/// every order of admission.
fn run_with_small_buffer(seed: u64) {
    let mut prng = Prng::new(seed);
    let mut profile = drive_of_constants();
    let buffer = &mut profile.write_buffer;
    buffer.capacity = kib(48 + 4 * prng.below(30));
    buffer.admission = [Admission::FirstCome, Admission::Strict, Admission::RoundRobin][prng.below(3) as usize];
    buffer.cap_scope = [CapScope::Zone, CapScope::Die][prng.below(2) as usize];
    buffer.cap = prng.chance(3, 4).then(|| kib(48 + 4 * prng.below(10)).min(buffer.capacity));
    buffer.early_completion = prng.chance(2, 3);
    profile.flash.cache_read = prng.chance(1, 2);
    profile.zones.placement = [Placement::ByIndex, Placement::RoundRobin][prng.below(2) as usize];
    profile.firmware.servers = [("core".to_owned(), 1 + prng.below(3) as u32)].into();
    let kinds = [AllocationKind::Fixed, AllocationKind::Block, AllocationKind::Hchunk(2)];
    profile.zones.allocation = kinds[prng.below(3) as usize];
    let may_spread = profile.write_buffer.cap.is_none() || profile.write_buffer.cap_scope == CapScope::Zone;
    if profile.zones.allocation != AllocationKind::Fixed && may_spread {
        profile.zones.luns_eligible = Some([1, 2, 4][prng.below(3) as usize]);
    }
    let mut rig = Rig::with(&profile, PayloadKind::None, seed);
    let depth = 1 + prng.below(40) as usize;
    for _ in 0..400 {
        let zone = prng.below(10) as u32;
        let pointer = rig.drive.zone(ZoneIndex(zone)).write_pointer_blocks.0;
        match prng.below(20) {
            0 => rig.reset(zone),
            1 => rig.finish(zone),
            2 => rig.manage(zone, ZoneAction::Open { zrwa: true }),
            3 => {
                let target = ZoneTarget::Zone(rig.lba(zone, pointer + 3));
                rig.submit(Operation::ManageZones { action: ZoneAction::FlushZrwa, target })
            }
            4..6 => rig.read(zone, prng.below(CAPACITY - 30), 1 + prng.below(30)),
            6..10 => rig.append(zone, 1 + prng.below(8)),
            _ => rig.write(zone, pointer, 1 + prng.below(40)),
        };
        if prng.chance(1, 150) {
            let to = [ZoneState::ReadOnly, ZoneState::Offline][prng.below(2) as usize];
            rig.drive.degrade(ZoneIndex(zone), to);
        }
        while rig.drive.outstanding() >= depth {
            assert!(rig.step(), "seed {seed}: commands wait for ever");
        }
        rig.drive.check_invariants();
    }
    rig.run();
    for zone in 0..10 {
        rig.reset(zone);
    }
    rig.run();
    assert_eq!(rig.drive.buffered_bytes(), 0, "seed {seed}: no zone holds anything, and yet the buffer is not empty");
}

#[test]
fn no_mixture_of_commands_hangs_a_drive_with_a_small_buffer() {
    (0..400).for_each(run_with_small_buffer);
}
