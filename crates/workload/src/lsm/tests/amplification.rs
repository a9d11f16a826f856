//! The bytes that compactions write, compared with the formula of leveled trees.

use zonda_config::{ByteSize, unplaced};
use zonda_zoned::{Duration, Instant};

use super::plan;
use super::stand_in::StandIn;
use crate::lsm::run::Run;
use crate::lsm::{StoreResult, StoreSpec, StoreWorkload};

const WRITE_BUFFER_BYTES: u64 = 64 << 10;
const LEVEL1_BYTES: u64 = 256 << 10;
const LEVEL0_TRIGGER: u64 = 4;

/// Puts of almost unique keys, with RocksDB's sizes, a thousand times smaller.
fn fill(operations: u64, multiplier: u64) -> StoreResult {
    let spec = StoreSpec {
        operations: Some(unplaced(operations)),
        keys: Some(unplaced(1 << 31)),
        entry_size: Some(unplaced(ByteSize(100))),
        write_buffer_size: Some(unplaced(ByteSize(WRITE_BUFFER_BYTES))),
        target_file_size: Some(unplaced(ByteSize(64 << 10))),
        level1_size: Some(unplaced(ByteSize(LEVEL1_BYTES))),
        level_multiplier: Some(unplaced(multiplier)),
        level0_compaction_trigger: Some(unplaced(LEVEL0_TRIGGER as u32)),
        bloom_bits_per_key: Some(unplaced(0)),
        ..StoreSpec::new(StoreWorkload::Fillrandom)
    };
    let mut run = Run::new(&plan(spec), 1, false, StandIn::new(Duration(100)), Instant::ZERO, None);
    run.carry_out(&mut |_, _| {});
    run.result(1).0
}

/// Bytes that compactions write for each byte that was flushed, as `docs/internals/lsm.md` derives
/// it.
fn predicted(result: &StoreResult, multiplier: u64) -> f64 {
    let bytes: Vec<f64> = result.levels.iter().map(|level| level.bytes as f64).collect();
    let total: f64 = bytes.iter().sum();
    let input = (LEVEL0_TRIGGER * WRITE_BUFFER_BYTES) as f64;
    let mut sum = 1.0 + LEVEL1_BYTES as f64 / input;
    for level in 1..bytes.len() - 1 {
        let arrived: f64 = bytes[level + 1..].iter().sum();
        if arrived == 0.0 {
            break;
        }
        // The level grows until it is full, and stays so; this is its mean size during the writes.
        let next = bytes[level + 1] * (1.0 - bytes[level + 1] / (2.0 * arrived));
        let own = LEVEL1_BYTES as f64 * (multiplier as f64).powi(level as i32 - 1);
        // Level 1 is compacted just after level 0 was merged into it.
        let own = if level == 1 { own + input / 2.0 } else { own };
        sum += arrived / total * (1.0 + next / (2.0 * own));
    }
    sum
}

#[test]
fn compactions_match_the_formula_of_leveled_trees_within_an_eighth() {
    for (operations, multiplier) in [(100_000, 4), (400_000, 4), (200_000, 10), (400_000, 10)] {
        let result = fill(operations, multiplier);
        let counters = &result.counters;
        let got = counters.compaction_write_bytes as f64 / counters.flush_bytes as f64;
        let expected = predicted(&result, multiplier);
        assert!((got / expected - 1.0).abs() < 0.125, "{operations} puts, ratio {multiplier}: {got} for {expected}");
        assert!(
            counters.compaction_read_bytes < counters.compaction_write_bytes,
            "all written bytes were read, except indices"
        );
    }
}

#[test]
fn a_flush_writes_each_byte_once() {
    let result = fill(50_000, 10);
    let counters = &result.counters;
    let per_user_byte = counters.flush_bytes as f64 / counters.user_bytes as f64;
    // Eleven bytes more for an entry of 100; the rest are blocks, index and footer.
    assert!((1.11..1.16).contains(&per_user_byte), "{per_user_byte}");
    assert_eq!(counters.wal_bytes, 50_000 * (100 + 22), "a record of 22 bytes more for each put");
}
