//! Conventional zones: overwriting, garbage collection, and their cost.

use crate::support::{CAPACITY, KIB, PAGE, Rig, UNIT, conventional_drive, kib};
use zonda_ssd::Ssd;
use zonda_ssd::profile::{Admission, Profile};
use zonda_zoned::{Blocks, Instant, Lba, Operation, Payload, PayloadKind, Prng, ZoneIndex};

/// Blocks of the whole drive.
const BLOCKS: u64 = 16 * CAPACITY;
/// Firmware time of a read.
const READ_US: u64 = 1 + 5;

/// A drive of 24 MiB with erase units of 192 KiB, so that a die has some forty of them.
fn drive() -> Profile {
    let mut profile = conventional_drive();
    profile.flash.erase_unit = kib(192);
    profile
}

fn prefill(rig: &mut Rig) {
    for zone in 0..16 {
        rig.prefill(zone, CAPACITY);
    }
}

/// Random overwrites of one to sixteen blocks at a queue depth, with a model of the write that each
/// block holds.
struct Overwriter {
    prng: Prng,
    in_flight: Vec<(u64, Instant)>,
    model: Vec<u64>,
    number: u64,
    worst_ns: u64,
    written_blocks: u64,
}

impl Overwriter {
    fn new(seed: u64) -> Overwriter {
        let model = vec![0; BLOCKS as usize];
        Overwriter { prng: Prng::new(seed), in_flight: Vec::new(), model, number: 0, worst_ns: 0, written_blocks: 0 }
    }

    fn run(&mut self, rig: &mut Rig, writes: u64, depth: usize, blocks_max: u64, reach: u64) {
        for _ in 0..writes {
            while self.in_flight.len() >= depth {
                self.wait(rig);
            }
            self.number += 1;
            let blocks = 1 + self.prng.below(blocks_max);
            let at = self.prng.below(reach - blocks);
            self.model[at as usize..(at + blocks) as usize].fill(self.number);
            self.written_blocks += blocks;
            let payload = Payload::Fingerprints(vec![self.number; blocks as usize].into());
            let id = rig.submit(Operation::Write { start: Lba(at), blocks: Blocks(blocks), payload });
            self.in_flight.push((id, rig.now));
        }
        while !self.in_flight.is_empty() {
            self.wait(rig);
        }
    }

    fn wait(&mut self, rig: &mut Rig) {
        assert!(rig.step(), "{} writes wait for ever", self.in_flight.len());
        let worst_ns = &mut self.worst_ns;
        self.in_flight.retain(|(id, since)| {
            if rig.has_ended(*id) {
                *worst_ns = (*worst_ns).max(rig.end(*id).since(*since).0);
            }
            !rig.has_ended(*id)
        });
    }

    fn check(&self, rig: &mut Rig) {
        for at in (0..BLOCKS).step_by(64) {
            assert_eq!(rig.prints(Lba(at), 64), self.model[at as usize..at as usize + 64], "from block {at}");
        }
    }
}

#[test]
fn overwriting_collects_garbage_amplifies_writes_and_loses_nothing() {
    let mut rig = Rig::with(&drive(), PayloadKind::Fingerprints, 1);
    let mut host = Overwriter::new(1);
    prefill(&mut rig);
    host.run(&mut rig, 8_000, 16, 16, BLOCKS);
    host.check(&mut rig);
    rig.run();
    host.check(&mut rig);
    let counters = rig.drive.counters();
    assert_eq!(counters.host_write_bytes, host.written_blocks * 4 * KIB);
    assert!(counters.dlwa() > 1.2, "{}", counters.dlwa());
    assert!(counters.programmed_gc_bytes > counters.host_write_bytes / 5);
    assert_eq!(rig.drive.wear().erases, counters.erases);
}

#[test]
fn sequential_overwriting_leaves_nothing_to_move() {
    let mut rig = Rig::new(&drive());
    prefill(&mut rig);
    for _ in 0..2 {
        for zone in 0..16 {
            for unit in 0..CAPACITY / 48 {
                let write = rig.write(zone, unit * 48, 48);
                rig.run_until_end_of(write);
            }
        }
    }
    rig.run();
    let counters = rig.drive.counters();
    assert_eq!(counters.programmed_host_bytes, 2 * BLOCKS * 4 * KIB);
    assert!(counters.dlwa() < 1.01, "{}", counters.dlwa());
}

#[test]
fn an_almost_full_drive_keeps_serving_random_writes_and_none_waits_for_ever() {
    for (admission, early_completion, depth) in
        [(Admission::FirstCome, true, 64), (Admission::RoundRobin, true, 8), (Admission::Strict, false, 8)]
    {
        let mut profile = drive();
        profile.conventional.over_provisioning_percent = 5;
        profile.conventional.gc_low_units = 2;
        profile.write_buffer.capacity = kib(192);
        profile.write_buffer.admission = admission;
        profile.write_buffer.early_completion = early_completion;
        let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
        let mut host = Overwriter::new(2);
        prefill(&mut rig);
        host.run(&mut rig, 6_000, depth, 1, BLOCKS);
        rig.run();
        host.check(&mut rig);
        // A write may wait for all before it, and for some rounds of collecting on each die; not
        // longer.
        assert!(host.worst_ns < 2_000_000_000, "{admission:?}: {} ns", host.worst_ns);
        assert_eq!(rig.drive.wear().erases, rig.drive.counters().erases);
    }
}

#[test]
fn overwriting_a_hot_spot_does_not_hang() {
    let mut rig = Rig::with(&drive(), PayloadKind::Fingerprints, 1);
    let mut host = Overwriter::new(3);
    prefill(&mut rig);
    host.run(&mut rig, 6_000, 32, 8, 64);
    rig.run();
    host.check(&mut rig);
}

#[test]
fn reads_during_collection_complete() {
    let mut rig = Rig::new(&drive());
    prefill(&mut rig);
    let mut prng = Prng::new(4);
    let mut reads: Vec<(u64, u64)> = Vec::new();
    let mut writes: Vec<u64> = Vec::new();
    let mut worst_us = 0;
    for _ in 0..20_000 {
        writes.retain(|id| !rig.has_ended(*id));
        reads.retain(|(id, at)| {
            if rig.has_ended(*id) {
                worst_us = worst_us.max(rig.end_us(*id) - at);
            }
            !rig.has_ended(*id)
        });
        if writes.len() < 8 {
            writes.push(rig.write(prng.below(16) as u32, prng.below(CAPACITY - 1), 1));
        }
        if reads.len() < 2 {
            reads.push((rig.read(prng.below(16) as u32, prng.below(CAPACITY - 1), 1), rig.now_us()));
        }
        rig.step();
    }
    assert!(rig.drive.counters().programmed_gc_bytes > 0);
    // Two reads of the host, sixteen pages of a collection, a slice and a load, each twice over at
    // most.
    assert!((100..2 * (2 * 45 + 16 * 66 + 200 + 48)).contains(&worst_us), "{worst_us}");
}

#[test]
fn every_acknowledged_block_survives_power_loss_and_the_drive_continues() {
    let profile = drive();
    let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
    let mut host = Overwriter::new(5);
    prefill(&mut rig);
    for round in 0..30 {
        host.run(&mut rig, 300, 16, 8, BLOCKS);
        // Programs and collections are in flight, and all writes are acknowledged.
        let media = rig.drive.power_loss(&mut Prng::new(round));
        rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(100 + round)));
        assert_eq!((rig.drive.outstanding(), rig.drive.buffered_bytes()), (0, 0));
        host.check(&mut rig);
    }
    host.run(&mut rig, 3_000, 16, 8, BLOCKS);
    rig.run();
    host.check(&mut rig);
}

#[test]
fn adjacent_blocks_of_a_page_are_read_together_and_scattered_ones_one_by_one() {
    let mut rig = Rig::new(&drive());
    prefill(&mut rig);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 1)), READ_US + 40 + 4 + 1);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, PAGE)), READ_US + 50 + 16 + 4);
    let before = rig.drive.counters().flash_read_bytes;
    assert_eq!(before, 20 * KIB);
    // Every fourth block of zone 0 is written again, so that no page holds four neighbours.
    for block in (0..CAPACITY).step_by(4) {
        rig.write(0, block, 1);
    }
    rig.run();
    let held = rig.drive.buffered_bytes();
    assert_eq!(held, 0, "{} blocks are two stripes", CAPACITY / 4);
    rig.read(0, 0, 64);
    rig.run();
    assert_eq!(rig.drive.counters().flash_read_bytes - before, 256 * KIB, "no more is counted than was asked for");
    assert_eq!(rig.drive.utilisation().link_out_busy_ns, (1 + 4 + 64) * 1_000, "and no more sent");
}

#[test]
fn a_deallocated_block_needs_no_die_and_reads_as_zeros() {
    let mut rig = Rig::with(&drive(), PayloadKind::Fingerprints, 1);
    rig.write_of(0, 0, 48, Payload::Fingerprints(vec![9; 48].into()));
    rig.run();
    rig.deallocate(0, 4, 4);
    rig.run();
    assert_eq!(rig.prints(Lba(3), 6), [9, 0, 0, 0, 0, 9]);
    let before = rig.drive.counters().flash_read_bytes;
    assert_eq!(rig.alone_us(|rig| rig.read(0, 4, 4)), READ_US + 4);
    assert_eq!(rig.drive.counters().flash_read_bytes, before);
}

#[test]
fn a_block_that_is_deallocated_while_the_buffer_holds_it_twice_gets_no_place_on_flash() {
    let mut rig = Rig::new(&drive());
    rig.write(0, 0, 1);
    rig.write(0, 0, 1);
    rig.run();
    rig.deallocate(0, 0, 1);
    rig.write(1, 0, 46);
    rig.run();
    assert_eq!((rig.drive.buffered_bytes(), rig.drive.counters().programs), (0, 4));
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 1)), READ_US + 1);
}

#[test]
fn deallocated_garbage_is_collected_without_moving_it() {
    let mut rig = Rig::new(&drive());
    prefill(&mut rig);
    for zone in 0..16 {
        rig.deallocate(zone, 0, CAPACITY);
    }
    rig.run();
    for zone in 0..16 {
        for unit in 0..CAPACITY / UNIT {
            rig.write(zone, unit * UNIT, UNIT);
        }
        rig.run();
    }
    assert_eq!(rig.drive.counters().programmed_gc_bytes, 0);
    assert!(rig.drive.counters().erases > 0);
}

#[test]
fn the_first_block_of_a_conventional_zone_opens_nothing() {
    let mut profile = drive();
    profile.firmware.zone_open_extra = crate::support::us(10);
    let mut rig = Rig::new(&profile);
    assert_eq!(rig.alone_us(|rig| rig.write(1, 0, 1)), 2 + 1 + 5);
}

#[test]
fn a_prefilled_conventional_zone_is_written_as_far_as_it_was_filled() {
    let mut rig = Rig::new(&drive());
    rig.prefill(2, 100);
    assert_eq!(rig.drive.zone(ZoneIndex(2)).written_blocks, Blocks(100));
    assert_eq!(rig.alone_us(|rig| rig.read(2, 0, 1)), READ_US + 40 + 4 + 1);
    assert_eq!(rig.alone_us(|rig| rig.read(2, 100, 1)), READ_US + 1);
    assert_eq!((rig.drive.counters().host_write_bytes, rig.drive.counters().programs), (0, 0));
}

#[test]
fn conventional_and_sequential_zones_share_the_dies_and_the_buffer() {
    let mut profile = drive();
    profile.geometry.conventional_zones = 4;
    profile.write_buffer.capacity = kib(192);
    let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
    for zone in 0..4 {
        rig.prefill(zone, CAPACITY);
    }
    let mut prng = Prng::new(6);
    let mut at = [0; 16];
    for number in 1..4_000_u64 {
        if prng.chance(1, 2) {
            let payload = Payload::Fingerprints([number].into());
            rig.write_of(prng.below(4) as u32, prng.below(CAPACITY), 1, payload);
        } else {
            let zone = 4 + prng.below(12) as usize;
            if at[zone] + 3 > CAPACITY {
                rig.reset(zone as u32);
                at[zone] = 0;
            }
            rig.write(zone as u32, at[zone], 3);
            at[zone] += 3;
        }
        while rig.drive.outstanding() > 16 {
            assert!(rig.step());
        }
    }
    rig.run();
    assert!(rig.drive.counters().programmed_gc_bytes > 0);
}

#[test]
fn pages_written_together_are_read_from_different_dies_whatever_the_size_of_the_buffer() {
    const PAGES: u64 = 4;
    for buffer_kib in [192, 768, 3_072] {
        let mut profile = drive();
        profile.write_buffer.capacity = kib(buffer_kib);
        let mut rig = Rig::new(&profile);
        prefill(&mut rig);
        // More outstanding than the buffer holds, so that units wait for dies that collect.
        let chunks = BLOCKS / (PAGES * PAGE);
        let mut prng = Prng::new(8);
        for _ in 0..6 * chunks {
            let start = Lba(prng.below(chunks) * PAGES * PAGE);
            rig.submit(Operation::Write { start, blocks: Blocks(PAGES * PAGE), payload: Payload::None });
            while rig.drive.outstanding() > 64 {
                assert!(rig.step());
            }
        }
        let read = |rig: &mut Rig, chunk: u64| {
            let start = Lba(chunk * PAGES * PAGE);
            rig.alone_us(|rig| rig.submit(Operation::Read { start, blocks: Blocks(PAGES * PAGE) }))
        };
        // The collector moves some of them later, but never onto the die of all the others.
        let together_us = READ_US + PAGES * (50 + 16) + 4;
        let slowest_us = (0..chunks).map(|chunk| read(&mut rig, chunk)).max().expect("there are chunks");
        assert!(slowest_us < together_us, "{buffer_kib} KiB: {slowest_us} us");
    }
}

/// A drive whose map has six pages of 16 KiB, of which one is in memory.
fn drive_with_a_small_map_cache() -> Profile {
    let mut profile = drive();
    profile.geometry.zones = 64;
    profile.geometry.conventional_zones = 64;
    profile.conventional.map_cache = Some(kib(16));
    profile
}

#[test]
fn a_read_whose_part_of_the_map_is_not_in_memory_reads_a_page_of_the_map_first() {
    let mut rig = Rig::new(&drive_with_a_small_map_cache());
    for zone in 0..64 {
        rig.prefill(zone, CAPACITY);
    }
    let (read, map_read) = (READ_US + 40 + 4 + 1, 50 + 16);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 1)), read + map_read);
    assert_eq!(rig.alone_us(|rig| rig.read(1, 0, 1)), read, "of the same page of the map");
    assert_eq!(rig.alone_us(|rig| rig.read(63, 0, 1)), read + map_read);
    assert_eq!(rig.alone_us(|rig| rig.read(0, 0, 1)), read + map_read, "it was evicted");
    // Read together, two wait for one page of the map.
    let [first, second] = [rig.read(63, 0, 1), rig.read(63, 1, 1)];
    rig.run();
    assert!(rig.end_us(second).abs_diff(rig.end_us(first)) < map_read);
    assert_eq!(rig.drive.counters().flash_read_bytes, 6 * 4 * KIB, "pages of the map are not the host's");
}

#[test]
fn changed_pages_of_the_map_are_programmed_when_they_are_evicted() {
    let programs = |map_cache| {
        let mut profile = drive_with_a_small_map_cache();
        profile.conventional.map_cache = map_cache;
        let mut rig = Rig::with(&profile, PayloadKind::Fingerprints, 1);
        for zone in 0..64 {
            rig.prefill(zone, CAPACITY);
        }
        let mut host = Overwriter::new(7);
        host.run(&mut rig, 2_000, 8, 1, BLOCKS);
        rig.run();
        let media = rig.drive.power_loss(&mut Prng::new(1));
        rig = Rig::of(Ssd::power_on(&profile, media, &Prng::new(2)));
        host.check(&mut rig);
        rig.drive.counters().programs
    };
    // The blocks that are written have two pages of the map; collections differ a little.
    let (all, both, one) = (programs(None), programs(Some(kib(32))), programs(Some(kib(16))));
    assert!(all.abs_diff(both) < 5, "{all}, {both}: none is evicted");
    assert!(one > all + 10, "{all}, {one}");
}
