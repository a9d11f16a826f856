//! The second part of the demo: an image, served over NVMe/TCP and used by an initiator of zonda's own, in one process.

use std::path::{Path, PathBuf};

use zonda_config::{ByteSize, unplaced};
use zonda_devices::{Location, NamespaceOptions};
use zonda_exports::{ListenSpec, NamespaceSpec, Running, ServerSpec, ServerTable, SubsystemSpec, Surroundings};
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

/// Makes the image if it is not there, serves it, runs the jobs on it, and stops.
pub(super) fn show(out: &Path, screen: Screen, quiet: bool) -> Result<(), Failure> {
    let image = image(out);
    create::sized_image(&image, PROFILE, ZONES, ZONE_CAPACITY)?;
    let server = serve(&image)?;
    let info = server.info();
    let url = format!("nvme-tcp://{}/{}", info.listen[0], info.subsystems[0].nqn);
    print(&introduction(&image, &url, screen))?;
    let used = use_it(&url, quiet);
    server.handle().stop();
    server.wait().map_err(|error| Failure::broken(error.message, error.help))?;
    let result = used?;
    print(&told(&result, screen))?;
    if result.run.has_failed() { Err(Failure::Run) } else { Ok(()) }
}

fn serve(image: &Path) -> Result<Running, Failure> {
    let path = image.to_str().ok_or_else(|| {
        Failure::input(format!("{} is no UTF-8 text", image.display()), "write another directory after --out")
    })?;
    let namespace = NamespaceSpec { image: Some(unplaced(path.to_owned())), ..NamespaceSpec::default() };
    let spec = ServerSpec {
        server: ServerTable {
            listen: Some(unplaced(ListenSpec::One("127.0.0.1:0".to_owned()))),
            ..ServerTable::default()
        },
        subsystem: vec![unplaced(SubsystemSpec::new("demo", namespace))],
        ..ServerSpec::default()
    };
    let surroundings = Surroundings {
        base: Path::new(""),
        builtin_profiles: &[],
        read_file: &|_| Err("there are no files here".to_owned()),
        read_key: &|_| Err("there are no files here".to_owned()),
    };
    let plan = spec.check(&surroundings).map_err(|error| create::in_words(&error))?;
    zonda_exports::start(plan, false).map_err(|error| Failure::input(error.message, error.help))
}

fn use_it(url: &str, quiet: bool) -> Result<LiveResult, Failure> {
    let location: Location = connect::location(url)?;
    let mut connection = connect::open(&location, &NamespaceOptions::default())?;
    let (run, jobs) = parse_jobs(JOBS).expect("the jobs are tested");
    let plan = Plan::new(&run, &jobs, connection.geometry()).map_err(|error| {
        Failure::input(format!("the image is not the demo's: {}", error.message), "write another directory after --out")
    })?;
    let result = live::run_on(&mut connection, url, &plan, quiet)?;
    connect::close(connection)?;
    Ok(result)
}

fn introduction(image: &Path, url: &str, screen: Screen) -> String {
    let text = format!(
        "The second drive exists: {} keeps its data. It has {ZONES} zones of {}, and a server in this program lets hosts have it \
         over NVMe/TCP. Here is one, an initiator of zonda's own; a Linux kernel would do as well. Three jobs write and read \
         for two seconds of real time, and every block that comes back is held against what was written.",
        image.display(),
        units::bytes(ZONE_CAPACITY.0)
    );
    format!("\n{}\n{}", screen.bold(url), screen.paragraph(&text, 0))
}

fn told(result: &LiveResult, screen: Screen) -> String {
    let mut text = "\n".to_owned();
    for sentence in result.run.jobs.iter().filter_map(sentence) {
        text += &format!("* {}", screen.paragraph(&sentence, 2).trim_start());
    }
    let verified = units::counted(result.run.verified_blocks.unwrap_or(0), "block");
    let verdict = match wrong_blocks(&result.run.jobs) {
        0 => format!("{verified} came back, each as it was written last.\n"),
        wrong => format!("FAILED: of {verified} that came back, {} are not what was written.\n", units::count(wrong)),
    };
    let namespace = &result.namespace;
    text + &verdict + "\n" + &zone_map::draw(&namespace.zones, namespace.zone_capacity_blocks, screen)
}

/// What a job did: a line.
fn sentence(job: &JobResult) -> Option<String> {
    let (kind, what) = match job.name.as_str() {
        "log" => (RequestKind::Append, "appends"),
        "reader" => (RequestKind::Read, "random reads"),
        "journal" => (RequestKind::Write, "writes beside reads of what was just written"),
        _ => return None,
    };
    let figures = job.kind(kind)?;
    Some(format!(
        "{}: {} {what}, {} MiB/s; half took at most {}, 99% at most {}.",
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
