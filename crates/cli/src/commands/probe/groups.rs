//! `zonda probe --groups-only`: the conflict groups of zones, and nothing else.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use zonda_profiler::{
    DriveIdentity, GroupTable, Profiler, ProfilerConfig, ProfilerEvent, ReportFailed, StoredTable, Strategy,
    VirtualClock, run as measure,
};
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{Duration, LiveClock, NamespaceId, PayloadKind, Prng, ZoneIndex, ZonedDevice};

use super::interrupt::Interrupt;
use super::open::{self, Mode};
use super::{MODEL, ProbeArgs, text};
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print};
use crate::progress::Progress;
use crate::{files, units};

/// A finished measurement.
pub(super) struct Measured {
    pub(super) stored: StoredTable,
    /// Bytes of each read and the slowdown, if the drive could be calibrated.
    pub(super) calibration: Option<(u64, f64)>,
}

pub(super) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    // A file that cannot be written is reported before the measurement.
    if let Some(path) = &args.out {
        // A measurement that failed leaves an empty file; /dev/stdout is no file.
        let has_result = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        if has_result && !args.force {
            return Err(super::exists(path, "choose another file with --out"));
        }
        let opened = fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map(drop).map_err(|error| cannot_write(path, &error))?;
    }
    let interrupt = Interrupt::install()?;
    let measured = match args.drive.strip_prefix(MODEL) {
        Some(name) => of_model(name, args, &interrupt)?,
        None => {
            let location = connect::location(&args.drive)?;
            open::with(args, &location, Mode::ReadOnly, |opened| {
                of_device(opened.device, opened.clock, opened.drive, args, &interrupt)
            })?
        }
    };
    let json = measured.stored.to_json();
    if let Some(path) = &args.out {
        fs::write(path, &json).map_err(|error| cannot_write(path, &error))?;
    }
    if args.json {
        return print(&json);
    }
    print(&text::text(&args.drive, &measured, Screen::of_stdout()))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::input(format!("cannot write {}: {error}", path.display()), "choose a writable file with --out")
}

/// The built-in profile of this name.
pub(super) fn profile(name: &str) -> Result<Profile, Failure> {
    let found = files::PROFILES.find(name).map_err(|error| {
        Failure::input(error.message, error.help.unwrap_or_else(|| "zonda drive profiles lists them".to_owned()))
    })?;
    found.parse().map_err(|error| Failure::in_experiment(&error, name, &found.text))
}

/// A simulated drive whose zones are full, filled in the order of their numbers.
fn of_model(name: &str, args: &ProbeArgs, interrupt: &Interrupt) -> Result<Measured, Failure> {
    let profile = profile(name)?;
    let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(args.seed));
    let capacity = profile.geometry().zone_capacity_blocks;
    for zone in 0..profile.geometry().zone_count {
        drive.prefill(ZoneIndex(zone), capacity).expect("full zones hold no active resource");
    }
    let identity = DriveIdentity::of_profile(&profile.name, &profile.geometry());
    of_device(&mut drive, &mut VirtualClock::default(), identity, args, interrupt)
}

fn of_device(
    device: &mut dyn ZonedDevice,
    clock: &mut dyn LiveClock,
    drive: DriveIdentity,
    args: &ProbeArgs,
    interrupt: &Interrupt,
) -> Result<Measured, Failure> {
    let geometry = device.geometry(NamespaceId::FIRST).clone();
    let config = ProfilerConfig {
        namespace: NamespaceId::FIRST,
        strategy: if args.pairwise { Strategy::Pairwise } else { Strategy::Search },
        budget: Some(Duration(args.budget.nanoseconds())),
        sample_zones: args.sample,
        prng: Prng::new(args.seed),
    };
    let mut profiler = Profiler::new(&geometry, config);
    let mut bar = Progress::new(args.quiet);
    let mut calibration = None;
    let table = measure(&mut profiler, device, clock, &mut |profiler, now| {
        while let Some(event) = profiler.poll_event() {
            if let ProfilerEvent::Calibrated { read_bytes, slowdown } = event {
                calibration = Some((read_bytes, slowdown));
            }
        }
        if interrupt.has_arrived() {
            profiler.shutdown(now);
        }
        let progress = profiler.progress();
        let share = f64::from(progress.zones_done) / f64::from(progress.zones.max(1));
        bar.show(Some(share), || {
            let (done, zones) = (progress.zones_done, units::counted(progress.zones.into(), "zone"));
            format!("{done} of {zones}, {}", units::counted(progress.groups.into(), "group"))
        });
    });
    bar.finish();
    let table: GroupTable = table.map_err(report_failed)?;
    Ok(Measured { stored: StoredTable { drive, made_at_unix_s: unix_s(), table }, calibration })
}

pub(super) fn report_failed(ReportFailed(status): ReportFailed) -> Failure {
    Failure::input(format!("the drive refuses a report of its zones: {status}"), connect::remedy(status))
}

/// Seconds since 1970.
pub(super) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
