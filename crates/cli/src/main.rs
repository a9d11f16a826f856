//! The `zonda` program: drives, volumes, benchmarks and simulation from the command line.
//!
//! Each command is a file or directory under `commands/`; it prints its result or returns an
//! [`errors::Failure`]. Only `main` exits the process.
#![forbid(unsafe_code)]

mod commands;
mod errors;
mod figures;
mod files;
mod output;
mod parallel;
mod progress;
mod remedies;
mod report;
mod results;
mod signals;
mod table;
mod units;
mod zone_map;

use std::process::ExitCode;

/// The system allocator unmaps large buffers as soon as they are freed; mapping them again costs a
/// page fault for each page.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

#[cfg(feature = "simulation")]
use commands::sim;
use commands::{advise, bench, demo, drive, lab, pool, probe, reload, secret, serve, status, top, volume, zone};

/// A storage stack for zoned (NVMe ZNS) SSDs: serve, simulate and benchmark drives
#[derive(Debug, Parser)]
#[command(name = "zonda", version, max_term_width = 100, after_help = FIRST_STEPS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// First steps of a new user.
const FIRST_STEPS: &str = "First steps:
  zonda demo                      take a tour of a simulated and a served drive
  zonda drive profiles            list the built-in drive profiles
  zonda bench examples/tour.toml  run a job file
  zonda serve                     serve a persistent drive over NVMe/TCP

Exit codes: 0 success; 1 the run failed; 2 invalid input or usage.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Create, check, repair and show drive images and profiles
    #[command(subcommand)]
    Drive(drive::DriveCommand),
    /// Serve drives over NVMe/TCP and NBD
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(serve::ServeArgs),
    /// Show the status of a running server
    #[command(long_about = status::LONG_ABOUT)]
    Status(status::StatusArgs),
    /// Show the activity of a running server, live
    #[command(long_about = top::LONG_ABOUT)]
    Top(top::TopArgs),
    /// Reload the configuration file of a running server
    #[command(long_about = reload::LONG_ABOUT)]
    Reload(reload::ReloadArgs),
    /// Report, reset, finish, open and close zones
    #[command(subcommand, long_about = zone::LONG_ABOUT)]
    Zone(zone::ZoneCommand),
    /// Create and manage redundant volumes of several drives
    #[command(subcommand, long_about = volume::LONG_ABOUT)]
    Volume(volume::VolumeCommand),
    /// Fail, re-add and replace members of volumes
    #[command(subcommand, long_about = volume::MEMBER_LONG_ABOUT)]
    Member(volume::MemberCommand),
    /// Create and show pools: a zoned drive for several tenants
    #[command(subcommand, long_about = pool::LONG_ABOUT)]
    Pool(pool::PoolCommand),
    /// Create, list, resize and delete the namespaces of a pool
    #[command(subcommand, long_about = pool::NAMESPACE_LONG_ABOUT)]
    Namespace(pool::NamespaceCommand),
    /// Generate a secret for DH-HMAC-CHAP authentication
    #[command(long_about = secret::LONG_ABOUT)]
    Secret(secret::SecretArgs),
    /// Run a job file on a simulated or an existing drive
    #[command(long_about = bench::LONG_ABOUT)]
    Bench(bench::BenchArgs),
    /// Test zonda with random scenarios, one for each seed
    #[cfg(feature = "simulation")]
    #[command(long_about = sim::LONG_ABOUT)]
    Sim(sim::SimArgs),
    /// Reproduce published measurements on the drive model
    #[command(subcommand, long_about = lab::LONG_ABOUT)]
    Lab(lab::LabCommand),
    /// Recommend zone settings of a drive for a workload
    #[command(long_about = advise::LONG_ABOUT)]
    Advise(advise::AdviseArgs),
    /// Measure what a drive can do, and which of its zones disturb each other
    #[command(long_about = probe::LONG_ABOUT)]
    Probe(probe::ProbeArgs),
    /// Take a short tour of a simulated and a served drive
    #[command(long_about = demo::LONG_ABOUT)]
    Demo(demo::DemoArgs),
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| without_useless_tip(error).exit());
    signals::raise_file_limit();
    if let Err(error) = signals::survive_file_size_limits() {
        let failure = errors::Failure::input(
            format!("cannot install a signal handler: {error}"),
            "raise the limit of open files (ulimit -n)",
        );
        return failure.report();
    }
    let result = match cli.command {
        Command::Drive(command) => drive::run(&command),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Zone(command) => zone::run(&command),
        Command::Volume(command) => volume::run(&command),
        Command::Member(command) => volume::run_member(&command),
        Command::Pool(command) => pool::run(&command),
        Command::Namespace(command) => pool::run_namespace(&command),
        Command::Secret(args) => secret::run(&args),
        Command::Bench(args) => bench::run(&args),
        #[cfg(feature = "simulation")]
        Command::Sim(args) => sim::run(&args),
        Command::Lab(command) => lab::run(&command),
        Command::Advise(args) => advise::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Demo(args) => demo::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Removes the tips to escape negative numbers and unknown options: no value begins with a hyphen.
fn without_useless_tip(mut error: clap::Error) -> clap::Error {
    let is_negative =
        |text: &str| text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(text)) if is_negative(text)) {
        let tip = "numbers and sizes cannot be negative".into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    let is_escape = |tip: &clap::builder::StyledStr| tip.to_string().contains("as a value");
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let tips: Vec<_> = tips.into_iter().filter(|tip| !is_escape(tip)).collect();
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
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
