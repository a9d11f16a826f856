//! `zonda lab`: published measurements, repeated on the model and compared.

mod compare;
mod pick;
mod run;
mod show;
mod store;
mod work;

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::errors::Failure;

pub(crate) const LONG_ABOUT: &str = "Repeats published measurements of drives on the model, and shows ours beside them.

Each experiment is a file: a drive, a load, what is varied and measured, and which published numbers it is held against. \
`zonda lab show ID` prints the file; copy it, change it, and run it with `zonda lab run ./mine.toml`. The format is \
explained in docs/guide/experiments.md.

Every point is run with several seeds, after a warm-up whose length a rule finds. The same program and file give the same \
numbers on every machine.";

const EXAMPLES: &str = "Examples:
  zonda lab list
  zonda lab run ezns-table-2          one experiment
  zonda lab run zapraid               all of a paper
  zonda lab run --all                 all there are, and the pages in out/lab/index.html
  zonda lab compare                   published against ours
  zonda lab compare --json | jq '.[] | select(.met | not)'
  zonda lab show ezns-table-2 > mine.toml; zonda lab run ./mine.toml";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum LabCommand {
    /// Lists the experiments
    List {
        /// Prints a list of JSON objects, and nothing else
        #[arg(long)]
        json: bool,
    },
    /// Runs experiments, and makes their pages
    #[command(after_long_help = EXAMPLES)]
    Run(RunArgs),
    /// Published numbers against ours, from the experiments that were run or are run now
    #[command(after_long_help = EXAMPLES)]
    Compare(CompareArgs),
    /// Prints the file of an experiment, to be copied and changed
    Show {
        /// The experiment, or a published result
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Experiments, papers, ids of published results, or files that end in .toml
    #[arg(value_name = "ID|PAPER|FILE.toml", required_unless_present = "all")]
    what: Vec<String>,
    /// All experiments that come with zonda
    #[arg(long, conflicts_with = "what")]
    all: bool,
    #[command(flatten)]
    how: HowArgs,
    /// Prints what was measured as JSON, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Experiments, papers, ids of published results, or files that end in .toml; default all that come with zonda
    #[arg(value_name = "ID|PAPER|FILE.toml")]
    what: Vec<String>,
    /// Prints a list of JSON objects, and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: HowArgs,
}

/// How experiments are run.
#[derive(Debug, Args)]
struct HowArgs {
    /// Where pages and measurements go
    #[arg(long, value_name = "DIR", default_value = "out/lab")]
    out: PathBuf,
    /// Runs at a time; default one for each processor
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// Measures again what was measured before
    #[arg(long)]
    anew: bool,
    /// Shows no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::List { json } => show::list(*json),
        LabCommand::Run(args) => run::run(args),
        LabCommand::Compare(args) => compare::run(args),
        LabCommand::Show { id } => show::file(id),
    }
}
