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
mod parallel;
mod progress;
mod report;
mod results;
mod table;
mod units;
mod zone_map;

use std::process::ExitCode;

/// The system's gives large buffers back at once, and takes them anew with a page fault for each page.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

use clap::{Parser, Subcommand};

use commands::{advise, bench, demo, drive, lab, secret, serve, sim, status, volume, zone};

/// A storage stack for zoned (NVMe ZNS) SSDs: serve a drive, simulate one, measure it, learn how it works.
#[derive(Debug, Parser)]
#[command(name = "zonda", version, max_term_width = 100, after_help = FIRST_STEPS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What a person who has never used zonda does first.
const FIRST_STEPS: &str = "First steps:
  zonda demo                      a tour: a drive is filled, read, finished and reset; another is served
  zonda drive profiles            which drives there are
  zonda bench examples/tour.toml  run a job file
  zonda serve                     a drive that keeps its data, for hosts to connect to
  zonda sim                       try to find a bug in the drive model

Exit codes: 0 fine; 1 the run failed; 2 the input or the usage is wrong.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes drives that keep their data, checks them, and shows those that zonda knows
    #[command(subcommand)]
    Drive(drive::DriveCommand),
    /// Serves drives over NVMe/TCP
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(serve::ServeArgs),
    /// Shows how a running server is doing
    #[command(long_about = status::LONG_ABOUT)]
    Status(status::StatusArgs),
    /// Looks at zones, and resets, finishes, opens or closes them
    #[command(subcommand, long_about = zone::LONG_ABOUT)]
    Zone(zone::ZoneCommand),
    /// Makes one redundant volume of several drives, and looks after it
    #[command(subcommand, long_about = volume::LONG_ABOUT)]
    Volume(volume::VolumeCommand),
    /// Gives members of volumes up, and replaces them
    #[command(subcommand, long_about = volume::MEMBER_LONG_ABOUT)]
    Member(volume::MemberCommand),
    /// Makes a secret for authentication
    #[command(long_about = secret::LONG_ABOUT)]
    Secret(secret::SecretArgs),
    /// Runs a job file on a simulated drive, or on one that is there, and shows what came of it
    #[command(long_about = bench::LONG_ABOUT)]
    Bench(bench::BenchArgs),
    /// Tests the drive model with random worlds, one for each seed
    #[command(long_about = sim::LONG_ABOUT)]
    Sim(sim::SimArgs),
    /// Repeats published measurements on the model, and compares
    #[command(subcommand, long_about = lab::LONG_ABOUT)]
    Lab(lab::LabCommand),
    /// Says which zones a drive should have for a load
    #[command(long_about = advise::LONG_ABOUT)]
    Advise(advise::AdviseArgs),
    /// A short tour: a drive is filled, read, finished and reset; then one is served and used
    #[command(long_about = demo::LONG_ABOUT)]
    Demo(demo::DemoArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Drive(command) => drive::run(&command),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Zone(command) => zone::run(&command),
        Command::Volume(command) => volume::run(&command),
        Command::Member(command) => volume::run_member(&command),
        Command::Secret(args) => secret::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Lab(command) => lab::run(&command),
        Command::Advise(args) => advise::run(&args),
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
