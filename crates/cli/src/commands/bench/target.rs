//! `zonda bench --target`: the jobs of a file on an existing namespace.

use std::io::{self, BufRead, IsTerminal, Write};

use serde::Deserialize;
use zonda_config::{ConfigError, Spanned, parse_with};
use zonda_devices::{Location, NamespaceOptions, is_volume};
use zonda_image::{ImageSpec, Inspection};
use zonda_workload::{JobSpec, Plan, RunSpec};
use zonda_zoned::{Blocks, Duration, Geometry, Lba, ReportFilter, ZoneDescriptor, ZoneState};

use super::{BenchArgs, JOB_FILES, live, show};
use crate::commands::connect;
use crate::commands::drive::image::peek;
use crate::errors::{Failure, described};
use crate::results::Subject;
use crate::{files, remedies, units, zone_map};

const MUST_CONTAIN: &str =
    "a job file for --target needs at least one table [[job]] with a line such as operation = \"append\"";
/// What the user can do with the volume of which a drive is a member.
const OF_MEMBER: &str = "give --target the directory of the volume, or another drive";
/// Columns for the list of zones whose data will be lost.
const ZONES_WIDTH: usize = 60;

/// The job file. `drive` is parsed to report it with its own message instead of as an unknown key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    drive: Option<Spanned<toml::Value>>,
    #[serde(default)]
    run: RunSpec,
    #[serde(default)]
    job: Vec<Spanned<JobSpec>>,
}

pub(super) fn run(place: &str, args: &BenchArgs) -> Result<(), Failure> {
    let location = connect::location(place)?;
    let options = options(args)?;
    let text = files::read_text(&args.file, files::EXAMPLES)?;
    let in_file = |error: ConfigError| Failure::in_file(&described(&error, JOB_FILES), files::shown(&args.file), &text);
    let File { drive, mut run, job } = parse_with(&text, MUST_CONTAIN).map_err(in_file)?;
    if let Some(drive) = drive {
        let error = ConfigError::at(&drive, "[drive] cannot be used with --target");
        return Err(in_file(error.help("remove [drive], or omit --target to simulate this drive")));
    }
    run.seed = args.seed.unwrap_or(run.seed);
    let has_agreed = match &location {
        Location::Image(path) if is_volume(path) => {
            check_on_volume(&run, &job).map_err(in_file)?;
            args.yes
        }
        Location::Image(path) => {
            if !args.force {
                remedies::refuse_member_image(path, OF_MEMBER)?;
            }
            // Opening an image for writing rewrites its files, also if the jobs are then refused.
            match peek(path) {
                Some(Inspection { spec: ImageSpec { geometry, .. }, zones, .. }) => {
                    let plan = Plan::new(&run, &job, &geometry).map_err(in_file)?;
                    let all = zones.report(Lba(0), ReportFilter::All, false, true, geometry.zone_count);
                    let zones = all.expect("a report of zones that exist succeeds").zones;
                    if !args.yes {
                        agree(&plan, &zones, &geometry, "drive", args.file != "-")?;
                    }
                    true
                }
                None => args.yes,
            }
        }
        Location::Device(_) | Location::NvmeTcp(_) => args.yes,
    };
    let mut connection = connect::open(&location, &options)?;
    let what = match &location {
        Location::Image(path) if is_volume(path) => "volume",
        Location::Image(_) | Location::Device(_) => "drive",
        Location::NvmeTcp(_) => "namespace",
    };
    let free = if args.force { Ok(()) } else { connect::refuse_member(&mut connection, &location, OF_MEMBER) };
    let result = free.and_then(|()| Plan::new(&run, &job, connection.geometry()).map_err(in_file)).and_then(|plan| {
        let zones = connect::all_descriptors(&mut connection)?;
        if !has_agreed {
            agree(&plan, &zones, connection.geometry(), what, args.file != "-")?;
        }
        // A directory that cannot be written is reported before the run.
        if let Some(directory) = &args.out {
            files::make_directory(directory)?;
        }
        live::run_on(&mut connection, &location.to_string(), &plan, args.quiet)
    });
    let closed = connect::close(connection);
    let result = result?;
    // If the run failed, its result already reports the connection error.
    if !result.run.has_failed() {
        closed?;
    }
    show(args, &text, &result, Subject::Live(&result), &live::cost(&result))
}

/// Checks what does not depend on the size of a volume and of its blocks before it is assembled: its
/// namespace is one conventional zone.
fn check_on_volume(run: &RunSpec, jobs: &[Spanned<JobSpec>]) -> Result<(), ConfigError> {
    let zone = Blocks(1 << 20);
    let geometry = Geometry {
        block_size_bytes: 4096,
        metadata_bytes: 0,
        zone_size_blocks: zone,
        zone_capacity_blocks: zone,
        zone_count: 1,
        conventional_zone_count: 1,
        max_active_zones: None,
        max_open_zones: None,
        max_transfer_blocks: Blocks(256),
        max_append_blocks: Blocks(256),
        zrwa: None,
        read_across_zones: false,
        descriptor_extension_bytes: 0,
    };
    let without_sizes = |job: &Spanned<JobSpec>| {
        Spanned::new(job.span(), JobSpec { block_size: None, stripe: None, ..job.get_ref().clone() })
    };
    Plan::new(run, &jobs.iter().map(without_sizes).collect::<Vec<_>>(), &geometry).map(|_| ())
}

fn options(args: &BenchArgs) -> Result<NamespaceOptions, Failure> {
    let mut options = args.connect.options()?;
    options.io_queues = args.queues.unwrap_or(options.io_queues);
    options.queue_depth = args.depth.unwrap_or(options.queue_depth);
    options.spin = args.spin.map_or(options.spin, |spin| Duration(spin.nanoseconds()));
    Ok(options)
}

/// Asks the user to confirm the loss of data, if there is any.
fn agree(plan: &Plan, zones: &[ZoneDescriptor], geometry: &Geometry, what: &str, can_ask: bool) -> Result<(), Failure> {
    let Some(loss) = loss(plan, zones, geometry, what) else { return Ok(()) };
    if !(can_ask && io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::input(loss, remedy("add --yes to confirm", geometry)));
    }
    // A failed write or read counts as "no".
    let _ = write!(io::stderr(), "{loss}\nContinue? [y/N] ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::input("aborted: nothing was changed", remedy("confirm the loss of data", geometry))),
    }
}

/// Other zones are a remedy for a loss where the drive has sequential zones.
fn remedy(confirm: &str, geometry: &Geometry) -> String {
    if geometry.zone_count == geometry.conventional_zone_count {
        confirm.to_owned()
    } else {
        format!("{confirm}, or give the jobs other zones")
    }
}

/// The data in the zones of the jobs, in a sentence; `None` if they are empty.
fn loss(plan: &Plan, zones: &[ZoneDescriptor], geometry: &Geometry, what: &str) -> Option<String> {
    let used = plan.zones_used().into_iter().map(|zone| &zones[zone.as_usize()]);
    let in_use: Vec<&ZoneDescriptor> = used.filter(|zone| zone.state != ZoneState::Empty).collect();
    if in_use.is_empty() {
        return None;
    }
    let numbers = in_use.iter().filter_map(|zone| geometry.zone_of(zone.start)).map(|zone| (zone.0, zone.0 + 1));
    let names = zone_map::in_ranges(numbers, ZONES_WIDTH);
    let blocks: u64 = in_use.iter().filter_map(|zone| zone_map::written_blocks(zone)).sum();
    let bytes = units::bytes(blocks * u64::from(geometry.block_size_bytes));
    let one = in_use.len() == 1;
    Some(match in_use.iter().all(|zone| zone.state == ZoneState::NotWritePointer) {
        true if geometry.zone_count == geometry.conventional_zone_count => {
            format!("the jobs overwrite data of the {what}")
        }
        true => format!("the jobs overwrite data in conventional zone{} {names}", plural(one)),
        false => format!(
            "the jobs reset zone{} {names} first: up to {bytes} of data in {} would be lost",
            plural(one),
            if one { "it" } else { "them" }
        ),
    })
}

fn plural(one: bool) -> &'static str {
    if one { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_workload::parse_jobs;
    use zonda_zoned::zones::ZoneTable;

    fn loss_of(zones: &str, table: &ZoneTable) -> Option<String> {
        let geometry = table.geometry();
        let (run, jobs) =
            parse_jobs(&format!("[[job]]\noperation = \"append\"\nblock_size = 512\nzones = {zones}\n")).unwrap();
        let plan = Plan::new(&run, &jobs, geometry).unwrap();
        let report = table.report(Lba(0), ReportFilter::All, false, true, geometry.zone_count).unwrap();
        loss(&plan, &report.zones, geometry, "drive")
    }

    #[test]
    fn the_zones_whose_data_would_be_lost_are_named_without_empty_ones() {
        let mut table = ZoneTable::new(Geometry::tiny());
        table.write(Lba(16), Blocks(8), true).unwrap();
        table.write(Lba(32), Blocks(4), true).unwrap();
        assert_eq!(loss_of("[0, 3]", &table), None);
        let one = "the jobs reset zone 1 first: up to 4.00 KiB of data in it would be lost";
        assert_eq!(loss_of("\"0..2\"", &table).as_deref(), Some(one));
        let two = "the jobs reset zones 1..3 first: up to 6.00 KiB of data in them would be lost";
        assert_eq!(loss_of("\"0..8\"", &table).as_deref(), Some(two));
    }

    #[test]
    fn a_drive_table_is_distinguished_from_an_unknown_key() {
        let file: File = parse_with("[drive]\nprofile = \"tiny\"\n[[job]]\noperation = \"read\"\n", "").unwrap();
        assert!(file.drive.is_some());
        assert!(parse_with::<File>("[drives]\n", "").is_err_and(|error| error.message == "unknown key \"drives\""));
    }
}
