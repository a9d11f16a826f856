//! Pages of experiments: an index, a page for each paper, and beside them every plot, file and table of measurements.
//!
//! A page has no scripts and asks for nothing from elsewhere. The same measurements give the same bytes.

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
    /// Below the folder of the pages, with `/` between names: `index.html`, `ezns-figure-9/figure-9-1.svg`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The pages of these experiments, and everything that they link to. No two experiments may have the same id.
///
/// - `index.html`, and `PAPER.html` for each paper of which there is an experiment
/// - `ID.html` for an experiment that is of no paper
/// - `ID/ID.toml`, `ID/measurements.csv` and an SVG file for each plot, for each experiment
///
/// An experiment is of a paper if it names it and has an id that begins with the paper's key, so that a changed copy
/// under another name does not count as the paper's.
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
        "Made by zonda {}. The same program and the same files give the same numbers on every machine.",
        env!("CARGO_PKG_VERSION")
    );
    Page { title, css: include_str!("page.css"), main, footer: &footer }.html()
}
