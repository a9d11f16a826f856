use std::collections::BTreeMap;

use zonda_files::Lifetime;

use super::*;
use crate::filetrace::entry::FileOperation;
use crate::filetrace::{Trace, write_trace};

const SEED: u64 = 1;

fn text_of(preset: Preset, bytes: u64, seed: u64) -> String {
    let mut text = String::new();
    write_trace(&mut text, preset.entries(PresetSize::new(bytes), seed)).expect("writing to a string does not fail");
    text
}

#[test]
fn every_preset_is_a_trace_that_reads_back_and_writes_about_the_requested_size() {
    for preset in Preset::ALL {
        for bytes in [PRESET_BYTES_MIN, 18 << 20, 768 << 20] {
            let text = text_of(preset, bytes, SEED);
            let trace = Trace::parse(&text).unwrap_or_else(|error| panic!("{preset}, {bytes}: {error}"));
            assert!(trace.entries().eq(preset.entries(PresetSize::new(bytes), SEED)), "{preset}, {bytes}");
            let written = trace.facts().append_bytes as f64 / bytes as f64;
            assert!((0.9..1.6).contains(&written), "{preset} writes {written} times {bytes}");
            let live = trace.facts().live_bytes_max as f64 / bytes as f64;
            assert!(live < 1.1, "{preset} has {live} times {bytes} at one time");
        }
    }
}

#[test]
fn one_seed_gives_one_trace_and_another_seed_another() {
    for preset in Preset::ALL {
        assert_eq!(text_of(preset, 18 << 20, 7), text_of(preset, 18 << 20, 7));
        // A bulk load has no random choices.
        assert_eq!(text_of(preset, 18 << 20, 7) == text_of(preset, 18 << 20, 8), preset == Preset::Compaction);
    }
}

/// How many files are created with each lifetime.
fn lifetimes(preset: Preset) -> BTreeMap<Lifetime, u64> {
    let mut counts = BTreeMap::new();
    for entry in preset.entries(PresetSize::new(768 << 20), SEED) {
        if let FileOperation::Create { lifetime, .. } = entry.operation {
            *counts.entry(lifetime).or_default() += 1;
        }
    }
    counts
}

#[test]
fn a_mixed_load_has_files_of_all_lifetimes_and_a_flush_of_one() {
    let mixed = lifetimes(Preset::Mixed);
    assert!(mixed.keys().eq(&[Lifetime::Short, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme]), "{mixed:?}");
    assert!(mixed.values().all(|files| *files >= 5), "{mixed:?}");
    assert!(lifetimes(Preset::Flush).keys().eq(&[Lifetime::Medium]));
}

#[test]
fn every_commit_of_a_log_is_synced() {
    let entries = Preset::Wal.entries(PresetSize::new(768 << 20), SEED);
    for thread in 0..4 {
        let own: Vec<_> = entries.iter().filter(|entry| entry.thread.0 == thread).collect();
        let mut commits = 0;
        for pair in own.windows(2) {
            if let FileOperation::Append { bytes, .. } = &pair[0].operation {
                assert!(*bytes <= 16 << 10 && matches!(pair[1].operation, FileOperation::Sync { .. }));
                commits += 1;
            }
        }
        assert!(commits > 1000, "{commits}");
    }
}
