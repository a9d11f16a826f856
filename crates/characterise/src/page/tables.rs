//! Tables of the page: parts, zone management, all figures.

use zonda_plot::text::{NOTHING, counted, duration, escape, mebibytes, percent, rate};

use super::time;
use crate::{Part, Report};

fn table(label: &str, head: &[&str], rows: &str) -> String {
    let head: String = head.iter().map(|name| format!("<th>{name}</th>")).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\"><table class=\"numbers\">\n\
         <thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// Latencies of the commands that manage zones.
pub(super) fn managed(report: &Report) -> String {
    let rows: String = report
        .of_part(Part::Zones)
        .map(|finding| {
            let figures = finding.figures.as_ref();
            format!(
                "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"words\">{}</td></tr>\n",
                escape(&finding.load.words()),
                time(figures.map(|figures| figures.p50_ns)),
                time(figures.map(|figures| figures.max_ns)),
                figures.map_or_else(|| NOTHING.to_owned(), |figures| figures.operations.to_string()),
                escape(&finding.missing.as_ref().map(ToString::to_string).unwrap_or_default()),
            )
        })
        .collect();
    if rows.is_empty() { rows } else { table("Zone management", &["", "median", "longest", "commands", ""], &rows) }
}

/// The parts and their time.
pub(super) fn parts(report: &Report) -> String {
    let rows: String = report
        .parts
        .iter()
        .map(|summary| {
            let state = summary.reason.as_ref().map_or_else(
                || match summary.missing {
                    0 => String::new(),
                    missing => format!("{} not measured", counted(u64::from(missing), "load")),
                },
                ToString::to_string,
            );
            format!(
                "<tr><th>{}</th><td>{}</td><td>{}</td><td class=\"words\">{}</td></tr>\n",
                summary.part.name(),
                duration(summary.elapsed_ns),
                summary.measured,
                escape(&state)
            )
        })
        .collect();
    table("Parts", &["part", "time", "loads", ""], &rows)
}

/// Each load.
pub(super) fn all(report: &Report) -> String {
    let rows: String = report
        .findings
        .iter()
        .map(|finding| {
            let load = finding.words();
            let cells = match (&finding.figures, &finding.missing) {
                (Some(figures), _) => format!(
                    "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                    rate(figures.per_second),
                    if figures.bytes_per_second > 0.0 {
                        mebibytes(figures.bytes_per_second)
                    } else {
                        NOTHING.to_owned()
                    },
                    duration(figures.p50_ns),
                    duration(figures.p99_ns),
                    escape(&percent(figures.uncertainty)),
                ),
                (None, missing) => {
                    let reason = missing.as_ref().map(ToString::to_string).unwrap_or_default();
                    format!("<td colspan=\"5\" class=\"words\">{}</td>", escape(&reason))
                }
            };
            format!(
                "<tr><td class=\"words\">{}</td><td class=\"words\">{}</td>{cells}</tr>\n",
                finding.part.name(),
                escape(&load)
            )
        })
        .collect();
    let head = ["part", "load", "in a second", "MiB/s", "median", "p99", "uncertainty"];
    format!(
        "<details><summary>{}</summary>\n{}</details>\n",
        counted(report.findings.len() as u64, "load"),
        table("All figures", &head, &rows)
    )
}
