//! Lists and prints experiments.

use serde::Serialize;
use zonda_lab::{PAPERS, builtin_text};

use super::pick;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;

/// An experiment in the list.
#[derive(Serialize)]
struct Listed {
    id: String,
    title: String,
    paper: Option<String>,
    place: Option<String>,
    profiles: Vec<String>,
    points: usize,
    seeds: u32,
    results: Vec<String>,
}

pub(super) fn list(json: bool) -> Result<(), Failure> {
    let listed: Vec<Listed> = pick::all()
        .into_iter()
        .map(|experiment| Listed {
            profiles: experiment.profiles().into_iter().map(str::to_owned).collect(),
            results: experiment.results.iter().map(|result| result.id.clone()).collect(),
            points: experiment.points.len(),
            seeds: experiment.seeds,
            id: experiment.id,
            title: experiment.title,
            paper: experiment.paper,
            place: experiment.place,
        })
        .collect();
    if json {
        return print_json(&listed);
    }
    let screen = Screen::of_stdout();
    let mut text = String::new();
    for paper in &PAPERS {
        let of_paper: Vec<&Listed> =
            listed.iter().filter(|experiment| experiment.paper.as_deref() == Some(paper.key)).collect();
        if of_paper.is_empty() {
            continue;
        }
        text += &format!("{}\n{}", screen.bold(paper.key), screen.paragraph(paper.reference, 2));
        let mut table = Table::new(&["experiment", "source", "measures", ">results", ">configurations"]);
        for experiment in of_paper {
            table.row(&[
                experiment.id.clone(),
                experiment.place.clone().unwrap_or_default(),
                experiment.title.clone(),
                experiment.results.len().to_string(),
                experiment.points.to_string(),
            ]);
        }
        text += &table.render(screen, 2);
        text.push('\n');
    }
    text += &screen.paragraph(
        "results: published results to compare with; configurations: combinations of parameter values that are simulated. Zone \
         Write is the ZapRAID paper's name for the Write command. A conflict group is a set of zones that share flash channels or \
         dies and slow each other down (Bae et al.).",
        0,
    );
    text += "zonda lab run ID runs an experiment, zonda lab show ID prints its file\n";
    print(&text)
}

pub(super) fn file(id: &str) -> Result<(), Failure> {
    if let Some(text) = builtin_text(id) {
        return print(text);
    }
    // The ID of a published result names its experiment.
    let of_result = pick::all().into_iter().find(|experiment| experiment.results.iter().any(|result| result.id == id));
    match of_result {
        Some(experiment) => print(&experiment.text),
        None => Err(Failure::input(format!("no experiment is named \"{id}\""), pick::nearest_id(id))),
    }
}
