//! Whole runs on a file store on drives.

use std::cell::Cell;

use zonda_config::unplaced;
use zonda_layers::Null;
use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{Blocks, Duration, Geometry, Instant, NamespaceId, PayloadKind, Prng, ZonedDevice};

use super::geometry;
use super::workloads::small;
use crate::Fraction;
use crate::lsm::{
    MigrationSpec, OperationKind, StoreEnd, StorePlan, StoreProgress, StoreResult, StoreRunner, StoreSpec,
    StoreWorkload,
};

fn on_null(spec: StoreSpec, geometry: &Geometry) -> StoreResult {
    let plan = StorePlan::new(&unplaced(spec), geometry).expect("the drive is large enough for the store");
    let drive = Null::new(geometry.clone());
    StoreRunner::new(&plan, 1).checked().run(drive, Instant::ZERO, None, &mut |_, _| {}).0
}

/// The model of a small drive, with more zones than its profile has.
fn ssd() -> Ssd {
    let text = builtin_text("tiny").expect("a built-in profile");
    let text = text.replace("zones = 16\n", "zones = 64\n").replace("max_active_zones = 4", "max_active_zones = 8");
    let profile = Profile::parse(&text).expect("which is valid");
    Ssd::new(&profile, PayloadKind::None, &Prng::new(1))
}

fn on_ssd(spec: StoreSpec, seed: u64) -> (StoreResult, Ssd) {
    let drive = ssd();
    let plan = StorePlan::new(&unplaced(spec), drive.geometry(NamespaceId::FIRST))
        .expect("the drive is large enough for the store");
    StoreRunner::new(&plan, seed).checked().run(drive, Instant::ZERO, Some(Duration::from_millis(5)), &mut |_, _| {})
}

#[test]
fn every_workload_runs_on_a_file_store_and_accounts_for_all_its_live_bytes() {
    for workload in StoreWorkload::ALL {
        let preload = if workload.needs_preload() { 8_000 } else { 0 };
        let result = on_null(small(workload, preload, 10_000), &geometry());
        assert_eq!((&result.ended_by, result.operations), (&StoreEnd::Operations, 10_000), "{workload}");
        assert_eq!(result.file_bytes, result.files.live_bytes, "{workload}");
        assert!(result.space_amplification_mean >= 1.0);
    }
}

#[test]
fn a_drive_that_is_too_small_ends_the_run_with_its_reason() {
    let small_drive = Geometry { zone_count: 8, ..geometry() };
    let result = on_null(small(StoreWorkload::Fillrandom, 0, 1_000_000), &small_drive);
    assert_eq!(result.ended_by, StoreEnd::NoSpace);
    assert!(result.has_failed() && result.operations > 10_000, "{}", result.operations);
    let report = result.ended_by.to_string();
    assert!(report.contains("larger drive"), "{report}");
}

#[test]
fn host_bytes_are_those_of_the_store_with_padding_and_metadata() {
    let result = on_null(small(StoreWorkload::KvbenchIi, 0, 30_000), &geometry());
    let counters = &result.counters;
    let of_store =
        counters.wal_bytes + counters.flush_bytes + counters.compaction_write_bytes + counters.manifest_bytes;
    let files = counters.flushes + counters.compactions * 4;
    assert!(result.host_write_bytes > of_store);
    let rest = result.host_write_bytes - of_store;
    assert!(rest <= result.files.metadata_bytes + 4096 * 10 * files, "{rest}: {counters:?} {:?}", result.files);
    assert!(result.write_amplification > result.tree_write_amplification);
}

#[test]
fn the_same_seed_makes_the_same_run_on_a_drive_to_the_byte() {
    let spec = || StoreSpec { clients: Some(unplaced(4)), ..small(StoreWorkload::KvbenchIi, 0, 20_000) };
    let (first, drive) = on_ssd(spec(), 1);
    let (again, drive_again) = on_ssd(spec(), 1);
    assert_eq!((&first, drive.counters()), (&again, drive_again.counters()));
    assert_ne!(first, on_ssd(spec(), 2).0);
    assert_eq!(first.ended_by, StoreEnd::Operations);
}

#[test]
fn the_drive_counts_the_same_host_bytes() {
    let (result, drive) = on_ssd(small(StoreWorkload::YcsbF, 5_000, 20_000), 3);
    assert_eq!(result.ended_by, StoreEnd::Operations);
    let before_counting = drive.counters().host_write_bytes - result.host_write_bytes;
    // Preloading has written its log, its tables and some metadata.
    assert!((500_000..20_000_000).contains(&before_counting), "{before_counting}");
    assert!(result.elapsed_ns < result.drained_ns);
}

#[test]
fn reads_of_a_drive_take_its_time() {
    let (result, _) = on_ssd(small(StoreWorkload::Readrandom, 8_000, 5_000), 4);
    let gets = result.kind(OperationKind::Get).expect("all are gets");
    assert!(gets.latency.max_ns > 20_000 && gets.latency.min_ns >= 2_000, "{:?}", gets.latency);
    assert!(result.counters.cache_misses > 1_000);
}

#[test]
fn the_observer_sees_the_drive_at_each_sample() {
    let drive = ssd();
    let spec = StoreSpec { repeat: Some(unplaced(2)), ..small(StoreWorkload::YcsbA, 5_000, 10_000) };
    let plan = StorePlan::new(&unplaced(spec), drive.geometry(NamespaceId::FIRST))
        .expect("the drive is large enough for the store");
    let (calls, last_bytes, last_fraction) = (Cell::new(0u64), Cell::new(0), Cell::new(0.0));
    let every = Duration::from_millis(10);
    let mut observe = |progress: &StoreProgress, drive: &Ssd| {
        calls.set(calls.get() + 1);
        assert_eq!(progress.elapsed, every * calls.get());
        assert!(drive.counters().host_write_bytes >= last_bytes.get());
        assert!(progress.fraction >= last_fraction.get() && progress.fraction <= 1.0, "{progress:?}");
        last_bytes.set(drive.counters().host_write_bytes);
        last_fraction.set(progress.fraction);
    };
    let (result, _) = StoreRunner::new(&plan, 1).run(drive, Instant::ZERO, Some(every), &mut observe);
    assert_eq!((result.ended_by, result.rounds, result.operations), (StoreEnd::Operations, 2, 20_000));
    assert!(calls.get() > 5 && last_fraction.get() > 0.5);
}

#[test]
fn migration_keeps_a_full_drive_going_longer() {
    let narrow =
        Geometry { zone_count: 12, zone_size_blocks: Blocks(256), zone_capacity_blocks: Blocks(256), ..geometry() };
    let spec = |migration| StoreSpec {
        keys: Some(unplaced(15_000)),
        migration,
        ..small(StoreWorkload::Overwrite, 15_000, 200_000)
    };
    let without = on_null(spec(None), &narrow);
    let migration = MigrationSpec { start_empty_zones: Fraction(0.3), garbage: Fraction(0.2) };
    let with = on_null(spec(Some(unplaced(migration))), &narrow);
    let (long, short) = (with.operations, without.operations);
    assert!(with.files.migrated_bytes > 0 && long > 2 * short, "{long} operations, {short} without migration");
}
