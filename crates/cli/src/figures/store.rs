//! Results of a key-value store as text.

use zonda_workload::lsm::{LevelResult, StoreResult};

use crate::output::Screen;
use crate::table::Table;
use crate::units;

/// Operations, the tree and the files of a store.
pub(super) fn store(store: &StoreResult, screen: Screen) -> String {
    let mut text = operations(store, screen);
    text += &format!("\n{}\n", screen.bold("The store"));
    for (name, line) in lines(store) {
        let body = screen.paragraph(&line, 24);
        text += &format!("  {name:<21} {}", body.trim_start());
    }
    text + "\n" + &levels(&store.levels, screen)
}

fn operations(store: &StoreResult, screen: Screen) -> String {
    let mut table =
        Table::new(&["operation", ">count", ">found", ">mean", ">p50", ">p99", ">p99.9", ">p99.99", ">max"]);
    for of in &store.kinds {
        let found = if of.found + of.not_found == 0 { "-".to_owned() } else { units::count(of.found) };
        let [mean, p50, _, p99, p99_9, p99_99, max] = super::latency_of(&of.latency);
        table.row(&[of.kind.name().to_owned(), units::count(of.operations), found, mean, p50, p99, p99_9, p99_99, max]);
    }
    let ended = match store.has_failed() {
        true => format!("FAILED: {}", store.ended_by),
        false => store.ended_by.to_string(),
    };
    let rate = units::digits(store.throughput);
    let (done, time) = (units::counted(store.operations, "operation"), units::time(store.elapsed_ns));
    let summary = format!("{}: {done} in {time}, {rate} a second; {ended}", store.workload);
    format!("{}\n{}", table.render(screen, 0), screen.paragraph(&summary, 0))
}

fn lines(store: &StoreResult) -> Vec<(&'static str, String)> {
    let (counters, files) = (&store.counters, &store.files);
    let checks = counters.bloom_checks.max(1) as f64;
    let blocks = (counters.cache_hits + counters.cache_misses).max(1) as f64;
    vec![
        (
            "user data",
            format!("wrote {}, and {} to the log", units::bytes(counters.user_bytes), units::bytes(counters.wal_bytes)),
        ),
        (
            "flushes, compactions",
            format!(
                "flushed {} in {}; {} read {} and wrote {}; {} moved",
                units::bytes(counters.flush_bytes),
                units::counted(counters.flushes, "table"),
                units::counted(counters.compactions, "compaction"),
                units::bytes(counters.compaction_read_bytes),
                units::bytes(counters.compaction_write_bytes),
                units::counted(counters.moves, "table"),
            ),
        ),
        (
            "write amplification",
            format!(
                "{:.2} of the tree, {:.2} with log, manifest and file store",
                store.tree_write_amplification, store.write_amplification
            ),
        ),
        (
            "space amplification",
            format!(
                "mean {:.2}; at the end {} live and {} dead",
                store.space_amplification_mean,
                units::bytes(files.live_bytes),
                units::bytes(files.dead_bytes)
            ),
        ),
        (
            "stalls",
            format!(
                "writes stopped {} for {}; {} slowed down by {}",
                units::counted(counters.stops, "time"),
                units::time(counters.stopped_ns),
                units::counted(counters.slowed_writes, "write"),
                units::time(counters.slowed_ns)
            ),
        ),
        (
            "filters and cache",
            format!(
                "filters excluded {} of {}; {} of {} were cached",
                units::percent(counters.bloom_useful as f64 / checks),
                units::counted(counters.bloom_checks, "look-up"),
                units::percent(counters.cache_hits as f64 / blocks),
                units::counted(counters.cache_hits + counters.cache_misses, "block")
            ),
        ),
        (
            "file store",
            format!(
                "{} finished, {} reset; {} moved, {} to a zone of another lifetime",
                units::counted(files.zone_finishes, "zone"),
                units::count(files.zone_resets),
                units::bytes(files.migrated_bytes),
                units::counted(files.relaxed_matches, "file")
            ),
        ),
    ]
}

fn levels(levels: &[LevelResult], screen: Screen) -> String {
    let mut table = Table::new(&["level", ">tables", ">size", ">entries"]);
    let last = levels.iter().rposition(|level| level.tables > 0).unwrap_or(0);
    for (number, level) in levels.iter().enumerate().take(last + 1) {
        table.row(&[
            number.to_string(),
            units::count(level.tables),
            units::bytes(level.bytes),
            units::count(level.entries),
        ]);
    }
    table.render(screen, 2)
}
