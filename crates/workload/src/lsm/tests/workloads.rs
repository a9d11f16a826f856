//! Every workload, with reads compared with a plain map.

use zonda_config::{ByteSize, TimeSpan, unplaced};
use zonda_files::FileError;
use zonda_zoned::{Duration, Instant};

use super::plan;
use super::stand_in::StandIn;
use crate::lsm::effect::FileKind;
use crate::lsm::run::Run;
use crate::lsm::{OperationKind, StoreEnd, StoreResult, StoreSpec, StoreWorkload};

/// A store of a few hundred KiB with all its levels in use.
pub(in crate::lsm) fn small(workload: StoreWorkload, preload: u64, operations: u64) -> StoreSpec {
    StoreSpec {
        preload: Some(unplaced(preload)),
        operations: Some(unplaced(operations)),
        entry_size: Some(unplaced(ByteSize(100))),
        write_buffer_size: Some(unplaced(ByteSize(16 << 10))),
        target_file_size: Some(unplaced(ByteSize(16 << 10))),
        level1_size: Some(unplaced(ByteSize(64 << 10))),
        level_multiplier: Some(unplaced(4)),
        block_size: Some(unplaced(ByteSize(1 << 10))),
        block_cache: Some(unplaced(ByteSize(32 << 10))),
        compaction_readahead: Some(unplaced(ByteSize(4 << 10))),
        write_unit: Some(unplaced(ByteSize(8 << 10))),
        ..StoreSpec::new(workload)
    }
}

fn run_on(files: StandIn, spec: StoreSpec, seed: u64) -> (StoreResult, StandIn) {
    let mut run = Run::new(&plan(spec), seed, true, files, Instant::ZERO, Some(Duration::from_millis(1)));
    run.carry_out(&mut |_, _| {});
    run.result(seed)
}

fn run(spec: StoreSpec, seed: u64) -> (StoreResult, StandIn) {
    run_on(StandIn::new(Duration::from_micros(20)), spec, seed)
}

fn preload_of(workload: StoreWorkload) -> u64 {
    if workload == StoreWorkload::KvbenchIi || workload == StoreWorkload::Fillrandom { 0 } else { 8_000 }
}

#[test]
fn every_workload_reads_what_it_wrote() {
    for (index, workload) in StoreWorkload::ALL.into_iter().enumerate() {
        for clients in [1, 5] {
            let spec = StoreSpec { clients: Some(unplaced(clients)), ..small(workload, preload_of(workload), 10_000) };
            let (result, _) = run(spec, index as u64);
            assert_eq!((result.ended_by, result.operations), (StoreEnd::Operations, 10_000), "{workload}");
            assert!(result.levels[0].tables > 0 || result.levels[1].tables > 0, "{workload}: {:?}", result.levels);
        }
    }
}

#[test]
fn reads_are_correct_in_stores_of_many_shapes() {
    let base = || small(StoreWorkload::KvbenchIi, 0, 20_000);
    let specs = [
        StoreSpec { bloom_bits_per_key: Some(unplaced(0)), ..base() },
        StoreSpec { bloom_bits_per_key: Some(unplaced(2)), clients: Some(unplaced(3)), ..base() },
        StoreSpec { block_cache: Some(unplaced(ByteSize(0))), ..base() },
        StoreSpec { background_jobs: Some(unplaced(8)), clients: Some(unplaced(9)), ..base() },
        StoreSpec { wal_sync: Some(unplaced(true)), clients: Some(unplaced(7)), ..base() },
        StoreSpec { write_buffers_max: Some(unplaced(6)), level0_slowdown: Some(unplaced(4)), ..base() },
        StoreSpec { write_buffers_max: Some(unplaced(1)), level0_compaction_trigger: Some(unplaced(1)), ..base() },
        StoreSpec { operation_cpu: Some(unplaced(TimeSpan(0))), merge_cpu: Some(unplaced(TimeSpan(0))), ..base() },
        StoreSpec {
            target_file_size: Some(unplaced(ByteSize(2 << 10))),
            level_multiplier: Some(unplaced(2)),
            ..base()
        },
        StoreSpec { entry_size: Some(unplaced(ByteSize(16))), ..base() },
    ];
    for (index, spec) in specs.into_iter().enumerate() {
        let (result, _) = run(spec, 100 + index as u64);
        assert_eq!(result.ended_by, StoreEnd::Operations, "shape {index}");
        assert!(result.counters.compactions > 0, "shape {index}: {:?}", result.counters);
    }
}

#[test]
fn the_same_seed_makes_the_same_result() {
    let spec = || StoreSpec { clients: Some(unplaced(4)), ..small(StoreWorkload::KvbenchIi, 0, 10_000) };
    let (first, again, other) = (run(spec(), 1).0, run(spec(), 1).0, run(spec(), 2).0);
    assert_eq!(format!("{first:?}"), format!("{again:?}"));
    assert_ne!(first.counters, other.counters);
}

#[test]
fn operations_are_counted_with_their_results() {
    let (result, _) = run(small(StoreWorkload::KvbenchIi, 0, 20_000), 3);
    let count = |kind| result.kind(kind).map_or(0, |figures| figures.operations);
    assert_eq!(count(OperationKind::Put) + count(OperationKind::Delete) + count(OperationKind::Get), 20_000);
    let gets = result.kind(OperationKind::Get).expect("15 % are gets");
    assert_eq!((gets.found, gets.not_found), (gets.operations, 0), "only existing keys are read");
    assert!(gets.latency.min_ns >= 2_000 && gets.latency.max_ns > 20_000, "some need a block: {:?}", gets.latency);
    let (result, _) =
        run(StoreSpec { keys: Some(unplaced(16_000)), ..small(StoreWorkload::Readrandom, 8_000, 8_000) }, 3);
    let gets = result.kind(OperationKind::Get).expect("all are gets");
    assert!(gets.not_found.abs_diff(4_000) < 300, "half of the keys were never put: {}", gets.not_found);
}

#[test]
fn filters_save_block_reads_and_have_few_false_positives() {
    let spec = StoreSpec { keys: Some(unplaced(16_000)), ..small(StoreWorkload::Readrandom, 8_000, 50_000) };
    let counters = run(spec, 4).0.counters;
    let absent = counters.bloom_useful + counters.bloom_false_positives;
    let share = counters.bloom_false_positives as f64 / absent as f64;
    assert!((share - 0.0082).abs() < 0.002, "{share}: {counters:?}");
    assert_eq!(counters.cache_misses + counters.cache_hits, counters.bloom_checks - counters.bloom_useful);
    assert!(counters.cache_misses + counters.cache_hits < 30_000, "an existing key needs one block: {counters:?}");
}

#[test]
fn deleted_keys_leave_the_tree() {
    // Every key is put and then deleted; none may remain at the bottom level.
    let spec = small(StoreWorkload::KvbenchIi, 0, 60_000);
    let (result, _) = run(spec, 5);
    let live = 60_000 * 40 / 100;
    let entries: u64 = result.levels.iter().map(|level| level.entries).sum();
    let deepest = result.levels.iter().rposition(|level| level.tables > 0).expect("there are tables");
    assert!(deepest >= 3, "{:?}", result.levels);
    // Of 30,000 inserts and 6,000 deletes 24,000 are left; levels above the bottom add at most
    // their share.
    assert!(entries > live - 1_000 && entries < live * 3 / 2, "{entries} entries for {live} keys");
}

#[test]
fn the_files_at_the_end_are_those_of_the_tree() {
    for workload in [StoreWorkload::KvbenchIi, StoreWorkload::Overwrite] {
        let (result, files) = run(small(workload, preload_of(workload), 20_000), 6);
        assert_eq!(result.file_bytes, files.usage_bytes());
        let tables = files.files.values().filter(|file| file.kind == FileKind::Table);
        assert_eq!(tables.clone().count() as u64, result.levels.iter().map(|level| level.tables).sum::<u64>());
        assert_eq!(
            tables.map(|file| file.bytes).sum::<u64>(),
            result.levels.iter().map(|level| level.bytes).sum::<u64>()
        );
        let logs = files.files.values().filter(|file| file.kind == FileKind::Log).count();
        assert_eq!(logs, 1, "{workload}: logs of flushed memtables are deleted");
    }
}

#[test]
fn bytes_are_counted_once_each() {
    let (result, files) = run(small(StoreWorkload::KvbenchIi, 0, 20_000), 7);
    let StoreResult { counters, host_write_bytes, host_read_bytes, .. } = result;
    let written = counters.wal_bytes + counters.flush_bytes + counters.compaction_write_bytes + counters.manifest_bytes;
    // The first record of the manifest and the rest of the log come before and after counting.
    assert!(host_write_bytes.abs_diff(written) < 100, "{host_write_bytes} and {written}");
    let read = counters.compaction_read_bytes + counters.table_open_bytes + counters.block_read_bytes;
    assert_eq!(host_read_bytes, read);
    assert!(files.names.contains(&"MANIFEST-000001".to_owned()) && files.names.contains(&"000002.log".to_owned()));
}

#[test]
fn each_repetition_of_a_workload_starts_with_an_empty_store() {
    let once = run(small(StoreWorkload::KvbenchIi, 1_000, 10_000), 8).0;
    let spec = StoreSpec { repeat: Some(unplaced(3)), ..small(StoreWorkload::KvbenchIi, 1_000, 10_000) };
    let (thrice, files) = run(spec, 8);
    assert_eq!((thrice.rounds, thrice.operations), (3, 30_000));
    assert!(thrice.counters.user_bytes.abs_diff(3 * once.counters.user_bytes) < once.counters.user_bytes / 10);
    assert_eq!(thrice.file_bytes, files.usage_bytes());
    assert!(thrice.file_bytes < 2 * once.file_bytes, "files of earlier rounds are deleted");
}

#[test]
fn a_failed_request_ends_the_run_with_its_reason() {
    for request in [1, 10, 500, 2_000] {
        for (error, expected) in [
            (FileError::NoSpace, StoreEnd::NoSpace),
            (FileError::TooManyFiles, StoreEnd::Files { error: FileError::TooManyFiles.to_string() }),
        ] {
            let files = StandIn::new(Duration::from_micros(20)).failing(request, error);
            let (result, _) = run_on(files, small(StoreWorkload::KvbenchIi, 0, 20_000), 9);
            assert_eq!(result.ended_by, expected);
            assert!(result.has_failed() && result.operations < 20_000);
        }
    }
}

#[test]
fn writes_stall_when_the_drive_cannot_keep_up() {
    let spec = || small(StoreWorkload::Fillrandom, 0, 20_000);
    let slow = run_on(StandIn::new(Duration::from_millis(5)), spec(), 10).0;
    assert!(slow.counters.stops > 0 && slow.counters.stopped_ns > slow.elapsed_ns / 4, "{:?}", slow.counters);
    let puts = slow.kind(OperationKind::Put).expect("all are puts");
    assert!(puts.latency.max_ns > 5_000_000, "a write waited for a flush");
    let fast = run_on(StandIn::new(Duration(100)), spec(), 10).0;
    assert!(fast.counters.stopped_ns < slow.counters.stopped_ns / 10 && fast.throughput > 2.0 * slow.throughput);
    let slowed = StoreSpec {
        level0_compaction_trigger: Some(unplaced(2)),
        level0_slowdown: Some(unplaced(2)),
        write_buffers_max: Some(unplaced(8)),
        ..spec()
    };
    let slowed = run_on(StandIn::new(Duration::from_millis(1)), slowed, 10).0;
    assert!(slowed.counters.slowed_writes > 1_000 && slowed.counters.slowed_ns > 0, "{:?}", slowed.counters);
}

#[test]
fn a_series_has_a_sample_for_each_interval_while_operations_are_counted() {
    let (result, _) = run(small(StoreWorkload::YcsbA, 8_000, 20_000), 11);
    assert!((result.samples.len() as u64).abs_diff(result.elapsed_ns / 1_000_000) <= 1);
    assert!(result.samples.windows(2).all(|pair| pair[1].at_ns == pair[0].at_ns + 1_000_000));
    assert!(result.samples.windows(2).all(|pair| pair[1].operations > pair[0].operations));
    assert!((result.space_amplification_mean - 1.0).abs() < 1e-9, "the stand-in has no garbage");
}

#[test]
fn the_writer_of_readwhilewriting_is_not_counted_and_stops_with_the_others() {
    let spec = StoreSpec { clients: Some(unplaced(2)), ..small(StoreWorkload::Readwhilewriting, 8_000, 10_000) };
    let (result, _) = run(spec, 12);
    let count = |kind| result.kind(kind).map_or(0, |figures| figures.operations);
    assert_eq!((result.operations, count(OperationKind::Get)), (10_000, 10_000));
    assert!((1_000..100_000).contains(&count(OperationKind::Put)), "{}", count(OperationKind::Put));
}
