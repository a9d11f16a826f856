//! A report in words, for the terminal.

use zonda_characterise::{Load, Part, Report, choice, compared_schedulers};
use zonda_plot::text::{NOTHING, number, percent, rate};

use crate::output::Screen;
use crate::table::Table;
use crate::units;

/// Identity, parts, zone management, interference, guidelines.
pub(super) fn text(report: &Report, screen: Screen) -> String {
    let mut text = identity(report, screen);
    text += &parts(report, screen);
    text += &zone_management(report, screen);
    text += &interference(report, screen);
    text += &schedulers(report, screen);
    text += "\nGuidelines:\n";
    if report.guidelines.is_empty() {
        text += "  too little was measured\n";
    }
    for guideline in &report.guidelines {
        let paragraph = screen.paragraph(&format!("{} ({})", guideline.text, guideline.rule), 4);
        text += &paragraph.replacen("    ", "  - ", 1);
    }
    text
}

fn identity(report: &Report, screen: Screen) -> String {
    let (drive, limits) = (&report.drive, &report.limits);
    // A stored report may have any numbers.
    let zone_bytes = drive.zone_capacity_blocks.saturating_mul(u64::from(drive.block_size_bytes));
    let limit = |limit: Option<u32>| limit.map_or_else(|| "any number of".to_owned(), |limit| limit.to_string());
    let kind = if report.conditions.is_virtual { "virtual" } else { "real" };
    let how = if report.conditions.is_destructive { "reads, writes and resets" } else { "reads only" };
    let caveat = report.conditions.caveat().map(|caveat| screen.paragraph(caveat, 2)).unwrap_or_default();
    let interrupted = if report.is_interrupted { ", interrupted" } else { "" };
    format!(
        "{}: {} of {}, blocks of {}\n  {} active and {} open zones, transfers up to {}, appends up to {}\n  {} of {kind} \
         time, {how}{interrupted}\n",
        screen.bold(&report.conditions.target),
        units::counted(u64::from(drive.zone_count), "zone"),
        units::bytes(zone_bytes),
        units::bytes(u64::from(drive.block_size_bytes)),
        limit(limits.max_active_zones),
        limit(limits.max_open_zones),
        units::bytes(limits.max_transfer_bytes),
        units::bytes(limits.max_append_bytes),
        report.elapsed(),
    ) + &caveat
}

fn parts(report: &Report, screen: Screen) -> String {
    let mut table = Table::new(&["part", ">time", ">loads", "best", ""]);
    for summary in &report.parts {
        let state = match (&summary.reason, summary.missing) {
            (Some(reason), _) => reason.to_string(),
            (None, 0) => String::new(),
            (None, _) => report.unmeasured_words(summary.part),
        };
        let (time, loads) = match summary.reason {
            Some(_) => (NOTHING.to_owned(), NOTHING.to_owned()),
            None => (units::time(summary.elapsed_ns), summary.measured.to_string()),
        };
        table.row(&[summary.part.name(), &time, &loads, &best(report, summary.part), &state]);
    }
    format!("\n{}", table.render(screen, 0))
}

/// The largest bandwidth and rate of a part, or the verdict.
fn best(report: &Report, part: Part) -> String {
    match part {
        Part::Groups => match report.groups.as_ref().map(|groups| (groups.verdict.as_str(), groups.groups)) {
            Some(("groups", groups)) => units::counted(u64::from(groups), "group"),
            Some((verdict, _)) => verdict.replace('-', " "),
            None => NOTHING.to_owned(),
        },
        Part::Reads | Part::Writes | Part::Appends => {
            let figures = || report.of_part(part).filter_map(|finding| finding.figures);
            let most =
                |value: fn(&zonda_characterise::Figures) -> f64| figures().map(|of| value(&of)).fold(0.0, f64::max);
            let (bandwidth, iops) = (most(|of| of.bytes_per_second), most(|of| of.per_second));
            if iops == 0.0 {
                return NOTHING.to_owned();
            }
            format!("{} MiB/s, {} IOPS", units::mib_per_second(bandwidth), rate(iops))
        }
        Part::Schedulers => choice(report, |_| true).map_or_else(String::new, |chosen| chosen.scheduler.to_string()),
        Part::Zones | Part::Interference => String::new(),
    }
}

fn zone_management(report: &Report, screen: Screen) -> String {
    let mut table = Table::new(&["command", ">median", ">longest"]);
    for finding in report.of_part(Part::Zones) {
        let cells = match (&finding.figures, &finding.missing) {
            (Some(figures), _) => [units::time(figures.p50_ns), units::time(figures.max_ns)],
            (None, Some(missing)) => [missing.to_string(), String::new()],
            (None, None) => [NOTHING.to_owned(), String::new()],
        };
        table.row(&[finding.load.words(), cells[0].clone(), cells[1].clone()]);
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.render(screen, 0)) }
}

fn interference(report: &Report, screen: Screen) -> String {
    let loads = report.matrix_loads();
    if loads.is_empty() {
        return String::new();
    }
    let beside: Vec<String> = loads.iter().map(|load| format!(">beside {}", load.kind.plural())).collect();
    let mut columns = vec!["", ">alone"];
    columns.extend(beside.iter().map(String::as_str));
    let mut table = Table::new(&columns);
    for load in &loads {
        let alone = report.alone(load).and_then(|finding| finding.figures);
        let mut row = vec![
            load.kind.plural().to_owned(),
            alone.map_or_else(|| NOTHING.to_owned(), |figures| format!("{}/s", rate(figures.per_second))),
        ];
        row.extend(loads.iter().map(|beside| cell(report, load, beside)));
        table.row(&row);
    }
    format!("\nShare of the throughput alone, and growth of p99:\n{}", table.render(screen, 0))
}

/// Readers beside writers, behind each scheduler.
fn schedulers(report: &Report, screen: Screen) -> String {
    let compared = compared_schedulers(report);
    let Some(first) = compared.first() else { return String::new() };
    let mut table = Table::new(&["scheduler", ">reads/s", ">their p99", ">writes/s", ">their p99", ">MiB/s together"]);
    for compared in &compared {
        let (reads, writes) = (&compared.reads, &compared.writes);
        table.row(&[
            compared.scheduler.name().to_owned(),
            rate(reads.per_second),
            units::time(reads.p99_ns),
            rate(writes.per_second),
            units::time(writes.p99_ns),
            units::mib_per_second(compared.bytes_per_second()),
        ]);
    }
    let (readers, writers) = (first.read.words(), first.write.words());
    format!("\nSchedulers: {readers}, beside {writers}\n{}", table.render(screen, 0))
}

fn cell(report: &Report, load: &Load, beside: &Load) -> String {
    let relative = report.pair(load, beside).and_then(|finding| report.relative(finding));
    relative
        .map_or_else(|| NOTHING.to_owned(), |(throughput, tail)| format!("{} x{}", percent(throughput), number(tail)))
}
