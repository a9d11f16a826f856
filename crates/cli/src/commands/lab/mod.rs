//! `zonda lab`: reproduces published measurements on the drive model and compares the results.

mod compare;
mod pick;
mod run;
mod show;
mod spread;
mod store;
mod work;

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::errors::Failure;
use crate::units;

/// Default number of seeds of a spread.
const SPREAD_SEEDS: NonZero<u32> = NonZero::new(zonda_lab::limits::SPREAD_SEEDS).expect("it is not zero");

pub(crate) const LONG_ABOUT: &str = "Reproduce published measurements of drives on the drive model, and compare the results.

An experiment is a file with a drive, a workload, the parameters varied, the metrics measured, and the published results to \
compare with. `zonda lab show ID` prints the file; copy it, change it, and run it with `zonda lab run ./mine.toml`. \
docs/guide/experiments.md describes the format.

Runs every configuration (combination of parameters) with several seeds, and excludes a warm-up that is detected automatically. \
The same program and file give the same results on every machine.";

const EXAMPLES: &str = "Examples:
  zonda lab list
  zonda lab run ezns-table-2          run one experiment
  zonda lab run zapraid               run all experiments of a paper
  zonda lab run --all                 run all experiments
  zonda lab compare                   compare with published results
  zonda lab compare --json | jq '.results[] | select(.met | not)'
  zonda lab spread ezns-figure-17     run with 20 seeds and other loads
  zonda lab show ezns-table-2 > mine.toml; zonda lab run ./mine.toml";

const RUN_EXAMPLES: &str = "Examples:
  zonda lab run ezns-table-2          run one experiment
  zonda lab run zapraid               run all experiments of a paper
  zonda lab run --all                 run all experiments
  zonda lab run ./mine.toml           run an experiment of your own";

const COMPARE_EXAMPLES: &str = "Examples:
  zonda lab compare                   compare all results
  zonda lab compare zapraid           compare the results of a paper
  zonda lab compare --json | jq '.results[] | select(.met | not)'";

const SPREAD_EXAMPLES: &str = "Examples:
  zonda lab spread ezns-figure-17     run with 20 seeds, and with other values of open loads
  zonda lab spread zapraid --seeds 5  run the results of a paper with five seeds
  zonda lab spread mine.toml          run the results of a file";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum LabCommand {
    /// List the experiments
    List {
        /// Print a list of JSON objects and nothing else
        #[arg(long)]
        json: bool,
    },
    /// Run experiments, and write HTML pages
    #[command(after_long_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Compare published results with those of the model; run missing experiments
    #[command(after_long_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Measure how far results vary with the seed, and with loads that the papers leave open
    #[command(after_long_help = SPREAD_EXAMPLES)]
    Spread(SpreadArgs),
    /// Print the file of an experiment
    Show {
        /// ID of an experiment or of a published result
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Experiments, papers, IDs of published results, or .toml files
    #[arg(value_name = "ID|PAPER|FILE.toml", required_unless_present = "all")]
    what: Vec<String>,
    /// Run all built-in experiments
    #[arg(long, conflicts_with = "what")]
    all: bool,
    #[command(flatten)]
    how: HowArgs,
    /// Print the results as JSON and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Experiments, papers, IDs of published results, or .toml files [default: all built-in
    /// experiments]
    #[arg(value_name = "ID|PAPER|FILE.toml")]
    what: Vec<String>,
    /// Print a JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SpreadArgs {
    /// Experiments, papers, IDs of published results, or .toml files [default: all built-in
    /// experiments]
    #[arg(value_name = "ID|PAPER|FILE.toml")]
    what: Vec<String>,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = SPREAD_SEEDS)]
    seeds: NonZero<u32>,
    /// Replace the spreads of these results in a file; it is written after each experiment
    #[arg(long, value_name = "FILE.toml")]
    write: Option<PathBuf>,
    /// Number of runs in parallel [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = units::at_least_one::<NonZero<usize>>)]
    threads: Option<NonZero<usize>>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
    /// Print a list of JSON objects and nothing else
    #[arg(long)]
    json: bool,
}

/// Options for running experiments.
#[derive(Debug, Args)]
struct HowArgs {
    /// Directory for pages and measurements
    #[arg(long, value_name = "DIR", default_value = "out/lab")]
    out: PathBuf,
    /// Number of runs in parallel [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = units::at_least_one::<NonZero<usize>>)]
    threads: Option<NonZero<usize>>,
    /// Run again instead of using stored measurements
    #[arg(long, alias = "anew")]
    rerun: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::List { json } => show::list(*json),
        LabCommand::Run(args) => run::run(args),
        LabCommand::Compare(args) => compare::run(args),
        LabCommand::Spread(args) => spread::run(args),
        LabCommand::Show { id } => show::file(id),
    }
}
