//! `zonda lab spread`: measures how far results vary with the seed and with loads that the papers
//! leave open.

use std::num::NonZero;
use std::path::Path;
use std::time::Instant;

use zonda_lab::{
    LabError, LabExperiment, Metric, Outcome, Point, ResultPlan, Spread, SpreadSummary, Variation, Verdict,
};
use zonda_profiles::BUILTIN;
use zonda_stack::Profiles;

use super::{SpreadArgs, pick};
use crate::errors::Failure;
use crate::files::{self, BUILTIN_PROFILES};
use crate::output::{Screen, print, print_json};
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::table::Table;
use crate::units::{counted, significant};

/// The head of the file of spreads.
const HEAD: &str = "# Spreads of results: values with each seed, and with other values of the loads that the papers leave open.\n\
                    # `zonda lab spread --write FILE` writes this file.\n";

/// Runs of an experiment: those with its own loads, or with one of them varied.
struct Runs {
    experiment: LabExperiment,
    variation: Option<Variation>,
    /// The results that they are for, by index.
    results: Vec<usize>,
}

pub(super) fn run(args: &SpreadArgs) -> Result<(), Failure> {
    let experiments = match args.what.is_empty() {
        true => pick::all().into_iter().map(|experiment| (experiment, None)).collect(),
        false => pick::picked_with_files(&args.what)?,
    };
    if let Some((_, Some(file))) = experiments.iter().find(|(own, file)| file.is_some() && own.results.is_empty()) {
        let help = "add the tables [[result]] that are to be compared, as zonda lab show ID prints them";
        return Err(Failure::input(format!("{file} has no results whose spread could be measured"), help));
    }
    let mut spreads: Vec<(Spread, ResultPlan)> = Vec::new();
    for (place, (experiment, file)) in experiments.iter().enumerate() {
        let read_file = files::reader_beside(file.unwrap_or_default());
        let profiles = Profiles::new(BUILTIN, &read_file);
        let runs = runs_of(experiment, args.seeds.get(), file.map_or(&BUILTIN_PROFILES, |_| &profiles))?;
        let title =
            format!("{} of {}: {}", place + 1, counted(experiments.len() as u64, "experiment"), experiment.title);
        let outcomes = measure(&runs, args.threads, args.quiet, &title);
        let measured = spreads_of(&runs, &outcomes);
        if let Some(path) = &args.write {
            keep(path, measured.iter().map(|(spread, _)| spread))?;
        }
        spreads.extend(measured);
    }
    if args.json {
        let all: Vec<&Spread> = spreads.iter().map(|(spread, _)| spread).collect();
        return print_json(&all);
    }
    print(&table(&spreads))
}

/// The runs of an experiment that has results, with the profiles that it may name.
fn runs_of(experiment: &LabExperiment, seeds: u32, profiles: &Profiles<'_>) -> Result<Vec<Runs>, Failure> {
    let is_simulated = |place: &usize| !experiment.is_of_host(&experiment.results[*place]);
    let results: Vec<usize> = (0..experiment.results.len()).filter(is_simulated).collect();
    let mut own = experiment.clone().for_results(&results);
    own.seeds = seeds;
    let mut runs = vec![Runs { experiment: own, variation: None, results }];
    for open in &experiment.open {
        for variation in open.variations() {
            let varied = experiment.varied(&variation, profiles).map_err(|error| failure(&error))?;
            runs.extend(varied.map(|varied| Runs {
                experiment: varied.for_results(&open.results),
                variation: Some(variation),
                results: open.results.clone(),
            }));
        }
    }
    Ok(runs)
}

fn failure(error: &LabError) -> Failure {
    let message = match error {
        LabError::File(error) => error.to_string(),
        LabError::Point { point, error } => format!("{point}: {}", error.error),
    };
    Failure::input(message, "correct the [[open]] table of the experiment")
}

fn measure(runs: &[Runs], threads: Option<NonZero<usize>>, quiet: bool, title: &str) -> Vec<Outcome> {
    let points = |runs: &'_ Runs| runs.experiment.points.len();
    let work: Vec<(&[Metric], u32, &Point)> = runs
        .iter()
        .flat_map(|of| {
            let (metrics, seeds) = (&of.experiment.metrics[..], of.experiment.seeds);
            of.experiment.points.iter().map(move |point| (metrics, seeds, point))
        })
        .collect();
    let mut bar = Progress::new(quiet);
    let started = Instant::now();
    let clock = || started.elapsed().as_nanos() as u64;
    let run = |&(metrics, seeds, point): &(&[Metric], u32, &Point)| point.measure(metrics, seeds, Some(&clock));
    let measured = in_parallel(&work, threads, run, |count, _| {
        bar.show(Some(count as f64 / work.len() as f64), || title.to_owned());
    });
    bar.finish();
    let mut measured = measured.into_iter();
    runs.iter().map(|of| Outcome { measurements: measured.by_ref().take(points(of)).collect() }).collect()
}

/// The spread of each result, and the result.
fn spreads_of(runs: &[Runs], outcomes: &[Outcome]) -> Vec<(Spread, ResultPlan)> {
    let Some((own, varied)) = runs.split_first() else { return Vec::new() };
    let spread = |place: &usize| {
        let plan = &own.experiment.results[*place];
        let mut spread = Spread::of_seeds(&own.experiment, &outcomes[0], plan)?;
        for (runs, outcome) in varied.iter().zip(&outcomes[1..]).filter(|(runs, _)| runs.results.contains(place)) {
            let value = outcome.result(&runs.experiment, plan);
            if let (Some(variation), Some(value)) = (&runs.variation, value) {
                spread.add(variation, value.mean);
            }
        }
        Some((spread, plan.clone()))
    };
    own.results.iter().filter_map(spread).collect()
}

/// Replaces these spreads in a file, which need not exist.
fn keep<'a>(path: &Path, new: impl Iterator<Item = &'a Spread> + Clone) -> Result<(), Failure> {
    let shown = path.display();
    let old = if path.exists() { files::read_text(&path.to_string_lossy(), HEAD)? } else { String::new() };
    let mut spreads = Spread::parse(&old).map_err(|error| {
        Failure::input(format!("{shown} is not a file of spreads: {}", error.message()), "choose another file")
    })?;
    spreads.retain(|spread| new.clone().all(|new| new.result != spread.result));
    spreads.extend(new.cloned());
    spreads.sort_by(|one, other| one.result.cmp(&other.result));
    let text: String = spreads.iter().map(|spread| format!("\n{}", spread.text())).collect();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else {
        return Err(Failure::input(format!("{shown} is not the name of a file"), "choose another file"));
    };
    files::write(directory, &name.to_string_lossy(), &format!("{HEAD}{text}"))
}

fn table(spreads: &[(Spread, ResultPlan)]) -> String {
    let screen = Screen::of_stdout();
    let mut table =
        Table::new(&["result", "unit", ">published", ">minimum", ">maximum", ">seeds met", ">loads met", "verdict"]);
    for (spread, plan) in spreads {
        let summary = spread.summary(plan, None);
        table.row(&[
            plan.id.clone(),
            plan.unit.clone(),
            significant(plan.published),
            significant(summary.low),
            significant(summary.high),
            format!("{} of {}", summary.seeds_met, summary.seeds),
            if summary.loads == 0 { "-".to_owned() } else { format!("{} of {}", summary.loads_met, summary.loads) },
            verdict(&summary).name().to_owned(),
        ]);
    }
    table.render(screen, 0)
}

/// By the seeds and loads alone.
fn verdict(summary: &SpreadSummary) -> Verdict {
    match summary.seeds_met {
        0 => Verdict::Missed,
        _ if summary.crosses() => Verdict::Fragile,
        _ => Verdict::Met,
    }
}
