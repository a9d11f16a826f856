//! HTML pages of experiments: an index, a page for each paper, and every plot, file and table of
//! measurements.
//!
//! A page has no scripts and loads nothing from other servers. The same measurements give the same
//! bytes.

mod axes;
mod charts;
mod drives;
mod entry;
mod experiment;
mod index;
mod made;
mod names;
mod overview;
mod paper;
mod results;
mod words;

use crate::{LabExperiment, Outcome};
use entry::Site;
use zonda_plot::Page;

/// A file of the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFile {
    /// Below the folder of the pages, with `/` between names: `index.html`,
    /// `ezns-figure-9/figure-9-1.svg`.
    pub path: String,
    /// Contents of the file.
    pub text: String,
}

/// The pages of these experiments, and all linked files. The experiments must have different IDs.
///
/// - `index.html`, and `PAPER.html` for each paper with an experiment
/// - `ID.html` for an experiment without a paper
/// - `ID/ID.toml`, `ID/measurements.csv` and an SVG file for each plot, for each experiment
///
/// An experiment belongs to a paper if it names it and its ID begins with the key of the paper, so
/// that a modified copy under another name does not count.
#[must_use]
pub fn site(entries: &[(LabExperiment, Outcome)]) -> Vec<PageFile> {
    let site = Site::new(entries);
    let mut files = vec![PageFile { path: "index.html".to_owned(), text: index::html(&site) }];
    for group in &site.groups {
        files.push(PageFile { path: group.page.clone(), text: paper::html(&site, group) });
    }
    for entry in &site.entries {
        let folder = &entry.experiment.id;
        for (chart, name) in &entry.charts {
            files.push(PageFile { path: format!("{folder}/{name}"), text: chart.svg() });
        }
        let text = entry.experiment.text.clone();
        files.push(PageFile { path: format!("{folder}/{folder}.toml"), text });
        let text = crate::csv(entry.experiment, entry.outcome);
        files.push(PageFile { path: format!("{folder}/measurements.csv"), text });
    }
    files
}

/// The page around this HTML.
fn page(title: &str, main: &str) -> String {
    let footer = format!(
        "Made by zonda {}. The same program and files give the same results on every machine.",
        env!("CARGO_PKG_VERSION")
    );
    Page { title, css: include_str!("page.css"), main, footer: &footer }.html()
}
