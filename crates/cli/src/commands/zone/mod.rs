//! `zonda zone`: reports and manages zones of an image or of a namespace of a server.

mod manage;
mod on_device;

use std::ops::Range;

use clap::{Args, Subcommand};
use serde::Serialize;
use zonda_devices::Location;
use zonda_image::Inspection;
use zonda_zoned::{Geometry, ReportFilter, ZoneDescriptor, ZoneIndex, ZoneType};

use crate::commands::connect::{self, ConnectArgs};
use crate::commands::drive::image::inspect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::{remedies, units, zone_map};

/// The remedy for a volume.
const NO_ZONES: &str = "a volume has no zones: zonda volume status DIR shows its state and its space";

pub(crate) const LONG_ABOUT: &str =
    "Report and manage zones of an image or a zoned drive of this machine, or of a namespace of an \
NVMe/TCP server (zonda or any other).

    DIR                                   an image that is not in use by a server
    /dev/nvme0n1                          a zoned drive that is not mounted
    nvme-tcp://HOST:PORT/NQN              namespace 1 of a subsystem
    nvme-tcp://HOST:PORT/NQN?namespace=2  another namespace";

const EXAMPLES: &str = "Examples:
  zonda zone report nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:zonda-drive
  zonda zone report drives/a 3 --count 5
  zonda zone reset nvme-tcp://127.0.0.1/nqn.2026-01.io.zonda:zonda-drive 3
  zonda zone reset drives/a --all
  zonda zone report drives/a --json | jq '.zones[] | select(.state == \"full\") | .zone'";

const REPORT_EXAMPLES: &str = "Examples:
  zonda zone report nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:zonda-drive
  zonda zone report drives/a 3 --count 5
  zonda zone report drives/a --json | jq '.zones[] | select(.state == \"full\") | .zone'";

const RESET_EXAMPLES: &str = "Examples:
  zonda zone reset nvme-tcp://127.0.0.1/nqn.2026-01.io.zonda:zonda-drive 3
  zonda zone reset drives/a 4..8
  zonda zone reset drives/a --all";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum ZoneCommand {
    /// Report zones as a map, or as a list with --list
    #[command(after_long_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Reset zones to empty; their data is lost
    ///
    /// --all resets the open, closed and full zones.
    #[command(after_long_help = RESET_EXAMPLES)]
    Reset(manage::ManageArgs),
    /// Finish zones: make them full
    ///
    /// --all finishes the open and closed zones, but not the empty ones.
    Finish(manage::ManageArgs),
    /// Open zones explicitly; they stay open until closed, finished or reset
    ///
    /// --all opens the closed zones.
    Open(manage::ManageArgs),
    /// Close open zones
    ///
    /// --all closes the implicitly and explicitly opened zones.
    Close(manage::ManageArgs),
}

/// The namespace.
#[derive(Debug, Args)]
struct PlaceArgs {
    /// Directory of an image, device file of a zoned drive, or nvme-tcp://HOST:PORT/NQN
    #[arg(value_name = "DIR|DEVICE|URL")]
    location: String,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// The zones to report, and the format.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// First zone to report; without --count, only this zone
    #[arg(allow_negative_numbers = true, value_parser = units::zone_number)]
    zone: Option<u32>,
    /// Number of zones to report
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Print a line for each zone
    #[arg(long, short)]
    list: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ZoneCommand) -> Result<(), Failure> {
    match command {
        ZoneCommand::Report(args) => report(args),
        ZoneCommand::Reset(args) => manage::run(args, manage::Action::Reset),
        ZoneCommand::Finish(args) => manage::run(args, manage::Action::Finish),
        ZoneCommand::Open(args) => manage::run(args, manage::Action::Open),
        ZoneCommand::Close(args) => manage::run(args, manage::Action::Close),
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    location: String,
    block_size_bytes: u32,
    zone_size_blocks: u64,
    zones_in_namespace: u32,
    max_active_zones: Option<u32>,
    max_open_zones: Option<u32>,
    zones: Vec<Zone>,
}

/// One zone.
#[derive(Serialize)]
struct Zone {
    zone: u32,
    state: String,
    #[serde(rename = "type")]
    zone_type: &'static str,
    start_block: u64,
    capacity_blocks: u64,
    /// Absent in states without a valid write pointer.
    write_pointer_block: Option<u64>,
}

fn report(args: &ReportArgs) -> Result<(), Failure> {
    let (location, options) = (connect::location(&args.place.location)?, args.place.connect.options()?);
    let (geometry, descriptors) = match &location {
        // Nothing is written, so that the image can be on a read-only medium.
        Location::Image(directory) => {
            remedies::refuse_volume(directory, NO_ZONES)?;
            let Inspection { spec, zones: table, .. } = inspect(directory)?;
            let zones = zones_of(args, &spec.geometry)?;
            let start = spec.geometry.zone_start(ZoneIndex(zones.start));
            let report = table.report(start, ReportFilter::All, false, true, zones.len() as u32);
            (spec.geometry, report.expect("a report of zones that exist succeeds").zones)
        }
        Location::Device(_) | Location::NvmeTcp(_) => connect::with(&location, &options, |connection| {
            let geometry = connection.geometry().clone();
            let zones = zones_of(args, &geometry)?;
            Ok((geometry, connect::descriptors(connection, zones.start, zones.len() as u32)?))
        })?,
    };
    if args.json {
        return print_json(&Report {
            location: location.to_string(),
            block_size_bytes: geometry.block_size_bytes,
            zone_size_blocks: geometry.zone_size_blocks.0,
            zones_in_namespace: geometry.zone_count,
            max_active_zones: geometry.max_active_zones,
            max_open_zones: geometry.max_open_zones,
            zones: descriptors.iter().map(|descriptor| Zone::of(descriptor, &geometry)).collect(),
        });
    }
    let screen = Screen::of_stdout();
    let title = screen.bold(&location.to_string());
    let capacity = units::bytes(geometry.zone_capacity_bytes());
    let is_conventional = geometry.conventional_zone_count == geometry.zone_count;
    let wants_list = args.list || args.zone.is_some() || args.count.is_some();
    if is_conventional && geometry.zone_count == 1 && !wants_list {
        // A volume, or another namespace of the NVM command set.
        return print(&format!("{title}\n{capacity}, conventional: random writes, no zones\n"));
    }
    let zones = format!("{} of {capacity}", units::counted(u64::from(geometry.zone_count), "zone"));
    let rules = if is_conventional {
        "conventional: random writes, no zone management".to_owned()
    } else {
        format!("at most {} active and {} open", limit(geometry.max_active_zones), limit(geometry.max_open_zones))
    };
    let summary = format!("{title}\n{zones}, {rules}\n");
    let body = if wants_list {
        table(&descriptors, &geometry).render(screen, 2)
    } else {
        zone_map::draw(&zone_map::of_descriptors(&descriptors, &geometry), geometry.zone_capacity_blocks.0, screen)
    };
    print(&format!("{summary}\n{body}"))
}

/// The zones to report.
fn zones_of(args: &ReportArgs, geometry: &Geometry) -> Result<Range<u32>, Failure> {
    let first = args.zone.unwrap_or(0);
    check_zone(geometry, first)?;
    let all = geometry.zone_count - first;
    let count = args.count.unwrap_or(if args.zone.is_some() { 1 } else { all }).min(all);
    Ok(first..first + count)
}

fn limit(limit: Option<u32>) -> String {
    limit.map_or_else(|| "any number".to_owned(), |limit| units::count(u64::from(limit)))
}

/// Checks that a zone exists.
fn check_zone(geometry: &Geometry, zone: u32) -> Result<(), Failure> {
    if zone < geometry.zone_count {
        return Ok(());
    }
    if geometry.zone_count == 1 && geometry.conventional_zone_count == 1 {
        return Err(Failure::input(
            format!("zone {zone} does not exist: the namespace is conventional and has no zones"),
            "a volume or a conventional namespace is written at any address: no command for zones applies to it",
        ));
    }
    let help = match geometry.zone_count {
        1 => "the only zone is 0".to_owned(),
        zones => format!("choose a zone from 0 to {}", zones - 1),
    };
    Err(Failure::input(format!("zone {zone} does not exist"), help))
}

impl Zone {
    fn of(descriptor: &ZoneDescriptor, geometry: &Geometry) -> Zone {
        let zone = geometry.zone_of(descriptor.start).map_or(0, |zone| zone.0);
        Zone {
            zone,
            state: descriptor.state.to_string(),
            zone_type: match descriptor.zone_type {
                ZoneType::Conventional => "conventional",
                ZoneType::SequentialWriteRequired => "sequential write required",
            },
            start_block: descriptor.start.0,
            capacity_blocks: descriptor.capacity_blocks.0,
            write_pointer_block: descriptor.write_pointer.map(|pointer| pointer.0),
        }
    }
}

fn table(descriptors: &[ZoneDescriptor], geometry: &Geometry) -> Table {
    let mut table = Table::new(&[">zone", "state", ">start", ">capacity", ">write pointer", ">written"]);
    for descriptor in descriptors {
        let zone = Zone::of(descriptor, geometry);
        // A conventional zone has no write pointer.
        let is_sequential = descriptor.zone_type == ZoneType::SequentialWriteRequired;
        let written = zone_map::written_blocks(descriptor).filter(|_| is_sequential);
        table.row(&[
            zone.zone.to_string(),
            zone.state,
            format!("{:#x}", zone.start_block),
            format!("{:#x}", zone.capacity_blocks),
            zone.write_pointer_block.map_or_else(|| "-".to_owned(), |pointer| format!("{pointer:#x}")),
            written
                .map_or_else(|| "-".to_owned(), |blocks| units::bytes(blocks * u64::from(geometry.block_size_bytes))),
        ]);
    }
    table
}
