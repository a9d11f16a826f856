//! `zonda demo`: a tour of zones on a simulated drive, then on a drive image that is served and
//! used.

mod served;
mod tour;

use std::path::{Path, PathBuf};

use clap::Args;
use zonda_stack::{Experiment, ExperimentResult};

use crate::commands::bench::measure;
use crate::errors::Failure;
use crate::output::{Screen, print};
use crate::results::Subject;
use crate::{figures, files, remedies, report, units, zone_map};

/// The job file that is run.
const TOUR: &str = include_str!("../../../../../examples/tour.toml");

pub(crate) const LONG_ABOUT: &str = "Take a short tour of a simulated and a served drive.

Runs examples/tour.toml on a simulated drive (about 1 s), summarizes the results and writes an HTML report. Then creates a \
drive image, serves it over NVMe/TCP on a free port of the loopback address, runs examples/target.toml on it with zonda's \
own initiator, and stops the server (about 3 s, and less than 300 MiB of disk space).";

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  zonda demo\n  zonda demo --out out/tour")]
pub(crate) struct DemoArgs {
    /// Directory for the report and the drive image
    #[arg(long, value_name = "DIR", default_value = "zonda-demo")]
    out: PathBuf,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    remedies::refuse_inside_image(&args.out, "choose a directory outside of it with --out")?;
    let experiment = Experiment::parse(TOUR, &files::BUILTIN_PROFILES).expect("the tour is tested");
    let screen = Screen::of_stdout();
    // A directory that cannot be written is reported before the run.
    files::make_directory(&args.out)?;
    print(&introduction(&experiment, screen))?;
    let result = measure(&experiment, args.quiet);
    print(&summary(&result, screen))?;
    files::write(&args.out, "tour.toml", TOUR)?;
    files::write(&args.out, "report.html", &report::html(TOUR, Subject::Simulated(&result)))?;
    served::show(&args.out, screen, args.quiet)?;
    print(&next_steps(&args.out))
}

fn introduction(experiment: &Experiment, screen: Screen) -> String {
    let profile = experiment.drive().profile();
    let geometry = experiment.drive().geometry();
    let zones = units::count(u64::from(geometry.zone_count));
    let capacity = units::bytes(geometry.zone_capacity_bytes());
    let limit = geometry
        .max_active_zones
        .map_or_else(String::new, |limit| format!(" At most {limit} zones can be active (partly written) at a time."));
    let text = format!(
        "The first drive is simulated. It has {} flash dies and {zones} zones with a capacity of {capacity} each. A zone is \
         written sequentially, and reset as a whole before it is written again, so that the drive needs no garbage \
         collection.{limit}",
        profile.dies()
    );
    let time =
        experiment.plan().and_then(zonda_workload::Plan::time).map_or_else(String::new, |time| format!("{time} of "));
    let jobs = experiment.plan().map_or(0, |plan| plan.job_names().count());
    let now = format!("{jobs} jobs run on it concurrently, for {time}virtual time.");
    format!("{}\n{}\n", screen.paragraph(&text, 0), screen.paragraph(&now, 0))
}

fn summary(result: &ExperimentResult, screen: Screen) -> String {
    let mut text = String::new();
    for sentence in tour::sentences(result) {
        let paragraph = screen.paragraph(&sentence, 2);
        text += &format!("* {}", paragraph.trim_start());
    }
    text += &format!("\n{}\n", screen.bold("The zones at the end"));
    text += &zone_map::draw(&result.drive.zones, result.drive.zone_capacity_blocks, screen);
    text += &format!("\n{}\n", screen.bold("Throughput and latency"));
    text + &figures::jobs(&result.run, screen)
}

fn next_steps(out: &Path) -> String {
    let (report, job) = (out.join("report.html"), out.join("tour.toml"));
    format!(
        "\nReport: {report}; job file: {job}\n\
         Change the job file and run it again:  zonda bench {job} --out {out}\n\
         Serve the drive to a Linux host:       zonda serve {drive}\n",
        report = report.display(),
        job = job.display(),
        out = out.display(),
        drive = served::image(out).display(),
    )
}
