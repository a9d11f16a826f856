//! `zonda bench`: a job file, run.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use zonda_stack::{Experiment, ExperimentResult, LayerResult};
use zonda_workload::EndReason;

use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::{figures, files, report, units};

pub(crate) const LONG_ABOUT: &str = "Runs a job file on a simulated drive, and shows what came of it.

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

The keys are explained in docs/guide/job-files.md (jobs) and docs/guide/stacks.md (drives and layers).";

const EXAMPLES: &str = "Examples:
  zonda bench examples/randread.toml                 figures and a map of the zones
  zonda bench examples/append.toml --out results     a report to look at, and CSV and JSON files
  zonda bench examples/tour.toml --json | jq .drive.dlwa
  zonda bench - < job.toml                           from the standard input";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// The job file, or - for the standard input
    #[arg(value_name = "JOB.toml")]
    file: String,
    /// Prints the result as one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Writes report.html, result.json, series.csv, zones.csv and job.toml to this directory
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
    /// Shows as well how fast the simulation ran
    #[arg(long, short)]
    verbose: bool,
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let text = files::read_text(&args.file)?;
    let mut experiment = Experiment::parse(&text, &files::profile_reader(&args.file))
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
    if let Some(directory) = &args.out {
        write_files(directory, &text, &result)?;
    }
    let verdict = verdict(&result);
    if args.json {
        print_json(&result)?;
        return verdict;
    }
    print(&figures::all(&result, Screen::of_stdout(), args.wide))?;
    if args.verbose {
        let commands = result.drive.counters.commands_completed + result.drive.counters.commands_refused;
        let speed = units::digits(commands as f64 / seconds.max(1e-9));
        print(&format!("\nSimulated {} in {seconds:.2} s: {speed} a second\n", units::counted(commands, "command")))?;
    }
    if let Some(directory) = &args.out {
        print(&format!("\nLook at {}\n", directory.join("report.html").display()))?;
    }
    verdict
}

/// A job that gave up after errors has failed, and one of which nothing succeeded; and the run with it.
fn verdict(result: &ExperimentResult) -> Result<(), Failure> {
    let has_failed = result.run.jobs.iter().any(|job| {
        let gave_up = matches!(job.ended_by, EndReason::Errors { .. });
        gave_up || (job.kinds.is_empty() && !job.errors.is_empty())
    });
    if has_failed { Err(Failure::Run) } else { Ok(()) }
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

fn write_files(directory: &Path, job_toml: &str, result: &ExperimentResult) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(result).expect("results hold only text keys and finite numbers");
    files::write(directory, "job.toml", job_toml)?;
    files::write(directory, "result.json", &(json + "\n"))?;
    files::write(directory, "series.csv", &series_csv(result))?;
    files::write(directory, "zones.csv", &zones_csv(result))?;
    let traces = result.layers.iter().filter_map(|layer| match layer {
        LayerResult::Trace { events, .. } => Some(events),
        _ => None,
    });
    for (index, events) in traces.enumerate() {
        let name = if index == 0 { "trace.txt".to_owned() } else { format!("trace-{}.txt", index + 1) };
        files::write(directory, &name, &(events.join("\n") + "\n"))?;
    }
    files::write(directory, "report.html", &report::html(job_toml, result))
}

/// One line for each job in each interval.
fn series_csv(result: &ExperimentResult) -> String {
    let mut text = "start_ns,length_ns,job,operations,bytes,errors,mean_latency_ns,p99_latency_ns\n".to_owned();
    for sample in &result.run.series {
        for (job, figures) in result.run.jobs.iter().zip(&sample.jobs) {
            text += &format!(
                "{},{},{},{},{},{},{},{}\n",
                sample.start_ns,
                sample.length_ns,
                quoted(&job.name),
                figures.operations,
                figures.bytes,
                figures.errors,
                figures.mean_latency_ns,
                figures.p99_latency_ns
            );
        }
    }
    text
}

/// One line for each zone.
fn zones_csv(result: &ExperimentResult) -> String {
    let mut text = "zone,state,written_blocks,written_bytes\n".to_owned();
    let block = u64::from(result.drive.block_size_bytes);
    for range in &result.drive.zones {
        for zone in range.first..range.first + range.count {
            let written = range.written_blocks;
            text += &format!("{zone},{},{written},{}\n", range.state, written * block);
        }
    }
    text
}

/// A field of a CSV file (RFC 4180): in quotes where it must be.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_comma_or_a_quote_stays_one_field() {
        assert_eq!(["log", "a,b", "say \"x\""].map(quoted), ["log", "\"a,b\"", "\"say \"\"x\"\"\""]);
    }
}
