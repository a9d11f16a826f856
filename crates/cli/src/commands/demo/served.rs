//! The second part of the demo: an image, served over NVMe/TCP and used by zonda's own initiator,
//! in one process.

use std::path::{Path, PathBuf};

use zonda_config::{ByteSize, unplaced};
use zonda_devices::{Location, NamespaceOptions};
use zonda_exports::{ListenSpec, NamespaceSpec, ParseContext, Running, ServerSpec, ServerTable, SubsystemSpec};
use zonda_workload::{JobResult, Plan, RequestKind, parse_jobs};

use crate::commands::bench::live;
use crate::commands::connect;
use crate::commands::drive::create;
use crate::errors::Failure;
use crate::output::{Screen, print};
use crate::results::{LiveResult, wrong_blocks};
use crate::{units, zone_map};

/// The job file that is run.
const JOBS: &str = include_str!("../../../../../examples/target.toml");
const PROFILE: &str = "zn540";
const ZONES: u32 = 16;
const ZONE_CAPACITY: ByteSize = ByteSize(16 << 20);

/// The image of the demo whose results are in `out`.
pub(super) fn image(out: &Path) -> PathBuf {
    out.join("drive")
}

/// Creates the image if it does not exist, serves it, runs the jobs on it, and stops the server.
pub(super) fn show(out: &Path, screen: Screen, quiet: bool) -> Result<(), Failure> {
    let image = image(out);
    create::sized_image(&image, PROFILE, ZONES, ZONE_CAPACITY)?;
    let server = serve(&image)?;
    let info = server.info();
    let url = format!("nvme-tcp://{}/{}", info.listen[0], info.subsystems[0].nqn);
    print(&introduction(&image, &url, screen))?;
    let result = run_jobs(&url, quiet);
    server.handle().stop();
    server.wait().map_err(|error| Failure::broken(error.message, error.help))?;
    let result = result?;
    print(&summary(&result, screen))?;
    if result.run.has_failed() { Err(Failure::Run) } else { Ok(()) }
}

fn serve(image: &Path) -> Result<Running, Failure> {
    let path = image.to_str().ok_or_else(|| {
        Failure::input(format!("path {} is not valid UTF-8", image.display()), "choose another directory with --out")
    })?;
    let namespace = NamespaceSpec { image: Some(unplaced(path.to_owned())), ..NamespaceSpec::default() };
    let spec = ServerSpec {
        server: ServerTable {
            listen: Some(unplaced(ListenSpec(vec!["127.0.0.1:0".to_owned()]))),
            ..ServerTable::default()
        },
        subsystem: vec![unplaced(SubsystemSpec::new("demo", namespace))],
        ..ServerSpec::default()
    };
    let context = ParseContext {
        base: Path::new(""),
        builtin_profiles: &[],
        read_file: &|_| Err("files are not available".to_owned()),
        read_key: &|_| Err("files are not available".to_owned()),
    };
    let plan = spec.check(&context).map_err(|error| create::in_words(&error))?;
    zonda_exports::start(plan, false).map_err(|error| Failure::input(error.message, error.help))
}

fn run_jobs(url: &str, quiet: bool) -> Result<LiveResult, Failure> {
    let location: Location = connect::location(url)?;
    let mut connection = connect::open(&location, &NamespaceOptions::default())?;
    let (run, jobs) = parse_jobs(JOBS).expect("the jobs are tested");
    let plan = Plan::new(&run, &jobs, connection.geometry()).map_err(|error| {
        Failure::input(
            format!("the image is not an image of the demo: {}", error.message),
            "choose another directory with --out",
        )
    })?;
    let result = live::run_on(&mut connection, url, &plan, quiet)?;
    connect::close(connection)?;
    Ok(result)
}

fn introduction(image: &Path, url: &str, screen: Screen) -> String {
    let text = format!(
        "The second drive is an image in {}, with {ZONES} zones of {}, served over NVMe/TCP. The host is zonda's own initiator \
         in the same process; Linux can connect as well. Three jobs write and read for two seconds of real time, and every \
         block read is verified.",
        image.display(),
        units::bytes(ZONE_CAPACITY.0)
    );
    format!("\n{}\n{}", screen.bold(url), screen.paragraph(&text, 0))
}

fn summary(result: &LiveResult, screen: Screen) -> String {
    let mut text = "\n".to_owned();
    for sentence in result.run.jobs.iter().filter_map(sentence) {
        text += &format!("* {}", screen.paragraph(&sentence, 2).trim_start());
    }
    let verified = units::counted(result.run.verified_blocks.unwrap_or(0), "block");
    let verdict = match wrong_blocks(&result.run.jobs) {
        0 => format!("Verified {verified}: no mismatch.\n"),
        wrong => format!("FAILED: verification found {} of {verified} wrong.\n", units::count(wrong)),
    };
    let namespace = &result.namespace;
    text + &verdict + "\n" + &zone_map::draw(&namespace.zones, namespace.zone_capacity_blocks, screen)
}

/// The result of a job in a line.
fn sentence(job: &JobResult) -> Option<String> {
    let (kind, what) = match job.name.as_str() {
        "log" => (RequestKind::Append, "appends"),
        "reader" => (RequestKind::Read, "random reads"),
        "journal" => (RequestKind::Write, "writes mixed with reads of recent data"),
        _ => return None,
    };
    let figures = job.kind(kind)?;
    Some(format!(
        "{}: {} {what}, {} MiB/s; latency p50 {}, p99 {}.",
        job.name,
        units::count(figures.operations),
        units::mib_per_second(figures.bandwidth_bytes_per_second),
        units::time(figures.latency.p50_ns),
        units::time(figures.latency.p99_ns)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_of_the_example_has_its_line() {
        let (run, jobs) = parse_jobs(JOBS).expect("the example is right");
        assert!(run.verify.is_some_and(|verify| *verify.get_ref()));
        let names: Vec<_> =
            jobs.iter().filter_map(|job| job.get_ref().name.as_ref()).map(|name| name.get_ref()).collect();
        assert_eq!(names, ["log", "reader", "journal"]);
    }
}
