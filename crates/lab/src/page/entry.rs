//! The experiments of the pages: the page and the results of each.

use zonda_plot::Chart;

use crate::{LabExperiment, Outcome, PAPERS, Paper, Row};

use super::charts;
use super::names::{anchor, link, result_anchor};

/// An experiment with its measurements and its page.
pub(super) struct Entry<'a> {
    pub(super) experiment: &'a LabExperiment,
    pub(super) outcome: &'a Outcome,
    pub(super) rows: Vec<Row>,
    /// Its plots, and the names of their files.
    pub(super) charts: Vec<(Chart, String)>,
    /// Its paper, if it is on the page of a paper.
    pub(super) paper: Option<&'static Paper>,
    /// The file name of its page.
    pub(super) page: String,
}

/// A page, and the experiments on it.
pub(super) struct Group {
    pub(super) page: String,
    pub(super) paper: Option<&'static Paper>,
    /// Indices of its experiments.
    pub(super) entries: Vec<usize>,
}

/// The contents of all pages.
pub(super) struct Site<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    /// Those of papers first, in the order of [`PAPERS`].
    pub(super) groups: Vec<Group>,
}

/// A result and its experiment.
pub(super) type Found<'a> = (&'a Entry<'a>, &'a Row);

impl Group {
    /// Whether it was measured by a paper.
    pub(super) fn is_published(&self) -> bool {
        self.paper.is_some_and(|paper| paper.is_published)
    }
}

impl<'a> Site<'a> {
    pub(super) fn new(all: &'a [(LabExperiment, Outcome)]) -> Site<'a> {
        let entries: Vec<Entry<'a>> = all.iter().map(|(experiment, outcome)| Entry::new(experiment, outcome)).collect();
        let mut groups = Vec::new();
        for paper in &PAPERS {
            let of_paper = |entry: &Entry<'_>| entry.paper.is_some_and(|its| its.key == paper.key);
            let places: Vec<usize> = (0..entries.len()).filter(|place| of_paper(&entries[*place])).collect();
            if !places.is_empty() {
                groups.push(Group { page: paper_page(paper), paper: Some(paper), entries: places });
            }
        }
        for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.paper.is_none()) {
            groups.push(Group { page: entry.page.clone(), paper: None, entries: vec![place] });
        }
        Site { entries, groups }
    }

    /// The experiments of a page.
    pub(super) fn of<'b>(&'b self, group: &'b Group) -> impl Iterator<Item = &'b Entry<'b>> {
        group.entries.iter().map(|place| &self.entries[*place])
    }

    /// The results of papers, paper by paper.
    pub(super) fn published(&self) -> Vec<Found<'_>> {
        let groups = self.groups.iter().filter(|group| group.is_published());
        groups.flat_map(|group| self.results(group)).collect()
    }

    /// The results of a page.
    pub(super) fn results<'b>(&'b self, group: &'b Group) -> impl Iterator<Item = Found<'b>> {
        self.of(group).flat_map(|entry| entry.rows.iter().map(move |row| (entry, row)))
    }

    /// The result with this id, of a paper if one has it.
    pub(super) fn result(&self, id: &str) -> Option<Found<'_>> {
        self.groups.iter().flat_map(|group| self.results(group)).find(|(_, row)| row.id == id)
    }
}

impl<'a> Entry<'a> {
    fn new(experiment: &'a LabExperiment, outcome: &'a Outcome) -> Entry<'a> {
        let is_of = |paper: &&Paper| {
            let is_named_for = |id: &str| id.strip_prefix(paper.key).is_some_and(|rest| rest.starts_with('-'));
            experiment.paper.as_deref() == Some(paper.key) && is_named_for(&experiment.id)
        };
        let paper = PAPERS.iter().find(is_of);
        let page = paper.map_or_else(|| own_page(&experiment.id), paper_page);
        let (rows, charts) = (Row::all(experiment, outcome), charts::of(experiment, outcome, paper));
        Entry { experiment, outcome, rows, charts, paper, page }
    }

    /// Its section on its page.
    pub(super) fn anchor(&self) -> String {
        anchor(&self.experiment.id)
    }

    /// A link to its section.
    pub(super) fn link(&self) -> String {
        format!("{}#{}", link(&self.page), self.anchor())
    }

    /// A link to one of its results.
    pub(super) fn result_link(&self, row: &Row) -> String {
        format!("{}#{}", link(&self.page), result_anchor(&row.id))
    }

    /// A link to a file in its folder.
    pub(super) fn file_link(&self, name: &str) -> String {
        link(&format!("{}/{name}", self.experiment.id))
    }

    /// Its place in the paper; its title if it has no paper.
    pub(super) fn place(&self) -> &str {
        self.paper.and(self.experiment.place.as_deref()).unwrap_or(&self.experiment.title)
    }
}

fn paper_page(paper: &Paper) -> String {
    format!("{}.html", paper.key)
}

/// The page of an experiment without a paper. Its name must not be that of another page.
fn own_page(id: &str) -> String {
    let is_taken = id == "index" || PAPERS.iter().any(|paper| paper.key == id);
    format!("{id}{}.html", if is_taken { "-own" } else { "" })
}
