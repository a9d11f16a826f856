//! `zonda probe`: measures a drive that the user knows nothing about. So far its conflict groups.

mod picture;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use zonda_config::TimeSpan;
use zonda_devices::{Location, RingClock};
use zonda_profiler::{
    DriveIdentity, GroupTable, Profiler, ProfilerConfig, ProfilerEvent, ReportFailed, StoredTable, Strategy,
    VirtualClock, run as measure,
};
use zonda_ssd::Ssd;
use zonda_zoned::{Duration, Geometry, LiveClock, NamespaceId, PayloadKind, Prng, ZoneIndex, ZonedDevice};

use crate::commands::connect::{self, ConnectArgs};
use crate::commands::drive::image::peek;
use crate::errors::Failure;
use crate::output::{Screen, print};
use crate::progress::Progress;
use crate::{files, units};

pub(crate) const LONG_ABOUT: &str = "Measure which zones of a drive disturb each other.

Zones that share a die or a channel delay each other; NVMe does not report which do. This command reads zones beside each \
other, and divides them into conflict groups: zones of different groups do not disturb each other. It only reads, so that \
zones without data have no group. docs/guide/probe.md describes the measurement.

    model:PROFILE         a simulated drive, filled with data, in virtual time
    DIR                   an image that is not in use by a server
    nvme-tcp://HOST:PORT/NQN  a namespace of a server";

const EXAMPLES: &str = "Examples:
  zonda probe --groups-only model:ezns-small
  zonda probe --groups-only model:bae-small --json --quiet | jq .groups
  zonda probe --groups-only drives/a --budget 30s --out groups.json";

/// What stands before the name of a profile.
const MODEL: &str = "model:";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ProbeArgs {
    /// Drive: model:PROFILE, the directory of an image, or nvme-tcp://HOST:PORT/NQN
    drive: String,
    /// Measure the conflict groups of zones
    #[arg(long, required = true)]
    groups_only: bool,
    /// Stop after this time with the results so far; of a simulated drive, its own time
    #[arg(long, value_name = "TIME", default_value = "60s")]
    budget: TimeSpan,
    /// Measure N zones once the order of allocation is known, and infer the groups of the others
    #[arg(long, value_name = "N")]
    sample: Option<u32>,
    /// Use the algorithm of Bae et al., which compares each zone with each group
    #[arg(long, conflicts_with = "sample")]
    pairwise: bool,
    /// Print the table as JSON and nothing else
    #[arg(long)]
    json: bool,
    /// File for the table, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seed from which zones and blocks are chosen
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A finished measurement.
struct Measured {
    stored: StoredTable,
    /// Bytes of each read and the slowdown, if the drive could be calibrated.
    calibration: Option<(u64, f64)>,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    // A file that cannot be written is reported before the measurement.
    if let Some(path) = &args.out {
        let opened = fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map(drop).map_err(|error| cannot_write(path, &error))?;
    }
    let measured = match args.drive.strip_prefix(MODEL) {
        Some(name) => of_model(name, args)?,
        None => of_namespace(args)?,
    };
    let json = measured.stored.to_json();
    if let Some(path) = &args.out {
        write(path, &json)?;
    }
    if args.json {
        return print(&json);
    }
    print(&text::text(&args.drive, &measured, Screen::of_stdout()))
}

fn write(path: &Path, contents: &str) -> Result<(), Failure> {
    fs::write(path, contents).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("cannot write {}: {error}", path.display()), "choose a writable file with --out")
}

/// A simulated drive whose zones are full, filled in the order of their numbers.
fn of_model(name: &str, args: &ProbeArgs) -> Result<Measured, Failure> {
    let found = files::PROFILES.find(name).map_err(|error| {
        Failure::input(error.message, error.help.unwrap_or_else(|| "zonda drive profiles lists them".to_owned()))
    })?;
    let profile = found.parse().map_err(|error| Failure::in_experiment(&error, name, &found.text))?;
    let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(args.seed));
    let capacity = profile.geometry().zone_capacity_blocks;
    for zone in 0..profile.geometry().zone_count {
        drive.prefill(ZoneIndex(zone), capacity).expect("full zones hold no active resource");
    }
    let geometry = drive.geometry(NamespaceId::FIRST).clone();
    of_device(&mut drive, &mut VirtualClock::default(), &geometry, args.drive.clone(), args)
}

fn of_namespace(args: &ProbeArgs) -> Result<Measured, Failure> {
    let location = connect::location(&args.drive)?;
    let options = args.connect.options()?;
    let serial = match &location {
        Location::Image(path) => peek(path).map(|image| zonda_devices::random::uuid_text(&image.spec.uuid)),
        Location::Device(_) | Location::NvmeTcp(_) => None,
    };
    let serial = serial.unwrap_or_else(|| location.to_string());
    connect::with(&location, &options, |connection| {
        let geometry = connection.geometry().clone();
        let (device, ring) = connection.parts();
        of_device(device, &mut RingClock(ring), &geometry, serial, args)
    })
}

fn of_device(
    device: &mut dyn ZonedDevice,
    clock: &mut dyn LiveClock,
    geometry: &Geometry,
    serial: String,
    args: &ProbeArgs,
) -> Result<Measured, Failure> {
    let config = ProfilerConfig {
        namespace: NamespaceId::FIRST,
        strategy: if args.pairwise { Strategy::Pairwise } else { Strategy::Search },
        budget: Some(Duration(args.budget.nanoseconds())),
        sample_zones: args.sample,
        prng: Prng::new(args.seed),
    };
    let mut profiler = Profiler::new(geometry, config);
    let mut bar = Progress::new(args.quiet);
    let mut calibration = None;
    let table = measure(&mut profiler, device, clock, &mut |profiler| {
        while let Some(event) = profiler.poll_event() {
            if let ProfilerEvent::Calibrated { read_bytes, slowdown } = event {
                calibration = Some((read_bytes, slowdown));
            }
        }
        let progress = profiler.progress();
        let share = f64::from(progress.zones_done) / f64::from(progress.zones.max(1));
        bar.show(Some(share), || {
            let (done, zones) = (progress.zones_done, units::counted(progress.zones.into(), "zone"));
            format!("{done} of {zones}, {}", units::counted(progress.groups.into(), "group"))
        });
    });
    bar.finish();
    let table: GroupTable = table.map_err(|ReportFailed(status)| {
        Failure::input(format!("the drive refuses a report of its zones: {status}"), connect::remedy(status))
    })?;
    let made_at_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let stored = StoredTable { drive: DriveIdentity::new(serial, geometry), made_at_unix_s, table };
    Ok(Measured { stored, calibration })
}
