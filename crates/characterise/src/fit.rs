//! A report as measurements for a fit of a profile (`docs/guide/fit-a-drive.md`).

use std::fmt::Write;

use crate::report::Report;
use crate::{Figures, Kind, Load, Part, rules};

/// Numbers of a profile that these measurements determine, where the profile has them.
pub const FIT_PARAMETERS: [&str; 7] = [
    "flash.read.0.time.base",
    "flash.read.1.time.base",
    "channel.bandwidth",
    "flash.program.base",
    "link.read_bandwidth",
    "firmware.write.parallel.0.time.base",
    "firmware.append.parallel.0.time.base",
];

/// The smallest tolerance of a measurement: the uncertainty of a report does not include systematic
/// errors.
const TOLERANCE_MIN: f64 = 0.01;

/// The loads as tables `[[measurement]]`, and the number of them.
#[must_use]
pub fn fit_measurements(report: &Report) -> (String, usize) {
    let (mut text, mut count) = (String::new(), 0);
    let mut add = |(load, figures): &(Load, Figures), is_rate: bool| {
        // The same load may be in two curves.
        let name = format!("{}{}", load.words(), if is_rate { ", throughput" } else { "" });
        let name = serde_json::to_string(&name).expect("a string has no invalid part");
        if !text.contains(&name) {
            text += &measurement(load, figures, is_rate, &name);
            count += 1;
        }
    };
    let ends = |points: Vec<(Load, Figures)>| {
        let places = [0, points.len() / 2, points.len().saturating_sub(1)];
        let mut chosen: Vec<(Load, Figures)> = places.iter().filter_map(|place| points.get(*place).copied()).collect();
        chosen.dedup();
        chosen
    };
    for point in ends(rules::over_size(report, Part::Reads, Kind::Read)) {
        add(&point, false);
    }
    for point in ends(rules::over_depth(report, Part::Reads, Kind::Read)) {
        add(&point, true);
    }
    let writes = rules::over_size(report, Part::Writes, Kind::Write);
    let appends = rules::over_size(report, Part::Appends, Kind::Append);
    for first in [writes.first(), appends.first()].into_iter().flatten() {
        add(first, false);
    }
    for last in [writes.last(), appends.last()].into_iter().flatten() {
        add(last, true);
    }
    (text, count)
}

fn measurement(load: &Load, figures: &Figures, is_rate: bool, name: &str) -> String {
    let kind = load.kind;
    let operation = if kind == Kind::Read { "randread" } else { kind.name() };
    let zones = if kind == Kind::Read { format!(", zones = \"0..{}\"", load.zones) } else { String::new() };
    let (workers, depth) = match kind {
        Kind::Read => (1, load.queue_depth),
        _ => (load.zones, load.queue_depth / load.zones.max(1)),
    };
    let (value, unit, figure) = match is_rate {
        true => (figures.per_second / 1000.0, "kIOPS", "iops"),
        false => (figures.mean_ns as f64 / 1000.0, "us", "mean"),
    };
    // Writes fill a buffer first: a throughput needs a longer run than a latency.
    let time = if is_rate && kind != Kind::Read { "300 ms" } else { "50 ms" };
    let mut text = String::new();
    let _ = write!(
        text,
        "\n[[measurement]]\nname = {name}\nvalue = {value:.6}\nunit = \"{unit}\"\nof = \"load.{kind}.{figure}\"\ntolerance = \
         {:.4}\nrun = {{ time = \"{time}\" }}\njob = [{{ name = \"load\", operation = \"{operation}\", block_size = \"{} B\", \
         queue_depth = {depth}, workers = {workers}{zones} }}]\n",
        figures.uncertainty.clamp(TOLERANCE_MIN, 0.5),
        load.size_bytes,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Finding;
    use crate::report::tests::{figures, report};

    #[test]
    fn a_load_becomes_a_measurement_with_its_workload() {
        let read = |size| {
            let load = Load::of_data(Kind::Read, size, 1, 8);
            Finding::new(Part::Reads, load, None, Ok(figures(10_000.0, size, 65_000, 80_000)))
        };
        let (text, count) = fit_measurements(&report(vec![read(4096), read(8192)]));
        assert_eq!(count, 3, "two latencies and a throughput: {text}");
        assert!(
            text.contains("value = 65.000000\nunit = \"us\"\nof = \"load.read.mean\"\ntolerance = 0.0100\n"),
            "{text}"
        );
        let job = "job = [{ name = \"load\", operation = \"randread\", block_size = \"4096 B\", queue_depth = 1, workers = 1, \
                   zones = \"0..8\" }]";
        assert!(text.contains(job), "{text}");
    }
}
