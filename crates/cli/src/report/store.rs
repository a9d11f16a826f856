//! A store on the page: key figures, operations, and charts over time.

use zonda_plot::Chart;
use zonda_plot::text::{bytes, count, counted, duration, escape, number, rate};
use zonda_stack::ExperimentResult;
use zonda_workload::lsm::{StoreResult, StoreSample};

use super::amplification::{curve, over_time};
use super::cards::card;
use super::percent;

/// The first sentence.
pub(super) fn lead(store: &StoreResult) -> String {
    let ended = if store.has_failed() {
        format!("; <em>it failed: {}</em>", escape(&store.ended_by.to_string()))
    } else {
        String::new()
    };
    format!("a key-value store with the workload <strong>{}</strong>{ended}", escape(store.workload.name()))
}

/// The key figures at the top of the page.
pub(super) fn cards(result: &ExperimentResult, store: &StoreResult) -> String {
    let done = format!("{} in {}", counted(store.operations, "operation"), duration(store.elapsed_ns));
    let device = format!("{} by the drive itself", bytes(result.drive.counters.device_write_bytes()));
    let files = format!("{} live at the end", bytes(store.files.live_bytes));
    let user = format!("{} written by users", bytes(store.counters.user_bytes));
    let finished = format!("{} reset", counted(store.files.zone_resets, "zone"));
    let stopped = format!("in {}", counted(store.counters.stops, "stop"));
    let cards = [
        card("Operations per second", &rate(store.throughput), "", &done),
        card("DLWA", &number(result.drive.dlwa), "", &device),
        card("Space amplification", &number(store.space_amplification_mean), "", &files),
        card("Write amplification", &number(store.write_amplification), "", &user),
        card("Finished zones", &count(store.files.zone_finishes), "", &finished),
        card("Writes stopped", &duration(store.counters.stopped_ns), "", &stopped),
        card("Erases", &count(result.drive.counters.erases), "", &counted(result.drive.wear.units, "erase block")),
    ];
    format!("<dl class=\"cards\">\n{}</dl>\n", cards.concat())
}

/// Operations, and the tree.
pub(super) fn tables(store: &StoreResult) -> String {
    let operations: String = store
        .kinds
        .iter()
        .map(|of| {
            let latency = of.latency.columns_ns().map(|ns| format!("<td>{}</td>", duration(ns))).concat();
            let found = if of.found + of.not_found == 0 { "–".to_owned() } else { count(of.found) };
            format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{found}</td>{latency}</tr>\n",
                of.kind,
                count(of.operations)
            )
        })
        .collect();
    let columns: String = ["Operation", "Count", "Found", "Mean", "p50", "p95", "p99", "p99.9", "p99.99", "Max"]
        .map(|name| format!("<th scope=\"col\">{name}</th>"))
        .concat();
    let last = store.levels.iter().rposition(|level| level.tables > 0).unwrap_or(0);
    let levels: String = store
        .levels
        .iter()
        .enumerate()
        .take(last + 1)
        .map(|(number, level)| {
            let (tables, entries) = (count(level.tables), count(level.entries));
            format!(
                "<tr><th scope=\"row\">{number}</th><td>{tables}</td><td>{}</td><td>{entries}</td></tr>\n",
                bytes(level.bytes)
            )
        })
        .collect();
    format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"Operations\" tabindex=\"0\"><table class=\"numbers\"><thead><tr>\
         {columns}</tr></thead>\n<tbody>{operations}</tbody></table></div>\n\
         <h3>The tree at the end</h3>\n<table class=\"numbers\"><thead><tr><th scope=\"col\">Level</th>\
         <th scope=\"col\">Tables</th><th scope=\"col\">Size</th><th scope=\"col\">Entries</th></tr></thead>\n\
         <tbody>{levels}</tbody></table>\n{}",
        counters(store)
    )
}

fn counters(store: &StoreResult) -> String {
    let counters = &store.counters;
    let share = |part: u64, whole: u64| percent(part as f64 / whole.max(1) as f64);
    let entries = [
        ("logs", bytes(counters.wal_bytes)),
        ("flushes", format!("{}, {}", count(counters.flushes), bytes(counters.flush_bytes))),
        ("compactions", count(counters.compactions)),
        ("read by compactions", bytes(counters.compaction_read_bytes)),
        ("written by compactions", bytes(counters.compaction_write_bytes)),
        ("tables moved", count(counters.moves)),
        ("look-ups excluded by filters", share(counters.bloom_useful, counters.bloom_checks)),
        ("cache hits", share(counters.cache_hits, counters.cache_hits + counters.cache_misses)),
        ("writes slowed down", count(counters.slowed_writes)),
        ("moved by the file store", bytes(store.files.migrated_bytes)),
        ("files in zones of another lifetime", count(store.files.relaxed_matches)),
    ];
    let entries: String =
        entries.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n")).collect();
    format!("<h3>Counters</h3>\n<dl class=\"counters\">\n{entries}</dl>\n")
}

/// Charts of operations, space and zones.
pub(super) fn plots(store: &StoreResult) -> String {
    let charts = [throughput(&store.samples), space(&store.samples), zones(&store.samples)];
    let figures: String = charts.iter().filter(|chart| !chart.is_empty()).map(Chart::figure).collect();
    format!("<div class=\"plots\">\n{figures}</div>\n")
}

fn throughput(samples: &[StoreSample]) -> Chart {
    let rates = samples.windows(2).filter(|pair| pair[1].at_ns > pair[0].at_ns).map(|pair| {
        let (operations, time_ns) =
            (pair[1].operations.saturating_sub(pair[0].operations), pair[1].at_ns - pair[0].at_ns);
        (pair[1].at_ns, operations as f64 * 1e6 / time_ns as f64)
    });
    over_time(
        "store-throughput",
        "Operations over time",
        "thousand operations per second",
        vec![curve("operations", 0, thinned(rates))],
        "Operations of the store in each interval.".to_owned(),
    )
}

fn space(samples: &[StoreSample]) -> Chart {
    const GIB: f64 = (1u64 << 30) as f64;
    let live = samples.iter().map(|sample| (sample.at_ns, sample.live_bytes as f64 / GIB));
    let dead = samples.iter().map(|sample| (sample.at_ns, sample.dead_bytes as f64 / GIB));
    over_time(
        "store-space",
        "Live and dead data in zones",
        "data (GiB)",
        vec![curve("live", 0, thinned(live)), curve("dead, not yet reset", 1, thinned(dead))],
        "Bytes of existing files, and of deleted files in zones that are not yet reset.".to_owned(),
    )
}

fn zones(samples: &[StoreSample]) -> Chart {
    let active = samples.iter().map(|sample| (sample.at_ns, f64::from(sample.zones_active)));
    let empty = samples.iter().map(|sample| (sample.at_ns, f64::from(sample.zones_empty)));
    over_time(
        "store-zones",
        "Zones",
        "zones",
        vec![curve("active", 0, thinned(active)), curve("empty", 1, thinned(empty))],
        "Data zones of the file store that are active, and those that are empty.".to_owned(),
    )
}

/// At most as many points as a chart can show.
fn thinned(points: impl Iterator<Item = (u64, f64)>) -> Vec<(u64, f64)> {
    const POINTS_MAX: usize = 200;
    let points: Vec<(u64, f64)> = points.collect();
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    points
        .chunks(step)
        .map(|chunk| (chunk[chunk.len() - 1].0, chunk.iter().map(|point| point.1).sum::<f64>() / chunk.len() as f64))
        .collect()
}
