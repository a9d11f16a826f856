//! `zonda demo`: a tour of what zones can do, told from one run; then a drive that is there, served and used.

mod served;
mod tour;

use std::path::{Path, PathBuf};

use clap::Args;
use zonda_stack::{Experiment, ExperimentResult};

use crate::commands::bench::measure;
use crate::errors::Failure;
use crate::output::{Screen, print};
use crate::results::Subject;
use crate::{figures, files, report, units, zone_map};

/// The job file that is run.
const TOUR: &str = include_str!("../../../../../examples/tour.toml");

pub(crate) const LONG_ABOUT: &str = "A short tour: a drive is filled, read, finished and reset; then one is served and used.

Runs examples/tour.toml on a simulated drive, which takes a second, says in a few sentences what happened, and writes a \
report to look at. Then it makes an image, serves it over NVMe/TCP on a free port of this machine, runs \
examples/target.toml on it with an initiator of its own, and stops the server: that takes three seconds more, and less \
than 300 MiB of the disk.";

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  zonda demo\n  zonda demo --out out/tour")]
pub(crate) struct DemoArgs {
    /// Where the report and the image go
    #[arg(long, value_name = "DIR", default_value = "zonda-demo")]
    out: PathBuf,
    /// Shows no progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let experiment = Experiment::parse(TOUR, &files::BUILTIN_PROFILES).expect("the tour is tested");
    let screen = Screen::of_stdout();
    print(&introduction(&experiment, screen))?;
    let result = measure(&experiment, args.quiet);
    print(&told(&result, screen))?;
    files::make_directory(&args.out)?;
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
    let limit = geometry.max_active_zones.map_or_else(String::new, |limit| {
        format!(" At most {limit} of them may be active, that is partly written, at a time.")
    });
    let text = format!(
        "This drive does not exist: it is simulated. It has {} dies of flash and shows {zones} zones of {capacity}. A zone \
         is written from its start to its end, and is reset as a whole before it is written again: the drive need not move \
         data behind the host's back, as ordinary SSDs do.{limit}",
        profile.dies()
    );
    let time =
        experiment.plan().and_then(zonda_workload::Plan::time).map_or_else(String::new, |time| format!("{time} of "));
    let jobs = experiment.plan().map_or(0, |plan| plan.job_names().count());
    let now = format!("Now {jobs} jobs use it at the same time, for {time}virtual time.");
    format!("{}\n{}\n", screen.paragraph(&text, 0), screen.paragraph(&now, 0))
}

fn told(result: &ExperimentResult, screen: Screen) -> String {
    let mut text = String::new();
    for sentence in tour::sentences(result) {
        let paragraph = screen.paragraph(&sentence, 2);
        text += &format!("* {}", paragraph.trim_start());
    }
    text += &format!("\n{}\n", screen.bold("The zones at the end"));
    text += &zone_map::draw(&result.drive.zones, result.drive.zone_capacity_blocks, screen);
    text += &format!("\n{}\n", screen.bold("How fast, and how long each command took"));
    text + &figures::jobs(&result.run, screen)
}

fn next_steps(out: &Path) -> String {
    let (report, job) = (out.join("report.html"), out.join("tour.toml"));
    format!(
        "\nLook at {report} in a browser, and at {job} for what was run.\n\
         Change it and run it again:     zonda bench {job} --out {out}\n\
         Let a Linux host have the drive: zonda serve {drive}\n",
        report = report.display(),
        job = job.display(),
        out = out.display(),
        drive = served::image(out).display(),
    )
}
