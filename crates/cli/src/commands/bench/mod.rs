//! `zonda bench`: runs a job file.

pub(crate) mod live;
mod out;
mod target;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use zonda_config::{ConfigError, TimeSpan};
use zonda_devices::{IO_QUEUES_MAX, QUEUE_DEPTH_MAX};
use zonda_profiles::BUILTIN;
use zonda_stack::{Experiment, ExperimentResult, Profiles};

use crate::commands::connect::{ConnectArgs, HEADING};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::results::Subject;
use crate::{figures, files, units};

pub(crate) const LONG_ABOUT: &str = "Run a job file on a simulated or an existing drive, and show the results.

A job file is TOML: [drive] names a drive profile, each [[job]] describes a workload. On a simulated drive time is virtual: \
the same file and seed give the same result, byte for byte, on any machine.

    [drive]
    profile = \"zn540\"

    [[job]]
    operation = \"append\"
    zones = \"0..4\"
    block_size = \"16 KiB\"
    queue_depth = 4
    bytes = \"1 GiB\"

With --target the jobs run in real time: on an image, or over NVMe/TCP on a namespace of zonda's server or any other. \
The file must not contain [drive]. The zones of the jobs are reset first, and zones that jobs read are filled: all data in \
them is lost. Other zones are not changed.

Instead of jobs, a file may contain a table [store]: a key-value store on zones (docs/guide/stores.md).

docs/guide/job-files.md describes the keys of jobs, docs/guide/stacks.md those of drives, and of layers around them (faults, delays, traces, schedulers). The exit code is 1 if \
a job failed or verification ([run] verify = true) found a wrong block.";

const EXAMPLES: &str = "Examples:
  zonda bench examples/randread.toml                 print figures and a zone map
  zonda bench examples/append.toml --out results     write HTML, CSV and JSON files
  zonda bench examples/tour.toml --json | jq .drive.dlwa
  zonda bench examples/store.toml --out results      run a key-value store
  zonda bench - < job.toml                           read the standard input

  zonda bench --target drives/a examples/target.toml
  zonda bench examples/target.toml --yes \\
      --target nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:a
  zonda bench --target URL job.toml --queues 4 --depth 64 --spin 20us --verbose";

/// The guide to job files.
const JOB_FILES: &str = "docs/guide/job-files.md";
/// The heading of the options of runs in real time.
const REAL: &str = "Running on an existing drive";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Job file, or - for the standard input
    #[arg(value_name = "JOB.toml")]
    file: String,
    /// Print the result as one JSON object and nothing else
    #[arg(long)]
    json: bool,
    /// Write report.html, result.json, series.csv, drive.csv, zones.csv and job.toml to this
    /// directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Override the seed of the job file
    #[arg(long, value_name = "N", value_parser = units::whole_number)]
    seed: Option<u64>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
    /// Print one wide table with all figures of each job
    #[arg(long)]
    wide: bool,
    /// Also show the speed of the simulation, or the CPU time of the client
    #[arg(long, short)]
    verbose: bool,
    /// Run in real time on an image, on a zoned drive such as /dev/nvme0n1, or on nvme-tcp://HOST:PORT/NQN
    #[arg(long, value_name = "DIR|DEVICE|URL", help_heading = REAL)]
    target: Option<String>,
    /// Confirm that all data in the zones of the jobs is lost
    #[arg(long, requires = "target", help_heading = REAL)]
    yes: bool,
    /// Allow writing to a member of a volume, which may destroy data of the volume
    #[arg(long, requires = "target", help_heading = REAL)]
    force: bool,
    /// Poll for completions for this long before sleeping, to reduce latency [default: 50us]
    #[arg(long, value_name = "TIME", requires = "target", help_heading = REAL)]
    spin: Option<TimeSpan>,
    /// Number of I/O queues, each a connection [default: 1]
    #[arg(long, value_name = "N", requires = "target", help_heading = HEADING,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(IO_QUEUES_MAX)))]
    queues: Option<u16>,
    /// Maximum number of outstanding commands in each queue [default: 128]
    #[arg(long, value_name = "N", requires = "target", help_heading = HEADING,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(QUEUE_DEPTH_MAX)))]
    depth: Option<u16>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    if let Some(place) = &args.target {
        return target::run(place, args);
    }
    if args.connect.is_given() {
        return Err(Failure::input(
            "connection options need a target",
            "add --target URL, or remove these options to simulate the drive",
        ));
    }
    let text = files::read_text(&args.file, files::EXAMPLES)?;
    let mut experiment =
        Experiment::parse(&text, &Profiles::new(BUILTIN, &files::reader_beside(&args.file))).map_err(|mut error| {
            if is_experiment(&error.error, &text) {
                let run = format!("this file is an experiment: zonda lab run {} runs it", args.file);
                error.error = error.error.help(run);
            }
            Failure::in_file_of_keys(error, files::shown(&args.file), &text, JOB_FILES)
        })?;
    if let Some(seed) = args.seed {
        experiment = experiment.with_seed(seed);
    }
    // A directory that cannot be written is reported before the run.
    if let Some(directory) = &args.out {
        files::make_directory(directory)?;
    }
    let started = Instant::now();
    let result = measure(&experiment, args.quiet);
    let seconds = started.elapsed().as_secs_f64();
    let commands = result.drive.counters.commands_completed + result.drive.counters.commands_refused;
    let speed = units::digits(commands as f64 / seconds.max(1e-9));
    let cost = format!("Simulated {} in {seconds:.2} s: {speed} per second", units::counted(commands, "command"));
    show(args, &text, &result, Subject::Simulated(&result), &cost)
}

/// Whether an error in a job file is about a key that only experiments of the lab have.
fn is_experiment(error: &ConfigError, text: &str) -> bool {
    let root = text.parse::<toml::Table>().ok().filter(|_| error.message.starts_with("unknown key"));
    root.is_some_and(|root| root.contains_key("about") || root.contains_key("measure"))
}

/// Writes and prints the results of a run; fails if the run failed.
fn show(
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
        print(&format!("\nReport: {}\n", directory.join("report.html").display()))?;
    }
    verdict
}

/// Runs an experiment and shows progress.
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
