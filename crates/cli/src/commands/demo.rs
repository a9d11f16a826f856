//! `zonda demo`: a tour of what zones can do, told from one run.

use std::path::{Path, PathBuf};

use clap::Args;
use zonda_stack::{Experiment, ExperimentResult, no_files};
use zonda_workload::{JobResult, RequestKind};

use crate::commands::bench::measure;
use crate::errors::Failure;
use crate::output::{Screen, print};
use crate::{figures, files, report, units, zone_map};

/// The job file that is run.
const TOUR: &str = include_str!("../../../../examples/tour.toml");

pub(crate) const LONG_ABOUT: &str = "A short tour: a drive is filled, read, finished and reset.

Runs examples/tour.toml on a simulated drive, which takes a second, says in a few sentences what happened, and writes a \
report to look at.";

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  zonda demo\n  zonda demo --out out/tour")]
pub(crate) struct DemoArgs {
    /// Where report.html goes
    #[arg(long, value_name = "DIR", default_value = "zonda-demo")]
    out: PathBuf,
    /// Shows no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let experiment = Experiment::parse(TOUR, &no_files).expect("the tour is tested");
    let screen = Screen::of_stdout();
    print(&introduction(&experiment, screen))?;
    let result = measure(&experiment, args.quiet);
    print(&told(&result, screen))?;
    files::make_directory(&args.out)?;
    files::write(&args.out, "tour.toml", TOUR)?;
    files::write(&args.out, "report.html", &report::html(TOUR, &result))?;
    print(&next_steps(&args.out))
}

fn introduction(experiment: &Experiment, screen: Screen) -> String {
    let profile = experiment.drive().profile();
    let geometry = experiment.drive().geometry();
    let zones = units::count(u64::from(geometry.zone_count));
    let capacity = units::bytes(geometry.zone_capacity_bytes());
    let limit = geometry.max_active_zones.map_or_else(String::new, |limit| {
        format!(" At most {limit} of them may be active, that is partly written, at a time.")
    });
    let text = format!(
        "This drive does not exist: it is simulated. It has {} dies of flash and shows {zones} zones of {capacity}. A zone \
         is written from its start to its end, and is reset as a whole before it is written again: the drive need not move \
         data behind the host's back, as ordinary SSDs do.{limit}",
        profile.dies()
    );
    let time = experiment.plan().time().map_or_else(String::new, |time| format!("{time} of "));
    let jobs = experiment.plan().job_names().count();
    let now = format!("Now {jobs} jobs use it at the same time, for {time}virtual time.");
    format!("{}\n{}\n", screen.paragraph(&text, 0), screen.paragraph(&now, 0))
}

fn told(result: &ExperimentResult, screen: Screen) -> String {
    let mut text = String::new();
    for sentence in sentences(result) {
        let paragraph = screen.paragraph(&sentence, 2);
        text += &format!("* {}", paragraph.trim_start());
    }
    text += &format!("\n{}\n", screen.bold("The zones at the end"));
    text += &zone_map::draw(&result.drive, screen);
    text += &format!("\n{}\n", screen.bold("How fast, and how long each command took"));
    text + &figures::jobs(result, screen)
}

/// What each job did, and what it shows.
fn sentences(result: &ExperimentResult) -> Vec<String> {
    let of_job = |job: &JobResult| match job.name.as_str() {
        "log" => of_log(job),
        "reader" => of_reader(job),
        "finisher" => of_finisher(result, job),
        "cleaner" => of_cleaner(job),
        "fan" => of_fan(result, job),
        _ => None,
    };
    result.run.jobs.iter().filter_map(of_job).collect()
}

fn of_log(job: &JobResult) -> Option<String> {
    let appends = job.kind(RequestKind::Append)?;
    Some(format!(
        "Eight writers append to a zone each, and go on to the next when it is full: {} at {} MiB/s. A zone of this drive \
         lies on one die, and no zone is written faster than its die can program.",
        units::bytes(appends.bytes),
        units::mib_per_second(appends.bandwidth_bytes_per_second)
    ))
}

fn of_reader(job: &JobResult) -> Option<String> {
    let reads = job.kind(RequestKind::Read)?;
    Some(format!(
        "A reader has 16 requests under way all the time, and gets {} reads done in a second. Half of them take at most {}. \
         One in a hundred takes more than {}: it found its die or its channel at work for somebody else.",
        units::count(reads.iops as u64),
        units::time(reads.latency.p50_ns),
        units::time(reads.latency.p99_ns)
    ))
}

fn of_finisher(result: &ExperimentResult, job: &JobResult) -> Option<String> {
    let finishes = job.kind(RequestKind::Finish)?;
    Some(format!(
        "A writer with nothing more to write finishes {} at 40%. The drive fills up the rest, {} in all, which takes {} each \
         and wears the flash: it wrote {:.2} times what the host did. That is its write amplification.",
        units::counted(finishes.operations, "zone"),
        units::bytes(result.drive.counters.programmed_padding_bytes),
        units::time(finishes.latency.p50_ns),
        result.drive.dlwa
    ))
}

fn of_cleaner(job: &JobResult) -> Option<String> {
    let resets = job.kind(RequestKind::Reset)?;
    Some(format!(
        "A cleaner resets {} full of old data. A reset takes {}, because nothing is erased yet: a die erases when it needs \
         the room.",
        units::counted(resets.operations, "zone"),
        units::time(resets.latency.p50_ns)
    ))
}

fn of_fan(result: &ExperimentResult, job: &JobResult) -> Option<String> {
    let appends = job.kind(RequestKind::Append)?;
    let active = result.drive.zones_by_state.iter();
    let active =
        active.filter(|count| ["implicitly opened", "explicitly opened", "closed"].contains(&count.state.as_str()));
    let active: u32 = active.map(|count| count.zones).sum();
    let limit = result.drive.max_active_zones?;
    Some(format!(
        "One more writer goes round 16 zones, at most 300 MiB/s; it gets {} MiB/s, because all writers share one write \
         buffer, and that is full. At the end {active} zones are active, and {limit} may be.",
        units::mib_per_second(appends.bandwidth_bytes_per_second)
    ))
}

fn next_steps(out: &Path) -> String {
    format!(
        "\nLook at {report} in a browser, and at {job} for what was run.\n\
         Change it and run it again: zonda bench {job} --out {out}\n",
        report = out.join("report.html").display(),
        job = out.join("tour.toml").display(),
        out = out.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_of_the_tour_has_its_sentence() {
        let experiment = Experiment::parse(TOUR, &no_files).unwrap();
        let result = experiment.run(&mut |_| {});
        assert_eq!(sentences(&result).len(), result.run.jobs.len());
        assert!(result.run.jobs.iter().all(|job| job.errors.is_empty()));
    }
}
