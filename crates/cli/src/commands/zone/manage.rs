//! `zonda zone reset`, `finish`, `open` and `close`.

use std::ops::Range;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use zonda_devices::{Connection, Location};
use zonda_image::{ImageSpec, Inspection};
use zonda_zoned::{Operation, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZoneType};

use super::{NO_ZONES, PlaceArgs, check_zone, on_device};
use crate::commands::connect;
use crate::commands::drive::image::peek;
use crate::errors::Failure;
use crate::output::{print, print_json};
use crate::{remedies, units, zone_map};

/// What the user can do with the volume of which a drive is a member.
const OF_MEMBER: &str = "the volume manages the zones of its members: zonda volume status shows it, and zonda member replace or \
                         zonda volume spare remove frees a drive for other uses";
/// Columns for the list of changed zones.
const ZONES_WIDTH: usize = 70;

/// The zones to manage.
#[derive(Debug, Args)]
pub(crate) struct ManageArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Number of a zone, starting at 0, or several: 2..5 are the zones 2, 3 and 4
    #[arg(value_name = "ZONE|FIRST..END", allow_negative_numbers = true, value_parser = units::zone_range)]
    zones: Option<Range<u32>>,
    /// All zones whose state the command can change (see the description of the command)
    #[arg(long, conflicts_with = "zones")]
    all: bool,
    /// Allow managing zones of a member of a volume, which may destroy data of the volume
    #[arg(long)]
    force: bool,
    /// Confirm the loss of data on a drive of this machine
    #[arg(long)]
    yes: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The action of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Reset,
    Finish,
    Open,
    Close,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Done {
    location: String,
    action: &'static str,
    /// Zones whose state has changed.
    changed_zones: Vec<u32>,
}

impl Action {
    fn zone_action(self) -> ZoneAction {
        match self {
            Action::Reset => ZoneAction::Reset,
            Action::Finish => ZoneAction::Finish,
            Action::Open => ZoneAction::Open { zrwa: false },
            Action::Close => ZoneAction::Close,
        }
    }

    /// The name of the subcommand.
    fn name(self) -> &'static str {
        match self {
            Action::Reset => "reset",
            Action::Finish => "finish",
            Action::Open => "open",
            Action::Close => "close",
        }
    }

    /// The states of the zones that the action changes with `--all`.
    fn states_of_all(self) -> &'static str {
        match self {
            Action::Reset => "open, closed or full",
            Action::Finish => "open or closed",
            Action::Open => "closed",
            Action::Close => "open",
        }
    }

    /// The remedy for a zone whose state the action cannot change.
    fn remedy(self, state: ZoneState) -> &'static str {
        match (self, state) {
            (_, ZoneState::NotWritePointer) => "choose a sequential zone: conventional zones have no states to change",
            (_, ZoneState::ReadOnly | ZoneState::Offline) => "the medium of the zone has failed: use another zone",
            (Action::Close, _) => "choose an open zone: zonda zone report --list shows the states of all zones",
            (Action::Open, ZoneState::Full) => {
                "choose an empty or closed zone, or reset this one first (zonda zone reset), whereby its data is lost"
            }
            (Action::Open, _) => {
                "choose an empty or closed zone: zonda zone report --list shows the states of all zones"
            }
            (Action::Reset | Action::Finish, _) => "check the state of the zone with zonda zone report",
        }
    }

    /// The state of a zone afterwards.
    fn result(self) -> &'static str {
        match self {
            Action::Reset => "empty",
            Action::Finish => "full",
            Action::Open => "open",
            Action::Close => "closed",
        }
    }
}

pub(super) fn run(args: &ManageArgs, action: Action) -> Result<(), Failure> {
    let location = connect::location(&args.place.location)?;
    if let Location::Image(directory) = &location {
        remedies::refuse_volume(directory, NO_ZONES)?;
    }
    if args.zones.is_none() && !args.all {
        let message = format!("zonda zone {} needs a zone", action.name());
        return Err(Failure::input(message, "add the number of a zone, or --all for all zones"));
    }
    if let Location::Image(directory) = &location {
        check_image(args, directory, action)?;
    }
    if action == Action::Open && matches!(location, Location::Image(_)) {
        return Err(Failure::input(
            "zones of an image cannot stay open: they are closed when zonda zone exits",
            "serve the image, and open the zone through its nvme-tcp:// URL",
        ));
    }
    let options = args.place.connect.options()?;
    let changed = connect::with(&location, &options, |connection| {
        if !args.force {
            connect::refuse_member(connection, &location, OF_MEMBER)?;
        }
        if matches!(location, Location::Device(_)) && !args.yes {
            on_device::agree(connection, &location, args.zones.clone(), action)?;
        }
        manage(connection, args.zones.clone(), action)
    })?;
    if args.json {
        return print_json(&Done { location: location.to_string(), action: action.name(), changed_zones: changed });
    }
    let result = action.result();
    print(&match (&args.zones, changed.as_slice()) {
        (Some(zones), []) if zones.len() == 1 => format!("zone {} was already {result}\n", zones.start),
        (Some(zones), []) => format!("zones {}..{} were already {result}\n", zones.start, zones.end),
        (Some(zones), _) if zones.len() == 1 => format!("zone {} is {result}\n", zones.start),
        (None, []) => format!("nothing to {}: no zone is {}\n", action.name(), action.states_of_all()),
        (_, changed) => {
            let zones = zone_map::in_ranges(changed.iter().map(|zone| (*zone, zone + 1)), ZONES_WIDTH);
            let are = if changed.len() == 1 { "is" } else { "are" };
            format!("{} {are} now {result}: {zones}\n", units::counted(changed.len() as u64, "zone"))
        }
    })
}

/// Refuses what an image does not support before it is opened for writing, which rewrites its files.
fn check_image(args: &ManageArgs, directory: &Path, action: Action) -> Result<(), Failure> {
    let Some(Inspection { spec: ImageSpec { geometry, .. }, .. }) = peek(directory) else { return Ok(()) };
    if let Some(zones) = &args.zones {
        check_zone(&geometry, zones.end - 1)?;
        let is_conventional = |zone: &u32| geometry.zone_type(ZoneIndex(*zone)) == ZoneType::Conventional;
        if let Some(zone) = zones.clone().find(is_conventional) {
            let message = format!("the drive refuses to {} zone {zone}, which is conventional", action.name());
            return Err(Failure::input(message, action.remedy(ZoneState::NotWritePointer)));
        }
    }
    if args.force { Ok(()) } else { remedies::refuse_member_image(directory, OF_MEMBER) }
}

/// Carries out the action, and returns the zones whose state has changed.
fn manage(connection: &mut Connection, zones: Option<Range<u32>>, action: Action) -> Result<Vec<u32>, Failure> {
    let geometry = connection.geometry().clone();
    let all = zones.clone().unwrap_or(0..geometry.zone_count);
    check_zone(&geometry, all.end - 1)?;
    let count = all.len() as u32;
    let before = connect::descriptors(connection, all.start, count)?;
    let operation = |target| Operation::ManageZones { action: action.zone_action(), target };
    match zones {
        None => {
            let what = format!("to {} all zones", action.name());
            connect::execute_or(connection, operation(ZoneTarget::All), &what, |_| None)?;
        }
        Some(zones) => {
            for (zone, descriptor) in zones.zip(&before) {
                let target = ZoneTarget::Zone(geometry.zone_start(ZoneIndex(zone)));
                let what = format!("to {} zone {zone}, which is {}", action.name(), in_words(descriptor.state));
                let remedy = |status| match status {
                    Status::InvalidZoneStateTransition | Status::InvalidField => Some(action.remedy(descriptor.state)),
                    _ => None,
                };
                connect::execute_or(connection, operation(target), &what, remedy)?;
            }
        }
    }
    let after = connect::descriptors(connection, all.start, count)?;
    let pairs = all.zip(before.iter().zip(&after));
    // An explicit open of an implicitly opened zone changes its state, too.
    Ok(pairs.filter(|(_, (before, after))| before.state != after.state).map(|(zone, _)| zone).collect())
}

/// The state of a zone, the most common reason for a refusal.
fn in_words(state: ZoneState) -> String {
    match state {
        ZoneState::NotWritePointer => "conventional".to_owned(),
        state => state.to_string(),
    }
}
