//! The section of an experiment: description, plots, results, contradictions, the file.

use zonda_plot::text::{counted, escape, list};

use super::entry::{Entry, Site};
use super::names::{anchor, link};
use super::{results, words};
use crate::lab_file::point_name;
use crate::{ContradictionSpec, LabExperiment, Measurement};

/// Maximum number of points named in a note.
const POINTS_NAMED_MAX: usize = 6;

/// The section. On a page of its own, the title of the page is that of the experiment.
pub(super) fn section(site: &Site<'_>, entry: &Entry<'_>) -> String {
    let experiment = entry.experiment;
    let place = entry.paper.and(experiment.place.as_deref());
    let place = place.map_or_else(String::new, |place| format!("<span class=\"place\">{}</span> ", escape(place)));
    let figures: String = entry
        .charts
        .iter()
        .map(|(chart, file)| {
            let link = entry.file_link(file);
            let class = if chart.is_wide { " class=\"alone\"" } else { "" };
            format!(
                "<div{class}>{}<p class=\"file\"><a href=\"{link}\">This plot as SVG</a></p></div>\n",
                chart.figure()
            )
        })
        .collect();
    let plots = if figures.is_empty() { figures } else { format!("<div class=\"plots\">\n{figures}</div>\n") };
    let table = match entry.rows.as_slice() {
        [] => "<p class=\"none\">No result is compared with a published one.</p>\n".to_owned(),
        rows => format!("<h3>Published results and model</h3>\n{}", results::of_experiment(rows)),
    };
    let contradictions: String = experiment.contradictions.iter().map(|of| contradiction(site, of)).collect();
    format!(
        "<section id=\"{id}\">\n<h2>{place}{title}</h2>\n{about}{how}{flags}{plots}{table}{contradictions}{file}</section>\n",
        id = entry.anchor(),
        title = escape(&experiment.title),
        about = words::paragraphs(&experiment.about),
        how = how(experiment),
        flags = flags(entry),
        file = file(entry),
    )
}

/// The drives, the number of points and of runs.
fn how(experiment: &LabExperiment) -> String {
    let drives: Vec<String> = experiment
        .profiles()
        .into_iter()
        .map(|name| format!("<a href=\"index.html#{}\">{}</a>", drive_anchor(name), escape(name)))
        .collect();
    let points = counted(experiment.points.len() as u64, "point");
    let runs = match experiment.seeds {
        1 => "each run once".to_owned(),
        seeds => format!("each run with {seeds} seeds"),
    };
    format!("<p class=\"how\">Drive: {}. {points}, {runs}.</p>\n", list(&drives))
}

/// The anchor of a drive on the index page.
pub(super) fn drive_anchor(name: &str) -> String {
    format!("drive-{}", anchor(name))
}

/// Points that were not steady, and commands that failed.
fn flags(entry: &Entry<'_>) -> String {
    let mut flags = String::new();
    let not_steady = named(entry, |measured| !measured.is_steady);
    if !not_steady.is_empty() {
        flags += &format!(
            "<p class=\"flag\"><b>Not steady.</b> Even in the longest run no steady state was detected in the first half. \
             These figures are of the second half, and may not have converged: {}.</p>\n",
            not_steady
        );
    }
    let failed = named(entry, |measured| measured.errors > 0);
    if !failed.is_empty() {
        let errors = entry.outcome.measurements.iter().map(|measured| measured.errors).sum();
        flags += &format!(
            "<p class=\"flag\"><b>Commands failed.</b> {} in the runs of: {}.</p>\n",
            counted(errors, "command"),
            failed
        );
    }
    flags
}

/// The names of the points for which this is true.
fn named(entry: &Entry<'_>, is_meant: impl Fn(&Measurement) -> bool) -> String {
    let experiment = entry.experiment;
    let pairs = experiment.points.iter().zip(&entry.outcome.measurements);
    let mut names: Vec<String> = pairs
        .filter(|(_, measured)| is_meant(measured))
        .map(|(point, _)| escape(&point_name(experiment.x.as_ref(), &experiment.series, point.series, point.x)))
        .collect();
    let more = names.len().saturating_sub(POINTS_NAMED_MAX);
    names.truncate(POINTS_NAMED_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join("; ")
}

/// Published values that contradict each other, and the one that the profile follows.
fn contradiction(site: &Site<'_>, of: &ContradictionSpec) -> String {
    let between = of.between.iter().map(|name| match site.result(name) {
        Some((entry, row)) => format!(
            "<li><a href=\"{}\">{}</a> <small>{}</small></li>\n",
            entry.result_link(row),
            escape(&words::capitalized(&row.title)),
            escape(entry.place())
        ),
        None => format!("<li>{}</li>\n", escape(name)),
    });
    let between: String = between.collect();
    let sentence = |text: &str| words::line(&words::capitalized(text.trim()));
    format!(
        "<aside class=\"contradiction\">\n<h3>Contradictory published results</h3>\n<ul>\n{between}</ul>\n\
         <dl><dt>Why</dt><dd>{}</dd><dt>The drive's profile follows</dt><dd>{}</dd><dt>The other would require</dt><dd>{}</dd></dl>\n\
         </aside>\n",
        sentence(&of.because),
        sentence(&of.follows),
        sentence(&of.other_needs)
    )
}

/// Links to the file of the experiment and its measurements.
fn file(entry: &Entry<'_>) -> String {
    let id = &entry.experiment.id;
    let toml = format!("{id}.toml");
    format!(
        "<p class=\"files\"><a href=\"{measured}\">All measurements (CSV)</a> <a href=\"{toml_link}\">{name}</a></p>\n\
         <details><summary>The file of this experiment</summary>\n<pre tabindex=\"0\" aria-label=\"{name}\"><code>{text}</code></pre>\n\
         </details>\n",
        measured = link(&format!("{id}/measurements.csv")),
        toml_link = entry.file_link(&toml),
        name = escape(&toml),
        text = escape(&entry.experiment.text),
    )
}
