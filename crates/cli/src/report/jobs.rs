//! The table of jobs, and their errors.

use zonda_plot::text::{NOTHING, count, duration, escape, mebibytes, number};
use zonda_workload::{JobResult, KindResult};

/// Columns between the operation and the errors, with what they are for.
const FIGURES: [(&str, &str); 10] = [
    ("Operations", "requests that succeeded"),
    ("MiB/s", "bandwidth, in mebibytes per second"),
    ("IOPS", "requests per second"),
    ("mean", "mean latency"),
    ("p50", "half of the requests took at most this"),
    ("p95", "95% took at most this"),
    ("p99", "99% took at most this"),
    ("p99.9", "99.9% took at most this"),
    ("p99.99", "99.99% took at most this"),
    ("max", "the longest latency"),
];

/// One row for each kind of operation of each job.
pub(super) fn table(jobs: &[JobResult]) -> String {
    if jobs.is_empty() {
        return "<p class=\"none\">No jobs.</p>\n".to_owned();
    }
    let figures: String =
        FIGURES.iter().map(|(name, title)| format!("<th scope=\"col\" title=\"{title}\">{name}</th>")).collect();
    let bodies: String = jobs.iter().map(body).collect();
    format!(
        "<div class=\"scroll\" role=\"region\" aria-label=\"Jobs\" tabindex=\"0\"><table class=\"numbers jobs\">\n\
         <thead><tr><th colspan=\"2\"></th><th colspan=\"3\" scope=\"colgroup\">Throughput</th>\
         <th colspan=\"7\" scope=\"colgroup\">Latency</th><th colspan=\"2\"></th></tr>\n\
         <tr><th scope=\"col\">Job</th><th scope=\"col\">Operation</th>{figures}<th scope=\"col\">Errors</th>\
         <th scope=\"col\">End reason</th></tr></thead>\n{bodies}</table></div>\n{}",
        errors(jobs) + &wrong_blocks(jobs)
    )
}

fn body(job: &JobResult) -> String {
    let rows = job.kinds.len().max(1);
    let lead = format!("<th scope=\"rowgroup\" rowspan=\"{rows}\">{}</th>", escape(&job.name));
    let trail = format!(
        "<td rowspan=\"{rows}\">{}</td><td rowspan=\"{rows}\" class=\"words\">{}</td>",
        count(job.error_count()),
        escape(&job.ended_by.to_string())
    );
    if job.kinds.is_empty() {
        let nothing = format!("<td>{NOTHING}</td>").repeat(FIGURES.len() - 1);
        return format!(
            "<tbody><tr>{lead}<td class=\"words\">{}</td><td>0</td>{nothing}{trail}</tr></tbody>\n",
            escape(job.operation)
        );
    }
    let rows = job.kinds.iter().enumerate().map(|(place, figures)| {
        let (lead, trail) = if place == 0 { (lead.as_str(), trail.as_str()) } else { ("", "") };
        format!("<tr>{lead}{}{trail}</tr>\n", cells(job, figures))
    });
    format!("<tbody>{}</tbody>\n", rows.collect::<String>())
}

fn cells(job: &JobResult, figures: &KindResult) -> String {
    let latency = &figures.latency;
    let moves_data = figures.bytes > 0;
    let kind = figures.kind.name();
    let kind = if kind == job.operation {
        kind.to_owned()
    } else {
        format!("{kind} <small>(operation {})</small>", escape(job.operation))
    };
    let mut cells = vec![
        count(figures.operations),
        if moves_data { mebibytes(figures.bandwidth_bytes_per_second) } else { NOTHING.to_owned() },
        number(figures.iops),
    ];
    cells.extend(latency.columns_ns().map(duration));
    let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    format!("<td class=\"words\">{kind}</td>{cells}")
}

fn errors(jobs: &[JobResult]) -> String {
    let errors = jobs.iter().flat_map(|job| job.errors.iter().map(move |error| (job, error)));
    let rows: String = errors
        .map(|(job, error)| {
            format!(
                "<tr><th scope=\"row\">{}</th><td class=\"words\">{}</td><td class=\"words\">{}</td><td>{}</td>\
                 </tr>\n",
                escape(&job.name),
                error.kind,
                escape(&error.status.to_string()),
                count(error.count)
            )
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Errors</h3>\n<div class=\"scroll\" role=\"region\" aria-label=\"Errors\" tabindex=\"0\">\
         <table class=\"numbers\">\
         <thead><tr><th scope=\"col\">Job</th><th scope=\"col\" class=\"words\">Command</th>\
         <th scope=\"col\" class=\"words\">Status</th><th scope=\"col\">Times</th></tr>\
         </thead>\n<tbody>{rows}</tbody></table></div>\n"
    )
}

/// Blocks that failed verification.
fn wrong_blocks(jobs: &[JobResult]) -> String {
    let wrong = jobs.iter().filter_map(|job| Some((job, job.verify_errors.as_ref()?)));
    let rows: String = wrong
        .map(|(job, wrong)| {
            format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"words\">{}</td><td>{}</td></tr>\n",
                escape(&job.name),
                count(wrong.blocks),
                escape(&wrong.first.to_string()),
                duration(wrong.first.at_ns)
            )
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h3>Wrong blocks</h3>\n\
         <div class=\"scroll\" role=\"region\" aria-label=\"Wrong blocks\" tabindex=\"0\"><table class=\"numbers\">\
         <thead><tr><th scope=\"col\">Job</th><th scope=\"col\">Blocks</th>\
         <th scope=\"col\" class=\"words\">The first</th><th scope=\"col\">Found at</th></tr>\
         </thead>\n<tbody>{rows}</tbody></table></div>\n"
    )
}
