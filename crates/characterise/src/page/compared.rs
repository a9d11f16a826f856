//! Another report beside this one: what differs, and the interference of both.

use zonda_plot::text::{NOTHING, counted, duration, escape, number, rate};

use crate::{Figures, Finding, Part, Report};

/// The section, if there is another report.
pub(super) fn section(report: &Report, other: Option<&Report>) -> String {
    let Some(other) = other else { return String::new() };
    let comparison = report.changes(other);
    let target = escape(&other.conditions.target);
    let summary = match comparison.changes.len() {
        0 => "no change beyond noise".to_owned(),
        changes => format!("{} beyond noise", counted(changes as u64, "difference")),
    };
    let loads = counted(u64::from(comparison.compared), "load");
    format!(
        "<section aria-labelledby=\"compared\">\n<h2 id=\"compared\">Compared with {target}</h2>\n<p>{loads} in both \
         reports: {summary}.</p>\n{}{}</section>\n",
        side_by_side(report, other),
        differences(&comparison)
    )
}

/// The loads of the interference part that both reports have.
fn side_by_side(report: &Report, other: &Report) -> String {
    let row = |finding: &Finding| {
        let is_same = |of: &&Finding| (of.load, of.beside) == (finding.load, finding.beside);
        let theirs = other.of_part(Part::Interference).find(is_same)?.figures?;
        let ours = finding.figures?;
        let beside = finding.beside.map_or_else(|| "alone".to_owned(), |beside| format!("beside {}", beside.plural()));
        let shares = (share(report, finding), other.relative(&Finding { figures: Some(theirs), ..finding.clone() }));
        Some(format!(
            "<tr><th>{} <small>{}</small></th><td class=\"words\">{beside}</td>{}{}<td>{}</td></tr>\n",
            finding.load.plural(),
            escape(&finding.load.short()),
            cells(&ours, shares.0),
            cells(&theirs, shares.1.map(|(throughput, _)| throughput)),
            number(ours.per_second / theirs.per_second.max(1e-9)),
        ))
    };
    let mut findings: Vec<&Finding> = report.of_part(Part::Interference).collect();
    findings.sort_by_key(|finding| (finding.load.kind, finding.load.queue_depth, finding.beside));
    let rows: String = findings.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    let (ours, theirs) = (escape(&report.conditions.target), escape(&other.conditions.target));
    let head = "<th>in a second</th><th>of alone</th><th>p99</th>";
    format!(
        "<h3>Interference side by side</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Interference side \
         by side\"><table class=\"numbers\">\n<thead><tr><th></th><th></th><th colspan=\"3\">{ours}</th><th \
         colspan=\"3\">{theirs}</th><th></th></tr>\n<tr><th></th><th></th>{head}{head}<th>ratio</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

fn share(report: &Report, finding: &Finding) -> Option<f64> {
    report.relative(finding).map(|(throughput, _)| throughput)
}

fn cells(figures: &Figures, share: Option<f64>) -> String {
    let share = share.map_or_else(|| NOTHING.to_owned(), zonda_plot::text::percent);
    // A data set may lack a tail.
    let tail = if figures.p99_ns > 0 { duration(figures.p99_ns) } else { NOTHING.to_owned() };
    format!("<td>{}</td><td>{}</td><td>{}</td>", rate(figures.per_second), escape(&share), escape(&tail))
}

fn differences(comparison: &crate::Comparison) -> String {
    let rows: String = comparison
        .changes
        .iter()
        .map(|change| {
            let ratio = change.ratio.map_or_else(String::new, |ratio| format!("{:+.1}%", (ratio - 1.0) * 100.0));
            format!(
                "<tr><td class=\"words\">{}</td><td class=\"words\">{}</td><td>{}</td><td>{}</td><td>{ratio}</td></tr>\n",
                escape(&change.subject),
                change.quantity,
                escape(&change.before),
                escape(&change.after)
            )
        })
        .collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<details><summary>{}</summary>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Differences\">\
         <table class=\"numbers\">\n<thead><tr><th>what</th><th class=\"words\">quantity</th><th>there</th><th>here</th>\
         <th>change</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n</details>\n",
        counted(comparison.changes.len() as u64, "difference")
    )
}
