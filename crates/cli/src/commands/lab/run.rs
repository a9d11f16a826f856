//! `zonda lab run`: runs experiments and shows their results.

use std::time::Instant;

use zonda_lab::{LabExperiment, Outcome, Row};

use super::{RunArgs, compare, pick};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::units;

/// Maximum number of experiments whose measurements are printed; for more, only the comparison is
/// printed.
const PRINTED_MAX: usize = 3;

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let experiments = if args.all { pick::all() } else { pick::picked(&args.what)? };
    let started = Instant::now();
    let measured = pick::measured(experiments, &args.how)?;
    let seconds = started.elapsed().as_secs_f64();
    let pairs = measured.experiments.iter().zip(&measured.outcomes);
    let rows: Vec<Row> = pairs.flat_map(|(experiment, outcome)| Row::all(experiment, outcome)).collect();
    measured.write_pages(&args.how.out)?;
    let failures = failures(&measured);
    let verdict = if failures.is_empty() { Ok(()) } else { Err(Failure::Run) };
    if args.json {
        print_json(&rows)?;
        return verdict;
    }
    let screen = Screen::of_stdout();
    let mut text = String::new();
    if measured.experiments.len() <= PRINTED_MAX {
        for (experiment, outcome) in measured.experiments.iter().zip(&measured.outcomes) {
            text += &format!("{}\n{}\n", screen.bold(&experiment.title), points(experiment, outcome, screen));
        }
    }
    if !rows.is_empty() {
        text += &format!("{}\n{}", compare::table(&rows, screen), compare::summary(&rows));
    }
    for failure in &failures {
        text += &screen.paragraph(&format!("Failed: {failure}"), 0);
    }
    text += &format!(
        "{} in {seconds:.1} s{}\nReport: {}\n",
        units::counted(measured.experiments.len() as u64, "experiment"),
        match measured.cached {
            0 => String::new(),
            cached => format!(", {cached} of them from stored measurements (--rerun runs them again)"),
        },
        args.how.out.join("index.html").display(),
    );
    print(&text)?;
    verdict
}

/// The failures of each experiment: the number of points, and the first failure.
fn failures(measured: &pick::Measured) -> Vec<String> {
    let pairs = measured.experiments.iter().zip(&measured.outcomes);
    let first = pairs.filter_map(|(experiment, outcome)| {
        let failures = || outcome.measurements.iter().filter_map(|measurement| measurement.failure.as_ref());
        let first = failures().next()?;
        let (points, all) = (failures().count(), experiment.points.len());
        Some(format!("{} in {points} of {all} configurations; first failure: {first}", experiment.id))
    });
    first.collect()
}

/// The measurements at each point.
fn points(experiment: &LabExperiment, outcome: &Outcome, screen: Screen) -> String {
    let mut columns = Vec::new();
    let has_series = experiment.series.len() > 1 || !experiment.series[0].is_empty();
    if has_series {
        columns.push("series".to_owned());
    }
    if let Some(x) = &experiment.x {
        columns.push(format!(
            ">{}{}",
            x.title,
            if x.unit.is_empty() { String::new() } else { format!(", {}", x.unit) }
        ));
    }
    columns.extend(experiment.metrics.iter().map(|metric| format!(">{}, {}", metric.name, metric.unit)));
    columns.push(">spread".to_owned());
    columns.push("steady after".to_owned());
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&names);
    for (point, measurement) in experiment.points.iter().zip(&outcome.measurements) {
        let mut cells = Vec::new();
        if has_series {
            cells.push(experiment.series[point.series].clone());
        }
        if let Some(x) = &experiment.x {
            cells.push(x.labels[point.x].clone());
        }
        let mut spread: f64 = 0.0;
        for metric in 0..experiment.metrics.len() {
            let estimate = measurement.estimate(metric);
            cells.push(estimate.map_or_else(|| "-".to_owned(), |estimate| units::significant(estimate.mean)));
            if let Some(estimate) = estimate.filter(|estimate| estimate.mean != 0.0) {
                spread = spread.max((estimate.high - estimate.low) / estimate.mean.abs());
            }
        }
        cells.push(format!("{:.1}%", spread * 100.0));
        cells.push(match (measurement.time_ns, measurement.is_steady) {
            (0, _) => "whole run".to_owned(),
            (time_ns, true) => format!("{} of {}", units::time(measurement.warm_up_ns), units::time(time_ns)),
            (time_ns, false) => format!("not within {}", units::time(time_ns)),
        });
        table.row(&cells);
    }
    table.render(screen, 2)
}
