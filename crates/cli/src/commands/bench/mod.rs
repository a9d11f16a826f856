//! `zonda bench`: a job file, run.

pub(crate) mod live;
mod out;
mod target;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use zonda_config::TimeSpan;
use zonda_profiles::BUILTIN;
use zonda_stack::{Experiment, ExperimentResult, Profiles};

use crate::commands::connect::{ConnectArgs, HEADING};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::results::Subject;
use crate::{figures, files, units};

pub(crate) const LONG_ABOUT: &str = "Runs a job file on a simulated drive, or on one that is there, and shows what came of it.

A job file is TOML: [drive] names a drive, each [[job]] says what is done to it. Time is virtual: the same file and seed \
give the same result, byte for byte, on any machine.

    [drive]
    profile = \"zn540\"

    [[job]]
    operation = \"append\"
    zones = \"0..4\"
    block_size = \"16 KiB\"
    queue_depth = 4
    bytes = \"1 GiB\"

With --target the same jobs run in real time: on an image, or over NVMe/TCP on a namespace of zonda's server or any other. \
The file then has no [drive]. The zones of the jobs are reset first, and those that are read are written: what they hold is \
lost. Other zones are left alone.

Instead of jobs, a file may have a table [store]: a key-value store on zones (docs/guide/stores.md).

The keys are explained in docs/guide/job-files.md (jobs) and docs/guide/stacks.md (drives and layers). Exit code 1 if a job \
failed, or read what was not written there ([run] verify = true).";

const EXAMPLES: &str = "Examples:
  zonda bench examples/randread.toml                 figures and a map of the zones
  zonda bench examples/append.toml --out results     a report to look at, and CSV and JSON files
  zonda bench examples/tour.toml --json | jq .drive.dlwa
  zonda bench examples/store.toml --out results      a key-value store on zones
  zonda bench - < job.toml                           from the standard input

  zonda bench --target drives/a examples/target.toml
  zonda bench --target nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:a examples/target.toml --yes
  zonda bench --target URL job.toml --queues 4 --depth 64 --spin 20us --verbose";

/// The heading of the options of runs in real time.
const REAL: &str = "On a drive that is there";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// The job file, or - for the standard input
    #[arg(value_name = "JOB.toml")]
    file: String,
    /// Prints the result as one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Writes report.html, result.json, series.csv, drive.csv, zones.csv and job.toml to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Takes this seed instead of the one in the file
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Shows no progress
    #[arg(long, short)]
    quiet: bool,
    /// Shows all figures of a job in one line, however wide
    #[arg(long)]
    wide: bool,
    /// Shows as well how fast the simulation ran, or what the run cost this machine
    #[arg(long, short)]
    verbose: bool,
    /// Runs in real time: on an image, or on nvme-tcp://HOST:PORT/NQN
    #[arg(long, value_name = "DIR|URL", help_heading = REAL)]
    target: Option<String>,
    /// Agrees that what the zones of the jobs hold is lost
    #[arg(long, requires = "target", help_heading = REAL)]
    yes: bool,
    /// Writes to a drive that is a member of a volume: the volume may lose what it holds
    #[arg(long, requires = "target", help_heading = REAL)]
    force: bool,
    /// How long to look for completions before sleeping, for the lowest latency
    #[arg(long, value_name = "TIME", requires = "target", help_heading = REAL)]
    spin: Option<TimeSpan>,
    /// I/O queues, a connection each
    #[arg(long, value_name = "N", requires = "target", help_heading = HEADING)]
    queues: Option<u16>,
    /// Commands under way in each queue
    #[arg(long, value_name = "N", requires = "target", help_heading = HEADING)]
    depth: Option<u16>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    if let Some(place) = &args.target {
        return target::run(place, args);
    }
    if args.connect.is_given() {
        return Err(Failure::input("a simulated drive has no server to connect to", "write --target URL as well"));
    }
    let text = files::read_text(&args.file)?;
    let mut experiment = Experiment::parse(&text, &Profiles::new(BUILTIN, &files::reader_beside(&args.file)))
        .map_err(|error| Failure::in_experiment(&error, files::shown(&args.file), &text))?;
    if let Some(seed) = args.seed {
        experiment = experiment.with_seed(seed);
    }
    // A directory that cannot be written to is told before the run, not after.
    if let Some(directory) = &args.out {
        files::make_directory(directory)?;
    }
    let started = Instant::now();
    let result = measure(&experiment, args.quiet);
    let seconds = started.elapsed().as_secs_f64();
    let commands = result.drive.counters.commands_completed + result.drive.counters.commands_refused;
    let speed = units::digits(commands as f64 / seconds.max(1e-9));
    let cost = format!("Simulated {} in {seconds:.2} s: {speed} a second", units::counted(commands, "command"));
    tell(args, &text, &result, Subject::Simulated(&result), &cost)
}

/// Writes and prints what came of a run; a run that failed, fails.
fn tell(
    args: &BenchArgs,
    job_toml: &str,
    json: &impl Serialize,
    subject: Subject<'_>,
    cost: &str,
) -> Result<(), Failure> {
    if let Some(directory) = &args.out {
        out::write(directory, job_toml, subject)?;
    }
    let verdict = if subject.has_failed() { Err(Failure::Run) } else { Ok(()) };
    if args.json {
        print_json(json)?;
        return verdict;
    }
    print(&figures::all(subject, Screen::of_stdout(), args.wide))?;
    if args.verbose {
        print(&format!("\n{cost}\n"))?;
    }
    if let Some(directory) = &args.out {
        print(&format!("\nLook at {}\n", directory.join("report.html").display()))?;
    }
    verdict
}

/// Runs an experiment and shows how far it has come.
pub(crate) fn measure(experiment: &Experiment, quiet: bool) -> ExperimentResult {
    let mut bar = Progress::new(quiet);
    let result = experiment.run(&mut |progress| {
        bar.show(progress.fraction, || {
            let (elapsed, requests) = (progress.elapsed, units::counted(progress.operations, "request"));
            format!("{elapsed} of virtual time, {requests}, {}", units::bytes(progress.bytes))
        });
    });
    bar.finish();
    result
}
