//! `zonda zone`: the zones of an image or of a server's namespace, looked at and managed.

mod manage;

use std::ops::Range;

use clap::{Args, Subcommand};
use serde::Serialize;
use zonda_devices::{Location, is_volume};
use zonda_image::Inspection;
use zonda_zoned::{Geometry, ReportFilter, ZoneDescriptor, ZoneIndex, ZoneType};

use crate::commands::connect::{self, ConnectArgs};
use crate::commands::drive::image::inspect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::{units, zone_map};

pub(crate) const LONG_ABOUT: &str =
    "Looks at zones, and manages them: of an image on this machine, or of a namespace that a \
server has (zonda's or any other NVMe/TCP server).

    DIR                                   an image; no server may have it
    nvme-tcp://HOST:PORT/NQN              the first namespace of a subsystem
    nvme-tcp://HOST:PORT/NQN?namespace=2  another one";

const EXAMPLES: &str = "Examples:
  zonda zone report nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:zonda-drive
  zonda zone report drives/a 3 --count 5
  zonda zone reset nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:zonda-drive 3
  zonda zone reset drives/a --all
  zonda zone report drives/a --json | jq '.zones[] | select(.state == \"full\") | .zone'";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum ZoneCommand {
    /// Shows zones: a picture, and a line for each with --list
    #[command(after_long_help = EXAMPLES)]
    Report(ReportArgs),
    /// Makes zones empty: what they hold is lost
    #[command(after_long_help = EXAMPLES)]
    Reset(manage::ManageArgs),
    /// Makes zones full
    Finish(manage::ManageArgs),
    /// Opens zones of a server, which then stay open until they are closed, finished or reset
    Open(manage::ManageArgs),
    /// Closes open zones
    Close(manage::ManageArgs),
}

/// Which namespace.
#[derive(Debug, Args)]
struct PlaceArgs {
    /// Where the zones are: the directory of an image, or nvme-tcp://HOST:PORT/NQN
    #[arg(value_name = "DIR|URL")]
    location: String,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Which zones, and how they are shown.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The first zone to show; without --count the only one
    zone: Option<u32>,
    /// How many zones to show
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Shows a line for each zone
    #[arg(long, short)]
    list: bool,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ZoneCommand) -> Result<(), Failure> {
    match command {
        ZoneCommand::Report(args) => report(args),
        ZoneCommand::Reset(args) => manage::run(args, manage::Wish::Reset),
        ZoneCommand::Finish(args) => manage::run(args, manage::Wish::Finish),
        ZoneCommand::Open(args) => manage::run(args, manage::Wish::Open),
        ZoneCommand::Close(args) => manage::run(args, manage::Wish::Close),
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
    /// Absent where the state has none.
    write_pointer_block: Option<u64>,
}

fn report(args: &ReportArgs) -> Result<(), Failure> {
    let (location, options) = (connect::location(&args.place.location)?, args.place.connect.options()?);
    let (geometry, descriptors) = match &location {
        // Nothing is repaired for a look, so that it may be on a medium that is read-only.
        Location::Image(directory) if !is_volume(directory) => {
            let Inspection { spec, zones: table, .. } = inspect(directory)?;
            let zones = zones_of(args, &spec.geometry)?;
            let start = spec.geometry.zone_start(ZoneIndex(zones.start));
            let report = table.report(start, ReportFilter::All, false, true, zones.len() as u32);
            (spec.geometry, report.expect("a report of zones that exist succeeds").zones)
        }
        _ => connect::with(&location, &options, |connection| {
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
    let zones = format!(
        "{} of {}",
        units::counted(u64::from(geometry.zone_count), "zone"),
        units::bytes(geometry.zone_capacity_bytes())
    );
    let rules = if geometry.conventional_zone_count == geometry.zone_count {
        "conventional: written anywhere, and never managed".to_owned()
    } else {
        format!("{} active and {} open at most", limit(geometry.max_active_zones), limit(geometry.max_open_zones))
    };
    let summary = format!("{}\n{zones}, {rules}\n", screen.bold(&location.to_string()));
    let body = if args.list || args.zone.is_some() || args.count.is_some() {
        table(&descriptors, &geometry).render(screen, 2)
    } else {
        zone_map::draw(&zone_map::of_descriptors(&descriptors, &geometry), geometry.zone_capacity_blocks.0, screen)
    };
    print(&format!("{summary}\n{body}"))
}

/// The zones that are to be shown.
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

/// A zone's number must be one of a zone.
fn check_zone(geometry: &Geometry, zone: u32) -> Result<(), Failure> {
    if zone < geometry.zone_count {
        return Ok(());
    }
    let help = match geometry.zone_count {
        1 => "it has only zone 0".to_owned(),
        zones => format!("its zones are 0 to {}: write one of them", zones - 1),
    };
    Err(Failure::input(format!("the namespace has no zone {zone}"), help))
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
        let written = zone_map::written_blocks(descriptor);
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
