//! Random requests, with crashes at random moments: durable data survive, and no other data appear.

use zonda_zoned::{Blocks, Geometry, Prng};

use crate::testing::{Host, Mix, SsdSimulation, Testbed, Tester};
use crate::{FileStore, FilesConfig, Migration, Usage};

/// A small drive of 4 to 14 active zones, or 3, or without limits.
fn random_geometry(prng: &mut Prng) -> Geometry {
    let more = if prng.chance(1, 2) { 12 } else { 40 };
    let capacity = 8 + prng.below(more);
    let active = match prng.below(12) {
        0 => None,
        1 => Some(3),
        2..7 => Some(4 + prng.below(2) as u32),
        _ => Some(4 + prng.below(11) as u32),
    };
    let transfer = 1 + prng.below(16);
    let conventional_zone_count = prng.below(3) as u32 * u32::from(prng.chance(1, 3));
    let geometry = Geometry {
        block_size_bytes: if prng.chance(1, 4) { 4096 } else { 512 },
        metadata_bytes: if prng.chance(1, 2) { 8 } else { 0 },
        zone_size_blocks: Blocks(if conventional_zone_count > 0 { capacity } else { capacity + prng.below(9) }),
        zone_capacity_blocks: Blocks(capacity),
        zone_count: conventional_zone_count + 6 + prng.below(18) as u32,
        conventional_zone_count,
        max_active_zones: active,
        max_open_zones: active.map(|zones| 1 + prng.below(u64::from(zones)) as u32),
        max_transfer_blocks: Blocks(transfer),
        max_append_blocks: Blocks(1),
        zrwa: None,
        read_across_zones: prng.chance(1, 2),
        descriptor_extension_bytes: 0,
    };
    assert_eq!(geometry.validate(), Ok(()));
    geometry
}

fn random_config(prng: &mut Prng, geometry: &Geometry) -> FilesConfig {
    let block = geometry.block_size_bytes;
    let write_unit_bytes = block * (1 + prng.below(8) as u32);
    FilesConfig {
        finish_threshold_percent: 1 + prng.below(100) as u8,
        write_unit_bytes,
        file_buffer_bytes: write_unit_bytes + prng.below(20_000) as u32,
        read_unit_bytes: block * (1 + prng.below(8) as u32),
        migration: prng.chance(2, 3).then(|| Migration {
            start_empty_zones_percent: 1 + prng.below(100) as u8,
            garbage_percent: 1 + prng.below(60) as u8,
        }),
        ..FilesConfig::default()
    }
}

/// The coverage of a number of runs.
#[derive(Debug, Default)]
struct Coverage {
    unsuited: u64,
    refusals: u64,
    reads: u64,
    finishes: u64,
    resets: u64,
    migrated: u64,
    relaxed: u64,
}

impl Coverage {
    fn add(&mut self, usage: &Usage) {
        self.finishes += usage.zone_finishes;
        self.resets += usage.zone_resets;
        self.migrated += usage.migrated_bytes;
        self.relaxed += usage.relaxed_matches;
    }
}

/// How a drive treats its writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drive {
    Keeps,
    /// It fails this many of 1000 writes.
    Fails(u64),
    /// It has a volatile write cache.
    Caches,
}

fn run(seed: u64, drive: Drive, met: &mut Coverage) {
    let mut prng = Prng::new(seed);
    let mut geometry = random_geometry(&mut prng);
    if drive == Drive::Caches {
        // Writes lost from a cache may leave more zones active than before.
        (geometry.max_active_zones, geometry.max_open_zones) = (None, None);
    }
    let faults_per_mille = if let Drive::Fails(faults) = drive { faults } else { 0 };
    let config = random_config(&mut prng, &geometry);
    if FileStore::format(&geometry, config, [0; 16]).is_err() {
        met.unsuited += 1;
        return;
    }
    let mut testbed = Testbed::format(geometry, config, prng.fork("world"));
    if drive == Drive::Caches {
        testbed.enable_write_cache();
        testbed.crash();
        testbed.mount().expect("it was formatted");
    }
    let mut tester = Tester::new(Mix::default());
    for _ in 0..1 + prng.below(3) {
        testbed.faults_per_mille = faults_per_mille;
        tester.model.may_fail = faults_per_mille > 0;
        let events = if prng.chance(1, 4) { 1000 } else { 200 };
        for _ in 0..prng.below(events) {
            match prng.below(10) {
                0..3 => tester.request(&mut testbed),
                3..6 => {
                    testbed.take_command();
                }
                6..9 => {
                    testbed.complete();
                }
                _ => {
                    if prng.chance(1, 10) {
                        testbed.drain();
                        tester.on_event(&mut testbed);
                        tester.expect_idle();
                    }
                }
            }
            tester.on_event(&mut testbed);
        }
        met.add(&testbed.store.usage());
        if prng.chance(1, 4) {
            testbed.drain();
            tester.on_event(&mut testbed);
            tester.expect_idle();
        }
        testbed.faults_per_mille = 0;
        testbed.crash();
        while prng.chance(1, 3) {
            testbed.mount_and_crash();
        }
        testbed.mount().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        tester.compare(&mut testbed);
    }
    met.refusals += tester.model.refusals();
    met.reads += tester.model.reads();
}

/// Prints the seed of a run that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with seed {}", self.0);
        }
    }
}

/// Runs this many seeds: durable data survive, and every 3,000 runs reach this coverage.
fn keeps_what_was_durable(seeds: u64) {
    let mut met = Coverage::default();
    for seed in 0..seeds {
        let _named = Seed(seed);
        run(seed, Drive::Keeps, &mut met);
    }
    assert!(met.unsuited < seeds / 30 && met.reads > seeds * 5 / 3 && met.refusals > seeds / 3, "{met:?}");
    assert!(met.finishes > seeds / 60 && met.resets > seeds, "{met:?}");
    assert!(met.migrated > 200_000 * seeds / 3_000 && met.relaxed > seeds / 6, "{met:?}");
}

#[test]
fn durable_data_survive_a_crash_at_any_moment() {
    keeps_what_was_durable(600);
}

#[test]
#[ignore = "soak"]
fn soak_durable_data_survive_a_crash_at_any_moment() {
    keeps_what_was_durable(3_000);
}

/// Runs this many seeds with a volatile write cache: every 1,500 runs reach this coverage.
fn survives_the_loss_of_a_cache(seeds: u64) {
    let mut met = Coverage::default();
    for seed in 0..seeds {
        let _named = Seed(seed);
        run(seed, Drive::Caches, &mut met);
    }
    assert!(met.reads > seeds * 4 / 3 && met.resets > seeds * 2 / 3, "{met:?}");
    assert!(met.migrated > 100_000 * seeds / 1_500, "{met:?}");
}

#[test]
fn durable_data_survive_the_loss_of_a_write_cache() {
    survives_the_loss_of_a_cache(300);
}

#[test]
#[ignore = "soak"]
fn soak_durable_data_survive_the_loss_of_a_write_cache() {
    survives_the_loss_of_a_cache(1_500);
}

/// Runs this many seeds with failing writes: every 1,500 runs reach this coverage.
fn survives_writes_that_fail(seeds: u64) {
    let mut met = Coverage::default();
    for seed in 0..seeds {
        let _named = Seed(seed);
        run(seed, Drive::Fails(1 + seed % 100), &mut met);
    }
    assert!(met.reads > seeds * 4 / 3 && met.finishes > seeds * 2 / 15, "{met:?}");
    assert!(met.migrated > 200_000 * seeds / 1_500, "{met:?}");
}

#[test]
fn failed_writes_lose_no_durable_data() {
    survives_writes_that_fail(300);
}

#[test]
#[ignore = "soak"]
fn soak_failed_writes_lose_no_durable_data() {
    survives_writes_that_fail(1_500);
}

fn run_on_a_model_drive(seed: u64, met: &mut Coverage) {
    let mut prng = Prng::new(seed);
    let mut testbed = SsdSimulation::format(prng.fork("world"), |geometry| {
        let mut config = random_config(&mut prng, geometry);
        // A short run must fill and empty zones of 384 blocks.
        config.file_buffer_bytes = 1 << 20;
        config
    });
    let mut tester = Tester::new(Mix { append_bytes_max: 400_000, ..Mix::default() });
    for _ in 0..3 {
        for _ in 0..prng.below(300) {
            match prng.below(3) {
                0 => tester.request(&mut testbed),
                _ => testbed.step(),
            }
            tester.on_event(&mut testbed);
        }
        met.add(&testbed.store().usage());
        if prng.chance(1, 4) {
            testbed.drain();
            tester.on_event(&mut testbed);
            tester.expect_idle();
        }
        testbed.power_loss();
        testbed.mount().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        tester.compare(&mut testbed);
    }
    met.refusals += tester.model.refusals();
    met.reads += tester.model.reads();
}

/// Runs this many seeds on a model drive: every 150 runs reach this coverage.
fn survives_on_a_model_drive(seeds: u64) {
    let mut met = Coverage::default();
    for seed in 0..seeds {
        let _named = Seed(seed);
        run_on_a_model_drive(seed, &mut met);
    }
    assert!(met.reads > 2 * seeds && met.resets > seeds * 2 / 3 && met.relaxed > seeds / 15, "{met:?}");
}

#[test]
fn durable_data_on_a_model_drive_survive_a_loss_of_power_at_any_moment() {
    survives_on_a_model_drive(30);
}

#[test]
#[ignore = "soak"]
fn soak_durable_data_on_a_model_drive_survive_a_loss_of_power_at_any_moment() {
    survives_on_a_model_drive(150);
}
