//! The HTML report of a benchmark run: one self-contained page. It has no scripts and loads nothing
//! from other servers; the same result gives the same page.

use zonda_plot::Page;
use zonda_plot::text::{count, counted, duration, escape, list};
use zonda_workload::JobResult;

use crate::results::{Subject, wrong_blocks};

mod amplification;
mod cards;
mod drive;
mod elastic;
mod jobs;
mod plots;
mod series;
mod store;
#[cfg(test)]
mod tests;
mod volume;
mod zone_map;

/// Maximum number of jobs named in the first sentence.
const JOBS_NAMED_MAX: usize = 8;

/// The report of a run, which the job file `job_toml` made, as one self-contained HTML page.
#[must_use]
pub(crate) fn html(job_toml: &str, subject: Subject<'_>) -> String {
    let run = subject.run();
    let (drive_heading, note) = match subject {
        Subject::Simulated(result) => (
            result.volume.as_ref().map_or_else(
                || "Drive".to_owned(),
                |volume| format!("Drive of member {} of the volume", volume.drive_of_member),
            ),
            "The same program, profile, job file and seed give the same figures.",
        ),
        Subject::Live(_) => ("Namespace".to_owned(), "Measured in real time: results vary between runs."),
    };
    let main = format!(
        "{header}\
         <section aria-labelledby=\"figures\">\n<h2 id=\"figures\">Key figures</h2>\n{cards}</section>\n\
         <section aria-labelledby=\"jobs\">\n<h2 id=\"jobs\">{load}</h2>\n{jobs}</section>\n\
         <section aria-labelledby=\"time\">\n<h2 id=\"time\">Throughput and latency</h2>\n{plots}</section>\n\
         {pool}\
         <section aria-labelledby=\"zones\">\n<h2 id=\"zones\">Zones at the end</h2>\n{zones}</section>\n\
         <section aria-labelledby=\"drive\">\n<h2 id=\"drive\">{drive_heading}</h2>\n{drive}</section>\n\
         <section aria-labelledby=\"file\">\n<h2 id=\"file\">Job file</h2>\n<pre tabindex=\"0\" \
         aria-label=\"Job file\"><code>{file}</code></pre>\n</section>\n",
        header = header(subject),
        cards = subject.store().map_or_else(|| cards::cards(subject), |(of, store)| store::cards(of, store)),
        load = if subject.store().is_some() { "Store" } else { "Jobs" },
        jobs = subject.store().map_or_else(|| jobs::table(&run.jobs), |(_, store)| store::tables(store)),
        plots = subject.store().map_or_else(|| plots::section(run), |(_, store)| store::plots(store)),
        pool = pool(subject),
        zones = zone_map::section(subject.zones()),
        drive = drive::section(subject),
        file = escape(job_toml),
    );
    let (version, format) = (env!("CARGO_PKG_VERSION"), subject.format());
    Page {
        title: &format!("{} on {}", what_ran(subject), subject.title()),
        css: include_str!("report.css"),
        main: &main,
        footer: &format!("Made by zonda {version}, result format {format}. {note}"),
    }
    .html()
}

/// A share of one, in percent, as HTML: `<0.01%` has a character that must be escaped.
fn percent(share: f64) -> String {
    escape(&zonda_plot::text::percent(share))
}

/// The section of the pool, if there is one.
fn pool(subject: Subject<'_>) -> String {
    match subject {
        Subject::Simulated(result) => result.elastic.as_ref().map(elastic::section).unwrap_or_default(),
        Subject::Live(_) => String::new(),
    }
}

/// The names of the jobs, or the store's workload.
fn what_ran(subject: Subject<'_>) -> String {
    match subject.store() {
        Some((_, store)) => store.workload.name().to_owned(),
        None => list(&named(&subject.run().jobs, |job| job.name.clone())),
    }
}

fn header(subject: Subject<'_>) -> String {
    let run = subject.run();
    let jobs = named(&run.jobs, |job| format!("<strong>{}</strong> ({})", escape(&job.name), escape(job.operation)));
    let ramp = match run.ramp_ns {
        0 => String::new(),
        ramp_ns => format!(" The first {} are a ramp, which is excluded from all figures.", duration(ramp_ns)),
    };
    let (place_name, of_place, place) = match subject {
        Subject::Simulated(result) => ("Profile", "the profile ", escape(&result.drive.profile)),
        Subject::Live(result) => ("Target", "", escape(&result.target)),
    };
    let wrong = match wrong_blocks(&run.jobs) {
        0 => String::new(),
        blocks => format!("<p class=\"lead\"><em>{} failed verification.</em></p>\n", counted(blocks, "block")),
    };
    let (elapsed, kind_of_time) = (duration(run.elapsed_ns), subject.kind_of_time());
    let time_name = format!("{}{}", kind_of_time[..1].to_uppercase(), &kind_of_time[1..]);
    let lead = match subject.store() {
        Some((_, store)) => format!("{elapsed} of {kind_of_time} on {of_place}{place}: {}", store::lead(store)),
        None => format!(
            "{} ran for {elapsed} of {kind_of_time} on {of_place}{place}: {}",
            counted(run.jobs.len() as u64, "job"),
            list(&jobs)
        ),
    };
    format!(
        "<header>\n<p class=\"kind\">zonda benchmark report</p>\n<h1>{}</h1>\n\
         <p class=\"lead\">{lead}.{ramp}</p>\n{wrong}\
         <dl class=\"facts\"><div><dt>{place_name}</dt><dd>{place}</dd></div><div><dt>Seed</dt><dd>{}</dd></div>\
         <div><dt>{time_name}</dt><dd>{elapsed}</dd></div><div><dt>Last completion</dt><dd>{}</dd></div>\
         </dl>\n</header>\n",
        escape(subject.title()),
        run.seed,
        duration(run.drained_ns),
    )
}

/// The names of the first jobs, and the number of further jobs.
fn named(jobs: &[JobResult], name: impl Fn(&JobResult) -> String) -> Vec<String> {
    let mut names: Vec<String> = jobs.iter().take(JOBS_NAMED_MAX).map(name).collect();
    match jobs.len().saturating_sub(JOBS_NAMED_MAX) {
        0 => {}
        more => names.push(format!("{} more", count(more as u64))),
    }
    names
}
