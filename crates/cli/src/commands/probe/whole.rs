//! `zonda probe`: the whole characterisation, its report, and what has changed since another.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use zonda_characterise::{
    Characterisation, Conditions, Control, DriveLimits, GROUPS_FILE, LiveSubject, ModelSubject, Options,
    Progress as Step, Report, Served, Source, Subject, characterise, html, zonda_toml,
};
use zonda_devices::{Location, TextSource, read_text};
use zonda_profiler::limits::TABLE_BYTES_MAX;
use zonda_profiler::{DriveIdentity, ReportFailed, StoredTable};
use zonda_zoned::{Duration, Geometry, LiveClock, ZoneIndex, ZonedDevice};

use super::groups::{profile, report_failed, unix_s};
use super::interrupt::Interrupt;
use super::open::{self, Mode};
use super::{MODEL, ProbeArgs, changes, words};
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::{files, units, zone_map};

/// Columns for the list of zones whose data will be lost.
const ZONES_WIDTH: usize = 60;
/// The files of a report.
const FILES: [&str; 4] = ["report.html", "report.json", GROUPS_FILE, "zonda.toml"];

/// A report, and the table of conflict groups that belongs to it.
struct Measured {
    report: Report,
    groups: Option<StoredTable>,
    source: Source,
}

pub(super) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    let older = args.compare.as_deref().map(stored).transpose()?;
    // A directory that cannot be written is reported before the measurement.
    if let Some(directory) = &args.out {
        let existing = FILES.map(|name| directory.join(name)).into_iter().find(|path| path.exists());
        if let Some(path) = existing.filter(|_| !args.force) {
            return Err(super::exists(&path, "choose another directory with --out"));
        }
        files::make_directory(directory)?;
    }
    let measured = if Path::new(&args.drive).is_file() {
        let report = stored(Path::new(&args.drive))?;
        let source = source_of(&report.conditions.target)?;
        let groups = stored_groups(Path::new(&args.drive), &report);
        Measured { report, groups, source }
    } else {
        measure(args)?
    };
    let Measured { report, groups, source } = &measured;
    if let Some(directory) = &args.out {
        let served = Served { source: source.clone(), has_groups: groups.is_some() };
        files::write(directory, FILES[0], &html(report, &served, older.as_ref()))?;
        files::write(directory, FILES[1], &report.to_json())?;
        match groups {
            Some(groups) => files::write(directory, FILES[2], &groups.to_json())?,
            // The table of an older report is not that of this one.
            None => files::remove(directory, FILES[2])?,
        }
        files::write(directory, FILES[3], &zonda_toml(report, &served))?;
    }
    let screen = Screen::of_stdout();
    match (older, args.json) {
        (Some(older), true) => print_json(&report.changes(&older)),
        (Some(older), false) => print(&changes::text(report, &older, screen)),
        (None, true) => print(&report.to_json()),
        (None, false) => {
            let written = args.out.as_ref().map(|directory| written(directory, groups.is_some()));
            print(&(words::text(report, screen) + &written.unwrap_or_default()))
        }
    }
}

fn written(directory: &Path, has_groups: bool) -> String {
    let names = FILES.iter().filter(|name| has_groups || **name != FILES[2]);
    let paths: Vec<String> = names.map(|name| directory.join(name).display().to_string()).collect();
    format!("\nWrote {}\n", zonda_plot::text::list(&paths))
}

/// Reads a report.
fn stored(path: &Path) -> Result<Report, Failure> {
    let text = files::read_text(&path.display().to_string(), "zonda probe DRIVE --out DIR writes a report.json")?;
    Report::parse(&text).map_err(|error| {
        Failure::input(format!("{}: {error}", path.display()), "give a report.json of zonda probe DRIVE --out DIR")
    })
}

/// The table of conflict groups beside a stored report, if it is that of the same drive.
fn stored_groups(path: &Path, report: &Report) -> Option<StoredTable> {
    let text = read_text(&path.with_file_name(GROUPS_FILE), TABLE_BYTES_MAX, TextSource::File).ok()?;
    // Without the table another scheduler is recommended: what cannot be read is no error.
    let stored = StoredTable::parse(&text).ok()?;
    stored.check_drive(&report.drive).is_ok().then_some(stored)
}

fn source_of(target: &str) -> Result<Source, Failure> {
    // The file that names a path may be anywhere.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    if let Some(name) = target.strip_prefix(MODEL) {
        let path = Path::new(name);
        return Ok(Source::Profile(if path.is_file() { absolute(path) } else { name.to_owned() }));
    }
    Ok(match connect::location(target)? {
        Location::Image(path) => Source::Image(absolute(&path)),
        Location::Device(path) => Source::Device(path.display().to_string()),
        other => Source::Remote(other.to_string()),
    })
}

fn measure(args: &ProbeArgs) -> Result<Measured, Failure> {
    let interrupt = Interrupt::install()?;
    let source = source_of(&args.drive)?;
    if let Source::Profile(name) = &source {
        let profile = profile(name)?;
        let drive = DriveIdentity::of_profile(&profile.name, &profile.geometry());
        let mut subject = ModelSubject::new(profile, args.destructive, args.seed);
        let geometry = subject.geometry().clone();
        let measured = characterise_with(&mut subject, args, &interrupt)?;
        return Ok(report(args, &geometry, drive, source, measured));
    }
    let location = connect::location(&args.drive)?;
    let must_ask = args.destructive && !args.yes;
    // A drive is not opened for writing before the user agrees.
    let agreed = if must_ask {
        Some(open::with(args, &location, Mode::ReadOnly, |opened| {
            let subject = live(opened.device, opened.clock)?;
            let zones = subject.choose_scratch();
            agree(args, &subject, &zones)?;
            Ok(zones)
        })?)
    } else {
        None
    };
    let mode = if args.destructive { Mode::Writable } else { Mode::ReadOnly };
    open::with(args, &location, mode, |opened| {
        let mut subject = live(opened.device, opened.clock)?;
        if args.destructive {
            let zones = subject.choose_scratch();
            // Another program may have written in between.
            if agreed.is_some_and(|agreed| agreed != zones) {
                let text = format!("the zones of {} have changed since the confirmation", args.drive);
                return Err(Failure::input(text, "stop the program that writes to it, and repeat the command"));
            }
            subject.allow_writes(zones.0, args.seed);
        }
        let geometry = subject.geometry().clone();
        let measured = characterise_with(&mut subject, args, &interrupt);
        // Zones are reset also if the measurement failed.
        let cleaned = subject.clean_up();
        let measured = measured?;
        if let Err(error) = cleaned {
            // The measurement is valid, and the user must know about the zone.
            let _ = writeln!(io::stderr(), "warning: {error}; reset it with zonda zone reset");
        }
        Ok(report(args, &geometry, opened.drive, source, measured))
    })
}

fn live<'a>(device: &'a mut dyn ZonedDevice, clock: &'a mut dyn LiveClock) -> Result<LiveSubject<'a>, Failure> {
    LiveSubject::new(device, clock).map_err(|status| report_failed(ReportFailed(status)))
}

fn characterise_with(
    subject: &mut dyn Subject,
    args: &ProbeArgs,
    interrupt: &Interrupt,
) -> Result<Characterisation, Failure> {
    let mut bar = Progress::new(args.quiet);
    let options = Options { budget: Duration(args.budget.nanoseconds()), seed: args.seed };
    let measured = characterise(subject, &options, &mut |step: &Step| {
        bar.show(Some(step.share), || format!("{}: {}", step.part.name(), step.words));
        if interrupt.has_arrived() { Control::Stop } else { Control::Continue }
    });
    bar.finish();
    measured.map_err(report_failed)
}

fn report(
    args: &ProbeArgs,
    geometry: &Geometry,
    drive: DriveIdentity,
    source: Source,
    measured: Characterisation,
) -> Measured {
    let is_virtual = matches!(source, Source::Profile(_));
    let conditions = Conditions {
        target: args.drive.clone(),
        is_virtual,
        is_destructive: args.destructive,
        budget_ns: args.budget.nanoseconds(),
        seed: args.seed,
        made_at_unix_s: (!is_virtual).then(unix_s),
        is_page_cached: matches!(source, Source::Image(_)),
    };
    let groups = measured.groups.as_ref().map(|groups| StoredTable {
        drive: drive.clone(),
        made_at_unix_s: conditions.made_at_unix_s.unwrap_or(0),
        table: groups.table.clone(),
    });
    let report = Report::new(drive, DriveLimits::of(geometry), conditions, measured);
    Measured { report, groups, source }
}

/// Asks the user to confirm that zones are written and reset; names what is on the drive.
fn agree(
    args: &ProbeArgs,
    subject: &LiveSubject<'_>,
    (scratch, lost): &(Vec<ZoneIndex>, Vec<ZoneIndex>),
) -> Result<(), Failure> {
    let block_bytes = u64::from(subject.geometry().block_size_bytes);
    let bytes_of = |zones: &mut dyn Iterator<Item = usize>| {
        let blocks = zones.filter_map(|zone| zone_map::written_blocks(&subject.zones()[zone])).sum::<u64>();
        units::bytes(blocks * block_bytes)
    };
    let names = |zones: &[ZoneIndex]| zone_map::in_ranges(zones.iter().map(|zone| (zone.0, zone.0 + 1)), ZONES_WIDTH);
    let on_drive = bytes_of(&mut (0..subject.zones().len()));
    let loss = match &lost[..] {
        [] => "they are empty, so that no data is lost".to_owned(),
        _ => {
            let bytes = bytes_of(&mut lost.iter().map(|zone| zone.as_usize()));
            format!("{bytes} of data in zones {} would be lost", names(lost))
        }
    };
    let text = format!(
        "{} has {on_drive} of data; --destructive writes and resets zones {}: {loss}",
        args.drive,
        names(scratch)
    );
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::input(text, "add --yes to confirm, or omit --destructive to measure only reads"));
    }
    // A failed write or read counts as "no".
    let _ = write!(io::stderr(), "{text}\nContinue? [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::input("aborted: nothing was changed", "omit --destructive to measure only reads")),
    }
}

#[cfg(test)]
mod tests {
    use zonda_characterise::{Figures, Finding, Kind, Load, Part, SchedulerName};
    use zonda_exports::{ParseContext, SchedulerSpec, ServerPlan};

    use super::*;

    /// A report in which each scheduler has a shorter p99 than those before.
    fn report() -> Report {
        let geometry = Geometry::tiny();
        let of = |(place, scheduler): (usize, SchedulerName)| {
            let figures = Figures {
                operations: 1000,
                per_second: 1000.0,
                bytes_per_second: 16_384_000.0,
                mean_ns: 1,
                p50_ns: 1,
                p99_ns: 1_000_000 >> place,
                max_ns: 1,
                uncertainty: 0.0,
            };
            [Kind::Read, Kind::Write].map(|kind| Finding {
                part: Part::Schedulers,
                load: Load::of_data(kind, 16_384, 4, 4),
                beside: None,
                scheduler: Some(scheduler),
                figures: Some(figures),
                missing: None,
            })
        };
        let measured = Characterisation {
            findings: SchedulerName::ALL.into_iter().enumerate().flat_map(of).collect(),
            groups: None,
            parts: Vec::new(),
            elapsed: Duration(1),
            is_interrupted: false,
        };
        let conditions = Conditions {
            target: "drive".to_owned(),
            is_virtual: false,
            is_destructive: true,
            budget_ns: 1,
            seed: 1,
            made_at_unix_s: None,
            is_page_cached: false,
        };
        Report::new(DriveIdentity::new("S", &geometry), DriveLimits::of(&geometry), conditions, measured)
    }

    #[test]
    fn the_server_reads_the_configuration_whatever_the_drive_and_the_scheduler_are() {
        let sources = [
            Source::Image("/srv/a drive".to_owned()),
            Source::Profile("zn540".to_owned()),
            Source::Device("/dev/nvme0n1".to_owned()),
        ];
        for source in sources {
            for (has_groups, expected) in [(true, SchedulerSpec::Interference), (false, SchedulerSpec::Ezns)] {
                let text = zonda_toml(&report(), &Served { source: source.clone(), has_groups });
                let read_file = |path: &str| Err(format!("{path} is not read"));
                let context = ParseContext {
                    base: Path::new("/etc/zonda"),
                    builtin_profiles: zonda_profiles::BUILTIN,
                    read_file: &read_file,
                    read_key: &read_file,
                };
                let plan = ServerPlan::parse(&text, &context).unwrap_or_else(|error| panic!("{}\n{text}", error.error));
                let namespace = &plan.subsystems[0].namespaces[0];
                assert_eq!(namespace.scheduler, expected, "{text}");
                let groups = has_groups.then(|| Path::new("/etc/zonda/groups.json"));
                assert_eq!(namespace.groups.as_deref(), groups, "{text}");
            }
        }
    }
}
