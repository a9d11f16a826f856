//! Runs experiments and writes their pages:
//! `cargo run --release -p zonda-lab --example pages -- DIRECTORY [ID...]`. Without an id, a few
//! that are quick. `zonda lab run` does the same on all processors, and keeps what it measured.
#![allow(clippy::disallowed_methods, reason = "an example is a program: it reads its arguments and writes files")]

use std::path::PathBuf;
use std::{env, fs};

use zonda_lab::{LabExperiment, Outcome, builtin, site};
use zonda_profiles::BUILTIN;
use zonda_stack::Profiles;

/// Plots over sizes, depths, names and percentiles, with and without published points.
const QUICK: [&str; 4] = ["ezns-table-2", "ezns-table-3", "zapraid-figure-1b", "study-figure-4b"];

fn main() {
    let mut words = env::args().skip(1);
    let Some(directory) = words.next().map(PathBuf::from) else {
        eprintln!("usage: pages DIRECTORY [ID...]");
        std::process::exit(2);
    };
    let mut ids: Vec<String> = words.collect();
    if ids.is_empty() {
        ids = QUICK.map(str::to_owned).into();
    }
    let entries: Vec<(LabExperiment, Outcome)> = ids.iter().map(|id| measured(id)).collect();
    for file in site(&entries) {
        let path = directory.join(&file.path);
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("the directory can be made");
        fs::write(&path, &file.text).expect("the file can be written");
    }
    println!("Report: {}", directory.join("index.html").display());
}

fn measured(id: &str) -> (LabExperiment, Outcome) {
    let experiment = builtin(id, &Profiles::without_files(BUILTIN))
        .unwrap_or_else(|| panic!("there is no experiment {id}: see zonda lab list"));
    println!("{id}: {}", experiment.title);
    let measurements = experiment.points.iter().map(|point| point.measure(&experiment.metrics, experiment.seeds, None));
    let outcome = Outcome { measurements: measurements.collect() };
    (experiment, outcome)
}
