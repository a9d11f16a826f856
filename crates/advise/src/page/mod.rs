//! Advice as an HTML page: the recommendation, plots of the trade-off, the leading candidates, all
//! measurements.
//!
//! The page has no scripts and loads nothing from other servers. The same advice gives the same
//! bytes.

mod charts;
mod tables;

use zonda_config::ByteSize;
use zonda_plot::text::{bytes, counted, escape};
use zonda_plot::{Chart, Page};

use crate::advice::Advice;

/// The page, with charts of the `top` leading candidates.
#[must_use]
pub fn html(advice: &Advice, top: usize) -> String {
    let main = format!(
        "{header}\
         <section aria-labelledby=\"settings\">\n<h2 id=\"settings\">Settings</h2>\n{settings}</section>\n\
         <section aria-labelledby=\"picture\">\n<h2 id=\"picture\">All candidates</h2>\n{picture}</section>\n\
         <section aria-labelledby=\"leading\">\n<h2 id=\"leading\">Leading candidates</h2>\n{leading}</section>\n\
         {published}\
         <section aria-labelledby=\"measured\">\n<h2 id=\"measured\">All measurements</h2>\n{table}</section>\n\
         <section aria-labelledby=\"how\">\n<h2 id=\"how\">Method</h2>\n{how}</section>\n",
        header = header(advice),
        settings = settings(advice),
        picture = figures(&charts::scatters(advice), "scatter"),
        leading = figures(&charts::bars(advice, top), "") + &tables::best_of_each_element(advice),
        published = published(advice),
        table = tables::all(advice),
        how = how(advice),
    );
    let footer = format!(
        "Made by zonda {}, result format {}. The same program, profile, workload and seed give the same figures.",
        env!("CARGO_PKG_VERSION"),
        advice.format
    );
    let title = format!("Zones for {} on {}", advice.load, advice.drive);
    Page { title: &title, css: include_str!("page.css"), main: &main, footer: &footer }.html()
}

fn header(advice: &Advice) -> String {
    let choice = &advice.choice().measurement.candidate;
    let policy = match advice.choice().figures.has_met_the_limit() {
        true => format!("at {}% occupancy or more", choice.finish_threshold_percent),
        false => "any (never needed)".to_owned(),
    };
    let facts = [
        ("Storage element", choice.shape.element.to_string()),
        ("Zone", ByteSize(choice.shape.zone_bytes).to_string()),
        ("Parallelism", format!("{} of {} dies", choice.shape.parallelism, advice.dies)),
        ("FINISH", policy),
        ("Runs", (advice.ranking.len() + advice.failed.len()).to_string()),
        ("Seed", advice.seed.to_string()),
    ];
    let facts: String =
        facts.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value))).collect();
    format!(
        "<header>\n<p class=\"kind\">zonda advice: {}</p>\n<h1>Zones for {} on {}</h1>\n<p class=\"lead\">{}</p>\n\
         <dl class=\"facts\">{facts}</dl>\n</header>\n",
        escape(&advice.load_title),
        escape(&advice.load),
        escape(&advice.drive),
        escape(&advice.paragraph)
    )
}

fn settings(advice: &Advice) -> String {
    let block = |title: &str, text: &str| {
        format!(
            "<div><h3>{title}</h3>\n<pre tabindex=\"0\" aria-label=\"{title}\"><code>{}</code></pre></div>\n",
            escape(text)
        )
    };
    let policy = format!(
        "<p>Host policy: when it needs an active resource, the host finishes a zone that is at least {}% full \
         (finish_threshold_percent of a file store).</p>\n",
        advice.finish_threshold_percent
    );
    format!(
        "<div class=\"settings\">\n{}{}</div>\n{policy}",
        block("In a profile", &advice.settings),
        block("In a job file", &advice.drive_set())
    )
}

fn figures(charts: &[Chart], class: &str) -> String {
    let figures: String =
        charts.iter().map(|chart| format!("<div class=\"{class}\">{}</div>\n", chart.figure())).collect();
    format!("<div class=\"plots\">\n{figures}</div>\n")
}

/// The recommendation of the paper, compared with ours.
fn published(advice: &Advice) -> String {
    let Some(published) = &advice.published else { return String::new() };
    let comparison: String =
        published.comparison.iter().map(|sentence| format!("<p>{}</p>\n", escape(sentence))).collect();
    format!(
        "<section aria-labelledby=\"published\">\n<h2 id=\"published\">Recommendation of SilentZNS</h2>\n\
         <p>Table 5 of the paper, for this workload: {}.</p>\n{comparison}</section>\n",
        escape(published.guidance.words)
    )
}

fn how(advice: &Advice) -> String {
    let limit = match advice.active_zones_assumed {
        true => format!("The profile has no limit on active zones: {} are assumed.", advice.active_zones_max),
        false => format!("At most {} zones are active.", advice.active_zones_max),
    };
    let left_out = match advice.left_out.as_slice() {
        [] => String::new(),
        [first, ..] => format!(
            "<p>{} could not be built: {}: {}.</p>\n",
            counted(advice.left_out.len() as u64, "shape"),
            escape(&first.shape.to_string()),
            escape(&first.reason)
        ),
    };
    let failed = match advice.failed.as_slice() {
        [] => String::new(),
        [first, ..] => format!(
            "<p>{} did not complete the workload: with {}, {}.</p>\n",
            counted(advice.failed.len() as u64, "candidate"),
            escape(&first.candidate.short()),
            escape(&first.end.to_string())
        ),
    };
    format!(
        "<p>Each candidate is a preconditioned drive of {capacity} with a file store on it. The workload appends {load}. \
         {limit}</p>\n<p>Wear is bytes erased per byte written, without the remaining capacity of zones that are active at the \
         end. Space amplification is live and dead bytes divided by live ones, each averaged over time.</p>\n\
         {left_out}{failed}<p>The score of a candidate is the sum over all criteria of the weight times the logarithm of the \
         ratio to the best value of all candidates. Of candidates within {tie} of the best, the coarsest is \
         recommended.</p>\n{weights}",
        capacity = bytes(advice.capacity_bytes),
        load = bytes(advice.load_bytes),
        tie = crate::score::TIE,
        weights = tables::weights(advice),
    )
}
