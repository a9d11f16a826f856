//! The program zonda: drives, benchmarks and simulation from the command line.
//!
//! Each command is a file of its own under `commands/`; it returns what it has to say or a [`errors::Failure`], and nothing else
//! in here exits.
#![forbid(unsafe_code)]

mod commands;
mod errors;
mod figures;
mod files;
mod output;
mod progress;
mod report;
mod table;
mod units;
mod zone_map;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{bench, demo, drive, sim};
/// A storage stack for zoned (NVMe ZNS) SSDs: simulate a drive, measure it, learn how it works.
#[derive(Debug, Parser)]
#[command(name = "zonda", version, max_term_width = 100, after_help = FIRST_STEPS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What a person who has never used zonda does first.
const FIRST_STEPS: &str = "First steps:
  zonda demo                      a tour: a drive is filled, read, finished and reset
  zonda drive profiles            which drives there are
  zonda bench examples/tour.toml  run a job file
  zonda sim                       try to find a bug in the drive model

Exit codes: 0 fine; 1 the run failed; 2 the input or the usage is wrong.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the drives that zonda knows, and every number of one
    #[command(subcommand)]
    Drive(drive::DriveCommand),
    /// Runs a job file on a simulated drive, and shows what came of it
    #[command(long_about = bench::LONG_ABOUT)]
    Bench(bench::BenchArgs),
    /// Tests the drive model with random worlds, one for each seed
    #[command(long_about = sim::LONG_ABOUT)]
    Sim(sim::SimArgs),
    /// A short tour: a drive is filled, read, finished and reset
    #[command(long_about = demo::LONG_ABOUT)]
    Demo(demo::DemoArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Drive(command) => drive::run(&command),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Demo(args) => demo::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
