//! `zonda zone reset`, `finish`, `open` and `close`.

use clap::Args;
use serde::Serialize;
use zonda_devices::{Connection, Location};
use zonda_zoned::{Operation, ZoneAction, ZoneDescriptor, ZoneIndex, ZoneState, ZoneTarget};

use super::{PlaceArgs, check_zone};
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{print, print_json};
use crate::{units, zone_map};

/// Columns for the list of zones that have changed.
const ZONES_WIDTH: usize = 70;

/// Which zones.
#[derive(Debug, Args)]
pub(crate) struct ManageArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The zone, counted from 0
    zone: Option<u32>,
    /// Every zone that is in a state for it
    #[arg(long, conflicts_with = "zone")]
    all: bool,
    /// Manages zones of a drive that is a member of a volume: the volume may lose what they hold
    #[arg(long)]
    force: bool,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

/// What is to be done to zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
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
    /// Those whose state is another now.
    changed_zones: Vec<u32>,
}

impl Wish {
    fn action(self) -> ZoneAction {
        match self {
            Wish::Reset => ZoneAction::Reset,
            Wish::Finish => ZoneAction::Finish,
            Wish::Open => ZoneAction::Open { zrwa: false },
            Wish::Close => ZoneAction::Close,
        }
    }

    /// The word on the command line.
    fn name(self) -> &'static str {
        match self {
            Wish::Reset => "reset",
            Wish::Finish => "finish",
            Wish::Open => "open",
            Wish::Close => "close",
        }
    }

    /// How a zone is afterwards.
    fn result(self) -> &'static str {
        match self {
            Wish::Reset => "empty",
            Wish::Finish => "full",
            Wish::Open => "open",
            Wish::Close => "closed",
        }
    }
}

pub(super) fn run(args: &ManageArgs, wish: Wish) -> Result<(), Failure> {
    let location = connect::location(&args.place.location)?;
    if args.zone.is_none() && !args.all {
        let message = format!("zonda zone {} needs the zone", wish.name());
        return Err(Failure::input(message, "write the number of a zone behind the place, or --all for every zone"));
    }
    if wish == Wish::Open && matches!(location, Location::Image(_)) {
        return Err(Failure::input(
            "no zone of an image stays open when zonda zone ends",
            "serve the image, and open the zone by its nvme-tcp:// URL",
        ));
    }
    let options = args.place.connect.options()?;
    let changed = connect::with(&location, &options, |connection| {
        if !args.force {
            connect::refuse_member(connection, &location)?;
        }
        manage(connection, args.zone, wish)
    })?;
    if args.json {
        return print_json(&Done { location: location.to_string(), action: wish.name(), changed_zones: changed });
    }
    let result = wish.result();
    print(&match (args.zone, changed.as_slice()) {
        (Some(zone), []) => format!("zone {zone} was {result} before\n"),
        (Some(zone), _) => format!("zone {zone} is {result}\n"),
        (None, []) => format!("no zone was in a state to {}\n", wish.name()),
        (None, changed) => {
            let zones = zone_map::in_ranges(changed.iter().map(|zone| (*zone, zone + 1)), ZONES_WIDTH);
            let are = if changed.len() == 1 { "is" } else { "are" };
            format!("{} {are} {result} now: {zones}\n", units::counted(changed.len() as u64, "zone"))
        }
    })
}

/// Does it, and returns the zones whose state is another now.
fn manage(connection: &mut Connection, zone: Option<u32>, wish: Wish) -> Result<Vec<u32>, Failure> {
    let geometry = connection.geometry().clone();
    let (first, count) = zone.map_or((0, geometry.zone_count), |zone| (zone, 1));
    check_zone(&geometry, first)?;
    let (target, words) = match zone {
        None => (ZoneTarget::All, "all zones".to_owned()),
        Some(zone) => (ZoneTarget::Zone(geometry.zone_start(ZoneIndex(zone))), format!("zone {zone}")),
    };
    let before = connect::descriptors(connection, first, count)?;
    let operation = Operation::ManageZones { action: wish.action(), target };
    let state = state_in_words(&before, zone);
    connect::execute(connection, operation, &format!("to {} {words}{state}", wish.name()))?;
    let after = connect::descriptors(connection, first, count)?;
    let pairs = (first..).zip(before.iter().zip(&after));
    // A zone that was open is empty after a reset, and one that was opened by a write is opened by a host.
    Ok(pairs.filter(|(_, (before, after))| before.state != after.state).map(|(zone, _)| zone).collect())
}

/// The state of a single zone, which tells why a drive refuses.
fn state_in_words(zones: &[ZoneDescriptor], zone: Option<u32>) -> String {
    match (zone, zones.first()) {
        (Some(_), Some(descriptor)) if descriptor.state == ZoneState::NotWritePointer => {
            ", which is conventional".to_owned()
        }
        (Some(_), Some(descriptor)) => format!(", which is {}", descriptor.state),
        _ => String::new(),
    }
}
