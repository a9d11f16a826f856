//! `zonda advise`: recommends the zone settings of a drive for a workload.

mod input;
mod text;

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use clap::{ArgGroup, Args, ValueEnum};
use zonda_advise::{Advice, AdvicePlan, Load, Measurement, Task};
use zonda_workload::filetrace::{Preset, write_trace};

use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::{files, units};

pub(crate) const LONG_ABOUT: &str = "Recommend zone settings of a drive for a workload: storage element (the unit of flash that zones are composed of), zone size, parallelism, and \
the fill level at which the host finishes a zone.

Runs every candidate that the flash of the drive allows on the drive model: a preconditioned drive with files on it, under the \
workload. Ranks the results by the metrics that matter for the workload, plots write amplification, space amplification and \
throughput, and compares the ranking with the recommendation of the SilentZNS paper.

The workload is one of five presets (wal, flush, compaction, mixed, read) or a trace of file operations \
(docs/guide/file-traces.md). docs/guide/advise.md describes the measurements and their weights. The same program, profile, \
workload and seed give the same result.";

const EXAMPLES: &str = "Examples:
  zonda advise --workload wal
  zonda advise --workload mixed --geometry zn540-emulated
  zonda advise --trace rocksdb.trace --top 20
  zonda advise --trace rocksdb.trace --workload mixed   use the weights of mixed
  zonda advise --workload flush --json | jq '.ranking[0]'";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, group(ArgGroup::new("load").required(true).multiple(true).args(["workload", "trace"])))]
pub(crate) struct AdviseArgs {
    /// Workload; with --trace, the workload whose weights rank the results
    #[arg(long, value_name = "KIND")]
    workload: Option<WorkloadArg>,
    /// Trace of file operations, or - for the standard input
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Drive profile: a built-in name, or the path of a .toml file
    #[arg(long, value_name = "PROFILE", default_value = "silent-custom")]
    geometry: String,
    /// Show the N best candidates instead of the best of each storage element
    #[arg(long, value_name = "N", value_parser = units::at_least_one::<NonZero<usize>>)]
    top: Option<NonZero<usize>>,
    /// Print everything as one JSON object and nothing else
    #[arg(long)]
    json: bool,
    /// Directory for the page, the figures and the workload
    #[arg(long, value_name = "DIR", default_value = "out/advise")]
    out: PathBuf,
    /// Seed from which the workload is generated
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of runs in parallel [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = units::at_least_one::<NonZero<usize>>)]
    threads: Option<NonZero<usize>>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

/// The presets and their help texts.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkloadArg {
    /// Write-ahead logs with small synced commits, next to a bulk writer
    Wal,
    /// Memtable flushes and partial compactions, four at a time
    Flush,
    /// Bulk ingest and major compactions of large files
    Compaction,
    /// A log-structured store with data of all lifetimes
    Mixed,
    /// Data written once and then read, mostly at random
    Read,
}

impl WorkloadArg {
    fn preset(self) -> Preset {
        match self {
            WorkloadArg::Wal => Preset::Wal,
            WorkloadArg::Flush => Preset::Flush,
            WorkloadArg::Compaction => Preset::Compaction,
            WorkloadArg::Mixed => Preset::Mixed,
            WorkloadArg::Read => Preset::Read,
        }
    }
}

/// Default number of candidates in the charts of the page.
const CHARTED: usize = 8;

pub(crate) fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let base = input::base(&args.geometry)?;
    let preset = args.workload.map(WorkloadArg::preset);
    let trace_text = args.trace.as_deref().map(input::trace_text).transpose()?;
    let load = match (&args.trace, &trace_text, preset) {
        (Some(path), Some(text), judged_as) => Load::trace(files::shown(path), input::trace(path, text)?, judged_as),
        (_, _, Some(preset)) => Load::preset(preset, &base, args.seed),
        _ => unreachable!("the command line requires one of the two"),
    };
    // A directory that cannot be written is reported before the runs.
    files::make_directory(&args.out)?;
    let in_words = |error: zonda_config::ConfigError| {
        let help =
            error.help.unwrap_or_else(|| "docs/guide/advise.md describes the options and their limits".to_owned());
        Failure::input(error.message, help)
    };
    let plan = AdvicePlan::new(&base, &load, args.seed).map_err(in_words)?;
    let started = Instant::now();
    let advice = plan.advise(&mut runner(args, plan.runs_max())).map_err(in_words)?;
    let seconds = started.elapsed().as_secs_f64();
    write(args, &advice, &load)?;
    if args.json {
        return print_json(&advice);
    }
    let shown = text::text(&advice, args.top.map(NonZero::get), Screen::of_stdout());
    let runs = units::counted((advice.ranking.len() + advice.failed.len()) as u64, "run");
    print(&format!("{shown}\n{runs} in {seconds:.1} s\nReport: {}\n", args.out.join("index.html").display()))
}

/// Runs tasks on all processors and shows progress.
fn runner(args: &AdviseArgs, runs_max: usize) -> impl FnMut(&[Task<'_>]) -> Vec<Measurement> {
    let mut done_before = 0;
    move |tasks| {
        let mut bar = Progress::new(args.quiet);
        let measured = in_parallel(tasks, args.threads, Task::measure, |count, task| {
            let done = done_before + count;
            bar.show(Some(done as f64 / runs_max as f64), || {
                format!("{done} of at most {}: {}", units::counted(runs_max as u64, "run"), task.candidate())
            });
        });
        bar.finish();
        done_before += tasks.len();
        measured
    }
}

/// Writes the page, the JSON, and the workload if it was generated.
fn write(args: &AdviseArgs, advice: &Advice, load: &Load<'_>) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(advice).expect("advice holds only text keys and finite numbers");
    let charted = args.top.map_or(CHARTED, NonZero::get);
    files::write(&args.out, "index.html", &zonda_advise::page::html(advice, charted))?;
    files::write(&args.out, "advice.json", &(json + "\n"))?;
    if load.is_made() {
        let mut text = String::new();
        write_trace(&mut text, load.entries()).expect("a string takes everything");
        files::write(&args.out, "load.trace", &text)?;
    }
    Ok(())
}
