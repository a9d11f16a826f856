//! The interference matrix: each operation beside each other, relative to the operation alone.

use zonda_plot::text::{NOTHING, duration, escape, number, percent, rate};

use crate::limits::{DISTURBED, MATRIX_RATES_PERCENT, TAIL_DISTURBED};
use crate::{Finding, Load, Part, Report};

/// The matrix, and below it loads at several depths beside resets and finishes.
pub(super) fn tables(report: &Report) -> String {
    let loads = report.matrix_loads();
    if loads.is_empty() {
        return String::new();
    }
    let head: String = loads.iter().map(|load| format!("<th>{}</th>", load.kind.plural())).collect();
    let rows: String = loads.iter().map(|load| row(report, load, &loads)).collect();
    format!(
        "<p>A row shows what is left of an operation beside the operation of the column: its throughput, as a share of \
         that alone, and by which factor its p99 grows.</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Interference matrix\"><table class=\"numbers \
         matrix\">\n<thead><tr><th></th><th>alone</th>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n{}{}",
        depths(report),
        rates(report)
    )
}

fn row(report: &Report, load: &Load, loads: &[Load]) -> String {
    let alone = report.alone(load).and_then(|finding| finding.figures);
    let alone = alone.map_or_else(
        || NOTHING.to_owned(),
        |figures| format!("<b>{}/s</b>p99 {}", rate(figures.per_second), escape(&duration(figures.p99_ns))),
    );
    let cells: String = loads.iter().map(|beside| cell(report, load, beside)).collect();
    format!(
        "<tr><th>{}<br><small>{}</small></th><td>{alone}</td>{cells}</tr>\n",
        load.kind.plural(),
        escape(&load.short())
    )
}

fn cell(report: &Report, load: &Load, beside: &Load) -> String {
    // Of two equal streams one is shown: together they have twice its throughput.
    let Some(finding) = report.pair(load, beside) else { return format!("<td>{NOTHING}</td>") };
    match report.relative(finding) {
        Some((throughput, tail)) => {
            let class = class_of(throughput, tail);
            format!("<td class=\"{class}\"><b>{}</b>p99 × {}</td>", escape(&percent(throughput)), number(tail))
        }
        None => {
            let reason = finding.missing.as_ref().map_or_else(|| "alone: none".to_owned(), ToString::to_string);
            format!("<td title=\"{}\">{NOTHING}</td>", escape(&reason))
        }
    }
}

fn class_of(throughput: f64, tail: f64) -> &'static str {
    let (share, growth) = (throughput / DISTURBED, tail / TAIL_DISTURBED);
    match () {
        () if share < 0.5 || growth > 5.0 => "severe",
        () if share < 0.75 || growth > 2.0 => "strong",
        () if share < 1.0 || growth > 1.0 => "mild",
        () => "",
    }
}

/// Loads that ran alone, by operation and depth.
pub(super) fn alone(report: &Report) -> Vec<&Finding> {
    let mut alone: Vec<&Finding> =
        report.of_part(Part::Interference).filter(|finding| finding.beside.is_none()).collect();
    alone.sort_by_key(|finding| (finding.load.kind, finding.load.queue_depth));
    alone
}

/// Reads, writes and appends at several depths beside resets and finishes.
fn depths(report: &Report) -> String {
    let loads = report.matrix_loads();
    let beside: Vec<Load> = loads.iter().filter(|load| load.kind.is_management()).copied().collect();
    let mut rows = String::new();
    for finding in alone(report).iter().filter(|finding| !finding.load.kind.is_management()) {
        let Some(alone) = finding.figures else { continue };
        let cells: String = beside
            .iter()
            .map(|beside| {
                let of = |load: &Load, beside: &Load| report.pair(load, beside).and_then(|finding| finding.figures);
                match (of(&finding.load, beside), of(beside, &finding.load)) {
                    (Some(load), other) => format!(
                        "<td>{}</td><td>{}</td><td>{}</td>",
                        rate(load.per_second),
                        escape(&duration(load.p99_ns)),
                        other.map_or_else(|| NOTHING.to_owned(), |other| number(other.per_second))
                    ),
                    (None, _) => format!("<td>{NOTHING}</td><td>{NOTHING}</td><td>{NOTHING}</td>"),
                }
            })
            .collect();
        rows += &format!(
            "<tr><th>{} <small>{}</small></th><td>{}</td><td>{}</td>{cells}</tr>\n",
            finding.load.kind.plural(),
            escape(&finding.load.short()),
            rate(alone.per_second),
            escape(&duration(alone.p99_ns))
        );
    }
    let groups: String =
        beside.iter().map(|load| format!("<th colspan=\"3\">beside {}</th>", load.kind.plural())).collect();
    let heads: String =
        beside.iter().map(|load| format!("<th>IOPS</th><th>p99</th><th>{}/s</th>", load.kind.plural())).collect();
    format!(
        "<h3>At several depths</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"At several \
         depths\"><table class=\"numbers\">\n<thead><tr><th></th><th colspan=\"2\">alone</th>{groups}</tr>\n<tr><th></th>\
         <th>IOPS</th><th>p99</th>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// Pairs of a load and one at each limit of its rate; the last one without a limit.
pub(super) fn limited_pairs(report: &Report) -> Vec<(Load, Load, Vec<&Finding>)> {
    let loads = report.matrix_loads();
    let pairs = loads.iter().flat_map(|load| loads.iter().map(move |beside| (*load, *beside)));
    let of = |(load, beside): (Load, Load)| {
        let limits = MATRIX_RATES_PERCENT.iter().map(|percent| Load { rate_percent: Some(*percent), ..beside });
        let findings: Vec<&Finding> =
            limits.chain([beside]).filter_map(|limited| report.pair(&load, &limited)).collect();
        (findings.len() > 1).then_some((load, beside, findings))
    };
    pairs.filter_map(of).collect()
}

/// Reads and writes beside each other, one of them at a limited rate.
fn rates(report: &Report) -> String {
    let row = |finding: &Finding| {
        let beside = finding.beside?;
        let other = report.pair(&beside, &finding.load).and_then(|finding| finding.figures);
        let limit = beside.rate_percent.map_or_else(|| "no limit".to_owned(), |percent| format!("{percent}%"));
        let (share, growth) = match report.relative(finding) {
            Some((throughput, tail)) => (percent(throughput), format!("× {}", number(tail))),
            None => (NOTHING.to_owned(), NOTHING.to_owned()),
        };
        Some(format!(
            "<tr><th>{} <small>beside {}</small></th><td>{limit}</td><td>{}</td><td>{}</td><td>{}</td><td>{growth}</td>\
             <td>{}</td></tr>\n",
            finding.load.kind.plural(),
            beside.kind.plural(),
            finding.figures.map_or_else(|| NOTHING.to_owned(), |figures| rate(figures.per_second)),
            escape(&share),
            escape(&finding.figures.map_or_else(|| NOTHING.to_owned(), |figures| duration(figures.p99_ns))),
            other.map_or_else(|| NOTHING.to_owned(), |figures| rate(figures.per_second)),
        ))
    };
    let rows: String =
        limited_pairs(report).iter().flat_map(|(_, _, findings)| findings).filter_map(|of| row(of)).collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h3>At rate limits</h3>\n<p>The load beside is limited to a share of its throughput alone.</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"At rate limits\"><table class=\"numbers\">\n\
         <thead><tr><th></th><th>limit</th><th>in a second</th><th>of alone</th><th>p99</th><th>p99 of alone</th>\
         <th>beside, in a second</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}
